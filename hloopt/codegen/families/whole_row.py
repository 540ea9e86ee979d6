"""The whole-row kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import field

from hloopt.analysis.index import Index, delinearize
from hloopt.codegen.families.folding import (
    ThreadFold,
    begin,
    everywhere,
    finish,
    identity,
    keep,
    merge,
    reload,
    shared_tiles,
    take,
    tree,
)
from hloopt.codegen.families.loop import store_run
from hloopt.codegen.families.picking import Picking
from hloopt.codegen.families.running_sums import RunningSum
from hloopt.codegen.families.sweeping import first_of, guarded, warps_to_shared
from hloopt.codegen.reducer import ReducerCode
from hloopt.codegen.writer import FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import Array, Expr, Select, as_expr, below, eq
from hloopt.kernels.families.row_phases import RowPhases, whole_rows
from hloopt.kernels.families.sweeps import WARP
from hloopt.kernels.families.whole_row import COLUMNS, groups_of, merged_phases, steps_of

__all__ = ["EMITTERS"]


def _emit(f: FunctionWriter) -> None:
    """Phase by phase: traverse the row, reduce, compute the values that the row has one of."""
    phases = whole_rows(f.region)
    if f.launch.function == COLUMNS:
        _add_up(f, phases)
        return
    rows, threads = f.tile["rows"], f.tile["threads"]
    groups = groups_of(phases, f.spec.tile)
    e = f.elements
    hint = "group" if phases.columns else "row"
    group = e.symbol(f.block() * rows + f.thread() // threads, hint, 0, groups - 1)
    lane = e.symbol(f.thread() % threads, "lane", 0, threads - 1)
    sums = [_declared(f, column, steps_of(phases, f.tile)) for column in phases.columns]
    turns = -(-phases.rows // groups)
    with e.counting(0, turns, "turn") as turn:
        row = e.symbol(turn * groups + group, "row", 0, turns * groups - 1)
        _one_row(f, phases, row, lane, sums)
        if turns > 1 and threads > WARP:
            # Some threads may still read what the next row's reductions overwrite.
            f.barrier()
    _leave_columns(f, phases, group, lane, sums)


def _one_row(
    f: FunctionWriter, phases: RowPhases, row: Index, lane: Index, sums: Sequence[Array]
) -> None:
    e = f.elements
    inside = row
    if row.high >= phases.rows:
        # Threads past the last row compute it again, and store nothing.
        last = phases.rows - 1
        choice = Select.of(as_expr(row) < phases.rows, row, last)
        inside = e.symbol(choice, "inside", 0, last)
    writer = _Rows(f, phases, row, inside, lane, sums)
    for instruction in phases.given:
        e.value(instruction, delinearize(inside, instruction.array.dims))
    together = merged_phases(phases, f.tile)
    for number, heroes in enumerate(phases.heroes):
        if number and together[number - 1]:
            continue
        folds = [begin(e, hero) for hero in heroes]
        along = phases.heroes[number + 1] if together[number] else ()
        running = [RunningSum.begin(e, hero, inside) for hero in along]
        writer.reduce(number, folds, running)
        for fold in writer.exchange(folds):
            finish(e, fold, inside)
        for one in running:
            one.settle(e)
        for fold in writer.exchange([one.fold for one in running]) if running else ():
            finish(e, fold, inside)
        after = phases.per_row[number + 1] if running else ()
        for instruction in (*phases.per_row[number], *after):
            e.value(instruction, delinearize(inside, instruction.array.dims))
    if phases.full or phases.columns:
        writer.store_places()
    if phases.picks:
        _pick(writer)
    if phases.single:
        writer.store_rows()


def _declared(f: FunctionWriter, column: Instruction, steps: int) -> Array:
    """Accumulators of a column for each of a thread's places."""
    e = f.elements
    reducer = ReducerCode.of(column)
    kind, slots = reducer.accumulators[0], steps * f.tile["vector"]
    sums = e.scope.array(e.uses.type(kind), (slots,), f"{column.name}_sums")
    start = identity(reducer)
    assert start is not None, "a column's reducer has an identity"
    with e.counting(0, slots, "slot", unroll=0) as slot:
        e.scope.set(sums[slot], start)
    return sums


