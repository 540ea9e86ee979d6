"""Integer and pred values inside a loop, for given values of its state: one step of running it by hand.

A value stands for all elements of an array alike.  Floating-point values are left out: a device may flush
subnormal numbers where the interpreter keeps them, and a loop would end at another time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from hloopt.analysis.loop_reader import Frame, Reader, Slot
from hloopt.ir import Instruction
from hloopt.ops import ScalarArgs
from hloopt.types import ArrayShape, rounded

__all__ = ["MAX_REGION", "Scalar", "Values", "constant_value"]

Scalar: TypeAlias = "np.ndarray[Any, Any]"
"""A 0-d array of the element type's storage."""

MAX_REGION = 256
"""So many instructions are looked at for one answer, and so many are nested at most."""
_DEEPEST = 48


class Values:
    """Values of instructions, given those of state elements; None is a value nobody knows."""

    def __init__(self, reader: Reader, known: Mapping[Slot, Scalar | None]) -> None:
        self._reader = reader
        self._known = known
        self._found: dict[tuple[Instruction, Frame | None], Scalar | None] = {}

    def of(
        self, instruction: Instruction, frame: Frame | None = None, depth: int = 0
    ) -> Scalar | None:
        """The value in every element, or None."""
        place = self._reader.find(instruction, frame)
        if isinstance(place, Slot):
            return self._known.get(place)
        if place is None or depth > _DEEPEST:
            return None
        if place not in self._found:
            if len(self._found) >= MAX_REGION:
                return None
            self._found[place] = None
            self._found[place] = self._compute(*place, depth + 1)
        return self._found[place]

    def _compute(self, instruction: Instruction, frame: Frame | None, depth: int) -> Scalar | None:
        if instruction.opcode == "constant":
            return constant_value(instruction)
        function = instruction.op.numpy
        if function is None or not is_counted(instruction) or not instruction.is_understood:
            return None
        operands: list[Scalar] = []
        for operand in instruction.operands:
            if not is_counted(operand):
                return None
            value = self.of(operand, frame, depth)
            if value is None:
                return None
            operands.append(value)
        result = instruction.array.dtype
        kind = instruction.operands[-1].array.dtype
        args = ScalarArgs(kind, result, instruction.attributes)
        return rounded(np.asarray(function(args, *operands)), result.numpy)


def constant_value(instruction: Instruction) -> Scalar | None:
    """The integer or pred in all elements of a constant."""
    literal = instruction.literal
    return literal.splat if literal is not None and is_counted(instruction) else None


def is_counted(instruction: Instruction) -> bool:
    """Whether this is an array of integers or pred, with at least one element and no dynamic size."""
    shape = instruction.shape
    return (
        isinstance(shape, ArrayShape)
        and (shape.dtype.is_integer or shape.dtype.is_pred)
        and shape.elements > 0
        and not shape.is_dynamic
    )
