"""gather: planned when the line is made, a few calls of NumPy's when it runs.

Dimensions of the operand are *fixed* (taken whole, or from 0 on) or *moving*: an index says where.  Of
moving ones a *point* is of size 1 and a *stretch* is longer; stretches become dimensions of a view in
which windows overlap, so that every gather is one indexing by starts.  Scatter, too, asks here
which number of the start indices belongs to which dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided

from hloopt.backends.numpy.builder import Builder
from hloopt.backends.numpy.movement import Emitter
from hloopt.backends.numpy.plan import Dims, Function
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.types import Array, ArrayShape, DType, GatherDims, ScatterDims

__all__ = ["EMITTERS", "batch_line", "index_columns", "single_starts"]

_MOST = np.iinfo(np.int64).max


def index_columns(
    dims: GatherDims | ScatterDims, shape: ArrayShape, wanted: Sequence[int]
) -> Callable[[Any], list[Array]]:
    """A function from indices of a shape to an array over the batch for each wanted vector element.

    Numbers too large for int64 become the largest one: both lie outside of any dimension.
    """
    batch, vector_dim = dims.batch_of(shape.dims), dims.index_vector_dim
    integers = _integers(shape.dtype)
    if vector_dim == shape.rank or shape.dims[vector_dim] == 1:
        return lambda indices: [integers(indices.reshape(batch))] * len(wanted)
    before = (slice(None),) * vector_dim
    places = [(*before, number) for number in wanted]

    def columns(indices: Any) -> list[Array]:
        whole = integers(indices)
        return [whole[place] for place in places]

    return columns


def _integers(kind: DType) -> Callable[[Any], Any]:
    if kind.name == "u64":
        return lambda x: np.minimum(x, np.uint64(_MOST)).astype(np.int64)
    if kind.bits < 32:
        # The bounds that starts are clamped to need not be numbers of the type.
        return lambda x: x.astype(np.int64)
    return lambda x: x


def single_starts(kind: DType, bounds: Sequence[tuple[int, int]]) -> Callable[[Any], list[int]]:
    """Of the only index vector, clamped starts: ``bounds`` are its elements' numbers and greatest starts."""
    widened = kind.bits < 8

    def starts(indices: Any) -> list[int]:
        # Python's integers: unsigned ones above int64's maximum are clamped correctly.
        numbers = (indices.astype(np.int64) if widened else indices).reshape(-1).tolist()
        return [min(max(numbers[at], 0), most) for at, most in bounds]

    return starts


def batch_line(batch: Sequence[int], axis: int) -> Array:
    """The position along one batch dimension, shaped to broadcast along the others."""
    place = [1] * len(batch)
    place[axis] = batch[axis]
    return np.arange(batch[axis]).reshape(place)


# A slice of less than this part of its operand is copied, so that the operand can be updated in place.
_SMALL_PART = 4

_Label: TypeAlias = "tuple[str, int]"
"""A dimension of an intermediate array: ``b`` and a batch dimension, or ``o`` and one of the operand."""


@dataclass(frozen=True)
class _Gather:
    """A gather's numbers.

    moving   operand dimensions whose start depends on an index, by their greatest start
    vector   of each moving dimension the element of the index vector
    aligned  of each batching dimension the batch dimension that it follows
    """

    shape: Dims
    sizes: Dims
    batch: Dims
    moving: dict[int, int]
    vector: dict[int, int]
    aligned: dict[int, int]
    dims: GatherDims
    result: Dims

    @classmethod
    def of(cls, instruction: Instruction) -> _Gather:
        """Read from an instruction."""
        dims = GatherDims.of(instruction.attributes)
        shape, indices = (operand.array.dims for operand in instruction.operands)
        most = {axis: shape[axis] - dims.slice_sizes[axis] for axis in range(len(shape))}
        vector = {axis: at for at, axis in enumerate(dims.start_index_map)}
        aligned = dict(dims.batching)
        moving = {axis: most[axis] for axis in sorted({*vector, *aligned}) if most[axis]}
        batch, result = dims.batch_of(indices), instruction.array.dims
        return cls(shape, dims.slice_sizes, batch, moving, vector, aligned, dims, result)

    def fixed(self) -> tuple[slice, ...] | None:
        """What is taken of the dimensions that do not move; None for all."""
        places = tuple(
            slice(None) if axis in self.moving else slice(size)
            for axis, size in enumerate(self.sizes)
        )
        cut = any(
            axis not in self.moving and size < whole
            for axis, (size, whole) in enumerate(zip(self.sizes, self.shape, strict=True))
        )
        return places if cut else None

    def arranged(self, labels: Sequence[_Label]) -> Function:
        """A function that puts an array of dimensions ``labels`` into the order of the result.

        Dimensions of size 1 may be missing, and there may be more of them.
        """
        offset = iter(self.dims.window_dims(len(self.shape)))
        batch = iter(range(len(self.batch)))
        wanted: list[_Label] = [
            ("o", next(offset)) if axis in self.dims.offset_dims else ("b", next(batch))
            for axis in range(len(self.result))
        ]
        kept = [label for label in labels if label in wanted]
        there = [label for label in wanted if label in kept]
        order = [kept.index(label) for label in there]
        result = self.result
        if order == sorted(order):
            return _reshaping(result)
        first = tuple(self._size(label) for label in kept)
        second = tuple(self._size(label) for label in there)

        def arrange(array: Any) -> Any:
            return array.reshape(first).transpose(order).reshape(result)

        def turn(array: Any) -> Any:
            return array.transpose(order)

        return turn if first == tuple(map(self._size, labels)) and second == result else arrange

    def _size(self, label: _Label) -> int:
        letter, axis = label
        return self.batch[axis] if letter == "b" else self.sizes[axis]


