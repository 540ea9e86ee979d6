"""Why instructions are or are not in one kernel: the facts, from the plans of strategies.

A story is about the graph before the first strategy (``trail.Node``) and says what became of it.  It knows no
module, so that plans of another compiler serve as well: ``Story(nodes, stages, alive)``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import Final

from hloopt.cost_models.model import Comparison
from hloopt.dataclass import dataclass
from hloopt.fusion.ledger import Ledger
from hloopt.fusion.plan import LoopFacts
from hloopt.fusion.remedies import is_advisable, remedies
from hloopt.fusion.story_parts import (
    PLUMBING,
    Around,
    Edge,
    Joined,
    KernelFacts,
    Lost,
    Pair,
    Said,
    Taken,
    Word,
    finite,
)
from hloopt.fusion.trail import Body, Node, Stage

__all__ = ["Place", "Story", "Times"]

Place = tuple[str, str]
"""Computation and name."""
Times = Callable[[str, str, str, bool], Comparison | None]
"""Computation, producer and consumer after all strategies: the times apart and fused, where a model tells.

An empty consumer means all that use the producer, together.  The last says whether the kernel of both would
write the producer's results, too."""

_INTO_ALL: Final = frozenset({"fusion-merger", "priority-fusion"})
"""Strategies that fuse a producer into all of its users or into none."""
_FAR: Final = 10_000
"""Nodes that a search for a path looks at before it gives up."""


