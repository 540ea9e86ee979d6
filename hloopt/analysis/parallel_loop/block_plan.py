"""How the threads of one block run a loop: what is kept where, and between which barriers it is computed.

An iteration is a list of **stages** with a barrier between each two.  In a stage all threads traverse the local
elements of the values that are stored there; what a stage reads was stored in earlier ones.  The condition's
stages come first.  A loop inside is an item of a stage of the loop around it, and has stages of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Final

from hloopt.analysis.parallel_loop.block_code import written_often
from hloopt.analysis.parallel_loop.block_costs import StepCosts
from hloopt.analysis.parallel_loop.block_stages import (
    MOST_SLOTS,
    BlockPlan,
    Item,
    StagedIteration,
    StagedState,
    barriers_in,
    has_followers,
    is_array,
    shared_sizes,
)
from hloopt.analysis.parallel_loop.edges import BODY, CONDITION, CallPath, LoopValue, leaf_count
from hloopt.analysis.parallel_loop.flow import Flow
from hloopt.analysis.parallel_loop.model import ParallelLoop
from hloopt.analysis.reduction import WARP_SIZE
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
        reached = self._reached(order)
        self._stages(iteration, order, reached)
        self._places(iteration, reached)
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
                state.kind = "streamed"
                state.next = flow.resolve(inner, update.operands[1])
            elif flow.elements(value) == 1:
                state.kind = "scalar"
            iteration.states.append(state)

    def sinks(self, iteration: StagedIteration) -> Iterator[LoopValue]:
        """The results of an iteration: the condition, the next state, where updates go."""
        yield iteration.condition
        for state in iteration.states:
            yield state.next
            if state.kind == "streamed":
                yield from self._starts(state)

    def _starts(self, state: StagedState) -> Iterator[LoopValue]:
        update = self.streamed[state.number]
        assert update is not None
        for operand in update.operands[2:]:
            yield self.flow.resolve(state.value.path, operand)

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

    # ---- stages -------------------------------------------------------------------------------------

    def _reached(self, order: list[LoopValue]) -> dict[LoopValue, dict[LoopValue, bool]]:
        """The stored values, and states, that a value is computed from; whether only at its own index."""
        flow, found = self.flow, dict[LoopValue, dict[LoopValue, bool]]()
        for value in order:
            reached: dict[LoopValue, bool] = {}
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

    def _stages(
        self,
        iteration: StagedIteration,
        order: list[LoopValue],
        reached: dict[LoopValue, dict[LoopValue, bool]],
    ) -> None:
        mine = {item: self._item_reads(item, reached) for item in iteration.items}
        for item in iteration.items:
            self._guard(item, mine[item])
        depth = len(iteration.path)
        for item in iteration.items:
            if item.values[0].path[depth][1] == CONDITION:
                item.stage = self._behind(mine[item], 0)
        decided = self._reads_of(iteration.condition, reached)
        iteration.decides = self._behind(decided, 0)
        for item in iteration.items:
            if item.values[0].path[depth][1] == BODY:
                item.stage = self._behind(mine[item], iteration.decides)
        iteration.items.sort(key=lambda item: item.stage)

    def _guard(self, item: Item, reads: dict[LoopValue, bool]) -> None:
        if not self.flow.guards(item.values[0]):
            return
        item.guarded = item.kind == "loop" or any(
            self.stored[value].guarded for value in reads if value in self.stored
        )
        if item.guarded and item.kind == "fold" and not item.lanes:
            item.lanes = WARP_SIZE  # all threads would have the result, or none

    def _item_reads(
        self, item: Item, reached: dict[LoopValue, dict[LoopValue, bool]]
    ) -> dict[LoopValue, bool]:
        found: dict[LoopValue, bool] = {}
        for value in item.values:
            for source, same in reached.get(value, {}).items():
                found[source] = found.get(source, True) and same and item.kind == "map"
        for guard, _, _ in self.flow.guards(item.values[0]):
            found.update(dict.fromkeys(self._reads_of(guard, reached), False))
        return found

    def _reads_of(
        self, value: LoopValue, reached: dict[LoopValue, dict[LoopValue, bool]]
    ) -> dict[LoopValue, bool]:
        """What computing a value here and now reads."""
        if value in self.stored or self.flow.is_state(value):
            return {value: True}
        return reached.get(value, {})

    def _behind(self, reads: Iterable[LoopValue], least: int) -> int:
        """The first stage at which everything read is there."""
        return max([least, *(self.stored[one].stage + 1 for one in reads if one in self.stored)])

    # ---- places -------------------------------------------------------------------------------------

    def _places(
        self, iteration: StagedIteration, reached: dict[LoopValue, dict[LoopValue, bool]]
    ) -> None:
        """Where each element of the state is kept.  The next ones are computed in the last stage."""
        last = max([iteration.decides, *(item.stage for item in iteration.items)])
        reads = {state: self._next_reads(state, reached) for state in iteration.states}
        for found in reads.values():
            last = max(last, self._behind(found, iteration.decides))
        readers: dict[LoopValue, list[tuple[int, bool]]] = {}

        def reader(stage: int, found: dict[LoopValue, bool]) -> None:
            for value, same in found.items():
                readers.setdefault(value, []).append((stage, same))

        for item in iteration.items:
            reader(item.stage, self._item_reads(item, reached))
        for found in reads.values():
            reader(last, found)
        decided = dict.fromkeys(self._reads_of(iteration.condition, reached), False)
        reader(iteration.decides, decided)
        iteration.stages = last + 1
        for state in iteration.states:
            state.stage = last
            if state.kind not in ("scalar", "streamed"):
                self._place(iteration, state, readers.get(state.value, []))
        iteration.closes = self._closes(iteration, readers)

    def _next_reads(
        self, state: StagedState, reached: dict[LoopValue, dict[LoopValue, bool]]
    ) -> dict[LoopValue, bool]:
        """What the next element of the state is computed from; the same index is that of this state."""
        flow = self.flow
        found = dict(self._reads_of(state.next, reached))
        if state.kind == "streamed":
            for start in self._starts(state):
                found.update(dict.fromkeys(self._reads_of(start, reached), False))
        elif state.kind == "scalar" or flow.local(state.next) != flow.local(state.value):
            # A scalar is computed by every thread.
            found = dict.fromkeys(found, False)
        return found

    def _place(
        self, iteration: StagedIteration, state: StagedState, reads: list[tuple[int, bool]]
    ) -> None:
        flow = self.flow
        slots = -(-flow.elements(state.value) // self.threads)
        if all(same for _, same in reads) and slots <= MOST_SLOTS and not iteration.path:
            state.kind = "registers"
            return
        late = [same for stage, same in reads if stage == state.stage]
        if all(late) and not (late and has_followers(flow.elements(state.value), self.threads)):
            state.kind = "single"
            return
        kept = self.stored.get(state.next)
        is_alone = sum(1 for other in iteration.states if other.next == state.next) == 1
        state.alias = (
            is_alone
            and kept in iteration.items
            and kept is not None
            and kept.kind == "map"
            and flow.local(state.next) == flow.local(state.value)
        )
        if state.alias and kept is not None:
            state.stage = kept.stage

    def _closes(
        self, iteration: StagedIteration, readers: dict[LoopValue, list[tuple[int, bool]]]
    ) -> bool:
        """Whether the last stage and the first one of the next iteration touch the same shared memory."""
        last = iteration.stages - 1
        written: list[tuple[int, LoopValue, bool]] = []
        for item in iteration.items:
            if item.kind == "loop":
                return True
            # The thread that writes what threads fold or sort together is not the one that reads at that index.
            written += [
                (item.stage, value, item.kind == "map")
                for value in item.values
                if is_array(self.flow, item, value)
            ]
        for state in iteration.states:
            if state.kind == "streamed" and not self._writes_are_aligned(state):
                return True
            if state.kind in ("single", "double"):
                written.append((state.stage, state.value, True))
        for stage, value, by_index in written:
            by_index = by_index and not has_followers(self.flow.elements(value), self.threads)
            far = {at for at, same in readers.get(value, []) if not (same and by_index)}
            if (stage == last and 0 in far) or (stage == 0 and last in far):
                return True
        return False

    def _writes_are_aligned(self, state: StagedState) -> bool:
        """Whether each iteration writes the same places as another one, element by element, or none of them."""
        update = self.streamed[state.number]
        assert update is not None
        whole, part = update.array.dims, update.operands[1].array.dims
        return all(size in (1, of) for size, of in zip(part, whole, strict=True))


_ITERATIONS_INSIDE: Final = 8
"""How often a loop inside is taken to read what lies around it."""

_SEVERAL = REDUCING | {"conditional", "scatter", "while"}
"""Ops that compute all their results at once, or none that is worth storing alone."""
