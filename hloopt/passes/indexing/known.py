"""Arrays that do not depend on parameters: what index arithmetic over iotas and constants comes to."""

from __future__ import annotations

import numpy as np

from hloopt.errors import UnsupportedError
from hloopt.interpret import EVALUATORS
from hloopt.interpret.context import array_of
from hloopt.interpret.interpreter import Interpreter
from hloopt.ir import Instruction, Module
from hloopt.ops.traits import MOVING
from hloopt.types import Array, ArrayShape

__all__ = ["KnownArrays"]

_MOVES = MOVING - {"bitcast", "pad"} | {"iota"}


class KnownArrays:
    """Values of instructions of one module, where they are known and small.

    ``limit`` is the most elements of an array that is computed.  Each instruction is visited once.
    """

    def __init__(self, module: Module, limit: int) -> None:
        self._context = Interpreter(module, EVALUATORS)
        self.limit = limit
        self._known: dict[Instruction, Array | None] = {}

    def of(self, instruction: Instruction) -> Array | None:
        """The array an instruction computes, or None where it depends on more than constants."""
        stack = [instruction]
        while stack:
            top = stack[-1]
            if top in self._known:
                stack.pop()
                continue
            if not self._is_candidate(top):
                self._known[top] = None
                continue
            missing = [operand for operand in top.operands if operand not in self._known]
            if missing:
                stack.extend(missing)
            else:
                self._known[top] = self._compute(top)
        return self._known[instruction]

    def _is_candidate(self, instruction: Instruction) -> bool:
        shape = instruction.shape
        if not isinstance(shape, ArrayShape) or shape.is_dynamic or shape.elements > self.limit:
            return False
        if not instruction.is_understood:
            return False
        if instruction.opcode == "constant":
            return instruction.literal is not None and instruction.literal.array is not None
        if any(self._known.get(operand, ...) is None for operand in instruction.operands):
            return False
        return instruction.op.is_elementwise or instruction.opcode in _MOVES

    def _compute(self, instruction: Instruction) -> Array | None:
        literal = instruction.literal
        if literal is not None:
            return literal.array
        values = [self._known[operand] for operand in instruction.operands]
        operands = tuple(value for value in values if value is not None)
        if len(operands) < len(values):
            return None
        try:
            with np.errstate(all="ignore"):
                return array_of(
                    EVALUATORS[instruction.opcode](instruction, operands, self._context)
                )
        except UnsupportedError:
            # An op without evaluation is one whose value is not known.
            return None
