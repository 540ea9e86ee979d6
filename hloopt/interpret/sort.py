"""``sort`` and ``topk``: stable, along any dimension, all operands moved together.

A comparator with keys (see ``comparator``) is a lexicographic sort by them.  Any other is called for
whole arrays of pairs at a time in a bottom-up merge sort, the definition of the op: the right element
goes first where it is less than the left one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

import numpy as np

from hloopt.interpret.comparator import SortKey, sort_keys
from hloopt.interpret.context import Context, Evaluator, Value, array_of, arrays_of
from hloopt.interpret.regions import passed
from hloopt.interpret.scalars import ScalarStep, scalar_function
from hloopt.ir import Instruction
from hloopt.types import Array, DType, TupleShape, of_numpy

__all__ = [
    "EVALUATORS",
    "Less",
    "key_order",
    "merge_order",
    "ordered_bits",
    "sort_order",
    "topk",
]

# Fewer pairs of runs than this are merged by scalars rather than by arrays of their heads.
_FEW_PAIRS = 64

# Of so many times more elements the first ones are picked before they are sorted.
_FEW_OF = 4

Less: TypeAlias = Callable[[list[Array]], Array]
"""Pairs of elements, two arrays an operand, to the comparator's answers."""


def ordered_bits(array: Array) -> Array:
    """Integers in the total order of the elements: -NaN < -inf < ... < -0 < +0 < ... < inf < NaN.

    Integers and pred are their own order.  Raises ``TypeError`` for complex types, which have none.
    """
    dtype = of_numpy(array.dtype)
    if dtype.is_complex:
        raise TypeError(f"{dtype} has no order")
    if dtype.is_pred:
        return array.view(np.uint8)
    if not dtype.is_float:
        return array if dtype.bits >= 8 else array.astype(np.int8 if _signed(dtype) else np.uint8)
    if dtype.name == "f8e8m0fnu":
        return array.view(np.uint8)
    bits = np.ascontiguousarray(array).view(f"i{array.dtype.itemsize}")
    if dtype.bits < 8:
        bits = bits << np.int8(8 - dtype.bits)
    magnitude: Array = np.iinfo(bits.dtype).max ^ bits
    return np.where(bits < 0, magnitude, bits)


def key_order(keys: Sequence[tuple[Array, SortKey]], axis: int) -> Array | None:
    """The stable permutation along ``axis`` that sorts by the keys, most significant first.

    None where a key compared in partial order holds a NaN, which has no place in that order.
    """
    columns = []
    for values, key in keys:
        dtype = of_numpy(values.dtype)
        if key.total or not dtype.is_float:
            bits = ordered_bits(values)
            # The complement reverses an order and, unlike negation, has no overflow.
            columns.append(~bits if key.descending else bits)
            continue
        wide = values.astype(dtype.compute, copy=False)
        if np.isnan(wide).any():
            return None
        columns.append(-wide if key.descending else wide)
    if keys[-1][1].later_first:
        place = [1] * columns[0].ndim
        place[axis] = -1
        late = -np.arange(columns[0].shape[axis]).reshape(place)
        columns.append(np.broadcast_to(late, columns[0].shape))
    return np.lexsort(columns[::-1], axis=axis)


def merge_order(
    arrays: Sequence[Array], axis: int, less: Less, scalars: ScalarStep | None = None
) -> Array:
    """The permutation along ``axis`` of a stable bottom-up merge sort by ``less``.

    Where ``less`` is not an order on the elements, which pairs are compared matters to the result: those
    that merging neighbouring runs head by head compares.  ``scalars`` is ``less`` of scalars.
    """
    lanes = [_to_lanes(array, axis) for array in arrays]
    count = lanes[0].shape[1]
    order = np.tile(np.arange(count), (lanes[0].shape[0], 1))
    width = 1
    while width < count:
        merged = _merge_runs(lanes, order, width, less)
        if merged is None and scalars is not None and order.size < 2 * width * _FEW_PAIRS:
            merged = _merge_scalars(lanes, order, width, scalars)
        order = _merge_in_turn(lanes, order, width, less) if merged is None else merged
        width *= 2
    shape = np.moveaxis(arrays[0], axis, -1).shape
    return np.moveaxis(order.reshape(shape), -1, axis)


