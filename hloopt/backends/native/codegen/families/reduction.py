"""The reduction kernels: rows or columns by themselves, and rows with what follows from their reductions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import field

from hloopt.analysis.index import Index, delinearize
from hloopt.backends.native.codegen.accumulators import (
    Accumulators,
    Visit,
    counter,
    declared,
    finish,
    lanes_of,
    take_steps,
)
from hloopt.backends.native.codegen.nest import least, tasks
from hloopt.backends.native.kernels.reduction import Steps, phase_steps, steps_of
from hloopt.codegen.families.folding import begin, take
from hloopt.codegen.families.folding import finish as fold_whole
from hloopt.codegen.reducer import ReducerCode
from hloopt.codegen.scalars.memory import load, store
from hloopt.codegen.types import is_packed
from hloopt.codegen.writer import FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import Array, Expr
from hloopt.kernels.families.reductions import ReductionGroup, reductions_of
from hloopt.kernels.families.row_phases import RowPhases, row_phases
from hloopt.kernels.kernel import Site
from hloopt.kernels.limits import Limits
from hloopt.targets.target import HOST

__all__ = ["EMITTERS"]

# A row of so few elements does not fill a vector, but a few rows do, unless the code for one is long.
_SHORT_ROW = 8
_WRITTEN_OUT = 400


def _emit(f: FunctionWriter) -> None:
    """A group of reductions in one form: at once, or one of the two launches of parts."""
    reductions = reductions_of(f.region)
    name = f.launch.function
    group = reductions.groups[f.launch.part]
    layout = steps_of(Site(f.region, HOST, Limits()), group)
    sweep = _Sweep(f, group, layout, reductions.form.is_row, reductions.form.dims)
    if name.endswith("_parts"):
        sweep.parts()
    elif name.endswith("_sum"):
        sweep.sum_of_parts()
    else:
        with tasks(f, "item", layout.each, layout.units) as unit:
            sweep.store(sweep.taken(unit), unit)


@dataclass
class _Sweep:
    """Writing a group: ``dims`` are the merged dimensions of its form."""

    f: FunctionWriter
    group: ReductionGroup
    layout: Steps
    is_row: bool
    dims: tuple[int, int, int]

    def taken(self, unit: Index, part: Index | None = None) -> list[Accumulators]:
        """The accumulators of a group of results."""
        _, middle, minor = self.dims

        def base(batch: Index) -> Index:
            if self.is_row:
                return (batch * middle + unit) * minor
            first = self.kept(unit)
            return first // minor * (middle * minor) + first % minor

        sides = self._store_sides if self.group.sides else None
        return take_steps(self.f, self.group.heroes, self.layout, base, sides, part=part)

    def kept(self, unit: Index) -> Index:
        """The position of the first result of a group; where groups do not fit, the last one is moved back."""
        keep, minor = self.layout.keep, self.dims[2]
        if self.is_row or minor % keep == 0:
            return unit * keep
        across = -(-minor // keep)
        most = minor - keep
        start = unit % across * keep
        column = self.f.elements.symbol(least(start, most), "column", 0, most)
        return unit // across * minor + column

    def _store_sides(self, position: Index, _: Index) -> None:
        f = self.f
        for number in self.group.sides:
            result = f.region.results[number]
            index = delinearize(position, result.shape.dims)
            value = f.elements.value(result.instruction, index, result.leaf)
            f.store(f.result(number), position, value)

    def store(self, every: Sequence[Accumulators], unit: Index) -> None:
        """Finish a group's accumulators, and store the results that are computed from them."""
        if not every:
            return
        f, first = self.f, self.kept(unit)
        with lanes_of(f, self.layout.keep) as lane:
            position = first + lane
            finish(f, every, lane, position)
            values = []
            for number in self.group.roots:
                result = f.region.results[number]
                index = delinearize(position, result.shape.dims)
                values.append(f.elements.value(result.instruction, index, result.leaf))
            for number, value in zip(self.group.roots, values, strict=True):
                f.store(f.result(number), position, value)

    def _scratch(self) -> list[list[Array]]:
        """The scratch arrays of each hero's accumulators, in the order of the spec."""
        places = (place.number for place in self.f.pointees if place.kind == "scratch")
        arrays = iter([self.f.scratch(number).memory for number in sorted(places)])
        return [
            [next(arrays) for _ in ReducerCode.of(hero).accumulators] for hero in self.group.heroes
        ]

    def _units(self) -> AbstractContextManager[Index]:
        """A loop over all groups of results."""
        units = self.layout.units
        return counter(self.f, Index(0), Index(units), units, "item")

    def parts(self) -> None:
        """The first launch: each task leaves its partial accumulators of every group of results."""
        f, layout = self.f, self.layout
        scratch = self._scratch()
        with tasks(f, "part", 1, layout.parts) as part, self._units() as unit:
            every = self.taken(unit, part)
            if not every:
                return
            with lanes_of(f, layout.keep) as lane:
                at = part * layout.kept + self.kept(unit) + lane
                for one, arrays in zip(every, scratch, strict=True):
                    for array, value in zip(arrays, one.at(lane), strict=True):
                        f.elements.scope.set(array[at], value)

    def sum_of_parts(self) -> None:
        """The second one: the parts of each result, in their order."""
        f, layout = self.f, self.layout
        scratch = self._scratch()
        e = f.elements
        with self._units() as unit:
            every = [declared(f, hero, layout.keep, "sums") for hero in self.group.heroes]
            with lanes_of(f, layout.keep) as lane:
                at = self.kept(unit) + lane
                for one, arrays in zip(every, scratch, strict=True):
                    for total, array in zip(one.at(lane), arrays, strict=True):
                        e.scope.set(total, array[at])
            with (
                counter(f, Index(1), Index(layout.parts), layout.parts, "part") as part,
                lanes_of(f, layout.keep) as lane,
            ):
                at = part * layout.kept + self.kept(unit) + lane
                for one, arrays in zip(every, scratch, strict=True):
                    one.reducer.assign(e, one.at(lane), [array[at] for array in arrays])
            self.store(every, unit)


