"""A loop as one kernel: launched once, whatever the trip count.

    w = while(tuple(0, x)), condition=c, body=b
        =>
    loop_fusion = fusion(x), kind=kCustom, calls={ ..., w = while(...), condition=c, body=b, ... }

``analysis/parallel_loop`` decides what runs within a kernel, and how; its ``fused.py`` has the form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

from hloopt.analysis.backend_config import written_name
from hloopt.analysis.parallel_loop import fused_loop
from hloopt.cost_models.model import CostModel
from hloopt.cost_models.registry import DEFAULT, model_for
from hloopt.dataclass import dataclass
from hloopt.fusion.decision import Decision, forbid
from hloopt.fusion.history import FusionPlan, LoopFacts, MappingFacts, describe_loop
from hloopt.fusion.limits import check_counts
from hloopt.fusion.loop_host import KERNEL, judge_host
from hloopt.fusion.loop_opened import CALLED, Opened, opened
from hloopt.fusion.loop_profit import LoopProfit, loop_profit
from hloopt.fusion.loop_verdict import LOOP_KERNELS, LoopVerdict, iterations_text, judge
from hloopt.fusion.loop_wrap import is_read, wrap_loop
from hloopt.fusion.recorder import FusionPass, FusionRecorder
from hloopt.fusion.strategies import fusible_computations
from hloopt.ir import Computation, Instruction, Module, edit, walk
from hloopt.rewrite.naming import ModuleNames
from hloopt.rewrite.pass_ import PassLog
from hloopt.targets import Target, find_target
from hloopt.targets.target import HOST

__all__ = ["LoopFusion"]


@dataclass(frozen=True)
class LoopFusion(FusionPass):
    """Make one kernel of each loop whose work items are independent, from the first iteration to the last.

    A work item is one index of the dimensions along which nothing in the loop reads another index; a thread
    runs it, or a block.  What computes the initial state element by element joins the kernel.  Of nested
    loops the outermost that fits is taken.  A refusal names the instruction that mixes work items, or the
    limit.

    cost_model    the model that predicts kernel times
    target        the device; one without blocks and threads is left alone, but for ``host``, where the cost
                  model is ``host`` (``loop_host.py``)
    always        whether what fits is fused whatever the cost model says
    max_prologue  ops of the initial state that join a kernel; the others are read from memory.  Each generator
                  (threefry) of a first state has about 130, so a rollout begins with some hundred
    priced        whether to price the host's plan of each loop, too, where its launches alone take longer than
                  the kernel: for its figures, the answer is the same; it costs what fusing the bodies costs
    fuel          the most loops to fuse in a module, negative for no limit
    """

    example: ClassVar[str] = """HloModule example

body {
  state = (s32[], f32[1024]) parameter(0)
  trip = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(trip, one)
  x = f32[1024] get-tuple-element(state), index=1
  y = f32[1024] cosine(x)
  ROOT result = (s32[], f32[1024]) tuple(next, y)
}

condition {
  state = (s32[], f32[1024]) parameter(0)
  trip = s32[] get-tuple-element(state), index=0
  most = s32[] constant(100)
  ROOT goes_on = pred[] compare(trip, most), direction=LT
}

