"""Finding the parallel axes of a ``while``.

1. Values that depend on nothing but invariants, constants, numbers counted by ``iota`` and small elements of
   the state that do so themselves are free: any work item may compute any element of them.
2. Dimensions of all other values are tied into classes, op by op (``classes``); a class is mixed where an op
   reads such a value at other indices than its own along it.
3. Of the classes that nothing mixes, sets that elements of the state have in common may be the axes; taken is
   the one in which work items share most of the work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, Literal

from hloopt.analysis.parallel_loop.axes import AxisChooser, ParallelAxis
from hloopt.analysis.parallel_loop.classes import Dim, DimensionClasses, Mixed
from hloopt.analysis.parallel_loop.collect import Collected, Collector
from hloopt.analysis.parallel_loop.edges import LoopGraph, graph_of, reached, shape_of
from hloopt.analysis.parallel_loop.model import (
    Axes,
    Carried,
    CarriedRole,
    Dependence,
    LoopNode,
    ParallelLoop,
    Sharing,
    Termination,
)
from hloopt.analysis.parallel_loop.rest import rest
from hloopt.analysis.parallel_loop.state import LoopState
from hloopt.analysis.parallel_loop.work import LoopWork
from hloopt.ir import Instruction
from hloopt.types import ArrayShape, TupleShape

__all__ = ["parallel_loop"]

_SHARING: Final = Sharing()


def parallel_loop(
    loop: Instruction, *, collect: bool = True, sharing: Sharing = _SHARING
) -> ParallelLoop:
    """The axes of a ``while``, what it carries and what mixes.

    ``collect``: reduces over an axis that only go into streamed elements leave the axis parallel.
    Costs are linear in instructions, and in how deep loops are nested.
    """
    return _found(loop, collect, sharing, {})


def _found(
    loop: Instruction,
    collect: bool,
    sharing: Sharing,
    known: dict[Instruction, ParallelLoop],
) -> ParallelLoop:
    """As ``parallel_loop``; ``known`` are loops inside that were analysed before."""
    graph = graph_of(loop)
    obstacle = _state_obstacle(loop) or graph.obstacle
    if obstacle is None:
        for inner in graph.loops:
            if inner not in known:
                known[inner] = _found(inner, False, sharing, known)
            obstacle = obstacle or known[inner].obstacle
    if obstacle is not None:
        return ParallelLoop(loop, (), (), {}, Termination("scalar"), obstacle=obstacle)
    nested = {inner: known[inner] for inner in graph.loops}
    return _Finder(loop, graph, collect, sharing, nested).find()


def _state_obstacle(loop: Instruction) -> Dependence | None:
    body = loop.body
    shape = loop.shape
    if not isinstance(shape, TupleShape) or body.root.opcode != "tuple":
        return Dependence(loop, "its state is not put together by a tuple; flatten it first")
    for number, element in enumerate(shape.elements):
        if not isinstance(element, ArrayShape):
            return Dependence(loop, f"element {number} of its state is a tuple; flatten it first")
        if not element.dtype.is_array:
            words = f"element {number} of its state is a {element.dtype.name}"
            return Dependence(
                body.parameters[0], f"{words}, which orders what is outside of kernels"
            )
    return None


class _Finder:
    def __init__(
        self,
        loop: Instruction,
        graph: LoopGraph,
        collect: bool,
        sharing: Sharing,
        nested: Mapping[Instruction, ParallelLoop],
    ) -> None:
        self.graph = graph
        self.nested = nested
        self.state = LoopState(loop)
        users = graph.users()
        self.owned = self._owned(users, sharing.free)
        self.classes = DimensionClasses(self.owned)
        self.collector = Collector(self.state, graph, users, self.owned)
        work = LoopWork(self.state, graph, self.classes, nested)
        self.chooser = AxisChooser(self.state, self.classes, work, sharing)
        self.collect = collect
        self.refused: dict[Instruction, str] = {}

    def _owned(self, users: Mapping[LoopNode, list[LoopNode]], free: int) -> dict[LoopNode, None]:
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
            owned = reached(users, starts)
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
            # The condition is not evaluated then.
            ops = [one for one in ops if one.computation is not state.condition]
        self.classes.relate(ops)
        self.classes.tie()

    def find(self) -> ParallelLoop:
        self._tie()
        # What does not mix if the axes turn out to be right for it, until they do not.
        spared = dict(self._stopping_inside())
        state = self.state
        nodes = ((state.parameter, number) for number in range(state.count))
        self.classes.pair(
            [node for node in nodes if node in self.owned], self.classes.mixed(spared)
        )
        condition_reduces = self._condition_reduces()
        collectable: dict[Instruction, None] = {}
        if self.collect:
            collectable = dict.fromkeys(self.collector.candidates)
            self.refused.update(self.collector.refused)
        while True:
            every = (*condition_reduces, *collectable)
            mixed = self.classes.mixed(spared | {one: _all_dims(one) for one in every})
            choice = self.chooser.choose(mixed, self.collector.collected(collectable).after)
            collected = self._collected(collectable, [one.key for one in choice.axes])
            for one, why in collected.refused.items():
                del collectable[one]
                self.refused[one] = why
            if collected.refused:
                continue
            owned = self._owned_axes(choice.axes)
            iterations = self._iterations(choice.axes, owned, condition_reduces)
            if iterations is not None:
                every = (*condition_reduces, *collected.reduces)
                mixed = self.classes.mixed(spared | {one: _all_dims(one) for one in every})
                return self._answer(
                    {**choice.left, **mixed}, choice.axes, collected, owned, iterations
                )
            condition_reduces = []

    def _stopping_inside(self) -> Iterator[tuple[Instruction, frozenset[int]]]:
        """Reduces in conditions of loops inside, whose work items stop each by itself, and over what."""
        for inner in self.nested.values():
            for reduce in inner.iterations.reduces:
                axes = inner.owned[reduce.operands[0], 0]
                yield reduce, frozenset(dim for dim, axis in enumerate(axes) if axis is not None)

    def _condition_reduces(self) -> list[Instruction]:
        """Reduces in the condition."""
        if self.state.bounds.exact is not None:
            return []
        return [
            one
            for one in self.graph.ops
            if one.opcode == "reduce" and one.computation is self.state.condition
        ]

    def _collected(self, candidates: Collection[Instruction], axes: Collection[Dim]) -> Collected:
        """What is collected of the candidates; a reduce over a part of the axes is not."""
        over: list[Instruction] = []
        refused: dict[Instruction, str] = {}
        for reduce in candidates:
            dims = reduce.attributes["dimensions"]
            reduced = {self.classes.of((reduce.operands[0], 0), dim) for dim in dims}
            if reduced.issuperset(axes) and axes:
                over.append(reduce)
            elif not reduced.isdisjoint(axes):
                refused[reduce] = "other axes are left"
        found = self.collector.collected(over)
        return Collected(found.reduces, found.after, {**found.refused, **refused})

    def _owned_axes(self, axes: Sequence[ParallelAxis]) -> dict[LoopNode, Axes]:
        numbers = {one.key: number for number, one in enumerate(axes)}
        along: dict[LoopNode, Axes] = {
            head: tuple(
                numbers.get(self.classes.of(head, dim)) if size != 1 else None
                for dim, size in enumerate(shape_of(head).dims)
            )
            for head in self.classes.groups
        }
        return {node: along[self.classes.head(node)] for node in self.owned}

    def _iterations(
        self,
        axes: Sequence[ParallelAxis],
        owned: Mapping[LoopNode, Axes],
        condition_reduces: Collection[Instruction],
    ) -> Termination | None:
        """How long it runs; None where work items cannot stop by themselves."""
        bounds = self.state.bounds
        if bounds.exact is not None:
            return Termination("known", bounds.exact, bounds.exact)
        over = [
            one for one in condition_reduces if any(axis is not None for axis in _of(owned, one))
        ]
        if over:
            found = rest(self.state, owned)
            if not found.problem:
                return Termination("element", None, bounds.most, found.own, found.reduces)
            self.refused.update((one, found.problem) for one in over)
            return None
        words = [why for one, why in self.refused.items() if self._is_in_condition(one)]
        # Where there are axes, every work item has all that the condition reads.
        kind: Literal["gathered", "scalar"] = "gathered" if words and not axes else "scalar"
        return Termination(kind, None, bounds.most, words="; ".join(words[:1]))

    def _is_in_condition(self, reduce: Instruction) -> bool:
        return reduce.computation is self.state.condition

    def _answer(
        self,
        mixed: Mixed,
        axes: Sequence[ParallelAxis],
        collected: Collected,
        owned: Mapping[LoopNode, Axes],
        iterations: Termination,
    ) -> ParallelLoop:
        return ParallelLoop(
            self.state.loop,
            tuple(one.size for one in axes),
            tuple(self._carried(number, owned) for number in range(self.state.count)),
            owned,
            iterations,
            tuple(self._mixing(mixed)),
            collected.reduces,
            collected.after,
            self.state.counters,
            self.nested,
        )

    def _mixing(self, mixed: Mixed) -> list[Dependence]:
        """What a user should look at: what keeps a large dimension of the state local comes first."""
        sizes: dict[Dim, int] = defaultdict(int)
        state = self.state
        for number in range(state.count):
            node = state.parameter, number
            if node in self.owned and number not in state.updates:
                for dim, size in enumerate(shape_of(node).dims):
                    sizes[self.classes.of(node, dim)] = size
        updates = set(state.updates.values())
        found: dict[Dependence, None] = {}
        for key in sorted(mixed, key=lambda key: -sizes[key]):
            mixing = mixed[key]
            why = self.refused.get(mixing.instruction)
            if mixing.instruction in updates:
                continue
            found[Dependence(mixing.instruction, f"{mixing.words}; {why}") if why else mixing] = (
                None
            )
        return list(found)

    def _carried(self, number: int, owned: Mapping[LoopNode, Axes]) -> Carried:
        node = self.state.parameter, number
        shape = shape_of(node)
        nowhere: Axes = (None,) * shape.rank
        if number in self.state.invariant:
            return Carried(number, shape, "invariant", nowhere)
        axes = owned.get(node, nowhere)
        update = self.state.updates.get(number)
        if update is not None:
            return Carried(number, shape, "streamed", axes, update)
        role: CarriedRole = "owned" if any(axis is not None for axis in axes) else "uniform"
        return Carried(number, shape, role, axes)


def _all_dims(one: Instruction) -> range:
    return range(one.operands[0].array.rank)


def _of(owned: Mapping[LoopNode, Axes], one: Instruction) -> Axes:
    """The axes of what a reduce reduces."""
    axes = owned.get((one.operands[0], 0), ())
    return tuple(axes[dim] for dim in one.attributes["dimensions"]) if axes else ()
