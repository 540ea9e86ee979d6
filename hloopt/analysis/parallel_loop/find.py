"""Finding the parallel axes of a ``while``.

1. Values that depend on nothing but invariants, constants, numbers counted by ``iota`` and small elements of
   the state that do so themselves are free: any unit may compute any element of them.
2. Dimensions of all other values are tied into classes, op by op (``ties``); a class is mixed where an op
   reads such a value at other indices than its own along it.
3. Of the classes that nobody mixes, those that the heaviest elements of the state have in common are the axes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from hloopt.analysis.parallel_loop.edges import Graph, graph_of, leaf_count, shape_of
from hloopt.analysis.parallel_loop.model import (
    Axes,
    Carried,
    Mixing,
    Node,
    ParallelLoop,
    Role,
    Trips,
)
from hloopt.analysis.parallel_loop.ties import relations
from hloopt.analysis.trip_count import trip_bounds
from hloopt.ir import Computation, Instruction
from hloopt.types import ArrayShape, TupleShape

__all__ = ["FREE_ELEMENTS", "parallel_loop"]

FREE_ELEMENTS: Final = 16
"""An element of the state of so many elements at most may be computed by every unit alike."""

_Dim = tuple[Instruction, int, int]


def parallel_loop(loop: Instruction, *, collect: bool = True) -> ParallelLoop:
    """The axes of a ``while``, what it carries and what mixes.

    ``collect``: reduces over an axis that only go into streamed elements leave the axis parallel.
    """
    obstacle = _state_obstacle(loop)
    graph = graph_of(loop)
    if obstacle is None:
        obstacle = graph.obstacle
    if obstacle is not None:
        return ParallelLoop(loop, (), (), {}, Trips("scalar"), obstacle=obstacle)
    return _Finder(loop, graph).find()


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


@dataclass
class _Classes:
    """Dimensions that are tied together."""

    parents: dict[_Dim, _Dim] = field(default_factory=dict)

    def find(self, dim: _Dim) -> _Dim:
        root = dim
        while (above := self.parents.get(root, root)) != root:
            root = above
        while dim != root:
            self.parents[dim], dim = root, self.parents.get(dim, dim)
        return root

    def tie(self, one: _Dim, other: _Dim) -> None:
        one, other = self.find(one), self.find(other)
        if one != other:
            self.parents[other] = one


class _Finder:
    def __init__(self, loop: Instruction, graph: Graph) -> None:
        self.loop = loop
        self.graph = graph
        self.body: Computation = loop.attributes["body"]
        self.condition: Computation = loop.attributes["condition"]
        self.state = self.body.parameters[0]
        self.invariant = {
            number
            for number, value in enumerate(self.body.root.operands)
            if _is_read(value, self.state, number)
        }
        self.classes = _Classes()
        self.mixed: dict[_Dim, Mixing] = {}

    # ---- 1: what depends on the index of a unit -----------------------------------------------------

    @cached_property
    def owned(self) -> frozenset[Node]:
        """The nodes that are not free."""
        shapes = [shape_of((self.state, number)) for number in range(leaf_count(self.state))]
        leaves = {
            number
            for number, shape in enumerate(shapes)
            if number not in self.invariant and shape.elements > FREE_ELEMENTS
        }
        while True:
            owned = self._reached(leaves)
            more = {
                number
                for number in range(len(shapes))
                if number not in self.invariant and (self.body.root, number) in owned
            }
            if more <= leaves:
                return owned
            leaves |= more

    def _reached(self, leaves: Iterable[int]) -> frozenset[Node]:
        users = self._users
        found: set[Node] = set()
        pending: list[Node] = []
        for number in leaves:
            pending += [(self.state, number), (self.condition.parameters[0], number)]
        while pending:
            node = pending.pop()
            if node not in found:
                found.add(node)
                pending += users[node]
        return frozenset(found)

    @cached_property
    def _users(self) -> dict[Node, list[Node]]:
        users: dict[Node, list[Node]] = defaultdict(list)
        for source, target in self.graph.same:
            users[source].append(target)
        for instruction in self.graph.ops:
            results = [(instruction, leaf) for leaf in range(leaf_count(instruction))]
            for operand in instruction.operands:
                for leaf in range(leaf_count(operand)):
                    users[operand, leaf] += results
        return users

    # ---- 2: ties ------------------------------------------------------------------------------------

    def tie(self) -> None:
        for source, target in self._same():
            if source in self.owned and target in self.owned:
                for dim in range(shape_of(source).rank):
                    self.classes.tie((*source, dim), (*target, dim))
        for instruction in self.graph.ops:
            for relation in relations(instruction):
                operand = instruction.operands[relation.operand]
                if (operand, 0) not in self.owned:
                    continue
                if relation.result is not None:
                    for leaf in range(leaf_count(instruction)):
                        self.classes.tie(
                            (operand, 0, relation.dim), (instruction, leaf, relation.result)
                        )
        for instruction in self.graph.ops:
            self._mix(instruction)
        for node in self.owned:
            self._alone(node)

    def _same(self) -> Iterator[tuple[Node, Node]]:
        yield from self.graph.same
        parameter = self.condition.parameters[0]
        for number in range(leaf_count(self.state)):
            if number not in self.invariant:
                yield (self.body.root, number), (self.state, number)
                yield (self.state, number), (parameter, number)

    def _mix(self, instruction: Instruction) -> None:
        for relation in relations(instruction):
            operand = instruction.operands[relation.operand]
            if relation.result is None and (operand, 0) in self.owned:
                size = operand.array.dims[relation.dim]
                words = (
                    f"{instruction.opcode} {instruction.name} mixes the {size} elements of"
                    f" dimension {relation.dim} of {operand.name}"
                )
                key = self.classes.find((operand, 0, relation.dim))
                self.mixed.setdefault(key, Mixing(instruction, words))

    def _alone(self, node: Node) -> None:
        """Two dimensions of a value along one axis: no unit has what lies off the diagonal."""
        seen: dict[_Dim, int] = {}
        for dim, size in enumerate(shape_of(node).dims):
            key = self.classes.find((*node, dim))
            if size != 1 and key in seen:
                words = (
                    f"{node[0].opcode} {node[0].name} pairs each of {size} elements with each other"
                )
                self.mixed.setdefault(key, Mixing(node[0], words))
            seen[key] = dim

    # ---- 3: axes ------------------------------------------------------------------------------------

    def find(self) -> ParallelLoop:
        self.tie()
        axes = self._axes()
        numbers = {key: number for number, (key, _) in enumerate(axes)}
        owned: dict[Node, Axes] = {}
        for node in self.owned:
            owned[node] = tuple(
                numbers.get(self.classes.find((*node, dim))) if size != 1 else None
                for dim, size in enumerate(shape_of(node).dims)
            )
        carried = tuple(self._carried(number, owned) for number in range(leaf_count(self.state)))
        return ParallelLoop(
            self.loop,
            tuple(size for _, size in axes),
            carried,
            owned,
            self._trips(owned),
            tuple(dict.fromkeys(self.mixed.values())),
        )

    def _axes(self) -> list[tuple[_Dim, int]]:
        """The classes of the axes with their sizes, in the order of the dimensions of what is carried."""
        weights: dict[_Dim, int] = defaultdict(int)
        sizes: dict[_Dim, int] = {}
        sets: list[tuple[int, set[_Dim]]] = []
        for number in range(leaf_count(self.state)):
            node = self.state, number
            if node not in self.owned:
                continue
            shape = shape_of(node)
            found: set[_Dim] = set()
            for dim, size in enumerate(shape.dims):
                key = self.classes.find((*node, dim))
                if size != 1 and key not in self.mixed:
                    found.add(key)
                    sizes.setdefault(key, size)
                    weights[key] += shape.elements
            sets.append((shape.elements, found))
        if not weights:
            return []
        best = max(weights, key=lambda key: weights[key])
        common = set.intersection(*(found for _, found in sets if best in found))
        return [(key, size) for key, size in sizes.items() if key in common]

    def _carried(self, number: int, owned: dict[Node, Axes]) -> Carried:
        node = self.state, number
        shape = shape_of(node)
        nowhere: Axes = (None,) * shape.rank
        if number in self.invariant:
            return Carried(number, shape, "invariant", nowhere)
        axes = owned.get(node, nowhere)
        update = self._streamed(number)
        if update is not None:
            return Carried(number, shape, "streamed", axes, update)
        role: Role = "owned" if any(axis is not None for axis in axes) else "uniform"
        return Carried(number, shape, role, axes)

    def _streamed(self, number: int) -> Instruction | None:
        """The one update of an element that is only written, a part a trip."""
        update = self.body.root.operands[number]
        if update.opcode != "dynamic-update-slice":
            return None
        before = update.operands[0]
        if not _is_read(before, self.state, number) or set(before.users) != {update}:
            return None
        if before in update.operands[1:] or set(update.users) != {self.body.root}:
            return None
        reads = [*self.state.users, *self.condition.parameters[0].users]
        mine = [read for read in reads if _reads(read, number)]
        return update if mine == [before] else None

    def _trips(self, owned: dict[Node, Axes]) -> Trips:
        bounds = trip_bounds(self.loop)
        if bounds.exact is not None:
            return Trips("known", bounds.exact, bounds.exact)
        if (self.condition.root, 0) in owned:
            return Trips("gathered", None, bounds.most)
        return Trips("scalar", None, bounds.most)


def _reads(read: Instruction, number: int) -> bool:
    return read.opcode != "get-tuple-element" or read.attributes["index"] == number


def _is_read(value: Instruction, state: Instruction, number: int) -> bool:
    return (
        value.opcode == "get-tuple-element"
        and value.operands[0] is state
        and value.attributes["index"] == number
    )