ENTRY main {
  x = f32[1024] parameter(0)
  zero = s32[] constant(0)
  init = (s32[], f32[1024]) tuple(zero, x)
  loop = (s32[], f32[1024]) while(init), condition=condition, body=body
  ROOT r = f32[1024] get-tuple-element(loop), index=1
}
"""

    cost_model: str = DEFAULT
    target: str = "h200"
    always: bool = False
    max_prologue: int = 1024
    priced: bool = False
    fuel: int = -1

    def __post_init__(self) -> None:
        check_counts(self)

    def fuse(
        self,
        module: Module,
        log: PassLog | None = None,
        device: Target | None = None,
        *,
        last: bool = False,
    ) -> FusionPlan:
        """Fuse in place; return what was fused, and what was refused and why.

        ``device`` takes the place of ``target``.  With ``last`` nothing is fused afterwards: what stays a loop
        is priced as it stands, for the host.  Raises ``UsageError`` for an unknown model or target.
        """
        target = device or (HOST if self.target == HOST.name else find_target(self.target))
        recorder = FusionRecorder(self, module, log, self.fuel)
        recorder.plan.target = target.name
        if not (target.has_threads or target is HOST):
            recorder.log.note(f"{target.name} has no blocks and threads: loops stay as they are")
            return recorder.close()
        note = log.note if log is not None and target is not HOST else None
        model = model_for(self.cost_model, target, note)
        recorder.plan.cost_model = model.name
        run = _Run(self, model, recorder, ModuleNames(module), last)
        for computation in _outermost(module, run.is_fused):
            run.visit(computation)
        return recorder.close()


def _outermost(module: Module, is_fused: dict[Computation, None]) -> Iterator[Computation]:
    """Computations run instruction by instruction, callers first, without those of fused loops."""
    for computation in fusible_computations(module):
        if computation not in is_fused:
            yield computation


@dataclass
class _Run:
    """One run over a module; ``is_fused`` are the computations that only fused loops reach."""

    options: LoopFusion
    model: CostModel
    recorder: FusionRecorder
    names: ModuleNames
    last: bool

    def __post_init__(self) -> None:
        self.is_fused: dict[Computation, None] = {}

    def visit(self, computation: Computation) -> None:
        """Decide about the loops of a computation."""
        for loop in [entry for entry in computation if entry.opcode == "while"]:
            inside = opened(loop)
            if self.model.target is HOST:
                called = {key: loop.attributes[key] for key in CALLED} if self.last else {}
                fused = {**called, **inside.before}.values()
                verdict, profit = judge_host(loop, self.options.always, fused), None
            else:
                verdict = judge(loop, self.model.target)
                profit = loop_profit(loop, verdict.mappings, self.model, priced=self.options.priced)
            decision = self.decide(inside, verdict, profit)
            names = LOOP_KERNELS if self.model.target is not HOST else {"thread": KERNEL}
            facts = _facts(loop, verdict, profit, names)
            if decision:
                self.recorder.plan.loops.append(self.fuse(inside, verdict, decision, facts, profit))
            else:
                inside.close()
                self.recorder.plan.loops.append(facts)
                self.recorder.refused(loop, None, decision)

    def decide(self, inside: Opened, verdict: LoopVerdict, profit: LoopProfit | None) -> Decision:
        """The verdict on one loop: does it fit, what does the user want, is it profitable."""
        slower = verdict.decision.code == "loop-slower"  # a loop that fits, on a host
        if not verdict.decision and not slower:
            return verdict.decision
        if not is_read(verdict.parallel):
            return forbid("loop-no-results")
        if not (spent := self.recorder.allows()):
            return spent
        with inside.as_given():
            advised = self.recorder.advice.decide(inside.loop, inside.loop)
        if advised.wanted or not advised:
            return advised
        if profit is None:
            return verdict.decision
        if not (profit.gains or self.options.always):
            return forbid("loop-slower", words=profit.words, comparison=profit.comparison)
        return replace(verdict.decision, comparison=profit.comparison)

    def fuse(
        self,
        given: Opened,
        verdict: LoopVerdict,
        decision: Decision,
        facts: LoopFacts,
        profit: LoopProfit | None,
    ) -> LoopFacts:
        """Make the kernel."""
        loop = given.loop
        with given.as_given():
            text = describe_loop(loop)
            only = self.recorder.advice.prologue(loop)
        self.is_fused |= dict.fromkeys(given.keep())
        mapping = verdict.fitting[0] if profit is None else profit.mapping
        name = self.names.fresh("loop_fusion")
        names = set(only) if only is not None else None
        fusion, sunk = wrap_loop(mapping.parallel, name, self.options.max_prologue, names)
        kernel = KERNEL if self.model.target is HOST else LOOP_KERNELS[mapping.kind]
        edit.set_attribute(fusion, "backend_config", written_name(fusion, kernel))
        self.recorder.looped(facts, fusion, sunk, decision.comparison)
        inner = fused_loop(fusion)
        assert inner is not None, "the form that kernels take"
        inside = tuple(_only_from(inner.loop))
        self.is_fused |= dict.fromkeys(inside)
        return replace(
            facts,
            fusion=fusion.name,
            kernel=kernel,
            inside=tuple(computation.name for computation in inside),
            prologue=tuple(op.name for op in sunk),
            text=text,
        )


def _facts(
    loop: Instruction, verdict: LoopVerdict, profit: LoopProfit | None, names: Mapping[str, str]
) -> LoopFacts:
    home = loop.computation
    times = {mapping.kind: time for mapping, time in profit.others} if profit is not None else {}
    return LoopFacts(
        home.name if home is not None else "",
        loop.name,
        tuple(
            MappingFacts(
                names[mapping.kind],
                mapping.parallel.work_items if mapping.parallel.obstacle is None else 0,
                mapping.problem,
                mapping.registers,
                mapping.shared_bytes,
                mapping.threads,
                times[mapping.kind].ns / 1000 if mapping.kind in times else None,
                times[mapping.kind].parts if mapping.kind in times else "",
            )
            for mapping in verdict.mappings
        ),
        iterations_text(verdict.parallel),
        profit=profit.words if profit is not None else "",
    )


def _only_from(loop: Instruction) -> Iterator[Computation]:
    """The computations that only a loop runs."""
    inside: dict[Computation, None] = {}
    pending = list(walk.called_computations(loop))
    while pending:
        called = pending.pop()
        if called in inside or any(
            caller is not loop and caller.computation not in inside for caller in called.callers
        ):
            continue
        inside[called] = None
        for entry in called:
            pending.extend(walk.called_computations(entry))
    return iter(inside)
