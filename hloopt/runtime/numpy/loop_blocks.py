"""A fused loop by blocks of its units: all trips of a block while its part of everything is in the cache.

The units along the largest parallel axis are taken a few thousand at a time.  Body and condition are compiled
again for that many (``loop_clone``); what the loop reads and writes along the axis are slices of the whole
arrays.  A reduce over the axis that only goes into stacked outputs leaves a part a block and trip; when all
blocks are through, the parts are put together in the order of the blocks and what follows from them is
computed trip by trip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from hloopt.analysis.parallel_loop import ParallelLoop, parallel_loop
from hloopt.analysis.parallel_loop.edges import leaf_count, shape_of
from hloopt.interpret.context import Context
from hloopt.interpret.movement import iota
from hloopt.interpret.reducer import reducer_of
from hloopt.interpret.reduction import reduce as fold_all
from hloopt.interpret.regions import combiner
from hloopt.ir import Computation, Instruction
from hloopt.passes.scan_recognition.ranges import identity
from hloopt.runtime.numpy.loop_clone import LoopClone, clone_loop
from hloopt.runtime.numpy.loop_places import WHOLE, Needs, Variable, needs
from hloopt.runtime.numpy.loops import Stuck, trips
from hloopt.runtime.numpy.plan import Function
from hloopt.types import TupleShape

__all__ = ["Blocking", "Blocks", "CompiledLoop", "plan_blocks"]

_REPEATED: Final = 8
"""Of the work of all blocks at most one part in so many may be what each of them repeats."""

_ROUNDED: Final = 16
"""Units of a block are a multiple of this: rows of blocks begin where vectors do."""

_ONCE: Final = frozenset({"add", "multiply", "xor"})
_IDEMPOTENT: Final = frozenset({"and", "maximum", "minimum", "or"})


@dataclass(frozen=True, slots=True)
class Blocking:
    """When and how finely.

    whole_bytes     a loop of which a trip touches no more runs whole: it is in the last cache all the time,
                    which is as quick as calling NumPy more often is slow
    block_bytes     what a trip of a block may touch: the second-level cache a core has for itself, 1 to 2 MB
                    since about 2020
    least_elements  of a call of NumPy, on the average: as many as take several times as long as the call
    units           so many units in a block, whatever the others say; 0 lets them say
    """

    whole_bytes: int = 8 << 20
    block_bytes: int = 1 << 20
    least_elements: int = 16384
    units: int = 0


@dataclass(frozen=True, slots=True)
class CompiledLoop:
    """Condition and body as functions of the flat state; the body writes into the state at ``written``."""

    condition: Function
    body: Function
    kept: Function
    written: frozenset[int]


Compile = Callable[[Computation, Computation, TupleShape], CompiledLoop]


@dataclass(frozen=True, eq=False)
class Blocks:
    """How a loop is cut.

    axis     number of the parallel axis
    size     units of a block
    needs    what a block computes
    partial  reduces of which a block has a part
    later    what the parts take then; None where there are none
    results  elements of the state that are wanted of the blocks, and ``late`` after them
    """

    parallel: ParallelLoop
    axis: int
    size: int
    needs: Needs
    partial: tuple[Instruction, ...]
    later: Needs | None
    late: frozenset[int]

    @property
    def units(self) -> int:
        """Along the axis."""
        return self.parallel.sizes[self.axis]

    @property
    def words(self) -> str:
        """For people."""
        count = -(-self.units // self.size)
        return f"{count} blocks of {self.size} units"


def plan_blocks(
    loop: Instruction, results: Sequence[int], trip_bytes: int, blocking: Blocking
) -> Blocks | str:
    """How to cut a ``while`` of which the elements ``results`` are wanted, or why it runs whole.

    ``trip_bytes``: of arrays that the body makes and has alive at once.
    """
    parallel = parallel_loop(loop, collect=True)
    if parallel.obstacle is not None:
        return parallel.obstacle.words
    if not parallel.sizes:
        return "it has no parallel axis"
    if parallel.trips.kind == "gathered":
        return "whether it goes on depends on all units"
    axis = max(range(len(parallel.sizes)), key=parallel.sizes.__getitem__)
    touched = _state_bytes(parallel, axis) + trip_bytes
    if not blocking.units and touched <= blocking.whole_bytes:
        return f"a trip touches {touched} bytes, which is no more than {blocking.whole_bytes}"
    partial = parallel.collected
    for one in partial:
        if problem := _problem(one):
            return problem
    if partial and parallel.trips.kind == "element":
        return "blocks that end at different trips have no parts of the same reduces"
    late = frozenset(
        carried.number for carried in parallel.carried if carried.update in parallel.after
    )
    wanted = [(loop, number, _place(parallel, number, axis)) for number in results]
    early = [variable for variable in wanted if variable[1] not in late]
    told = [(one, leaf, WHOLE) for one in partial for leaf in range(leaf_count(one))]
    ends = _ending(parallel)
    found = needs(parallel, axis, [*early, *told], joined=frozenset((*partial, *ends)))
    later = None
    if partial:
        rest = [variable for variable in wanted if variable[1] in late]
        later = needs(parallel, axis, rest, given=frozenset(partial))
    problem = found.problem or (later.problem if later is not None else "")
    if problem:
        return problem
    size = _size(_work(found), parallel.sizes[axis], touched, blocking)
    if isinstance(size, str):
        return size
    return Blocks(parallel, axis, size, found, partial, later, late)


def _place(parallel: ParallelLoop, number: int, axis: int) -> int:
    axes = parallel.carried[number].axes
    return axes.index(axis) if axis in axes else WHOLE


def _state_bytes(parallel: ParallelLoop, axis: int) -> int:
    """Of what the units own; of what is streamed a trip touches a row, which the body makes."""
    return sum(
        carried.shape.elements * carried.shape.dtype.numpy.itemsize
        for carried in parallel.carried
        if carried.role == "owned" and axis in carried.axes
    )


def _size(work: _Work, units: int, touched: int, blocking: Blocking) -> int | str:
    """Units of a block, or why there are none."""
    if blocking.units:
        return min(blocking.units, units)
    if not work.own:
        return "nothing in it lies along the axis"
    enough = blocking.least_elements * work.calls * units // work.own
    size = max(blocking.block_bytes * units // touched, enough, 1)
    count = -(-units // size)
    size = -(-units // count)
    if size > _ROUNDED:
        size = -(-size // _ROUNDED) * _ROUNDED
    if size >= units:
        return f"a block of fewer than all {units} units would be too small"
    if size * touched // units > max(blocking.whole_bytes, blocking.block_bytes):
        return (
            f"a block of {size} units, the fewest that pay, would be no more in the cache than all"
        )
    if work.same * count * _REPEATED > work.own:
        words = f"{work.same} elements a trip that are the same for all units"
        return f"{count} blocks would each compute {words}, beside {work.own} of their own"
    return size


def _problem(reduce: Instruction) -> str:
    """Why parts of a reduce cannot be put together as if they were one."""
    name = combiner(reduce.attributes["to_apply"])
    if name in _IDEMPOTENT:
        return ""
    if name not in _ONCE:
        return f"parts of reduce {reduce.name} cannot be told to add up to the whole"
    literal = reduce.operands[1].literal
    start = literal.array if literal is not None else None
    if start is None or start.reshape(()) != identity(name, reduce.array.dtype):
        return f"each part of reduce {reduce.name} would begin with its first value"
    return ""


def _ending(parallel: ParallelLoop) -> Iterator[Instruction]:
    """The reduces that ask whether any unit goes on: a block asks its own."""
    if parallel.trips.kind == "element":
        condition: Computation = parallel.loop.attributes["condition"]
        yield from (one for one in condition if one.opcode == "reduce")


@dataclass(frozen=True, slots=True)
class _Work:
    """What a trip computes: elements along the axis and others, and in how many calls."""

    own: int
    same: int
    calls: int


def _work(found: Needs) -> _Work:
    own, same, calls = 0, 0, 0
    for instruction, pairs in found.variables.items():
        if instruction.opcode in ("parameter", "constant", "iota", "broadcast"):
            continue
        for leaf, place in pairs:
            if (instruction, leaf) in found.sources:
                continue
            calls += 1
            elements = shape_of((instruction, leaf)).elements
            own, same = (own, same + elements) if place == WHOLE else (own + elements, same)
    return _Work(own, same, calls)


@dataclass(frozen=True, slots=True)
class _Sized:
    """A loop compiled for blocks of one size."""

    clone: LoopClone
    loop: CompiledLoop


class BlockedLoop:
    """A loop that runs by blocks: from the flat state to the flat state."""

    def __init__(self, blocks: Blocks, compiled: Compile, context: Context, stuck: Stuck) -> None:
        self.blocks = blocks
        self._compiled = compiled
        self._context = context
        self._stuck = stuck
        self._sized: dict[int, _Sized] = {}
        self._sources: dict[Variable, Any] = {}

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
        told: list[list[tuple[Any, ...]]] = []
        longest = -1
        for start in range(0, self.blocks.units, self.blocks.size):
            stop = min(start + self.blocks.size, self.blocks.units)
            parts: list[tuple[Any, ...]] = []
            ends, count = self._block(state, results, slice(start, stop), parts)
            told.append(parts)
            if count > longest:
                # What all units compute alike, they do as long as the last of them goes on.
                longest = count
                alike = ends
        for (number, place), array in alike.items():
            if place == WHOLE:
                results[number] = array
        if self._later is not None:
            self._put_together(state, results, told, longest)
        return tuple(results)

    def _block(
        self,
        state: Sequence[Any],
        results: Sequence[Any],
        units: slice,
        parts: list[tuple[Any, ...]],
    ) -> tuple[Mapping[tuple[int, int], Any], int]:
        """All trips of a block; its state after the last one, and their number."""
        sized = self._of_size(units.stop - units.start)
        elements = sized.clone.elements
        streamed = self._streamed
        start: list[Any] = []
        for at, (number, place) in enumerate(elements):
            private = at in sized.loop.written
            if place == WHOLE:
                array = state[number]
            elif number in streamed:
                array, private = _cut(results[number], place, units), False
            else:
                array = _cut(state[number], place, units)
            start.append(np.array(array) if private else array)
        start += [_cut(self._source(source), source[2], units) for source in sized.clone.sources]
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
        ended, count = trips(sized.loop.condition, body, kept, kept(begun), self._stuck)
        found = dict(zip(elements, ended, strict=False))
        for (number, place), array in found.items():
            if place != WHOLE and number in self.written:
                target = _cut(results[number], place, units)
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
            told = [(one, leaf, WHOLE) for one in blocks.partial for leaf in range(leaf_count(one))]
            clone = clone_loop(blocks.parallel, blocks.needs, size, told=told)
            self._sized[size] = self._compile(clone)
        return self._sized[size]

    def _compile(self, clone: LoopClone) -> _Sized:
        shape = clone.condition.parameters[0].shape
        assert isinstance(shape, TupleShape)
        return _Sized(clone, self._compiled(clone.condition, clone.body, shape))

    def _source(self, variable: Variable) -> Any:
        if variable not in self._sources:
            instruction = variable[0]
            shape = instruction.array
            if instruction.opcode == "iota":
                along = instruction.attributes["iota_dimension"]
                array = self._context.round(iota(shape.dims, along, shape.dtype), shape.dtype)
            else:
                literal = instruction.literal
                assert literal is not None
                assert literal.array is not None
                array = self._context.round(literal.array, shape.dtype)
            self._sources[variable] = array
        return self._sources[variable]

    # ---- reduces over the axis ----------------------------------------------------------------------

    @cached_property
    def _later(self) -> _Sized | None:
        blocks = self.blocks
        if blocks.later is None:
            return None
        given = [(one, leaf, WHOLE) for one in blocks.partial for leaf in range(leaf_count(one))]
        return self._compile(clone_loop(blocks.parallel, blocks.later, blocks.size, given=given))

    def _put_together(
        self,
        state: Sequence[Any],
        results: list[Any],
        told: Sequence[Sequence[tuple[Any, ...]]],
        count: int,
    ) -> None:
        """Trip by trip what follows from reduces over all blocks."""
        later = self._later
        assert later is not None
        begun = [state[number] for number, _ in later.clone.elements]
        for at in later.loop.written:
            begun[at] = np.array(begun[at])
        now: tuple[Any, ...] = later.loop.kept(tuple(begun))
        for trip in range(count):
            parts = zip(*(block[trip] for block in told), strict=True)
            whole = [
                self._whole(reduce, columns)
                for reduce, columns in zip(self.blocks.partial, parts, strict=True)
            ]
            now = later.loop.kept(later.loop.body(*now, *whole))
        for (number, _), array in zip(later.clone.elements, now, strict=True):
            if number in self.blocks.late:
                results[number] = array

    def _whole(self, reduce: Instruction, parts: Sequence[Any]) -> Any:
        """The parts of all blocks in their order; each began with what adds nothing."""
        region, kind = reduce.attributes["to_apply"], reduce.array.dtype
        name = combiner(region)
        assert name is not None
        first = self._context.round(identity(name, kind), kind)
        (array,) = fold_all([np.stack(parts)], [first], [0], reducer_of(region, self._context))
        return self._context.round(array, kind)


def _cut(array: Any, place: int, units: slice) -> Any:
    return array[(slice(None),) * place + (units,)]
