"""From a module in an order, and a kernel for each instruction, to a plan.

1. Every instruction that runs is given its kernel (``assignment``); everything that cannot be run is
   reported by name, before anything else.
2. Values that must share memory get one slot (``buffers/slots``), steps are drafted over slots
   (``drafting``); where a kernel needs an operand and a result apart that must lie together, the result
   is made separately and copied.
3. Slots live from the first step that touches them to the last (``Timeline``), and are packed into
   one arena (``buffers/packing``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable

from hloopt.analysis.aliasing import analyze_aliasing
from hloopt.analysis.in_place import InPlace, in_place_pairs
from hloopt.ir import Instruction, Module
from hloopt.kernels.assignment import Assignment, assign_kernels
from hloopt.kernels.buffers.joined import joined_in_place
from hloopt.kernels.buffers.packing import Packing, Timeline, pack
from hloopt.kernels.buffers.slots import NOTHING, BufferSlots, Spot
from hloopt.kernels.drafting import (
    Draft,
    HostDraft,
    KernelDraft,
    LoopDraft,
    SelectDraft,
    draft_steps,
)
from hloopt.kernels.kernel import ChooseKernel
from hloopt.kernels.plan import (
    Allocation,
    ConditionalStep,
    HostStep,
    KernelStep,
    Move,
    Plan,
    PlanBuffer,
    PlanStep,
    WhileStep,
)
from hloopt.kernels.spec import KernelSpec, Launch
from hloopt.passes.copy_insertion.tuples import indices
from hloopt.types import Literal

__all__ = ["plan_program"]

_LONGEST_NAME = 80


def plan_program(
    module: Module,
    choose: ChooseKernel,
    *,
    allow_host: bool | None = False,
    results_apart: bool = False,
    is_shared: bool = False,
) -> Plan:
    """The plan of a module that the pipeline ``device`` has prepared.

    ``choose`` gives the kernel of an instruction and its spec, or raises ``UnsupportedError``; with
    ``allow_host`` the interpreter evaluates what has no kernel (None: there is no interpreter).  With
    ``results_apart`` each result that lies in no other result's memory, and in nothing that is given, has a
    separate allocation.  Where several participants run it (``is_shared``), what brings them together is a
    step.

    Raises ``UnsupportedError``, before anything else, for the first instruction that cannot be run, with all
    others in its notes; ``UsageError`` for a module that was not prepared.
    """
    joined = joined_in_place(module)
    assignment = assign_kernels(
        module, choose, joined.concatenates, allow_host=allow_host, is_shared=is_shared
    )
    aliasing = analyze_aliasing(module, _updates(assignment))
    slots = BufferSlots(module, aliasing, joined)
    drafts = draft_steps(module.entry, assignment, slots)
    return _Planner(module, slots, drafts, results_apart=results_apart).plan()


def _updates(assignment: Assignment) -> Callable[[Instruction], Iterable[InPlace]]:
    """What is updated in place: only what the chosen kernels do."""

    def updates(instruction: Instruction) -> Iterable[InPlace]:
        spec = assignment.specs.get(instruction)
        if spec is None or not spec.in_place:
            return ()
        return [
            pair
            for pair in in_place_pairs(instruction)
            if _leaves(instruction, pair) in spec.in_place
        ]

    return updates


def _leaves(instruction: Instruction, pair: InPlace) -> tuple[int, int]:
    """The flat numbers of the operand leaf and the result leaf of a pair."""
    before = sum(
        len(list(indices(operand.shape))) for operand in instruction.operands[: pair.operand]
    )
    operand = list(indices(instruction.operands[pair.operand].shape)).index(pair.operand_index)
    return before + operand, list(indices(instruction.shape)).index(pair.output_index)


class _Planner:
    def __init__(
        self, module: Module, slots: BufferSlots, drafts: tuple[Draft, ...], *, results_apart: bool
    ) -> None:
        self.module = module
        self.slots = slots
        self.drafts = drafts
        self.functions: set[str] = set()
        self.counts: dict[str, int] = {}
        self.allocations: dict[int, Allocation] = {}
        self.constants: dict[object, Allocation] = {}
        self.results_apart = results_apart
        self.apart: dict[int, int] = {}
        self.offsets: dict[int, int] = {}
        self.arena = Allocation("arena", 0, 0)

    def plan(self) -> Plan:
        results = self.slots.spots(self.module.entry.root)
        if self.results_apart:
            self.apart = self.alone(results)
        packing = self.pack(results)
        self.arena = Allocation("arena", 0, packing.byte_size)
        parameters = tuple(
            self.buffer(spot) if spot.shape.dtype.is_array else None
            for parameter in self.module.entry.parameters
            for spot in self.slots.spots(parameter)
        )
        steps = self.steps(self.drafts)
        outputs = tuple(self.buffer(spot) for spot in results if spot.shape.dtype.is_array)
        allocations = (*dict.fromkeys(self.allocations.values()), self.arena)
        given = sum(entry.byte_size for entry in allocations if entry is not self.arena)
        return Plan(
            allocations,
            parameters,
            outputs,
            steps,
            given + packing.byte_size,
            given + packing.bound,
        )

    # ---- memory -------------------------------------------------------------------------------------

    def alone(self, results: tuple[Spot, ...]) -> dict[int, int]:
        """The slots of the arena that one result takes whole, with the number of that result."""
        arrays = [spot for spot in results if spot.shape.dtype.is_array]
        times = Counter(spot.slot for spot in arrays)
        return {
            spot.slot: number
            for number, spot in enumerate(arrays)
            if spot.slot != NOTHING
            and times[spot.slot] == 1
            and not spot.offset
            and self.slots.all[spot.slot].kind == "arena"
            and self.slots.all[spot.slot].byte_size == spot.shape.byte_size
        }

    def pack(self, results: tuple[Spot, ...]) -> Packing:
        timeline = Timeline()
        for _ in self.slots.all:
            timeline.add()
        self.record(timeline, self.drafts)
        timeline.step(_known(spot.slot for spot in results))
        places = [
            number
            for number, slot in enumerate(self.slots.all)
            if slot.kind == "arena" and number not in self.apart
        ]
        packing = pack(
            [self.slots.all[number].byte_size for number in places],
            [timeline.starts[number] for number in places],
            [timeline.ends[number] for number in places],
        )
        self.offsets = dict(zip(places, packing.offsets, strict=True))
        return packing

    def record(self, timeline: Timeline, drafts: Iterable[Draft]) -> None:
        for draft in drafts:
            if isinstance(draft, LoopDraft):
                with timeline.loop():
                    self.record(timeline, draft.condition)
                    if draft.predicate is not None:
                        timeline.step((draft.predicate.slot,))
                    self.record(timeline, draft.body)
            elif isinstance(draft, SelectDraft):
                timeline.step((draft.selector.slot,))
                for branch in draft.branches:
                    self.record(timeline, branch)
            else:
                timeline.step(_known(draft.touched()))

    def buffer(self, spot: Spot) -> PlanBuffer:
        if spot.slot == NOTHING:
            return PlanBuffer(self.arena, 0, 0, spot.shape)
        offset = self.offsets.get(spot.slot, 0) + spot.offset
        return PlanBuffer(self.allocation(spot.slot), offset, spot.shape.byte_size, spot.shape)

    def allocation(self, number: int) -> Allocation:
        slot = self.slots.all[number]
        if slot.kind == "arena" and number not in self.apart:
            return self.arena
        found = self.allocations.get(number)
        if found is None:
            if slot.kind == "constant":
                found = self.constant(number)
            elif slot.kind == "arena":
                found = Allocation("result", self.apart[number], slot.byte_size)
            else:
                found = Allocation("parameter", slot.number, slot.byte_size)
            self.allocations[number] = found
        return found

    def constant(self, number: int) -> Allocation:
        slot = self.slots.all[number]
        assert slot.value is not None
        instruction, index = slot.value.defined.instruction, slot.value.defined.index
        key = _constant_key(instruction, index)
        found = self.constants.get(key)
        if found is None:
            count = len(self.constants)
            found = Allocation("constant", count, slot.byte_size, instruction, index)
            self.constants[key] = found
        return found

    # ---- steps --------------------------------------------------------------------------------------

    def steps(self, drafts: Iterable[Draft]) -> tuple[PlanStep, ...]:
        return tuple(map(self.step, drafts))

    def step(self, draft: Draft) -> PlanStep:
        if isinstance(draft, KernelDraft):
            return self.kernel(draft)
        if isinstance(draft, HostDraft):
            return HostStep(
                draft.instruction, self.buffers(draft.operands), self.buffers(draft.results)
            )
        if isinstance(draft, SelectDraft):
            return ConditionalStep(
                draft.instruction,
                self.buffer(draft.selector),
                tuple(map(self.steps, draft.branches)),
            )
        return WhileStep(
            draft.instruction,
            self.steps(draft.condition),
            None if draft.predicate is None else self.buffer(draft.predicate),
            self.steps(draft.body),
            draft.iterations,
            self.buffers(draft.state),
        )

    def kernel(self, draft: KernelDraft) -> KernelStep:
        operands = tuple(
            spot if number in draft.read else Spot(NOTHING, spot.shape)
            for number, spot in enumerate(draft.operands)
        )
        given = [one for one in draft.instruction.operands for _ in indices(one.shape)]
        inlined = tuple(
            number
            for number, operand in enumerate(given)
            if number not in draft.read and operand.opcode == "constant"
        )
        return KernelStep(
            draft.instruction,
            draft.spec,
            self.function(draft.instruction, draft.spec),
            self.buffers(operands),
            self.buffers(draft.results),
            self.buffers(draft.scratch),
            inlined,
            tuple(self.move(source, target) for source, target in draft.before),
            tuple(self.move(source, target) for source, target in draft.after),
        )

    def buffers(self, spots: Iterable[Spot]) -> tuple[PlanBuffer, ...]:
        return tuple(map(self.buffer, spots))

    def move(self, source: Spot, target: Spot) -> Move:
        return Move(self.buffer(source), self.buffer(target))

    def function(self, instruction: Instruction, spec: KernelSpec) -> str:
        """A name of C that no other function of the program has, with or without a suffix."""
        suffixes = {step.function for step in spec.steps if isinstance(step, Launch)}
        stem = _identifier(instruction.name)
        count = self.counts.get(stem, 0) + 1
        name = stem if count == 1 else f"{stem}_{count}"
        while not self.functions.isdisjoint(names := _with_suffixes(name, suffixes)):
            count += 1
            name = f"{stem}_{count}"
        self.counts[stem] = count
        self.functions.update(names)
        return name


def _with_suffixes(name: str, suffixes: Iterable[str]) -> set[str]:
    return {name, *(name + suffix for suffix in suffixes)}


def _identifier(name: str) -> str:
    """Letters, digits and underscores; the beginning keeps it apart from what C and CUDA call their own."""
    return "hlo_" + re.sub(r"[^A-Za-z0-9]+", "_", name)[:_LONGEST_NAME].strip("_")


def _constant_key(instruction: Instruction, index: tuple[int, ...]) -> object:
    """The same for constants of the same bits in the same order of memory."""
    literal = instruction.literal
    assert literal is not None
    for number in index:
        literal = literal.elements[number]
    return _LiteralKey(literal)


class _LiteralKey:
    def __init__(self, literal: Literal) -> None:
        self.literal = literal
        self.text = str(literal.shape)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _LiteralKey)
            and self.text == other.text
            and self.literal == other.literal
        )

    def __hash__(self) -> int:
        return hash((self.text, self.literal))


def _known(slots: Iterable[int]) -> list[int]:
    return [slot for slot in slots if slot != NOTHING]
