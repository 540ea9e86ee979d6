"""Values of numbers inside a loop, for given values of its state: one step of evaluating it.

A value stands for all elements of an array alike.  Of f32 and f64, only whole numbers count that the type
holds exactly, as operands and as results: whatever else a device does differently from the interpreter
(subnormal numbers, a product and a sum rounded once), a loop over these ends at the same time everywhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Generic, TypeAlias, TypeVar

import numpy as np

from hloopt.analysis.loop_reader import CallFrame, FramedInstruction, Reader, StateSlot
from hloopt.ir import Instruction
from hloopt.ops import ScalarArgs
from hloopt.ops.traits import BITWISE, MODULAR, PICKING
from hloopt.types import Array, ArrayShape, DType, rounded

__all__ = ["Answers", "KnownValues", "ScalarArray", "constant_value", "wrapped"]

ScalarArray: TypeAlias = Array
"""A 0-d array of the element type's storage."""

MAX_REGION = 256
"""The most instructions visited for one answer, and how deep they are nested at most."""
_DEEPEST = 48


_Known = TypeVar("_Known")


class Answers(ABC, Generic[_Known]):
    """What is known of the instructions that ``reader`` reaches, each found once; None where nothing is."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._found: dict[FramedInstruction, _Known | None] = {}

    def of(
        self, instruction: Instruction, frame: CallFrame | None = None, depth: int = 0
    ) -> _Known | None:
        """The answer for what an instruction stands for."""
        return self.at(self._reader.find(instruction, frame), depth)

    def at(self, place: FramedInstruction | StateSlot | None, depth: int = 0) -> _Known | None:
        """The answer for an instruction, or for an element of the state."""
        if isinstance(place, StateSlot):
            return self._of_slot(place)
        if place is None or depth > _DEEPEST:
            return None
        if place not in self._found:
            if len(self._found) >= MAX_REGION:
                return None
            self._found[place] = None
            self._found[place] = self._compute(*place, depth + 1)
        return self._found[place]

    @abstractmethod
    def _of_slot(self, slot: StateSlot) -> _Known | None:
        """The answer for an element of the state."""

    @abstractmethod
    def _compute(
        self, instruction: Instruction, frame: CallFrame | None, depth: int
    ) -> _Known | None:
        """The answer for an instruction, from those of its operands."""


class KnownValues(Answers[ScalarArray]):
    """The value in every element, given those of state elements."""

    def __init__(self, reader: Reader, known: Mapping[StateSlot, ScalarArray | None]) -> None:
        super().__init__(reader)
        self._known = known

    def _of_slot(self, slot: StateSlot) -> ScalarArray | None:
        return self._known.get(slot)

    def _compute(
        self, instruction: Instruction, frame: CallFrame | None, depth: int
    ) -> ScalarArray | None:
        if not _may_count(instruction):
            return None
        if instruction.opcode == "constant":
            literal = instruction.literal
            return _whole(literal.splat) if literal is not None else None
        if instruction.opcode == "bitcast-convert":
            return self._same_bits(instruction, frame, depth)
        function = instruction.op.numpy
        if function is None or not instruction.is_understood:
            return None
        operands: list[ScalarArray] = []
        for operand in instruction.operands:
            value = self.of(operand, frame, depth) if _is_number(operand) else None
            if value is None:
                return None
            operands.append(value)
        result = instruction.array.dtype
        kind = instruction.operands[-1].array.dtype
        args = ScalarArgs(kind, result, instruction.attributes)
        return _whole(rounded(np.asarray(function(args, *operands)), result.numpy))

    def _same_bits(
        self, instruction: Instruction, frame: CallFrame | None, depth: int
    ) -> ScalarArray | None:
        """An integer as another type of as many bits."""
        kind, (source,) = instruction.array.dtype, instruction.operands
        value = self.of(source, frame, depth) if is_counted(source) else None
        if value is None or not (kind.is_integer and source.array.dtype.is_integer):
            return None
        if kind.bits != source.array.dtype.bits:
            return None
        return np.array(wrapped(int(value), kind)).astype(kind.numpy)


_EXACT = {"f32": 1 << 24, "f64": 1 << 53}
_FLOAT_OPS = MODULAR - BITWISE | PICKING | {"abs", "constant", "convert"}


def _may_count(instruction: Instruction) -> bool:
    """Whether values of an instruction are followed: integers and pred, and what keeps floats whole."""
    if is_counted(instruction):
        return True
    return _is_number(instruction) and instruction.opcode in _FLOAT_OPS


def _is_number(instruction: Instruction) -> bool:
    shape = instruction.shape
    if isinstance(shape, ArrayShape) and shape.dtype.name in _EXACT:
        return shape.elements > 0 and not shape.is_dynamic
    return is_counted(instruction)


def _whole(value: ScalarArray | None) -> ScalarArray | None:
    """A value, but of a float only a whole number that the type holds exactly."""
    if value is None or value.dtype.kind != "f":
        return value
    limit = _EXACT["f32" if value.dtype == np.float32 else "f64"]
    return value if abs(value) <= limit and value == np.rint(value) else None


def constant_value(instruction: Instruction) -> ScalarArray | None:
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


def wrapped(value: int, kind: DType) -> int:
    """The value of an integer type that is congruent to ``value`` modulo 2 to the power of its bits."""
    value &= (1 << kind.bits) - 1
    if kind.kind == "signed" and value >> (kind.bits - 1):
        value -= 1 << kind.bits
    return value