def _reshaping(dims: Dims) -> Function:
    return lambda array: array.reshape(dims)


def _gather(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> int:
    plan = _Gather.of(instruction)
    line = builder.line
    carrier = builder.context.carrier(instruction.array.dtype)
    if 0 in plan.sizes or not prod(plan.result):
        return builder.constant(np.zeros(plan.result, carrier))
    source, indices = builder.full_operands(instruction, operands)
    fixed = plan.fixed()
    if fixed is not None:
        cut = tuple(
            size if axis not in plan.moving else plan.shape[axis]
            for axis, size in enumerate(plan.sizes)
        )
        source = builder.view(lambda array: array[fixed], source, cut)
    if not plan.moving:
        return _stretched(builder, plan, source)
    out = line.slot(carrier, plan.result)
    known = line.constants.get(indices)
    if prod(plan.batch) == 1:
        small = prod(plan.result) * _SMALL_PART <= prod(plan.shape)
        return line.step(
            *_bound(_one_window(instruction, plan, small=small), source, indices, known),
            out,
            view=not small,
        )
    return line.step(*_bound(_many_windows(instruction, plan), source, indices, known), out)


def _bound(
    planned: tuple[Callable[[Any], Any], Callable[[Any, Any], Any]],
    source: int,
    indices: int,
    known: Array | None,
) -> tuple[Function, tuple[int, ...]]:
    """A step of ``starts`` and ``take``: the starts of known indices are worked out here."""
    starts, take = planned
    if known is not None:
        return partial(take, starts(known)), (source,)
    return lambda array, vectors: take(starts(vectors), array), (source, indices)


def _stretched(builder: Builder, plan: _Gather, source: int) -> int:
    """Nothing moves: the same window everywhere."""
    labels: list[_Label] = [("b", axis) for axis in range(len(plan.batch))]
    labels += [("o", axis) for axis in range(len(plan.shape))]
    dims = (*plan.batch, *plan.sizes)
    arrange = plan.arranged(labels)
    return builder.view(lambda array: arrange(np.broadcast_to(array, dims)), source, plan.result)


def _one_window(
    instruction: Instruction, plan: _Gather, *, small: bool
) -> tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]:
    """A single window is a slice."""
    kind = instruction.operands[1].array.dtype
    # A batch of one has no batching dimension that moves but those at their first position.
    bounds = [(plan.vector.get(axis, -1), most) for axis, most in plan.moving.items()]
    starts = single_starts(kind, [bound for bound in bounds if bound[0] >= 0])
    indexed = [axis for axis in plan.moving if axis in plan.vector]
    whole: list[slice] = [
        slice(plan.sizes[axis]) if axis in plan.moving else slice(None)
        for axis in range(len(plan.shape))
    ]
    sizes = [plan.sizes[axis] for axis in indexed]
    arrange = plan.arranged([("o", axis) for axis in range(len(plan.shape))])

    def places(vectors: Any) -> tuple[slice, ...]:
        found = whole.copy()
        for axis, begin, size in zip(indexed, starts(vectors), sizes, strict=True):
            found[axis] = slice(begin, begin + size)
        return tuple(found)

    def take(place: tuple[slice, ...], array: Any) -> Any:
        part = array[place]
        return arrange(part.copy() if small else part)

    return places, take


