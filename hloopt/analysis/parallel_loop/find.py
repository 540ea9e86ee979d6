"""Finding the parallel axes of a ``while``.

1. Values that depend on nothing but invariants, constants, numbers counted by ``iota`` and small elements of
   the state that do so themselves are free: any unit may compute any element of them.
2. Dimensions of all other values are tied into classes, op by op (``classes``); a class is mixed where an op
   reads such a value at other indices than its own along it.
3. Of the classes that nobody mixes, sets that elements of the state have in common may be the axes; taken is
   the one in which units share most of the work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Final

from hloopt.analysis.parallel_loop.axes import Axis, Chooser
from hloopt.analysis.parallel_loop.classes import Classes, Dim, Mixed
from hloopt.analysis.parallel_loop.collect import Collected, Collector
from hloopt.analysis.parallel_loop.edges import Graph, graph_of, reached, shape_of
from hloopt.analysis.parallel_loop.model import (
    Axes,
    Carried,
    Mixing,
    Node,
    ParallelLoop,
    Role,
    Sharing,
    Trips,
)
from hloopt.analysis.parallel_loop.state import State
from hloopt.analysis.parallel_loop.work import Work
from hloopt.ir import Computation, Instruction
from hloopt.types import ArrayShape, TupleShape

__all__ = ["parallel_loop"]

_SHARING: Final = Sharing()


def parallel_loop(
    loop: Instruction, *, collect: bool = True, sharing: Sharing = _SHARING
) -> ParallelLoop:
    """The axes of a ``while``, what it carries and what mixes.

    ``collect``: reduces over an axis that only go into streamed elements leave the axis parallel.
    Costs are linear in instructions.
    """
    obstacle = _state_obstacle(loop)
    graph = graph_of(loop)
    if obstacle is None:
        obstacle = graph.obstacle
    if obstacle is not None:
        return ParallelLoop(loop, (), (), {}, Trips("scalar"), obstacle=obstacle)
    return _Finder(loop, graph, collect, sharing).find()


def _state_obstacle(loop: Instruction) -> Mixing | None:
    body: Computation = loop.attributes["body"]
    shape = loop.shape
    if not isinstance(shape, TupleShape) or body.root.opcode != "tuple":
        return Mixing(loop, "its state is not put together by a tuple; flatten it first")
    if not all(isinstance(element, ArrayShape) for element in shape.elements):
        for number, element in enumerate(shape.elements):
            if not isinstance(element, ArrayShape):
                return Mixing(loop, f"element {number} of its state is a {_kind(element)}")
    return None


def _kind(shape: object) -> str:
    return "tuple" if isinstance(shape, TupleShape) else str(shape)


class _Finder:
    def __init__(self, loop: Instruction, graph: Graph, collect: bool, sharing: Sharing) -> None:
        self.graph = graph
        self.state = State(loop)
        self.users = graph.users()
        self.owned = self._owned(sharing.free)
        self.classes = Classes(self.owned)
        self.collector = Collector(self.state, graph, self.users, self.owned)
        self.collect = collect
        self.sharing = sharing

    def _owned(self, free: int) -> dict[Node, None]:
        """The nodes that are not free."""
        state = self.state
        changing = [number for number in range(state.count) if number not in state.invariant]
        leaves = {
            number for number in changing if shape_of((state.parameter, number)).elements > free
        }
        while True:
            starts = [
                (parameter, number)
                for parameter in (state.parameter, state.condition.parameters[0])
                for number in sorted(leaves)
            ]
            owned = reached(self.users, starts)
            more = {number for number in changing if (state.body.root, number) in owned}
            if more <= leaves:
                return owned
            leaves |= more

    def _tie(self) -> None:
        state = self.state
        self.classes.link(self.graph.same)
        parameter = state.condition.parameters[0]
        for number in range(state.count):
            if number not in state.invariant:
                pairs = (
                    ((state.body.root, number), (state.parameter, number)),
                    ((state.parameter, number), (parameter, number)),
                )
                self.classes.link(pairs)
        ops = self.graph.ops
        if state.bounds.exact is not None:
            # Nobody asks the condition then.
            ops = [one for one in ops if one.computation is not state.condition]
        self.classes.relate(ops)

    def find(self) -> ParallelLoop:
        self._tie()
        chooser = Chooser(
            self.state, self.classes, Work(self.state, self.graph, self.classes), self.sharing
        )
        spared: dict[Instruction, None] = {}
        refused: dict[Instruction, str] = {}
        if self.collect:
            spared = dict.fromkeys(self.collector.candidates)
            refused = dict(self.collector.refused)
        while True:
            mixed = self.classes.mixed(spared)
            choice = chooser.choose(mixed, self.collector.collected(spared).after)
            collected = self._collected(spared, [one.key for one in choice.axes])
            if not collected.refused:
                break
            for one, why in collected.refused.items():
                del spared[one]
                refused[one] = why
        return self._answer({**choice.left, **mixed}, choice.axes, collected, refused)

    def _collected(self, spared: Collection[Instruction], axes: Collection[Dim]) -> Collected:
        """What is collected of ``spared``; a reduce over a part of the axes is not."""
        over: list[Instruction] = []
        refused: dict[Instruction, str] = {}
        for reduce in spared:
            dims = range(reduce.operands[0].array.rank)
            along = {dim: self.classes.of((reduce.operands[0], 0), dim) for dim in dims}
            reduced = {along[dim] for dim in reduce.attributes["dimensions"]}
            if not reduced.isdisjoint(axes):
                if reduced.issuperset(axes):
                    over.append(reduce)
                else:
                    refused[reduce] = "other axes are left"
        found = self.collector.collected(over)
        return Collected(found.reduces, found.after, {**found.refused, **refused})

    def _answer(
        self,
        mixed: Mixed,
        axes: tuple[Axis, ...],
        collected: Collected,
        refused: dict[Instruction, str],
    ) -> ParallelLoop:
        numbers = {one.key: number for number, one in enumerate(axes)}
        owned: dict[Node, Axes] = {}
        for node in self.owned:
            owned[node] = tuple(
                numbers.get(self.classes.of(node, dim)) if size != 1 else None
                for dim, size in enumerate(shape_of(node).dims)
            )
        return ParallelLoop(
            self.state.loop,
            tuple(one.size for one in axes),
            tuple(self._carried(number, owned) for number in range(self.state.count)),
            owned,
            self._trips(owned),
            tuple(self._mixing(mixed, refused)),
            collected.reduces,
            collected.after,
            self.state.counters,
        )

    def _mixing(self, mixed: Mixed, refused: dict[Instruction, str]) -> list[Mixing]:
        """What a user should look at: what keeps a large dimension of the state local comes first."""
        sizes: dict[Dim, int] = defaultdict(int)
        state = self.state
        for number in range(state.count):
            node = state.parameter, number
            if node in self.owned and number not in state.updates:
                for dim, size in enumerate(shape_of(node).dims):
                    sizes[self.classes.of(node, dim)] = size
        updates = set(state.updates.values())
        found: dict[Mixing, None] = {}
        for key in sorted(mixed, key=lambda key: -sizes[key]):
            mixing = mixed[key]
            why = refused.get(mixing.instruction)
            if mixing.instruction in updates:
                continue
            found[Mixing(mixing.instruction, f"{mixing.words}; {why}") if why else mixing] = None
        return list(found)

    def _carried(self, number: int, owned: dict[Node, Axes]) -> Carried:
        node = self.state.parameter, number
        shape = shape_of(node)
        nowhere: Axes = (None,) * shape.rank
        if number in self.state.invariant:
            return Carried(number, shape, "invariant", nowhere)
        axes = owned.get(node, nowhere)
        update = self.state.updates.get(number)
        if update is not None:
            return Carried(number, shape, "streamed", axes, update)
        role: Role = "owned" if any(axis is not None for axis in axes) else "uniform"
        return Carried(number, shape, role, axes)

    def _trips(self, owned: dict[Node, Axes]) -> Trips:
        bounds = self.state.bounds
        if bounds.exact is not None:
            return Trips("known", bounds.exact, bounds.exact)
        if (self.state.condition.root, 0) in owned:
            return Trips("gathered", None, bounds.most)
        return Trips("scalar", None, bounds.most)
