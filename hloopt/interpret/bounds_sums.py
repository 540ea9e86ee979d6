"""How far sums and folds may be off, whatever the order of their terms.

A sum of n terms is off by at most gamma(n) = n u / (1 - n u) times the sum of the magnitudes of what was added
(N. J. Higham, Accuracy and Stability of Numerical Algorithms, 3.1 and 4.2), in any order and with any number of
partial sums; beside it are what the terms are off by, and the rounding of the result.  Extrema follow from the
ends of the intervals.  A discrete Fourier transform is off by a norm of its line (24.1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log2, prod
from typing import Any, Final

import ml_dtypes
import numpy as np

from hloopt.interpret.bounds_elementwise import ErrorBound, flushed
from hloopt.interpret.context import Context
from hloopt.interpret.convolution import convolution
from hloopt.interpret.indexing import scatter
from hloopt.interpret.linear import FACTOR_ROUNDING, dot, sum_type
from hloopt.interpret.perturbation import FLUSHED, unit_roundoff
from hloopt.interpret.reducer import Reducer, reducer_of
from hloopt.interpret.reduction import reduce
from hloopt.interpret.regions import combiner, only_orders
from hloopt.interpret.rounding import is_small, is_whole
from hloopt.interpret.window import reduce_window
from hloopt.ir import Computation, Instruction
from hloopt.types import Array, ConvNumbers, DotDims, DType, ScatterDims, dtype

__all__ = [
    "bounds_of",
    "folded",
    "is_counting",
    "product",
    "scattered",
    "size_of",
    "total_bound",
    "transformed",
]

_F64: Final = dtype("f64")


def size_of(array: Array) -> Array:
    """Magnitudes in f64."""
    return np.abs(array).astype(np.float64)


def total_bound(
    result: Array,
    kind: DType,
    off: Array,
    added: Array,
    terms: Array | float,
    *,
    stepwise: bool = False,
    evaluated: bool = True,
) -> ErrorBound:
    """The bound of a sum: its terms are off by ``off`` together, the sum of their magnitudes is ``added``.

    ``stepwise`` sums round to the element type at each step, others of narrow floats to f32; ``evaluated`` says
    that the definition's own sum is one of those, and not made in a wider type.
    """
    own = unit_roundoff(kind)
    unit = own if stepwise else min(own, 2.0**-24)
    steps = unit * np.asarray(terms, np.float64)
    gamma = np.where(steps < 0.5, steps / (1 - np.minimum(steps, 0.5)), np.inf)
    sides = 2 if evaluated else 1
    moved = off + np.where(added + off > 0, sides * gamma * (added + off), 0.0)
    size = size_of(result)
    facts = ml_dtypes.finfo(kind.numpy)  # type: ignore[no-untyped-call]
    least = float(facts.tiny if kind.name in FLUSHED else facts.smallest_subnormal)
    floor = np.where((size < 2 * least) & (added + off > 0), least, 0.0)
    # Nothing is known where this is NaN, as of one unknown term: no comparison may make a zero of it.
    bound = np.where(moved <= 0, 0.0, moved + own * (2 * size + moved) + floor)
    # Past the largest number some orders go on the way, and others do not.
    unknown = np.isnan(bound) | (added + moved > float(facts.max))
    return np.where(unknown, np.inf, bound)


def bounds_of(arrays: Sequence[Array], bounds: Sequence[ErrorBound]) -> list[Array]:
    """What is known of terms, those included that a device reads as zero."""
    found = []
    for array, bound in zip(arrays, bounds, strict=True):
        off = np.zeros(array.shape) if bound is None else bound
        small = np.iscomplexobj(array) or array.dtype.kind not in "fV"
        found.append(off if small else np.asarray(flushed(array.astype(np.float64), off)))
    return found


def is_counting(arrays: Sequence[Array], bounds: Sequence[ErrorBound], added: Array) -> bool:
    """Whether all terms are whole and their sums small: no order rounds anything."""
    return all(bound is None for bound in bounds) and all(map(is_whole, arrays)) and is_small(added)


def _unknown(result: Array) -> Array:
    return np.broadcast_to(np.inf, result.shape)


# ---- products -----------------------------------------------------------------------------------


def product(
    instruction: Instruction, operands: Sequence[Array], bounds: Sequence[ErrorBound], result: Array
) -> ErrorBound:
    """Of ``dot`` and ``convolution``; integers are exact where their operands are."""
    kind = instruction.array.dtype
    if not (kind.is_float or kind.is_complex):
        return None if all(bound is None for bound in bounds) else _unknown(result)
    algorithm = str(instruction.attributes.get("algorithm", ""))
    rounding = FACTOR_ROUNDING.get(algorithm, 0.0)
    if not rounding and algorithm.startswith(("dot_bf16", "dot_tf32", "dot_any")):
        return _unknown(result)
    attributes = instruction.attributes
    left, right = map(size_of, operands[:2])
    if instruction.opcode == "dot":
        dims = DotDims.of(attributes)
        terms = prod(left.shape[axis] for axis in dims.lhs_contracting)

        def times(one: Array, other: Array) -> Array:
            return dot(one, other, dims)

    else:
        labels = attributes["dim_labels"]
        terms = right.size // max(1, right.shape[labels.kernel_output_feature])

        def times(one: Array, other: Array) -> Array:
            return convolution(one, other, ConvNumbers.of(attributes))

    added = times(left, right)
    if not rounding and is_counting(operands[:2], bounds[:2], added):
        return None
    off_left, off_right = bounds_of(operands[:2], bounds[:2])
    if rounding:
        off_left, off_right = (
            off + rounding * size * (operand.array.dtype.bits > 16)
            for off, size, operand in zip(
                (off_left, off_right), (left, right), instruction.operands, strict=False
            )
        )
    off = np.zeros(added.shape)
    if off_right.any():
        off = off + _times(times, left, off_right)
    if off_left.any():
        off = off + _times(times, off_left, right + off_right)
    inner = sum_type([operand.array.dtype for operand in instruction.operands[:2]], kind)
    wide = terms if inner is kind else terms + 1
    return total_bound(result, kind, off, added, 4 * wide if kind.is_complex else wide)


def _times(times: Callable[[Array, Array], Array], left: Array, right: Array) -> Array:
    """A product in which nothing times an unknown bound is unknown."""
    known = [np.where(np.isfinite(side), side, 0.0) for side in (left, right)]
    total = times(*known)
    if all(np.isfinite(side).all() for side in (left, right)):
        return total
    touched = times(
        *(np.where(np.isfinite(side), 0.0, 1.0) + (side != 0) for side in (left, right))
    )
    doubt = times((~np.isfinite(left)).astype(float), np.ones_like(right)) + times(
        np.ones_like(left), (~np.isfinite(right)).astype(float)
    )
    return np.where((doubt > 0) & (touched > 0), np.inf, total)


# ---- folds --------------------------------------------------------------------------------------


def folded(
    instruction: Instruction,
    context: Context,
    operands: Sequence[Array],
    bounds: Sequence[ErrorBound],
    results: Sequence[Array],
) -> list[ErrorBound]:
    """Of ``reduce`` and ``reduce-window``."""
    count = len(operands) // 2
    region = instruction.to_apply
    rows = _rows(instruction)
    if count == 1 and combiner(region) is not None:
        return [_named(region, rows, operands, bounds, results[0])]
    if all(bound is None for bound in bounds) and only_orders(region):
        return [None] * len(results)
    if instruction.opcode == "reduce" and count == 2:
        found = _choice(instruction, context, operands, bounds, results)
        if found is not None:
            return found
    return [_unknown(result) for result in results]


def _rows(instruction: Instruction) -> Callable[[str, Array, Array], Array]:
    """A fold in f64 of the same elements: by ``add``, ``maximum`` or ``minimum``."""

    def fold(name: str, array: Array, init: Array) -> Array:
        ufunc: Any = {"add": np.add, "maximum": np.maximum, "minimum": np.minimum}[name]
        reducer = Reducer(
            name, (_F64,), lambda left, right: [np.asarray(ufunc(left[0], right[0]))], True
        )
        init = np.asarray(init, np.float64)
        if instruction.opcode == "reduce":
            return reduce([array], [init], instruction.dimensions, reducer)[0]
        return reduce_window([array], [init], instruction.window, reducer)[0]

    return fold


def _named(
    region: Computation,
    fold: Callable[[str, Array, Array], Array],
    operands: Sequence[Array],
    bounds: Sequence[ErrorBound],
    result: Array,
) -> ErrorBound:
    """A fold by one op."""
    name, kind = combiner(region), region.parameters[0].array.dtype
    clean = all(bound is None for bound in bounds)
    if not (kind.is_float or kind.is_complex):
        if clean:
            return None
        (off, start) = (
            np.zeros(x.shape) if b is None else b for x, b in zip(operands, bounds, strict=True)
        )
        return fold("maximum", off, start)
    if name == "add":
        added = fold("add", size_of(operands[0]), size_of(operands[1]))
        if is_counting(operands, bounds, added):
            return None
        nonzero = [(array != 0).astype(np.float64) for array in operands]
        off = fold("add", *bounds_of(operands, bounds))
        evaluated = unit_roundoff(kind) < 2.0**-50
        terms = fold("add", *nonzero) - 1
        # Written with a conversion back, each step rounds to the narrow type where it is taken at its word.
        stepwise = any(entry.opcode == "convert" for entry in region)
        return total_bound(
            result, kind, off, added, np.maximum(terms, 0), stepwise=stepwise, evaluated=evaluated
        )
    if kind.is_complex or name == "multiply":
        return _multiplied(fold, operands, bounds, result, kind)
    if clean or name in ("first", "second"):
        return None if clean else _unknown(result)
    return _extreme(str(name), fold, operands, bounds, result)


def _multiplied(
    fold: Callable[[str, Array, Array], Array],
    operands: Sequence[Array],
    bounds: Sequence[ErrorBound],
    result: Array,
    kind: DType,
) -> ErrorBound:
    """A product of many factors: each is off by a part of itself, and each step rounds."""
    unit = unit_roundoff(kind) * (4 if kind.is_complex else 1)
    parts = []
    for array, off in zip(operands, bounds_of(operands, bounds), strict=True):
        size = size_of(array)
        part = np.where(off > 0, np.log1p(off / np.where(size > 0, size, 1.0)), 0.0)
        part = np.where((off > 0) & (size == 0), np.inf, part)
        parts.append(part + 2 * np.log1p(unit) * (array != 1))
    relative = np.expm1(fold("add", *parts))
    bound = np.where(relative <= 0, 0.0, size_of(result) * relative)
    least = float(ml_dtypes.finfo(kind.numpy).tiny)  # type: ignore[no-untyped-call]
    bound = bound + np.where((relative > 0) & (size_of(result) < 2 * least), np.inf, 0.0)
    return np.where(np.isnan(bound), np.inf, bound)


def _extreme(
    name: str,
    fold: Callable[[str, Array, Array], Array],
    operands: Sequence[Array],
    bounds: Sequence[ErrorBound],
    result: Array,
) -> Array:
    """Between the extremum of the lower ends and that of the upper ends."""
    wide = [array.astype(np.float64) for array in operands]
    offs = bounds_of(operands, bounds)
    low = fold(name, *(x - e for x, e in zip(wide, offs, strict=True)))
    high = fold(name, *(x + e for x, e in zip(wide, offs, strict=True)))
    own = result.astype(np.float64)
    bound = np.where(high <= low, 0.0, np.maximum(high - own, own - low) * (1 + 2.0**-52))
    return np.where(np.isnan(bound), np.inf, bound)


def _choice(
    instruction: Instruction,
    context: Context,
    operands: Sequence[Array],
    bounds: Sequence[ErrorBound],
    results: Sequence[Array],
) -> list[ErrorBound] | None:
    """The best pair of a value and an index: the index is decided where no other value may be the best."""
    choice = reducer_of(instruction.to_apply, context).choice()
    if choice is None or bounds[1] is not None or bounds[3] is not None:
        return None
    name = "maximum" if choice.largest else "minimum"
    fold = _rows(instruction)
    value = _extreme(name, fold, operands[::2], bounds[::2], results[0])
    sign = 1 if choice.largest else -1
    wide = [sign * array.astype(np.float64) for array in operands[::2]]
    offs = bounds_of(operands[::2], bounds[::2])
    sure = fold("maximum", *(x - e for x, e in zip(wide, offs, strict=True)))
    axes = sorted(instruction.dimensions)
    spread = np.expand_dims(sure, tuple(axes))
    able = fold("add", (wide[0] + offs[0] >= spread).astype(float), np.zeros(()))
    able = able + (wide[1] + offs[1] >= sure)
    return [value, np.where(able > 1, np.inf, 0.0)]


def scattered(
    instruction: Instruction,
    operands: Sequence[Array],
    bounds: Sequence[ErrorBound],
    results: Sequence[Array],
) -> list[ErrorBound]:
    """Of a ``scatter`` of sums, or of one that puts elements in places of their own."""
    count = len(operands) // 2
    name = combiner(instruction.to_apply)
    if bounds[count] is not None or count != 1 or name not in ("add", "second"):
        exact = all(bound is None for bound in bounds) and only_orders(instruction.to_apply)
        return [None if exact else _unknown(result) for result in results]
    kind = instruction.array.dtype
    target, indices, updates = operands
    result = results[0]
    offs = [
        np.zeros(x.shape) if b is None else b
        for x, b in ((target, bounds[0]), (updates, bounds[2]))
    ]
    dims = ScatterDims.of(instruction.attributes)

    def into(name: str, first: Array, second: Array) -> Array:
        reducer = Reducer(name, (_F64,), lambda left, right: [left[0] + right[0]], False)
        return scatter([first], indices, [second], dims, reducer)[0]

    if name == "second":
        landed = into("add", np.zeros(target.shape), np.ones(updates.shape))
        return [np.where(landed > 1, np.inf, into("second", *offs))]
    if not (kind.is_float or kind.is_complex):
        return [into("add", *offs)]
    added = into("add", size_of(target), size_of(updates))
    if is_counting((target, updates), (bounds[0], bounds[2]), added):
        return [None]
    offs = bounds_of((target, updates), (bounds[0], bounds[2]))
    terms = into("add", (target != 0).astype(float), (updates != 0).astype(float)) - 1
    off = into("add", *offs)
    return [total_bound(result, kind, off, added, np.maximum(terms, 0), stepwise=True)]


def transformed(
    instruction: Instruction, operands: Sequence[Array], bounds: Sequence[ErrorBound], result: Array
) -> ErrorBound:
    """Of ``fft``: each element by the norm of its line."""
    axes = tuple(range(-len(instruction.attributes["fft_length"]), 0))
    count = max(1, prod(instruction.attributes["fft_length"]))
    off = 0.0 if bounds[0] is None else np.sum(bounds[0], axis=axes, keepdims=True)
    norm = np.sqrt(np.sum(size_of(result) ** 2, axis=axes, keepdims=True))
    unit = unit_roundoff(instruction.array.dtype)
    bound = 2 * off + 16 * unit * log2(2 * count) * norm * 2
    return np.asarray(np.broadcast_to(bound, result.shape))
