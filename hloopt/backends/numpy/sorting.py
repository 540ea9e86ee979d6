"""sort: the form chosen when the line is made.

A comparator with keys (``interpret.comparator``) is sorted by NumPy: a single operand by its values where
equal ones have equal bits, anything else by a permutation, which gives an iota among the operands as it
is.  Comparators without keys, and orders by several that a NaN leaves open, are the interpreter's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from hloopt.backends.numpy.builder import Builder
from hloopt.backends.numpy.movement import Emitter
from hloopt.backends.numpy.partial_order import merge_order_of_floats
from hloopt.backends.numpy.plan import Dims, Function, Slots
from hloopt.backends.numpy.sort_keys import Column, ordered_lanes, stable_order
from hloopt.interpret.comparator import sort_keys
from hloopt.interpret.context import Context, arrays_of
from hloopt.interpret.sort import EVALUATORS as SORTS
from hloopt.interpret.sort import ordered_bits
from hloopt.ir import Instruction
from hloopt.types import Array, DType, TupleShape

__all__ = ["EMITTERS"]


def _sort(builder: Builder, instruction: Instruction, operands: Sequence[int]) -> Slots | None:
    comparator = instruction.attributes["to_apply"]
    kinds = [operand.array.dtype for operand in instruction.operands]
    own = [parameter.array.dtype for parameter in comparator.parameters[::2]]
    context, line = builder.context, builder.line
    if kinds != own or any(context.carrier(kind) != kind.numpy for kind in kinds):
        return None
    keys = sort_keys(comparator)
    columns = [Column.of(key) for key in keys or ()]
    known = [column for column in columns if column is not None]
    if not known or len(known) != len(columns):
        return None
    dims = instruction.operands[0].array.dims
    if not prod(dims):
        return tuple(operands) if isinstance(instruction.shape, TupleShape) else operands[0]
    (axis,) = instruction.attributes["dimensions"]
    counted = [_counts(line.constants.get(slot), axis, dims) for slot in operands]
    function = _by_order(instruction, known, context, axis, counted)
    if len(operands) == 1 and len(known) == 1 and known[0].of_operand:
        function = _by_value(known[0], axis, function)
    if isinstance(instruction.shape, TupleShape):
        return builder.applied(instruction, operands, function)
    return builder.applied(instruction, operands, lambda *arrays: function(*arrays)[0])


def _counts(known: Array | None, axis: int, dims: Dims) -> bool:
    """Whether a constant counts along a dimension: what a sort makes of it is the permutation."""
    if known is None or known.dtype.kind not in "iu":
        return False
    aligned = known.reshape((1,) * (len(dims) - known.ndim) + known.shape)
    size = dims[axis]
    if aligned.shape[axis] != size or aligned.size != size:
        return False
    return bool((aligned.reshape(-1) == np.arange(size)).all())


def _by_value(column: Column, axis: int, by_order: Function) -> Function:
    """The only operand is the key: its values sorted are the result where equal ones are the same."""
    kind = column.kind
    descending = column.key.descending

    def turned(array: Array) -> Any:
        return (np.flip(array, axis) if descending else array,)

    if not kind.is_float:
        if kind.bits < 8:
            return by_order
        return lambda array: turned(np.sort(array, axis))
    if kind.numpy.kind != "f" and kind.bits != 16:
        return by_order
    if kind.bits == 16:

        def by_bits(array: Array) -> Any:
            bits = ordered_bits(array)
            # All that lies between -0 and the NaNs on either side.
            if _is_plain(array, kind):
                return turned(_from_ordered(np.sort(bits, axis), kind))
            return by_order(array)

        return by_bits

    def by_number(array: Array) -> Any:
        if _is_plain(array, kind):
            return turned(np.sort(array, axis))
        return by_order(array)

    return by_number


def _is_plain(array: Array, kind: DType) -> bool:
    """Whether elements are equal where they have the same bits, and have an order: no -0, no NaN."""
    straight = np.ascontiguousarray(array)
    bits = straight.view(f"i{straight.itemsize}")
    if (bits == np.iinfo(bits.dtype).min).any():
        return False
    return not np.isnan(array.astype(kind.compute, copy=False)).any()


def _from_ordered(bits: Array, kind: DType) -> Array:
    """What ``ordered_bits`` makes of floats turned back."""
    magnitude: Array = np.iinfo(bits.dtype).max ^ bits
    return np.where(bits < 0, magnitude, bits).view(kind.numpy)


def _by_order(
    instruction: Instruction,
    columns: Sequence[Column],
    context: Context,
    axis: int,
    counted: Sequence[bool],
) -> Function:
    """All operands by a permutation of the sorted dimension."""
    dims = instruction.operands[0].array.dims
    moved = (*dims[:axis], *dims[axis + 1 :], dims[axis])
    count = dims[axis]
    lanes = prod(moved[:-1])
    first = (np.arange(lanes) * count)[:, np.newaxis] if lanes > 1 else None
    later_first = columns[-1].key.later_first
    last = axis == len(dims) - 1

    def sort(*arrays: Array) -> tuple[Array, ...]:
        found = [column.values(arrays, context) for column in columns]
        keys = [column.bits(values) for column, values in zip(columns, found, strict=True)]
        lanes_ = [ordered_lanes(bits, axis) for bits in keys if bits is not None]
        if len(lanes_) == len(columns):
            order = stable_order(lanes_, later_first=later_first)
        elif len(columns) == 1:
            order = _with_nans(columns[0], ordered_lanes(found[0], axis))
        else:
            results = SORTS["sort"](instruction, arrays, context)
            return tuple(arrays_of(results if isinstance(results, tuple) else (results,)))
        places = order.reshape(-1) if first is None else (order + first).reshape(-1)
        sorted_ = []
        for array, counts in zip(arrays, counted, strict=True):
            if counts:
                result = order.reshape(moved).astype(array.dtype)
            else:
                straight = array if last else np.moveaxis(array, axis, -1)
                result = straight.reshape(-1).take(places).reshape(moved)
            sorted_.append(result if last else np.moveaxis(result, -1, axis))
        return tuple(sorted_)

    return sort


def _with_nans(column: Column, values: Array) -> Array:
    wide = values.astype(column.kind.compute, copy=False)
    key = column.key
    return merge_order_of_floats(wide, descending=key.descending, later_first=key.later_first)


EMITTERS: Mapping[str, Emitter] = {"sort": _sort}
