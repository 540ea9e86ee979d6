"""A plan walked with symbols in place of arrays: does each read see the value that the graph says?

A symbol stands for bytes: what an instruction makes of the symbols of its operands, whatever their numbers
are.  Memory remembers which symbol was written where, and forgets it when any of its bytes are written again.
Symbols one behind the other are what a concatenate of the graph makes of them, where it puts them so.
The graph is walked beside it, without any memory; loops and branches go the same way on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from math import prod

from hloopt.analysis.layout import same_layout
from hloopt.analysis.region import region_of
from hloopt.analysis.trip_count import trip_count
from hloopt.interpret.control import branches
from hloopt.ir import Computation, Instruction, Module
from hloopt.kernels.plan import (
    Allocation,
    ConditionalStep,
    HostStep,
    KernelStep,
    Plan,
    PlanBuffer,
    PlanStep,
    WhileStep,
)
from hloopt.types import Literal, leaves

__all__ = ["WrongReadError", "check_plan"]

Symbol = Hashable
NOTHING = -1  # the symbol of what has no bytes
_VIEWS = ("bitcast", "opt-barrier", "domain")


class WrongReadError(Exception):
    """Memory does not hold what is read."""


@dataclass
class Ways:
    """How often loops run whose count is not known, and which branches are taken, in turn."""

    seed: int
    turns: dict[Instruction, int] = field(default_factory=dict)

    def iterations(self, loop: Instruction) -> int:
        known = trip_count(loop)
        return known if known is not None else self.next(loop) % 3

    def branch(self, conditional: Instruction) -> int:
        return self.next(conditional) % len(branches(conditional))

    def next(self, instruction: Instruction) -> int:
        self.turns[instruction] = self.turns.get(instruction, self.seed) + 1
        return self.turns[instruction]


def check_plan(module: Module, plan: Plan, seed: int = 0) -> None:
    """Raise ``WrongReadError`` where the plan of a module that was made ready does not compute it."""
    numbers: dict[Symbol, int] = {}

    def intern(key: Symbol) -> int:
        return numbers.setdefault(key, len(numbers))

    graph = _Graph(intern, Ways(seed))
    wanted = graph.entry(module)
    got = _Machine(intern, Ways(seed), graph.joined).run(module, plan)
    if wanted != got:
        at = [
            number for number, pair in enumerate(zip(wanted, got, strict=True)) if len({*pair}) > 1
        ]
        raise WrongReadError(f"results {at} are other values")


def constant_symbols(literal: Literal) -> list[Symbol]:
    if literal.elements:
        return [symbol for part in literal.elements for symbol in constant_symbols(part)]
    return [("constant", str(literal.shape), literal.key)]


def made(intern: Callable[[Symbol], int], instruction: Instruction, given: list[int]) -> list[int]:
    """The symbols an instruction makes of those of its operand leaves."""
    if instruction.opcode == "copy" and same_layout(
        instruction.operands[0].shape, instruction.shape
    ):
        return given
    if instruction.opcode == "copy-start":
        return [*given, *given, NOTHING]
    count = len(list(leaves(instruction.shape)))
    shapes = [leaf for operand in instruction.operands for leaf in leaves(operand.shape)]
    seen = [
        symbol if shape.byte_size else NOTHING for symbol, shape in zip(given, shapes, strict=True)
    ]
    return [intern((id(instruction), leaf, *seen)) for leaf in range(count)]


class _Graph:
    """The module's own meaning: values, no memory."""

    def __init__(self, intern: Callable[[Symbol], int], ways: Ways) -> None:
        self.intern = intern
        self.ways = ways
        self.joined: dict[tuple[int, ...], int] = {}

    def entry(self, module: Module) -> list[int]:
        arguments = []
        number = 0
        for parameter in module.entry.parameters:
            count = len(list(leaves(parameter.shape)))
            arguments.append([self.intern(("parameter", number + at)) for at in range(count)])
            number += count
        found = self.call(module.entry, arguments)
        shapes = leaves(module.entry.root.shape)
        return [symbol for symbol, shape in zip(found, shapes, strict=True) if shape.byte_size]

    def call(self, computation: Computation, arguments: Sequence[list[int]]) -> list[int]:
        values: dict[Instruction, list[int]] = {}
        for instruction in computation:
            given = [values[operand] for operand in instruction.operands]
            values[instruction] = self.value(instruction, given, arguments)
        return values[computation.root]

    def value(
        self, instruction: Instruction, given: list[list[int]], arguments: Sequence[list[int]]
    ) -> list[int]:
        opcode, attributes = instruction.opcode, instruction.attributes
        if opcode == "parameter":
            return arguments[instruction.parameter_number]
        if opcode == "constant":
            return [self.intern(symbol) for symbol in constant_symbols(attributes["literal"])]
        if opcode == "tuple":
            return [symbol for part in given for symbol in part]
        if opcode == "get-tuple-element":
            before, inside = 0, 0
            for number, shape in enumerate(instruction.operands[0].shape.elements):  # type: ignore[union-attr]
                inside = len(list(leaves(shape)))
                if number == attributes["index"]:
                    break
                before += inside
            return given[0][before : before + inside]
        if opcode in _VIEWS:
            return given[0]
        if opcode == "while":
            state = given[0]
            for _ in range(self.ways.iterations(instruction)):
                state = self.call(attributes["body"], [state])
            return state
        if opcode == "conditional":
            number = self.ways.branch(instruction)
            return self.call(branches(instruction)[number], [given[1 + number]])
        if opcode == "call":
            return self.call(attributes["to_apply"], given)
        if opcode in ("async-start", "copy-start"):
            return self.start(instruction, given)
        if opcode in ("async-done", "copy-done"):
            first = 0 if opcode == "copy-done" else count_leaves(instruction.operands[0].operands)
            return given[0][first : first + count_leaves([instruction])]
        found = made(self.intern, instruction, [symbol for part in given for symbol in part])
        if (
            opcode == "concatenate"
            and prod(instruction.array.dims[: attributes["dimensions"][0]]) == 1
        ):
            (self.joined[tuple(symbol for part in given for symbol in part)],) = found
        return found

    def start(self, instruction: Instruction, given: list[list[int]]) -> list[int]:
        """Operands, result and context of a call; copy, source and context of a copy."""
        flat = [symbol for part in given for symbol in part]
        if instruction.opcode == "copy-start":
            found = [*flat, *flat]
        else:
            found = [*flat, *self.call(instruction.attributes["calls"], given)]
        return found + [NOTHING] * (count_leaves([instruction]) - len(found))


