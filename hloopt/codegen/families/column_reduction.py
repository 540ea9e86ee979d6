"""The column reduction kernels."""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.analysis.index import Index
from hloopt.codegen.families.folding import ThreadFold, begin, keep, reload, shared_tiles, tree
from hloopt.codegen.families.sweeping import (
    FinishResults,
    accumulate,
    first_of,
    group_of,
    guarded,
    shared_steps,
    store_results,
)
from hloopt.codegen.writer import FunctionWriter
from hloopt.kernel_ir.expressions import Array, below
from hloopt.kernels.families.reductions import reductions_of
from hloopt.kernels.families.sweeps import WARP, Sweep, sweep_of

__all__ = ["EMITTERS", "write_columns", "write_small_columns"]


def _emit(f: FunctionWriter) -> None:
    dims = reductions_of(f.region).form.dims
    write_columns(f, sweep_of("column", dims, f.tile, "column-reduction"), store_results)


def _emit_small(f: FunctionWriter) -> None:
    dims = reductions_of(f.region).form.dims
    sweep = sweep_of("small-column", dims, f.tile, "small-column-reduction")
    write_small_columns(f, sweep, store_results)


def write_columns(f: FunctionWriter, sweep: Sweep, done: FinishResults) -> None:
    """Reduce columns; one thread does ``done`` with each."""
    e = f.elements
    _, reduced, minor = sweep.dims
    group = group_of(f)
    major = f.block() // sweep.across
    begins = f.block() % sweep.across * WARP
    lane = e.symbol(f.thread() % WARP, "lane", 0, WARP - 1)
    warp = e.symbol(f.thread() // WARP, "warp", 0, sweep.rows - 1)
    column = e.symbol(begins + lane, "column", 0, sweep.across * WARP - 1)
    folds = [[begin(e, hero) for hero in group.heroes] for _ in range(sweep.vector)]
    with (
        guarded(f, column, minor // sweep.vector) as inside,
        shared_steps(f, sweep.steps, f.block("y"), sweep.parts) as step,
    ):
        row = e.symbol(step * sweep.rows + warp, "row", 0, sweep.steps * sweep.rows - 1)
        with guarded(f, row, reduced) as at:
            first = (major * reduced + at) * minor + inside * sweep.vector
            accumulate(f, group, folds, first, sweep.vector)
    if not group.heroes:
        return
    if sweep.rows == 1:
        for number, found in enumerate(folds):
            with guarded(f, column, minor // sweep.vector) as inside:
                done(f, found, major * minor + inside * sweep.vector + number)
        return
    tiles = _turn(f, sweep, folds, lane, warp)
    with e.counting(0, sweep.vector * WARP // sweep.rows, "turn") as turn:
        place = e.symbol(turn * sweep.rows + warp, "place", 0, sweep.vector * WARP - 1)
        turned = [
            reload(e, hero, [tile[place, lane] for tile in own], below(lane, sweep.rows))
            for hero, own in zip(group.heroes, tiles, strict=True)
        ]
        tree(e, turned, sweep.rows // 2)
        column = e.symbol(begins + place % WARP, "done", 0, sweep.across * WARP - 1)
        with first_of(f, lane, (column, minor // sweep.vector)) as (inside,):
            done(f, turned, major * minor + inside * sweep.vector + place // WARP)


def _turn(
    f: FunctionWriter, sweep: Sweep, folds: Sequence[Sequence[ThreadFold]], lane: Index, warp: Index
) -> list[list[Array]]:
    """Write what each thread has to shared memory: a row of a tile a column, padded against conflicts."""
    tiles = shared_tiles(f.elements, folds[0], [sweep.vector * WARP, sweep.rows + 1])
    for number, found in enumerate(folds):
        for fold, own in zip(found, tiles, strict=True):
            keep(f.elements, fold, [tile[lane + number * WARP, warp] for tile in own])
    f.barrier()
    return tiles


def write_small_columns(f: FunctionWriter, sweep: Sweep, done: FinishResults) -> None:
    """Reduce a few columns that a block reads whole; one thread does ``done`` with each."""
    e = f.elements
    _, reduced, minor = sweep.dims
    group = group_of(f)
    major = f.block()
    vectors = reduced * minor // sweep.vector
    thread = f.thread()
    folds = [[begin(e, hero) for hero in group.heroes] for _ in range(sweep.vector)]
    with shared_steps(f, sweep.steps, f.block("y"), sweep.parts) as step:
        at = e.symbol(step * sweep.threads + thread, "at", 0, sweep.steps * sweep.threads - 1)
        with guarded(f, at, vectors) as inside:
            first = major * (reduced * minor) + inside * sweep.vector
            accumulate(f, group, folds, first, sweep.vector)
    if not group.heroes:
        return
    tiles = shared_tiles(e, folds[0], [sweep.slots, minor + 1])
    for number, found in enumerate(folds):
        place = thread * sweep.vector + number
        for fold, own in zip(found, tiles, strict=True):
            keep(e, fold, [tile[place // minor, place % minor] for tile in own])
    f.barrier()
    with e.counting(0, sweep.vector, "turn") as turn:
        place = e.symbol(
            turn * sweep.threads + thread, "place", 0, sweep.vector * sweep.threads - 1
        )
        lane = e.symbol(place % sweep.slots, "lane", 0, sweep.slots - 1)
        column = place // sweep.slots
        turned = [
            reload(e, hero, [tile[lane, column] for tile in own])
            for hero, own in zip(group.heroes, tiles, strict=True)
        ]
        tree(e, turned, sweep.slots // 2)
        with first_of(f, lane):
            done(f, turned, major * minor + column)


EMITTERS = {
    "column-reduction": _emit,
    "small-column-reduction": _emit_small,
}
