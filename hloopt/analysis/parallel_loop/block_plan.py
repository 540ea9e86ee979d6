"""How the threads of one block run a loop: what is kept where, and between which barriers it is computed.

An iteration is a list of **stages** with a barrier between each two.  In a stage all threads traverse the local
elements of the values that are stored there; what a stage reads was stored in earlier ones.  The condition's
stages come first.  A loop inside is an item of a stage of the loop around it, and has stages of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Final

from hloopt.analysis.parallel_loop.block_code import written_often
from hloopt.analysis.parallel_loop.block_costs import StepCosts
from hloopt.analysis.parallel_loop.block_schedule import ReachedValues, schedule
from hloopt.analysis.parallel_loop.block_stages import (
    BlockPlan,
    Item,
    StagedIteration,
    StagedState,
    barriers_in,
    shared_sizes,
)
from hloopt.analysis.parallel_loop.edges import BODY, CONDITION, CallPath, LoopValue, leaf_count
from hloopt.analysis.parallel_loop.flow import Flow
from hloopt.analysis.parallel_loop.model import ParallelLoop
from hloopt.ir import Instruction
from hloopt.ops.traits import REDUCING, SOURCES

__all__ = ["block_plan"]


def block_plan(parallel: ParallelLoop, threads: int) -> BlockPlan:
    """Plan a loop for blocks of so many threads (a multiple of 32)."""
    flow = Flow(parallel.loop, parallel.owned)
    planner = _Planner(parallel, flow, threads)
    iteration = planner.iteration((), parallel.loop)
    sizes = dict(shared_sizes(flow, iteration, threads))
    largest = max(sizes, key=lambda value: sizes[value], default=None)
    stored = frozenset(planner.stored)
    barriers = barriers_in(iteration)
    shared = sum(sizes.values())
    code = planner.code_bytes
    return BlockPlan(parallel, flow, iteration, threads, stored, shared, barriers, largest, code)


class _Planner:
    def __init__(self, parallel: ParallelLoop, flow: Flow, threads: int) -> None:
        self.parallel = parallel
        self.flow = flow
        self.threads = threads
        self.costs = StepCosts(flow, threads)
        self.stored: dict[LoopValue, Item] = {}
        self.code_bytes = 0
        self.iterations: dict[tuple[CallPath, Instruction], StagedIteration] = {}
        self.streamed = {
            carried.number: carried.update
            for carried in parallel.carried
            if carried.role == "streamed" and carried.update is not None
        }

    # ---- a loop -------------------------------------------------------------------------------------

    def iteration(self, path: CallPath, loop: Instruction) -> StagedIteration:
        """Plan a loop and those inside it."""
        flow = self.flow
        decides = loop.condition.root
        if not path and self.parallel.iterations.own is not None:
            decides = self.parallel.iterations.own
        iteration = StagedIteration(path, loop, flow.resolve((*path, (loop, CONDITION)), decides))
        self._states(iteration)
        order = self._order(iteration)
        self._store(iteration, order)
        schedule(iteration, self.flow, self.threads, self.stored, self._reached(order))
        self.iterations[path, loop] = iteration
        return iteration

    def _states(self, iteration: StagedIteration) -> None:
        loop, flow = iteration.loop, self.flow
        body = loop.body
        inner = (*iteration.path, (loop, BODY))
        fixed = flow.invariant(loop)
        for number in range(leaf_count(loop)):
            if number in fixed:
                continue
            value = LoopValue(inner, body.parameters[0], number)
            state = StagedState(number, value, flow.resolve(inner, body.root, number))
            update = self.streamed.get(number) if not iteration.path else None
            if update is not None:
                state.kind, state.update = "streamed", update
                state.next = flow.resolve(inner, update.operands[1])
                state.starts = tuple(flow.resolve(inner, one) for one in update.operands[2:])
            elif flow.elements(value) == 1:
                state.kind = "scalar"
            iteration.states.append(state)

    def sinks(self, iteration: StagedIteration) -> Iterator[LoopValue]:
        """The results of an iteration: the condition, the next state, where updates go."""
        yield iteration.condition
        for state in iteration.states:
            yield state.next
            yield from state.starts

    # ---- values, operands first ---------------------------------------------------------------------

    def _order(self, iteration: StagedIteration) -> list[LoopValue]:
        """The values of this loop and not of one inside it, operands first; others go to ``outer``."""
        order: dict[LoopValue, None] = {}
        pending: list[tuple[LoopValue, bool]] = [(sink, False) for sink in self.sinks(iteration)]
        pending.reverse()
        while pending:
            value, is_done = pending.pop()
            if value in order:
                continue
            if is_done:
                order[value] = None
                continue
            if not self._belongs(iteration, value):
                iteration.outer[value] = None
                continue
            pending.append((value, True))
            pending += [(source, False) for source in reversed(list(self._sources(value)))]
        return list(order)

    def _belongs(self, iteration: StagedIteration, value: LoopValue) -> bool:
        depth = len(iteration.path)
        return (
            value.path[:depth] == iteration.path
            and len(value.path) > depth
            and (value.path[depth][0] is iteration.loop)
        )

    def _sources(self, value: LoopValue) -> Iterator[LoopValue]:
        for guard, _, _ in self.flow.guards(value):
            yield guard
        if self._is_inside(value):
            yield from self._loop_sources(value)
        else:
            for read in self.flow.reads(value):
                yield read.value

    def _is_inside(self, value: LoopValue) -> bool:
        """Whether it is a leaf of a loop that the block runs together."""
        instruction = value.instruction
        return (
            bool(value.path)
            and instruction.opcode == "while"
            and not self.flow.is_alone(instruction)
        )

    def _loop_sources(self, value: LoopValue) -> Iterator[LoopValue]:
        """What a loop inside begins with, and what it reads of this one."""
        inner = self.inner(value)
        yield from self.firsts(inner)
        yield from inner.outer

    def inner(self, value: LoopValue) -> StagedIteration:
        """The plan of a loop inside."""
        found = self.iterations.get((value.path, value.instruction))
        return found if found is not None else self.iteration(value.path, value.instruction)

    def firsts(self, iteration: StagedIteration) -> Iterator[LoopValue]:
        """The first state of a loop inside."""
        for state in iteration.states:
            yield self.flow.resolve(iteration.path, iteration.loop.operands[0], state.number)

    # ---- what is stored -----------------------------------------------------------------------------

    def _store(self, iteration: StagedIteration, order: list[LoopValue]) -> None:
        """Decide for each value whether threads compute it again or store it."""
        wanted = self._wanted(iteration, order)
        known = frozenset(order)
        for value in order:
            if value in self.stored or self.flow.is_state(value):
                continue
            self.costs.of(value)
            self._keep(iteration, self._item(value, wanted.get(value, 0), known))
        mine = {value for value in order if value in self.stored}
        often, size = written_often(self.flow, order, mine, self.sinks(iteration))
        self.code_bytes += size
        if not often:
            return
        for value in order:
            if value in often and value not in self.stored:
                self._keep(iteration, self._map(value, known))
        position = {value: at for at, value in enumerate(order)}
        iteration.items.sort(key=lambda item: min(position.get(one, 0) for one in item.values))

    def _keep(self, iteration: StagedIteration, item: Item | None) -> None:
        if item is not None:
            iteration.items.append(item)
            for leaf in item.values:
                self.stored[leaf] = item
                self.costs.store(leaf)

    def _wanted(self, iteration: StagedIteration, order: list[LoopValue]) -> dict[LoopValue, float]:
        """How many elements of each value are requested, by users each of whose elements is requested once."""
        flow, wanted = self.flow, dict[LoopValue, float]()
        same: set[LoopValue] = set()

        def want(value: LoopValue, count: float) -> None:
            wanted[value] = wanted.get(value, 0) + count

        for value in order:
            if self._is_inside(value):
                for source in self._sources(value):
                    want(source, flow.elements(source) * _ITERATIONS_INSIDE)
                continue
            elements = flow.elements(value)
            for read in flow.reads(value):
                if read.same and read.value not in same:
                    same.add(read.value)
                    want(read.value, elements)
                elif not read.same:
                    want(read.value, elements * read.count)
        for sink in self.sinks(iteration):
            if sink not in same:
                # Scalars are computed by every thread.
                want(sink, self.threads if flow.elements(sink) == 1 else flow.elements(sink))
        return wanted

    def _item(self, value: LoopValue, wanted: float, known: AbstractSet[LoopValue]) -> Item | None:
        opcode = value.instruction.opcode
        if not value.path or opcode in SOURCES:
            return None
        leaves = self._leaves(value)
        if self._is_inside(value):
            return Item("loop", leaves, inner=self.inner(value))
        if opcode == "sort":
            return Item("sort", leaves)
        again = self.costs.again(value, wanted)
        if opcode in ("reduce", "dot"):
            lanes, cost = self.costs.fold(value, wanted)
            if lanes != 1 and cost < again and cost < self.costs.stored(value, wanted):
                return Item("fold", leaves, lanes=lanes)
        if self.costs.stored(value, wanted) < again:
            return self._map(value, known)
        return None

    def _map(self, value: LoopValue, known: AbstractSet[LoopValue]) -> Item:
        """A thread computes each element of a value, and of those that are computed with it."""
        opcode = value.instruction.opcode
        if opcode not in _SEVERAL:
            return Item("map", (value,))
        leaves = self._leaves(value)
        if opcode == "conditional":
            # Unused results of the branches are not planned for.
            leaves = tuple(leaf for leaf in leaves if leaf in known)
        return Item("map", leaves)

    def _leaves(self, value: LoopValue) -> tuple[LoopValue, ...]:
        instruction = value.instruction
        fixed = self.flow.invariant(instruction) if instruction.opcode == "while" else frozenset()
        return tuple(
            LoopValue(value.path, instruction, leaf)
            for leaf in range(leaf_count(instruction))
            if leaf not in fixed
        )

    def _reached(self, order: list[LoopValue]) -> dict[LoopValue, ReachedValues]:
        flow, found = self.flow, dict[LoopValue, ReachedValues]()
        for value in order:
            reached: ReachedValues = {}
            if self._is_inside(value):
                reads = [(source, False) for source in self._sources(value)]
            else:
                reads = [(read.value, read.same) for read in flow.reads(value)]
            for source, same in reads:
                kept = self.stored.get(source)
                if kept is not None or flow.is_state(source):
                    reached[source] = reached.get(source, True) and same
                else:
                    for far, near in found.get(source, {}).items():
                        reached[far] = reached.get(far, True) and near and same
            found[value] = reached
        return found


_ITERATIONS_INSIDE: Final = 8
"""How often a loop inside is taken to read what lies around it."""

_SEVERAL = REDUCING | {"conditional", "scatter", "while"}
"""Ops that compute all their results at once, or none that is worth storing alone."""
