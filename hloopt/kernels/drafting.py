"""The steps of a program over slots: what runs in which order, and what each step touches.

Nothing has an offset yet; ``planning`` packs the slots and puts buffers in their place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.interpret.control import branches
from hloopt.ir import Computation, Instruction
from hloopt.ir.walk import called_computations
from hloopt.kernels.assignment import Assignment
from hloopt.kernels.buffers.slots import NOTHING, BufferSlots, Spot
from hloopt.kernels.spec import Copy, Fill, KernelSpec, Launch, LeafPlace
from hloopt.ops.traits import FREE
from hloopt.types import array, dtype

__all__ = ["Draft", "HostDraft", "KernelDraft", "LoopDraft", "SelectDraft", "draft_steps"]


@dataclass(frozen=True, slots=True)
class KernelDraft:
    """A drafted ``KernelStep``; ``read`` are the operand leaves it reads."""

    instruction: Instruction
    spec: KernelSpec
    operands: tuple[Spot, ...]
    results: tuple[Spot, ...]
    scratch: tuple[Spot, ...]
    read: frozenset[int]
    before: tuple[tuple[Spot, Spot], ...]
    after: tuple[tuple[Spot, Spot], ...]

    def touched(self) -> Iterator[int]:
        """The slots that are needed while it runs."""
        for number, spot in enumerate(self.operands):
            if number in self.read:
                yield spot.slot
        for spot in (*self.results, *self.scratch):
            yield spot.slot
        for source, target in (*self.before, *self.after):
            yield source.slot
            yield target.slot


@dataclass(frozen=True, slots=True)
class HostDraft:
    """A drafted ``HostStep``."""

    instruction: Instruction
    operands: tuple[Spot, ...]
    results: tuple[Spot, ...]

    def touched(self) -> Iterator[int]:
        """The slots that are needed while it runs."""
        for spot in (*self.operands, *self.results):
            yield spot.slot


@dataclass(frozen=True, slots=True)
class LoopDraft:
    """A drafted ``WhileStep``."""

    instruction: Instruction
    condition: tuple[Draft, ...]
    predicate: Spot | None
    body: tuple[Draft, ...]
    iterations: int | None
    state: tuple[Spot, ...]


@dataclass(frozen=True, slots=True)
class SelectDraft:
    """A drafted ``ConditionalStep``."""

    instruction: Instruction
    selector: Spot
    branches: tuple[tuple[Draft, ...], ...]


Draft: TypeAlias = KernelDraft | HostDraft | LoopDraft | SelectDraft


def draft_steps(
    entry: Computation, assignment: Assignment, slots: BufferSlots
) -> tuple[Draft, ...]:
    """The steps of the entry and of all it runs.

    Raises ``UsageError`` where values that must share a buffer cannot: the module was not prepared.
    """
    return tuple(_Drafter(assignment, slots).computation(entry))


class _Drafter:
    def __init__(self, assignment: Assignment, slots: BufferSlots) -> None:
        self.assignment = assignment
        self.slots = slots
        self.seen: set[Computation] = set()

    def computation(self, computation: Computation) -> Iterator[Draft]:
        if computation in self.seen:
            raise UsageError(
                f"{computation.name} is called from several places; run flatten-call-graph first"
            )
        self.seen.add(computation)
        for instruction in computation:
            if instruction not in self.assignment.needed or instruction.opcode in FREE:
                continue
            if instruction in self.slots.joined:
                continue
            if instruction.opcode == "while":
                yield from self.loop(instruction)
            elif instruction.opcode == "conditional":
                yield self.select(instruction)
            elif instruction.opcode in ("call", "async-start"):
                for body in called_computations(instruction):
                    yield from self.computation(body)
            elif instruction in self.assignment.hosted:
                yield self.host(instruction)
            elif instruction in self.assignment.specs:
                yield self.kernel(instruction, self.assignment.specs[instruction])

    def loop(self, loop: Instruction) -> Iterator[LoopDraft]:
        iterations = self.assignment.iterations[loop]
        if iterations == 0:
            return
        condition: Computation = loop.attributes["condition"]
        body: Computation = loop.attributes["body"]
        tested: tuple[Draft, ...] = ()
        predicate = None
        if iterations is None:
            tested = tuple(self.computation(condition))
            (predicate,) = self.slots.spots(condition.root)
        steps = tuple(self.computation(body))
        changed = self.slots.changed(loop)
        yield LoopDraft(loop, tested, predicate, steps, iterations, changed)

    def select(self, conditional: Instruction) -> SelectDraft:
        (selector,) = self.slots.spots(conditional.operands[0])
        return SelectDraft(
            conditional,
            selector,
            tuple(tuple(self.computation(branch)) for branch in branches(conditional)),
        )

    def host(self, instruction: Instruction) -> HostDraft:
        results = self.slots.spots(instruction)
        self.check_written(instruction, results)
        return HostDraft(instruction, self.operands(instruction), results)

    def operands(self, instruction: Instruction) -> tuple[Spot, ...]:
        return tuple(spot for operand in instruction.operands for spot in self.slots.spots(operand))

    def kernel(self, instruction: Instruction, spec: KernelSpec) -> KernelDraft:
        operands = self.operands(instruction)
        read = _read(spec, len(operands))
        kept = self.slots.handed_on(instruction)
        wanted = tuple(
            Spot(NOTHING, spot.shape) if number in kept else spot
            for number, spot in enumerate(self.slots.spots(instruction))
        )
        self.check_written(instruction, wanted)
        targets = self.apart(spec, operands, wanted, read)
        after = tuple(
            (target, spot)
            for target, spot in zip(targets, wanted, strict=True)
            if (target.slot, target.offset) != (spot.slot, spot.offset)
        )
        before = []
        given = list(operands)
        for operand, result in spec.in_place:
            if operands[operand].slot != targets[result].slot:
                before.append((operands[operand], targets[result]))
                given[operand] = targets[result]
        scratch = tuple(self.scratch(entry.dtype, entry.elements) for entry in spec.scratch)
        return KernelDraft(
            instruction, spec, tuple(given), targets, scratch, read, tuple(before), after
        )

    def apart(
        self,
        spec: KernelSpec,
        operands: tuple[Spot, ...],
        results: tuple[Spot, ...],
        read: frozenset[int],
    ) -> tuple[Spot, ...]:
        """The results, each in separate memory where it would lie in an operand that may not share it."""
        allowed = {*spec.in_place, *spec.overwrites}
        taken: dict[int, list[Spot]] = {}
        found = []
        for number, result in enumerate(results):
            clashes = any(result.meets(other) for other in taken.get(result.slot, ())) or any(
                operands[operand].meets(result) and (operand, number) not in allowed
                for operand in read
            )
            taken.setdefault(result.slot, []).append(result)
            if clashes:
                result = Spot(self.slots.temporary(result.shape.byte_size), result.shape)
            found.append(result)
        return tuple(found)

    def scratch(self, name: str, elements: int) -> Spot:
        shape = array(dtype(name), (elements,))
        return Spot(self.slots.temporary(shape.byte_size), shape)

    def check_written(self, instruction: Instruction, results: Iterable[Spot]) -> None:
        for spot in results:
            if spot.slot == NOTHING or self.slots.all[spot.slot].writable:
                continue
            value = self.slots.all[spot.slot].value
            name = value.defined.instruction.name if value is not None else "memory"
            raise UsageError(
                f"{instruction.name} would write over {name}; run copy-insertion first"
            )


def _read(spec: KernelSpec, count: int) -> frozenset[int]:
    """The operand leaves that the steps of a spec name; a library call reads all."""
    if spec.library:
        return frozenset(range(count))
    found: set[int] = set()
    for step in spec.steps:
        places: Iterable[LeafPlace]
        if isinstance(step, Launch):
            places = [argument.place for argument in step.arguments]
        elif isinstance(step, Copy):
            places = (step.source, step.target)
        else:
            assert isinstance(step, Fill)
            places = (step.target,)
        found.update(place.number for place in places if place.kind == "operand")
    found.update(operand for operand, _ in spec.in_place)
    return frozenset(found)
