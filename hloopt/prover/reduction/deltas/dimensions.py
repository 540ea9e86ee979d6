"""Smaller dimensions, through all shapes of a module that have to agree.

Dimensions that an op ties together are one class (union-find over ``analysis.parallel_loop.ties`` and what
else has to agree: contracted dimensions, operands of a concatenate, the state of a loop).  A class gets a new
size; shapes that nothing but the text decides (parameters, constants, iota, broadcast, reshape) take the sizes
of their classes, all others are inferred again, and where one comes out other than its class says, the class
follows.  What does not settle in a few rounds, or does not verify, is no candidate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Final, TypeAlias

from hloopt.analysis.layout import reshaped_groups
from hloopt.analysis.parallel_loop.ties import relations
from hloopt.errors import ShapeError
from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.ir.walk import called_computations, callees_first
from hloopt.ops.traits import SOURCES, UPDATING
from hloopt.prover.reduction.case import Case, CaseDraft
from hloopt.prover.reduction.deltas.resizing import resized_attributes
from hloopt.prover.reduction.recording import Delta, Site, ValueRecorder
from hloopt.types import Array, ArrayShape, Shape, TupleShape

__all__ = ["DIMENSIONS"]

Dim: TypeAlias = tuple[Instruction, int, int]
"""A dimension of a leaf of an instruction's shape: the instruction, the leaf's number, the dimension's."""

_ROUNDS: Final = 8
_DECIDED: Final = SOURCES | {"broadcast", "reshape", "slice"}
"""Ops whose result has dimensions that no operand decides."""
_KEEPING: Final = frozenset({"reverse", "all-reduce", "cholesky"})
"""Their result has the dimensions of the first operand, beside those that replace a part of it."""


class _Classes:
    """Classes of dimensions that agree, by union-find."""

    def __init__(self, module: Module) -> None:
        self._above: dict[Dim, Dim] = {}
        for computation in module:
            for instruction in computation:
                self._tie(instruction)

    def of(self, dim: Dim) -> Dim:
        """The dimension that stands for a class."""
        path = []
        while (above := self._above.get(dim, dim)) != dim:
            path.append(dim)
            dim = above
        for one in path:
            self._above[one] = dim
        return dim

    def _join(self, left: Dim, right: Dim) -> None:
        left, right = self.of(left), self.of(right)
        if left != right and _size(left) == _size(right):
            self._above[right] = left

    def _same(self, left: Instruction, right: Instruction) -> None:
        """All dimensions of two values of one shape."""
        for number, shape in enumerate(_leaves(left.shape)):
            for dim in range(len(shape.dims)):
                self._join((left, number, dim), (right, number, dim))

    def _tie(self, one: Instruction) -> None:
        if one.opcode == "tuple":
            for number, operand in enumerate(one.operands):
                self._element(one, number, operand)
        elif one.opcode == "get-tuple-element":
            self._element(one.operands[0], one.tuple_index, one)
        elif one.op.calls in ("sequence", "async", "fused"):
            self._tie_calls(one)
        elif all(operand.is_array for operand in one.operands) and one.operands:
            self._tie_arrays(one)
        elif one.operands and one.operands[0].shape == one.shape:
            self._same(one, one.operands[0])

    def _element(self, whole: Instruction, number: int, element: Instruction) -> None:
        first = sum(len(_leaves(shape)) for shape in whole.elements[:number])
        for at, shape in enumerate(_leaves(element.shape)):
            for dim in range(len(shape.dims)):
                self._join((whole, first + at, dim), (element, at, dim))

    def _tie_calls(self, one: Instruction) -> None:
        called = list(called_computations(one))
        operands = one.operands[1:] if one.opcode == "conditional" else one.operands
        for number, body in enumerate(called):
            given = operands[number : number + 1] if one.opcode == "conditional" else operands
            for operand, parameter in zip(given, body.parameters, strict=False):
                if operand.shape == parameter.shape:
                    self._same(operand, parameter)
            if body.root.shape == one.shape:
                self._same(one, body.root)

    def _tie_arrays(self, one: Instruction) -> None:
        results = range(len(_leaves(one.shape)))
        for relation in relations(one):
            if relation.result is not None:
                source = (one.operands[relation.operand], 0, relation.dim)
                for number in results:
                    if relation.result < len(_leaves(one.shape)[number].dims):
                        self._join(source, (one, number, relation.result))
        for left, right in _also(one):
            self._join(left, right)


