"""The recorder of a running strategy: its history, the user's advice, and the fuel."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from hloopt.analysis.hero import results_of
from hloopt.cost_models.model import Comparison, CostModel
from hloopt.cost_models.registry import model_for
from hloopt.fusion.advice import Advice
from hloopt.fusion.decision import ALLOWED, Decision, forbid
from hloopt.fusion.history import (
    FusionPlan,
    FusionStep,
    LoopFacts,
    PairSide,
    Refusal,
    root_opcode,
)
from hloopt.ir import Computation, Instruction, Module
from hloopt.rewrite.pass_ import Pass, PassLog, Remark, RemarkKind, remark_about
from hloopt.targets import Target

__all__ = ["FusionPass", "FusionRecorder"]

_ALONE: Final = frozenset({
    "producer-not-fusible", "producer-not-loop-fusible", "producer-is-root", "producer-is-fusion",
    "consumer-not-fusible", "consumer-not-loop-or-input-fusible", "constant-alone", "no-users",
    "only-bitcast-users", "consumer-is-bitcast", "consumer-is-tuple", "consumer-is-custom",
    "producer-not-loop-fusion", "not-into-all", "horizontal-alone", "loop-no-results",
    "siblings-connected",
})  # fmt: skip
"""Reasons about one instruction, or about two that no strategy could fuse, rather than a near miss."""


class FusionPass(Pass):
    """A strategy whose plan is also available from Python."""

    def run(self, module: Module, log: PassLog) -> bool:
        return bool(self.fuse(module, log).steps)

    @abstractmethod
    def fuse(self, module: Module, log: PassLog | None = None) -> FusionPlan:
        """Fuse in place; return what was fused, and what was refused and why."""


class FusionRecorder:
    """Writes the plan of one strategy over one module into the module's history."""

    def __init__(
        self, strategy: Pass, module: Module, log: PassLog | None = None, fuel: int = -1
    ) -> None:
        self.plan = FusionPlan(strategy)
        self.log = log or PassLog()
        self.fuel = fuel
        advice = self.log.advice
        self.advice = advice if isinstance(advice, Advice) else Advice()
        self.advice.begin()
        self.history = self.advice.histories.of(module)
        self.history.settle()
        self.history.plans.append(self.plan)
        self._refused: dict[tuple[str, str], dict[str, tuple[Refusal, Instruction]]] = {}

    def model(self, name: str, target: Target) -> CostModel:
        """The strategy's cost model for a device.  Raises ``UsageError`` for unknown names."""
        model = model_for(name, target, self.log.note)
        self.plan.cost_model, self.plan.target = model.name, target.name
        return model

    def allows(self) -> Decision:
        """Whether one more fusion may be made."""
        if 0 <= self.fuel <= len(self.plan.steps):
            return forbid("out-of-fuel", limit=self.fuel)
        if not self.log.allows():
            return forbid("out-of-fuel", limit=len(self.plan.steps))
        return ALLOWED

    def allowed(self, most: int) -> int:
        """How many of so many more fusions may be made."""
        left = most if self.fuel < 0 else min(most, self.fuel - len(self.plan.steps))
        return max(0, left if self.log.fuel is None else min(left, self.log.fuel))

    def fused(
        self,
        producer: Instruction,
        consumer: tuple[str, str],
        fusion: Instruction,
        *,
        duplicated: bool,
        multi_output: bool = False,
        comparison: Comparison | None = None,
        count: int = 1,
    ) -> None:
        """A producer has joined; ``consumer`` are the name and the root's opcode it had before.

        ``count`` is 0 for one that joined together with the one recorded before.  ``producer`` may be out of
        the module already, but still has its operands' names and its computation is the fusion's.
        """
        home, opcode = fusion.home.name, root_opcode(producer)
        rule = f"fuse {opcode} into {consumer[1]}"
        self.log.hit(rule, count=count)
        if "passed" in self.log.kinds:
            part = self.history.part(home, consumer[0])
            into = consumer[0] if part.fusion is None else next(iter(part.fusion.outputs))
            self.log.remarks.append(self._remark("passed", rule, producer, "", home, into))
        for name in (consumer[0], fusion.name):
            self._refused.get((home, name), {}).pop(producer.name, None)
        self._join(
            producer.name,
            opcode,
            consumer,
            fusion,
            duplicated=duplicated,
            multi_output=multi_output,
            comparison=comparison,
        )

    def _join(
        self,
        producer: str,
        opcode: str,
        consumer: tuple[str, str],
        fusion: Instruction,
        *,
        duplicated: bool,
        multi_output: bool = False,
        comparison: Comparison | None = None,
    ) -> None:
        first, second = self.history.join(producer, consumer[0], fusion, multi_output=multi_output)
        self.plan.steps.append(
            FusionStep(
                fusion.home.name,
                first,
                opcode,
                second,
                consumer[1],
                fusion=fusion.name,
                kind=fusion.attributes["kind"],
                duplicated=duplicated,
                multi_output=multi_output,
                comparison=comparison,
            )
        )

    def looped(
        self,
        facts: LoopFacts,
        fusion: Instruction,
        sunk: Sequence[Instruction],
        comparison: Comparison | None = None,
    ) -> None:
        """A ``while`` has become a kernel, which computes ``sunk`` at first."""
        home = fusion.home.name
        self.log.hit(
            "run a while as one kernel", fusion, f"{facts.loop} is {fusion.name}", home=home
        )
        self._refused.get((home, ""), {}).pop(facts.loop, None)
        loop = facts.loop, "while"
        self._join(*loop, loop, fusion, duplicated=False, comparison=comparison)
        for op in reversed(sunk):
            self._join(
                op.name,
                op.opcode,
                (fusion.name, "while"),
                fusion,
                duplicated=op.computation is not None,
                comparison=comparison,
            )
        self.history.fusions[home, fusion.name].is_fused = False

    def refused(
        self, producer: Instruction, consumer: Instruction | None, decision: Decision
    ) -> None:
        """Keep the last verdict on a pair, or on a producer as such."""
        home = producer.home.name
        name, opcode = ("", "") if consumer is None else (consumer.name, root_opcode(consumer))
        first = PairSide(producer.name)
        refusal = Refusal(home, first, root_opcode(producer), PairSide(name), opcode, decision)
        self._refused.setdefault((home, name), {})[producer.name] = refusal, producer

    def renamed(self, computation: Computation, consumer: str, fusion: str) -> None:
        """Refusals of a consumer continue under the fusion's name."""
        about = self._refused.pop((computation.name, consumer), {})
        new = self._refused.setdefault((computation.name, fusion), {})
        for name, (refusal, producer) in about.items():
            new[name] = replace(refusal, consumers=PairSide(fusion)), producer

    def _last_words(self) -> Iterator[tuple[Refusal, Instruction]]:
        for about in self._refused.values():
            yield from about.values()

    def refusals(self) -> Iterator[Refusal]:
        """The last verdicts until now."""
        return (refusal for refusal, _ in self._last_words())

    def close(self) -> FusionPlan:
        """The plan, with the last verdicts on all pairs that are left; near misses are logged."""
        self.plan.refusals += map(self._with_parts, self.refusals())
        self.history.settle()
        logged: set[frozenset[str]] = set()
        for refusal, producer in sorted(self._last_words(), key=_lost_us, reverse=True):
            decision, home = refusal.decision, refusal.computation
            pair = frozenset((home, refusal.producer, refusal.consumer))
            if (
                producer.computation is not None
                and decision.code not in _ALONE
                and pair not in logged
            ):
                logged.add(pair)
                opcodes = f"{refusal.producer_opcode} into {refusal.consumer_opcode or 'its users'}"
                into = self._name_of(producer.home, refusal.consumer)
                made = self._remark(
                    "missed", f"fuse {opcodes}", producer, decision.reason, home, into
                )
                self.log.add_remark(replace(made, pair=(refusal.producer, refusal.consumer)))
        self._report_rules()
        self.log.records.append(self.plan)
        return self.plan

    def _remark(
        self, kind: RemarkKind, rule: str, producer: Instruction, reason: str, home: str, into: str
    ) -> Remark:
        """A remark on an op, or on a fusion by what it computes last of the text."""
        shown, name = self._shown(producer, home)
        made = remark_about(kind, rule, shown, reason)
        return replace(
            made, instruction=name, opcode=root_opcode(producer), computation=home, into=into
        )

    def _name_of(self, home: Computation, name: str) -> str:
        found = home.by_name.get(name)
        return name if found is None else self._shown(found, home.name)[1]

    def _shown(self, instruction: Instruction, home: str) -> tuple[Instruction, str]:
        """What represents an op or fusion, of the text if possible, and its name before anything was fused."""
        if self.history.fused(instruction, home) is None:
            return instruction, instruction.name
        inside = [*results_of(instruction), *reversed(list(instruction.calls))]
        shown = next((one for one in inside if one.offset >= 0), inside[0])
        return shown, self.history.original(shown, instruction, home)

    def _with_parts(self, refusal: Refusal) -> Refusal:
        """What the names of a refusal mean at the end of the strategy."""
        home, decision = refusal.computation, refusal.decision
        first, second = (self.history.part(home, part.name) for part in refusal.sides)
        blocked = decision.code == "not-into-all"
        blocker = self.history.part(home, decision.words) if blocked else None
        return replace(refusal, producers=first, consumers=second, blocker=blocker)

    def _report_rules(self) -> None:
        """Report the refusals of the user's functions."""
        found = list(self.advice.overridden(self.history))
        for one in found:
            opcode = root_opcode(one.producer)
            words = f"{one.reason}; both are in one kernel anyway"
            rule = f"fuse {opcode}"
            self.log.add_remark(
                self._remark("missed", rule, one.producer, words, one.computation, one.consumer)
            )
        for sentence in self.advice.summary(found):
            self.log.note(sentence)


def _lost_us(refused: tuple[Refusal, Instruction]) -> float:
    """What fusing would have saved, in microseconds; 0 where no model was used or it would cost."""
    comparison = refused[0].decision.comparison
    return max(0.0, comparison.gain_us) if comparison is not None else 0.0
