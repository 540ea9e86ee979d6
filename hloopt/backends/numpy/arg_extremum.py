"""reduce of values and their indices to the largest (smallest) value and its first index."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from hloopt.backends.numpy.builder import Builder
from hloopt.backends.numpy.plan import Function, Slots
from hloopt.interpret.context import Context, leaf_arrays
from hloopt.interpret.pairs import choice_of
from hloopt.interpret.reducer import reducer_of
from hloopt.interpret.reduction import reduce
from hloopt.ir import Computation, Instruction
from hloopt.types import Array, DType

__all__ = ["arg_extremum"]


def arg_extremum(
    builder: Builder, instruction: Instruction, operands: Sequence[int]
) -> Slots | None:
    """By NumPy's argmax or argmin, where the region, the indices and the initial values are its own.

    The region chooses by value, takes the lower index (or the first pair) of equal values, and the first
    NaN before any number: tried on every order of values.  Indices increase along the reduced dimension;
    the initial value loses against every element.
    """
    region = instruction.attributes["to_apply"]
    axes: tuple[int, ...] = tuple(instruction.attributes["dimensions"])
    values = instruction.operands[0].array
    constants = builder.line.constants
    if len(axes) != 1 or not values.elements:
        return None
    (axis,) = axes
    indices = _line_of_indices(constants.get(operands[1]), values.dims[axis], axis, values.rank)
    inits = [constants.get(slot) for slot in operands[2:]]
    largest = _largest(region, builder.context)
    if largest is None or indices is None or inits[0] is None or inits[1] is None:
        return None
    kind, index_kind = values.dtype, instruction.operands[1].array.dtype
    if not _loses(inits[0], kind, largest=largest) or inits[1] != indices[0]:
        return None
    carriers = [builder.context.carrier(dtype) for dtype in (kind, index_kind)]
    line = builder.line
    full = builder.full_operands(instruction, operands)
    dims = values.dims[:axis] + values.dims[axis + 1 :]
    find = np.argmax if largest else np.argmin
    compute = kind.compute
    places = line.slot(np.dtype(np.intp), dims)
    line.step(lambda array: find(array.astype(compute, copy=False), axis), full[:1], places)
    picked = line.slot(carriers[1], dims)
    line.step(_named(indices, carriers[1]), (places,), picked)
    # A separate step: most programs use the index only.
    best = line.slot(carriers[0], dims)
    line.step(_value(instruction, builder.context, largest=largest), full, best)
    return best, picked


def _named(indices: Array, carrier: np.dtype[Any]) -> Function:
    """Indices of places along the dimension."""
    if (indices == np.arange(indices.size)).all():
        return lambda places: places.astype(carrier)
    return lambda places: indices[places]


def _value(instruction: Instruction, context: Context, *, largest: bool) -> Function:
    """The value; where it is a NaN or a zero, which one it is the region says."""
    ufunc = np.maximum if largest else np.minimum
    axes = tuple(instruction.attributes["dimensions"])
    kind = instruction.operands[0].array.dtype
    carrier = context.carrier(kind)

    def fold(*arrays: Any) -> Array:
        reducer = reducer_of(instruction.attributes["to_apply"], context)
        found = reduce(arrays[:2], arrays[2:], axes, reducer)[0]
        return context.round(found, kind)

    def value(*arrays: Any) -> Any:
        wide = arrays[0].astype(kind.compute, copy=False)
        found = np.asarray(ufunc.reduce(wide, axes))
        if kind.is_float and (not found.all() or np.isnan(found).any()):
            return fold(*arrays)
        return found.astype(carrier, copy=False)

    return value


def _line_of_indices(known: Array | None, size: int, axis: int, rank: int) -> Array | None:
    """Constant indices that increase along one dimension and are the same along all others."""
    if known is None:
        return None
    aligned = known.reshape((1,) * (rank - known.ndim) + known.shape)
    if aligned.shape[axis] != size:
        return None
    line = np.moveaxis(aligned, axis, 0).reshape(size, -1)
    same = (line == line[:, :1]).all()
    return line[:, 0] if same and (np.diff(line[:, 0].astype(np.int64)) > 0).all() else None


def _loses(init: Array, kind: DType, *, largest: bool) -> bool:
    """Whether no number is less than an initial value of a maximum (greater, of a minimum)."""
    if kind.is_float:
        return bool(init.astype(kind.compute) == (-np.inf if largest else np.inf))
    bounds = np.iinfo(kind.numpy)
    return bool(init == (bounds.min if largest else bounds.max))


def _largest(region: Computation, context: Context) -> bool | None:
    """Whether the region is an arg-max, False for an arg-min; None for neither."""
    key = ("arg_extremum", region)
    if key not in context.memory:
        choice = choice_of(region, context)
        fits = choice is not None and choice.ties in ("lower", "first")
        if fits and region.parameters[0].array.dtype.is_float:
            fits = _first_nan(region, context, largest=choice.largest)  # type: ignore[union-attr]
        context.memory[key] = choice.largest if choice is not None and fits else None
    answer: bool | None = context.memory[key]
    return answer


def _first_nan(region: Computation, context: Context, *, largest: bool) -> bool:
    """Whether NaNs come before all numbers and the first of them stays, and zeros are equal."""
    samples = np.array([np.nan, -np.nan, -np.inf, -1.0, -0.0, 0.0, 1.0, np.inf], np.float32)
    kind, index_kind = (parameter.array.dtype for parameter in region.parameters[:2])
    rows = np.array(list(product(samples, samples, (0, 1))), np.float32)
    v, w, swapped = rows.T
    i, j = swapped, 1 - swapped
    columns = [context.round(v, kind), context.round(i, index_kind)]
    columns += [context.round(w, kind), context.round(j, index_kind)]
    # Infinities, as the type represents them.
    v, w = columns[0].astype(np.float64), columns[2].astype(np.float64)
    value, index = leaf_arrays(context.apply(region, columns))
    nan_v, nan_w = np.isnan(v), np.isnan(w)
    wins = nan_v | (~nan_w & ((v > w) if largest else (v < w)))
    tied = ~nan_v & ~nan_w & (v == w)
    bits = [np.ascontiguousarray(x).view(f"u{x.itemsize}") for x in (value, *columns[::2])]
    right_value = np.where(wins, bits[0] == bits[1], bits[0] == bits[2])
    right_value |= tied & (value.astype(np.float64) == v)
    right_index = index == np.where(wins, i, j)
    right_index |= tied
    return bool((right_value & right_index).all())