def _also(one: Instruction) -> Iterator[tuple[Dim, Dim]]:
    """Dimensions that agree although elements of the result need several of them."""
    operands = one.operands
    if one.opcode == "dot":
        lhs = one.attributes.get("lhs_contracting_dims", ())
        rhs = one.attributes.get("rhs_contracting_dims", ())
        for left, right in zip(lhs, rhs, strict=True):
            yield (operands[0], 0, left), (operands[1], 0, right)
    elif one.opcode in ("reduce", "sort", "reduce-window"):
        inputs = operands if one.opcode == "sort" else one.fold_inputs
        for other in inputs[1:]:
            for dim in range(other.array.rank):
                yield (inputs[0], 0, dim), (other, 0, dim)
        if one.opcode == "sort":
            for number in range(len(inputs)):
                for dim in range(inputs[0].array.rank):
                    yield (inputs[0], 0, dim), (one, number, dim)
    elif one.opcode in _KEEPING or one.opcode in UPDATING:
        for dim in range(operands[0].array.rank):
            yield (operands[0], 0, dim), (one, 0, dim)
    if one.opcode == "cholesky":
        rank = one.array.rank
        yield (one, 0, rank - 2), (one, 0, rank - 1)
    if one.opcode == "triangular-solve":
        rank, at = one.array.rank, -2 if one.attributes.get("left_side", True) else -1
        yield (operands[0], 0, rank - 2), (operands[0], 0, rank - 1)
        yield (operands[0], 0, rank - 1), (operands[1], 0, rank + at)
        for dim in range(rank):
            yield (operands[1], 0, dim), (one, 0, dim)


def _leaves(shape: Shape) -> Sequence[ArrayShape]:
    """The arrays of a shape; what has no dimensions (a token) is there, too."""
    parts: Any = shape.leaves if isinstance(shape, TupleShape) else (shape,)
    found: Sequence[ArrayShape] = parts
    return found


def _size(dim: Dim) -> int:
    shape = _leaves(dim[0].shape)[dim[1]]
    return shape.dims[dim[2]]


def _sites(case: Case) -> list[Site]:
    """For each class of sizes above 1, the largest first: 1, 2, half of it."""
    classes = _Classes(case.module)
    found: dict[Dim, int] = {}
    for home in case.module:
        for one in home:
            if one.opcode in _DECIDED:
                for number, shape in enumerate(_leaves(one.shape)):
                    for dim, size in enumerate(getattr(shape, "dims", ())):
                        if size > 1:
                            found.setdefault(classes.of((one, number, dim)), size)
    return [
        (one.home.name, one.name, leaf, dim, smaller)
        for (one, leaf, dim), size in sorted(found.items(), key=lambda entry: -entry[1])
        for smaller in dict.fromkeys((1, 2, 3, -(-size // 2)))
        if smaller < size
    ]


def _apply(draft: CaseDraft, sites: Sequence[Site], _: ValueRecorder) -> None:
    """Set the sizes of classes; a draft that cannot take them is left as it is or does not verify."""
    classes = _Classes(draft.module)
    sizes: dict[Dim, int] = {}
    for home, name, leaf, dim, size in sites:
        one = draft.find((home, name))
        if one is not None:
            key = classes.of((one, leaf, dim))
            sizes[key] = min(size, sizes.get(key, size))
    order = callees_first(draft.module)
    original = {one: one.shape for one in draft.module.instructions()}
    for _round in range(_ROUNDS):
        undo: list[tuple[Instruction, str, Any]] = []
        if not _settle(order, classes, sizes, original, undo):
            _cut_arrays(draft, original)
            return
        for one, name, value in reversed(undo):
            edit.set_attribute(one, name, value)
        for one, shape in original.items():
            edit.set_shape(one, shape)
    raise ShapeError("the sizes do not settle")


def _settle(
    order: list[Computation],
    classes: _Classes,
    sizes: dict[Dim, int],
    original: dict[Instruction, Shape],
    undo: list[tuple[Instruction, str, Any]],
) -> bool:
    """Give all shapes their new sizes; whether a class had to follow, so that another round is needed.

    ``undo`` gets the attributes that change, with what they were.
    """
    changed = False
    for computation in order:
        for one in computation:
            wanted = _wanted(one, original[one], classes, sizes)
            got = _resized(one, original, wanted, undo)
            edit.set_shape(one, got)
            for number, (shape, target) in enumerate(
                zip(_leaves(got), _leaves(wanted), strict=True)
            ):
                dims = zip(getattr(shape, "dims", ()), getattr(target, "dims", ()), strict=True)
                for dim, (size, other) in enumerate(dims):
                    if size != other:
                        sizes[classes.of((one, number, dim))] = size
                        changed = True
    return changed


def _wanted(one: Instruction, shape: Shape, classes: _Classes, sizes: dict[Dim, int]) -> Shape:
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
) -> Shape:
    """The shape that an op infers from its operands' new ones; what the text decides is as wanted."""
    if one.opcode == "tuple":
        return TupleShape(tuple(operand.shape for operand in one.operands))
    if one.opcode == "reshape" and isinstance(wanted, ArrayShape):
        wanted = replace(wanted, dims=_reshaped(one, original, wanted))
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


def _cut(array: Array, dims: Sequence[int]) -> Array:
    return array[tuple(slice(size) for size in dims)]


def _cut_arrays(draft: CaseDraft, original: dict[Instruction, Shape]) -> None:
    """Give parameters of the entry the first elements of what they were given."""
    for parameter, leaves in draft.arrays.items():
        if parameter.shape != original[parameter]:
            shapes = [
                shape
                for shape in _leaves(parameter.shape)
                if isinstance(shape, ArrayShape) and shape.dtype.is_array
            ]
            draft.arrays[parameter] = [
                [_cut(array, shape.dims) for array, shape in zip(arrays, shapes, strict=True)]
                for arrays in leaves
            ]


DIMENSIONS: Final = Delta("dimensions", _sites, _apply, "each")
