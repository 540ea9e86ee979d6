"""Greedy fusion of single producers into their consumers, last consumers first.

The strategy of XLA's InstructionFusion with the rules of XLA:GPU.  It fuses loops around each consumer
until no producer is left that may join; merging fusions with each other, several outputs and siblings
are the work of other strategies.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from hloopt.analysis.reachability import Reachability
from hloopt.fusion import apply
from hloopt.fusion.decision import ALLOWED, Decision, forbid
from hloopt.fusion.limits import Limits
from hloopt.fusion.plan import FusionPlan, FusionStep, Refusal
from hloopt.fusion.rules import decide_consumer, decide_pair, decide_producer
from hloopt.fusion.state import ConsumerState
from hloopt.fusion.unfusible import globally_unfusible
from hloopt.ir import Computation, Instruction, Module, walk
from hloopt.rewrite.pass_ import Pass, PassLog

__all__ = ["InstructionFusion", "fusible_computations"]

_RUN_ONE_BY_ONE = ("while", "conditional", "call")
_PLUMBING = frozenset({"parameter", "tuple", "get-tuple-element"})
"""Never fused, and not worth a word each time."""
_NEVER = frozenset({
    "producer-not-fusible", "producer-not-loop-fusible", "producer-is-root", "producer-is-fusion",
    "consumer-not-fusible", "consumer-not-loop-or-input-fusible", "constant-alone",
})  # fmt: skip
"""Reasons that tell of an instruction rather than of two that nearly went together."""


@dataclass(frozen=True)
class InstructionFusion(Limits, Pass):
    """Fuse cheap producers into their consumers, into one kernel each.

    may_duplicate   whether a cheap producer may be computed in several kernels
    fuel            the most fusions to make in a module, negative for no limit
    """

    name: ClassVar[str] = "instruction-fusion"
    example: ClassVar[str] = """HloModule example

