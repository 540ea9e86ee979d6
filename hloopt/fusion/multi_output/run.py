"""Multi-output fusion of one computation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hloopt.analysis.reachability import Reachability
from hloopt.cost_models.model import Comparison, CostModel
from hloopt.dataclass import dataclass
from hloopt.fusion import apply
from hloopt.fusion.apply import has_tuple_root
from hloopt.fusion.decision import Decision, forbid
from hloopt.fusion.history import root_opcode
from hloopt.fusion.kinds import choose_kind
from hloopt.fusion.limits import Footprint
from hloopt.fusion.multi_output.rules import MultiOutputRules, is_nestable_variadic
from hloopt.fusion.multi_output.siblings import Siblings
from hloopt.fusion.recorder import FusionRecorder
from hloopt.ir import Computation, Instruction

__all__ = ["MultiOutputRun"]

_TOLD_IN_PAIRS: Final = 64
"""Up to this many readers of one value, every pair gets a reason why it is not fused: reasons for more would
cost the square of their number."""
_AT_ONCE: Final = 4096
"""Readers of one value that are asked about each other."""
_OF_THE_PAIR: Final = frozenset({"code-size", "disjoint-slices"})
"""Reasons that hold for no other pair."""


@dataclass
class MultiOutputRun:
    """Visits users before producers: fuses siblings that read a value, then its producer with one of them.

    Among several, those first that come first: what is done follows from the graph, not from its history.

    siblings, producer_consumer  which of the two is done
    """

    computation: Computation
    rules: MultiOutputRules
    model: CostModel
    recorder: FusionRecorder
    siblings: bool = True
    producer_consumer: bool = True

    def __post_init__(self) -> None:
        self.reachability = Reachability(self.computation)
        self.order = _post_order(self.computation)
        self.place = {instruction: at for at, instruction in enumerate(self.order)}
        self.bodies: dict[Computation, None] = {}

    def run(self) -> None:
        """Each instruction once, as what is shared and as producer."""
        for producer in reversed(self.order):
            if producer.computation is not self.computation or not _takes_part(producer):
                continue
            if self.siblings:
                self._fuse_users(producer)
            if self.producer_consumer:
                self._fuse_producer(producer)
        if self.bodies:
            apply.restore_order(self.computation)
            living = [body for body in self.bodies if body.callers]
            apply.number_parameter_names(living)

    def _users(self, producer: Instruction) -> list[Instruction]:
        """The users in the order of the computation; elements that were made on the way are the last."""
        return sorted(producer.users, key=lambda user: self.place.get(user, len(self.order)))

    # ---- siblings ------------------------------------------------------------------------------------

    def _fuse_users(self, shared: Instruction) -> None:
        if len(shared.users) < 2:
            return
        users = [user for user in self._users(shared) if self._is_sibling(user)]
        if len(users) < 2:
            return
        verdict = self.rules.decide_shared(shared)
        if not verdict:
            self.recorder.refused(shared, None, verdict)
            if not self.recorder.advice:
                return
        for at in range(0, len(users), _AT_ONCE):
            self._fuse_siblings(users[at : at + _AT_ONCE], shared, verdict)
        if len(users) > _AT_ONCE:
            self.recorder.log.note(
                f"%{shared.name} has {len(users)} readers: siblings are looked for among {_AT_ONCE}"
                " of them at a time"
            )

    def _fuse_siblings(
        self, users: list[Instruction], shared: Instruction, verdict: Decision
    ) -> None:
        users.sort(key=_preference, reverse=True)
        each = len(users) <= _TOLD_IN_PAIRS or bool(self.recorder.advice)
        siblings = Siblings(users, shared, self.rules, self.reachability, each=each)
        for first in users:
            if first.opcode != "fusion" or not siblings.is_left(first):
                continue
            for second in siblings.after(first):
                connected = siblings.connected(first, second)
                decision = self._decide_siblings(first, second, shared, verdict, connected)
                if decision:
                    self._merge(first, second)
                    siblings.merge(first, second)
                elif decision is not verdict:
                    self.recorder.refused(second, first, decision)
                    if decision.code not in _OF_THE_PAIR:
                        siblings.refuse(second)

    def _is_sibling(self, user: Instruction) -> bool:
        if not user.users or is_nestable_variadic(user) or not self.rules.decide_root(user):
            return False
        if not has_tuple_root(user):
            return True
        return {reader.opcode for reader in user.users} == {"get-tuple-element"}

    def _decide_siblings(
        self,
        first: Instruction,
        second: Instruction,
        shared: Instruction,
        verdict: Decision,
        connected: bool,
    ) -> Decision:
        advised = self.recorder.advice.decide(second, first)
        if not advised:
            return advised
        if not (verdict or advised.wanted):
            return verdict
        decision = self.rules.decide_siblings(
            first, second, shared, connected=connected, wanted=advised.wanted
        )
        return decision and self.recorder.allows()

    def _merge(self, first: Instruction, second: Instruction) -> None:
        before = first.name, root_opcode(first)
        footprint = self.rules.footprints.of(first) + self.rules.footprints.of(second)
        # As in XLA, an op by itself does not change the word for the fusion it joins.
        kind = "kInput" if second.attributes.get("kind") == "kInput" else None
        gone = (second, *second.users)
        apply.merge_siblings(first, second, kind, keep_order=False)
        self._follow(first, gone)
        self._grown(first, footprint, second)
        self.recorder.fused(second, before, first, duplicated=False, multi_output=True)

    # ---- producer and consumer -----------------------------------------------------------------------

    def _fuse_producer(self, producer: Instruction) -> None:
        users = self._users(producer)
        if not users:
            return
        advice = {user: self.recorder.advice.decide(producer, user) for user in users}
        wanted = any(decision.wanted for decision in advice.values())
        if len(users) == 1 and not has_tuple_root(users[0]) and not wanted:
            return  # a single-output strategy has decided about these two
        verdict = self.rules.decide_producer(producer)
        if not verdict:
            if verdict.code != "producer-not-fusible":
                self.recorder.refused(producer, None, verdict)
            return
        found: list[tuple[int, Instruction, Comparison | None]] = []
        for user in users:
            decision, comparison = self._decide(producer, user, advice[user])
            if decision:
                found.append((_preference(user), user, comparison))
            else:
                self.recorder.refused(producer, user, decision)
        if not found:
            return
        _, consumer, comparison = max(found, key=lambda entry: entry[0])
        spent = self.recorder.allows()
        if not spent:
            self.recorder.refused(producer, consumer, spent)
            return
        self._fuse(producer, consumer, comparison)

    def _decide(
        self, producer: Instruction, consumer: Instruction, advised: Decision
    ) -> tuple[Decision, Comparison | None]:
        if not advised:
            return advised, None
        decision = self.rules.decide_pair(
            producer, consumer, self.reachability, wanted=advised.wanted
        )
        if not decision:
            return decision, None
        comparison = self.model.compare(producer, [consumer], multi_output=True)
        if not advised.wanted and comparison.fused_us > comparison.unfused_us:
            return forbid("slower", comparison=comparison), comparison
        return decision, comparison

    def _fuse(
        self, producer: Instruction, consumer: Instruction, comparison: Comparison | None
    ) -> None:
        before = consumer.name, root_opcode(consumer)
        footprint = self.rules.footprints.of(producer) + self.rules.footprints.of(consumer)
        is_new = consumer.opcode != "fusion"
        kind = choose_kind(producer, consumer) if is_new else None
        several = len(producer.users) > 1 or producer.is_root
        gone = (producer, *producer.users)
        fusion = apply.fuse_multi_output(producer, consumer, kind, keep_order=False)
        if fusion is not consumer:
            self.reachability.replace(consumer, fusion)
            self.place[fusion] = self.place.pop(consumer)
            self.recorder.renamed(self.computation, before[0], fusion.name)
        self._follow(fusion, (entry for entry in gone if entry is not consumer))
        self._grown(fusion, footprint, producer, *((consumer,) if fusion is not consumer else ()))
        self.recorder.fused(
            producer,
            before,
            fusion,
            duplicated=False,
            multi_output=several,
            comparison=comparison,
        )

    # ---- after an edit -------------------------------------------------------------------------------

    def _follow(self, fusion: Instruction, gone: Iterable[Instruction]) -> None:
        self.bodies[fusion.calls] = None
        self.reachability.follow(fusion, gone)

    def _grown(self, fusion: Instruction, footprint: Footprint, *gone: Instruction) -> None:
        for instruction in gone:
            self.rules.forget(instruction)
            self.model.forget(instruction)
        self.model.grown(fusion)
        self.rules.became(fusion, footprint)


def _post_order(computation: Computation) -> list[Instruction]:
    """Operands first, from what nothing uses: an order that does not depend on where instructions stand."""
    done: dict[Instruction, None] = {}
    for last in computation:
        stack = [] if last.users else [last]
        while stack:
            top = stack[-1]
            before = (*reversed(top.operands), *top.control_predecessors)
            waiting = () if top in done else [entry for entry in before if entry not in done]
            if waiting:
                stack.extend(waiting)
            else:
                done[stack.pop()] = None
    return list(done)


def _takes_part(producer: Instruction) -> bool:
    """Constants are for other passes to fuse; kernels not generated here stay as they are."""
    if producer.opcode == "constant":
        return False
    return producer.opcode != "fusion" or producer.attributes["kind"] != "kCustom"


def _preference(user: Instruction) -> int:
    """Fusions with several results first, then fusions, then ops: what may grow further is kept."""
    if user.opcode != "fusion":
        return 0
    return 2 if has_tuple_root(user) else 1
