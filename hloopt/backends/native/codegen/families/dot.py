"""The dot kernel: factors packed where they have to be, sums by ``product`` of products.h, then stores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from hloopt.analysis.contraction import Axis, AxisGroup, Side
from hloopt.analysis.index import Index, Symbol
from hloopt.backends.native.codegen.families.gemm import (
    Lying,
    counted,
    every_task,
    in_memory,
    multiply,
)
from hloopt.backends.native.codegen.nest import loop
from hloopt.backends.native.kernels.dot import along_columns, small_product
from hloopt.codegen.families.dot_index import operand_place, result_place, split_axes
from hloopt.codegen.families.dot_values import ProductWriter
from hloopt.codegen.writer import FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.expressions import Array, ArrayValue, Element, Expr, as_expr
from hloopt.kernels.families.dot_region import ProductRegion

__all__ = ["EMITTERS"]


def _emit(f: FunctionWriter) -> None:
    product = small_product(f.region)
    contraction = along_columns(product.contraction)
    product = ProductRegion(contraction, product.routes)
    b, m, n, k = (contraction.size(group) for group in ("b", "m", "n", "k"))
    rows = f.tile["rows"]
    parts = -(-m // rows)
    batch, first, count = Index(0), Index(0), as_expr(rows)
    with ExitStack() as blocks:
        if b * parts > 1:
            task = blocks.enter_context(every_task(f, b * parts))
            batch = f.elements.symbol(task // parts, "b", 0, b - 1)
            if parts > 1:
                first = f.elements.symbol(task % parts * rows, "row", 0, m - 1)
        if m % rows:
            some = counted(first, rows, m)
            count = f.elements.scope.declare(f.loads.index_type, some, "rows")
        block = _Rows(first, rows, count)
        writer = ProductWriter(f, product, contraction)
        left = _left(writer, batch, block)
        right = _right(writer, batch)
        sums = _array(writer, rows * n, "sums")
        given = left.row(first), left.rows, left.columns, right.row(Index(0)), right.rows
        multiply(f, "product", contraction, (count, n, k, *given, ArrayValue(sums), n))
        _store(writer, batch, block, sums)


@dataclass(frozen=True)
class _Rows:
    """The rows of a task: the first one, how many at most, and how many there are."""

    first: Index
    most: int
    count: Expr

    @contextmanager
    def loop(self, f: FunctionWriter) -> Iterator[tuple[Index, Index]]:
        """A loop over them; gives the number in the task, and of all."""
        symbol = Symbol(f.scope.names.fresh("m"), 0, self.most - 1)
        with loop(f, 0, self.count, symbol) as at:
            yield at, self.first + at


@contextmanager
def _counted(writer: ProductWriter, group: AxisGroup) -> Iterator[tuple[dict[Axis, Index], Index]]:
    """A loop for each axis of a group; gives their counters, and what they count to together."""
    with ExitStack() as blocks:
        axes: dict[Axis, Index] = {}
        total = Index(0)
        e = writer.f.elements
        for at, size in enumerate(writer.contraction.axes[group]):
            counter = Index(0)
            if size != 1:
                block, counter = e.loop(size, group)
                blocks.enter_context(e.within(block))
            axes[group, at] = counter
            total = total * size + counter
        yield axes, total


def _array(writer: ProductWriter, elements: int, hint: str) -> Array:
    return writer.f.elements.scope.array(writer.kind, (elements,), hint, align=64)


def _left(writer: ProductWriter, batch: Index, rows: _Rows) -> Lying:
    """Where the rows of the left side lie."""
    f, contraction, side = writer.f, writer.contraction, writer.contraction.lhs
    found = in_memory(f, contraction, side, batch, ("m", "k"))
    if found is not None:
        return found
    columns = contraction.size("k")
    packed = _array(writer, rows.most * columns, "left")
    with rows.loop(f) as (at, row):
        known = split_axes(contraction, {"b": batch, "m": row})
        with _counted(writer, "k") as (axes, column):
            _pack(writer, side, {**known, **axes}, packed[at * columns + column])
    # The task's first row is the array's.
    return Lying(packed, rows.first * -columns, columns, 1)


def _right(writer: ProductWriter, batch: Index) -> Lying:
    """Where the right side lies, contiguous along n."""
    contraction = writer.contraction
    side, columns = contraction.rhs, contraction.size("n")
    found = in_memory(writer.f, contraction, side, batch, ("k", "n"))
    if found is not None and (columns == 1 or found.columns == 1):
        return found
    packed = _array(writer, contraction.size("k") * columns, "right")
    known = split_axes(contraction, {"b": batch})
    with (
        _counted(writer, "k") as (rows, row),
        _counted(writer, "n") as (axes, column),
    ):
        place = packed[row * columns + column]
        _pack(writer, side, {**known, **rows, **axes}, place)
    return Lying(packed, Index(0), columns, 1)


def _pack(writer: ProductWriter, side: Side, axes: Mapping[Axis, Index], to: Element) -> None:
    factor = writer.read_factor(side, *operand_place(side, axes), "factor")
    writer.f.elements.scope.set(to, factor)


def _store(writer: ProductWriter, batch: Index, rows: _Rows, sums: Array) -> None:
    contraction = writer.contraction
    with rows.loop(writer.f) as (at, row):
        known = split_axes(contraction, {"b": batch, "m": row})
        with _counted(writer, "n") as (axes, column):
            place = result_place(contraction, {**known, **axes})
            writer.store([place], [sums[at * contraction.size("n") + column]])


EMITTERS = {"native-dot": _emit}
"""What writes each kernel of this family."""