@dataclass
class Story:
    """What became of ``nodes``.

    alive   computations and names of what stands there after the last strategy, and what it is called
            after all passes
    bodies  of the fusions among that
    times   gives those that a strategy did not ask for, by the cost model called ``model``
    """

    nodes: Mapping[Place, Node]
    stages: Sequence[Stage]
    alive: Mapping[Place, str]
    bodies: Mapping[Place, Body] = field(default_factory=dict)
    times: Times | None = None
    model: str = ""
    kernels: dict[Place, KernelFacts] = field(default_factory=dict)
    loops: dict[Place, LoopFacts] = field(default_factory=dict)
    _homes: dict[Place, list[KernelFacts]] = field(default_factory=dict)
    _loop_of: dict[str, LoopFacts] = field(default_factory=dict)
    _said: dict[Place, list[Said]] = field(default_factory=dict)
    _taken: dict[Place, list[Taken]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ledger = Ledger()
        for stage in self.stages:
            self._meet(stage.bodies, ledger)
            self._read(stage, ledger)
        self._meet(self.bodies, ledger)
        for (computation, name), now in self.alive.items():
            self._keep(computation, name, now, ledger)

    def _meet(self, bodies: Mapping[Place, Body], ledger: Ledger) -> None:
        """Take fusions that no step has made, or that a pass has given the name of another, as they are."""
        moved = {
            place: (place[0], body.was)
            for place, body in bodies.items()
            if body.was not in ("", place[1]) and (place[0], body.was) in ledger.made
        }
        rows = {place: ledger.take(old) for place, old in moved.items()}
        for place, row in rows.items():
            ledger.put(place, *row)
        for place, body in bodies.items():
            known = ledger.made.get(place)
            is_known = known is not None and (
                bool(body.was) or not known.keys().isdisjoint(body.members)
            )
            if place in self.nodes or is_known:
                continue
            members = dict.fromkeys(name for name in body.members if (place[0], name) in self.nodes)
            results = dict.fromkeys(name for name in body.outputs if name in members)
            ledger.put(place, members, results, body.kind)

    def _read(self, stage: Stage, ledger: Ledger) -> None:
        for facts in stage.plan.loops:
            self.loops[facts.computation, facts.loop] = facts
            self._loop_of |= dict.fromkeys(facts.inside, facts)
        for step in stage.plan.steps:
            producers, consumers = (
                dict(ledger.inside((step.computation, name)))
                for name in (step.producer, step.consumer)
            )
            ledger.record(
                step.computation,
                step.producer,
                step.consumer,
                step.fusion,
                step.kind,
                multi_output=step.multi_output,
            )
            taken = Taken(
                stage, step, producers, consumers, ledger.made[step.computation, step.fusion]
            )
            for name in producers:
                self._taken.setdefault((step.computation, name), []).append(taken)
        for refusal in stage.plan.refusals:
            home = refusal.computation
            blocked = refusal.decision.code == "not-into-all"
            blocker = refusal.decision.words if blocked else ""
            said = Said(
                stage,
                refusal,
                ledger.inside((home, refusal.producer)),
                ledger.inside((home, refusal.consumer)) if refusal.consumer else {},
                dict(ledger.inside((home, blocker))) if blocker else {},
            )
            for name in said.producers:
                self._said.setdefault((home, name), []).append(said)

    def _keep(self, computation: str, name: str, now: str, ledger: Ledger) -> None:
        place = computation, name
        node = self.nodes.get(place)
        if place not in ledger.made and node is None:
            return
        if place not in ledger.made and node is not None and node.opcode in PLUMBING:
            return
        made = KernelFacts(
            computation,
            name,
            ledger.kinds.get(place, ""),
            tuple(sorted(ledger.inside(place), key=lambda one: self._number(computation, one))),
            tuple(ledger.results(place)),
            now,
        )
        self.kernels[place] = made
        for member in made.members:
            self._homes.setdefault((computation, member), []).append(made)

    def _number(self, computation: str, name: str) -> tuple[bool, int]:
        """The order of members: constants, of which there are many, come last."""
        node = self.nodes.get((computation, name))
        if node is None:
            return True, len(self.nodes)
        return node.opcode == "constant", node.number

    def kernels_of(self, place: Place) -> tuple[KernelFacts, ...]:
        """The kernels that compute an instruction; several where it was copied."""
        found = self._homes.get(place)
        loop = self._loop_of.get(place[0])
        if found is None and loop is not None:
            whole = self.kernels.get((loop.computation, loop.fusion))
            found = [whole] if whole is not None else []
        return tuple(found or ())

    def edge(self, producer: Node, consumer: Node) -> Edge:
        """What became of one use of a result."""
        home = producer.computation
        first = self.kernels_of((home, producer.name))
        second = self.kernels_of((home, consumer.name))
        common = tuple(kernel for kernel in second if kernel in first)
        if common:
            return Edge(producer, consumer, first, second, common, self._joined(producer, consumer))
        words = self._words(producer, consumer)
        if not all(node.fusible or node.opcode in PLUMBING for node in (producer, consumer)):
            # A strategy may have stopped at another user of the producer before it came to this one.
            words = tuple(replace(word, options=(), advisable=False) for word in words)
        return Edge(producer, consumer, first, second, (), (), words)

    def _joined(self, producer: Node, consumer: Node) -> tuple[Joined, ...]:
        """The steps that brought the two together."""
        found = [
            taken
            for taken in self._taken.get((producer.computation, producer.name), ())
            if consumer.name in taken.members and consumer.name not in taken.producers
        ]
        return tuple(map(self._step, found))

    def _words(self, producer: Node, consumer: Node | None) -> tuple[Word, ...]:
        """The last word of each run about a pair; about the producer alone where there is no other."""
        found: dict[tuple[int, str], Said] = {}
        exact: set[int] = set()
        for said in self._said_of(producer):
            run, target = said.stage.run, said.refusal.consumer
            if consumer is not None and consumer.name in said.consumers:
                exact.add(run)
                found[run, target] = said
                if said.blocker:
                    found |= self._blocker(producer, said)
            elif not target:
                found[run, target] = said
        return tuple(
            self._word(said)
            for (run, target), said in sorted(found.items(), key=lambda row: row[0][0])
            if target or run not in exact
        )

    def _blocker(self, producer: Node, said: Said) -> dict[tuple[int, str], Said]:
        """What was said of the user that kept a producer from all of its users."""
        place = said.stage.run, said.refusal.decision.words
        others = self._said_of(producer)
        found = [other for other in others if (other.stage.run, other.refusal.consumer) == place]
        return {place: found[-1]} if found else {}

    def _said_of(self, producer: Node) -> Iterator[Said]:
        """What was said of a producer; of an element of a tuple, what was said of who makes them all."""
        home = producer.computation
        node: Node | None = producer
        while node is not None:
            yield from self._said.get((home, node.name), ())
            is_element = node.opcode == "get-tuple-element"
            node = self.nodes.get((home, node.operands[0])) if is_element else None

    def _word(self, said: Said) -> Word:
        refusal = said.refusal
        comparison = refusal.comparison or refusal.decision.comparison
        model = said.stage.plan.cost_model
        if comparison is None and self.times is not None:
            home = refusal.computation
            first = self._standing(home, refusal.producer, said.producers)
            second = self._standing(home, refusal.consumer, said.consumers)
            if said.stage.plan.strategy in _INTO_ALL:
                second = ""
            if first and (second or not refusal.consumer or said.stage.plan.strategy in _INTO_ALL):
                multi_output = said.stage.plan.strategy == "multi-output-fusion"
                if not multi_output or is_advisable(refusal.decision, said.stage.plan.strategy):
                    # What would go around in circles, or have two loops, is no kernel that takes a time.
                    comparison = self.times(home, first, second, multi_output)
                    model = self.model
        comparison = finite(comparison)
        home, decision = refusal.computation, refusal.decision
        if said.blocker:
            decision = replace(decision, words=self._shown(home, decision.words, said.blocker))
        names = (
            self._shown(home, refusal.producer, said.producers),
            self._shown(home, refusal.consumer, said.consumers),
        )
        return Word(
            said.stage.plan.strategy,
            said.stage.run,
            refusal.producer,
            refusal.consumer,
            decision,
            comparison,
            tuple(remedies(refusal.decision, said.stage.instance)),
            is_advisable(refusal.decision, said.stage.plan.strategy),
            model if comparison is not None else "",
            names,
        )

    def _shown(self, computation: str, name: str, members: dict[str, None]) -> str:
        """A name that a reader can look up, in the output or in the input, for one of that moment."""
        return self._now(computation, name, members) or self._last(computation, name, members)

    def _last(self, computation: str, name: str, members: Iterable[str]) -> str:
        """What a kernel computes last, by its name before fusion."""
        last = self._last_node(computation, members)
        return name if last is None else last.name

    def _last_node(self, computation: str, members: Iterable[str]) -> Node | None:
        known = filter(None, (self.nodes.get((computation, one)) for one in members))
        return max(known, key=lambda node: node.number, default=None)

    def _step(self, taken: Taken) -> Joined:
        step, home = taken.step, taken.step.computation
        names = (
            self._last(home, step.producer, taken.producers),
            self._last(home, step.consumer, taken.consumers),
        )
        return Joined(
            taken.stage.plan.strategy,
            taken.stage.run,
            step.producer,
            step.consumer,
            step.fusion,
            step.duplicated,
            step.multi_output,
            finite(step.comparison),
            names,
        )

    def _standing(self, computation: str, name: str, members: dict[str, None]) -> str:
        """The kernel that has become of what a strategy called so; empty where there is none, or several."""
        if not name or (computation, name) in self.kernels:
            return name
        found: set[str] | None = None
        for member in members:
            homes = {kernel.name for kernel in self._homes.get((computation, member), ())}
            found = homes if found is None else found & homes
        return found.pop() if found is not None and len(found) == 1 else ""

    def pair(self, first: Node, second: Node) -> Pair:
        """What there is between two instructions of one computation, in the order of their dependence."""
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

    def _path(self, start: Node, end: Node) -> list[Node]:
        """The nodes from a result to a user of it that lie in fewest kernels, then the fewest; none: empty."""
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
            homes = self._homes.get((node.computation, node.name), [])
            for name in node.users:
                user = self.nodes.get((node.computation, name))
                if user is None or user.number > end.number or name in done:
                    continue
                others = self._homes.get((node.computation, name), [])
                together = any(kernel in homes for kernel in others)
                step = cost[node.name] + (0 if together else 1)
                if name not in cost or step < cost[name]:
                    cost[name], before[name] = step, node.name
                    if together:
                        queue.appendleft(user)
                    else:
                        queue.append(user)
        return []

    def _back(self, end: Node, before: Mapping[str, str]) -> list[Node]:
        path, name = [], end.name
        while name:
            path.append(self.nodes[end.computation, name])
            name = before[name]
        return path[::-1]

    def around(self, node: Node) -> Around:
        """An instruction's kernels, and which neighbours are in none of them."""
        home = node.computation
        kernels = self.kernels_of((home, node.name))
        inside = {member for kernel in kernels for member in kernel.members}
        joined: dict[Joined, None] = {}
        for kernel in kernels:
            for member in kernel.members:
                for taken in self._taken.get((home, member), ()):
                    is_of = taken.step.fusion == kernel.name or taken.members.keys() <= inside
                    if is_of and taken.step.producer != taken.step.consumer:
                        joined[self._step(taken)] = None
        operands = (self.nodes.get((home, name)) for name in node.operands)
        users = (self.nodes.get((home, name)) for name in node.users)
        edges = [
            *(self.edge(operand, node) for operand in operands if operand is not None),
            *(self.edge(node, user) for user in users if user is not None),
        ]
        apart = tuple(edge for edge in edges if not edge.common and not edge.is_plumbing)
        loop = self.loops.get((home, node.name)) or self._loop_of.get(home)
        return Around(node, kernels, tuple(joined), apart, self._words(node, None), loop)

    def looked_at(self) -> list[tuple[LoopFacts, tuple[Word, ...]]]:
        """The loops that a strategy makes kernels of or refuses, with what it said of each."""
        return [
            (facts, self._words(self.nodes[place], None))
            for place, facts in self.loops.items()
            if place in self.nodes
        ]

    def lost(self, most: int, runs: Mapping[str, int]) -> list[Lost]:
        """The refusals that cost most, by the times of strategies and cost model: one of each producer.

        ``runs`` is how often computations run, by name; once where it does not say.
        """
        found: dict[Place, list[tuple[Word, Said]]] = {}
        for said in self._last_words():
            word = self._word(said)
            if word.comparison is not None and word.comparison.gain_us > 0:
                place = said.refusal.computation, said.refusal.producer
                found.setdefault(place, []).append((word, said))
        rows = [
            self._lost(place[0], words, runs.get(place[0], 1)) for place, words in found.items()
        ]
        return sorted(rows, key=lambda row: (-row.lost_us, row.word.producer))[:most]

    def _lost(self, computation: str, words: list[tuple[Word, Said]], runs: int) -> Lost:
        def gain(pair: tuple[Word, Said]) -> float:
            comparison = pair[0].comparison
            return comparison.gain_us if comparison is not None else 0.0

        word, said = max(words, key=gain)
        # What a kernel computes last stands for it.
        node = self._last_node(computation, said.producers)
        where = (next(iter(node.sources), ""), node.place) if node is not None else ("", "")
        refusal = said.refusal
        return Lost(
            computation,
            word,
            *where,
            len(words) - 1,
            self._now(computation, refusal.producer, said.producers),
            self._now(computation, refusal.consumer, said.consumers),
            runs,
        )

    def _now(self, computation: str, name: str, members: dict[str, None]) -> str:
        """What has become of what a strategy called so, by its name after all passes."""
        kernel = self.kernels.get((computation, self._standing(computation, name, members)))
        return kernel.now if kernel is not None else ""

    def _last_words(self) -> Iterator[Said]:
        """Of each pair of kernels that stands after all strategies, the last refusal."""
        last: dict[tuple[str, str, str], Said] = {}
        for rows in self._said.values():
            for said in rows:
                refusal, home = said.refusal, said.refusal.computation
                first = self._standing(home, refusal.producer, said.producers)
                second = self._standing(home, refusal.consumer, said.consumers)
                if first and first != second and bool(second) == bool(refusal.consumer):
                    known = last.get((home, first, second))
                    if known is None or known.stage.run < said.stage.run:
                        last[home, first, second] = said
        yield from last.values()
