"""Reductions of the native device: vector accumulators, in an order that the shape alone decides.

A *step* takes ``width`` neighbouring elements into as many accumulators: those of a row, which are folded into
one at the end; or of so many columns, which stay apart; or of a few rows of few columns.  Every ``BLOCK``
steps what has come together is added to totals, so that roundings of long sums stay small.  Where few results
take many elements each, tasks have parts of them, and a second launch adds these up: by the shape, never by
the number of threads, so that results are the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import MappingProxyType

from hloopt.analysis.region import Region
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Instruction
from hloopt.kernels.families.reductions import (
    ReductionGroup,
    accumulator_types,
    operands_of,
    plain_reducer,
    reductions_of,
)
from hloopt.kernels.families.row_phases import RowPhases, row_phases
from hloopt.kernels.kernel import NO, YES, Kernel, Site, Verdict, no_tile
from hloopt.kernels.spec import (
    Argument,
    KernelSpec,
    Launch,
    LeafPlace,
    ScratchBuffer,
    Tile,
    written,
)

__all__ = ["BLOCK", "KERNELS", "Steps", "kept_bytes_of", "phase_steps", "runs_whole", "steps_of"]

BLOCK = 128
"""Steps between two additions to totals: 128 roundings and one for each block, as good as by halves."""

# Two vectors of the widest registers, so that one addition does not wait for the one before.
_LANE_BYTES = 128
# Columns a task has side by side: their accumulators and a few rows of operands stay in the first-level cache.
_COLUMN_BYTES = 1024
# Elements a task accumulates, as of the loop kernel.
_TASK_ELEMENTS = 1 << 14
# So many elements are worth a second launch, where they make few tasks: it costs about 5 us.
_SPLIT_ELEMENTS = 1 << 17
_PARTS = 16
# Fewer rows than this do not keep the threads of a usual machine busy.
_FEW_ROWS = 4
# Rows shorter than this are as well folded by the loop kernel, element by element.
_SHORT_ROW = 8
# What a row keeps for later passes over it lies on the stack and in the first-level cache.
_KEPT_BYTES = 16 << 10


@dataclass(frozen=True)
class Steps:
    """How the elements of one group of results are accumulated.

    units    groups of results; each is computed by one task, or by one task per part
    each     groups a task
    batches  how often the steps are repeated, at places ``apart`` elements from each other
    steps    whole steps, ``stride`` elements from one to the next, of ``width`` accumulators each
    tail     accumulators of a last, partial step
    keep     results a group: what accumulators are folded into
    kept     results in all; the last groups of a row of columns may share some
    """

    units: int
    each: int
    batches: int
    steps: int
    stride: int
    width: int
    tail: int
    keep: int
    kept: int
    parts: int = 1

    @property
    def tasks(self) -> int:
        """Tasks of the launch that accumulates elements."""
        return self.parts if self.parts > 1 else -(-self.units // self.each)

    @property
    def part_steps(self) -> int:
        """Steps a part, the last one's excepted: whole blocks."""
        blocks = -(-self.steps // BLOCK)
        return -(-blocks // self.parts) * BLOCK


def _lanes(heroes: Iterable[Instruction], most: int) -> int:
    """Accumulators of a row: two registers' worth, a power of two, never more than there are elements."""
    # Side results that share nothing with a reduce are launched without one.
    widest = max((kind.bits for hero in heroes for kind in accumulator_types(hero)), default=0)
    lanes = _LANE_BYTES * 8 // max(widest, 8 * 4)
    while lanes > most:
        lanes //= 2
    while lanes > 8 and most % lanes and most < 8 * lanes:
        lanes //= 2
    return lanes


def steps_of(site: Site, group: ReductionGroup) -> Steps:
    """The steps of the launch of a group of reductions."""
    form = reductions_of(site.region).form
    major, middle, minor = form.dims
    work = major * middle * minor
    if form.is_row:
        lanes = _lanes(group.heroes, minor)
        found = Steps(
            middle,
            _each(major * minor),
            major,
            minor // lanes,
            lanes,
            lanes,
            minor % lanes,
            1,
            middle,
        )
    else:
        lanes = _lanes(group.heroes, 1 << 30)
        if minor >= lanes:
            width = _columns(minor, lanes)
            units = major * -(-minor // width)
            found = Steps(
                units, _each(middle * width), 1, middle, minor, width, 0, width, major * minor
            )
        else:
            rows = 1
            while rows * minor < lanes and rows * 2 <= middle:
                rows *= 2
            width = rows * minor
            tail = middle % rows * minor
            found = Steps(
                major,
                _each(middle * minor),
                1,
                middle // rows,
                width,
                width,
                tail,
                minor,
                major * minor,
            )
    is_split = (
        work >= _SPLIT_ELEMENTS
        and found.batches == 1
        and found.tasks < _FEW_ROWS
        and found.steps >= 2 * BLOCK
    )
    if not is_split:
        return found
    blocks = -(-found.steps // BLOCK)
    each = -(-blocks // _PARTS)
    return replace(found, parts=-(-blocks // each))


def _each(work: int) -> int:
    return max(1, _TASK_ELEMENTS // max(work, 1))


def _columns(minor: int, lanes: int) -> int:
    """Columns side by side: the most that divide all of them, within what the cache holds; else the most."""
    most = min(minor, _COLUMN_BYTES * lanes // _LANE_BYTES)
    return next((width for width in range(most, lanes - 1, -1) if minor % width == 0), most)


def _fits(site: Site) -> Verdict:
    problem = reductions_of.problem(site.region)
    if problem:
        return NO(problem)
    reductions = reductions_of(site.region)
    if reductions.form.is_row and reductions.form.dims[0] > 1:
        for hero in reductions.heroes:
            if not plain_reducer(hero):
                return NO(
                    f"{hero.name} begins with its first elements, and a row has several pieces"
                )
    return YES(f"{len(reductions.heroes)} reductions in one form")


def _wanted(site: Site) -> Verdict:
    form = reductions_of(site.region).form
    major, middle, minor = form.dims
    if form.is_row and major * minor < _SHORT_ROW:
        return NO(f"rows of {major * minor} elements are as well folded one by one")
    if form.is_row and minor < _SHORT_ROW:
        return NO(f"pieces of {minor} neighbours fill no vector")
    if not form.is_row and middle < _SHORT_ROW:
        return NO(f"columns of {middle} elements are as well folded one by one")
    return YES("neighbours are accumulated side by side")


def _spec(site: Site, tile: Tile) -> KernelSpec:
    region = site.region
    groups = reductions_of(region).groups
    steps: list[Launch] = []
    scratch: list[ScratchBuffer] = []
    for number, group in enumerate(groups):
        layout = steps_of(site, group)
        suffix = f"_{number}" if len(groups) > 1 else ""
        read = operands_of(region, [region.results[leaf].instruction for leaf in group.results])
        roots = written(group.roots)
        sides = written(group.sides)
        if layout.parts == 1:
            steps.append(
                Launch.linear(suffix, layout.tasks, 1, (*read, *roots, *sides), part=number)
            )
            continue
        places = []
        for hero in group.heroes:
            for kind in accumulator_types(hero):
                places.append(LeafPlace("scratch", len(scratch)))
                scratch.append(ScratchBuffer(kind.name, layout.parts * layout.kept))
        made = tuple(Argument(place, "out") for place in places)
        given = tuple(Argument(place, "in") for place in places)
        parts = f"{suffix}_parts"
        steps.append(Launch.linear(parts, layout.parts, 1, (*read, *sides, *made), part=number))
        if roots:
            steps.append(Launch.linear(f"{suffix}_sum", 1, 1, (*read, *given, *roots), part=number))
    return KernelSpec("native-reduction", tile, tuple(steps), tuple(scratch))


# ---- whole rows


def phase_steps(phases: RowPhases, heroes: Iterable[Instruction], each: int) -> Steps:
    """The steps of one pass over rows; lanes by the heroes of all passes."""
    lanes = _lanes(heroes, phases.minor)
    minor = phases.minor
    return Steps(phases.rows, each, 1, minor // lanes, lanes, lanes, minor % lanes, 1, phases.rows)


def kept_bytes_of(phases: RowPhases) -> int:
    """Bytes of what a row keeps for later passes."""
    bits = sum(max(8, item.instruction.array.dtype.bits) for item in phases.kept)
    return bits // 8 * phases.minor


def runs_whole(region: Region) -> bool:
    """Whether rows and all that follows from their reductions are one kernel, and well so."""
    return not row_phases.problem(region) and not _alone(row_phases(region))


def _alone(phases: RowPhases) -> bool:
    """Whether rows are too few to share out, and too long for one thread."""
    return phases.rows < _FEW_ROWS and phases.rows * phases.minor >= _SPLIT_ELEMENTS


def _rows_fit(site: Site) -> Verdict:
    problem = row_phases.problem(site.region)
    if problem:
        return NO(problem)
    phases = row_phases(site.region)
    return YES(f"{phases.passes} passes over rows of {phases.minor} elements")


def _rows_wanted(site: Site) -> Verdict:
    phases = row_phases(site.region)
    if _alone(phases):
        return NO(f"{phases.rows} rows of {phases.minor} elements are shared out by parts of rows")
    if len(phases.heroes) > 1 or any(phases.per_row) or phases.full:
        return YES(f"rows of {phases.minor} elements, and what follows, in one go")
    return NO("no element of a row depends on a reduction of the row")


def _rows_tile(site: Site) -> Tile:
    phases = row_phases(site.region)
    each = min(phases.rows, _each(phases.minor * phases.passes))
    keeps = 0 < kept_bytes_of(phases) <= _KEPT_BYTES
    return MappingProxyType({"rows": each, "keep": int(keeps)})


def _rows_spec(site: Site, tile: Tile) -> KernelSpec:
    phases = row_phases(site.region)
    rows = tile["rows"]
    if rows < 1 or tile["keep"] not in (0, 1):
        raise UsageError(f"native-rows: rows={rows} must be above 0, keep={tile['keep']} 0 or 1")
    region = site.region
    results = range(len(region.results))
    launch = Launch.linear(
        "",
        -(-phases.rows // rows),
        1,
        (
            *operands_of(region, [region.results[number].instruction for number in results]),
            *written(results),
        ),
    )
    return KernelSpec("native-rows", tile, (launch,))


KERNELS = (
    Kernel(
        "native-rows",
        "row by row: reduced, then traversed again with the result, while it is in the cache",
        _rows_fit,
        _rows_wanted,
        _rows_tile,
        _rows_spec,
        device="native",
    ),
    Kernel(
        "native-reduction",
        "rows or columns by vectors of accumulators, in blocks; few long ones by parts",
        _fits,
        _wanted,
        no_tile,
        _spec,
        device="native",
    ),
)
