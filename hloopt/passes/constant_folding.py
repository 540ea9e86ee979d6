"""Constant folding by the reference interpreter."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from hloopt.analysis.cost import instruction_cost
from hloopt.analysis.effects import Effects
from hloopt.analysis.trip_count import trip_count
from hloopt.dataclass import dataclass
from hloopt.errors import UnsupportedError, UsageError
from hloopt.interpret import EVALUATORS, Value
from hloopt.interpret.interpreter import Interpreter
from hloopt.interpret.sizes import is_dynamic
from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.ir.walk import called_computations, callees_first, wrapped_computations
from hloopt.ops.traits import SIZES
from hloopt.passes.constant_arguments import Arguments
from hloopt.rewrite import Pass, PassLog
from hloopt.types import Array, ArrayShape, DotDims, Literal, Shape, array, parts_of

__all__ = ["ConstantFolding"]

_FAMILIES = ("elementwise", "movement", "indexing", "reduction", "sort")
_ALSO = ("dot",)
_MOVING = ("broadcast", "iota")
# What computes nothing or is cheaper to keep: XLA leaves the same ones alone.
_NEVER = SIZES | {*_MOVING, "copy", "scan", "topk"}
_REGIONS = ("call", "while")
_A_SECOND = 50_000_000


@dataclass(frozen=True)
class ConstantFolding(Pass):
    """Evaluate what depends on constants only, rounding after every op.

    An instruction is folded when all operands are constants, broadcasts of constants or iotas, and one of
    them at least is a constant itself.  Constants left out of the text (``{...}``), random numbers, side
    effects and control edges stay, and so do bodies of fusions and of asynchronous calls.

    A call with constant operands is evaluated as a whole, and so is a while that is known to run at most
    ``trips`` times.  What every caller gives to a computation, or to a branch, is used there first.

    limit     the most elements of a result; one value repeated, or a result no larger than a constant
              among the operands, may have more.  XLA's limit is 45,000,000; 1,024 numbers of 32 bits are
              about 12 kB of text, so that no module grows by much
    work      the most elements that one instruction reads (for dot: multiplications, for calls and
              loops: operations)
    seconds   about how long all evaluations together may take: work is counted, at 50 million a second,
              and not time, so that the same module gives the same result on every machine
    trips     the most iterations of a loop that is evaluated; 0: loops stay
    """

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
    seconds: float = 20
    trips: int = 0

    def __post_init__(self) -> None:
        if self.limit < 1 or self.work < 1:
            raise UsageError(f"{self.name}: limit and work must be at least 1")
        if not self.seconds > 0 or self.trips < 0:
            raise UsageError(f"{self.name}: seconds must be positive, and trips non-negative")

    def run(self, module: Module, log: PassLog) -> bool:
        """One pass over each computation, callers first: what is folded is a constant for what follows."""
        changed = False
        arguments = Arguments(module)
        effects, wrapped = Effects(module), wrapped_computations(module)
        context = Interpreter(module, EVALUATORS)
        left = int(self.seconds * _A_SECOND)
        for computation in reversed(callees_first(module)):
            if computation in wrapped:
                continue
            changed |= arguments.hand_in(computation, self.limit, log)
            for instruction in computation:
                if not log.allows():
                    return changed
                if effects.has(instruction) or not self.is_candidate(instruction):
                    continue
                work = _work(instruction)
                if work > min(self.work, left):
                    limit = f"work={self.work}" if work > self.work else f"seconds={self.seconds:g}"
                    log.miss(_step(instruction), instruction, f"{work} operations; {limit}")
                    continue
                left -= work
                changed |= self.fold(instruction, context, log)
        return changed

    def is_candidate(self, instruction: Instruction) -> bool:
        """Whether opcode, operands and control edges allow folding."""
        op, operands = instruction.op, instruction.operands
        if instruction.has_control_edges:
            return False
        if op.opcode in _REGIONS:
            return self.is_region(instruction)
        return (
            bool(operands)
            and (op.family in _FAMILIES or op.opcode in _ALSO)
            and op.opcode not in _NEVER
            and all(map(_is_known, operands))
            and any(operand.opcode == "constant" for operand in operands)
        )

    def is_region(self, instruction: Instruction) -> bool:
        """Whether a call or loop has constant operands, and ends soon."""
        if not all(map(_is_known_whole, instruction.operands)) or not _is_flat(instruction.shape):
            return False
        if instruction.opcode == "while":
            trips = trip_count(instruction)
            if trips is None or trips > self.trips:
                return False
        return all(map(self.is_bounded, called_computations(instruction)))

    def is_bounded(self, computation: Computation) -> bool:
        """Whether everything in a computation can be evaluated, and how often its loops run is known."""
        for instruction in computation:
            if instruction.op.family in ("random", "custom") or instruction.shape.is_dynamic:
                return False
            if instruction.literal is not None and instruction.literal.elided:
                return False
            if instruction.opcode == "while" and (trip_count(instruction) or 1 << 60) > self.trips:
                return False
            if not all(map(self.is_bounded, called_computations(instruction))):
                return False
        return True

    def fold(self, instruction: Instruction, context: Interpreter, log: PassLog) -> bool:
        """Replace by a constant, unless the result is too large or has no evaluation."""
        constants = [entry for entry in instruction.operands if entry.opcode == "constant"]
        largest = max((_elements(entry.shape) for entry in constants), default=0)
        allowed = max(self.limit, largest)
        leaves = _leaves(instruction.shape)
        most = max((leaf.elements for leaf in leaves), default=0)
        if is_dynamic(instruction):
            return False
        if most > max(allowed, self.work):
            log.miss(_step(instruction), instruction, f"{most} elements; work={self.work}")
            return False
        try:
            with np.errstate(all="ignore"):
                operands = tuple(_value(operand, context) for operand in instruction.operands)
                value = EVALUATORS[instruction.opcode](instruction, operands, context)
        except UnsupportedError:
            return False
        literals = _literals(value, instruction.shape)
        if any(entry.shape.elements > allowed and entry.splat is None for entry in literals):
            log.miss(_step(instruction), instruction, f"{most} elements; limit={self.limit}")
            return False
        folded = _build(instruction, literals)
        for mark in ("sharding", "frontend_attributes"):
            if mark in instruction.attributes:
                edit.set_attribute(folded, mark, instruction.attributes[mark])
        log.hit(_step(instruction), instruction)
        edit.replace_instruction(instruction, folded)
        return True


def _step(instruction: Instruction) -> str:
    return f"fold {instruction.opcode}"


def _work(instruction: Instruction) -> int:
    """How many elements are read; the multiplications of a dot, the operations of calls and loops."""
    if instruction.opcode in _REGIONS:
        cost = instruction_cost(instruction)
        return cost.flops + cost.transcendentals + cost.bytes_accessed
    if instruction.opcode == "dot":
        lhs, dims = instruction.operands[0].array, DotDims.of(instruction.attributes)
        work = instruction.array.elements
        for dimension in dims.lhs_contracting:
            work *= lhs.dims[dimension]
        return work
    return max(operand.array.elements for operand in instruction.operands)


def _elements(shape: Shape) -> int:
    return max((leaf.elements for leaf in _leaves(shape)), default=0)


def _is_flat(shape: Shape) -> bool:
    """Whether the shape is an array or a tuple of arrays, none of them dynamic."""
    parts = parts_of(shape)
    return not shape.is_dynamic and all(isinstance(part, ArrayShape) for part in parts)


def _is_known_whole(operand: Instruction) -> bool:
    """Whether an operand of a call is known, tuples included."""
    if operand.opcode == "tuple":
        return all(entry.is_array and _is_known(entry) for entry in operand.operands)
    return operand.is_array and _is_known(operand)


def _is_known(operand: Instruction) -> bool:
    if operand.opcode in _MOVING:
        return operand.opcode == "iota" or _has_value(operand.operands[0])
    return _has_value(operand)


def _has_value(operand: Instruction) -> bool:
    literal = operand.literal
    return literal is not None and literal.array is not None


def _leaves(shape: Shape) -> list[ArrayShape]:
    parts = parts_of(shape)
    return [part for part in parts if isinstance(part, ArrayShape)]


def _value(operand: Instruction, context: Interpreter) -> Value:
    if operand.opcode == "tuple":
        return tuple(_value(entry, context) for entry in operand.operands)
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
    def splat(self) -> Array | None:
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
    if instruction.is_tuple:
        return build.make(instruction, "tuple", constants, shape=instruction.shape)
    return constants[0]


def _constant(position: Instruction, result: _Result) -> Instruction:
    splat = result.splat
    if splat is None or not result.shape.dims:
        return build.constant(position, result.literal)
    single = build.constant(position, Literal(array(result.shape.dtype), splat))
    return build.make(position, "broadcast", (single,), {"dimensions": ()}, shape=result.shape)
