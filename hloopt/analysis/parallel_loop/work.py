"""What work items share of the work of an iteration, and what each of them would repeat.

Work is arithmetic operations, and one for each element that is moved by a separate index.  What lies along
the axes is divided among the work items; what is uniform each of them does; of a free value each does as much
as it needs, from its own values back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from math import prod
from typing import Final

from hloopt.analysis.cost import instruction_cost
from hloopt.analysis.parallel_loop.classes import Dim, DimensionClasses
from hloopt.analysis.parallel_loop.edges import LoopGraph, entered, nodes_of, shape_of
from hloopt.analysis.parallel_loop.model import LoopNode, ParallelLoop
from hloopt.analysis.parallel_loop.state import LoopState
from hloopt.analysis.trip_count import trip_count
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.ops.traits import JOINING, VIEWS
from hloopt.types import DotDims

__all__ = ["LoopWork", "SharedWork"]

_NOTHING: Final = VIEWS | {"constant", "iota"}
_ONE_EACH: Final = _NOTHING | JOINING | {"bitcast-convert", "map"}
"""An element of the result takes one of each operand at most."""


@dataclass(frozen=True, slots=True)
class SharedWork:
    """The work of an iteration.

    whole   if each element is computed once
    work item    of one work item
    work items   how many there are
    most    the instruction of which a work item repeats most
    """

    whole: float
    work_item: float
    work_items: int
    most: Instruction | None

    @property
    def repeated(self) -> float:
        """What a work item does in excess of its share."""
        return self.work_item - self.whole / self.work_items

    @property
    def gain(self) -> float:
        """How much less a work item does than one that does everything."""
        return self.whole / self.work_item if self.work_item else 1.0


class LoopWork:
    """Answers for one loop."""

    def __init__(
        self,
        state: LoopState,
        graph: LoopGraph,
        classes: DimensionClasses,
        nested: Mapping[Instruction, ParallelLoop],
    ) -> None:
        self.nested = nested
        self.graph = graph
        self.classes = classes
        self.state = state
        times = self._times()
        self.operations = {
            one: _operations(one) * times.get(one.computation, 0) for one in graph.ops
        }

    def shared(self, sizes: Mapping[Dim, int], after: Collection[Instruction] = ()) -> SharedWork:
        """With axes of these classes; ``after`` is done after the loop, and is left out."""
        return _Trial(self, sizes).shared(after)

    def _times(self) -> dict[Computation | None, int]:
        """How often computations run in an iteration, as far as the module shows it."""
        times: dict[Computation | None, int] = {self.state.body: 1}
        times[self.state.condition] = 1 if self.state.bounds.exact is None else 0
        seen: set[Instruction] = set()
        for one in self.graph.order:
            if one not in seen:
                seen.add(one)
                count = trip_count(one, believe=True) if one.opcode == "while" else 1
                for called in entered(one):
                    more = times.get(one.computation, 0) * (1 if count is None else count)
                    times[called] = times.get(called, 0) + more
        return times


class _Trial:
    """Axes that are tried: of classes of these sizes."""

    def __init__(self, work: LoopWork, sizes: Mapping[Dim, int]) -> None:
        self.work = work
        self.classes = work.classes
        self.sizes = sizes
        self.along = {head: self._along(head) for head in work.classes.groups}
        self.needed = self._needed()

    def shared(self, after: Collection[Instruction]) -> SharedWork:
        """The work of an iteration, but for ``after``."""
        work_items = prod(self.sizes.values())
        whole = mine = extra = 0.0
        most: Instruction | None = None
        for one, operations in self.work.operations.items():
            if not operations or one in after:
                continue
            if (one, 0) in self.classes.owned:
                part, all_of_it = 1.0 / self._sharing(one), 1.0
            else:
                elements = max(1, shape_of((one, 0)).elements)
                part = min(1.0, max(self.needed[node] for node in nodes_of(one)) / elements)
                all_of_it = min(1.0, part * work_items)
            whole += operations * all_of_it
            mine += operations * part
            if operations * (part - all_of_it / work_items) > extra:
                extra, most = operations * (part - all_of_it / work_items), one
        return SharedWork(whole, mine, work_items, most)

    def _along(self, head: LoopNode) -> dict[Dim, int]:
        keys = (self.classes.of(head, dim) for dim in range(shape_of(head).rank))
        return {key: self.sizes[key] for key in keys if key in self.sizes}

    def _axes(self, node: LoopNode) -> dict[Dim, int]:
        if node not in self.classes.owned:
            return {}
        return self.along[self.classes.head(node)]

    def _sharing(self, one: Instruction) -> int:
        """Work items that divide an instruction among them."""
        if one.op.is_elementwise:
            return prod(self._axes((one, 0)).values())
        found: dict[Dim, int] = {}
        for value in (one, *one.operands):
            for node in nodes_of(value):
                found.update(self._axes(node))
        return prod(found.values())

    def _local(self, node: LoopNode) -> float:
        """Elements that a work item has of a value at most."""
        return float(shape_of(node).elements // prod(self._axes(node).values()))

    def _needed(self) -> dict[LoopNode, float]:
        """Elements that a work item computes of each value."""
        found: dict[LoopNode, float] = defaultdict(float)

        def request(node: LoopNode, count: float) -> None:
            if count > found[node]:
                found[node] = min(count, self._local(node))

        for node in nodes_of(self.work.state.body.root):
            request(node, self._local(node))
        request((self.work.state.condition.root, 0), 1.0)
        for one in reversed(self.work.graph.order):
            pairs = self.work.graph.pairs[one]
            inner = self._inner(one, found) if one.opcode == "while" else {}
            for source, target in reversed(pairs):
                request(source, inner[target[1]] if inner else found[target])
            if one.opcode == "while":
                request((one.condition.root, 0), max(inner.values(), default=1.0))
            elif one.opcode == "conditional":
                request((one.operands[0], 0), 1.0)
            if pairs:
                continue
            wanted = max((found[node] for node in nodes_of(one)), default=0.0)
            for number, operand in enumerate(one.operands):
                for node in nodes_of(operand):
                    request(node, self._requested(one, number, node, wanted))
        return found

    def _inner(self, loop: Instruction, found: Mapping[LoopNode, float]) -> dict[int, float]:
        """Elements that are needed of the state of a loop inside: of so many of its own work items, all."""
        carried = self.work.nested[loop].carried
        work_items = max(
            found.get((loop, one.number), 0.0) / max(1, one.local_elements)
            for one in carried
        )  # fmt: skip
        return {
            one.number: work_items * one.local_elements
            if one.role == "owned"
            else float(one.shape.elements)
            for one in carried
        }

    def _requested(self, one: Instruction, number: int, node: LoopNode, wanted: float) -> float:
        """Elements of an operand that ``wanted`` elements of the result take."""
        if not wanted:
            return 0.0
        if one.op.is_elementwise or one.opcode in _ONE_EACH:
            return wanted
        if one.opcode in ("dynamic-slice", "gather") and number == 0:
            return wanted
        whole = self._local(node)
        if one.opcode == "reduce":
            return wanted * whole / max(1.0, self._local((one, 0)))
        if one.opcode == "dot":
            dims = DotDims.of(one.attributes)
            lhs = one.operands[0].array.dims
            return wanted * prod(lhs[dim] for dim in dims.lhs_contracting)
        if one.opcode == "dynamic-update-slice" and number == 1:
            keys = (self.classes.of((one, 0), dim) for dim in range(one.array.rank))
            return min(whole, prod(
                1 if key in self.sizes and size == self.sizes[key] else size
                for key, size in zip(keys, shape_of(node).dims, strict=True)
            ))  # fmt: skip
        return whole


def _operations(one: Instruction) -> int:
    if one.opcode in _NOTHING:
        return 0
    cost = instruction_cost(one)
    moved = one.operands[1] if one.opcode == "dynamic-update-slice" else one
    return max(cost.flops + cost.transcendentals, shape_of((moved, 0)).elements)
