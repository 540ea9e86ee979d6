"""Running error bounds: how far each element may be from the definition's value, proved beside the value.

An evaluation that is as right as the interpreter's adds in another order, keeps a wider type here, rounds once
more there, and has functions that are off by some units in the last place.  ``Bounds`` holds, for each array
of an evaluation, how far such a one may be off in every element: an evaluator that is ``bounded`` computes the
value, then the bound from the operands' (J. H. Wilkinson, Rounding Errors in Algebraic Processes, 1963; N. J.
Higham, Accuracy and Stability of Numerical Algorithms, 3.3).  What moves elements moves their bounds, what is
exact adds nothing: a copy is off by nothing, a product of 4,096 terms by what these are and by what adding them
rounds.

A truth or an integer that rounding decides is off by infinity, and so is all of which no bound is known: of a
loop whose trip count is not decided, of factors of matrices, of what participants exchange.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from hloopt.interpret.bitcast import bitcast
from hloopt.interpret.bounds_elementwise import ErrorBound, elementwise_bound
from hloopt.interpret.bounds_sums import folded, product, scattered, transformed
from hloopt.interpret.context import (
    Context,
    Evaluator,
    Value,
    array_of,
    arrays_of,
    leaf_arrays,
    map_arrays,
)
from hloopt.interpret.rounding import leaves_ties_open
from hloopt.ir import Instruction
from hloopt.ops.traits import (
    ALL,
    CONSTRAINTS,
    DEVICE_NUMBERS,
    ELEMENTWISE,
    INDEXING,
    MOVING,
    PLUMBING,
    RANDOM,
    SEQUENTIAL,
    SOURCES,
    op_table,
)
from hloopt.types import Array, ArrayShape, leaves

__all__ = ["RULES", "Bounds", "bounded"]


_MOST: Final = 1 << 16
"""Instructions executed that are bounded: in longer loops bounds have grown past all use, and cost time."""


class Bounds:
    """The bounds of the arrays of one evaluation, by the arrays themselves.

    An array that nothing is recorded of is off by infinity.  While it is not ``active`` nothing is recorded.
    ``doubtful`` is set by a loop's condition that is not decided; ``left`` instructions are bounded yet.
    """

    def __init__(self) -> None:
        self.active = True
        self.doubtful = False
        self.left = _MOST
        self._entries: dict[int, tuple[weakref.ref[Array], ErrorBound]] = {}

    def record(self, array: Array, bound: ErrorBound) -> None:
        """Set what an array is off by; None is nothing."""
        entries, key = self._entries, id(array)
        if bound is not None and bound.shape != array.shape:
            bound = np.broadcast_to(np.inf, array.shape)
        entries[key] = weakref.ref(array, lambda _: entries.pop(key, None)), bound

    def exact(self, value: Value) -> None:
        """Set that a value is off by nothing."""
        for array in leaf_arrays(value):
            self.record(array, None)

    def knows(self, array: Array) -> bool:
        """Whether anything is recorded of an array."""
        entry = self._entries.get(id(array))
        return entry is not None and entry[0]() is array

    def of(self, array: Array) -> ErrorBound:
        """What an array is off by."""
        entry = self._entries.get(id(array))
        if entry is None or entry[0]() is not array:
            return np.broadcast_to(np.inf, array.shape)
        return entry[1]

    def decide(self, truth: Array) -> None:
        """Note that a loop goes on as ``truth`` says."""
        if self.of(truth) is not None:
            self.doubtful = True


def bounded(instruction: Instruction, run: Evaluator, bounds: Bounds) -> Evaluator:
    """What evaluates an instruction, and the bounds of its result."""
    rule = RULES.get(instruction.opcode, _unknown)
    if rule in _BY_ELEMENT and any(map(_has_open_sizes, (instruction, *instruction.operands))):
        rule = _unknown

    def evaluate(one: Instruction, values: tuple[Value, ...], context: Context) -> Value:
        if not bounds.active or bounds.left <= 0:
            return run(one, values, context)
        bounds.left -= 1
        return rule(_Bounding(one, values, context, run, bounds))

    return evaluate


def _has_open_sizes(instruction: Instruction) -> bool:
    """Whether arrays may have fewer elements than their shape, so that operands are cut to each other."""
    return any(
        isinstance(leaf, ArrayShape) and any(leaf.dynamic) for leaf in leaves(instruction.shape)
    )


class _Bounding:
    """An instruction to be evaluated on values, of which bounds are recorded."""

    __slots__ = ("bounds", "context", "evaluator", "instruction", "values")

    def __init__(
        self,
        instruction: Instruction,
        values: tuple[Value, ...],
        context: Context,
        evaluator: Evaluator,
        bounds: Bounds,
    ) -> None:
        self.instruction, self.values, self.context = instruction, values, context
        self.evaluator, self.bounds = evaluator, bounds

    def inside(self) -> Value:
        """The result, whose parts record their bounds while they are computed."""
        return self.evaluator(self.instruction, self.values, self.context)

    def run(self, values: tuple[Value, ...] | None = None) -> Value:
        """The result for the values or others; what happens inside records nothing."""
        self.bounds.active = False
        try:
            return self.evaluator(
                self.instruction, self.values if values is None else values, self.context
            )
        finally:
            self.bounds.active = True

    def arrays(self) -> tuple[list[Array], list[ErrorBound]]:
        """The operands, which are arrays, and their bounds."""
        arrays = arrays_of(self.values)
        return arrays, [self.bounds.of(array) for array in arrays]

    @property
    def is_exact(self) -> bool:
        """Whether no operand is off."""
        return all(self.bounds.of(array) is None for array in leaf_arrays(self.values))

    def close(self, result: Value, found: Sequence[ErrorBound]) -> Value:
        """The result, of whose arrays the bounds are ``found``."""
        for array, bound in zip(leaf_arrays(result), found, strict=True):
            # An array that is an operand's is what it was.
            if not self.bounds.knows(array) or bound is not None:
                self.bounds.record(array, bound)
        return result


_BoundRule: TypeAlias = Callable[[_Bounding], Value]


def _elementwise(one: _Bounding) -> Value:
    result = one.run()
    if isinstance(result, tuple):  # a copy of a tuple
        return result
    arrays, bounds = one.arrays()
    if any(array is result for array in arrays):
        return result
    return one.close(result, [elementwise_bound(one.instruction, arrays, bounds, result)])


def _moved(one: _Bounding) -> Value:
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


def _bitcast(one: _Bounding) -> Value:
    result = array_of(one.run())
    (array,), (bound,) = one.arrays()
    source, target = one.instruction.operands[0].array, one.instruction.array
    if bound is not None:
        if source.dtype is not target.dtype:
            bound = np.broadcast_to(np.inf, result.shape)
        elif array.shape == source.dims:
            bound = np.asarray(bitcast(np.ascontiguousarray(bound), source, target))
    return one.close(result, [bound])


def _exact(one: _Bounding) -> Value:
    """Bits that follow from bits: what is exact stays so, and of all else nothing is known."""
    result = one.run()
    return one.close(result, _all(result, known=one.is_exact))


def _given(one: _Bounding) -> Value:
    result = one.run()
    one.bounds.exact(result)
    return result


def _unknown(one: _Bounding) -> Value:
    """Nothing is known, but of the arrays that are operands still."""
    result = one.run()
    for array in leaf_arrays(result):
        if not one.bounds.knows(array):
            one.bounds.record(array, np.broadcast_to(np.inf, array.shape))
    return result


def _all(result: Value, *, known: bool) -> list[ErrorBound]:
    return [None if known else np.broadcast_to(np.inf, leaf.shape) for leaf in leaf_arrays(result)]


def _inside(one: _Bounding) -> Value:
    return one.inside()


def _while(one: _Bounding) -> Value:
    outer, one.bounds.doubtful = one.bounds.doubtful, False
    result = one.inside()
    if one.bounds.doubtful:
        result = map_arrays(np.copy, result)
        one.close(result, _all(result, known=False))
    one.bounds.doubtful = outer
    return result


def _conditional(one: _Bounding) -> Value:
    result = one.inside()
    if one.bounds.of(array_of(one.values[0])) is not None:
        result = map_arrays(np.copy, result)
        one.close(result, _all(result, known=False))
    return result


def _product(one: _Bounding) -> Value:
    result = array_of(one.run())
    return one.close(result, [product(one.instruction, *one.arrays(), result)])


def _fold(one: _Bounding) -> Value:
    result = one.run()
    results = list(leaf_arrays(result))
    one.bounds.active = False
    try:
        found = folded(one.instruction, one.context, *one.arrays(), results)
    finally:
        one.bounds.active = True
    return one.close(result, found)


def _scatter(one: _Bounding) -> Value:
    result = one.run()
    return one.close(result, scattered(one.instruction, *one.arrays(), list(leaf_arrays(result))))


def _transform(one: _Bounding) -> Value:
    result = array_of(one.run())
    return one.close(result, [transformed(one.instruction, *one.arrays(), result)])


def _sort(one: _Bounding) -> Value:
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
    if len(arrays) == 1 and (decided or _compares(instruction)):
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


def _topk(one: _Bounding) -> Value:
    """The largest are as far off as any of their line; where they are is known of exact ones alone."""
    result = one.run()
    (array,), (bound,) = one.arrays()
    if bound is None:
        return one.close(result, _all(result, known=True))
    values, indices = leaf_arrays(result)
    most = np.max(bound, axis=array.ndim - 1, keepdims=True, initial=0.0)
    found = [np.broadcast_to(most, values.shape), np.broadcast_to(np.inf, indices.shape)]
    return one.close(result, found)


def _compares(instruction: Instruction) -> bool:
    """Whether a sort's comparator is one comparison of its two elements."""
    root = instruction.to_apply.root
    return root.opcode == "compare" and set(root.operands) == set(instruction.to_apply.parameters)


