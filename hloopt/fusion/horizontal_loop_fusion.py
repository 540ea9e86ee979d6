"""Many small independent loops as one kernel: their cost is their launches.

The case it was made for is an optimizer's step over many small arrays.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from typing import ClassVar, Literal, TypeAlias

from hloopt.analysis.elementwise import is_elementwise
from hloopt.analysis.layout import is_descending
from hloopt.cost_models.model import Comparison, CostModel
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.fusion import apply
from hloopt.fusion.code_room import decide_code
from hloopt.fusion.decision import Decision, forbid
from hloopt.fusion.history import root_opcode
from hloopt.fusion.horizontal.groups import Grouping, horizontal_groups
from hloopt.fusion.horizontal.join import join_members, replace_members
from hloopt.fusion.horizontal.member import (
    HorizontalMember,
    arrays_in,
    behind,
    member_of,
    reads_only,
)
from hloopt.fusion.limits import check_counts
from hloopt.fusion.recorder import FusionRecorder
from hloopt.fusion.strategies import fusible_computations
from hloopt.ir import Computation, Instruction, Module, edit, walk
from hloopt.rewrite.pass_ import Pass, PassLog
from hloopt.targets import find_target
from hloopt.types import ArrayShape

__all__ = ["HorizontalLoopFusion"]

Era: TypeAlias = Literal["2020", "2024"]
_NAME = re.compile(r"([A-Za-z_][\w.-]*)?")


@dataclass(frozen=True)
class HorizontalLoopFusion(Pass):
    """Join small loops that one instruction reads into one kernel.

    What an instruction reads, and nothing else but the computation's result, is independent of each other.
    Of these, elementwise ops and kLoop fusions of one element type are joined, alike ones first: where the
    shapes are equal into a kLoop fusion with all their results (``loop``), where they are not into a kInput
    fusion that computes one long array and slices it (``sliced``).  Only the entry computation is processed.

    With a ``cost_model`` all computations are, and a group is joined only where the model says that its kernel
    takes less time than its members, and where its code is bounded as in other fusions; else each half of it is
    tried.

    era                of XLA: 2020 (up to 2023) makes sliced fusions only, of row-major kernels with as many
                       instructions each; 2024 both, and takes fusions that concatenate, too
    elements           the most elements of a kernel's result that is sliced, or concatenated
    instructions       the most instructions in its body
    outputs            in a sliced fusion: results of all kernels (2024: fewer than), or kernels (2020)
    loop_elements      the most elements of a kernel's result in loop fusions
    loop_instructions  the most instructions in its body
    loop_outputs       results of all kernels are fewer than this
    loop_op_outputs    the same where the first kernel is a single op
    parameter_bytes    pointers to operands and results take fewer bytes than this
    cost_model         the model that has to price a group lower than its members; empty for none, as in XLA
    target             the device that it prices for; with a model, one without blocks and threads is left alone
    prefix             begins the names of fusions and computations (XLA's second run, over copies: copy_)
    """

    example: ClassVar[str] = """HloModule example

ENTRY main {
  x = f32[16] parameter(0)
  y = f32[4,8] parameter(1)
  a = f32[16] exponential(x)
  b = f32[4,8] negate(y)
  ROOT r = (f32[16], f32[4,8]) tuple(a, b)
}
"""

    era: Era = "2024"
    elements: int = 262144
    instructions: int = 30
    outputs: int = 32
    loop_elements: int = 67108864
    loop_instructions: int = 128
    loop_outputs: int = 32
    loop_op_outputs: int = 64
    parameter_bytes: int = 4000
    cost_model: str = ""
    target: str = "h200"
    prefix: str = ""

    def __post_init__(self) -> None:
        check_counts(self)
        if not _NAME.fullmatch(self.prefix):
            raise UsageError(f"{self.name}: prefix={self.prefix}: no name begins like that")

    def run(self, module: Module, log: PassLog) -> bool:
        """Each instruction of the entry, and each fusion made, as reader until nothing is joined."""
        recorder, target = FusionRecorder(self, module, log), find_target(self.target)
        if not self.cost_model:
            _Fuser(self, module.entry, recorder).run()
        elif target.has_threads:
            model = recorder.model(self.cost_model, target)
            for computation in fusible_computations(module):
                _Fuser(self, computation, recorder, model).run()
        plan = recorder.close()
        return bool(plan.steps)

    @property
    def is_early(self) -> bool:
        """Whether the rules are those up to 2023."""
        return self.era == "2020"

    def grouping(self, *, sliced: bool) -> Grouping:
        """The limits of one fusion."""
        early = self.is_early
        return Grouping(
            self.outputs if sliced else self.loop_outputs,
            self.outputs if sliced else self.loop_op_outputs,
            self.parameter_bytes,
            same_shape=not sliced,
            same_size=early,
            by_members=early,
        )


class _Fuser:
    """One computation while its kernels are joined."""

    def __init__(
        self,
        options: HorizontalLoopFusion,
        computation: Computation,
        recorder: FusionRecorder,
        model: CostModel | None = None,
    ) -> None:
        self.options = options
        self.computation = computation
        self.recorder = recorder
        self.model = model
        self.words: dict[Instruction, Decision] = {}

    def run(self) -> None:
        """From the last readers to the first; next what a new fusion reads, then its reader's operands again.

        XLA reaches the same fixpoint by running its pass until nothing changes.
        """
        stack = deque(walk.post_order(self.computation))
        root = self.computation.root
        while stack:
            consumer = stack.pop()
            if consumer.computation is None or len(set(consumer.operands)) < 2:
                continue
            made = self._fuse_at(consumer)
            if made and consumer is not root and not (stack and stack[0] is root):
                # What the result reads, too, may have shared a parameter with what was removed.
                stack.appendleft(root)
            if made:
                stack.extend((consumer, *made))
        for instruction, decision in self.words.items():
            if instruction.computation is not None:
                self.recorder.refused(instruction, None, decision)
        if self.recorder.plan.steps:
            apply.restore_order(self.computation)

    def _fuse_at(self, consumer: Instruction) -> list[Instruction]:
        """The fusions that one reader's operands become."""
        rounds = (True,) if self.options.is_early else (False, True)
        return [one for sliced in rounds for one in self._fuse_operands(consumer, sliced=sliced)]

    def _fuse_operands(self, consumer: Instruction, *, sliced: bool) -> list[Instruction]:
        made: list[Instruction] = []
        members = self._members(consumer, sliced=sliced)
        for run, end in horizontal_groups(
            members, self.options.grouping(sliced=sliced), self._decide
        ):
            if len(run) < 2:
                self.words[run[0].instruction] = end
                continue
            stop = self.recorder.allows()
            if not stop:
                self.words.update((member.instruction, stop) for member in run)
                continue
            made += self._join([member.instruction for member in run], consumer, sliced)
        return made

    def _join(
        self, members: list[Instruction], consumer: Instruction, sliced: bool
    ) -> list[Instruction]:
        """The fusion of some kernels; of parts of them, where the model refuses the whole."""
        fusion = join_members(members, consumer, sliced=sliced, prefix=self.options.prefix)
        comparison = self._price(members, fusion)
        refusal = None if comparison is None else _refusal(fusion, comparison)
        if refusal is not None:
            body = fusion.calls
            edit.remove(fusion)
            edit.remove_computation(body)
            self.words |= dict.fromkeys(members, refusal)
            half = len(members) // 2
            parts = [part for part in (members[:half], members[half:]) if len(part) > 1]
            return [made for part in parts for made in self._join(part, consumer, sliced)]
        first = members[0]
        names = (first.name, root_opcode(first))
        for at, member in enumerate(members[1:]):
            self.recorder.fused(
                member,
                names,
                fusion,
                duplicated=False,
                multi_output=True,
                comparison=comparison,
                count=int(at == 0),
            )
            names = (fusion.name, names[1])
        replace_members(members, fusion, consumer)
        return [fusion]

    def _price(self, members: Sequence[Instruction], fusion: Instruction) -> Comparison | None:
        """The kernels by themselves and as one; None without a model."""
        if self.model is None:
            return None
        launch = self.model.launch_ns
        apart = sum(self.model.run_time(member).exec_ns + launch for member in members)
        joined = self.model.run_time(fusion).exec_ns + launch
        self.model.forget(fusion)
        return Comparison(apart / 1000, joined / 1000)

    def _decide(self, first: HorizontalMember, other: HorizontalMember) -> Decision:
        return self.recorder.advice.decide(other.instruction, first.instruction)

    def _members(self, consumer: Instruction, *, sliced: bool) -> list[HorizontalMember]:
        through = not self.options.is_early
        sources = dict.fromkeys(
            behind(operand, through_bitcasts=through) for operand in consumer.operands
        )
        candidates = [found for source in sources if (found := self._candidate(source))]
        if len(candidates) < 2:
            return []
        # A price counts what is read in common; XLA, which has none here, leaves such kernels alone.
        by_rule = sliced and self.model is None
        shared = _shared_parameters(candidates) if by_rule else set()
        members = []
        for member in candidates:
            instruction = member.instruction
            if not reads_only(instruction, consumer, through_bitcasts=through):
                self.words[instruction] = forbid("horizontal-other-users")
                continue
            decision = self._unprofitable(member, sliced=sliced)
            if decision is None and not shared.isdisjoint(instruction.operands):
                decision = forbid("horizontal-shares-parameter")
            if decision is not None and not self._is_wanted(member, candidates):
                self.words[instruction] = decision
                continue
            members.append(member)
        return members

    def _is_wanted(self, member: HorizontalMember, candidates: list[HorizontalMember]) -> bool:
        """Whether the user wants a kernel joined with another one, whatever the limits of profit."""
        advice = self.recorder.advice
        if not advice:
            return False
        own = member.instruction
        others = [other.instruction for other in candidates if other is not member]
        pairs = [(own, other) for other in others] + [(other, own) for other in others]
        return any(advice.decide(*pair).wanted for pair in pairs)

    def _candidate(self, instruction: Instruction) -> HorizontalMember | None:
        """An elementwise op or a fusion of the right kind, its results of one type, in usual memory."""
        if instruction.has_control_edges:
            return None
        if instruction.opcode == "fusion":
            if not self._has_right_kind(instruction):
                return None
        elif not (is_elementwise(instruction) and instruction.operands):
            return None
        if "output_to_operand_aliasing" in instruction.attributes:
            return None
        member = member_of(instruction)
        if member is None or len({output.dtype for output in member.outputs}) > 1:
            return None
        shapes = (*member.outputs, *(operand.shape for operand in instruction.operands))
        return member if all(map(_is_in_usual_memory, shapes)) else None

    def _has_right_kind(self, fusion: Instruction) -> bool:
        kind = fusion.attributes["kind"]
        if kind == "kLoop":
            return True
        return not self.options.is_early and kind == "kInput" and _concatenates(fusion)

    def _unprofitable(self, member: HorizontalMember, *, sliced: bool) -> Decision | None:
        options, instruction = self.options, member.instruction
        elements = options.elements if sliced else options.loop_elements
        if instruction.opcode == "fusion" and _concatenates(instruction):
            elements = options.elements
        if member.outputs[0].elements > elements:
            return forbid("horizontal-size", limit=elements, actual=member.outputs[0].elements)
        most = options.instructions if sliced else options.loop_instructions
        if member.is_fusion and member.instructions > most:
            return forbid("horizontal-instructions", limit=most, actual=member.instructions)
        if options.is_early and not all(map(is_descending, arrays_in(instruction))):
            return forbid("horizontal-layout")
        return None


def _refusal(fusion: Instruction, comparison: Comparison) -> Decision | None:
    """Why a priced group does not become this kernel: it is no quicker, or has too much code."""
    if comparison.gain_us <= 0:
        return forbid("slower", comparison=comparison)
    decision = decide_code(fusion)
    return None if decision else decision


def _concatenates(fusion: Instruction) -> bool:
    body = fusion.calls
    return fusion.attributes["kind"] == "kInput" and body.root.opcode == "concatenate"


def _shared_parameters(candidates: list[HorizontalMember]) -> set[Instruction]:
    """Parameters of the computation that several candidates read."""
    seen: set[Instruction] = set()
    shared: set[Instruction] = set()
    for member in candidates:
        for operand in dict.fromkeys(member.instruction.operands):
            if operand.opcode == "parameter":
                (shared if operand in seen else seen).add(operand)
    return shared


def _is_in_usual_memory(shape: object) -> bool:
    """Whether an array has neither tiles nor a non-default memory space; tuples need not be checked."""
    if not isinstance(shape, ArrayShape) or shape.layout is None:
        return True
    return shape.layout.memory_space == 0 and "T(" not in shape.layout.suffix
