"""Independent reductions of the same form as one kernel.

What the loss, the norms and the statistics of a step come down to is often several reductions whose results
one instruction reads.
"""

from __future__ import annotations

from typing import ClassVar

from hloopt.analysis.hero import find_hero, is_real_reduction_hero, roots
from hloopt.cost_models.model import Comparison, CostModel
from hloopt.dataclass import dataclass
from hloopt.fusion import apply
from hloopt.fusion.code_room import decide_code
from hloopt.fusion.decision import Decision, forbid
from hloopt.fusion.history import root_opcode
from hloopt.fusion.horizontal.member import (
    behind,
    is_laid_out_like,
    member_of,
    reads_only,
)
from hloopt.fusion.kinds import is_input_reduction
from hloopt.fusion.limits import Footprint, KernelLimits, decide_budget, footprint_of
from hloopt.fusion.merge import new_parameter
from hloopt.fusion.recorder import FusionRecorder
from hloopt.fusion.strategies import fusible_computations
from hloopt.ir import Computation, Instruction, Module, build, edit, walk
from hloopt.rewrite.pass_ import Pass, PassLog
from hloopt.targets import find_target
from hloopt.types import ArrayShape

__all__ = ["HorizontalInputFusion"]


@dataclass(frozen=True)
class HorizontalInputFusion(KernelLimits, Pass):
    """Join reductions that one instruction reads into one kernel with all their results.

    What an instruction reads, and nothing else but the computation's result, is independent of each other.
    Of these, reductions with a tiled kernel, ops or fusions, are joined where they reduce arrays of the same
    shape and layout over the same dimensions, as far as a kernel has room; those with the smallest arrays and
    the fewest instructions first.

    With a ``cost_model`` two are joined only where the model says that their kernel takes less time than both,
    and where its code is bounded as in other fusions.

    cost_model         the model that has to price the kernel lower than both; empty for none, as in XLA
    target             the device that it prices for; with a model, one without blocks and threads is left alone
    """

    example: ClassVar[str] = """HloModule example

max {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] maximum(a, b)
}

ENTRY main {
  x = f32[4,64] parameter(0)
  y = f32[4,64] parameter(1)
  c = f32[] constant(0)
  a = f32[4] reduce(x, c), dimensions={1}, to_apply=max
  b = f32[4] reduce(y, c), dimensions={1}, to_apply=max
  ROOT r = (f32[4], f32[4]) tuple(a, b)
}
"""

    cost_model: str = ""
    target: str = "h200"

    def run(self, module: Module, log: PassLog) -> bool:
        """Each instruction once as reader."""
        recorder = FusionRecorder(self, module, log)
        limits, model, target = KernelLimits.of(self), None, find_target(self.target)
        if self.cost_model:
            if not target.has_threads:
                return bool(recorder.close().steps)
            model = recorder.model(self.cost_model, target)
        for computation in fusible_computations(module):
            before = len(recorder.plan.steps)
            fuser = _Fuser(limits, recorder, model)
            for consumer in walk.post_order(computation):
                fuser.fuse_operands(consumer)
            if len(recorder.plan.steps) > before:
                apply.restore_order(computation)
        return bool(recorder.close().steps)


@dataclass
class _Kernel:
    """A reduction, or several joined ones, and what its blocks hold.

    source, result, dimensions  of the hero: the array it reduces, what it makes of it, over which dimensions
    """

    instruction: Instruction
    source: ArrayShape
    result: ArrayShape
    dimensions: tuple[int, ...]
    instructions: int
    footprint: Footprint

    @property
    def order(self) -> tuple[int, tuple[int, ...], int]:
        """Kernels over the same array stand together, small ones first."""
        return self.source.rank, self.source.dims, self.instructions

    def reduces_like(self, other: _Kernel) -> bool:
        """Whether two read arrays of one form and reduce the same dimensions; element types may differ."""
        return (
            self.dimensions == other.dimensions
            and is_laid_out_like(self.source, other.source)
            and is_laid_out_like(self.result, other.result)
        )