def _emit_rows(f: FunctionWriter) -> None:
    """Phase by phase: traverse the row, reduce, compute values that exist once per row."""
    phases = row_phases(f.region)
    is_short = phases.minor * len(f.region.body) <= _WRITTEN_OUT and phases.minor <= _SHORT_ROW
    with tasks(f, "row", f.tile["rows"], phases.rows, innermost=is_short) as row:
        writer = _Row(f, phases, row)
        if is_short:
            writer.write_out()
        else:
            writer.write()


@dataclass
class _Row:
    """Writing one row; ``arrays`` are what earlier phases have kept of it."""

    f: FunctionWriter
    phases: RowPhases
    row: Index
    arrays: dict[Instruction, Array] = field(default_factory=dict)

    def write(self) -> None:
        """All phases."""
        f, phases, e = self.f, self.phases, self.f.elements
        every_hero = [hero for heroes in phases.heroes for hero in heroes]
        layout = phase_steps(phases, every_hero, f.tile["rows"])
        first = self.row * phases.minor
        for instruction in phases.given:
            e.value(instruction, delinearize(self.row, instruction.array.dims))
        for number, heroes in enumerate(phases.heroes):
            kept = self._declare(number)

            def visit(position: Index, offset: Index, kept: Sequence[Instruction] = kept) -> None:
                for instruction in kept:
                    index = delinearize(position, instruction.array.dims)
                    value = e.value(instruction, index)
                    self._keep(instruction, offset, value)

            every = take_steps(
                f, heroes, layout, lambda _: first, visit, before=self._recall(number)
            )
            finish(f, every, Index(0), self.row)
            for instruction in phases.per_row[number]:
                e.value(instruction, delinearize(self.row, instruction.array.dims))
        self._store_places(first)
        self._store_row()

    def write_out(self) -> None:
        """Each element of a short row by itself: rows are what lies side by side in vectors."""
        phases, e = self.phases, self.f.elements
        places = [self.row * phases.minor + at for at in range(phases.minor)]
        for number, heroes in enumerate(phases.heroes):
            for hero in heroes:
                fold = begin(e, hero)
                inputs = hero.operands[: len(fold.names)]
                for at, place in enumerate(places):
                    index = delinearize(place, inputs[0].array.dims)
                    values = [e.value(part, index) for part in inputs]
                    take(e, fold, values, holds=at > 0)
                fold_whole(e, fold, self.row)
            for instruction in phases.per_row[number]:
                e.value(instruction, delinearize(self.row, instruction.array.dims))
        for place in places:
            self._store(phases.full, place)
        self._store_row()

    def _declare(self, phase: int) -> list[Instruction]:
        """Arrays for what is kept from this phase on."""
        if not self.f.tile["keep"]:
            return []
        found = [item.instruction for item in self.phases.kept if item.first == phase]
        for instruction in found:
            if instruction in self.f.region.inputs:
                continue
            self.arrays[instruction] = self.f.elements.scope.array(
                self.f.uses.storage(instruction.array.dtype),
                (self.phases.minor,),
                f"{instruction.name}_kept",
                align=64,
            )
        return [instruction for instruction in found if instruction in self.arrays]

    def _recall(self, phase: int) -> Visit:
        """Makes what earlier phases kept of an element available in the region."""
        found = [
            item.instruction
            for item in self.phases.kept
            if item.instruction in self.arrays and item.first < phase <= item.last
        ]

        def recall(position: Index, offset: Index) -> None:
            for instruction in found:
                index = delinearize(position, instruction.array.dims)
                self.f.elements.remember(instruction, index, 0, self._kept(instruction, offset))

        return recall

    def _keep(self, instruction: Instruction, offset: Index, value: Expr) -> None:
        """Compilers vectorise no copies of structs: their members are copied, as in memory."""
        e, array, dtype = self.f.elements, self.arrays[instruction], instruction.array.dtype
        if is_packed(dtype):
            e.scope.set(array[offset], value)
            return
        for one in store(array, offset, value, dtype, self.f.uses):
            e.scope.set(one.target, one.value)

    def _kept(self, instruction: Instruction, offset: Index) -> Expr:
        array, dtype = self.arrays[instruction], instruction.array.dtype
        return array[offset] if is_packed(dtype) else load(array, offset, dtype, self.f.uses)

    def _store_places(self, first: Index) -> None:
        """The last pass: results with an element a place."""
        f = self.f
        if not self.phases.full:
            return
        recall = self._recall(len(self.phases.heroes))
        with lanes_of(f, self.phases.minor) as at:
            recall(first + at, at)
            self._store(self.phases.full, first + at)

    def _store_row(self) -> None:
        """Results with a value a row."""
        self._store(self.phases.single, self.row)

    def _store(self, numbers: Sequence[int], position: Index) -> None:
        f = self.f
        values = []
        for number in numbers:
            result = f.region.results[number]
            index = delinearize(position, result.shape.dims)
            values.append(f.elements.value(result.instruction, index, result.leaf))
        for number, value in zip(numbers, values, strict=True):
            f.store(f.result(number), position, value)


EMITTERS = {"native-reduction": _emit, "native-rows": _emit_rows}
