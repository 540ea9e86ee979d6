"""Reduces over work items: each warp leaves its part of an iteration, a later launch adds them up.

A part lies in scratch at ``(iteration, element of the result, warp)``, so that the parts of one result are
neighbours.  They are added in the same order each time: two runs give the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.analysis.index import Index, Indices, linearize
from hloopt.codegen.elements import Elements
from hloopt.codegen.emission import Asking, At, Emission, ValuePlace, every, framed
from hloopt.codegen.families.folding import ThreadFold, begin, merge, take, tree
from hloopt.codegen.loops.places import firsts, local_indices
from hloopt.codegen.loops.running import Running
from hloopt.codegen.reducer import ReducerCode
from hloopt.codegen.writer import FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import Expr, Select, eq
from hloopt.kernels.families.sweeps import WARP

__all__ = ["add_up", "leave_parts", "settle", "take_part"]


@dataclass(frozen=True)
class _Totals(ValuePlace):
    """The elements of a result that have been added up, by their position."""

    dims: tuple[int, ...]
    totals: tuple[Expr, ...]

    def element(self, e: Elements, index: Indices) -> Emission:
        yield from ()
        position = linearize(index, self.dims)
        if position.is_constant:
            return self.totals[position.constant]
        *first, choice = self.totals
        for at, total in reversed(list(enumerate(first))):
            choice = Select.of(eq(position, at), total, choice)
        return choice


def leave_parts(
    f: FunctionWriter, running: Running, thread: Index, inside: Sequence[Expr]
) -> Asking:
    """In an iteration: fold what the lanes of a warp have, and let its first lane write it.

    ``inside`` are the tests that a thread has a work item.
    """
    for number, reduce in enumerate(running.loop.collected):
        operand = reduce.operands[0]
        axes = running.loop.owned[operand, 0]
        tests = [*inside, *firsts(running.work_item, axes)]
        folds = []
        for position in local_indices(reduce.array, (None,) * reduce.array.rank):
            fold = begin(f.elements, reduce)
            folds.append(fold)
            with f.elements.when(*tests):
                yield from take_part(f.elements, running, fold, position)
        tree(f.elements, folds, WARP // 2)
        with f.elements.when(eq(thread % WARP, 0), *inside):
            for at, fold in enumerate(folds):
                place = _part(running, reduce, running.iteration, at) + thread // WARP
                f.store(f.scratch(number), place, fold.names[0])


def take_part(e: Elements, running: Running, fold: ThreadFold, position: Sequence[Index]) -> Asking:
    """What the work item adds to an element of the result."""
    operand = fold.hero.operands[0]
    axes = running.loop.owned[operand, 0]
    reduced = set(fold.hero.attributes["dimensions"])
    dims = operand.array.dims
    along = [at for at in sorted(reduced) if axes[at] is None]

    def one(places: Sequence[Index]) -> Asking:
        kept = iter(position)
        inner = dict(zip(along, places, strict=True))
        index = []
        for at, axis in enumerate(axes):
            if axis is not None:
                index.append(running.work_item[axis])
            else:
                index.append(inner[at] if at in reduced else next(kept))
        value = yield At(operand, tuple(index), 0, running.frame)
        take(e, fold, [value])

    yield from every(e, [dims[at] for at in along], "r", one)


def _warps(running: Running) -> int:
    return -(-running.loop.work_items // WARP)


def _part(running: Running, reduce: Instruction, iteration: Index, element: int) -> Index:
    """The place of the first warp's part."""
    return (iteration * reduce.array.elements + element) * _warps(running)


def add_up(
    f: FunctionWriter, running: Running, iteration: Index, lane: Index
) -> list[list[ThreadFold]]:
    """A warp: the parts of each collected element of an iteration, added up for its first lane."""
    e = f.elements
    warps = _warps(running)
    folds: list[list[ThreadFold]] = []
    for number, reduce in enumerate(running.loop.collected):
        pointee = f.scratch(number)
        found = []
        for element in range(reduce.array.elements):
            fold = begin(e, reduce)
            with e.counting(lane, warps, "part", WARP) as part:
                place = _part(running, reduce, iteration, element) + part
                merge(e, fold, [e.load(pointee.memory, place, pointee.shape, "partial")])
            found.append(fold)
        tree(e, found, WARP // 2)
        folds.append(found)
    return folds


def settle(e: Elements, running: Running, folds: Sequence[Sequence[ThreadFold]]) -> Asking:
    """Finish the results: fold the init values in, round, and make them known."""
    for reduce, found in zip(running.loop.collected, folds, strict=True):
        reducer = ReducerCode.of(reduce)
        totals = []
        for fold in found:
            init = yield At(reduce.operands[1], (), 0, running.frame)
            total = yield from framed(
                running.frame, reducer.combine(e, reducer.lift(e, [init]), fold.names)
            )
            kind = e.uses.type(reducer.accumulators[0])
            totals += reducer.lower(e, [e.scope.declare(kind, total[0], "total")])
        e.places[running.frame, reduce, 0] = _Totals(reduce.array.dims, tuple(totals))
