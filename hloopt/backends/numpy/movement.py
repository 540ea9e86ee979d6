"""Ops that move elements: views where NumPy has them, planned when the line is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from hloopt.backends.numpy.builder import Builder
from hloopt.backends.numpy.plan import SCALARS, Code, Slots
from hloopt.interpret.movement import iota
from hloopt.interpret.tiling import is_tiled, order
from hloopt.ir import Instruction
from hloopt.ops.traits import VIEWS, op_table
from hloopt.types import ArrayShape

__all__ = ["EMITTERS", "Emitter"]

# Operands that are concatenated by assignments, which need not be stretched first, in less time than by
# NumPy's function.
_FEW = 4

Emitter = Callable[[Builder, Instruction, Sequence[int]], "Slots | None"]
"""Adds an instruction whose operands are arrays; None leaves it to its evaluator."""


def _stretches(builder: Builder, slot: int) -> bool:
    """Whether an array is a single element that stands for all elements of a value."""
    return not builder.line.dims[slot]


def _broadcast(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> int:
    """The operand with its dimensions in their places; nothing is repeated."""
    (slot,) = operands
    if _stretches(builder, slot):
        return slot
    targets = instruction.attributes.get("dimensions", ())
    rank = len(targets)
    slot = builder.aligned(slot, rank)
    sizes = builder.line.dims[slot]
    order = sorted(range(rank), key=targets.__getitem__)
    expanded = [1] * len(instruction.array.dims)
    for axis, target in enumerate(targets):
        expanded[target] = sizes[axis]
    first = min(targets, default=0)
    dims = tuple(expanded[first:])
    if order == sorted(order):
        return builder.reshaped(slot, dims)
    return builder.reshaped(_transposed(builder, slot, order), dims)


def _reshape(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> int:
    (slot,) = operands
    if _stretches(builder, slot):
        return slot
    size = prod(builder.line.dims[slot])
    if size == 1:
        return builder.reshaped(slot, ())
    if size != instruction.array.elements:
        slot = builder.full(slot, instruction.operands[0].array.dims)
    dims = instruction.array.dims
    first = next(axis for axis, size in enumerate(dims) if size != 1)
    return builder.reshaped(slot, dims[first:])


def _transpose(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> int:
    return _transposed(builder, operands[0], instruction.attributes["dimensions"])


def _transposed(builder: Builder, slot: int, order: Sequence[int]) -> int:
    if _stretches(builder, slot) or tuple(order) == tuple(range(len(order))):
        return slot
    slot = builder.aligned(slot, len(order))
    dims = tuple(builder.line.dims[slot][axis] for axis in order)
    places = tuple(order)
    text = (
        "{r} = {0}.T"
        if places == tuple(range(len(places)))[::-1]
        else "{r} = {0}.transpose({places})"
    )
    code = Code(text, bound={"places": places})
    return builder.view(lambda x: x.transpose(places), slot, dims, code=code)


def _slice(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> int:
    ranges = instruction.attributes["slice"]
    picks = tuple(slice(r.start, r.limit, r.stride) for r in ranges)
    return _picked(builder, instruction, operands[0], picks)


def _reverse(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> int:
    turned = instruction.attributes["dimensions"]
    picks = tuple(
        slice(None, None, -1) if axis in turned else slice(None)
        for axis in range(instruction.array.rank)
    )
    return _picked(builder, instruction, operands[0], picks)


def _picked(builder: Builder, instruction: Instruction, slot: int, picks: tuple[slice, ...]) -> int:
    """Slices of the dimensions that the array has; those it stretches along stay as they are."""
    if _stretches(builder, slot):
        return slot
    whole = instruction.operands[0].array.dims
    slot = builder.aligned(slot, len(whole))
    sizes = builder.line.dims[slot]
    index = [
        pick if size == logical else slice(None)
        for pick, size, logical in zip(picks, sizes, whole, strict=True)
    ]
    dims = tuple(len(range(size)[pick]) for size, pick in zip(sizes, index, strict=True))
    single = next((axis for axis, size in enumerate(dims) if size != 1), len(dims))
    at = tuple(range(sizes[axis])[index[axis]][0] for axis in range(single))
    if single == len(dims) and builder.line.kinds[slot] in SCALARS:
        return builder.element(slot, at)
    # Leading dimensions of one element are left out, by an index.
    single = min(single, len(dims) - 1)
    whole_index = (*at[:single], *index[single:])
    while whole_index and whole_index[-1] == slice(None):
        whole_index = whole_index[:-1]
    if not whole_index:
        return slot
    code = Code("{r} = {0}[{index}]", bound={"index": whole_index})
    return builder.view(lambda x: x[whole_index], slot, dims[single:], code=code)


def _bitcast(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> int | None:
    """Of one element type: the elements in the order of one layout, read in that of the other."""
    target, source = instruction.shape, instruction.operands[0].shape
    if not isinstance(target, ArrayShape) or not isinstance(source, ArrayShape):
        return None
    if source.dtype is not target.dtype or source.elements != target.elements:
        return None
    if is_tiled(source) or is_tiled(target):
        return None
    before, after = order(source)[::-1], order(target)[::-1]
    slot = builder.full(operands[0], source.dims)
    slot = _transposed(builder, slot, before)
    slot = builder.reshaped(slot, tuple(target.dims[axis] for axis in after))
    return _transposed(builder, slot, [after.index(axis) for axis in range(target.rank)])


def _concatenate(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> int:
    (dimension,) = instruction.attributes["dimensions"]
    pairs = zip(operands, instruction.operands, strict=True)
    taken = [(slot, operand.array) for slot, operand in pairs if operand.array.elements]
    line, dims = builder.line, instruction.array.dims
    if not taken:
        return builder.full(operands[0], dims)
    if len(taken) == 1:
        return builder.full(taken[0][0], dims)
    kind = line.kinds[operands[0]]
    out = line.slot(kind, dims)
    if sum(bool(line.dims[slot]) for slot, _ in taken) > _FEW:
        full = tuple(builder.full(slot, array.dims) for slot, array in taken)
        return line.step(
            lambda *arrays: np.concatenate(arrays, axis=dimension), full, out, moves=True
        )
    text, start = ["{r} = {empty}({dims}, {kind})"], 0
    for at, (slot, array) in enumerate(taken):
        stop = start + array.dims[dimension]
        single = stop - start == 1 and not (dimension or line.dims[slot])
        place = f"{start}" if single else f"{':, ' * dimension}{start}:{stop}"
        text.append(f"{{r}}[{place}] = {{{at}}}")
        start = stop
    slots = tuple(slot for slot, _ in taken)
    scalars = frozenset(at for at, slot in enumerate(slots) if line.is_scalar(slot))
    bound = {"dims": dims, "empty": np.empty, "kind": kind}
    sizes = [array.dims for _, array in taken]

    def joined(*arrays: Any) -> Any:
        return np.concatenate(list(map(np.broadcast_to, arrays, sizes)), axis=dimension)

    code = Code("\n".join(text), scalars, bound=bound)
    return line.once(joined, slots, out, code=code, moves=True)


def _iota(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> int:
    """Counted along its dimension, stretched along the others."""
    shape = instruction.array
    axis = instruction.attributes["iota_dimension"]
    if not shape.elements:
        return builder.constant(np.zeros(shape.dims, builder.context.carrier(shape.dtype)))
    count = iota((shape.dims[axis],), 0, shape.dtype)
    dims = (shape.dims[axis],) + (1,) * (shape.rank - axis - 1)
    return builder.constant(builder.context.round(count, shape.dtype).reshape(dims))


EMITTERS: Mapping[str, Emitter] = op_table(
    {
        "bitcast": _bitcast,
        "broadcast": _broadcast,
        "concatenate": _concatenate,
        "iota": _iota,
        "reshape": _reshape,
        "reverse": _reverse,
        "slice": _slice,
        "transpose": _transpose,
    },
    VIEWS | {"concatenate", "iota"},
)
