"""The bounds of one evaluation, by array, and the step that a rule bounds: an instruction on its values."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Final

import numpy as np

from hloopt.interpret.bounds_elementwise import ErrorBound
from hloopt.interpret.context import Context, Evaluator, Value, arrays_of, leaf_arrays
from hloopt.ir import Instruction
from hloopt.types import Array

__all__ = ["Bounding", "Bounds"]


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


class Bounding:
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

    def unknown(self) -> Value:
        """The result, of which nothing is known but of the arrays that are operands still."""
        result = self.run()
        for array in leaf_arrays(result):
            if not self.bounds.knows(array):
                self.bounds.record(array, np.broadcast_to(np.inf, array.shape))
        return result

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
