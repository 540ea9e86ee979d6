"""Running error bounds: how far each element may be from the definition's value, proved beside the value.

An evaluation that is as right as the interpreter's adds in another order, keeps a wider type here, rounds once
more there, and has functions that are off by some units in the last place.  ``Bounds`` holds, for each array
of an evaluation, how far such a one may be off in every element: an evaluator that is ``bounded`` computes the
value, then the bound from the operands' (J. H. Wilkinson, Rounding Errors in Algebraic Processes, 1963; N. J.
Higham, Accuracy and Stability of Numerical Algorithms, 3.3).  What moves elements moves their bounds, what is
exact adds nothing: a copy is off by nothing, a product of 4,096 terms by what these are and by what adding them
rounds.

A truth or an integer that rounding decides is off by infinity, and so is all of which no bound is known: of a
loop whose trip count is not decided, of vectors of eigenvalues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import numpy as np

from hloopt.interpret.bitcast import bitcast
from hloopt.interpret.bounding import Bounding, Bounds
from hloopt.interpret.bounds_collective import exchanged
from hloopt.interpret.bounds_elementwise import ErrorBound, elementwise_bound
from hloopt.interpret.bounds_factors import cholesky_factors, routine_results, triangular_solutions
from hloopt.interpret.bounds_linear import compares, picked_sums, scaled_products
from hloopt.interpret.bounds_norm import normalized
from hloopt.interpret.bounds_sums import (
    folded,
    product,
    scattered,
    transformed,
)
from hloopt.interpret.context import (
    Context,
    Evaluator,
    Value,
    array_of,
    leaf_arrays,
    map_arrays,
)
from hloopt.interpret.rounding import leaves_ties_open
from hloopt.ir import Instruction
from hloopt.ops.traits import (
    ALL,
    COLLECTIVE,
    CONSTRAINTS,
    DEVICE_NUMBERS,
    DONES,
    ELEMENTWISE,
    INDEXING,
    MOVING,
    PLUMBING,
    RANDOM,
    SEQUENTIAL,
    SOURCES,
    op_table,
)
from hloopt.types import ArrayShape, leaves

__all__ = ["RULES", "bounded"]


def bounded(instruction: Instruction, run: Evaluator, bounds: Bounds) -> Evaluator:
    """What evaluates an instruction, and the bounds of its result."""
    rule = RULES.get(instruction.opcode, _unknown)
    if rule in _BY_ELEMENT and any(map(_has_open_sizes, (instruction, *instruction.operands))):
        rule = _unknown

    def evaluate(one: Instruction, values: tuple[Value, ...], context: Context) -> Value:
        # Participants that have run more than others meet them still.
        if not bounds.active or (bounds.left <= 0 and rule is not exchanged):
            return run(one, values, context)
        bounds.left -= 1
        return rule(Bounding(one, values, context, run, bounds))

    return evaluate


def _has_open_sizes(instruction: Instruction) -> bool:
    """Whether arrays may have fewer elements than their shape, so that operands are cut to each other."""
    return any(
        isinstance(leaf, ArrayShape) and any(leaf.dynamic) for leaf in leaves(instruction.shape)
    )


_BoundRule: TypeAlias = Callable[[Bounding], Value]


def _elementwise(one: Bounding) -> Value:
    result = one.run()
    if isinstance(result, tuple):  # a copy of a tuple
        return result
    arrays, bounds = one.arrays()
    if any(array is result for array in arrays):
        return result
    return one.close(result, [elementwise_bound(one.instruction, arrays, bounds, result)])


def _moved(one: Bounding) -> Value:
    """The bounds move as the elements do; places that are not decided leave nothing known."""
    result = array_of(one.run())
    arrays, bounds = one.arrays()
    first = _PLACES.get(one.instruction.opcode, len(arrays))
    if any(bound is not None for bound in bounds[first:]):
        return one.close(result, [np.broadcast_to(np.inf, result.shape)])
    if all(bound is None for bound in bounds):
        return one.close(result, [None])
    parts = [
        np.zeros(array.shape) if bound is None else bound
        for array, bound in zip(arrays, bounds, strict=True)
    ]
    return one.close(result, [array_of(one.run((*parts[:first], *arrays[first:])))])


_PLACES: Final[Mapping[str, int]] = op_table(
    {"dynamic-slice": 1, "dynamic-update-slice": 2, "gather": 1}, INDEXING
)
"""The first operand that says where elements are."""


def _bitcast(one: Bounding) -> Value:
    result = array_of(one.run())
    (array,), (bound,) = one.arrays()
    source, target = one.instruction.operands[0].array, one.instruction.array
    if bound is not None:
        if source.dtype is not target.dtype:
            bound = np.broadcast_to(np.inf, result.shape)
        elif array.shape == source.dims:
            bound = np.asarray(bitcast(np.array(bound, order="C"), source, target))
    return one.close(result, [bound])


def _exact(one: Bounding) -> Value:
    """Bits that follow from bits: what is exact stays so, and of all else nothing is known."""
    result = one.run()
    return one.close(result, _all(result, known=one.is_exact))


def _given(one: Bounding) -> Value:
    result = one.run()
    one.bounds.exact(result)
    return result


def _unknown(one: Bounding) -> Value:
    return one.unknown()


def _all(result: Value, *, known: bool) -> list[ErrorBound]:
    return [None if known else np.broadcast_to(np.inf, leaf.shape) for leaf in leaf_arrays(result)]


def _inside(one: Bounding) -> Value:
    return one.inside()


def _while(one: Bounding) -> Value:
    outer, one.bounds.doubtful = one.bounds.doubtful, False
    result = one.inside()
    if one.bounds.doubtful:
        result = map_arrays(np.copy, result)
        one.close(result, _all(result, known=False))
    one.bounds.doubtful = outer
    return result


def _conditional(one: Bounding) -> Value:
    result = one.inside()
    if one.bounds.of(array_of(one.values[0])) is not None:
        result = map_arrays(np.copy, result)
        one.close(result, _all(result, known=False))
    return result


def _product(one: Bounding) -> Value:
    result = array_of(one.run())
    return one.close(result, [product(one.instruction, *one.arrays(), result)])


def _fold(one: Bounding) -> Value:
    result = one.run()
    results = list(leaf_arrays(result))
    one.bounds.active = False
    try:
        found = folded(one.instruction, one.context, *one.arrays(), results)
    finally:
        one.bounds.active = True
    return one.close(result, found)


def _scatter(one: Bounding) -> Value:
    result = one.run()
    return one.close(result, scattered(one.instruction, *one.arrays(), list(leaf_arrays(result))))


def _transform(one: Bounding) -> Value:
    result = array_of(one.run())
    return one.close(result, [transformed(one.instruction, *one.arrays(), result)])


def _sort(one: Bounding) -> Value:
    """What is carried along moves with it; keys that are off leave nothing known, but of themselves alone.

    Of sorted elements each is off by at most what any of its line is.
    """
    result = one.run()
    arrays, bounds = one.arrays()
    instruction = one.instruction
    parameters = instruction.to_apply.parameters
    read = [
        bool(parameters[2 * at].users or parameters[2 * at + 1].users) for at in range(len(arrays))
    ]
    decided = all(bound is None for bound, is_key in zip(bounds, read, strict=True) if is_key)
    if len(arrays) == 1 and (decided or compares(instruction.to_apply)):
        (bound,) = bounds
        if bound is not None:
            bound = np.max(bound, axis=instruction.dimensions[0], keepdims=True, initial=0.0)
            bound = np.broadcast_to(bound, arrays[0].shape)
        return one.close(result, [bound])
    if not decided or leaves_ties_open(instruction):
        return one.close(result, _all(result, known=False))
    if all(bound is None for bound in bounds):
        return one.close(result, _all(result, known=True))
    parts = [
        array if is_key else np.zeros(array.shape) if bound is None else bound
        for array, bound, is_key in zip(arrays, bounds, read, strict=True)
    ]
    moved = leaf_arrays(one.run(tuple(parts)))
    return one.close(
        result, [None if is_key else part for part, is_key in zip(moved, read, strict=True)]
    )


def _topk(one: Bounding) -> Value:
    """The largest are as far off as any of their line; where they are is known of exact ones alone."""
    result = one.run()
    (array,), (bound,) = one.arrays()
    if bound is None:
        return one.close(result, _all(result, known=True))
    values, indices = leaf_arrays(result)
    most = np.max(bound, axis=array.ndim - 1, keepdims=True, initial=0.0)
    found = [np.broadcast_to(most, values.shape), np.broadcast_to(np.inf, indices.shape)]
    return one.close(result, found)


def _called(one: Bounding) -> Value:
    is_choice = one.instruction.custom_call_target in ("TopK", "__gpu$TopK")
    return _topk(one) if is_choice else routine_results(one)


RULES: Final[Mapping[str, _BoundRule]] = op_table(
    {
        **dict.fromkeys(ELEMENTWISE, _elementwise),
        **dict.fromkeys(MOVING | INDEXING | {"dynamic-reshape"}, _moved),
        **dict.fromkeys(PLUMBING | SEQUENTIAL | CONSTRAINTS | {"map"}, _inside),
        **dict.fromkeys(RANDOM - {"rng"} | {"bitcast-convert"}, _exact),
        **dict.fromkeys(SOURCES | DEVICE_NUMBERS, _given),
        **dict.fromkeys(COLLECTIVE, exchanged),
        **dict.fromkeys(DONES & COLLECTIVE, _inside),
        **dict.fromkeys(("ragged-dot", "scaled-dot"), scaled_products),
        **dict.fromkeys(("after-all", "get-dimension-size", "infeed"), _given),
        **dict.fromkeys(
            ("batch-norm-grad", "batch-norm-inference", "batch-norm-training"), normalized
        ),
        "bitcast": _bitcast,
        "cholesky": cholesky_factors,
        "conditional": _conditional,
        "convolution": _product,
        "copy": _elementwise,
        "custom-call": _called,
        "dot": _product,
        "fft": _transform,
        "reduce": _fold,
        "reduce-window": _fold,
        "scatter": _scatter,
        "select-and-scatter": picked_sums,
        "sort": _sort,
        "topk": _topk,
        "triangular-solve": triangular_solutions,
        "while": _while,
    },
    ALL,
    "no bound is known: draws, what is sent from device to device",
)

_BY_ELEMENT: Final = (
    _called,
    cholesky_factors,
    normalized,
    triangular_solutions,
    _elementwise,
    exchanged,
    _moved,
    _product,
    _fold,
    _transform,
    _scatter,
    _sort,
    _topk,
    picked_sums,
    scaled_products,
)
"""Rules that take operands to have the sizes of their shapes."""
