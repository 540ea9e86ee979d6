"""Several reductions over the same rows, one after the other: what is computed when, and what is kept.

An instruction that depends on a reduction has a value a row, or an element a place of the row, and takes from
others only what is of the same row or of the same place.  A *phase* goes over a row once: it computes the
inputs of the reductions that depend on none but earlier ones; the last one computes the results.  An array that
one phase computes and a later one reads can be kept by the threads, each its own elements.

Sums over the rows, one for each place (*columns*), can be taken along in the last phase, by kernels that give a
block many rows: ``whole_rows`` has them, ``row_phases`` does not.  The same holds for the ``topk`` of a row
(*picks*) and what is computed from the few values that it leaves; nothing goes from these back to the row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from hloopt.analysis.commuting import order_example
from hloopt.analysis.reduction import reduction_dims
from hloopt.analysis.region import Region
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.kernels.families.reductions import (
    accumulator_types,
    folds_alone,
    passes_on,
    plain_reducer,
)
from hloopt.kernels.families.row_kinds import pick_form, pick_kind, spread_kind
from hloopt.kernels.kernel import Recognizer, elemental_problem
from hloopt.types import ArrayShape

__all__ = ["KeptArray", "RowPhases", "continues_rows", "row_phases", "whole_rows"]

_FORMS_TRIED = 4


@dataclass(frozen=True)
class KeptArray:
    """An array whose elements threads keep from phase ``first`` to phase ``last``."""

    instruction: Instruction
    first: int
    last: int


@dataclass(frozen=True)
class RowPhases:
    """A region as phases over its rows.

    rows, minor   ``rows`` rows of ``minor`` elements, row-major
    given         what each row has one of, whatever its reductions, and is used at every place
    heroes        the reductions of each phase
    per_row       of each phase: what is computed a row from its reductions, and used at every place
    kept          arrays that may be kept
    full          result leaves with an element a place
    single        result leaves with a value a row
    columns       reductions over the rows, with a value a place
    across        result leaves computed from these
    picks         each a ``topk`` of the rows
    count         how many elements of a row these leave
    picked        result leaves with a value for each of them
    """

    rows: int
    minor: int
    given: tuple[Instruction, ...]
    heroes: tuple[tuple[Instruction, ...], ...]
    per_row: tuple[tuple[Instruction, ...], ...]
    kept: tuple[KeptArray, ...]
    full: tuple[int, ...]
    single: tuple[int, ...]
    columns: tuple[Instruction, ...] = ()
    across: tuple[int, ...] = ()
    picks: tuple[Instruction, ...] = ()
    count: int = 0
    picked: tuple[int, ...] = ()

    @property
    def passes(self) -> int:
        """How often the rows are traversed."""
        return len(self.heroes) + bool(self.full or self.columns or self.picks)

    @property
    def kept_bytes(self) -> int:
        """Bytes that a thread keeps for each of its elements, at most; registers have four."""
        return max(
            (
                sum(
                    max(4, item.instruction.array.dtype.bits // 8)
                    for item in self.kept
                    if item.first <= phase < item.last
                )
                for phase in range(len(self.heroes))
            ),
            default=0,
        )


def continues_rows(region: Region, before: RowPhases, made: Iterable[Instruction]) -> bool:
    """Whether a region continues over the rows; ``made`` are inputs that are results of earlier phases."""
    if elemental_problem(region):
        return False
    kinds = {}
    for parameter in made:
        elements = parameter.array.elements
        if elements not in (before.rows, before.rows * before.minor):
            return False
        kinds[parameter] = "row" if elements == before.rows else "full"
    return isinstance(_Rows(region, before.rows, before.minor).phases(kinds), RowPhases)


def _phases_of(region: Region, *, alone: bool) -> RowPhases | str:
    """The phases of a region, or why it is not a sequence of phases over rows.

    ``alone`` is asked for a kernel that has columns and picks.
    """
    reduces = [inner for inner in region.body if inner.opcode == "reduce"]
    picks = [inner for inner in region.body if alone and inner.opcode == "topk"]
    if not reduces and not picks:
        return "nothing is reduced"
    problem = elemental_problem(region, picks)
    if problem:
        return problem
    for number, result in enumerate(region.results):
        if result.shape.dtype.bits < 8:
            return f"result {number} is {result.shape.dtype.name}: its elements share bytes"
    forms = [picking[:2] for pick in picks if (picking := pick_form(pick)) is not None]
    for reduce in reversed(reduces):
        form = reduction_dims(reduce)
        if form is not None and form.is_row and form.dims[0] == 1 and 0 not in form.dims:
            forms.append(form.dims[1:])
    problem = "no reduction is over rows"
    if picks and not forms:
        problem = f"{picks[0].name} leaves what this kernel cannot pick"
    for rows, minor in list(dict.fromkeys(forms))[:_FORMS_TRIED]:
        found = _Rows(region, rows, minor, alone).phases()
        if isinstance(found, RowPhases):
            return found
        problem = found
    return problem


@Recognizer
def row_phases(region: Region) -> RowPhases | str:
    """The phases of a region without columns and picks."""
    return _phases_of(region, alone=False)


@Recognizer
def whole_rows(region: Region) -> RowPhases | str:
    """The phases of a region, those with columns or picks, too."""
    return _phases_of(region, alone=True)


@dataclass
class _Rows:
    """The attempt to see a region as phases over ``rows`` rows of ``minor`` elements."""

    region: Region
    rows: int
    minor: int
    alone: bool = False

    def phases(self, known: Mapping[Instruction, str] = MappingProxyType({})) -> RowPhases | str:
        """The phases, or why there are none; ``known`` are inputs that an earlier phase makes, by kind."""
        kinds = dict(known)
        levels = dict.fromkeys(known, 1)
        heroes: list[list[Instruction]] = [[]] if known else []
        columns: list[Instruction] = []
        picks: list[Instruction] = []
        for inner in self.region.body:
            above = [part for part in inner.operands if part in kinds]
            level = max((levels[part] for part in above), default=0)
            if self._is_hero(inner, kinds):
                if not plain_reducer(inner):
                    example = order_example(inner.attributes["to_apply"])
                    if example:
                        return f"the reducer of {inner.name} depends on the order: {example}"
                while len(heroes) <= level:
                    heroes.append([])
                heroes[level].append(inner)
                kinds[inner], levels[inner] = "row", level + 1
                continue
            if self.alone and self._is_column(inner, kinds):
                columns.append(inner)
                kinds[inner], levels[inner] = "column", level
                continue
            if inner.opcode == "topk":
                if pick_form(inner) != (self.rows, self.minor, _count(picks or [inner])):
                    return f"{inner.name} is no top-k of rows of {self.minor} elements"
                if kinds.get(inner.operands[0], "full") != "full":
                    return f"{inner.name} picks from what has a value a row"
                picks.append(inner)
                kinds[inner], levels[inner] = "pick", level
                continue
            if inner.opcode == "reduce" and not folds_alone(inner):
                return f"{inner.name} reduces, but not rows of {self.minor} elements"
            if above:
                kind = self._kind(inner, kinds, _count(picks))
                if not kind:
                    return f"{inner.name} needs more of {above[0].name} than its own place or row"
                kinds[inner], levels[inner] = kind, level
        problem = self._results_problem(kinds, _count(picks))
        if not problem and columns and picks:
            problem = "columns are added up, and elements picked: not in one kernel"
        if problem:
            return problem
        return self._assemble(kinds, levels, heroes, columns, picks)

    def _is_hero(self, inner: Instruction, kinds: Mapping[Instruction, str]) -> bool:
        if inner.opcode != "reduce":
            return False
        form = reduction_dims(inner)
        if form is None or not form.is_row or form.dims != (1, self.rows, self.minor):
            return False
        return all(kinds.get(part, "full") == "full" for part in inner.fold_inputs) and not any(
            part in kinds for part in inner.fold_inits
        )

    def _is_column(self, inner: Instruction, kinds: Mapping[Instruction, str]) -> bool:
        """Whether threads can each fold their own places: in any order, from an identity on."""
        if inner.opcode != "reduce" or not plain_reducer(inner):
            return False
        form = reduction_dims(inner)
        if form is None or form.is_row or form.dims != (1, self.rows, self.minor):
            return False
        if accumulator_types(inner)[0].is_complex:
            return False
        return all(kinds.get(part, "full") == "full" for part in inner.fold_inputs) and not any(
            part in kinds for part in inner.fold_inits
        )

    def _kind(self, inner: Instruction, kinds: Mapping[Instruction, str], count: int) -> str:
        """``row`` or ``full`` for what depends on a hero; empty where it needs other places.

        ``pick`` and ``after`` are for what depends on a ``topk``: ``count`` values a row, or one.
        """
        above = {kinds[part] for part in inner.operands if part in kinds}
        if "pick" in above or "after" in above:
            return pick_kind(inner, kinds, self.rows, count)
        if inner.opcode == "broadcast":
            (kind,) = above
            spread = spread_kind(inner, kind, self.minor)
            if not spread and count and spread_kind(inner, kind, count) == "full":
                spread = "pick"
            return spread
        passed = set(passes_on(inner))
        found = {kinds[part] for part in inner.operands if part in kinds}
        if len(found) != 1 or any(part in kinds and part not in passed for part in inner.operands):
            return ""
        return found.pop()

    def _results_problem(self, kinds: Mapping[Instruction, str], count: int) -> str:
        sizes = {
            "row": self.rows,
            "full": self.rows * self.minor,
            "column": self.minor,
            "pick": self.rows * count,
            "after": self.rows,
        }
        for number, result in enumerate(self.region.results):
            elements = result.shape.elements
            kind = kinds.get(result.instruction)
            if kind is not None and elements != sizes[kind]:
                return f"result {number} has {elements} elements"
            if kind is None and elements not in (sizes["row"], sizes["full"]):
                return (
                    f"result {number} has {elements} elements, neither {self.rows} rows' nor "
                    f"{self.minor} elements of each"
                )
        return ""

    def _assemble(
        self,
        kinds: Mapping[Instruction, str],
        levels: Mapping[Instruction, int],
        heroes: list[list[Instruction]],
        columns: list[Instruction],
        picks: list[Instruction],
    ) -> RowPhases:
        results = self.region.results
        full = tuple(
            number
            for number, result in enumerate(results)
            if kinds.get(result.instruction, self._size_kind(result.shape)) == "full"
        )
        across = tuple(
            number for number, one in enumerate(results) if kinds.get(one.instruction) == "column"
        )
        picked = tuple(
            number for number, one in enumerate(results) if kinds.get(one.instruction) == "pick"
        )
        elsewhere = {*full, *across, *picked}
        single = tuple(at for at in range(len(results)) if at not in elsewhere)
        per_row: list[list[Instruction]] = [[] for _ in heroes]
        for inner in self.region.body:
            if inner.opcode == "broadcast" and kinds.get(inner) == "full":
                source = inner.operands[0]
                if kinds[source] == "row" and source not in per_row[levels[source] - 1]:
                    per_row[levels[source] - 1].append(source)
        sinks = [[part for hero in phase for part in hero.fold_inputs] for phase in heroes]
        summed = [part for column in columns for part in column.fold_inputs]
        summed += [pick.operands[0] for pick in picks]
        sinks.append([*summed, *(results[number].instruction for number in full)])
        return RowPhases(
            self.rows,
            self.minor,
            tuple(self._given(kinds)),
            tuple(tuple(phase) for phase in heroes),
            tuple(tuple(phase) for phase in per_row),
            tuple(_kept(self.region, sinks, self.rows * self.minor)),
            full,
            single,
            tuple(columns),
            across,
            tuple(picks),
            _count(picks),
            picked,
        )

    def _given(self, kinds: Mapping[Instruction, str]) -> Iterator[Instruction]:
        found = set()
        for inner in self.region.body:
            if inner.opcode == "broadcast" and inner not in kinds:
                source = inner.operands[0]
                is_new = source not in found and source.opcode != "constant"
                if is_new and spread_kind(inner, "row", self.minor) == "full":
                    found.add(source)
                    yield source

    def _size_kind(self, shape: ArrayShape) -> str:
        return "full" if shape.elements == self.rows * self.minor else "row"


def _count(picks: Iterable[Instruction]) -> int:
    return next((pick.attributes["k"] for pick in picks), 0)


def _kept(region: Region, sinks: Iterable[Iterable[Instruction]], elements: int) -> list[KeptArray]:
    """What later phases read again: nothing that is computed from other kept arrays alone."""
    first: dict[Instruction, int] = {}
    last: dict[Instruction, int] = {}
    for phase, wanted in enumerate(sinks):
        pending = list(wanted)
        seen = set(pending)
        while pending:
            inner = pending.pop()
            if _elements(inner) != elements or inner.opcode in ("constant", "iota", "broadcast"):
                continue
            if first.setdefault(inner, phase) < phase:
                last[inner] = phase
                continue
            if inner in region.inputs:
                continue
            for operand in passes_on(inner):
                if operand not in seen:
                    seen.add(operand)
                    pending.append(operand)
    return [KeptArray(inner, first[inner], phase) for inner, phase in last.items()]


def _elements(instruction: Instruction) -> int:
    shape = instruction.shape
    return shape.elements if isinstance(shape, ArrayShape) else 0
