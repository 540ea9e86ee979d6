"""Large elementwise and reduce work block by block, on all cores.

Whole arrays go through memory once for each op.  A region of a line (``block_regions``) is evaluated for some
tens of thousands of elements at a time instead (``block_plan``), so that intermediate values stay in the
second-level cache, and threads share the blocks.  The blocks, and the order in which partial reduces are
combined, are the same for any number of threads: so are the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from hloopt.backends.numpy.arena import ScratchMemory
from hloopt.backends.numpy.block_forms import Map
from hloopt.backends.numpy.block_limits import BlockLimits
from hloopt.backends.numpy.block_plan import Folded, RegionPlan, plan_region
from hloopt.backends.numpy.block_regions import BlockRegion, find_regions
from hloopt.backends.numpy.plan import Dims, Function, Line, Step
from hloopt.backends.numpy.short_runs import stretched_from
from hloopt.backends.numpy.threads import Tasks, in_parallel
from hloopt.interpret.context import Context
from hloopt.types import Array

__all__ = ["by_blocks"]


# Elements times ops from which several threads are quicker than one: waking one takes some 50 us.
_SHARED = 1 << 19


def by_blocks(
    line: Line, context: Context, threads: int, limits: BlockLimits, *, looped: bool = False
) -> int:
    """Evaluate regions of a line, the body of a loop if ``looped``, by blocks; returns how many there are."""
    regions = [region for region in find_regions(line, context, limits) if _pays(line, region)]
    if not regions:
        return 0
    line.steps = _Order(line, regions).steps(threads, looped=looped)
    line.drop_unused()
    return len(regions)


def _pays(line: Line, region: BlockRegion) -> bool:
    """A single ufunc goes through memory as often in blocks; they stretch operands."""
    if len(region.members) > 1:
        return True
    (member,) = region.members
    if not (isinstance(member.form, Map) and isinstance(member.form.function, np.ufunc)):
        return True
    dims = line.dims[member.step.outs[0]]
    return any(stretched_from(line.dims[slot], dims) is not None for slot in member.ins)


class _Order:
    """The steps of a line, some of them members of regions, in an order in which they can be run."""

    def __init__(self, line: Line, regions: Sequence[BlockRegion]) -> None:
        self._line = line
        # Nodes: steps outside by their numbers, regions by negative ones.
        self._node: dict[int, int] = {}
        self._regions = {-1 - at: region for at, region in enumerate(regions)}
        for node, region in self._regions.items():
            self._node.update((member.number, node) for member in region.members)
        self._makes: dict[int, int] = {}
        for number, step in enumerate(line.steps):
            self._makes.update((out, self._node.get(number, number)) for out in step.outs)

    def _reads(self, node: int) -> list[int]:
        region = self._regions.get(node)
        if region is None:
            step = self._line.steps[node]
            return [*step.ins]
        own = {member.step.outs[0] for member in region.members} | set(region.same)
        return [slot for member in region.members for slot in member.ins if slot not in own]

    def _sorted(self) -> list[int]:
        """Nodes in topological order, otherwise in the order of the line; a region where it is first used."""
        done: dict[int, None] = {}
        for number in range(len(self._line.steps)):
            node = self._node.get(number, number)
            if node < 0 and number != self._regions[node].members[-1].number:
                continue
            pending = [(node, iter(self._reads(node)))]
            while pending:
                node, reads = pending[-1]
                before = next(
                    (
                        maker
                        for maker in (self._makes.get(slot) for slot in reads)
                        if maker is not None and maker not in done
                    ),
                    None,
                )
                if before is None:
                    done[node] = None
                    pending.pop()
                else:
                    pending.append((before, iter(self._reads(before))))
        return list(done)

    def steps(self, threads: int, *, looped: bool) -> list[Step]:
        """The new steps; unused members are left out."""
        line = self._line
        needed = set(line.results)
        found: list[Step] = []
        for node in reversed(self._sorted()):
            region = self._regions.get(node)
            if region is None:
                step = line.steps[node]
                if step.keep or needed.intersection(step.outs):
                    needed.update(step.ins)
                    found.append(step)
                continue
            wanted = {
                member.step.outs[0] for member in region.members if member.step.outs[0] in needed
            }
            _drop_unused(region, wanted)
            if region.members:
                plan = plan_region(line, region, sorted(wanted), looped=looped)
                step = _step(line, plan, region, threads)
                needed.update(step.ins)
                found.append(step)
        return found[::-1]


def _drop_unused(region: BlockRegion, wanted: set[int]) -> None:
    """Remove members that are used neither outside the region nor in it."""
    needed = set(wanted)
    kept = []
    for member in reversed(region.members):
        if member.step.outs[0] in needed:
            needed.update(region.same.get(slot, slot) for slot in member.ins)
            kept.append(member)
    region.members[:] = kept[::-1]


def _step(line: Line, plan: RegionPlan, region: BlockRegion, threads: int) -> Step:
    # Whether threads pay follows from sizes alone: blocks are the same for any number of them.
    work = len(region.members) * prod(region.space)
    running = Blocks(line, plan, threads if work >= _SHARED else 1)
    return Step(
        running.writing(frozenset()),
        plan.ins,
        plan.outs,
        several=True,
        fills=True,
        writes=plan.written,
        choose=running.writing,
        owners=tuple(
            dict.fromkeys(owner for member in region.members for owner in member.step.owners)
        ),
    )


class Blocks:
    """A region that runs by blocks: from its inputs to its results."""

    def __init__(self, line: Line, plan: RegionPlan, threads: int) -> None:
        self._plan, self._threads = plan, threads
        self._forms: list[tuple[Dims, np.dtype[Any]]] = [
            (line.dims[out], line.kinds[out]) for out in plan.outs
        ]
        self._whole = len(plan.outs) - len(plan.folded)
        self._places = [plan.places(number) for number in range(plan.blocks)]
        self._starts = [line.constants.get(folded.start) for folded in plan.folded]

    def writing(self, own: frozenset[int]) -> Function:
        """The region as a function that writes the results ``own`` into the inputs at their places.

        It takes ``out=``, a tuple of an array or None for each result.
        """

        def run(*ins: Array, out: Sequence[Array | None] | None = None) -> tuple[Array, ...]:
            given = list(out or [None] * len(self._forms))
            for at in own:
                given[at] = ins[at]
            return self._run(ins, given)

        return run

    def _run(self, ins: Sequence[Array], given: Sequence[Array | None]) -> tuple[Array, ...]:
        plan = self._plan
        outs = [
            np.empty(*form) if array is None else array
            for form, array in zip(self._forms, given, strict=True)
        ]
        large = outs[: self._whole]
        lanes = plan.lanes
        bounds = [plan.blocks * lane // lanes for lane in range(lanes + 1)]
        parts: list[list[_Part]] = [[] for _ in range(lanes)]

        def work(tasks: Tasks) -> None:
            made = _Scratches(plan)
            for lane in tasks:
                total = [_Part(folded) for folded in plan.folded]
                for number in range(bounds[lane], bounds[lane + 1]):
                    if tasks.stopped:
                        return
                    places = self._places[number]
                    size = places[-1].stop - places[-1].start
                    found = plan.function(*places, size, *made.of(size), *ins, *large)
                    for part, array in zip(total, found, strict=True):
                        part.add(places, array)
                parts[lane] = total

        in_parallel(lanes, work, self._threads)
        for at, folded in enumerate(plan.folded):
            outs[folded.out][...] = self._together(at, [lane[at] for lane in parts], ins)
        return tuple(outs)

    def _together(self, at: int, parts: Sequence[_Part], ins: Sequence[Array]) -> Array:
        """The initial value and the parts of all lanes, in their order."""
        folded, known = self._plan.folded[at], self._starts[at]
        if known is None:
            known = ins[self._plan.ins.index(folded.start)]
        start = folded.fold.start(known)
        dims, _ = self._forms[folded.out]
        result = np.empty(dims, folded.fold.wide)
        seen = set()
        for part in parts:
            for key, (place, array) in part.found.items():
                before = result[place] if key in seen else start
                result[place] = folded.fold.combine(before, array)
                seen.add(key)
        return folded.fold.finish(result)


class _Part:
    """A lane's partial reduce: an accumulator for each part of the result that its blocks lie in."""

    def __init__(self, folded: Folded) -> None:
        self._combine = folded.fold.combine
        self._kept = folded.kept
        self._rank = max((at for at, _ in folded.kept), default=-1) + 1
        self.found: dict[tuple[int, ...], tuple[tuple[slice, ...], Array]] = {}

    def add(self, places: Sequence[slice], array: Array) -> None:
        """Accumulate the next block's."""
        key = tuple(places[axis].start for _, axis in self._kept)
        known = self.found.get(key)
        if known is not None:
            self.found[key] = (known[0], self._combine(known[1], array))
            return
        index = [slice(None)] * self._rank
        for at, axis in self._kept:
            index[at] = places[axis]
        self.found[key] = (tuple(index), array)


_memory = ScratchMemory()  # a thread's, as large as the largest region needs that it ran


class _Scratches:
    """The scratch arrays of a region in this thread, for blocks of one length after the other."""

    def __init__(self, plan: RegionPlan) -> None:
        self._plan = plan
        self._memory = _memory.of(0, (plan.scratch_bytes,), np.dtype(np.uint8))
        self._size = -1
        self._arrays: tuple[Array, ...] = ()

    def of(self, size: int) -> tuple[Array, ...]:
        """For a range of ``size`` indices."""
        if size != self._size:
            self._size = size
            self._arrays = tuple(
                self._cut(scratch.begin, scratch.kind, scratch.dims, scratch.ranged, size)
                for scratch in self._plan.scratch
            )
        return self._arrays

    def _cut(
        self, begin: int, kind: np.dtype[Any], dims: Dims, ranged: int | None, size: int
    ) -> Array:
        if ranged is not None:
            dims = (*dims[:ranged], size, *dims[ranged + 1 :])
        count = prod(dims)
        part: Array = self._memory[begin : begin + count * kind.itemsize]
        return part.view(kind).reshape(dims)
