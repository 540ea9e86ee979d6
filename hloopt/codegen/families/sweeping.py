"""What the reduction kernels share: the accumulation loop, and storing results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from hloopt.analysis.index import Index, Indices, delinearize, narrowed
from hloopt.codegen.families.folding import ThreadFold, finish, keep, shared_tiles, take
from hloopt.codegen.families.loop import store_run
from hloopt.codegen.writer import FunctionWriter
from hloopt.kernel_ir.expressions import Array, Expr, below, eq
from hloopt.kernels.families.reductions import ReductionGroup, reductions_of
from hloopt.kernels.families.sweeps import WARP

__all__ = [
    "FinishResults",
    "accumulate",
    "first_of",
    "group_of",
    "guarded",
    "shared_steps",
    "store_results",
    "warps_to_shared",
]

FinishResults: TypeAlias = Callable[[FunctionWriter, Sequence[ThreadFold], Index], None]
"""Writes what becomes of finished accumulators at a kept position."""


def group_of(f: FunctionWriter) -> ReductionGroup:
    """The reductions a function is for."""
    return reductions_of(f.region).groups[f.launch.part]


@contextmanager
def guarded(f: FunctionWriter, index: Index, size: int) -> Iterator[Index]:
    """A block in which ``index`` is below ``size``; the same block where it always is.

    ``index`` must be the name of a symbol, or a constant.
    """
    with f.elements.when(*below(index, size)):
        yield narrowed(index, size)


@contextmanager
def shared_steps(f: FunctionWriter, steps: int, part: Index, parts: int) -> Iterator[Index]:
    """The steps ``part, part + parts, ...``."""
    if parts == steps:
        yield part
        return
    with f.elements.counting(part, steps, "step", parts) as step:
        yield step


@contextmanager
def first_of(f: FunctionWriter, lane: Index, *bounds: tuple[Index, int]) -> Iterator[list[Index]]:
    """A block for the thread whose ``lane`` is 0, if each index is below its bound; yields the indices."""
    tests = [eq(lane, 0)] if lane.high else []
    for index, size in bounds:
        tests += below(index, size)
    with f.elements.when(*tests):
        yield [narrowed(index, size) for index, size in bounds]


def accumulate(
    f: FunctionWriter,
    group: ReductionGroup,
    folds: Sequence[Sequence[ThreadFold]],
    first: Index,
    vector: int,
) -> None:
    """Take ``vector`` neighbouring elements in; ``folds`` has a list for each of them, or one for all.

    The elements of side results are stored.
    """
    e = f.elements
    taken = []
    sides: dict[int, list[Expr]] = {number: [] for number in group.sides}
    for lane in range(vector):
        position = first + lane
        for at, hero in enumerate(group.heroes):
            inputs = hero.fold_inputs
            index = delinearize(position, inputs[0].array.dims)
            values = [e.value(part, index) for part in inputs]
            taken.append((folds[lane % len(folds)][at], values, lane >= len(folds)))
        for number, stored in sides.items():
            result = f.region.results[number]
            index = delinearize(position, result.shape.dims)
            stored.append(e.value(result.instruction, index, result.leaf))
    for fold, elements, holds in taken:
        take(e, fold, elements, holds=holds)
    for number, values in sides.items():
        pointee = f.result(number)
        store_run(f, pointee, first, values, pointee.shape.elements)


def warps_to_shared(
    f: FunctionWriter, folds: Sequence[ThreadFold], lane: Index, rows: int, threads: int
) -> tuple[list[list[Array]], Indices]:
    """Write what the first lane of each warp has to shared memory, and wait for all warps.

    A block has ``rows`` rows of ``threads`` threads; ``lane`` counts those of a row.  Returns the tiles, with
    an element a warp, and the place of the thread's row in them.
    """
    e = f.elements
    place = () if rows == 1 else (f.thread() // threads,)
    dims = [threads // WARP] if rows == 1 else [rows, threads // WARP]
    tiles = shared_tiles(e, folds, dims)
    with e.when(eq(lane % WARP, 0)):
        for fold, own in zip(folds, tiles, strict=True):
            keep(e, fold, [tile[(*place, lane // WARP)] for tile in own])
    f.barrier()
    return tiles, place


def store_results(f: FunctionWriter, folds: Sequence[ThreadFold], position: Index) -> None:
    """Finish the heroes and store the results computed from them."""
    e = f.elements
    for fold in folds:
        finish(e, fold, position)
    for number in group_of(f).roots:
        result = f.region.results[number]
        index = delinearize(position, result.shape.dims)
        f.store(f.result(number), position, e.value(result.instruction, index, result.leaf))
