"""Constant folding by the reference interpreter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hloopt.errors import UnsupportedError, UsageError
from hloopt.interpret import EVALUATORS, Value
from hloopt.interpret.interpreter import Interpreter
from hloopt.interpret.sizes import is_dynamic
from hloopt.ir import Instruction, Module, build, edit
from hloopt.ir.walk import wrapped_computations
from hloopt.passes.effects import Effects
from hloopt.rewrite import Pass, PassLog
from hloopt.types import ArrayShape, DotDims, Literal, Shape, TupleShape, array

__all__ = ["ConstantFolding"]

_FAMILIES = ("elementwise", "movement", "indexing", "reduction", "sort")
_ALSO = ("dot",)
# What computes nothing or is cheaper to keep: XLA leaves the same ones alone.
_NEVER = ("broadcast", "copy", "dynamic-reshape", "get-dimension-size", "set-dimension-size", "scan",
          "topk")  # fmt: skip
_MOVING = ("broadcast", "iota")


@dataclass(frozen=True)
class ConstantFolding(Pass):
    """Evaluate what depends on constants only, rounding after every op.

    An instruction is folded when all operands are constants, broadcasts of constants or iotas, and one of
    them at least is a constant itself.  Constants left out of the text (``{...}``), random numbers, side
    effects and control edges stay, and so do bodies of fusions and of asynchronous calls.

    limit   the most elements of a result; one value repeated, or a result no larger than a constant
            among the operands, may have more
    work    the most elements read (for dot: multiplications)
    """

    name: ClassVar[str] = "constant-folding"
    example: ClassVar[str] = """HloModule example

ENTRY main {
  x = s32[3] parameter(0)
  a = s32[3] constant({1, 2, 3})
  b = s32[3] constant({10, 20, 30})
  c = s32[3] multiply(a, b)
  ROOT y = s32[3] add(x, c)
}
"""

    limit: int = 1024
    work: int = 1 << 24

    def __post_init__(self) -> None:
        if self.limit < 1 or self.work < 1:
            raise UsageError(f"{self.name}: limit and work count elements and are at least 1")

    def run(self, module: Module, log: PassLog) -> bool:
        """One pass over each computation; a folded operand is a constant for what comes after it."""
        effects, wrapped = Effects(module), wrapped_computations(module)
        context = Interpreter(module, EVALUATORS)
        changed = False
        for computation in module:
            if computation in wrapped:
                continue
            for instruction in computation:
                if not log.allows():
                    return changed
                if effects.has(instruction) or not self.is_candidate(instruction):
                    continue
                changed |= self.fold(instruction, context, log)
        return changed

    def is_candidate(self, instruction: Instruction) -> bool:
        """Whether opcode, operands and control edges allow folding."""
        op, operands = instruction.op, instruction.operands
        return (
            bool(operands)
            and (op.family in _FAMILIES or op.opcode in _ALSO)
            and op.opcode not in _NEVER
            and not instruction.control_predecessors
            and not instruction.control_successors
            and all(map(_is_known, operands))
            and any(operand.opcode == "constant" for operand in operands)
            and self.is_cheap(instruction)
        )

    def is_cheap(self, instruction: Instruction) -> bool:
        """Whether reading the operands, and for dot multiplying them, stays within ``work``."""
        work = max(operand.array.elements for operand in instruction.operands)
        if instruction.opcode == "dot":
            lhs, dims = instruction.operands[0].array, DotDims.of(instruction.attributes)
            work = instruction.array.elements
            for dimension in dims.lhs_contracting:
                work *= lhs.dims[dimension]
        return work <= self.work

    def fold(self, instruction: Instruction, context: Interpreter, log: PassLog) -> bool:
        """Replace by a constant, unless the result is too large or has no evaluation."""
        largest = max(
            (entry.array.elements for entry in instruction.operands if entry.opcode == "constant"),
            default=0,
        )
        allowed = max(self.limit, largest)
        leaves = _leaves(instruction.shape)
        if any(leaf.elements > max(allowed, self.work) for leaf in leaves) or is_dynamic(
            instruction
        ):
            return False
        try:
            with np.errstate(all="ignore"):
                operands = tuple(_value(operand, context) for operand in instruction.operands)
                value = EVALUATORS[instruction.opcode](instruction, operands, context)
        except UnsupportedError:
            return False
        literals = _literals(value, instruction.shape)
        if any(entry.shape.elements > allowed and entry.splat is None for entry in literals):
            return False
        folded = _build(instruction, literals)
        if "sharding" in instruction.attributes:
            edit.set_attribute(folded, "sharding", instruction.attributes["sharding"])
        log.hit(f"fold {instruction.opcode}", instruction)
        edit.replace_instruction(instruction, folded)
        return True


def _is_known(operand: Instruction) -> bool:
    if operand.opcode in _MOVING:
        return operand.opcode == "iota" or _has_value(operand.operands[0])
    return _has_value(operand)


def _has_value(operand: Instruction) -> bool:
    literal = operand.literal
    return literal is not None and literal.array is not None


def _leaves(shape: Shape) -> list[ArrayShape]:
    parts = shape.elements if isinstance(shape, TupleShape) else (shape,)
    return [part for part in parts if isinstance(part, ArrayShape)]


def _value(operand: Instruction, context: Interpreter) -> Value:
    literal = operand.literal
    if literal is not None and literal.array is not None:
        return literal.array
    operands = tuple(_value(inner, context) for inner in operand.operands)
    return EVALUATORS[operand.opcode](operand, operands, context)


@dataclass(frozen=True)
class _Result:
    """One array of the result with its shape."""

    shape: ArrayShape
    literal: Literal

    @property
    def splat(self) -> np.ndarray[Any, Any] | None:
        return self.literal.splat


def _literals(value: Value, shape: Shape) -> list[_Result]:
    values = value if isinstance(value, tuple) else (value,)
    found: list[_Result] = []
    for leaf, part in zip(_leaves(shape), values, strict=True):
        found.append(
            _Result(leaf, Literal(leaf, np.array(part, dtype=leaf.dtype.numpy, order="C")))
        )
    return found


def _build(instruction: Instruction, results: list[_Result]) -> Instruction:
    constants = tuple(_constant(instruction, result) for result in results)
    if isinstance(instruction.shape, TupleShape):
        return build.make(instruction, "tuple", constants, shape=instruction.shape)
    return constants[0]


def _constant(position: Instruction, result: _Result) -> Instruction:
    splat = result.splat
    if splat is None or not result.shape.dims:
        return build.constant(position, result.literal)
    single = build.constant(position, Literal(array(result.shape.dtype), splat))
    return build.make(position, "broadcast", (single,), {"dimensions": ()}, shape=result.shape)
