"""The kernel of large products: for each task, some rows by ``large_product`` of products.h."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hloopt.analysis.contraction import AxisGroup, Contraction, Side
from hloopt.analysis.index import Index, Symbol, symbols_of
from hloopt.backends.native.codegen.nest import BEGIN, END
from hloopt.backends.native.kernels.gemm import large_product
from hloopt.codegen import position_of
from hloopt.codegen.families.dot_index import operand_place, split_axes
from hloopt.codegen.writer import FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.expressions import Address, Array, Call, Expr, Operand, Select, as_expr
from hloopt.kernel_ir.types import LONG, VOID

__all__ = ["EMITTERS", "Lying", "counted", "every_task", "in_memory", "multiply"]


@dataclass(frozen=True, slots=True)
class Lying:
    """Where a factor lies, and how far its rows and its columns are apart."""

    memory: Array
    at: Index
    rows: int
    columns: int

    def row(self, number: Index) -> Address:
        """Where a row begins."""
        return self.memory.address(self.at + number * self.rows)


def _emit(f: FunctionWriter) -> None:
    contraction = large_product(f.region)
    b, m, n, k = (contraction.size(group) for group in ("b", "m", "n", "k"))
    rows = f.tile["rows"]
    parts = -(-m // rows)
    with every_task(f, b * parts) as task:
        batch = f.elements.symbol(task // parts, "b", 0, b - 1)
        first = f.elements.symbol(task % parts * rows, "row", 0, m - 1)
        left = in_memory(f, contraction, contraction.lhs, batch, ("m", "k"))
        right = in_memory(f, contraction, contraction.rhs, batch, ("k", "n"))
        assert left is not None, "the family requires it"
        assert right is not None, "the family requires it"
        count = counted(first, rows, m) if m % rows else as_expr(rows)
        given = left.row(first), left.rows, left.columns, right.row(Index(0))
        to = f.result(0).memory.address(batch * (m * n) + first * n)
        multiply(
            f, "large_product", contraction, (count, n, k, *given, right.rows, right.columns, to, n)
        )


def counted(first: Index, rows: int, count: int) -> Expr:
    """How many of so many ``rows`` there are from the first of a task on, ``count`` in all."""
    return Select.of(as_expr(first + rows) < count, rows, Index(count) - first)


@contextmanager
def every_task(f: FunctionWriter, count: int) -> Iterator[Index]:
    """A loop over the tasks of this call, of ``count`` in all."""
    block, task = f.elements.scope.loop(BEGIN, END, "task", LONG)
    with f.elements.within(block):
        yield Symbol(task.name, 0, count - 1).index


def multiply(
    f: FunctionWriter, function: str, contraction: Contraction, given: Sequence[Operand]
) -> None:
    """Call a product of products.h."""
    name = f"hloopt::{function}<{f.uses.type(contraction.accumulator)}>"
    f.elements.scope.do(Call(name, tuple(map(as_expr, given)), VOID))


def in_memory(
    f: FunctionWriter,
    contraction: Contraction,
    side: Side,
    batch: Index,
    groups: Sequence[AxisGroup],
) -> Lying | None:
    """Where a factor lies in memory.

    None for what is computed, of another type than the sums, or not at equal distances.
    """
    instruction = side.instruction
    if instruction not in f.region.inputs or side.scale is not None:
        return None
    number = f.region.inputs[instruction]
    memory = f.elements.memory.get(f.region.canonical(number))
    if memory is None or instruction.array.dtype is not contraction.accumulator:
        return None
    counts = [Symbol(f"counts {group}", 0, contraction.size(group) - 1).index for group in groups]
    axes = split_axes(contraction, {"b": batch, **dict(zip(groups, counts, strict=True))})
    tests, place = operand_place(side, axes)
    if tests:
        return None
    rest = position_of(place, instruction.array)
    steps = []
    for count in counts:
        step = next((times for atom, times in rest.terms if Index(0, ((atom, 1),)) == count), 0)
        rest = rest - count * step
        steps.append(step)
    if not {*symbols_of(counts)}.isdisjoint(symbols_of((rest,))):
        return None
    return Lying(memory, rest, *steps)


EMITTERS = {"native-gemm": _emit}
"""What writes the kernel of this family."""
