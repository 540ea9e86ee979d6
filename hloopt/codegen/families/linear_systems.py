"""Cholesky factors and triangular systems in double precision, rounded once at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hloopt.analysis.index import Index, Indices, Symbol, delinearize, narrowed
from hloopt.codegen import position_of
from hloopt.codegen.scalars import convert, literal
from hloopt.codegen.scalars.forms import parts
from hloopt.codegen.writer import FunctionWriter
from hloopt.kernel_ir.expressions import (
    FALSE,
    Array,
    Call,
    Element,
    Expr,
    Make,
    Select,
    Var,
    as_expr,
    below,
    either,
    eq,
)
from hloopt.kernel_ir.types import BOOL, DOUBLE
from hloopt.kernels.families.linear_systems import System, system_of
from hloopt.kernels.spec import LeafPlace
from hloopt.types import dtype

__all__ = ["EMITTERS"]

_LANES = 16  # threads along a row


class _Writer:
    """Double precision, real or complex."""

    def __init__(self, f: FunctionWriter) -> None:
        self.f = f
        self.e = f.elements
        self.kind = f.region.instruction.operands[0].array.dtype
        self.wide = dtype("c128" if self.kind.is_complex else "f64")
        self.type = f.uses.type(self.wide)
        self.threads = f.launch.block[0]

    def declared(self, value: Expr, hint: str) -> Var:
        """A number, named."""
        return self.e.scope.declare(self.type, value, hint)

    def widened(self, value: Expr, *, conjugate: bool = False) -> Expr:
        """An element in double precision, named."""
        if self.kind is not self.wide:
            value = self.declared(convert(value, self.kind, self.wide, self.f.uses), "wide")
        if conjugate and self.wide.is_complex:
            real, imaginary = parts(value, self.wide)
            return self.declared(Make(self.type, (real, -imaginary)), "conjugate")
        return value

    def rounded(self, value: Expr) -> Expr:
        """A number as an element of the result."""
        return convert(value, self.wide, self.kind, self.f.uses)

    def subtracted(self, total: Var, left: Expr, right: Expr, *, conjugate: bool = False) -> Expr:
        """``total - left right``, or with the conjugate of right; all are named."""
        if not self.wide.is_complex:
            return total - left * right
        (x, y), (a, b), (c, d) = (parts(one, self.wide) for one in (total, left, right))
        if conjugate:
            # (a + bi)(c - di) = ac + bd + (bc - ad)i
            return Make(self.type, (x - (a * c + b * d), y - (b * c - a * d)))
        return Make(self.type, (x - (a * c - b * d), y - (b * c + a * d)))


def emit_cholesky(f: FunctionWriter) -> None:
    """A block: one matrix, column by column, everything to the right of a column brought up to date."""
    _Cholesky(f).emit()


class _Cholesky(_Writer):
    def emit(self) -> None:
        f, e = self.f, self.e
        instruction = f.region.instruction
        dims, size = instruction.array.dims, instruction.array.dims[-1]
        self.size = size
        self.lower = bool(instruction.attributes.get("lower", False))
        scratch = f.pointees.get(LeafPlace("scratch", 0))
        self.matrix = (
            f.shared(self.type, (size, size), "factor") if scratch is None else scratch.memory
        )
        self.batch = tuple(delinearize(f.block(), dims[:-2]))
        self.steps = (self.threads // _LANES, _LANES)
        ty, tx = delinearize(f.thread(), self.steps)
        self.down = e.symbol(ty, "down", 0, self.steps[0] - 1)
        self.across = e.symbol(tx, "across", 0, _LANES - 1)
        self._read()
        f.barrier()
        failed = f.scope.variable(BOOL, "failed", FALSE)
        # No loop here is worth the registers of being unrolled.
        with e.counting(0, size, "column", unroll=1) as column:
            self._column(column, failed)
        self._write(failed)

    def _cell(self, row: Index, column: Index) -> Element:
        if self.matrix.space == "shared":
            return self.matrix[row, column]
        start = self.f.block() * (self.size * self.size)
        return self.matrix[start + row * self.size + column]

    @contextmanager
    def _pairs(self, first: Index, *, is_lower: bool = False) -> Iterator[tuple[Index, Index]]:
        """Rows and columns from ``first`` on, of the lower triangle or of all, shared among the threads."""
        down, across = self.steps
        counting = self.e.counting
        with counting(first + self.down, self.size, "i", down, unroll=1) as i:
            stop = i + 1 if is_lower else self.size
            with counting(first + self.across, stop, "j", across, unroll=1) as j:
                yield i, j

    def _read(self) -> None:
        """The triangle that is named, as a lower one."""
        e, source = self.e, self.f.region.instruction.operands[0]
        with self._pairs(Index(0)) as (i, j), e.when(as_expr(j) <= i):
            place = (i, j) if self.lower else (j, i)
            value = self.widened(e.value(source, (*self.batch, *place)), conjugate=not self.lower)
            e.scope.set(self._cell(i, j), value)

    def _column(self, column: Index, failed: Var) -> None:
        f, e = self.f, self.e
        whole = self.declared(self._cell(column, column), "diagonal")
        pivot = parts(whole, self.wide)[0] if self.wide.is_complex else whole
        e.scope.set(failed, either([failed, (pivot > 0).negated()]))
        root = e.scope.declare(DOUBLE, Call("sqrt", (pivot,), DOUBLE), "root")
        f.barrier()
        first = column + f.thread()
        with e.counting(first, self.size, "i", self.threads, unroll=1) as row:
            value = self.declared(self._cell(row, column), "below")
            quotient, diagonal = value / root, as_expr(root)
            if self.wide.is_complex:
                real, imaginary = parts(value, self.wide)
                quotient = Make(self.type, (real / root, imaginary / root))
                diagonal = Make(self.type, (root, as_expr(0)))
            e.scope.set(self._cell(row, column), Select.of(eq(row, column), diagonal, quotient))
        f.barrier()
        with self._pairs(column + 1, is_lower=True) as (i, j):
            old = self.declared(self._cell(i, j), "old")
            left = self.declared(self._cell(i, column), "left")
            right = self.declared(self._cell(j, column), "right")
            e.scope.set(self._cell(i, j), self.subtracted(old, left, right, conjugate=True))
        f.barrier()

    def _write(self, failed: Var) -> None:
        f, e = self.f, self.e
        result = f.result(0)
        zero, nan = literal(0, self.wide), literal(float("nan"), self.wide)
        with self._pairs(Index(0)) as (i, j):
            value = e.scope.variable(self.type, "element", zero)
            row, column = (i, j) if self.lower else (j, i)
            with e.when(as_expr(column) <= row) as inside:
                inside.set(value, self._cell(row, column))
            if not self.lower and self.wide.is_complex:
                imaginary = parts(value, self.wide)[1]
                e.scope.set(imaginary, -imaginary)
            with e.when(failed) as undone:
                undone.set(value, nan)
            at = position_of((*self.batch, i, j), result.shape)
            f.store(result, at, self.rounded(value))


def emit_solve(f: FunctionWriter) -> None:
    """A block: a few right sides of one matrix; a row is divided, then taken from all that follow."""
    _Solve(f, system_of(f.region.instruction)).emit()


class _Solve(_Writer):
    def __init__(self, f: FunctionWriter, system: System) -> None:
        super().__init__(f)
        self.system = system

    def emit(self) -> None:
        f, e, system = self.f, self.e, self.system
        dims = f.region.operands[1].dims
        columns = f.tile["columns"]
        tile = f.shared(self.type, (system.size, columns), "x")
        groups = -(-system.columns // columns)
        *batch, group = delinearize(f.block(), (*dims[:-2], groups))
        self.batch = tuple(batch)
        self.first = e.symbol(group * columns, "first_column", 0, (groups - 1) * columns)
        with self._elements(tile) as (cell, place, tests):
            with e.when(*tests):
                value = e.value(f.region.instruction.operands[1], place)
                e.scope.set(cell, self.widened(value))
            if tests:
                e.scope.otherwise().set(cell, literal(0, self.wide))
        f.barrier()
        with e.counting(0, system.size, "step") as step:
            self._row(tile, step, columns)
        result = f.result(0)
        with self._elements(tile) as (cell, place, tests), e.when(*tests):
            wide = self.declared(cell, "wide")
            f.store(result, position_of(place, result.shape), self.rounded(wide))

    @contextmanager
    def _elements(self, tile: Array) -> Iterator[tuple[Element, Indices, list[Expr]]]:
        """The block's elements of the right sides, as they lie in memory, and the tests that there is one."""
        f, e, system = self.f, self.e, self.system
        columns, size = f.tile["columns"], system.size
        with e.counting(f.thread(), size * columns, "i", self.threads) as at:
            if system.is_left:
                row, local = delinearize(at, (size, columns))
            else:
                local, row = delinearize(at, (columns, size))
            column = e.symbol(self.first + local, "column", 0, self.first.high + columns - 1)
            inside = narrowed(column, system.columns)
            place = (row, inside) if system.is_left else (inside, row)
            yield tile[row, local], (*self.batch, *place), below(column, system.columns)

    def _triangle(self, row: Index, column: Index) -> Expr:
        """An element of the triangle in double precision."""
        place = (column, row) if self.system.turns else (row, column)
        value = self.e.value(self.f.region.instruction.operands[0], (*self.batch, *place))
        return self.widened(value, conjugate=self.system.conjugates)

    def _row(self, tile: Array, step: Index, columns: int) -> None:
        f, e, system = self.f, self.e, self.system
        row = Index(system.size - 1) - step if system.backwards else step
        if not system.is_unit:
            with e.counting(f.thread(), columns, "j", self.threads) as local:
                value = self.declared(tile[row, local], "right")
                diagonal = self._triangle(row, row)
                quotient = value / diagonal
                if self.wide.is_complex:
                    quotient = f.uses.call("divide_c128", value, diagonal, type=self.type)
                e.scope.set(tile[row, local], quotient)
            f.barrier()
        others = max(1, system.size - 1)
        left = (as_expr(system.size - 1) - step) * columns
        block, counter = e.scope.loop(f.thread(), left, "i", f.loads.index_type, self.threads)
        with e.within(block):
            at = Symbol(counter.name, 0, others * columns - 1).index
            beyond, local = delinearize(at, (others, columns))
            other = row - 1 - beyond if system.backwards else row + 1 + beyond
            other = e.symbol(other, "row", 0, system.size - 1)
            factor = self._triangle(other, row)
            old = self.declared(tile[other, local], "old")
            known = self.declared(tile[row, local], "known")
            e.scope.set(tile[other, local], self.subtracted(old, factor, known))
        f.barrier()


EMITTERS = {"cholesky": emit_cholesky, "triangular-solve": emit_solve}
