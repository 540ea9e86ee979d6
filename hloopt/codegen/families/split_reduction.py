"""Reductions that several blocks share: partial results in scratch memory, or atomics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hloopt.analysis.index import Index
from hloopt.codegen.families.atomics import combine_atomically
from hloopt.codegen.families.column_reduction import write_columns, write_small_columns
from hloopt.codegen.families.folding import ThreadFold, merge
from hloopt.codegen.families.row_reduction import write_rows
from hloopt.codegen.families.sweeping import FinishResults, group_of, guarded, store_results
from hloopt.codegen.writer import FunctionWriter
from hloopt.kernels.families.reductions import plain_reducer, reductions_of
from hloopt.kernels.families.split_reduction import combine_sweep, form_of, scratch_numbers
from hloopt.kernels.families.sweeps import Sweep, SweepForm, sweep_of

__all__ = ["EMITTERS"]

_WRITERS: Mapping[SweepForm, Callable[[FunctionWriter, Sweep, FinishResults], None]] = {
    "row": write_rows,
    "column": write_columns,
    "small-column": write_small_columns,
}


def _emit(f: FunctionWriter) -> None:
    if f.launch.function.startswith("_combine"):
        _combine(f)
    else:
        _parts(f, "split-reduction", _to_scratch)


def _parts(f: FunctionWriter, name: str, done: FinishResults) -> None:
    reductions = reductions_of(f.region)
    form = form_of(reductions)
    _WRITERS[form](f, sweep_of(form, reductions.form.dims, f.tile, name), done)


def _scratch(f: FunctionWriter) -> list[list[int]]:
    """The scratch buffers of each hero of the function's group."""
    reductions = reductions_of(f.region)
    at, group = f.launch.part, group_of(f)
    numbers = scratch_numbers(reductions)
    return [
        [found for (owner, hero, _), found in numbers.items() if (owner, hero) == (at, number)]
        for number, _ in enumerate(group.heroes)
    ]


def _to_scratch(f: FunctionWriter, folds: Sequence[ThreadFold], position: Index) -> None:
    """The parts of a result lie beside each other."""
    place = position * f.tile["parts"] + f.block("y")
    for fold, numbers in zip(folds, _scratch(f), strict=True):
        for name, number in zip(fold.names, numbers, strict=True):
            f.store(f.scratch(number), place, name)


def _combine(f: FunctionWriter) -> None:
    parts = f.tile["parts"]
    sweep = combine_sweep(reductions_of(f.region).kept, parts)

    def take_parts(folds: Sequence[ThreadFold], first: Index) -> None:
        e = f.elements
        for fold, numbers in zip(folds, _scratch(f), strict=True):
            parts_of = [f.scratch(number) for number in numbers]
            merge(e, fold, [e.load(one.memory, first, one.shape, "part") for one in parts_of])

    write_rows(f, sweep, store_results, take_parts)


def _emit_atomic(f: FunctionWriter) -> None:
    if f.launch.function.startswith("_begin"):
        _begin(f)
    else:
        _parts(f, "atomic-reduction", _to_results)


def _begin(f: FunctionWriter) -> None:
    group = group_of(f)
    thread = f.global_thread("i")
    with guarded(f, thread, reductions_of(f.region).kept) as at:
        for number in group.roots:
            init = f.region.results[number].instruction.operands[1]
            f.store(f.result(number), at, f.elements.value(init))


def _to_results(f: FunctionWriter, folds: Sequence[ThreadFold], position: Index) -> None:
    for number in group_of(f).roots:
        hero = f.region.results[number].instruction
        fold = next(found for found in folds if found.hero is hero)
        f.elements.run(
            combine_atomically(
                f,
                f.result(number),
                position,
                hero.attributes["to_apply"],
                plain_reducer(hero),
                fold.names[0],
            )
        )


EMITTERS = {
    "split-reduction": _emit,
    "atomic-reduction": _emit_atomic,
}
