"""Why instructions are or are not in one kernel: the facts, from the plans of strategies.

A story is about the graph before the first strategy (``trail.Node``) and says what became of it.  It knows no
module, so that plans of another compiler serve as well: ``Story(nodes, stages, alive)``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from hloopt.cost_models.model import Comparison
from hloopt.fusion.decision import Decision
from hloopt.fusion.ledger import Ledger
from hloopt.fusion.plan import FusionStep, Refusal
from hloopt.fusion.remedies import is_advisable, remedies
from hloopt.fusion.trail import Node, Stage

__all__ = [
    "PLUMBING",
    "Around",
    "Edge",
    "Joined",
    "KernelFacts",
    "Lost",
    "Pair",
    "Place",
    "Story",
    "Word",
]

Place = tuple[str, str]
"""Computation and name."""
Times = Callable[[str, str, str], Comparison | None]
"""Computation, producer and consumer after all strategies: the times apart and fused, where a model tells."""

PLUMBING: Final = frozenset({"parameter", "tuple", "get-tuple-element"})
"""What no kernel computes."""
_FAR: Final = 10_000
"""Nodes that a search for a path looks at before it gives up."""


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """A kernel: a fusion with its members, or an instruction by itself (``kind`` is empty).

    ``outputs`` are the members whose results it gives, ``now`` what it is called after all passes: empty where
    it is gone.
    """

    computation: str
    name: str
    kind: str
    members: tuple[str, ...]
    outputs: tuple[str, ...]
    now: str = ""


@dataclass(frozen=True, slots=True)
class Word:
    """What a strategy said about a pair that it kept apart; names are those of that moment.

    options     the pass with the option that would let the pair through
    advisable   whether a rule or lock file of the user could have it otherwise
    comparison  the times it believed in, or those of the cost model
    model       whose times these are
    """

    pass_name: str
    run: int
    producer: str
    consumer: str
    decision: Decision
    comparison: Comparison | None
    options: tuple[str, ...] = ()
    advisable: bool = False
    model: str = ""


@dataclass(frozen=True, slots=True)
class Joined:
    """How a producer came into a kernel."""

    pass_name: str
    run: int
    producer: str
    consumer: str
    fusion: str
    duplicated: bool
    multi_output: bool
    comparison: Comparison | None


@dataclass(frozen=True, slots=True)
class Edge:
    """A result and one user of it; ``common`` are the kernels that have both, else ``words`` say why none has.

    ``joined`` tells how they came together.  ``words`` has the last word of each run, the latest last.
    """

    producer: Node
    consumer: Node
    producer_kernels: tuple[KernelFacts, ...]
    consumer_kernels: tuple[KernelFacts, ...]
    common: tuple[KernelFacts, ...]
    joined: tuple[Joined, ...] = ()
    words: tuple[Word, ...] = ()

    @property
    def is_plumbing(self) -> bool:
        """Whether no kernel computes one of the two."""
        return self.producer.opcode in PLUMBING or self.consumer.opcode in PLUMBING


@dataclass(frozen=True, slots=True)
class Pair:
    """Two instructions: ``relation`` is ``path`` (second needs first), ``siblings`` or ``none``.

    ``edges`` are those of the path that crosses fewest kernels; ``shared`` names what siblings both read.
    """

    first: Node
    second: Node
    relation: str
    common: tuple[KernelFacts, ...]
    edges: tuple[Edge, ...] = ()
    shared: tuple[str, ...] = ()
    words: tuple[Word, ...] = ()


@dataclass(frozen=True, slots=True)
class Around:
    """One instruction: its kernels, how they came about, and its neighbours that are in none of them."""

    node: Node
    kernels: tuple[KernelFacts, ...]
    joined: tuple[Joined, ...]
    apart: tuple[Edge, ...]
    words: tuple[Word, ...] = ()


@dataclass(frozen=True, slots=True)
class Lost:
    """The refusal of a producer that costs most by the cost model; ``others`` are consumers that cost less."""

    computation: str
    word: Word
    source: str
    place: str
    others: int = 0

    @property
    def lost_us(self) -> float:
        """What fusing would save."""
        return self.word.comparison.gain_us if self.word.comparison is not None else 0.0


@dataclass
class _Said:
    """A refusal with what its names stood for."""

    stage: Stage
    refusal: Refusal
    producers: dict[str, None]
    consumers: dict[str, None]


@dataclass
class _Taken:
    """A step, what its producer was then, and what its fusion held in the end."""

    stage: Stage
    step: FusionStep
    producers: dict[str, None]
    members: dict[str, None]


@dataclass
class Story:
    """What became of ``nodes``.

    alive   computations and names of what stands there after the last strategy, and what it is called
            after all passes
    times   gives those that a strategy did not ask for, by the cost model called ``model``
    """

    nodes: Mapping[Place, Node]
    stages: Sequence[Stage]
    alive: Mapping[Place, str]
    times: Times | None = None
    model: str = ""
    kernels: dict[Place, KernelFacts] = field(default_factory=dict)
    _homes: dict[Place, list[KernelFacts]] = field(default_factory=dict)
    _said: dict[Place, list[_Said]] = field(default_factory=dict)
    _taken: dict[Place, list[_Taken]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ledger = Ledger()
        for stage in self.stages:
            self._read(stage, ledger)
        for (computation, name), now in self.alive.items():
            self._keep(computation, name, now, ledger)

    def _read(self, stage: Stage, ledger: Ledger) -> None:
        for step in stage.plan.steps:
            producers = dict(ledger.inside((step.computation, step.producer)))
            ledger.record(
                step.computation,
                step.producer,
                step.consumer,
                step.fusion,
                step.kind,
                multi_output=step.multi_output,
            )
            taken = _Taken(stage, step, producers, ledger.made[step.computation, step.fusion])
            for name in producers:
                self._taken.setdefault((step.computation, name), []).append(taken)
        for refusal in stage.plan.refusals:
            home = refusal.computation
            said = _Said(
                stage,
                refusal,
                ledger.inside((home, refusal.producer)),
                ledger.inside((home, refusal.consumer)) if refusal.consumer else {},
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

    def _number(self, computation: str, name: str) -> int:
        node = self.nodes.get((computation, name))
        return node.number if node is not None else len(self.nodes)

    def kernels_of(self, place: Place) -> tuple[KernelFacts, ...]:
        """The kernels that compute an instruction; several where it was copied."""
        return tuple(self._homes.get(place, ()))

    def edge(self, producer: Node, consumer: Node) -> Edge:
        """What became of one use of a result."""
        home = producer.computation
        first = self.kernels_of((home, producer.name))
        second = self.kernels_of((home, consumer.name))
        common = tuple(kernel for kernel in second if kernel in first)
        if common:
            return Edge(producer, consumer, first, second, common, self._joined(producer, consumer))
        return Edge(producer, consumer, first, second, (), (), self._words(producer, consumer))

    def _joined(self, producer: Node, consumer: Node) -> tuple[Joined, ...]:
        """The steps that brought the two together."""
        found = [
            taken
            for taken in self._taken.get((producer.computation, producer.name), ())
            if consumer.name in taken.members and consumer.name not in taken.producers
        ]
        return tuple(map(_joined, found))

    def _words(self, producer: Node, consumer: Node | None) -> tuple[Word, ...]:
        """The last word of each run about a pair; about the producer alone where there is no other."""
        last: dict[int, tuple[bool, _Said]] = {}
        for said in self._said_of(producer):
            exact = consumer is not None and consumer.name in said.consumers
            if said.refusal.consumer and not exact:
                continue
            known = last.get(said.stage.run)
            if known is None or exact or not known[0]:
                last[said.stage.run] = exact, said
        return tuple(self._word(said) for _, (_, said) in sorted(last.items()))

    def _said_of(self, producer: Node) -> Iterator[_Said]:
        """What was said of a producer; of an element of a tuple, what was said of who makes them all."""
        home = producer.computation
        node: Node | None = producer
        while node is not None:
            yield from self._said.get((home, node.name), ())
            is_element = node.opcode == "get-tuple-element"
            node = self.nodes.get((home, node.operands[0])) if is_element else None

    def _word(self, said: _Said) -> Word:
        refusal = said.refusal
        comparison = refusal.comparison or refusal.decision.comparison
        model = said.stage.plan.cost_model
        if comparison is None and self.times is not None and refusal.consumer:
            comparison = self.times(refusal.computation, refusal.producer, refusal.consumer)
            model = self.model
        return Word(
            said.stage.plan.strategy,
            said.stage.run,
            refusal.producer,
            refusal.consumer,
            refusal.decision,
            comparison,
            tuple(remedies(refusal.decision, said.stage.instance)),
            is_advisable(refusal.decision),
            model if comparison is not None else "",
        )

    def pair(self, first: Node, second: Node) -> Pair:
        """What there is between two instructions of one computation, in the order of their dependence."""
        a, b = (self.kernels_of((node.computation, node.name)) for node in (first, second))
        common = tuple(kernel for kernel in b if kernel in a)
        if first.computation != second.computation:
            words = (*self._words(first, second), *self._words(second, first))
            exact = tuple(word for word in words if word.consumer)
            return Pair(first, second, "none", common, words=exact)
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
                    if taken.step.fusion == kernel.name or taken.members.keys() <= inside:
                        joined[_joined(taken)] = None
        operands = (self.nodes.get((home, name)) for name in node.operands)
        users = (self.nodes.get((home, name)) for name in node.users)
        edges = [
            *(self.edge(operand, node) for operand in operands if operand is not None),
            *(self.edge(node, user) for user in users if user is not None),
        ]
        apart = tuple(edge for edge in edges if not edge.common and not edge.is_plumbing)
        return Around(node, kernels, tuple(joined), apart, self._words(node, None))

    def lost(self, most: int) -> list[Lost]:
        """The refusals that cost most, by the times of strategies and cost model: one of each producer."""
        found: dict[Place, list[tuple[Word, _Said]]] = {}
        for said in self._last_words():
            word = self._word(said)
            if word.comparison is not None and word.comparison.gain_us > 0:
                place = said.refusal.computation, said.refusal.producer
                found.setdefault(place, []).append((word, said))
        rows = [self._lost(place[0], words) for place, words in found.items()]
        return sorted(rows, key=lambda row: (-row.lost_us, row.word.producer))[:most]

    def _lost(self, computation: str, words: list[tuple[Word, _Said]]) -> Lost:
        def gain(pair: tuple[Word, _Said]) -> float:
            comparison = pair[0].comparison
            return comparison.gain_us if comparison is not None else 0.0

        word, said = max(words, key=gain)
        node = self.nodes.get((computation, next(iter(said.producers))))
        where = (node.source, node.place) if node is not None else ("", "")
        return Lost(computation, word, *where, len(words) - 1)

    def _last_words(self) -> Iterator[_Said]:
        """Of each pair that stands after all strategies, the last refusal."""
        last: dict[tuple[str, str, str], _Said] = {}
        for rows in self._said.values():
            for said in rows:
                refusal = said.refusal
                place = refusal.computation, refusal.producer, refusal.consumer
                known = last.get(place)
                if known is None or known.stage.run < said.stage.run:
                    last[place] = said
        for (home, producer, consumer), said in last.items():
            if (home, producer) in self.kernels and (
                not consumer or (home, consumer) in self.kernels
            ):
                yield said


def _joined(taken: _Taken) -> Joined:
    step = taken.step
    return Joined(
        taken.stage.plan.strategy,
        taken.stage.run,
        step.producer,
        step.consumer,
        step.fusion,
        step.duplicated,
        step.multi_output,
        step.comparison,
    )
