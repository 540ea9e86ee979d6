"""The record of a strategy's run, the user's advice and the fuel: for every strategy alike."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from hloopt.cost_models.model import Comparison
from hloopt.fusion.advice import Advice
from hloopt.fusion.decision import Decision, forbid
from hloopt.fusion.homes import fusible_computations
from hloopt.fusion.plan import FusionPlan, FusionStep, Refusal
from hloopt.ir import Computation, Instruction, Module
from hloopt.rewrite.pass_ import Pass, PassLog

__all__ = ["FusionPass", "Scribe", "fusible_computations"]

_ALONE: Final = frozenset({
    "producer-not-fusible", "producer-not-loop-fusible", "producer-is-root", "producer-is-fusion",
    "consumer-not-fusible", "consumer-not-loop-or-input-fusible", "constant-alone", "no-users",
    "only-bitcast-users", "consumer-is-bitcast", "consumer-is-tuple", "consumer-is-custom",
    "producer-not-loop-fusion", "not-into-all", "horizontal-alone", "loop-no-results",
    "siblings-connected",
})  # fmt: skip
"""Reasons that tell of an instruction, or of two that no strategy could fuse, rather than of a near miss."""


class FusionPass(Pass):
    """A strategy whose plan is asked for in Python, too."""

    def run(self, module: Module, log: PassLog) -> bool:
        return bool(self.fuse(module, log).steps)

    @abstractmethod
    def fuse(self, module: Module, log: PassLog | None = None) -> FusionPlan:
        """Fuse in place; what was done and what was refused and why."""


class Scribe:
    """The record of one strategy over one module."""

    def __init__(self, strategy: str, log: PassLog | None = None, fuel: int = -1) -> None:
        self.plan = FusionPlan(strategy)
        self.log = log or PassLog()
        self.fuel = fuel
        advice = self.log.advice
        self.advice = advice if isinstance(advice, Advice) else Advice()
        self.advice.begin()
        self._refused: dict[tuple[str, str], dict[str, tuple[Refusal, Instruction]]] = {}

    def allows(self) -> Decision | None:
        """The refusal where no more fusions may be made; None where one may."""
        if 0 <= self.fuel <= len(self.plan.steps):
            return forbid("out-of-fuel", limit=self.fuel)
        if not self.log.allows():
            return forbid("out-of-fuel", limit=len(self.plan.steps))
        return None

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

        ``count`` is 0 for one that joined together with the one told before.  ``producer`` may be out of the
        module already, but still has its operands' names and its computation is the fusion's.
        """
        home = fusion.computation
        assert home is not None
        opcode = root_opcode(producer)
        self.advice.joined(producer, consumer[0], fusion, multi_output=multi_output)
        rule, where = f"fuse {opcode} into {consumer[1]}", f"into {consumer[0]}"
        self.log.hit(rule, producer, where, count, home=home.name)
        for name in (consumer[0], fusion.name):
            self._refused.get((home.name, name), {}).pop(producer.name, None)
        self.plan.steps.append(
            FusionStep(
                home.name,
                producer.name,
                opcode,
                consumer[0],
                consumer[1],
                fusion.name,
                fusion.attributes["kind"],
                duplicated,
                multi_output,
                comparison,
                producer.metadata,
                producer.offset,
            )
        )

    def looped(
        self,
        loop: str,
        fusion: Instruction,
        sunk: Sequence[Instruction],
        comparison: Comparison | None = None,
    ) -> None:
        """A ``while`` of the name ``loop`` has become a kernel, which computes ``sunk`` at first."""
        home = fusion.computation
        assert home is not None
        self.log.hit(
            "run a while as one kernel", fusion, f"{loop} is {fusion.name}", home=home.name
        )
        self._refused.get((home.name, ""), {}).pop(loop, None)
        rows = [(loop, "while", loop, fusion.metadata, fusion.offset, False)]
        rows += [
            (op.name, op.opcode, fusion.name, op.metadata, op.offset, op.computation is not None)
            for op in reversed(sunk)
        ]
        self.plan.steps += (
            FusionStep(
                home.name,
                name,
                opcode,
                consumer,
                "while",
                fusion.name,
                fusion.attributes["kind"],
                duplicated,
                comparison=comparison,
                metadata=metadata,
                offset=offset,
            )
            for name, opcode, consumer, metadata, offset, duplicated in rows
        )

    def refused(
        self, producer: Instruction, consumer: Instruction | None, decision: Decision
    ) -> None:
        """Keep the last word on a pair, or on a producer as such."""
        home = producer.computation
        assert home is not None
        refusal = Refusal(
            home.name,
            producer.name,
            root_opcode(producer),
            consumer.name if consumer is not None else "",
            root_opcode(consumer) if consumer is not None else "",
            decision,
            decision.comparison,
            producer.metadata,
            producer.offset,
        )
        about = self._refused.setdefault((home.name, refusal.consumer), {})
        about[refusal.producer] = refusal, producer

    def renamed(self, computation: Computation, consumer: str, fusion: str) -> None:
        """What was refused about a consumer goes on under the fusion's name."""
        about = self._refused.pop((computation.name, consumer), {})
        new = self._refused.setdefault((computation.name, fusion), {})
        for name, (refusal, producer) in about.items():
            new[name] = replace(refusal, consumer=fusion), producer

    def refusals(self) -> Iterator[Refusal]:
        """The last words until now."""
        for about in self._refused.values():
            for refusal, _ in about.values():
                yield refusal

    def close(self) -> FusionPlan:
        """The plan, with the last words on all pairs that are left; near misses are told the log."""
        self.advice.settle()
        every = [pair for about in self._refused.values() for pair in about.values()]
        self.plan.refusals += (refusal for refusal, _ in every)
        told: set[frozenset[str]] = set()
        for refusal, producer in sorted(every, key=_lost_us, reverse=True):
            decision = refusal.decision
            pair = frozenset((refusal.computation, refusal.producer, refusal.consumer))
            if (
                producer.computation is not None
                and decision.code not in _ALONE
                and pair not in told
            ):
                told.add(pair)
                opcodes = f"{refusal.producer_opcode} into {refusal.consumer_opcode or 'its users'}"
                where = f"into {refusal.consumer}: " if refusal.consumer else ""
                words = f"{where}{decision.reason}"
                self.log.miss(f"fuse {opcodes}", producer, words)
        self._tell_of_rules()
        self.log.records.append(self.plan)
        return self.plan

    def _tell_of_rules(self) -> None:
        """What has become of the refusals of the user's functions."""
        answers = self.advice.answers
        found = list(answers.overridden())
        for one in found:
            opcode = root_opcode(one.producer)
            words = f"into {one.consumer}: {one.reason}; both are in {one.fusion} all the same"
            self.log.miss(f"fuse {opcode}", one.producer, words, home=one.computation)
        for sentence in answers.summary(found):
            self.log.note(sentence)


def _lost_us(refused: tuple[Refusal, Instruction]) -> float:
    """What fusing would have saved, in microseconds; 0 where nobody asked or it would cost."""
    comparison = refused[0].comparison
    return max(0.0, comparison.gain_us) if comparison is not None else 0.0


def root_opcode(instruction: Instruction) -> str:
    """What an op or fusion computes last."""
    if instruction.opcode != "fusion":
        return instruction.opcode
    body: Computation = instruction.attributes["calls"]
    return body.root.opcode