def _leave_columns(
    f: FunctionWriter, phases: RowPhases, group: Index, lane: Index, sums: Sequence[Array]
) -> None:
    """Partial results of the columns, in scratch memory: a row a group of threads."""
    if not sums:
        return
    e = f.elements
    threads, vector = f.tile["threads"], f.tile["vector"]
    steps = steps_of(phases, f.tile)
    with ExitStack() as blocks:
        step = blocks.enter_context(e.counting(0, steps, "step", unroll=0))
        at = e.symbol(step * threads + lane, "at", 0, steps * threads - 1)
        at = blocks.enter_context(guarded(f, at, phases.minor // vector))
        first = group * phases.minor + at * vector
        for number, own in enumerate(sums):
            for place in range(vector):
                f.store(f.scratch(number), first + place, own[step * vector + place])


def _add_up(f: FunctionWriter, phases: RowPhases) -> None:
    """A warp has 32 neighbouring columns; the warps of a block share their partial results."""
    e = f.elements
    groups, minor = groups_of(phases, f.spec.tile), phases.minor
    warps = f.launch.block[0] // WARP
    lane = e.symbol(f.thread() % WARP, "lane", 0, WARP - 1)
    warp = e.symbol(f.thread() // WARP, "warp", 0, warps - 1)
    column = e.symbol(f.block() * WARP + lane, "column", 0, f.launch.grid[0] * WARP - 1)
    folds = [begin(e, hero) for hero in phases.columns]
    with e.counting(warp, groups, "group", warps) as group, guarded(f, column, minor) as at:
        for number, fold in enumerate(folds):
            part = f.scratch(number)
            merge(e, fold, [e.load(part.memory, group * minor + at, part.shape, "part")])
    tiles = shared_tiles(e, folds, (warps, WARP))
    for fold, own in zip(folds, tiles, strict=True):
        keep(e, fold, [tile[warp, lane] for tile in own])
    f.barrier()
    with e.when(eq(warp, 0)), guarded(f, column, minor) as at:
        with e.counting(1, warps, "other") as other:
            for fold, own in zip(folds, tiles, strict=True):
                merge(e, fold, [tile[other, lane] for tile in own])
        for fold in folds:
            finish(e, fold, at)
        for number in phases.across:
            result = f.region.results[number]
            index = delinearize(at, result.shape.dims)
            f.store(f.result(number), at, e.value(result.instruction, index, result.leaf))


@dataclass
class _Rows:
    """Writing the phases: ``row`` is the thread's, ``inside`` the same or the last one there is.

    ``sums`` are the accumulators of columns.
    """

    f: FunctionWriter
    phases: RowPhases
    row: Index
    inside: Index
    lane: Index
    sums: Sequence[Array] = ()
    arrays: dict[Instruction, Array] = field(default_factory=dict)

    @property
    def vector(self) -> int:
        """Neighbours a thread reads at once."""
        return self.f.tile["vector"]

    def reduce(
        self, phase: int, folds: Sequence[ThreadFold], sums: Sequence[RunningSum] = ()
    ) -> None:
        """Take the thread's elements in, and keep what later phases read.

        ``sums`` are those of the next phase that go along.
        """
        e = self.f.elements
        kept = self._declare(phase)
        with self.places(phase) as (step, first):
            taken = []
            for lane in range(self.vector):
                for fold in folds:
                    inputs = fold.hero.fold_inputs
                    index = delinearize(first + lane, inputs[0].array.dims)
                    values = [e.value(part, index) for part in inputs]
                    taken.append((fold, values, lane > 0))
                for instruction in kept:
                    index = delinearize(first + lane, instruction.array.dims)
                    value = e.value(instruction, index)
                    e.scope.set(self.arrays[instruction][step * self.vector + lane], value)
            for fold, values, holds in taken:
                take(e, fold, values, holds=holds)
            for running in sums:
                running.take(e, folds, first, self.vector)

    def exchange(self, folds: Sequence[ThreadFold]) -> list[ThreadFold]:
        """Accumulators of the whole row, in all of its threads."""
        f, e = self.f, self.f.elements
        threads, rows = f.tile["threads"], f.tile["rows"]
        if threads <= WARP:
            everywhere(e, folds, threads, f.thread())
            return list(folds)
        tree(e, folds, WARP // 2)
        warps = threads // WARP
        tiles, place = warps_to_shared(f, folds, self.lane, rows, threads)
        width = 1 << (warps - 1).bit_length()
        slot = self.lane % width
        tests = [as_expr(slot) < warps] if width > warps else []
        whole = [
            reload(e, fold.hero, [tile[(*place, slot)] for tile in own], tests)
            for fold, own in zip(folds, tiles, strict=True)
        ]
        everywhere(e, whole, width, f.thread())
        return whole

    def store_places(self) -> None:
        """The last pass: results with an element a place, and columns."""
        f, e = self.f, self.f.elements
        with ExitStack() as blocks:
            blocks.enter_context(e.when(*below(self.row, self.phases.rows)))
            step, first = blocks.enter_context(self.places(len(self.phases.heroes)))
            for column, sums in zip(self.phases.columns, self.sums, strict=True):
                reducer, (part,) = ReducerCode.of(column), column.fold_inputs
                for lane in range(self.vector):
                    value = e.value(part, delinearize(first + lane, part.array.dims))
                    slot = sums[step * self.vector + lane]
                    reducer.assign(e, [slot], reducer.lift(e, [value]))
            values: dict[int, list[Expr]] = {}
            for number in self.phases.full:
                result = f.region.results[number]
                for lane in range(self.vector):
                    index = delinearize(first + lane, result.shape.dims)
                    name = e.value(result.instruction, index, result.leaf)
                    values.setdefault(number, []).append(name)
            for number, names in values.items():
                pointee = f.result(number)
                store_run(f, pointee, first, names, pointee.shape.elements)

    def store_rows(self) -> None:
        """Results with a value a row."""
        f, e = self.f, self.f.elements
        with first_of(f, self.lane, (self.row, self.phases.rows)):
            for number in self.phases.single:
                result = f.region.results[number]
                index = delinearize(self.inside, result.shape.dims)
                name = e.value(result.instruction, index, result.leaf)
                f.store(f.result(number), self.inside, name)

    def _declare(self, phase: int) -> list[Instruction]:
        """Arrays for what is kept from this phase on."""
        if not self.f.tile["keep"]:
            return []
        e = self.f.elements
        slots = steps_of(self.phases, self.f.tile) * self.vector
        found = [item.instruction for item in self.phases.kept if item.first == phase]
        for instruction in found:
            type, hint = e.uses.type(instruction.array.dtype), f"{instruction.name}_kept"
            self.arrays[instruction] = e.scope.array(type, (slots,), hint)
        return found

    @contextmanager
    def places(self, phase: int) -> Iterator[tuple[Index, Index]]:
        """The thread's places of the row: the step, and the position of its first element.

        What is kept from earlier phases is known at them.
        """
        f, e = self.f, self.f.elements
        threads = f.tile["threads"]
        steps = steps_of(self.phases, f.tile)
        vectors = self.phases.minor // self.vector
        with ExitStack() as blocks:
            # Arrays are registers only where every subscript is a constant.
            indexed = self.arrays or self.sums or self.phases.picks
            step = blocks.enter_context(e.counting(0, steps, "step", unroll=0 if indexed else None))
            if phase % 2 and not f.tile["keep"]:
                # Back again: what was read last is nearest.
                step = Index(steps - 1) - step
            at = e.symbol(step * threads + self.lane, "at", 0, steps * threads - 1)
            at = blocks.enter_context(guarded(f, at, vectors))
            first = self.inside * self.phases.minor + at * self.vector
            for item in self.phases.kept:
                array = self.arrays.get(item.instruction)
                if array is not None and item.first < phase <= item.last:
                    for lane in range(self.vector):
                        index = delinearize(first + lane, item.instruction.array.dims)
                        e.remember(item.instruction, index, 0, array[step * self.vector + lane])
            yield step, first


def _pick(rows: _Rows) -> None:
    """Each ``topk``, and the results computed from what it leaves."""
    f, phases = rows.f, rows.phases
    for topk in phases.picks:
        picking = Picking(f, topk, steps_of(phases, f.tile) * rows.vector)
        with rows.places(len(phases.heroes)) as (step, first):
            for lane in range(rows.vector):
                at = first + lane - rows.inside * phases.minor
                picking.take(step * rows.vector + lane, first + lane, at)
        picking.pick(rows.exchange)
    e, count = f.elements, phases.count
    threads = f.tile["threads"]
    tests = below(rows.row, phases.rows)
    with e.when(*tests), e.counting(rows.lane, count, "pick", threads) as pick:
        for number in phases.picked:
            result, at = f.region.results[number], rows.inside * count + pick
            index = delinearize(at, result.shape.dims)
            f.store(f.result(number), at, e.value(result.instruction, index, result.leaf))


EMITTERS = {"whole-row": _emit}
