"""A fused loop by blocks of its work items: all iterations of a block while its slices are in the cache.

The work items along the largest parallel axis are taken a few thousand at a time.  Body and condition are
compiled again for that many (``parallel_loop/cutting.py``); what the loop reads and writes along the axis are
slices of the whole arrays.  A reduce over the axis that only goes into stacked outputs leaves a partial result
per block and iteration; after all blocks, these are combined in the order of the blocks and what
follows from them is computed iteration by iteration.  Threads share the blocks, which are the same for any
number of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from hloopt.analysis.parallel_loop.cutting import LoopCut, cut_loop
from hloopt.analysis.parallel_loop.needs import WHOLE
from hloopt.backends.numpy.loop_plan import Blocks
from hloopt.backends.numpy.loops import Stuck, iterate
from hloopt.backends.numpy.plan import Function
from hloopt.backends.numpy.threads import Tasks, in_parallel
from hloopt.dataclass import dataclass
from hloopt.interpret.context import Context
from hloopt.interpret.movement import iota
from hloopt.interpret.reducer import reducer_of
from hloopt.interpret.reduction import reduce as fold_all
from hloopt.interpret.regions import combiner
from hloopt.ir import Computation, Instruction
from hloopt.rewrite.regions import identity
from hloopt.types import TupleShape

__all__ = ["BlockedLoop", "CompiledLoop"]


@dataclass(frozen=True, slots=True)
class CompiledLoop:
    """Condition and body as functions of the flat state; the body writes into the state at ``written``."""

    condition: Function
    body: Function
    kept: Function
    written: frozenset[int]


Compile = Callable[[Computation, Computation, TupleShape], CompiledLoop]


@dataclass(frozen=True, slots=True)
class _Sized:
    """A loop compiled for blocks of one size."""

    cut: LoopCut
    loop: CompiledLoop


class BlockedLoop:
    """A loop that runs by blocks, which ``threads`` share: from the flat state to the flat state."""

    def __init__(
        self, blocks: Blocks, compiled: Compile, context: Context, stuck: Stuck, threads: int = 1
    ) -> None:
        self.blocks = blocks
        self._threads = threads
        self._compiled = compiled
        self._context = context
        self._stuck = stuck
        self._sized: dict[int, _Sized] = {}
        self._sources: dict[Instruction, Any] = {}

    @cached_property
    def written(self) -> tuple[int, ...]:
        """The elements of the state that results are written into."""
        return tuple(
            carried.number
            for carried in self.blocks.parallel.carried
            if self.blocks.axis in carried.axes
            and carried.role in ("owned", "streamed")
            and carried.number not in self.blocks.late
        )

    def run(self, own: frozenset[int], state: Sequence[Any]) -> tuple[Any, ...]:
        """``own``: elements whose arrays may be written over."""
        results = list(state)
        for number in self.written:
            streamed = self.blocks.parallel.carried[number].role == "streamed"
            if number not in own:
                array = state[number]
                results[number] = np.array(array) if streamed else np.empty_like(array, order="C")
        work_items = [
            slice(start, min(start + self.blocks.size, self.blocks.work_items))
            for start in range(0, self.blocks.work_items, self.blocks.size)
        ]
        for length in {block.stop - block.start for block in work_items}:
            for source, _ in self._of_size(length).cut.sources:
                self._source(source)
        partials: list[list[tuple[Any, ...]]] = [[] for _ in work_items]
        ends: list[Mapping[tuple[int, int], Any]] = [{} for _ in work_items]
        counts = [0] * len(work_items)

        def work(tasks: Tasks) -> None:
            for number in tasks:
                found = self._block(state, results, work_items[number], partials[number])
                ends[number], counts[number] = found

        in_parallel(len(work_items), work, self._threads)
        # Uniform values are computed until the last work item has left the loop.
        longest = max(counts)
        for (number, place), array in ends[counts.index(longest)].items():
            if place == WHOLE:
                results[number] = array
        if self._later is not None:
            self._put_together(state, results, partials, longest)
        return tuple(results)

    def _block(
        self,
        state: Sequence[Any],
        results: Sequence[Any],
        work_items: slice,
        parts: list[tuple[Any, ...]],
    ) -> tuple[Mapping[tuple[int, int], Any], int]:
        """All iterations of a block; its state after the last one, and their number."""
        sized = self._of_size(work_items.stop - work_items.start)
        elements = sized.cut.elements
        streamed = self._streamed
        start: list[Any] = []
        for at, (number, place) in enumerate(elements):
            private = at in sized.loop.written
            if place == WHOLE:
                array = state[number]
            elif number in streamed:
                array, private = _cut(results[number], place, work_items), False
            else:
                array = _cut(state[number], place, work_items)
            start.append(np.array(array) if private else array)
        start += [_cut(self._source(one), place, work_items) for one, place in sized.cut.sources]
        width = len(start)
        body = sized.loop.body
        if self.blocks.partial:
            whole = body

            def body(*values: Any) -> tuple[Any, ...]:
                ends: tuple[Any, ...] = whole(*values)
                parts.append(ends[width:])
                return ends[:width]

        kept = sized.loop.kept
        begun = tuple(start)
        ended, count = iterate(sized.loop.condition, body, kept, kept(begun), self._stuck)
        found = dict(zip(elements, ended, strict=False))
        for (number, place), array in found.items():
            if place != WHOLE and number in self.written:
                target = _cut(results[number], place, work_items)
                if number not in streamed or not np.shares_memory(target, array):
                    target[...] = array
        return found, count

    @cached_property
    def _streamed(self) -> frozenset[int]:
        carried = self.blocks.parallel.carried
        return frozenset(number for number in self.written if carried[number].role == "streamed")

    def _of_size(self, size: int) -> _Sized:
        if size not in self._sized:
            blocks = self.blocks
            self._sized[size] = self._compile(cut_loop(blocks.needs, size, wanted=blocks.partial))
        return self._sized[size]

    def _compile(self, cut: LoopCut) -> _Sized:
        shape = cut.condition.parameters[0].shape
        assert isinstance(shape, TupleShape)
        return _Sized(cut, self._compiled(cut.condition, cut.body, shape))

    def _source(self, instruction: Instruction) -> Any:
        if instruction not in self._sources:
            shape = instruction.array
            if instruction.opcode == "iota":
                along = instruction.attributes["iota_dimension"]
                array = self._context.round(iota(shape.dims, along, shape.dtype), shape.dtype)
            else:
                literal = instruction.literal
                assert literal is not None
                assert literal.array is not None
                array = self._context.round(literal.array, shape.dtype)
            self._sources[instruction] = array
        return self._sources[instruction]

    # ---- reduces over the axis ----------------------------------------------------------------------

    @cached_property
    def _later(self) -> _Sized | None:
        blocks = self.blocks
        if blocks.later is None:
            return None
        return self._compile(cut_loop(blocks.later, blocks.size, given=blocks.partial))

    def _put_together(
        self,
        state: Sequence[Any],
        results: list[Any],
        partials: Sequence[Sequence[tuple[Any, ...]]],
        count: int,
    ) -> None:
        """Iteration by iteration what depends on reduces over all blocks."""
        later = self._later
        assert later is not None
        begun = [state[number] for number, _ in later.cut.elements]
        for at in later.loop.written:
            begun[at] = np.array(begun[at])
        now: tuple[Any, ...] = later.loop.kept(tuple(begun))
        for iteration in range(count):
            parts = zip(*(block[iteration] for block in partials), strict=True)
            whole = [
                self._whole(reduce, columns)
                for reduce, columns in zip(self.blocks.partial, parts, strict=True)
            ]
            now = later.loop.kept(later.loop.body(*now, *whole))
        for (number, _), array in zip(later.cut.elements, now, strict=True):
            if number in self.blocks.late:
                results[number] = array

    def _whole(self, reduce: Instruction, parts: Sequence[Any]) -> Any:
        """The parts of all blocks combined in their order; each began with the identity."""
        region, kind = reduce.to_apply, reduce.array.dtype
        name = combiner(region)
        assert name is not None
        first = self._context.round(identity(name, kind), kind)
        (array,) = fold_all([np.stack(parts)], [first], [0], reducer_of(region, self._context))
        return self._context.round(array, kind)


def _cut(array: Any, place: int, work_items: slice) -> Any:
    return array[(slice(None),) * place + (work_items,)]
