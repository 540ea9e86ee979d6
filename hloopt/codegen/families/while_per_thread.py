"""A whole loop, a thread for each unit of it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from hloopt.analysis.index import Index, delinearize
from hloopt.analysis.parallel_loop import Axes, Carried
from hloopt.codegen.elemental.indexing import starts
from hloopt.codegen.elements import At, Emission, every, framed
from hloopt.codegen.families.loop import strided
from hloopt.codegen.loops.coverage import writes_all
from hloopt.codegen.loops.places import full_index, local_dims
from hloopt.codegen.loops.running import UNROLLED, Asking, Local, Running
from hloopt.codegen.positions import position_of
from hloopt.codegen.scope import Scope
from hloopt.codegen.writer import FunctionWriter
from hloopt.kernels.families.while_per_thread import ThreadLoop, thread_loop

__all__ = ["EMITTERS"]


def emit(f: FunctionWriter) -> None:
    """Each thread: the state in registers from the first trip to the last, streams stored as they come."""
    loop = thread_loop(f.region)
    assert loop is not None
    number, scope = strided(f, loop.parallel.units)
    with f.elements.within(scope):
        f.elements.unrolled = UNROLLED
        unit = delinearize(number, loop.parallel.sizes)
        _Unit(f, loop, unit).write()


class _Unit:
    """What a thread does for one unit."""

    def __init__(self, f: FunctionWriter, loop: ThreadLoop, unit: tuple[Index, ...]) -> None:
        self.f = f
        self.e = f.elements
        self.loop = loop
        self.unit = unit
        self.streams = [one for one in loop.parallel.carried if one.role == "streamed"]
        written = frozenset(one.number for one in self.streams)
        self.running = Running(self.e, loop.parallel, unit, self.e.frame, written)

    def write(self) -> None:
        self.e.run(self._all())

    def _all(self) -> Emission:
        for carried in self.streams:
            if not writes_all(carried, self.running.counting):
                yield from self._hand_on(carried)
        yield from self.running.run(self._stream)
        for carried in self.loop.parallel.carried:
            if carried.role == "invariant":
                yield from self._hand_on(carried)
            elif carried.role != "streamed":
                yield from self._store_last(carried)
        return ""

    def _whose(self, axes: Axes) -> AbstractContextManager[Scope]:
        """The block of the one unit that writes what lies along some of the axes only."""
        tests = [
            f"{at} == 0"
            for axis, at in enumerate(self.unit)
            if axis not in axes and not at.is_constant
        ]
        if not tests:
            return nullcontext(self.e.scope)
        return self.e.within(self.e.scope.block(f"if ({' && '.join(tests)})"))

    def _hand_on(self, carried: Carried) -> Asking:
        """Write what an element of the state is before the first trip."""

        def one(local: Local) -> Asking:
            value = yield self.running.first(carried, local)
            self._store_at(carried.number, full_index(carried.axes, self.unit, local), value)

        if self.loop.results(carried.number):
            with self._whose(carried.axes):
                yield from every(self.e, carried.local_dims, "j", one)

    def _store_last(self, carried: Carried) -> Asking:
        def one(local: Local) -> Asking:
            yield from ()
            value = self.running.last(carried, local)
            self._store_at(carried.number, full_index(carried.axes, self.unit, local), value)

        if self.loop.results(carried.number):
            with self._whose(carried.axes):
                yield from every(self.e, carried.local_dims, "j", one)

    def _store_at(self, number: int, index: tuple[Index, ...], value: str) -> None:
        for leaf in self.loop.results(number):
            pointee = self.f.result(leaf)
            self.f.store(pointee, position_of(index, pointee.shape), value)

    def _stream(self) -> Asking:
        """Write what the trip adds to the streamed elements."""
        for carried in self.streams:
            if self.loop.results(carried.number):
                yield from self._write_update(carried)

    def _write_update(self, carried: Carried) -> Asking:
        update, frame = carried.update, self.running.frame
        assert update is not None
        part = update.operands[1]
        first = yield from framed(
            frame, starts(self.e, update.operands[2:], carried.shape.dims, part.array.dims)
        )

        def one(local: Local) -> Asking:
            index = full_index(carried.axes, self.unit, local)
            value = yield At(part, index, 0, frame)
            where = tuple(a + b for a, b in zip(index, first, strict=True))
            self._store_at(carried.number, where, value)

        with self._whose(carried.axes):
            yield from every(self.e, local_dims(part.array, carried.axes), "j", one)


EMITTERS = {"while-per-thread": emit}
