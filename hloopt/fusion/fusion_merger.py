"""Merging loop fusions into all of their users: what XLA did after instruction fusion up to 2023."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar, Literal, NamedTuple, TypeAlias

from hloopt.cost_models.model import Comparison, CostModel
from hloopt.cost_models.registry import model_for
from hloopt.dataclass import dataclass
from hloopt.fusion import apply
from hloopt.fusion.barriers import note_barriers
from hloopt.fusion.decision import ALLOWED, Decision, forbid
from hloopt.fusion.history import FusionPlan, root_opcode
from hloopt.fusion.in_place import decide_in_place
from hloopt.fusion.joining import Joiner
from hloopt.fusion.kinds import choose_kind
from hloopt.fusion.limits import CodeLimits, shared_memory_of
from hloopt.fusion.merger_bytes import (
    decide_bytes,
    decide_costly,
    decide_emissions,
    decide_plain_loop,
    decide_user,
)
from hloopt.fusion.merger_rules import MergerRules, decide_loop_fusion
from hloopt.fusion.recorder import FusionPass, FusionRecorder
from hloopt.fusion.strategies import fusible_computations
from hloopt.ir import Computation, Instruction, Module, walk
from hloopt.rewrite.pass_ import PassLog
from hloopt.targets import find_target

__all__ = ["FusionMerger"]

_PairRule: TypeAlias = Callable[[Instruction, Instruction], Decision]


@dataclass(frozen=True)
class FusionMerger(CodeLimits, FusionPass):
    """Merge each loop fusion into all of its users, or into none.

    criterion       ``cost``: where a cost model says that this takes no longer (XLA of 2023);
                    ``bytes``: where the kernels move no more bytes and no code is written too often (XLA of
                    early 2022); ``bytes-2019``: where users are fusions already, the kernels move no more
                    bytes, and nothing expensive is computed again (XLA up to 2021)
    cost_model      whose times count
    target          the device the times are of
    shared_memory   bytes a block may use; 0 for what the device has
    max_ir_size     instructions the code of a kernel may have; each interruption doubles them
    max_splits      times index computations may be interrupted in a kernel, by a concatenate, dot,
                    dynamic-update-slice, pad, reduce or reduce-window
    max_transposed  percent of a producer's elements from which on it is not merged into a reduction when
                    they are transposed
    max_bytes       by bytes: percent of the bytes moved now that may be moved after merging
    much_less       by bytes: percent of these below which expensive ops are computed again for several users
    trivial_bytes   by bytes: where no more than these are moved now, they never are
    max_duplication, max_barrier_emissions, max_barrier_users  by bytes: as in instruction-fusion
    fuel            the most producers to merge in a module, negative for no limit
    """

    example: ClassVar[str] = """HloModule example

scaled {
  x = f32[1024] parameter(0)
  y = f32[1024] parameter(1)
  ROOT s = f32[1024] multiply(x, y)
}

shifted {
  s = f32[1024] parameter(0)
  y = f32[1024] parameter(1)
  ROOT r = f32[1024] add(s, y)
}

ENTRY main {
  x = f32[1024] parameter(0)
  y = f32[1024] parameter(1)
  s = f32[1024] fusion(x, y), kind=kLoop, calls=scaled
  ROOT r = f32[1024] fusion(s, y), kind=kLoop, calls=shifted
}
"""

    max_operands: int = 64
    shared_memory: int = 0
    column_bytes: int = 2112
    criterion: Literal["cost", "bytes", "bytes-2019"] = "cost"
    cost_model: str = "xla-2023"
    target: str = "h200"
    max_ir_size: int = 10000
    max_splits: int = 10
    max_transposed: int = 50
    max_bytes: int = 110
    much_less: int = 30
    trivial_bytes: int = 1024
    fuel: int = -1

    def fuse(self, module: Module, log: PassLog | None = None) -> FusionPlan:
        """Fuse in place; return what was fused, and what was refused and why.

        Raises ``UsageError`` for an unknown model or target.
        """
        target = find_target(self.target)
        model = model_for(self.cost_model, target, log.note if log is not None else None)
        recorder = FusionRecorder(self, module, log)
        if self.criterion == "cost":
            recorder.plan.cost_model, recorder.plan.target = model.name, target.name
        rules = MergerRules(
            CodeLimits.of(self, shared_memory=shared_memory_of(target, self.shared_memory)),
            model.usage,
            self.max_ir_size,
            self.max_splits,
            self.max_transposed,
        )
        computations = fusible_computations(module)
        merger = _Merger(self, rules, model, recorder)
        for computation in computations:
            merger.run(computation)
        note_barriers(recorder, computations)
        return recorder.close()


def _pair_rules(criterion: str, rules: MergerRules) -> tuple[tuple[_PairRule, bool], ...]:
    """The requirements on a consumer, in order, and whether the user's advice overrides them."""

    def emissions(producer: Instruction, user: Instruction) -> Decision:
        return decide_emissions(producer, user, rules.limits)

    common: tuple[tuple[_PairRule, bool], ...] = (
        (rules.decide_user, False),
        (rules.decide_epilogue, True),
        (decide_in_place, False),
    )
    budget: tuple[_PairRule, bool] = (rules.decide_budget, False)
    if criterion == "bytes-2019":
        return ((decide_user, True), *common, budget)
    if criterion == "bytes":
        return (*common, (emissions, True), budget)
    return (*common, (rules.decide_transposes, True), budget, (rules.decide_size, True))