def count_leaves(instructions: Sequence[Instruction]) -> int:
    return sum(len(list(leaves(one.shape))) for one in instructions)


class _Machine:
    """Memory of symbols."""

    def __init__(
        self, intern: Callable[[Symbol], int], ways: Ways, joined: dict[tuple[int, ...], int]
    ) -> None:
        self.intern = intern
        self.ways = ways
        self.joined = joined
        self.held: dict[Allocation, dict[tuple[int, int], int]] = {}

    def run(self, module: Module, plan: Plan) -> list[int]:
        for number, buffer in enumerate(plan.parameters):
            if buffer is not None:
                self.write(buffer, self.intern(("parameter", number)))
        for allocation in plan.allocations:
            if allocation.instruction is not None:
                literal = allocation.instruction.attributes["literal"]
                for number in allocation.index:
                    literal = literal.elements[number]
                size = allocation.byte_size
                (symbol,) = constant_symbols(literal)
                self.held.setdefault(allocation, {})[0, size] = self.intern(symbol)
        self.steps(plan.steps)
        return [self.read(buffer, "the result") for buffer in plan.results if buffer.byte_size]

    def steps(self, steps: Sequence[PlanStep]) -> None:
        for step in steps:
            if isinstance(step, KernelStep):
                self.kernel(step)
            elif isinstance(step, HostStep):
                given = [self.leaf(step, number) for number in range(len(step.operands))]
                self.write_all(step, made(self.intern, step.instruction, given))
            elif isinstance(step, WhileStep):
                self.loop(step)
            else:
                assert isinstance(step, ConditionalStep)
                self.read(step.selector, step.instruction.name)
                self.steps(step.branches[self.ways.branch(step.instruction)])

    def loop(self, step: WhileStep) -> None:
        for _ in range(self.ways.iterations(step.instruction)):
            self.test(step)
            self.steps(step.body)
        self.test(step)

    def test(self, step: WhileStep) -> None:
        if step.predicate is not None:
            self.steps(step.condition)
            self.read(step.predicate, step.instruction.name)

    def kernel(self, step: KernelStep) -> None:
        for move in step.before:
            self.write(move.target, self.read(move.source, step.instruction.name))
        allowed = {*step.spec.in_place, *step.spec.overwrites}
        for number, buffer in enumerate(step.results):
            shared = [step.operands[operand] for operand, result in allowed if result == number]
            if buffer not in shared and not any(same_bytes(buffer, other) for other in shared):
                self.forget(buffer)
        for buffer in step.scratch:
            self.forget(buffer)
        given = [self.leaf(step, number) for number in range(len(step.operands))]
        self.write_all(step, made(self.intern, step.instruction, given))
        for move in step.after:
            self.write(move.target, self.read(move.source, step.instruction.name))

    def leaf(self, step: KernelStep | HostStep, number: int) -> int:
        """The symbol of an operand leaf: from memory, or of what needs none."""
        if isinstance(step, KernelStep):
            number = region_of(step.instruction).canonical(number)
            if number in step.inlined:
                operands = [one for one in step.instruction.operands for _ in leaves(one.shape)]
                literal = operands[number].literal
                if literal is None:
                    raise WrongReadError(f"{step.instruction.name} has an operand nowhere")
                (symbol,) = constant_symbols(literal)
                return self.intern(symbol)
        buffer = step.operands[number]
        return self.read(buffer, step.instruction.name) if buffer.byte_size else NOTHING

    def write_all(self, step: KernelStep | HostStep, symbols: list[int]) -> None:
        for buffer, symbol in zip(step.results, symbols, strict=True):
            self.write(buffer, symbol)

    def read(self, buffer: PlanBuffer, reader: str) -> int:
        found = self.held.get(buffer.allocation, {}).get((buffer.offset, buffer.byte_size))
        if found is None:
            found = self.together(buffer)
        if found is None:
            raise WrongReadError(f"{reader} reads bytes that hold no value")
        return found

    def together(self, buffer: PlanBuffer) -> int | None:
        """The symbol of a concatenate whose parts fill a buffer, in order and without a gap."""
        end = buffer.offset + buffer.byte_size
        parts = [
            (offset, size, symbol)
            for (offset, size), symbol in sorted(self.held.get(buffer.allocation, {}).items())
            if buffer.offset <= offset and offset + size <= end
        ]
        at = buffer.offset
        for offset, size, _ in parts:
            if offset != at:
                return None
            at += size
        return self.joined.get(tuple(symbol for _, _, symbol in parts)) if at == end else None

    def write(self, buffer: PlanBuffer, symbol: int) -> None:
        if buffer.byte_size:
            self.forget(buffer)
            place = (buffer.offset, buffer.byte_size)
            self.held.setdefault(buffer.allocation, {})[place] = symbol

    def forget(self, buffer: PlanBuffer) -> None:
        held = self.held.setdefault(buffer.allocation, {})
        end = buffer.offset + buffer.byte_size
        for offset, size in list(held):
            if offset < end and buffer.offset < offset + size:
                del held[offset, size]


def same_bytes(left: PlanBuffer, right: PlanBuffer) -> bool:
    return (left.allocation, left.offset, left.byte_size) == (
        right.allocation,
        right.offset,
        right.byte_size,
    )
