"""The results of the attention kernel: a value a row, or one a row and column of the values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hloopt.analysis.attention.axes import Along, AxisNumber
from hloopt.analysis.index import Index, narrowed
from hloopt.codegen import position_of
from hloopt.codegen.families.attention_block import AttentionBlock
from hloopt.codegen.families.attention_products import EIGHT, HALVES, PAIR
from hloopt.codegen.families.dot_values import store_run
from hloopt.kernel_ir.expressions import Expr, below, eq
from hloopt.kernel_ir.types import INT

__all__ = ["store_contexts", "store_rows"]


def store_rows(block: AttentionBlock) -> None:
    """Results with a value a row."""
    f, e, form = block.f, block.e, block.form
    rows = form.count(form.rows)
    with block.rows_bound() as bind:
        for half in range(HALVES):
            numbers = [
                number
                for number, result in enumerate(f.region.results)
                if not _inner_of(block, form.along[result.instruction])
            ]
            if not numbers:
                return
            with e.when(eq(block.t, 0), *below(block.rows[half], rows)):
                bind(half)
                for number in numbers:
                    result = f.region.results[number]
                    along = form.along[result.instruction]
                    index = block.index(along, block.row_axes(half))
                    value = e.value(result.instruction, index)
                    f.store(f.result(number), position_of(index, result.shape), value)


def _inner_of(block: AttentionBlock, along: Along) -> tuple[AxisNumber, ...]:
    """The further axes of the values, in the order of a context; none of what has a value a row."""
    axes = {axis for part in along if part for axis in part}
    return next((own for own in block.form.inner.values() if axes & set(own)), ())


def store_contexts(block: AttentionBlock) -> None:
    """Results with an element a row and column of the values."""
    f, e, form = block.f, block.e, block.form
    rows = form.count(form.rows)
    for inner in dict.fromkeys(form.inner.values()):
        numbers = [
            number
            for number, result in enumerate(f.region.results)
            if _inner_of(block, form.along[result.instruction]) == inner
        ]
        eights = -(-form.count(inner) // EIGHT)
        with block.rows_bound() as bind:
            for half in range(HALVES):
                with (
                    e.when(*below(block.rows[half], rows)),
                    e.counting(0, eights, "j", type=INT, unroll=0) as j,
                ):
                    bind(half)
                    _store_pair(block, half, j, inner, numbers)


def _store_pair(
    block: AttentionBlock, half: int, j: Index, axes: Sequence[AxisNumber], numbers: Sequence[int]
) -> None:
    """Two neighbours of each result, where there are such columns."""
    e, size = block.e, block.form.count(axes)
    first = e.symbol(j * EIGHT + block.t * PAIR, "column", 0, -(-size // 8) * 8 - PAIR)
    # Where columns are even in number both are there or neither.
    runs = [range(PAIR)] if size % PAIR == 0 else [range(1), range(1, PAIR)]
    for run in runs:
        at = first + run.start
        with e.when(*below(at, size - len(run) + 1)):
            inside = narrowed(at, size - len(run) + 1)
            stores: dict[int, list[tuple[Index, Expr]]] = {number: [] for number in numbers}
            for pair in run:
                known = {
                    **block.row_axes(half),
                    **block.axes(axes, inside + (pair - run.start)),
                }
                for number, stored in _values(block, half, j, pair, known, numbers).items():
                    stores[number].append(stored)
            for number, own in stores.items():
                store_run(block.f, block.f.result(number), own)


def _values(
    block: AttentionBlock,
    half: int,
    j: Index,
    pair: int,
    known: Mapping[AxisNumber, Index],
    numbers: Sequence[int],
) -> dict[int, tuple[Index, Expr]]:
    """Where an element of each result goes, and what it is."""
    f, e, form = block.f, block.e, block.form
    for product in form.contexts:
        if all(axis in known for axis in form.inner[product.hero]):
            total = block.sums[product.hero][j, half * PAIR + pair]
            block.place(product.hero).now = block.rounded(product, total)
    found = {}
    for number in numbers:
        result = f.region.results[number]
        index = block.index(form.along[result.instruction], known)
        found[number] = (position_of(index, result.shape), e.value(result.instruction, index))
    return found
