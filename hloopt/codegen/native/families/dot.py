"""The dot kernel: factors packed where they have to be, sums by ``product`` of products.h, then stores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from hloopt.analysis.contraction import Axis, Contraction, Group, Side
from hloopt.analysis.index import Index, Symbol
from hloopt.codegen.families.dot_index import operand_place, result_place, split_axes
from hloopt.codegen.families.dot_values import read_factor, store_sums, sum_type
from hloopt.codegen.native.families.gemm import in_memory
from hloopt.codegen.writer import FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.kernels.families.dot_region import Product
from hloopt.kernels.families.native_dot import along_columns, small_product

__all__ = ["EMITTERS"]


def _emit(f: FunctionWriter) -> None:
    product = small_product(f.region)
    assert isinstance(product, Product)
    contraction = along_columns(product.contraction)
    product = Product(contraction, product.routes)
    b, m, n, k = (contraction.size(group) for group in ("b", "m", "n", "k"))
    rows = f.tile["rows"]
    parts = -(-m // rows)
    scope, batch, first, count = f.scope, Index(0), Index(0), f"{rows}"
    if b * parts > 1:
        name = scope.names.fresh("task")
        scope = scope.block(f"for (long long {name} = begin; {name} < end; ++{name})")
        task = Symbol(name, 0, b * parts - 1).index
    with f.elements.within(scope):
        if b * parts > 1:
            batch = f.elements.symbol(task // parts, "b", 0, b - 1)
        if parts > 1:
            first = f.elements.symbol(task % parts * rows, "row", 0, m - 1)
        if m % rows:
            some = f"({first} + {rows} < {m} ? {rows} : {m} - ({first}))"
            count = scope.declare(f.loads.index_type, some, "rows")
        left = _left(f, contraction, batch, _Rows(first, rows, count))
        right = _right(f, contraction, batch)
        kind = sum_type(f, contraction)
        sums = _array(f, kind, rows * n, "sums")
        f.elements.scope.line(
            f"hloopt::product<{kind}>({count}, {n}, {k}, "
            f"{left[0]}, {left[1]}, {left[2]}, {right[0]}, {right[1]}, {sums}, {n});"
        )
        _store(f, product, batch, _Rows(first, rows, count), sums)


@dataclass(frozen=True)
class _Rows:
    """The rows of a task: the first one, how many at most, and how many there are."""

    first: Index
    most: int
    count: str

    @contextmanager
    def loop(self, f: FunctionWriter) -> Iterator[tuple[Index, Index]]:
        """A loop over them; gives the number in the task, and of all."""
        name = f.scope.names.fresh("m")
        head = f"for ({f.loads.index_type} {name} = 0; {name} < {self.count}; ++{name})"
        with f.elements.within(f.elements.scope.block(head)):
            at = Symbol(name, 0, self.most - 1).index
            yield at, self.first + at


@contextmanager
def _counted(
    f: FunctionWriter, contraction: Contraction, group: Group
) -> Iterator[tuple[dict[Axis, Index], Index]]:
    """A loop for each axis of a group; gives their counters, and what they count to together."""
    with ExitStack() as blocks:
        axes: dict[Axis, Index] = {}
        total = Index(0)
        for at, size in enumerate(contraction.axes[group]):
            counter = Index(0)
            if size != 1:
                block, counter = f.elements.loop(size, group)
                blocks.enter_context(f.elements.within(block))
            axes[group, at] = counter
            total = total * size + counter
        yield axes, total


def _array(f: FunctionWriter, kind: str, elements: int, hint: str) -> str:
    name = f.scope.names.fresh(hint)
    f.elements.scope.line(f"__attribute__((aligned(64))) {kind} {name}[{elements}];")
    return name


def _left(
    f: FunctionWriter, contraction: Contraction, batch: Index, rows: _Rows
) -> tuple[str, int, int]:
    """Where the rows of the left side lie, and how far these and their elements are apart."""
    side = contraction.lhs
    found = in_memory(f, contraction, side, batch, ("m", "k"))
    if found is not None:
        pointer, apart, step = found
        return f"{pointer} + {rows.first * apart}", apart, step
    columns = contraction.size("k")
    name = _array(f, sum_type(f, contraction), rows.most * columns, "left")
    with rows.loop(f) as (at, row):
        known = split_axes(contraction, {"b": batch, "m": row})
        with _counted(f, contraction, "k") as (axes, column):
            _pack(f, contraction, side, {**known, **axes}, f"{name}[{at * columns + column}]")
    return name, columns, 1


def _right(f: FunctionWriter, contraction: Contraction, batch: Index) -> tuple[str, int]:
    """Where the right side lies with neighbours along n, and how far its rows are apart."""
    side, columns = contraction.rhs, contraction.size("n")
    found = in_memory(f, contraction, side, batch, ("k", "n"))
    if found is not None and (columns == 1 or found[2] == 1):
        return found[:2]
    name = _array(f, sum_type(f, contraction), contraction.size("k") * columns, "right")
    known = split_axes(contraction, {"b": batch})
    with (
        _counted(f, contraction, "k") as (rows, row),
        _counted(f, contraction, "n") as (axes, column),
    ):
        place = f"{name}[{row * columns + column}]"
        _pack(f, contraction, side, {**known, **rows, **axes}, place)
    return name, columns


def _pack(
    f: FunctionWriter, contraction: Contraction, side: Side, axes: Mapping[Axis, Index], to: str
) -> None:
    tests, place = operand_place(side, axes)
    value = read_factor(f, contraction, side, tests, place, "factor")
    f.elements.scope.line(f"{to} = {value};")


def _store(f: FunctionWriter, product: Product, batch: Index, rows: _Rows, sums: str) -> None:
    contraction = product.contraction
    with rows.loop(f) as (at, row):
        known = split_axes(contraction, {"b": batch, "m": row})
        with _counted(f, contraction, "n") as (axes, column):
            place = result_place(contraction, {**known, **axes})
            total = f"{sums}[{at * contraction.size('n') + column}]"
            store_sums(f, product, [place], [total])


EMITTERS = {"native-dot": _emit}
"""What writes each kernel of this family."""
