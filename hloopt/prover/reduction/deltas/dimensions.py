"""Smaller dimensions, through all shapes of a module that have to agree.

A class of dimensions that agree gets a new size; shapes that nothing but the text decides (parameters,
constants, iota, broadcast, reshape) take the sizes of their classes, all others are inferred again, and where
one comes out other than its class says, the class follows.  What does not settle in a few rounds, or does not
verify, is no candidate.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Final

import numpy as np

from hloopt.analysis.layout import reshaped_groups
from hloopt.errors import ShapeError
from hloopt.ir import Computation, Instruction, build, edit
from hloopt.ir.walk import callees_first
from hloopt.ops.traits import SOURCES
from hloopt.prover.reduction.case import Case, CaseDraft
from hloopt.prover.reduction.deltas.agreeing import (
    AgreeingDimensions,
    LeafDimension,
    arrays_of,
    size_of,
)
from hloopt.prover.reduction.deltas.resizing import gathered, resized_attributes
from hloopt.prover.reduction.recording import Delta, Site, ValueRecorder
from hloopt.types import Array, ArrayShape, Shape, TupleShape

__all__ = ["DIMENSIONS", "resize"]

_ROUNDS: Final = 8
_DECIDED: Final = SOURCES | {"broadcast", "slice", "custom-call"}
"""Ops whose result has dimensions that no operand decides."""
_FILLED: Final = ("infeed", "rng-bit-generator")
"""So have these, whose result is a tuple with more than the array that they fill."""


def _sites(case: Case) -> list[Site]:
    """For each class of sizes above 1, the largest first: all ``_smaller`` sizes.

    Inputs keep their first elements, or, where the site says so, their last ones.
    """
    classes = AgreeingDimensions(case.module)
    found: dict[LeafDimension, int] = {}
    for home in case.module:
        for one in home:
            for number, dim in _decided(one):
                size = size_of((one, number, dim))
                if size > 1:
                    found.setdefault(classes.of((one, number, dim)), size)
    return [
        (one.home.name, one.name, leaf, dim, smaller, last)
        for (one, leaf, dim), size in sorted(found.items(), key=lambda entry: -entry[1])
        for smaller, last in _smaller(size)
    ]


def _decided(one: Instruction) -> Iterator[tuple[int, int]]:
    """Dimensions of results, as leaf and number, that no operand decides."""
    if one.opcode == "reshape":
        source, dims = one.operands[0].array.dims, one.array.dims
        for _, right in [] if 0 in dims else reshaped_groups(source, dims):
            yield from ((0, dim) for dim in right if len(right) > 1)
    elif one.opcode in _DECIDED or one.opcode in _FILLED:
        for number, shape in enumerate(arrays_of(one.shape)):
            yield from ((number, dim) for dim in range(len(getattr(shape, "dims", ()))))


def _smaller(size: int) -> list[tuple[int, bool]]:
    """Few sizes that come close to any: 1, 3, powers of 2, and ever smaller parts less than there are.

    1 and the half are there with the last elements, too, so that halving leads to any one of them.
    """
    half = -(-size // 2)
    powers = [1 << power for power in range(half.bit_length()) if 1 << power < half]
    less = [size - (size >> shift) for shift in range(2, 7) if size >> shift]
    chosen = [(1, False), (1, True), *((power, False) for power in sorted({*powers, 3}))]
    chosen += [(half, False), (half, True), *((one, False) for one in less), (size - 1, False)]
    return [one for one in dict.fromkeys(chosen) if 0 < one[0] < size]


def _apply(draft: CaseDraft, sites: Sequence[Site], _: ValueRecorder) -> None:
    classes = AgreeingDimensions(draft.module)
    sizes: dict[LeafDimension, int] = {}
    from_end: set[LeafDimension] = set()
    for home, name, leaf, dim, size, last in sites:
        one = draft.find((home, name))
        if one is not None:
            key = classes.of((one, leaf, dim))
            sizes[key] = min(size, sizes.get(key, size))
            from_end.update([key] if last else ())
    resize(draft, classes, sizes, from_end)


def resize(
    draft: CaseDraft,
    classes: AgreeingDimensions,
    sizes: dict[LeafDimension, int],
    from_end: Collection[LeafDimension] = (),
) -> None:
    """Set the sizes of classes, of which ``from_end`` keep the last elements of inputs.

    Raises ``ShapeError`` where the module cannot take them.
    """
    order = callees_first(draft.module)
    original = {one: one.shape for one in draft.module.instructions()}
    for _round in range(_ROUNDS):
        undo: list[tuple[Instruction, str, Any]] = []
        if not _settle(order, classes, sizes, original, undo, draft.counts):
            _cut_arrays(draft, original, classes, from_end)
            return
        for one, name, value in reversed(undo):
            edit.set_attribute(one, name, value)
        for one, shape in original.items():
            edit.set_shape(one, shape)
    raise ShapeError("the sizes do not settle")


def _settle(
    order: list[Computation],
    classes: AgreeingDimensions,
    sizes: dict[LeafDimension, int],
    original: dict[Instruction, Shape],
    undo: list[tuple[Instruction, str, Any]],
    counts: tuple[int, int],
) -> bool:
    """Give all shapes their new sizes; whether a class had to follow, so that another round is needed.

    ``undo`` gets the attributes that change, with what they were.
    """
    changed = False
    for computation in order:
        for one in computation:
            wanted = _wanted(one, original[one], classes, sizes)
            got = _resized(one, original, wanted, undo, counts)
            edit.set_shape(one, got)
            for number, (shape, target) in enumerate(
                zip(arrays_of(got), arrays_of(wanted), strict=True)
            ):
                dims = zip(getattr(shape, "dims", ()), getattr(target, "dims", ()), strict=True)
                for dim, (size, other) in enumerate(dims):
                    if not size and other:
                        raise ShapeError(f"nothing is left of {one.name}")
                    if size != other:
                        sizes[classes.of((one, number, dim))] = size
                        changed = True
    return changed


def _wanted(
    one: Instruction, shape: Shape, classes: AgreeingDimensions, sizes: dict[LeafDimension, int]
) -> Shape:
    """The shape with the sizes of its classes."""
    number = iter(range(1 << 30))

    def made(part: Shape) -> Shape:
        if isinstance(part, TupleShape):
            return TupleShape(tuple(made(inner) for inner in part.elements))
        at = next(number)
        if not isinstance(part, ArrayShape):
            return part
        dims = tuple(
            sizes.get(classes.of((one, at, dim)), size) for dim, size in enumerate(part.dims)
        )
        return replace(part, dims=dims) if dims != part.dims else part

    return made(shape)


def _resized(
    one: Instruction,
    original: dict[Instruction, Shape],
    wanted: Shape,
    undo: list[tuple[Instruction, str, Any]],
    counts: tuple[int, int],
) -> Shape:
    """The shape that an op infers from its operands' new ones; what the text decides is as wanted."""
    if one.opcode == "tuple":
        return TupleShape(tuple(operand.shape for operand in one.operands))
    if one.opcode == "constant":
        return wanted
    if one.opcode == "reshape" and isinstance(wanted, ArrayShape):
        wanted = replace(wanted, dims=_reshaped(one, original, wanted))
    elif one.opcode in ("all-gather", "reduce-scatter"):
        wanted = gathered(one, wanted, counts)
    changed = resized_attributes(one, original[one], wanted)
    for name, value in changed.items():
        undo.append((one, name, one.attributes[name]))
        edit.set_attribute(one, name, value)
    inferred = build.infer_shape(one, wanted)
    if isinstance(inferred, ArrayShape) and isinstance(wanted, ArrayShape):
        return replace(inferred, layout=wanted.layout)
    return inferred