RULES: Final[Mapping[str, _BoundRule]] = op_table(
    {
        **dict.fromkeys(ELEMENTWISE, _elementwise),
        **dict.fromkeys(MOVING | INDEXING | {"dynamic-reshape"}, _moved),
        **dict.fromkeys(PLUMBING | SEQUENTIAL | CONSTRAINTS | {"map"}, _inside),
        **dict.fromkeys(RANDOM - {"rng"} | {"bitcast-convert"}, _exact),
        **dict.fromkeys(SOURCES | DEVICE_NUMBERS, _given),
        **dict.fromkeys(("after-all", "get-dimension-size", "infeed"), _given),
        "bitcast": _bitcast,
        "conditional": _conditional,
        "convolution": _product,
        "copy": _elementwise,
        "dot": _product,
        "fft": _transform,
        "reduce": _fold,
        "reduce-window": _fold,
        "scatter": _scatter,
        "sort": _sort,
        "topk": _topk,
        "while": _while,
    },
    ALL,
    "no bound is known: factors of matrices, library calls, draws, what participants exchange",
)

_BY_ELEMENT: Final = (
    _elementwise,
    _moved,
    _product,
    _fold,
    _transform,
    _scatter,
    _sort,
    _topk,
)
"""Rules that take operands to have the sizes of their shapes."""