ENTRY main {
  x = f32[1024] parameter(0)
  y = f32[1024] parameter(1)
  a = f32[1024] multiply(x, y)
  b = f32[1024] add(a, x)
  ROOT r = f32[1024] negate(b)
}
"""

    may_duplicate: bool = True
    fuel: int = -1

    def run(self, module: Module, log: PassLog) -> bool:
        plan = self.fuse(module, log)
        log.records.append(plan)
        return bool(plan.steps)

    def fuse(self, module: Module, log: PassLog | None = None) -> FusionPlan:
        """Fuse in place; what was done and what was refused and why."""
        plan, log = FusionPlan(self.name), log or PassLog()
        for computation in fusible_computations(module):
            if log.allows():
                _Fuser(self, computation, plan, log).run()
        if plan.steps:
            module.attributes.pop("is_scheduled", None)
        return plan

    def limits(self) -> Limits:
        """The limits alone."""
        return Limits(**{entry.name: getattr(self, entry.name) for entry in fields(Limits)})


def fusible_computations(module: Module) -> list[Computation]:
    """Computations whose instructions are run one by one, callers first.

    The entry and what is called by while, conditional and call only: never the body of a fusion, a
    region applied to elements, or what an async-start wraps.
    """
    return [
        computation
        for computation in walk.top_level_computations(module)
        if all(caller.opcode in _RUN_ONE_BY_ONE for caller in computation.callers)
    ]


class _Fuser:
    """One computation while it is fused."""

    def __init__(
        self,
        options: InstructionFusion,
        computation: Computation,
        plan: FusionPlan,
        log: PassLog,
    ) -> None:
        self.options = options
        self.log = log
        self.limits = options.limits()
        self.computation = computation
        self.plan = plan
        self.order = walk.post_order(computation)
        self.rank = {instruction: at for at, instruction in enumerate(self.order)}
        self.states: dict[Instruction, ConsumerState] = {}
        self.shut: dict[Instruction, Decision] = {}
        self.refused: dict[tuple[str, str], tuple[Refusal, Instruction]] = {}
        self.bodies: dict[Computation, None] = {}
        self.kept: set[Instruction] = set()

    def run(self) -> None:
        if self.options.may_duplicate:
            self.kept = globally_unfusible(
                self.order, Reachability(self.computation), self._may_join_unfused
            )
            self.states.clear()
        queue = list(self.order)
        while queue:
            consumer = queue.pop()
            if consumer.computation is not self.computation:
                continue
            fusion = self._fuse_one(consumer)
            if fusion is not None:
                queue.append(fusion)
            else:
                self.states.pop(consumer, None)
        apply.number_parameter_names(self.bodies)
        self.plan.refusals.extend(refusal for refusal, _ in self.refused.values())
        self._tell_misses()

    def _fuse_one(self, consumer: Instruction) -> Instruction | None:
        """Fuse the first operand that may join; the fusion, or None where none may."""
        if consumer.opcode in _PLUMBING:
            return None
        candidates = []
        for operand in dict.fromkeys(consumer.operands):
            decision = self._decide_producer(operand)
            if decision:
                candidates.append(operand)
            elif operand.opcode not in _PLUMBING:
                self._note(operand, consumer, decision)
        verdict = decide_consumer(self._state(consumer)) if candidates else ALLOWED
        candidates.sort(key=self.rank.__getitem__, reverse=True)
        for producer in candidates:
            decision = verdict and self._decide(producer, consumer)
            if decision:
                return self._fuse(producer, consumer)
            self._note(producer, consumer, decision)
        return None

    def _decide_producer(self, producer: Instruction) -> Decision:
        known = self.shut.get(producer)
        if known is None:
            known = self.shut[producer] = decide_producer(producer)
        return known

    def _state(self, consumer: Instruction) -> ConsumerState:
        state = self.states.get(consumer)
        if state is None:
            state = self.states[consumer] = ConsumerState(consumer)
        return state

    def _may_join_unfused(self, producer: Instruction, consumer: Instruction) -> bool:
        if not self._decide_producer(producer):
            return False
        state = self._state(consumer)
        return bool(
            decide_consumer(state) and decide_pair(producer, state, self.limits, may_duplicate=True)
        )

    def _decide(self, producer: Instruction, consumer: Instruction) -> Decision:
        if producer in self.kept:
            return forbid("would-read-more")
        decision = decide_pair(
            producer,
            self._state(consumer),
            self.limits,
            may_duplicate=self.options.may_duplicate,
        )
        if decision and 0 <= self.options.fuel <= len(self.plan.steps):
            return forbid("out-of-fuel", limit=self.options.fuel)
        if decision and not self.log.allows():
            return forbid("out-of-fuel", limit=len(self.plan.steps))
        return decision

    def _note(self, producer: Instruction, consumer: Instruction, decision: Decision) -> None:
        """Keep the last word on a pair."""
        state = self.states.get(consumer)
        root = consumer if state is None or state.body is None else state.body.root
        refusal = Refusal(
            self.computation.name,
            producer.name,
            producer.opcode,
            consumer.name,
            root.opcode,
            decision,
        )
        self.refused[producer.name, root.name] = refusal, producer

    def _tell_misses(self) -> None:
        """The last word on each pair that is left, unless no fusion at all can have one of the two in it."""
        for refusal, producer in self.refused.values():
            decision = refusal.decision
            if producer.computation is self.computation and decision.code not in _NEVER:
                opcodes = f"{refusal.producer_opcode} into {refusal.consumer_opcode}"
                reason = f"into {refusal.consumer}: {decision.reason}"
                self.log.miss(f"fuse {opcodes}", producer, reason)

    def _fuse(self, producer: Instruction, consumer: Instruction) -> Instruction:
        state = self._state(consumer)
        hero = consumer if state.body is None else state.body.root
        self.log.hit(
            f"fuse {producer.opcode} into {hero.opcode}", producer, f"into {consumer.name}"
        )
        fusion = consumer
        consumer_name = consumer.name
        if state.body is None:
            fusion = self._wrap(producer, consumer, state)
        body: Computation = fusion.attributes["calls"]
        self.bodies[body] = None
        parameter = body.parameters[fusion.operands.index(producer)]
        fused = apply.fuse_producer(fusion, producer, state.first)
        state.joined(producer, parameter, fused)
        fusion.attributes["kind"] = "kInput" if state.is_input_fusible else "kLoop"
        self.refused.pop((producer.name, body.root.name), None)
        self.plan.steps.append(
            FusionStep(
                self.computation.name,
                producer.name,
                producer.opcode,
                consumer_name,
                body.root.opcode,
                fusion.name,
                fusion.attributes["kind"],
                not apply.remove_unused(producer),
            )
        )
        return fusion

    def _wrap(
        self, producer: Instruction, consumer: Instruction, state: ConsumerState
    ) -> Instruction:
        name = f"{producer.opcode}_{consumer.opcode}_fusion"
        fusion = apply.wrap(consumer, "kLoop", name)
        self.rank[fusion] = self.rank.pop(consumer)
        del self.states[consumer]
        self.states[fusion] = state
        state.became(fusion)
        return fusion
