"""Cholesky factors and triangular systems in double precision, rounded once at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import MappingProxyType
from typing import Final

from hloopt.analysis.index import Index, Symbol, delinearize
from hloopt.codegen.positions import position_of
from hloopt.codegen.scalars import convert, literal
from hloopt.codegen.writer import EmitFunction, FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.expressions import (
    FALSE,
    Array,
    Binary,
    Call,
    Element,
    Expr,
    Make,
    Member,
    Operand,
    Select,
    Var,
    as_expr,
    either,
    eq,
)
from hloopt.kernel_ir.types import BOOL, DOUBLE
from hloopt.kernels.families.linear_systems import System, system_of
from hloopt.types import dtype

__all__ = ["EMITTERS"]

_LANES = 16  # threads along a row


def real(value: Expr) -> Member:
    """The real part of a number in double precision."""
    return Member(value, "re", DOUBLE)


def imaginary(value: Expr) -> Member:
    """The imaginary part."""
    return Member(value, "im", DOUBLE)


class _Writer:
    """Double precision, real or complex."""

    def __init__(self, f: FunctionWriter) -> None:
        self.f = f
        self.kind = f.region.instruction.operands[0].array.dtype
        self.wide = dtype("c128" if self.kind.is_complex else "f64")
        self.type = f.uses.type(self.wide)

    def widened(self, value: Expr, *, conjugate: bool = False) -> Expr:
        """An element in double precision, named."""
        name = value
        if self.kind is not self.wide:
            converted = convert(value, self.kind, self.wide, self.f.uses)
            name = self.f.elements.scope.declare(self.type, converted, "wide")
        if conjugate and self.wide.is_complex:
            turned = Make(self.type, (real(name), -imaginary(name)))
            return self.f.elements.scope.declare(self.type, turned, "conjugate")
        return name

    def rounded(self, value: Expr) -> Expr:
        """A number as an element of the result."""
        return convert(value, self.wide, self.kind, self.f.uses)

    def subtracted(self, total: Expr, left: Expr, right: Expr, *, conjugate: bool = False) -> Expr:
        """``total - left right``, or with the conjugate of right."""
        if not self.wide.is_complex:
            return total - left * right
        one, other = ("+", "-") if conjugate else ("-", "+")
        # (a + bi)(c - di) = ac + bd + (bc - ad)i
        re = Binary.of(one, real(left) * real(right), imaginary(left) * imaginary(right))
        im = Binary.of(other, imaginary(left) * real(right), real(left) * imaginary(right))
        return Make(self.type, (real(total) - re, imaginary(total) - im))

    @contextmanager
    def counted(
        self, start: Operand, end: Operand, step: int, hint: str, unroll: int | None = None
    ) -> Iterator[Var]:
        """A loop; gives its counter."""
        scope, kind = self.f.elements.scope, self.f.loads.index_type
        block, counter = scope.loop(start, end, hint, kind, step, unroll=unroll)
        with self.f.elements.within(block):
            yield counter

    def rolled(
        self, start: Operand, end: Operand, step: int, hint: str
    ) -> AbstractContextManager[Var]:
        """As ``counted``, for a loop that is not worth the registers of being unrolled."""
        return self.counted(start, end, step, hint, 1)


def emit_cholesky(f: FunctionWriter) -> None:
    """A block: one matrix, column by column, everything to the right of a column brought up to date."""
    _Cholesky(f).emit()


class _Cholesky(_Writer):
    def emit(self) -> None:
        f, e = self.f, self.f.elements
        instruction = f.region.instruction
        dims, size = instruction.array.dims, instruction.array.dims[-1]
        self.lower = bool(instruction.attributes.get("lower", False))
        scratch = [found for found in f.pointees.values() if found.name.startswith("scratch")]
        if scratch:
            start = f.block() * (size * size)
            self.cell: Callable[[Expr, Expr], Element] = lambda row, column: scratch[0].memory[
                start + row * size + column
            ]
        else:
            tile = f.shared(self.type, (size, size), "factor")
            self.cell = lambda row, column: tile[row, column]
        self.batch = tuple(delinearize(f.block(), dims[:-2]))
        threads = f.launch.block[0]
        ty, tx = delinearize(f.thread(), (threads // _LANES, _LANES))
        self.down = e.symbol(ty, "down", 0, threads // _LANES - 1)
        self.across = e.symbol(tx, "across", 0, _LANES - 1)
        self.steps = (threads // _LANES, _LANES)
        self._read(size)
        f.barrier()
        failed = f.scope.variable(BOOL, "failed", FALSE)
        with self.rolled(0, size, 1, "column") as column:
            self._column(column, size, failed)
        self._write(size, failed)

    @contextmanager
    def _pairs(self, size: int) -> Iterator[tuple[Index, Index]]:
        """Loops over all rows and columns, shared among the threads."""
        with (
            self.rolled(self.down, size, self.steps[0], "i") as row,
            self.rolled(self.across, size, self.steps[1], "j") as column,
        ):
            yield Symbol(row.name, 0, size - 1).index, Symbol(column.name, 0, size - 1).index

    def _read(self, size: int) -> None:
        """The triangle that is named, as a lower one."""
        e, source = self.f.elements, self.f.region.instruction.operands[0]
        with self._pairs(size) as (i, j), e.when(as_expr(j) <= i):
            place = (i, j) if self.lower else (j, i)
            value = self.widened(e.value(source, (*self.batch, *place)), conjugate=not self.lower)
            e.scope.set(self.cell(as_expr(i), as_expr(j)), value)

    def _column(self, column: Var, size: int, failed: Var) -> None:
        f, e = self.f, self.f.elements
        whole = e.scope.declare(self.type, self.cell(column, column), "diagonal")
        pivot = real(whole) if self.wide.is_complex else whole
        e.scope.set(failed, either([failed, (pivot > 0).negated()]))
        root = e.scope.declare(DOUBLE, Call("sqrt", (pivot,), DOUBLE), "root")
        f.barrier()
        with self.rolled(column + f.thread(), size, f.launch.block[0], "i") as row:
            value: Expr = e.scope.declare(self.type, self.cell(row, column), "below")
            below: Expr = value / root
            diagonal: Expr = root
            if self.wide.is_complex:
                below = Make(self.type, (real(value) / root, imaginary(value) / root))
                diagonal = Make(self.type, (root, as_expr(0)))
            chosen = Select.of(eq(row, column), diagonal, below)
            e.scope.set(self.cell(row, column), chosen)
        f.barrier()
        with (
            self.rolled(column + 1 + self.down, size, self.steps[0], "i") as i,
            self.rolled(column + 1 + self.across, i + 1, self.steps[1], "j") as j,
        ):
            old = e.scope.declare(self.type, self.cell(i, j), "old")
            left = e.scope.declare(self.type, self.cell(i, column), "left")
            right = e.scope.declare(self.type, self.cell(j, column), "right")
            value = self.subtracted(old, left, right, conjugate=True)
            e.scope.set(self.cell(i, j), value)
        f.barrier()

    def _write(self, size: int, failed: Var) -> None:
        f, e = self.f, self.f.elements
        result = f.result(0)
        zero, nan = literal(0, self.wide), literal(float("nan"), self.wide)
        with self._pairs(size) as (i, j):
            value = e.scope.variable(self.type, "element", zero)
            low, high = (as_expr(j), as_expr(i)) if self.lower else (as_expr(i), as_expr(j))
            e.scope.when(low <= high).set(value, self.cell(high, low))
            if not self.lower and self.wide.is_complex:
                e.scope.set(imaginary(value), -imaginary(value))
            e.scope.when(failed).set(value, nan)
            at = position_of((*self.batch, i, j), result.shape)
            f.store(result, at, self.rounded(value))


def emit_solve(f: FunctionWriter) -> None:
    """A block: a few right sides of one matrix; a row is divided, then taken from all that follow."""
    _Solve(f, system_of(f.region.instruction)).emit()


@dataclass
class _Solve(_Writer):
    f: FunctionWriter
    system: System

    def __post_init__(self) -> None:
        super().__init__(self.f)

    def emit(self) -> None:
        f, e, system = self.f, self.f.elements, self.system
        dims = f.region.operands[1].dims
        columns = f.tile["columns"]
        tile = f.shared(self.type, (system.size, columns), "x")
        groups = -(-system.columns // columns)
        *batch, group = delinearize(f.block(), (*dims[:-2], groups))
        self.batch = tuple(batch)
        self.first = e.symbol(group * columns, "first_column", 0, (groups - 1) * columns)
        self._move(tile, self._read)
        f.barrier()
        with self.counted(0, system.size, 1, "step") as step:
            self._row(tile, Symbol(step.name, 0, system.size - 1).index, columns)
        self._move(tile, self._write)

    def _move(self, tile: Array, move: Callable[[Element, tuple[Index, ...]], None]) -> None:
        """Go through the block's elements of the right sides, as they lie in memory."""
        f, e, system = self.f, self.f.elements, self.system
        columns, size = f.tile["columns"], system.size
        with self.counted(f.thread(), size * columns, f.launch.block[0], "i") as number:
            at = Symbol(number.name, 0, size * columns - 1).index
            if system.is_left:
                row, local = delinearize(at, (size, columns))
            else:
                local, row = delinearize(at, (columns, size))
            column = e.symbol(self.first + local, "column", 0, self.first.high + columns - 1)
            tests = [as_expr(column) < system.columns] * (column.high >= system.columns)
            if tests:
                ((atom, _),) = column.terms
                assert isinstance(atom, Symbol)
                column = Symbol(atom.name, 0, system.columns - 1).index
            place = (row, column) if system.is_left else (column, row)
            with e.when(*tests):
                move(tile[row, local], (*self.batch, *place))
            if tests and move == self._read:
                e.scope.otherwise().set(tile[row, local], literal(0, self.wide))

    def _read(self, cell: Element, place: tuple[Index, ...]) -> None:
        value = self.f.elements.value(self.f.region.instruction.operands[1], place)
        self.f.elements.scope.set(cell, self.widened(value))

    def _write(self, cell: Element, place: tuple[Index, ...]) -> None:
        result = self.f.result(0)
        value = self.f.elements.scope.declare(self.type, cell, "wide")
        self.f.store(result, position_of(place, result.shape), self.rounded(value))

    def _triangle(self, row: Index, column: Index) -> Expr:
        """An element of the triangle in double precision."""
        place = (column, row) if self.system.turns else (row, column)
        value = self.f.elements.value(self.f.region.instruction.operands[0], (*self.batch, *place))
        return self.widened(value, conjugate=self.system.conjugates)

    def _row(self, tile: Array, step: Index, columns: int) -> None:
        f, e, system = self.f, self.f.elements, self.system
        row = Index(system.size - 1) - step if system.backwards else step
        threads = f.launch.block[0]
        if not system.is_unit:
            with self.counted(f.thread(), columns, threads, "j") as local:
                value = e.scope.declare(self.type, tile[row, local], "right")
                diagonal = self._triangle(row, row)
                if self.wide.is_complex:
                    quotient: Expr = f.uses.call("divide_c128", value, diagonal, type=self.type)
                else:
                    quotient = value / diagonal
                e.scope.set(tile[row, local], quotient)
            f.barrier()
        left = (system.size - 1 - as_expr(step)) * columns
        with self.counted(f.thread(), left, threads, "i") as number:
            at = Symbol(number.name, 0, max(0, (system.size - 1) * columns - 1)).index
            beyond, local_at = delinearize(at, (max(1, system.size - 1), columns))
            other = row - 1 - beyond if system.backwards else row + 1 + beyond
            other = e.symbol(other, "row", 0, system.size - 1)
            factor = self._triangle(other, row)
            old = e.scope.declare(self.type, tile[other, local_at], "old")
            known = e.scope.declare(self.type, tile[row, local_at], "known")
            e.scope.set(tile[other, local_at], self.subtracted(old, factor, known))
        f.barrier()


EMITTERS: Final[Mapping[str, EmitFunction]] = MappingProxyType(
    {"cholesky": emit_cholesky, "triangular-solve": emit_solve}
)