def sort_order(
    arrays: Sequence[Array],
    axis: int,
    keys: Sequence[tuple[Array, SortKey]] | None,
    less: Less,
    scalars: ScalarStep | None = None,
) -> Array:
    """The permutation along ``axis``: by the keys where they decide, else by ``less``."""
    order = None if keys is None else key_order(keys, axis)
    return merge_order(arrays, axis, less, scalars) if order is None else order


def topk(array: Array, k: int, *, largest: bool = True) -> tuple[Array, Array]:
    """The ``k`` largest (or smallest) elements of the last dimension in order, and their s32 indices.

    Floats are compared in total order, so that a positive NaN is the largest; of equal elements the
    one at the lower index comes first.
    """
    bits = ordered_bits(array)
    keys = ~bits if largest else bits
    count = array.shape[-1]
    if k * _FEW_OF < count and bits.dtype.itemsize <= 4 and count < 1 << 31:
        # Key and index in one number: no two are equal, so that no order of ties can be lost.
        signed = keys.astype(np.int64) - (1 << 31 if keys.dtype.kind == "u" else 0)
        whole = (signed << 32) + np.arange(count)
        order = np.sort(np.partition(whole, max(k - 1, 0), axis=-1)[..., :k], axis=-1) & 0xFFFFFFFF
    else:
        order = np.argsort(keys, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(array, order, axis=-1), order.astype(np.int32)


def _to_lanes(array: Array, axis: int) -> Array:
    moved = np.moveaxis(array, axis, -1)
    return moved.reshape(prod(moved.shape[:-1]), moved.shape[-1])


def _signed(dtype: DType) -> bool:
    return dtype.kind == "signed"


def _take_pairs(lanes: Sequence[Array], first: Array, second: Array) -> list[Array]:
    pairs = []
    for lane in lanes:
        pairs.append(np.take_along_axis(lane, first, axis=1))
        pairs.append(np.take_along_axis(lane, second, axis=1))
    return pairs


def _merge_runs(lanes: Sequence[Array], order: Array, width: int, less: Less) -> Array | None:
    """Merge sorted runs of ``width`` in pairs: each element's new place is its place in its run plus
    how many elements of the other run go before it, found by binary search for all at once.

    None where merging head by head would give another result: ``less`` is not an order on these elements.
    """
    count = order.shape[1]
    place = np.arange(count)
    run = place // width
    is_left = run % 2 == 0
    other = (run ^ 1) * width
    low = np.zeros_like(order)
    high = np.broadcast_to(np.clip(count - other, 0, width), order.shape).copy()
    while (open_ := low < high).any():
        middle = (low + high) // 2
        partner = np.take_along_axis(order, np.minimum(other + middle, count - 1), axis=1)
        right, left = np.where(is_left, partner, order), np.where(is_left, order, partner)
        right_first = np.asarray(less(_take_pairs(lanes, right, left)), np.bool_)
        before = right_first == is_left
        low = np.where(open_ & before, middle + 1, low)
        high = np.where(open_ & ~before, middle, high)
    target = (run // 2) * (2 * width) + place % width + low
    merged = np.full_like(order, -1)
    np.put_along_axis(merged, target, order, axis=1)
    from_left = np.zeros(order.shape, np.bool_)
    np.put_along_axis(from_left, target, np.broadcast_to(is_left, order.shape), axis=1)
    # Two elements at one place, or another comparison differs on the way.
    lost = (merged < 0).any() or not _is_way(lanes, order, from_left, width, less)
    return None if lost else merged


def _is_way(lanes: Sequence[Array], order: Array, from_left: Array, width: int, less: Less) -> bool:
    """Whether merging head by head takes elements from the left runs where ``from_left`` says so."""
    count = order.shape[1]
    place = np.arange(count)
    start = place // (2 * width) * (2 * width)
    before = np.cumsum(from_left, axis=1) - from_left
    left = start + before - before[:, start]
    right = width + place - (left - start)
    open_ = (left < np.minimum(start + width, count)) & (
        right < np.minimum(start + 2 * width, count)
    )
    heads = [np.take_along_axis(order, np.minimum(at, count - 1), axis=1) for at in (right, left)]
    right_first = np.asarray(less(_take_pairs(lanes, *heads)), np.bool_)
    return not (open_ & (right_first == from_left)).any()


def _merge_scalars(lanes: Sequence[Array], order: Array, width: int, less: ScalarStep) -> Array:
    """Merge pairs of runs head by head, one comparison after the other."""
    merged = np.empty_like(order)
    for row, places in enumerate(order.tolist()):
        items = list(zip(*(lane[row] for lane in lanes), strict=True))
        out: list[int] = []
        for start in range(0, len(places), 2 * width):
            middle, end = start + width, min(start + 2 * width, len(places))
            left, right = start, middle
            while left < middle and right < end:
                first, second = places[right], places[left]
                pairs = zip(items[first], items[second], strict=True)
                if less(*(element for pair in pairs for element in pair))[0]:
                    out.append(first)
                    right += 1
                else:
                    out.append(second)
                    left += 1
            out += places[left : min(middle, end)] + places[right:end]
        merged[row] = out
    return merged


def _merge_in_turn(lanes: Sequence[Array], order: Array, width: int, less: Less) -> Array:
    """Merge pairs of runs head by head: one comparison a step in every lane and pair."""
    count = order.shape[1]
    start = np.arange(0, count, 2 * width)
    shape = (order.shape[0], start.size)
    middle = np.broadcast_to(np.minimum(start + width, count), shape)
    end = np.broadcast_to(np.minimum(start + 2 * width, count), shape)
    left, right = np.broadcast_to(start, shape).copy(), middle.copy()
    merged = order.copy()
    for step in range(2 * width):
        heads = [np.take_along_axis(order, np.minimum(at, count - 1), 1) for at in (right, left)]
        right_first = np.asarray(less(_take_pairs(lanes, *heads)), np.bool_)
        use_right = (right < end) & ((left >= middle) | right_first)
        chosen = np.where(use_right, *heads)
        alive = start + step < count
        alive = np.broadcast_to(alive, shape) & ((left < middle) | (right < end))
        rows, columns = np.nonzero(alive)
        merged[rows, start[columns] + step] = chosen[rows, columns]
        right += use_right & alive
        left += ~use_right & alive
    return merged


def _evaluate_sort(
    instruction: Instruction, operands: tuple[Value, ...], context: Context
) -> Value:
    shapes = [operand.shape for operand in instruction.operands]
    arrays = arrays_of([context.materialize(*pair) for pair in zip(operands, shapes, strict=True)])
    (axis,) = instruction.attributes["dimensions"]
    comparator = instruction.attributes["to_apply"]

    def less(pairs: list[Array]) -> Array:
        return array_of(context.apply(comparator, passed(comparator, pairs, context)))

    # Kept for the evaluation: a key is a computation that the context may have prepared.
    memo = (sort_keys, comparator)
    if memo not in context.memory:
        context.memory[memo] = sort_keys(comparator)
    found: tuple[SortKey, ...] | None = context.memory[memo]
    keys = None
    if found is not None:
        keys = [
            (array_of(context.apply(key.function, passed(key.function, arrays, context))), key)
            for key in found
        ]
    kinds = tuple(parameter.array.dtype for parameter in comparator.parameters[::2])
    alike = kinds == tuple(operand.array.dtype for operand in instruction.operands)
    scalars = scalar_function(comparator, context) if alike else None
    order = sort_order(arrays, axis, keys, less, scalars)
    results = tuple(np.take_along_axis(array, order, axis=axis) for array in arrays)
    return results if isinstance(instruction.shape, TupleShape) else results[0]


def _evaluate_topk(
    instruction: Instruction, operands: tuple[Value, ...], context: Context
) -> Value:
    source = instruction.operands[0]
    array = array_of(context.materialize(operands[0], source.shape))
    largest = bool(instruction.attributes.get("largest", True))
    return topk(array, int(instruction.attributes["k"]), largest=largest)


EVALUATORS: dict[str, Evaluator] = {"sort": _evaluate_sort, "topk": _evaluate_topk}