class _Verdict(NamedTuple):
    """The verdict on a producer with all of its users; ``user`` is the one that cannot take it."""

    decision: Decision
    user: Instruction | None = None


class _Merger:
    """The fusions of a module while they are merged."""

    def __init__(
        self, options: FusionMerger, rules: MergerRules, model: CostModel, recorder: FusionRecorder
    ) -> None:
        self.options = options
        self.rules = rules
        self.model = model
        self.recorder = recorder
        self.merged = 0
        self.joiner = Joiner()
        self.pair_rules = _pair_rules(options.criterion, rules)

    def run(self, computation: Computation) -> None:
        """Merge what may be merged in one computation, producers first."""
        bodies: dict[Computation, None] = {}
        for producer in walk.post_order(computation):
            if producer.opcode != "fusion":
                continue
            verdict, comparison = self._decide(producer)
            if verdict.decision:
                for fusion in self._merge(producer, comparison):
                    bodies[fusion.calls] = None
            else:
                self._refuse(producer, verdict)
        apply.number_parameter_names(bodies)

    def _decide(self, producer: Instruction) -> tuple[_Verdict, Comparison | None]:
        decision = decide_loop_fusion(producer)
        if not decision:
            return _Verdict(decision), None
        users = tuple(producer.users)
        wanted = set()
        for user in users:
            advice = self.recorder.advice.decide(producer, user)
            if not advice:
                return _Verdict(advice, user), None
            if advice.wanted:
                wanted.add(user)
        for rule, is_taste in self.pair_rules:
            for user in users:
                decision = ALLOWED if is_taste and user in wanted else rule(producer, user)
                if not decision:
                    return _Verdict(decision, user), None
        decision = ALLOWED if len(wanted) == len(users) else self._criterion(producer, users)
        return _Verdict(decision and self._fuel()), decision.comparison

    def _criterion(self, producer: Instruction, users: tuple[Instruction, ...]) -> Decision:
        options = self.options
        if options.criterion != "cost":
            decision = decide_bytes(producer, options.max_bytes)
            if options.criterion == "bytes-2019":
                return decision and decide_plain_loop(producer)
            return decision and decide_costly(producer, options.much_less, options.trivial_bytes)
        comparison = self.model.compare(producer, users)
        if comparison.fused_us > comparison.unfused_us:
            return forbid("slower", comparison=comparison)
        return Decision(True, comparison=comparison)

    def _fuel(self) -> Decision:
        if 0 <= self.options.fuel <= self.merged:
            return forbid("out-of-fuel", limit=self.options.fuel)
        return self.recorder.allows()

    def _refuse(self, producer: Instruction, verdict: _Verdict) -> None:
        """Refuse for the user that decides; the others could have taken it."""
        self.recorder.refused(producer, verdict.user, verdict.decision)
        if verdict.user is not None:
            words = verdict.user.name
            for user in producer.users:
                if user is not verdict.user:
                    self.recorder.refused(producer, user, forbid("not-into-all", words=words))

    def _merge(self, producer: Instruction, comparison: Comparison | None) -> Iterator[Instruction]:
        """A copy into each user; the producer is gone afterwards."""
        self.merged += 1
        for number, user in enumerate(list(producer.users)):
            home = user.computation
            before = user.name, root_opcode(user)
            kind = None if user.opcode == "fusion" else choose_kind(user, user)
            fusion = self.joiner.fuse(producer, user)
            fusion.attributes["kind"] = kind or fusion.attributes["kind"]
            if fusion is not user and home is not None:
                self.recorder.renamed(home, before[0], fusion.name)
            self.rules.joined(producer, user, fusion)
            if fusion is user:
                self.model.grown(fusion)
            else:
                self.model.forget(user)
            self.recorder.fused(
                producer,
                before,
                fusion,
                duplicated=bool(producer.users),
                comparison=comparison,
                count=0 if number else 1,
            )
            yield fusion
        self.model.forget(producer)
        self.rules.forget(producer)
        apply.remove_producer(producer)