def _reshaped(
    one: Instruction, original: dict[Instruction, Shape], wanted: ArrayShape
) -> tuple[int, ...]:
    """The result's dimensions: each group of them holds the elements of the operand's group.

    Where it does not by itself, the first of its dimensions that can gets the size that is missing.
    """
    source, before = original[one.operands[0]], original[one]
    assert isinstance(source, ArrayShape)
    assert isinstance(before, ArrayShape)
    given, dims = one.operands[0].array.dims, list(wanted.dims)
    if 0 in source.dims:
        return wanted.dims
    for left, right in reshaped_groups(source.dims, before.dims):
        elements = prod(given[dim] for dim in left)
        for dim in right:
            others = prod(dims[other] for other in right if other != dim)
            if others * dims[dim] != elements and elements % others == 0:
                dims[dim] = elements // others
    return tuple(dims)


def _cut_arrays(
    draft: CaseDraft,
    original: dict[Instruction, Shape],
    classes: AgreeingDimensions,
    from_end: Collection[LeafDimension],
) -> None:
    """Give parameters of the entry, and constants, a part of what they had."""

    def cut(one: Instruction, leaf: int, array: Array) -> Array:
        shape = arrays_of(one.shape)[leaf]
        if any(size > there for size, there in zip(shape.dims, array.shape, strict=True)):
            raise ShapeError(f"{one.name} would have to grow")
        return array[
            tuple(
                slice(there - size, there)
                if classes.of((one, leaf, dim)) in from_end
                else slice(size)
                for dim, (size, there) in enumerate(zip(shape.dims, array.shape, strict=True))
            )
        ]

    for parameter, leaves in draft.arrays.items():
        if parameter.shape != original[parameter]:
            held = [
                number
                for number, shape in enumerate(arrays_of(parameter.shape))
                if isinstance(shape, ArrayShape) and shape.dtype.is_array
            ]
            draft.arrays[parameter] = [
                [cut(parameter, leaf, array) for leaf, array in zip(held, arrays, strict=True)]
                for arrays in leaves
            ]
    for one, shape in original.items():
        literal = one.literal
        if literal is None or one.shape == shape or not isinstance(one.shape, ArrayShape):
            continue
        array = None if literal.array is None else np.ascontiguousarray(cut(one, 0, literal.array))
        edit.set_attribute(one, "literal", replace(literal, shape=one.shape, array=array))


DIMENSIONS: Final = Delta("dimensions", _sites, _apply, "each")
