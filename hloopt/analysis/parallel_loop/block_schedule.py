"""The schedule of an iteration that the threads of one block run: stages, and where the state is kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from hloopt.analysis.parallel_loop.block_stages import (
    MOST_SLOTS,
    Item,
    StagedIteration,
    StagedState,
    has_followers,
    is_array,
)
from hloopt.analysis.parallel_loop.edges import BODY, CONDITION, LoopValue
from hloopt.analysis.parallel_loop.flow import Flow
from hloopt.analysis.reduction import WARP_SIZE
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction

__all__ = ["ReachedValues", "schedule"]

ReachedValues: TypeAlias = dict[LoopValue, bool]
"""The stored values, and states, that a value is computed from; whether only at its own index."""


def schedule(
    iteration: StagedIteration,
    flow: Flow,
    threads: int,
    stored: Mapping[LoopValue, Item],
    reached: Mapping[LoopValue, ReachedValues],
) -> None:
    """Fill in the stages of an iteration's items, when its condition is known, and the kinds of its states.

    ``stored`` has what is stored of this iteration, those around it and those inside; ``reached`` is of the
    values of this one.
    """
    scheduler = _Scheduler(flow, threads, stored, reached)
    scheduler.stages(iteration)
    scheduler.places(iteration)


@dataclass(frozen=True, eq=False)
class _Scheduler:
    flow: Flow
    threads: int
    stored: Mapping[LoopValue, Item]
    reached: Mapping[LoopValue, ReachedValues]

    # ---- stages -------------------------------------------------------------------------------------

    def stages(self, iteration: StagedIteration) -> None:
        mine = {item: self._item_reads(item) for item in iteration.items}
        for item in iteration.items:
            self._guard(item, mine[item])
        depth = len(iteration.path)
        for item in iteration.items:
            if item.values[0].path[depth][1] == CONDITION:
                item.stage = self._behind(mine[item], 0)
        decided = self._reads_of(iteration.condition)
        iteration.decides = self._behind(decided, 0)
        for item in iteration.items:
            if item.values[0].path[depth][1] == BODY:
                item.stage = self._behind(mine[item], iteration.decides)
        iteration.items.sort(key=lambda item: item.stage)

    def _guard(self, item: Item, reads: ReachedValues) -> None:
        if not self.flow.guards(item.values[0]):
            return
        item.guarded = item.kind == "loop" or any(
            self.stored[value].guarded for value in reads if value in self.stored
        )
        if item.guarded and item.kind == "fold" and not item.lanes:
            item.lanes = WARP_SIZE  # all threads would have the result, or none

    def _item_reads(self, item: Item) -> ReachedValues:
        found: ReachedValues = {}
        for value in item.values:
            for source, same in self.reached.get(value, {}).items():
                found[source] = found.get(source, True) and same and item.kind == "map"
        for guard, _, _ in self.flow.guards(item.values[0]):
            found.update(dict.fromkeys(self._reads_of(guard), False))
        return found

    def _reads_of(self, value: LoopValue) -> ReachedValues:
        """What computing a value here and now reads."""
        if value in self.stored or self.flow.is_state(value):
            return {value: True}
        return self.reached.get(value, {})

    def _behind(self, reads: Iterable[LoopValue], least: int) -> int:
        """The first stage at which everything read is there."""
        return max([least, *(self.stored[one].stage + 1 for one in reads if one in self.stored)])

    # ---- places -------------------------------------------------------------------------------------

    def places(self, iteration: StagedIteration) -> None:
        """Where each element of the state is kept.  The next ones are computed in the last stage."""
        last = max([iteration.decides, *(item.stage for item in iteration.items)])
        reads = {state: self._next_reads(state) for state in iteration.states}
        for found in reads.values():
            last = max(last, self._behind(found, iteration.decides))
        readers: dict[LoopValue, list[tuple[int, bool]]] = {}

        def reader(stage: int, found: ReachedValues) -> None:
            for value, same in found.items():
                readers.setdefault(value, []).append((stage, same))

        for item in iteration.items:
            reader(item.stage, self._item_reads(item))
        for found in reads.values():
            reader(last, found)
        decided = dict.fromkeys(self._reads_of(iteration.condition), False)
        reader(iteration.decides, decided)
        iteration.stages = last + 1
        for state in iteration.states:
            state.stage = last
            if state.kind not in ("scalar", "streamed"):
                self._place(iteration, state, readers.get(state.value, []))
        iteration.closes = self._closes(iteration, readers)

    def _next_reads(self, state: StagedState) -> ReachedValues:
        """What the next element of the state is computed from; the same index is that of this state."""
        flow = self.flow
        found = dict(self._reads_of(state.next))
        if state.kind == "streamed":
            for start in state.starts:
                found.update(dict.fromkeys(self._reads_of(start), False))
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
            if state.update is not None and not _writes_are_aligned(state.update):
                return True
            if state.kind in ("single", "double"):
                written.append((state.stage, state.value, True))
        for stage, value, by_index in written:
            by_index = by_index and not has_followers(self.flow.elements(value), self.threads)
            far = {at for at, same in readers.get(value, []) if not (same and by_index)}
            if (stage == last and 0 in far) or (stage == 0 and last in far):
                return True
        return False


def _writes_are_aligned(update: Instruction) -> bool:
    """Whether each iteration writes the same places as another one, element by element, or none of them."""
    whole, part = update.array.dims, update.operands[1].array.dims
    return all(size in (1, of) for size, of in zip(part, whole, strict=True))