def _many_windows(
    instruction: Instruction, plan: _Gather
) -> tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]:
    points = [axis for axis in plan.moving if plan.sizes[axis] == 1]
    if len(points) == len(plan.moving):
        if points == [*plan.vector] and len(points) == 1:
            return _along_axis(instruction, plan, points[0])
        if points == list(range(len(points))):
            return _rows(instruction, plan, len(points))
    return _windows(instruction, plan)


def _columns(instruction: Instruction, plan: _Gather) -> Callable[[Any], list[Array]]:
    """For each moving dimension the starts as the indices say, not clamped."""
    indices = instruction.operands[1].array
    indexed = [axis for axis in plan.moving if axis in plan.vector]
    wanted = [plan.vector[axis] for axis in indexed]
    columns = index_columns(plan.dims, indices, wanted)
    if len(indexed) == len(plan.moving):
        return columns
    lines = {axis: batch_line(plan.batch, plan.aligned[axis]) for axis in plan.aligned}

    def both(vectors: Any) -> list[Array]:
        found = dict(zip(indexed, columns(vectors), strict=True))
        return [found[axis] if axis in found else lines[axis] for axis in plan.moving]

    return both


def _along_axis(
    instruction: Instruction, plan: _Gather, axis: int
) -> tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]:
    """Elements of one dimension: NumPy's take, which clamps by itself."""
    columns = _columns(instruction, plan)
    rest = range(len(plan.shape))
    labels: list[_Label] = [("o", at) for at in rest[:axis]]
    labels += [("b", at) for at in range(len(plan.batch))]
    labels += [("o", at) for at in rest[axis + 1 :]]
    arrange = plan.arranged(labels)
    before = (slice(None),) * axis
    most = plan.moving[axis]

    def take(places: Any, array: Any) -> Any:
        if array.flags.c_contiguous:
            return arrange(array.take(places, axis, None, "clip"))
        # Of any other array ``take`` makes a straight copy first.
        return arrange(array[(*before, np.minimum(np.maximum(places, 0), most))])

    return lambda vectors: columns(vectors)[0], take


def _rows(
    instruction: Instruction, plan: _Gather, count: int
) -> tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]:
    """Elements of the first dimensions, which are one when their indices are."""
    columns = _columns(instruction, plan)
    leading, rest = plan.shape[:count], plan.sizes[count:]
    dims = (prod(leading), *rest)
    batch = plan.batch
    labels: list[_Label] = [("b", at) for at in range(len(batch))]
    labels += [("o", at) for at in range(count, len(plan.shape))]
    arrange = plan.arranged(labels)

    def starts(vectors: Any) -> Any:
        found = np.ravel_multi_index(tuple(columns(vectors)), leading, mode="clip")
        return np.broadcast_to(found, batch)

    def take(places: Any, array: Any) -> Any:
        if array.flags.c_contiguous:
            return arrange(array.reshape(dims).take(places, 0, None, "clip"))
        return arrange(array[np.unravel_index(places, leading)])

    return starts, take


def _windows(
    instruction: Instruction, plan: _Gather
) -> tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]:
    """Windows at starts, by indexing a view that has all of them."""
    columns = _columns(instruction, plan)
    batch = plan.batch
    moving = list(plan.moving)
    fixed = [
        axis for axis in range(len(plan.shape)) if axis not in plan.moving or plan.sizes[axis] > 1
    ]
    view = (*(most + 1 for most in plan.moving.values()), *(plan.sizes[axis] for axis in fixed))
    labels: list[_Label] = [("b", at) for at in range(len(batch))]
    labels += [("o", axis) for axis in fixed]
    arrange = plan.arranged(labels)
    bounds = list(plan.moving.values())

    def starts(vectors: Any) -> Any:
        clamped = [
            np.minimum(np.maximum(column, 0), most)
            for column, most in zip(columns(vectors), bounds, strict=True)
        ]
        clamped[0] = np.broadcast_to(clamped[0], batch)
        return tuple(clamped)

    def take(places: Any, array: Any) -> Any:
        strides = array.strides
        steps = [strides[axis] for axis in moving] + [strides[axis] for axis in fixed]
        return arrange(as_strided(array, view, steps, writeable=False)[places])

    return starts, take


EMITTERS: Mapping[str, Emitter] = {"gather": _gather}
