"""How the threads of a reduction kernel traverse the elements: in steps, each read by a whole block.

``analysis/emitters/reductions.py`` says which shape XLA gives a kernel; here the same shapes are free
parameters, and a block takes as many steps as its elements need.  ``parts`` blocks may share the steps of a
result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal, TypeAlias

from hloopt.analysis.emitters.reductions import Widths, reduction_widths
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.kernels.families.reductions import (
    ReductionGroup,
    Reductions,
    accumulator_types,
    plain_reducer,
)
from hloopt.kernels.kernel import Site
from hloopt.kernels.spec import Tile

__all__ = ["WARP", "Sweep", "SweepForm", "fitted", "shared_bytes", "sweep_of", "widths_of"]

SweepForm: TypeAlias = Literal["row", "column", "small-column"]

WARP = 32
_ACCUMULATOR_BYTES = 128
_VECTORS = (1, 2, 4, 8, 16)
_MOST_THREADS = 1024


@dataclass(frozen=True)
class Sweep:
    """The shape of a reduction kernel.

    row           a block has ``rows`` rows with ``threads`` threads each, a power of two below a warp or
                  whole warps; a step reads ``threads * vector`` neighbouring elements of each row
    column        a block has ``rows`` warps, each on a row, and ``32 * vector`` columns; a step reads
                  ``rows`` rows of them
    small-column  a block has ``threads`` threads; a step reads ``threads * vector`` neighbouring elements of
                  the (reduced, minor kept) elements of one major index

    dims    the merged dimensions: row (major reduced, kept, minor reduced), column (major kept, reduced,
            minor kept)
    parts   blocks that share the steps of a result: block ``p`` takes steps ``p, p + parts, ...``
    """

    form: SweepForm
    dims: tuple[int, int, int]
    rows: int
    threads: int
    vector: int
    parts: int = 1

    @property
    def block(self) -> int:
        """Threads of a block."""
        return self.rows * self.threads

    @property
    def across(self) -> int:
        """Blocks beside each other on a row of columns; 1 for the other forms."""
        return -(-self.dims[2] // (WARP * self.vector)) if self.form == "column" else 1

    @property
    def blocks(self) -> int:
        """Blocks, counted once for all parts."""
        if self.form == "row":
            return -(-self.dims[1] // self.rows)
        return self.dims[0] * self.across

    @property
    def chunks(self) -> int:
        """Steps on one row, without the major reduced dimension; row form only."""
        return -(-self.dims[2] // (self.vector * self.threads))

    @property
    def steps(self) -> int:
        """Steps a result takes in all."""
        major, middle, minor = self.dims
        if self.form == "row":
            return major * self.chunks
        if self.form == "column":
            return -(-middle // self.rows)
        return -(-middle * minor // (self.vector * self.threads))

    @property
    def slots(self) -> int:
        """Rows of the shared tile of a small-column kernel: threads on each column."""
        return self.vector * self.threads // self.dims[2]


def shared_bytes(sweep: Sweep, group: ReductionGroup) -> int:
    """Bytes of shared memory that a launch needs for its accumulators."""
    if sweep.form == "row":
        warps = sweep.threads // WARP
        elements = sweep.rows * warps if warps > 1 else 0
    elif sweep.form == "column":
        elements = sweep.vector * WARP * (sweep.rows + 1) if sweep.rows > 1 else 0
    else:
        elements = sweep.slots * (sweep.dims[2] + 1)
    return elements * _accumulator_bytes(group)


def _accumulator_bytes(group: ReductionGroup) -> int:
    total = 0
    for hero in group.heroes:
        total += sum(-(-kind.bits // 8) for kind in accumulator_types(hero))
        total += not plain_reducer(hero)
    return total


def widths_of(site: Site, reductions: Reductions) -> Widths:
    """The element widths that decide about vectors."""
    return reduction_widths(site.region, reductions.heroes)


def fitted(sweep: Sweep, groups: Iterable[ReductionGroup], shared: int) -> Sweep:
    """The same with narrower vectors, then fewer warps, until accumulators fit registers and shared memory."""
    for group in groups:
        while _is_too_large(sweep, group, shared) and sweep.vector > 1:
            sweep = replace(sweep, vector=sweep.vector // 2)
        while shared_bytes(sweep, group) > shared and sweep.form == "column" and sweep.rows > 1:
            sweep = replace(sweep, rows=sweep.rows // 2)
        while shared_bytes(sweep, group) > shared and sweep.form == "row" and sweep.threads > WARP:
            sweep = replace(sweep, threads=max(WARP, sweep.threads // 2 // WARP * WARP))
        while shared_bytes(sweep, group) > shared and sweep.slots % 2 == 0 and sweep.threads > WARP:
            sweep = replace(sweep, threads=sweep.threads // 2)
    return sweep


def _is_too_large(sweep: Sweep, group: ReductionGroup, shared: int) -> bool:
    bytes_of_thread = _accumulator_bytes(group) * (sweep.vector if sweep.form != "row" else 1)
    return bytes_of_thread > _ACCUMULATOR_BYTES or shared_bytes(sweep, group) > shared


def sweep_of(form: SweepForm, dims: tuple[int, int, int], tile: Tile, name: str) -> Sweep:
    """The sweep of a tile; raises ``UsageError`` that says what a value must be."""
    vector, parts = tile["vector"], tile.get("parts", 1)
    along = dims[1] * dims[2] if form == "small-column" else dims[2]
    if vector not in _VECTORS or along % vector:
        raise UsageError(
            f"{name}: vector={vector} must be one of {_VECTORS} and divide {along} elements"
        )
    rows = {"row": tile.get("rows", 1), "column": tile.get("warps", 1), "small-column": 1}[form]
    threads = WARP if form == "column" else tile["threads"]
    sweep = Sweep(form, dims, rows, threads, vector, parts)
    if rows < 1 or threads < 1 or sweep.block > _MOST_THREADS or sweep.block % WARP:
        raise UsageError(
            f"{name}: a block of {sweep.block} threads; it has whole warps, {_MOST_THREADS} threads at most"
        )
    if form == "row" and threads % WARP and (threads > WARP or threads & (threads - 1)):
        raise UsageError(
            f"{name}: threads={threads} must be a power of two below 32, or whole warps"
        )
    if form == "column" and rows & (rows - 1):
        raise UsageError(f"{name}: warps={rows} must be a power of two, at most 32")
    if form == "small-column" and not _is_small(sweep):
        raise UsageError(
            f"{name}: vector * threads = {vector * threads} must be {dims[2]} columns times a power of two "
            "of at most 32"
        )
    if not 1 <= parts <= sweep.steps:
        raise UsageError(
            f"{name}: parts={parts} must be at least 1 and at most {sweep.steps} steps"
        )
    return sweep


def _is_small(sweep: Sweep) -> bool:
    read, minor = sweep.vector * sweep.threads, sweep.dims[2]
    slots = read // minor
    return read % minor == 0 and slots <= WARP and slots & (slots - 1) == 0
