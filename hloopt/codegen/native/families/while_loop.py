"""A whole loop, a block of its units for each task."""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.analysis.index import Index, Symbol
from hloopt.analysis.parallel_loop.thread_code import thread_plan
from hloopt.codegen.elements import Asking, Elements
from hloopt.codegen.families.collecting import take_part
from hloopt.codegen.families.folding import Fold, begin, merge
from hloopt.codegen.families.while_per_thread import Unit
from hloopt.codegen.loops.places import local_indices
from hloopt.codegen.native.lanes import across, write_lanes
from hloopt.codegen.types import register_type
from hloopt.codegen.writer import FunctionWriter
from hloopt.ir import Instruction
from hloopt.kernel_ir.scope import Scope
from hloopt.kernels.families.native_while import (
    FINISH,
    FINISH_TRIPS,
    blocks_of,
    part_place,
)
from hloopt.kernels.families.while_per_thread import ThreadLoop, thread_loop

__all__ = ["EMITTERS"]


def _emit(f: FunctionWriter) -> None:
    loop = thread_loop(f.region)
    assert loop is not None
    f.elements.unrolled = thread_plan(loop.parallel).unrolled
    f.elements.reads_ahead = False
    if f.launch.function == FINISH:
        _finish(f, loop)
    else:
        _blocks(f, loop)


def _blocks(f: FunctionWriter, loop: ThreadLoop) -> None:
    """Each task: the units of a block, as many lanes."""
    units, size = loop.parallel.units, f.tile["units"]
    names, kind = f.scope.names, f.loads.index_type
    task, first, width = names.fresh("task"), names.fresh("first"), str(size)
    body = f.scope.block(f"for (long long {task} = begin; {task} < end; ++{task})")
    body.line(f"const {kind} {first} = ({kind}){task} * {size};")
    if units % size:
        width = body.declare(
            "int", f"{units} - {first} < {size} ? (int)({units} - {first}) : {size}", "width"
        )
    number = names.fresh("unit")
    unit = Scope(names)
    with f.elements.within(unit):
        at = Symbol(number, 0, units - 1).index if units > 1 else Index(0)
        _Block(f, loop, at, _Lanes(task, width)).write()
    write_lanes(unit, body, number, first, width, size)


class _Lanes:
    """The names of a task and of how many units it has."""

    def __init__(self, task: str, width: str) -> None:
        self.task = task
        self.width = width


class _Block(Unit):
    """A unit of a block, which leaves its part of collected reduces to the block."""

    def __init__(self, f: FunctionWriter, loop: ThreadLoop, number: Index, lanes: _Lanes) -> None:
        super().__init__(f, loop, number)
        self.lanes = lanes

    def _stream(self) -> Asking:
        for number, reduce in enumerate(self.loop.parallel.collected):
            yield from self._leave(number, reduce)
        yield from super()._stream()

    def _leave(self, number: int, reduce: Instruction) -> Asking:
        e, running = self.e, self.running
        axes = running.loop.owned[reduce.operands[0], 0]
        alone = [
            f"{at} == 0"
            for axis, at in enumerate(running.unit)
            if axis not in axes and not at.is_constant
        ]
        blocks, trips = part_place(self.loop, reduce.array.elements)
        for element, position in enumerate(
            local_indices(reduce.array, (None,) * reduce.array.rank)
        ):
            fold = begin(e, reduce)
            scope = e.scope.when(f"{' && '.join(alone)}") if alone else e.scope
            with e.within(scope):
                yield from take_part(e, running, fold, position)
            _fold_lanes(e, fold, self.lanes.width)
            place = running.trip * trips + element
            linear = f"(long long){self.lanes.task} * {blocks} + {place}"
            self.f.store(self.f.scratch(number), linear, f"{across(fold.names[0])}[0]")


def _fold_lanes(e: Elements, fold: Fold, width: str) -> None:
    """Fold what the lanes have into that of the first: halves of them, again and again, in the same order."""
    names = e.scope.names
    count, half, lane = names.fresh("count"), names.fresh("half"), names.fresh("lane")
    lanes = [across(name) for name in fold.names]
    outer = e.scope.block(f"for (int {count} = {width}; {count} > 1;)")
    outer.line(f"const int {half} = ({count} + 1) / 2;")
    inner = outer.block(f"for (int {lane} = 0; {lane} < {count} - {half}; ++{lane})")
    with e.within(inner):
        kinds = [register_type(kind) for kind in fold.reducer.accumulators]
        own = [
            inner.variable(kind, "own", f"{name}[{lane}]")
            for kind, name in zip(kinds, lanes, strict=True)
        ]
        others = [
            inner.declare(kind, f"{name}[{lane} + {half}]", "other")
            for kind, name in zip(kinds, lanes, strict=True)
        ]
        fold.reducer.assign(e, own, others)
        for name, value in zip(lanes, own, strict=True):
            inner.line(f"{name}[{lane}] = {value};")
    outer.line(f"{count} = {half};")


def _finish(f: FunctionWriter, loop: ThreadLoop) -> None:
    """Trip by trip: put together what the blocks left, compute what follows, write it."""
    e = f.elements
    count = loop.parallel.trips.count
    assert count is not None
    kind, name = f.loads.index_type, f.scope.names.fresh("trip")
    last = f"end * {FINISH_TRIPS} < {count} ? end * {FINISH_TRIPS} : {count}"
    f.scope.line(f"const {kind} {name}_end = {last};")
    header = f"for ({kind} {name} = begin * {FINISH_TRIPS}; {name} < {name}_end; ++{name})"
    with e.within(f.scope.block(header)):
        trip = Symbol(name, 0, count - 1).index
        unit = Unit(f, loop, Index(0))
        e.run(unit.write_collected(trip, _add_up(f, loop, trip)))


def _add_up(f: FunctionWriter, loop: ThreadLoop, trip: Index) -> Sequence[Sequence[Fold]]:
    e = f.elements
    blocks = blocks_of(loop, f.tile)
    folds: list[list[Fold]] = []
    for number, reduce in enumerate(loop.parallel.collected):
        pointee = f.scratch(number)
        apart, trips = part_place(loop, reduce.array.elements)
        found = []
        for element in range(reduce.array.elements):
            fold = begin(e, reduce)
            name = e.scope.names.fresh("part")
            header = f"for (long long {name} = 0; {name} < {blocks}; ++{name})"
            with e.within(e.scope.block(header)):
                part = Symbol(name, 0, blocks - 1).index
                place = part * apart + trip * trips + element
                merge(e, fold, [e.load(pointee.memory, place, pointee.shape, "partial")])
            found.append(fold)
        folds.append(found)
    return folds


EMITTERS = {"native-while": _emit}
