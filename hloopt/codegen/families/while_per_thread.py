"""A whole loop, a thread for each work item of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from hloopt.analysis.index import Index, delinearize, symbols_of
from hloopt.analysis.parallel_loop import Carried, local_dims
from hloopt.analysis.parallel_loop.thread_code import thread_plan
from hloopt.analysis.parallel_loop.thread_lanes import LaneValues
from hloopt.codegen.elemental.indexing import starts
from hloopt.codegen.emission import Asking, At, every, framed
from hloopt.codegen.families.collecting import add_up, leave_parts, settle
from hloopt.codegen.families.folding import ThreadFold
from hloopt.codegen.families.loop import bounded, strided
from hloopt.codegen.loops.lanes import Lanes
from hloopt.codegen.loops.places import LoopResults, full_index
from hloopt.codegen.loops.running import Local, Running
from hloopt.codegen.writer import FunctionWriter
from hloopt.kernel_ir.expressions import Expr, Select, below, eq
from hloopt.kernels.families.sweeps import WARP
from hloopt.kernels.families.while_per_thread import (
    FINISH,
    ThreadLoop,
    lanes_of,
    needs_whole_warps,
    thread_loop,
)
from hloopt.types import ArrayShape

__all__ = ["EMITTERS", "ThreadUnit"]


def emit(f: FunctionWriter) -> None:
    """Each thread: the state in registers from the first iteration to the last, streams stored as they come."""
    loop = thread_loop(f.region)
    f.elements.unrolled = thread_plan(loop.parallel).unrolled
    if f.launch.function == FINISH:
        _finish(f, loop)
    elif needs_whole_warps(loop, lanes_of(f.tile)):
        _in_whole_warps(f, loop)
    else:
        with strided(f, loop.parallel.work_items) as number:
            ThreadUnit(f, loop, number).write()


def _in_whole_warps(f: FunctionWriter, loop: ThreadLoop) -> None:
    """No thread leaves early: lanes exchange values.  Those past the end compute the last work item."""
    lanes = lanes_of(f.tile)
    thread = f.global_thread("i")
    work_items = loop.parallel.work_items
    own = f.elements.symbol(thread // lanes, "item", 0, thread.high // lanes)
    tests = [] if lanes == 1 else [eq(thread % lanes, 0)]
    if outside := below(own, work_items):
        tests += outside
        own = f.elements.symbol(
            Select.of(outside[0], own, work_items - 1), "item", 0, work_items - 1
        )
    ThreadUnit(f, loop, own, thread, tests, _lanes(f, loop, lanes, own)).write()


def _lanes(f: FunctionWriter, loop: ThreadLoop, lanes: int, work_item: Index) -> Lanes | None:
    """The lanes that compute values of some iterations at once; None where there are none."""
    found = LaneValues(loop.parallel)
    values = found.exchangeable(lanes)
    if not values:
        return None
    fixed = frozenset(symbols_of((work_item,))) if lanes > 1 else frozenset()
    states = found.advanced if lanes > 1 else ()
    return Lanes(values, found.width(lanes), f.thread(), fixed, states)


def _finish(f: FunctionWriter, loop: ThreadLoop) -> None:
    """A warp for each iteration: adds up what the warps left, computes what follows, writes it."""
    e = f.elements
    count = loop.parallel.iterations.count
    assert count is not None
    thread = f.global_thread("i")
    iteration = bounded(f, e.symbol(thread // WARP, "iter", 0, (thread // WARP).high), count)
    work_item = ThreadUnit(f, loop, Index(0))
    lane = e.symbol(thread % WARP, "lane", 0, WARP - 1)
    folds = add_up(f, work_item.running, iteration, lane)
    with e.when(eq(lane, 0)):
        e.run(work_item.write_collected(iteration, folds))


class ThreadUnit:
    """What a thread does for one work item.

    thread  its number; ``inside`` are the tests that it has a work item
    """

    def __init__(
        self,
        f: FunctionWriter,
        loop: ThreadLoop,
        number: Index,
        thread: Index | None = None,
        inside: Sequence[Expr] = (),
        lanes: Lanes | None = None,
    ) -> None:
        self.f = f
        self.e = f.elements
        self.loop = loop
        self.work_item = delinearize(number, loop.parallel.sizes)
        self.thread = thread
        self.results = LoopResults(f, loop.fused, self.work_item, inside)
        self.streams = [one for one in loop.parallel.carried if one.role == "streamed"]
        written = frozenset(one.number for one in self.streams)
        self.running = Running(
            self.e, loop.parallel, self.work_item, self.e.frame, written, lanes=lanes
        )

    def write(self) -> None:
        """Write the whole body."""
        self.e.run(self._all())

    def write_collected(self, iteration: Index, folds: Sequence[Sequence[ThreadFold]]) -> Asking:
        """In the launch after: finish what was collected in an iteration, and write what follows."""
        running = self.running
        running.place_outside(self.e.scope.section())
        running.counting.place(self.e, running.frame, iteration)
        running.counting.place_turning(self.e, running.frame, iteration)
        yield from settle(self.e, running, folds)
        for carried in self.streams:
            if carried.update in self.loop.parallel.after:
                yield from self._write_update(carried)

    def _all(self) -> Asking:
        for carried in self.streams:
            if not self.loop.covers(carried.number):
                yield from self._pass_through(carried)
        yield from self.running.run(self._stream)
        for carried in self.loop.parallel.carried:
            if carried.role == "invariant":
                yield from self._pass_through(carried)
            elif carried.role != "streamed":
                yield from self._store_last(carried)

    def _pass_through(self, carried: Carried) -> Asking:
        """Write what an element of the state is before the first iteration."""
        return self._store(carried, partial(self.running.first, carried))

    def _store_last(self, carried: Carried) -> Asking:
        """Write what an element of the state is after the last iteration."""
        return self._store(carried, partial(self.running.last, carried))

    def _store(
        self,
        carried: Carried,
        value: Callable[[Local], At | Expr],
        shape: ArrayShape | None = None,
        first: Sequence[Index] = (),
    ) -> Asking:
        """Write what a work item has of an element of the state, or of a part of it that lies at ``first``."""

        def one(local: Local) -> Asking:
            found = value(local)
            if isinstance(found, At):
                found = yield found
            index = full_index(carried.axes, self.work_item, local)
            self.results.store(carried.number, index, found, first)

        if self.loop.fused.leaves(carried.number):
            with self.results.of_one_unit(carried.axes):
                dims = local_dims(shape or carried.shape, carried.axes)
                yield from every(self.e, dims, "j", one, around=self.work_item)

    def _stream(self) -> Asking:
        """Write what the iteration adds to the streamed elements."""
        if self.thread is not None and self.loop.parallel.collected:
            yield from leave_parts(self.f, self.running, self.thread, self.results.inside)
        for carried in self.streams:
            if carried.update not in self.loop.parallel.after:
                yield from self._write_update(carried)

    def _write_update(self, carried: Carried) -> Asking:
        update, frame = carried.update, self.running.frame
        assert update is not None
        part = update.operands[1]
        first = yield from framed(
            frame, starts(self.e, update.operands[2:], carried.shape.dims, part.array.dims)
        )

        def value(local: Local) -> At:
            return At(part, full_index(carried.axes, self.work_item, local), 0, frame)

        yield from self._store(carried, value, part.array, first)


EMITTERS = {"while-per-thread": emit}
