"""JAX's Threefry as a loop, and the same without one.

JAX writes 20 rounds as a ``while`` of 5 iterations of 4 rounds.  Its state is two counters, the two words of
each block, the three words of the key, which take turns, and the two lists of rotations, which take turns.
Unrolling such a loop keeps results whatever its body does; what the first iteration's constants make known
(counters, rotations) is computed on the way, so that each shift is by a constant.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np

from hloopt.analysis.trip_count import trip_count
from hloopt.interpret import EVALUATORS
from hloopt.interpret.interpreter import Interpreter
from hloopt.ir import Computation, Instruction
from hloopt.ops.traits import PLUMBING, VIEWS
from hloopt.passes.expand.writer import Term, Writer
from hloopt.types import Array, ArrayShape

__all__ = ["expand", "is_threefry", "obstacle"]

_ROTATIONS: Final = frozenset({(13, 15, 26, 6), (17, 29, 16, 24)})
_ITERATIONS: Final = 5
_MOST_INSTRUCTIONS: Final = 200
_MOST_KNOWN: Final = 16
_MOVING: Final = VIEWS - {"reverse"}

Known: TypeAlias = Array
Value: TypeAlias = "Known | Term | tuple[Value, ...]"


def is_threefry(loop: Instruction) -> bool:
    """Whether the state of a ``while`` begins with both lists of Threefry's rotations."""
    start = loop.operands[0]
    found = {
        tuple(operand.literal.array)
        for operand in start.operands
        if operand.literal is not None
        and operand.literal.array is not None
        and operand.literal.array.shape == (4,)
    }
    return start.opcode == "tuple" and found >= _ROTATIONS


def obstacle(loop: Instruction) -> str | None:
    """Why such a loop stays: another trip count, or a body that does more than arithmetic."""
    trips = trip_count(loop)
    if trips != _ITERATIONS:
        return (
            f"it runs {'an unknown number of' if trips is None else trips} times, not {_ITERATIONS}"
        )
    return _not_plain(loop.body) or _not_plain(loop.condition)


def _not_plain(region: Computation) -> str | None:
    seen, pending, count = {region}, [region], 0
    while pending:
        computation = pending.pop()
        count += len(computation)
        if count > _MOST_INSTRUCTIONS:
            return f"its body has more than {_MOST_INSTRUCTIONS} instructions"
        for instruction in computation:
            if not _is_plain(instruction):
                return f"its body does more than arithmetic in {instruction.name}"
            called = instruction.attributes.get("to_apply")
            if isinstance(called, Computation) and called not in seen:
                seen.add(called)
                pending.append(called)
    return None


def _is_plain(instruction: Instruction) -> bool:
    opcode = instruction.opcode
    return (
        instruction.is_understood
        and not instruction.has_control_edges
        and (
            instruction.op.is_elementwise
            or opcode in _MOVING
            or opcode in PLUMBING
            or opcode == "call"
        )
    )


def expand(loop: Instruction, write: Writer) -> Term:
    """Write the iterations one after another; the result is the tuple of the last."""
    unrolled = _Unrolled(write)
    state: Value = tuple(unrolled.value(operand) for operand in loop.operands[0].operands)
    for _ in range(_ITERATIONS):
        state = unrolled.run(loop.body, (state,))
    assert isinstance(state, tuple)
    parts = zip(map(unrolled.term, state), loop.elements, strict=True)
    return write.pack(*(write.fitted(part, wanted) for part, wanted in parts))


class _Unrolled:
    """Runs computations by writing down what they do; small values that are known are computed."""

    def __init__(self, write: Writer) -> None:
        self.write = write
        self.metadata = write.metadata
        self.context = Interpreter(write.module, EVALUATORS)

    def run(self, computation: Computation, arguments: tuple[Value, ...]) -> Value:
        """The result for the parameters' values."""
        values: dict[Instruction, Value] = {}
        for instruction in computation:
            operands = tuple(values[operand] for operand in instruction.operands)
            values[instruction] = self._step(instruction, operands, arguments)
        return values[computation.root]

    def _step(
        self, instruction: Instruction, operands: tuple[Value, ...], arguments: tuple[Value, ...]
    ) -> Value:
        opcode = instruction.opcode
        if opcode == "parameter":
            return arguments[instruction.parameter_number]
        if opcode == "tuple":
            return operands
        if opcode == "get-tuple-element" and isinstance(operands[0], tuple):
            index = instruction.tuple_index
            return operands[0][index]
        if opcode == "call":
            return self.run(instruction.to_apply, operands)
        known = _known(instruction)
        if known is not None:
            return known
        if _is_computable(instruction) and all(map(_is_known, operands)):
            result = EVALUATORS[opcode](instruction, operands, self.context)  # type: ignore[arg-type]
            assert isinstance(result, np.ndarray)
            return result
        self.write.metadata = instruction.metadata or self.metadata
        made = self.write.make(
            opcode,
            *map(self.term, operands),
            shape=instruction.shape,
            **instruction.attributes,
        )
        self.write.metadata = self.metadata
        return made

    def value(self, instruction: Instruction) -> Value:
        """What is known of an instruction before the loop."""
        known = _known(instruction)
        return self.write.term(instruction) if known is None else known

    def term(self, value: Value) -> Term:
        """A value as an instruction."""
        if isinstance(value, Term):
            return value
        if isinstance(value, tuple):
            return self.write.pack(*map(self.term, value))
        return self.write.constant(value)


def _known(instruction: Instruction) -> Known | None:
    """The value of a small constant."""
    literal = instruction.literal
    return literal.array if literal is not None and _is_small(instruction) else None


def _is_computable(instruction: Instruction) -> bool:
    """Whether to compute it where its operands are known; one value repeated stays a broadcast."""
    return (
        bool(instruction.operands) and instruction.opcode != "broadcast" and _is_small(instruction)
    )


def _is_known(value: Value) -> bool:
    return isinstance(value, np.ndarray)


def _is_small(instruction: Instruction) -> bool:
    shape = instruction.shape
    return isinstance(shape, ArrayShape) and shape.elements <= _MOST_KNOWN
