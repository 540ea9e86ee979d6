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
    reload,
    take,
    tree,
)
from hloopt.codegen.families.loop import store_run
from hloopt.codegen.families.sweeping import first_of, guarded, warps_to_shared
from hloopt.codegen.writer import FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import Array, Expr, Select, as_expr, below
from hloopt.kernels.families.row_phases import RowPhases, row_phases
from hloopt.kernels.families.sweeps import WARP
from hloopt.kernels.families.whole_row import steps_of

__all__ = ["EMITTERS"]


def _emit(f: FunctionWriter) -> None:
    """Phase by phase: traverse the row, reduce, compute the values that the row has one of."""
    phases = row_phases(f.region)
    rows, threads = f.tile["rows"], f.tile["threads"]
    blocks = f.launch.grid[0]
    e = f.elements
    row = e.symbol(f.block() * rows + f.thread() // threads, "row", 0, blocks * rows - 1)
    lane = e.symbol(f.thread() % threads, "lane", 0, threads - 1)
    inside = row
    if row.high >= phases.rows:
        # Threads past the last row compute it again, and store nothing.
        last = phases.rows - 1
        choice = Select.of(as_expr(row) < phases.rows, row, last)
        inside = e.symbol(choice, "inside", 0, last)
    writer = _Rows(f, phases, row, inside, lane)
    for instruction in phases.given:
        e.value(instruction, delinearize(inside, instruction.array.dims))
    for number, heroes in enumerate(phases.heroes):
        folds = [begin(e, hero) for hero in heroes]
        writer.reduce(number, folds)
        for fold in writer.exchange(folds):
            finish(e, fold, inside)
        for instruction in phases.per_row[number]:
            e.value(instruction, delinearize(inside, instruction.array.dims))
    if phases.full:
        writer.store_places()
    if phases.single:
        writer.store_rows()


@dataclass
class _Rows:
    """Writing the phases: ``row`` is the thread's, ``inside`` the same or the last one there is."""

    f: FunctionWriter
    phases: RowPhases
    row: Index
    inside: Index
    lane: Index
    arrays: dict[Instruction, Array] = field(default_factory=dict)

    @property
    def vector(self) -> int:
        """Neighbours a thread reads at once."""
        return self.f.tile["vector"]

    def reduce(self, phase: int, folds: Sequence[ThreadFold]) -> None:
        """Take the thread's elements in, and keep what later phases read."""
        e = self.f.elements
        kept = self._declare(phase)
        with self._places(phase) as (step, first):
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
        """The last pass: results with an element a place."""
        f, e = self.f, self.f.elements
        with ExitStack() as blocks:
            blocks.enter_context(e.when(*below(self.row, self.phases.rows)))
            _, first = blocks.enter_context(self._places(len(self.phases.heroes)))
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
    def _places(self, phase: int) -> Iterator[tuple[Index, Index]]:
        """The thread's places of the row: the step, and the position of its first element.

        What is kept from earlier phases is known at them.
        """
        f, e = self.f, self.f.elements
        threads = f.tile["threads"]
        steps = steps_of(self.phases, f.tile)
        vectors = self.phases.minor // self.vector
        with ExitStack() as blocks:
            # Arrays are registers only where every subscript is a constant.
            step = blocks.enter_context(
                e.counting(0, steps, "step", unroll=0 if self.arrays else None)
            )
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


EMITTERS = {"whole-row": _emit}
