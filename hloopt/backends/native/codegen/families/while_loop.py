"""A whole loop, a block of its work items for each task."""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.analysis.index import Index, Symbol
from hloopt.analysis.parallel_loop.thread_code import thread_plan
from hloopt.backends.native.codegen.families.gemm import every_task
from hloopt.backends.native.codegen.lanes import across, for_lanes
from hloopt.backends.native.codegen.nest import BEGIN, END, least
from hloopt.backends.native.kernels.while_loop import (
    FINISH_ITERATIONS,
    blocks_of,
    part_place,
)
from hloopt.codegen.elements import Elements
from hloopt.codegen.emission import Asking
from hloopt.codegen.families.collecting import take_part
from hloopt.codegen.families.folding import ThreadFold, begin, merge
from hloopt.codegen.families.while_per_thread import ThreadUnit
from hloopt.codegen.loops.places import firsts, local_indices
from hloopt.codegen.writer import FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import Expr, Select, as_expr
from hloopt.kernel_ir.scope import Scope
from hloopt.kernel_ir.types import INT, LONG
from hloopt.kernels.families.while_per_thread import FINISH, ThreadLoop, thread_loop

__all__ = ["EMITTERS"]


def _emit(f: FunctionWriter) -> None:
    loop = thread_loop(f.region)
    f.elements.unrolled = thread_plan(loop.parallel).unrolled
    f.elements.reads_ahead = False
    if f.launch.function == FINISH:
        _finish(f, loop)
    else:
        _blocks(f, loop)


def _blocks(f: FunctionWriter, loop: ThreadLoop) -> None:
    """Each task: the work items of a block, as many lanes."""
    work_items, size = loop.parallel.work_items, f.tile["units"]
    names, kind = f.scope.names, f.loads.index_type
    with every_task(f, blocks_of(loop, f.tile)) as task:
        body, width = f.elements.scope, as_expr(size)
        first = body.declare(kind, as_expr(task).cast(kind) * size, "first")
        if work_items % size:
            left = work_items - first
            some = Select.of(left < size, left.cast(INT), size)
            width = body.declare(INT, some, "width")
        number = names.fresh("item")
        work_item = Scope(names)
        with f.elements.within(work_item):
            at = Symbol(number, 0, work_items - 1).index if work_items > 1 else Index(0)
            _Block(f, loop, at, _Task(task, width)).write()
        for statement in for_lanes(work_item.statements(), number, first, width, size, names):
            body.add(statement)


@dataclass(frozen=True)
class _Task:
    """The number of a task, and how many work items it has."""

    number: Index
    width: Expr


class _Block(ThreadUnit):
    """A work item of a block, which leaves its part of collected reduces to the block."""

    def __init__(self, f: FunctionWriter, loop: ThreadLoop, number: Index, task: _Task) -> None:
        super().__init__(f, loop, number)
        self.task = task

    def _stream(self) -> Asking:
        for number, reduce in enumerate(self.loop.parallel.collected):
            yield from self._leave(number, reduce)
        yield from super()._stream()

    def _leave(self, number: int, reduce: Instruction) -> Asking:
        e, running = self.e, self.running
        axes = running.loop.owned[reduce.operands[0], 0]
        blocks, iterations = part_place(self.loop, reduce.array.elements)
        for element, position in enumerate(
            local_indices(reduce.array, (None,) * reduce.array.rank)
        ):
            fold = begin(e, reduce)
            with e.when(*firsts(running.work_item, axes)):
                yield from take_part(e, running, fold, position)
            _fold_lanes(e, fold, self.task.width)
            place = self.task.number * blocks + running.iteration * iterations + element
            self.f.store(self.f.scratch(number), place, across(fold.names[0])[0])


def _fold_lanes(e: Elements, fold: ThreadFold, width: Expr) -> None:
    """Fold what the lanes have into that of the first: halves of them, again and again, in the same order."""
    lanes = [across(name) for name in fold.names]
    count = e.scope.variable(INT, "count", width)
    with e.within(e.scope.repeat(count > 1)) as outer:
        half = outer.declare(INT, (count + 1) / 2, "half")
        inner, lane = outer.loop(0, count - half, "lane")
        with e.within(inner):
            own = [inner.variable(one.element, "own", one[lane]) for one in lanes]
            others = [inner.declare(one.element, one[lane + half], "other") for one in lanes]
            fold.reducer.assign(e, own, others)
            for one, value in zip(lanes, own, strict=True):
                inner.set(one[lane], value)
        outer.set(count, half)


def _finish(f: FunctionWriter, loop: ThreadLoop) -> None:
    """Iteration by iteration: combine what the blocks left, compute what depends on it, store that."""
    e = f.elements
    count = loop.parallel.iterations.count
    assert count is not None
    kind = f.loads.index_type
    last = e.scope.declare(kind, least(END * FINISH_ITERATIONS, count), "iter_end")
    block, counter = e.scope.loop(BEGIN * FINISH_ITERATIONS, last, "iteration", kind)
    with e.within(block):
        iteration = Symbol(counter.name, 0, count - 1).index
        work_item = ThreadUnit(f, loop, Index(0))
        e.run(work_item.write_collected(iteration, _add_up(f, loop, iteration)))


def _add_up(
    f: FunctionWriter, loop: ThreadLoop, iteration: Index
) -> Sequence[Sequence[ThreadFold]]:
    e = f.elements
    blocks = blocks_of(loop, f.tile)
    folds: list[list[ThreadFold]] = []
    for number, reduce in enumerate(loop.parallel.collected):
        pointee = f.scratch(number)
        apart, iterations = part_place(loop, reduce.array.elements)
        found = []
        for element in range(reduce.array.elements):
            fold = begin(e, reduce)
            with e.counting(0, blocks, "part", type=LONG) as part:
                place = part * apart + iteration * iterations + element
                merge(e, fold, [e.load(pointee.memory, place, pointee.shape, "partial")])
            found.append(fold)
        folds.append(found)
    return folds


EMITTERS = {"native-while": _emit}
