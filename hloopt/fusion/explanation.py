"""Why instructions are or are not in one kernel: a view of the history of fusion.

It is about the graph before the first strategy (``FusionNode``) and says what became of it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Final, TypeAlias

from hloopt.cost_models.model import Comparison
from hloopt.fusion.explained import (
    Around,
    Edge,
    ExplainedRefusal,
    ExplainedStep,
    KernelFacts,
    Lost,
    Missed,
    MissedKey,
    Pair,
    finite,
)
from hloopt.fusion.fusible import UNCOMPUTED
from hloopt.fusion.history import FusionPlan, FusionStep, LoopFacts, PairSide, Refusal
from hloopt.fusion.provenance import FusionNode, Provenance
from hloopt.fusion.remedies import is_advisable, remedies

__all__ = ["Explanation", "Times"]

_Place: TypeAlias = tuple[str, str]
"""Computation and name."""
Times: TypeAlias = Callable[[str, str, str, bool], Comparison | None]
"""Computation, producer and consumer after all strategies: the times apart and fused, where a model has them.

An empty consumer means all that use the producer, together.  The last argument: whether the kernel of both
would write the producer's results, too."""

_INTO_ALL: Final = frozenset({"fusion-merger", "priority-fusion"})
"""Strategies that fuse a producer into all of its users or into none."""
_FAR: Final = 10_000
"""Nodes that a search for a path visits before it gives up."""


_Refused: TypeAlias = tuple[FusionPlan, Refusal]
_Fused: TypeAlias = tuple[FusionPlan, FusionStep]


