"""The row reduction kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TypeAlias

from hloopt.analysis.index import Index
from hloopt.codegen.families.folding import ThreadFold, begin, reload, tree
from hloopt.codegen.families.sweeping import (
    FinishResults,
    accumulate,
    first_of,
    group_of,
    guarded,
    shared_steps,
    store_results,
    warps_to_shared,
)
from hloopt.codegen.writer import FunctionWriter
from hloopt.kernel_ir.expressions import as_expr
from hloopt.kernels.families.reductions import reductions_of
from hloopt.kernels.families.sweeps import WARP, Sweep, sweep_of

__all__ = ["EMITTERS", "Taking", "write_rows"]

Taking: TypeAlias = Callable[[Sequence[ThreadFold], Index], None]


def _emit(name: str, f: FunctionWriter) -> None:
    sweep = sweep_of("row", reductions_of(f.region).form.dims, f.tile, name)
    write_rows(f, sweep, store_results)


def write_rows(
    f: FunctionWriter, sweep: Sweep, done: FinishResults, taking: Taking | None = None
) -> None:
    """Reduce rows; the first thread of each does ``done`` with it.

    ``taking`` writes how neighbouring elements from a position on are taken in, if they are not those of the
    heroes' operands.
    """
    e = f.elements
    group = group_of(f)
    kept = sweep.dims[1]
    row = e.symbol(
        f.block() * sweep.rows + f.thread() // sweep.threads,
        "row",
        0,
        sweep.blocks * sweep.rows - 1,
    )
    lane = e.symbol(f.thread() % sweep.threads, "lane", 0, sweep.threads - 1)
    folds = [begin(e, hero) for hero in group.heroes]
    with guarded(f, row, kept) as inside:
        _take_row(f, sweep, folds, inside, lane, taking)
    if not folds:
        return
    tree(e, folds, min(sweep.threads, WARP) // 2)
    if sweep.threads <= WARP:
        with first_of(f, lane, (row, kept)) as (inside,):
            done(f, folds, inside)
        return
    tiles, place = warps_to_shared(f, folds, lane, sweep.rows, sweep.threads)
    with e.when(as_expr(lane) < WARP):
        warps = sweep.threads // WARP
        tests = [as_expr(lane) < warps] if warps < WARP else []
        folds = [
            reload(e, hero, [tile[(*place, lane)] for tile in own], tests)
            for hero, own in zip(group.heroes, tiles, strict=True)
        ]
        tree(e, folds, 1 << (warps - 1).bit_length() >> 1)
        with first_of(f, lane, (row, kept)) as (inside,):
            done(f, folds, inside)


def _take_row(
    f: FunctionWriter,
    sweep: Sweep,
    folds: Sequence[ThreadFold],
    row: Index,
    lane: Index,
    taking: Taking | None,
) -> None:
    major, kept, minor = sweep.dims
    e = f.elements
    vectors = minor // sweep.vector
    with ExitStack() as loops:
        if sweep.parts == 1:
            batch = loops.enter_context(e.counting(0, major, "batch"))
            chunk = loops.enter_context(e.counting(0, sweep.chunks, "step"))
        else:
            step = loops.enter_context(shared_steps(f, sweep.steps, f.block("y"), sweep.parts))
            batch, chunk = step // sweep.chunks, step % sweep.chunks
        at = e.symbol(chunk * sweep.threads + lane, "at", 0, sweep.chunks * sweep.threads - 1)
        at = loops.enter_context(guarded(f, at, vectors))
        first = (batch * kept + row) * minor + at * sweep.vector
        if taking is not None:
            taking(folds, first)
        else:
            accumulate(f, group_of(f), [folds], first, sweep.vector)


EMITTERS = {name: partial(_emit, name) for name in ("row-reduction", "multi-row-reduction")}