class _Fuser:
    """One computation while its reductions are joined."""

    def __init__(
        self, limits: KernelLimits, recorder: FusionRecorder, model: CostModel | None
    ) -> None:
        self.limits = limits
        self.recorder = recorder
        self.model = model
        self.comparison: Comparison | None = None
        self.known: dict[Instruction, _Kernel | None] = {}

    def fuse_operands(self, consumer: Instruction) -> None:
        sources = dict.fromkeys(
            behind(operand, through_bitcasts=False) for operand in consumer.operands
        )
        if len(sources) < 2:
            return
        found = [kernel for source in sources if (kernel := self._kernel(source))]
        if len(found) < 2:
            return
        kernels = []
        for kernel in found:
            if reads_only(kernel.instruction, consumer, through_bitcasts=False):
                kernels.append(kernel)
            else:
                refusal = forbid("horizontal-other-users")
                self.recorder.refused(kernel.instruction, None, refusal)
        kernels.sort(key=lambda kernel: kernel.order)
        for at, kernel in enumerate(kernels):
            if at == 0:
                anchor = kernel
                continue
            decision = self._decide(anchor, kernel)
            if decision:
                self._join(anchor, kernel)
            else:
                self.recorder.refused(kernel.instruction, anchor.instruction, decision)
                anchor = kernel

    def _join(self, anchor: _Kernel, kernel: _Kernel) -> None:
        first, second = anchor.instruction, kernel.instruction
        before = (first.name, root_opcode(first))
        fusion = apply.merge_siblings(first, second, "kInput", keep_order=False)
        self.recorder.fused(
            second,
            before,
            fusion,
            duplicated=False,
            multi_output=True,
            comparison=self.comparison,
        )
        anchor.instruction = fusion
        anchor.footprint += kernel.footprint

    def _decide(self, anchor: _Kernel, kernel: _Kernel) -> Decision:
        """Whether two are joined."""
        first, second = anchor.instruction, kernel.instruction
        advised = self.recorder.advice.decide(second, first)
        if not advised:
            return advised
        if not anchor.reduces_like(kernel):
            return forbid("different-reductions")
        both = anchor.footprint + kernel.footprint
        decision = decide_budget(both, second, first, self.limits) and self.recorder.allows()
        if not decision or self.model is None:
            return decision
        weighed = self._weigh(self.model, first, second)
        return advised if advised.wanted else weighed

    def _weigh(self, model: CostModel, first: Instruction, second: Instruction) -> Decision:
        """Whether one kernel of both takes less time, and its code is bounded."""
        joined = _joined(first, second)
        decision = decide_code(joined)
        apart = sum(model.run_time(one).exec_ns + model.launch_ns for one in (first, second))
        together = model.run_time(joined).exec_ns + model.launch_ns
        model.forget(joined)
        edit.dissolve(joined.calls)
        self.comparison = Comparison(apart / 1000, together / 1000)
        if decision and self.comparison.gain_us <= 0:
            return forbid("slower", comparison=self.comparison)
        return decision

    def _kernel(self, instruction: Instruction) -> _Kernel | None:
        if instruction not in self.known:
            self.known[instruction] = self._look(instruction)
        return self.known[instruction]

    def _look(self, instruction: Instruction) -> _Kernel | None:
        """What decides about a reduction; None for other instructions."""
        if instruction.opcode not in ("fusion", "reduce") or not is_input_reduction(instruction):
            return None
        if instruction.has_control_edges:
            return None
        member = member_of(instruction)
        if member is None:
            return None
        body: Computation | None = instruction.attributes.get("calls")
        hero = instruction if body is None else _hero(body)
        return _Kernel(
            instruction,
            hero.operands[0].array,
            hero.array,
            tuple(hero.dimensions),
            member.instructions,
            footprint_of(instruction, self.limits),
        )


def _joined(first: Instruction, second: Instruction) -> Instruction:
    """The kernel that two would be, in a module by itself."""
    trial, entry = Module("trial"), Computation("main")
    parameters = {
        operand: edit.append(entry, new_parameter(number, operand))
        for number, operand in enumerate(dict.fromkeys((*first.operands, *second.operands)))
    }
    copies = []
    for kernel in (first, second):
        attributes = dict(kernel.attributes)
        if kernel.opcode == "fusion":
            attributes["calls"] = edit.add_computation(trial, build.clone_computation(kernel.calls))
        operands = tuple(parameters[operand] for operand in kernel.operands)
        copy = Instruction(kernel.name, kernel.opcode, kernel.shape, operands, attributes)
        copies.append(edit.append(entry, copy))
    entry.root = build.make(entry, "tuple", tuple(copies))
    trial.entry = edit.add_computation(trial, entry)
    return apply.merge_siblings(copies[0], copies[1], "kInput", keep_order=False)


def _hero(body: Computation) -> Instruction:
    pairs = ((root, find_hero(root)) for root in roots(body))
    return next(hero for root, hero in pairs if is_real_reduction_hero(root, hero))