class Explanation:
    """What became of the nodes of a module.

    ``times`` gives those that a strategy did not compute, by the cost model called ``model``.
    """

    def __init__(self, provenance: Provenance, times: Times | None = None, model: str = "") -> None:
        self.nodes = provenance.nodes
        self.plans = provenance.history.plans
        self.times = times
        self.model = model
        self.kernels: dict[_Place, KernelFacts] = {}
        self.loops: dict[_Place, LoopFacts] = {}
        self._homes: dict[_Place, list[KernelFacts]] = defaultdict(list)
        self._loop_of: dict[str, LoopFacts] = {}
        self._refused: dict[_Place, list[_Refused]] = defaultdict(list)
        self._fused: dict[_Place, list[_Fused]] = defaultdict(list)
        for plan in self.plans:
            for facts in plan.loops:
                self.loops[facts.computation, facts.loop] = facts
                self._loop_of |= dict.fromkeys(facts.inside, facts)
            for step in plan.steps:
                for name in step.producers.members:
                    self._fused[step.computation, name].append((plan, step))
            for refusal in plan.refusals:
                for name in refusal.producers.members:
                    self._refused[refusal.computation, name].append((plan, refusal))
        for place in provenance.alive:
            self._keep(place, provenance)

    def _keep(self, place: _Place, provenance: Provenance) -> None:
        computation, name = place
        made, node = provenance.history.fusions.get(place), self.nodes.get(place)
        if made is None and (node is None or node.opcode in UNCOMPUTED):
            return
        members = (name,) if made is None else made.members
        kernel = KernelFacts(
            computation,
            name,
            "" if made is None else made.kind,
            tuple(sorted(members, key=lambda one: self._number(computation, one))),
            (name,) if made is None else tuple(made.outputs),
            provenance.final_name(computation, name),
        )
        self.kernels[place] = kernel
        for member in kernel.members:
            self._homes[computation, member].append(kernel)

    def _number(self, computation: str, name: str) -> tuple[bool, int]:
        """The order of members: constants, of which there are many, come last."""
        node = self.nodes.get((computation, name))
        if node is None:
            return True, len(self.nodes)
        return node.opcode == "constant", node.number

    def kernels_of(self, place: _Place) -> tuple[KernelFacts, ...]:
        """The kernels that compute an instruction; several where it was copied."""
        found = self._homes.get(place)
        loop = self._loop_of.get(place[0])
        if not found and loop is not None:
            whole = self.kernels.get((loop.computation, loop.fusion))
            found = [whole] if whole is not None else []
        return tuple(found or ())

    def edge(self, producer: FusionNode, consumer: FusionNode) -> Edge:
        """Whether one use of a result was fused, and why."""
        home = producer.computation
        first = self.kernels_of((home, producer.name))
        second = self.kernels_of((home, consumer.name))
        common = tuple(kernel for kernel in second if kernel in first)
        if common:
            return Edge(producer, consumer, first, second, common, self._joined(producer, consumer))
        words = self._words(producer, consumer)
        if not all(node.fusible or node.opcode in UNCOMPUTED for node in (producer, consumer)):
            # A strategy may have stopped at another user of the producer before it reached this one.
            words = tuple(replace(word, options=(), advisable=False) for word in words)
        return Edge(producer, consumer, first, second, (), (), words)

    def _joined(self, producer: FusionNode, consumer: FusionNode) -> tuple[ExplainedStep, ...]:
        """The steps that brought the two together."""
        return tuple(
            self._step(plan, step)
            for plan, step in self._fused[producer.computation, producer.name]
            if consumer.name in step.consumers.grown and consumer.name not in step.producers.members
        )

    def _words(
        self, producer: FusionNode, consumer: FusionNode | None
    ) -> tuple[ExplainedRefusal, ...]:
        """The last verdict of each run on a pair; on the producer alone without a consumer."""
        found: dict[tuple[int, str], _Refused] = {}
        exact: set[int] = set()
        about = list(self._refusals(producer))
        for plan, refusal in about:
            place = plan.run, refusal.consumer
            if consumer is not None and consumer.name in refusal.consumers.grown:
                exact.add(plan.run)
                found[place] = plan, refusal
                if refusal.blocker is not None:
                    # And the refusal of the user that kept the producer from all of its users.
                    blocked = plan.run, refusal.blocker.name
                    for row in about:
                        if (row[0].run, row[1].consumer) == blocked:
                            found[blocked] = row
            elif not refusal.consumer:
                found[place] = plan, refusal
        return tuple(
            self._word(plan, refusal)
            for (run, target), (plan, refusal) in sorted(found.items(), key=lambda row: row[0][0])
            if target or run not in exact
        )

    def _refusals(self, producer: FusionNode) -> Iterator[_Refused]:
        """The refusals of a producer; of an element of a tuple, those of what makes the tuple."""
        home = producer.computation
        node: FusionNode | None = producer
        while node is not None:
            yield from self._refused[home, node.name]
            is_element = node.opcode == "get-tuple-element"
            node = self.nodes.get((home, node.operands[0])) if is_element else None

    def _word(self, plan: FusionPlan, refusal: Refusal) -> ExplainedRefusal:
        home, decision, strategy = refusal.computation, refusal.decision, plan.strategy
        advisable = is_advisable(decision, strategy)
        comparison, model = decision.comparison, plan.cost_model
        multi_output = strategy == "multi-output-fusion"
        # A cycle, or two different loops, is not a kernel that has a time.
        if comparison is None and self.times is not None and (advisable or not multi_output):
            first, second = (self._kernel_now(home, part) for part in refusal.sides)
            second = "" if strategy in _INTO_ALL else second
            if first and (second or not refusal.consumer or strategy in _INTO_ALL):
                comparison, model = self.times(home, first, second, multi_output), self.model
        comparison = finite(comparison)
        if refusal.blocker is not None:
            decision = replace(decision, words=self._shown(home, refusal.blocker))
        return ExplainedRefusal(
            strategy,
            plan.run,
            refusal.producer,
            refusal.consumer,
            decision,
            comparison,
            tuple(remedies(refusal.decision, plan.instance)),
            advisable,
            model if comparison is not None else "",
            (self._shown(home, refusal.producers), self._shown(home, refusal.consumers)),
        )

    def _shown(self, home: str, part: PairSide) -> str:
        """A name that exists in the output or else in the input, for a name of that moment."""
        return self._now(home, part) or self._last(home, part.name, part.grown)

    def _last(self, home: str, name: str, members: Collection[str]) -> str:
        """What a kernel computes last, by its name before fusion."""
        last = self._last_node(home, members)
        return name if last is None else last.name

    def _last_node(self, home: str, members: Collection[str]) -> FusionNode | None:
        known = filter(None, (self.nodes.get((home, one)) for one in members))
        return max(known, key=lambda node: node.number, default=None)

    def _step(self, plan: FusionPlan, step: FusionStep) -> ExplainedStep:
        home, (first, second) = step.computation, step.sides
        names = (
            self._last(home, first.name, first.members),
            self._last(home, second.name, second.members),
        )
        return ExplainedStep(plan.strategy, plan.run, step, names)

    def _kernel_now(self, home: str, part: PairSide) -> str:
        """The kernel that an instruction has become, by a strategy's name of it; empty if none or several."""
        if not part.name or (home, part.name) in self.kernels:
            return part.name
        found: set[str] | None = None
        for one in part.grown:
            names = {kernel.name for kernel in self._homes[home, one]}
            found = names if found is None else found & names
            if not found:
                return ""
        return found.pop() if found is not None and len(found) == 1 else ""

    def pair(self, first: FusionNode, second: FusionNode) -> Pair:
        """How two instructions are related, in the order of their dependence."""
        a, b = (self.kernels_of((node.computation, node.name)) for node in (first, second))
        common = tuple(kernel for kernel in b if kernel in a)
        shared: tuple[str, ...] = ()
        if first.computation == second.computation:
            for one, other in ((first, second), (second, first)):
                path = self._path(one, other)
                if path:
                    edges = tuple(self.edge(left, right) for left, right in pairwise(path))
                    return Pair(one, other, "path", common, edges)
            shared = tuple(name for name in first.operands if name in second.operands)
        words = (*self._words(first, second), *self._words(second, first))
        exact = tuple(word for word in words if word.consumer)
        return Pair(first, second, "siblings" if shared else "none", common, (), shared, exact)

    def _path(self, start: FusionNode, end: FusionNode) -> list[FusionNode]:
        """The nodes from a result to a user of it in fewest kernels, then fewest nodes; empty if none."""
        if start.number >= end.number:
            return []
        before: dict[str, str] = {start.name: ""}
        cost = {start.name: 0}
        queue = deque([start])
        done: set[str] = set()
        while queue and len(done) < _FAR:
            node = queue.popleft()
            if node.name in done:
                continue
            done.add(node.name)
            if node is end:
                return self._back(end, before)
            homes = self._homes[node.computation, node.name]
            for name in node.users:
                user = self.nodes.get((node.computation, name))
                if user is None or user.number > end.number or name in done:
                    continue
                others = self._homes[node.computation, name]
                together = any(kernel in homes for kernel in others)
                step = cost[node.name] + (0 if together else 1)
                if name not in cost or step < cost[name]:
                    cost[name], before[name] = step, node.name
                    if together:
                        queue.appendleft(user)
                    else:
                        queue.append(user)
        return []

    def _back(self, end: FusionNode, before: Mapping[str, str]) -> list[FusionNode]:
        path, name = [], end.name
        while name:
            path.append(self.nodes[end.computation, name])
            name = before[name]
        return path[::-1]

    def around(self, node: FusionNode) -> Around:
        """An instruction's kernels, and which neighbours are in none of them."""
        home = node.computation
        kernels = self.kernels_of((home, node.name))
        inside = {member for kernel in kernels for member in kernel.members}
        joined: dict[ExplainedStep, None] = {}
        for kernel in kernels:
            for member in kernel.members:
                for plan, step in self._fused[home, member]:
                    is_of = step.fusion == kernel.name or inside.issuperset(step.consumers.grown)
                    if is_of and step.producer != step.consumer:
                        joined[self._step(plan, step)] = None
        operands = (self.nodes.get((home, name)) for name in node.operands)
        users = (self.nodes.get((home, name)) for name in node.users)
        edges = [
            *(self.edge(operand, node) for operand in operands if operand is not None),
            *(self.edge(node, user) for user in users if user is not None),
        ]
        apart = tuple(edge for edge in edges if not edge.common and not edge.is_plumbing)
        loop = self.loops.get((home, node.name)) or self._loop_of.get(home)
        return Around(node, kernels, tuple(joined), apart, self._words(node, None), loop)

    def judged_loops(self) -> list[tuple[LoopFacts, tuple[ExplainedRefusal, ...]]]:
        """The loops that a strategy makes kernels of or refuses, with its verdicts on each."""
        return [
            (facts, self._words(self.nodes[place], None))
            for place, facts in self.loops.items()
            if place in self.nodes
        ]

    def lost(self, most: int, runs: Mapping[str, int]) -> list[Lost]:
        """The refusals that cost most, by the times of strategies and cost model: one of each producer.

        ``runs`` is how often computations run, by name; 1 where it has no entry.
        """
        found: dict[_Place, list[tuple[float, ExplainedRefusal, Refusal]]] = defaultdict(list)
        for plan, refusal in self._last_words():
            word = self._word(plan, refusal)
            if word.comparison is not None and word.comparison.gain_us > 0:
                row = word.comparison.gain_us, word, refusal
                found[refusal.computation, refusal.producer].append(row)
        rows = [self._lost(words, runs.get(home, 1)) for (home, _), words in found.items()]
        return sorted(rows, key=lambda row: (-row.lost_us, row.word.producer))[:most]

    def missed(self, runs: Mapping[str, int]) -> dict[MissedKey, Missed]:
        """What every refusal costs in all runs of its computation, and the kernels in the output."""
        found: dict[MissedKey, Missed] = {}
        for plan in self.plans:
            for refusal in plan.refusals:
                home = refusal.computation
                kernels = self._now(home, refusal.producers), self._now(home, refusal.consumers)
                comparison = self._word(plan, refusal).comparison
                lost_us = None if comparison is None else comparison.gain_us * runs.get(home, 1)
                key = plan.run, home, refusal.producer, refusal.consumer
                found[key] = Missed(kernels, lost_us)
        return found

    def _lost(self, words: list[tuple[float, ExplainedRefusal, Refusal]], runs: int) -> Lost:
        _, word, refusal = max(words, key=lambda row: row[0])
        home = refusal.computation
        # A kernel is represented by what it computes last.
        node = self._last_node(home, refusal.producers.grown)
        where = (next(iter(node.sources), ""), node.place) if node is not None else ("", "")
        first, second = (self._now(home, part) for part in refusal.sides)
        return Lost(home, word, *where, len(words) - 1, first, second, runs)

    def _now(self, home: str, part: PairSide) -> str:
        """The name after all passes of what a strategy named so."""
        kernel = self.kernels.get((home, self._kernel_now(home, part)))
        return kernel.now if kernel is not None else ""

    def _last_words(self) -> Iterator[_Refused]:
        """The last refusal of each pair of kernels that exists after all strategies."""
        last: dict[tuple[str, str, str], _Refused] = {}
        for plan in self.plans:
            for refusal in plan.refusals:
                home = refusal.computation
                first, second = (self._kernel_now(home, part) for part in refusal.sides)
                if first and first != second and bool(second) == bool(refusal.consumer):
                    known = last.get((home, first, second))
                    if known is None or known[0].run < plan.run:
                        last[home, first, second] = plan, refusal
        yield from last.values()
