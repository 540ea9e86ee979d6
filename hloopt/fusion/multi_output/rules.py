"""What may share a kernel with several results: XLA's rules, quick ones before those that walk the graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import field
from typing import Final

from hloopt.analysis.elementwise import is_elementwise
from hloopt.analysis.hero import find_hero, results_of
from hloopt.analysis.layout import is_effective_scalar
from hloopt.analysis.reachability import Reachability
from hloopt.analysis.reduction import is_unnested
from hloopt.analysis.transpose import tiled_transpose
from hloopt.cost_models.usage import UsageAnalysis
from hloopt.dataclass import dataclass
from hloopt.fusion.apply import has_tuple_root
from hloopt.fusion.code_room import CodeRoom
from hloopt.fusion.decision import ALLOWED, Decision, forbid
from hloopt.fusion.fusible import is_fusible, is_loop_fusible_producer, physically_transposes
from hloopt.fusion.in_place import updated_in_place
from hloopt.fusion.kinds import is_input_reduction
from hloopt.fusion.limits import (
    Footprint,
    Footprints,
    KernelLimits,
    decide_budget,
    fused_ops,
    subshapes,
)
from hloopt.fusion.multi_output.forms import Era, KernelForm, decide_forms, kernel_form_of
from hloopt.ir import Instruction
from hloopt.types import ArrayShape, SliceRange, TupleShape

__all__ = ["MultiOutputRules", "is_nestable_variadic"]

_UPDATE: Final = "dynamic-update-slice"


@dataclass
class MultiOutputRules:
    """Verdicts on pairs, from facts cached while an instruction stays unchanged.

    limits               of one kernel
    usage                what instructions compute and read
    era                  whose rules hold
    slice_overlap_bytes  size of a shared operand from which on slices of it must overlap; negative for no such
                         rule
    max_ir_size          instructions a kernel's code may have
    max_splits           times index computations may be interrupted, in 2023
    room                 what the bytes of a kernel's code may be, if they are bounded
    """

    limits: KernelLimits
    usage: UsageAnalysis
    era: Era = "2026"
    slice_overlap_bytes: int = 1024
    max_ir_size: int = 10000
    max_splits: int = 10
    room: CodeRoom | None = None
    footprints: Footprints = field(init=False)
    _forms: dict[Instruction, KernelForm] = field(init=False, default_factory=dict)
    _roots: dict[Instruction, Decision] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.footprints = Footprints(self.limits)

    def became(self, fusion: Instruction, footprint: Footprint) -> None:
        """A fusion was made or has grown: ``footprint`` is that of both it was made of."""
        self.forget(fusion)
        self.footprints.became(fusion, footprint)

    def forget(self, instruction: Instruction) -> None:
        """An instruction was changed or removed."""
        self.footprints.forget(instruction)
        if self.room is not None:
            self.room.forget(instruction)
        self._forms.pop(instruction, None)
        self._roots.pop(instruction, None)

    def decide_shared(self, shared: Instruction) -> Decision:
        """Whether reading a value once instead of twice is worth anything."""
        if not is_effective_scalar(shared.shape):
            return ALLOWED
        if self.era == "2023" and shared.opcode != "constant":
            return ALLOWED
        return forbid("shared-is-scalar")

    def decide_root(self, instruction: Instruction) -> Decision:
        """Whether an op or fusion can have other results beside its own (never a scatter)."""
        known = self._roots.get(instruction)
        if known is None:
            known = self._roots[instruction] = self._decide_root(instruction)
        return known

    def _decide_root(self, instruction: Instruction) -> Decision:
        if not is_fusible(instruction):
            return forbid("consumer-not-fusible")
        if "output_to_operand_aliasing" in instruction.attributes:
            return forbid("consumer-shares-buffers")
        if instruction.opcode != "fusion":
            if is_elementwise(instruction) or is_input_reduction(instruction):
                return ALLOWED
            if tiled_transpose(instruction) is not None:
                return ALLOWED
            return forbid("not-multi-output-root")
        kind = instruction.attributes["kind"]
        if kind == "kCustom":
            return forbid("consumer-is-custom")
        if kind == "kLoop" or is_input_reduction(instruction):
            return ALLOWED
        heroes = map(find_hero, results_of(instruction))
        if any(tiled_transpose(hero) is not None for hero in heroes):
            return ALLOWED
        return forbid("not-multi-output-root")

    def decide_siblings(
        self,
        first: Instruction,
        second: Instruction,
        shared: Instruction,
        *,
        connected: bool,
        wanted: bool = False,
    ) -> Decision:
        """The first rule that forbids; for ``wanted`` pairs only rules of correctness count.

        ``connected`` says whether one depends on the other.
        """
        decision = self._decide_forms(first, second)
        if not decision:
            return decision
        if connected:
            return forbid("siblings-connected")
        if not wanted:
            if self._read_apart(first, second, shared):
                return forbid("disjoint-slices")
            if any(_has_update_root(entry) for entry in (first, second)):
                return forbid("several-updates")
        decision = self._decide_budget(first, second)
        if decision and not wanted and self.room is not None:
            size = self.usage.of(first).ir_size + self.usage.of(second).ir_size
            return self.room.decide(second, first, size, is_result=True)
        return decision

    def decide_producer(self, producer: Instruction) -> Decision:
        """What keeps an op or fusion from being a result beside those of its users."""
        if not is_fusible(producer):
            return forbid("producer-not-fusible")
        if has_tuple_root(producer):
            return forbid("producer-is-multi-output")
        if updated_in_place(producer) or "output_to_operand_aliasing" in producer.attributes:
            return forbid("producer-in-place")
        if not is_loop_fusible_producer(producer):
            return forbid("producer-not-loop-fusible")
        if any(map(physically_transposes, fused_ops(producer))):
            return forbid("producer-transposes")
        return ALLOWED

    def decide_pair(
        self,
        producer: Instruction,
        consumer: Instruction,
        reachability: Reachability,
        *,
        wanted: bool = False,
    ) -> Decision:
        """The first rule that forbids a producer beside its user, without times; else as for siblings."""
        steps: list[Callable[[], Decision]] = [
            lambda: self.decide_root(consumer),
            lambda: self._decide_forms(consumer, producer),
            lambda: _decide_cycle(producer, consumer, reachability),
            lambda: self._decide_budget(producer, consumer),
        ]
        if not wanted:
            steps.append(lambda: self._decide_size(producer, consumer))
        for step in steps:
            decision = step()
            if not decision:
                return decision
        return ALLOWED

    def loop_size(self, instruction: Instruction) -> int:
        """The number of elements, one per thread; -1 for non-arrays: kernels of two sizes share no form."""
        loop = self._form(instruction).loop
        return loop.elements if isinstance(loop, ArrayShape) else -1

    def _decide_forms(self, left: Instruction, right: Instruction) -> Decision:
        return decide_forms(left, self._form(left), right, self._form(right), self.era)

    def _form(self, instruction: Instruction) -> KernelForm:
        known = self._forms.get(instruction)
        if known is None:
            opcodes = self.usage.opcodes(instruction)
            known = self._forms[instruction] = kernel_form_of(instruction, opcodes)
        return known

    def _decide_budget(self, left: Instruction, right: Instruction) -> Decision:
        both = self.footprints.of(left) + self.footprints.of(right)
        return decide_budget(both, left, right, self.limits, multi_output=True)

    def _decide_size(self, producer: Instruction, consumer: Instruction) -> Decision:
        """How long the code becomes; in 2023 it doubles with each interruption of index computations."""
        ours, theirs = self.usage.of(producer), self.usage.of(consumer)
        times = 1
        if consumer.opcode == "fusion":
            times = theirs.operands[consumer.operands.index(producer)].emitted
        size = times * ours.ir_size + theirs.ir_size
        if self.era == "2023":
            splits = times * ours.splits + theirs.splits
            if splits > self.max_splits:
                return forbid("block-splits", limit=self.max_splits, actual=splits)
            size <<= splits
        if size > self.max_ir_size:
            return forbid("ir-size", limit=self.max_ir_size, actual=size)
        return (
            ALLOWED
            if self.room is None
            else self.room.decide(producer, consumer, size, is_result=True)
        )

    def _read_apart(self, first: Instruction, second: Instruction, shared: Instruction) -> bool:
        """Whether each reads one slice of the shared operand, and the two have no element in common."""
        if not self.may_read_apart(shared):
            return False
        left, right = self.slice_of(shared, first), self.slice_of(shared, second)
        if left is None or right is None:
            return False
        ranges = zip(left, right, strict=True)
        return any(one.start >= other.limit or other.start >= one.limit for one, other in ranges)

    def may_read_apart(self, shared: Instruction) -> bool:
        """Whether readers of different slices of a value stay apart."""
        if self.era == "2023" or self.slice_overlap_bytes < 0:
            return False
        return (
            isinstance(shared.shape, ArrayShape)
            and shared.shape.byte_size >= self.slice_overlap_bytes
        )

    def slice_of(self, shared: Instruction, reader: Instruction) -> Sequence[SliceRange] | None:
        """The one slice through which alone ``reader`` reads a value; None where there is no such."""
        only = _only_slice(shared, reader)
        return None if only is None else only.attributes["slice"]

    def likeness(self, instruction: Instruction) -> Hashable:
        """What the rules for siblings read of one that depends on no other, but for its slice and its code's
        size: of two that are alike, a third gets the same verdict.
        """
        form = self._form(instruction)
        return (
            form.hero if self.era == "2023" else None,
            (form.loop, form.reduction, form.transpose, form.is_plain_transpose),
            self.footprints.of(instruction),
            (frozenset(instruction.operands), len(instruction.operands)),
            subshapes(instruction.shape),
            _has_update_root(instruction),
        )


def is_nestable_variadic(instruction: Instruction) -> bool:
    """Whether this is a reduce of several arrays without a tiled kernel, or a loop fusion around one."""
    if not isinstance(instruction.shape, TupleShape):
        return False
    if instruction.opcode == "reduce":
        return not is_unnested(instruction)
    if instruction.opcode != "fusion" or instruction.attributes["kind"] != "kLoop":
        return False
    return instruction.calls.root.opcode == "reduce"


def _decide_cycle(
    producer: Instruction, consumer: Instruction, reachability: Reachability
) -> Decision:
    if reachability.merge_makes_cycle(producer, consumer):
        return forbid("would-cycle")
    return ALLOWED


def _has_update_root(instruction: Instruction) -> bool:
    """A kernel that updates in place has that one result (XLA checks fusions only)."""
    if instruction.opcode != "fusion":
        return False
    return instruction.calls.root.opcode == _UPDATE


def _only_slice(shared: Instruction, reader: Instruction) -> Instruction | None:
    """The slice through which alone ``reader`` reads a value."""
    if reader.opcode == "slice":
        return reader
    if reader.opcode != "fusion" or reader.operands.count(shared) != 1:
        return None
    parameter = reader.calls.parameters[reader.operands.index(shared)]
    if len(parameter.users) != 1:
        return None
    return _only_slice(parameter, next(iter(parameter.users)))
