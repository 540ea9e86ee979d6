"""Cholesky factors and triangular systems in double precision, rounded once at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Final

from hloopt.analysis.index import Index, Symbol, delinearize
from hloopt.codegen.positions import position_of
from hloopt.codegen.scalars import convert, literal
from hloopt.codegen.writer import EmitFunction, FunctionWriter
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.scope import Scope
from hloopt.kernels.families.linear_systems import System, system_of
from hloopt.types import dtype

__all__ = ["EMITTERS"]

_LANES = 16  # threads along a row


class _Writer:
    """Double precision, real or complex."""

    def __init__(self, f: FunctionWriter) -> None:
        self.f = f
        self.kind = f.region.instruction.operands[0].array.dtype
        self.wide = dtype("c128" if self.kind.is_complex else "f64")
        self.type = f.uses.type(self.wide)

    def widened(self, value: str, *, conjugate: bool = False) -> str:
        """An element in double precision, named."""
        name = value
        if self.kind is not self.wide:
            converted = convert(value, self.kind, self.wide, self.f.uses)
            name = self.f.elements.scope.declare(self.type, converted, "wide")
        if conjugate and self.wide.is_complex:
            return self.f.elements.scope.declare(
                self.type, f"{self.type}{{{name}.re, -{name}.im}}", "conjugate"
            )
        return name

    def rounded(self, value: str) -> str:
        """A number as an element of the result."""
        return convert(value, self.wide, self.kind, self.f.uses)

    def subtracted(self, total: str, left: str, right: str, *, conjugate: bool = False) -> str:
        """``total - left right``, or with the conjugate of right; all are names."""
        if not self.wide.is_complex:
            return f"{total} - {left} * {right}"
        one, other = ("+", "-") if conjugate else ("-", "+")
        # (a + bi)(c - di) = ac + bd + (bc - ad)i
        real = f"{total}.re - ({left}.re * {right}.re {one} {left}.im * {right}.im)"
        imaginary = f"{total}.im - ({left}.im * {right}.re {other} {left}.re * {right}.im)"
        return f"{self.type}{{{real}, {imaginary}}}"

    def block(self, header: str) -> AbstractContextManager[Scope]:
        """Write into a new block."""
        return self.f.elements.within(self.f.elements.scope.block(header))

    def rolled(self, header: str) -> AbstractContextManager[Scope]:
        """As ``block``, for a loop that is not worth the registers of being unrolled."""
        self.f.elements.scope.line("#pragma unroll 1")
        return self.block(header)

    def counted(self, name: str, start: str, end: str, step: int | str) -> str:
        """The head of a loop."""
        return f"for ({self.f.loads.index_type} {name} = {start}; {name} < {end}; {name} += {step})"


def emit_cholesky(f: FunctionWriter) -> None:
    """A block: one matrix, column by column, everything to the right of a column brought up to date."""
    _Cholesky(f).emit()


class _Cholesky(_Writer):
    def emit(self) -> None:
        f, e, names = self.f, self.f.elements, self.f.scope.names
        instruction = f.region.instruction
        dims, size = instruction.array.dims, instruction.array.dims[-1]
        self.lower = bool(instruction.attributes.get("lower", False))
        scratch = [found for found in f.pointees.values() if found.name.startswith("scratch")]
        if scratch:
            start = f.block() * (size * size)
            self.cell: Callable[[Index | str, Index | str], str] = lambda row, column: (
                f"{scratch[0].name}[{start} + ({row}) * {size} + {column}]"
            )
        else:
            tile = f.shared(self.type, (size, size), "factor")
            self.cell = lambda row, column: f"{tile}[{row}][{column}]"
        self.batch = tuple(delinearize(f.block(), dims[:-2]))
        threads = f.launch.block[0]
        ty, tx = delinearize(f.thread(), (threads // _LANES, _LANES))
        self.down = e.symbol(ty, "down", 0, threads // _LANES - 1)
        self.across = e.symbol(tx, "across", 0, _LANES - 1)
        self.steps = (threads // _LANES, _LANES)
        self._read(size)
        f.barrier()
        failed = f.scope.variable("bool", "failed", "false")
        column = names.fresh("column")
        with self.rolled(self.counted(column, "0", str(size), 1)):
            self._column(column, size, failed)
        self._write(size, failed)

    def _pairs(self, size: int) -> tuple[str, str, Index, Index]:
        """Loops over all rows and columns, shared among the threads."""
        row, column = self.f.scope.names.fresh("i"), self.f.scope.names.fresh("j")
        return (
            self.counted(row, str(self.down), str(size), self.steps[0]),
            self.counted(column, str(self.across), str(size), self.steps[1]),
            Symbol(row, 0, size - 1).index,
            Symbol(column, 0, size - 1).index,
        )

    def _read(self, size: int) -> None:
        """The triangle that is named, as a lower one."""
        e, source = self.f.elements, self.f.region.instruction.operands[0]
        rows, columns, i, j = self._pairs(size)
        with self.rolled(rows), self.rolled(columns), self.when(f"{j} <= {i}"):
            place = (i, j) if self.lower else (j, i)
            value = self.widened(e.value(source, (*self.batch, *place)), conjugate=not self.lower)
            e.scope.line(f"{self.cell(i, j)} = {value};")

    def _column(self, column: str, size: int, failed: str) -> None:
        f, e = self.f, self.f.elements
        part = ".re" if self.wide.is_complex else ""
        whole = e.scope.declare(self.type, self.cell(column, column), "diagonal")
        pivot = f"{whole}{part}"
        e.scope.line(f"{failed} = {failed} || !({pivot} > 0);")
        root = e.scope.declare("double", f"sqrt({pivot})", "root")
        f.barrier()
        row = f.scope.names.fresh("i")
        start = f"{column} + {f.thread()}"
        with self.rolled(self.counted(row, start, str(size), f.launch.block[0])):
            value = e.scope.declare(self.type, self.cell(row, column), "below")
            if self.wide.is_complex:
                below = f"{self.type}{{{value}.re / {root}, {value}.im / {root}}}"
                diagonal = f"{self.type}{{{root}, 0}}"
            else:
                below, diagonal = f"{value} / {root}", root
            e.scope.line(f"{self.cell(row, column)} = {row} == {column} ? {diagonal} : {below};")
        f.barrier()
        i, j = f.scope.names.fresh("i"), f.scope.names.fresh("j")
        rows = self.counted(i, f"{column} + 1 + {self.down}", str(size), self.steps[0])
        columns = self.counted(j, f"{column} + 1 + {self.across}", f"{i} + 1", self.steps[1])
        with self.rolled(rows), self.rolled(columns):
            old = e.scope.declare(self.type, self.cell(i, j), "old")
            left = e.scope.declare(self.type, self.cell(i, column), "left")
            right = e.scope.declare(self.type, self.cell(j, column), "right")
            value = self.subtracted(old, left, right, conjugate=True)
            e.scope.line(f"{self.cell(i, j)} = {value};")
        f.barrier()

    def _write(self, size: int, failed: str) -> None:
        f, e = self.f, self.f.elements
        result = f.result(0)
        rows, columns, i, j = self._pairs(size)
        zero, nan = literal(0, self.wide), literal(float("nan"), self.wide)
        with self.rolled(rows), self.rolled(columns):
            value = e.scope.variable(self.type, "element", zero)
            inside = f"{j} <= {i}" if self.lower else f"{i} <= {j}"
            cell = self.cell(i, j) if self.lower else self.cell(j, i)
            e.scope.line(f"if ({inside}) {value} = {cell};")
            if not self.lower and self.wide.is_complex:
                e.scope.line(f"{value}.im = -{value}.im;")
            e.scope.line(f"if ({failed}) {value} = {nan};")
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
        step = f.scope.names.fresh("step")
        with self.block(self.counted(step, "0", str(system.size), 1)):
            self._row(tile, Symbol(step, 0, system.size - 1).index, columns)
        self._move(tile, self._write)

    def _move(self, tile: str, move: Callable[[str, tuple[Index, ...]], None]) -> None:
        """Go through the block's elements of the right sides, as they lie in memory."""
        f, e, system = self.f, self.f.elements, self.system
        columns, size = f.tile["columns"], system.size
        number = f.scope.names.fresh("i")
        head = self.counted(number, str(f.thread()), str(size * columns), f.launch.block[0])
        with self.block(head):
            at = Symbol(number, 0, size * columns - 1).index
            if system.is_left:
                row, local = delinearize(at, (size, columns))
            else:
                local, row = delinearize(at, (columns, size))
            column = e.symbol(self.first + local, "column", 0, self.first.high + columns - 1)
            inside = f"{column} < {system.columns}" if column.high >= system.columns else ""
            if inside:
                ((atom, _),) = column.terms
                assert isinstance(atom, Symbol)
                column = Symbol(atom.name, 0, system.columns - 1).index
            place = (row, column) if system.is_left else (column, row)
            with e.within(e.scope.when(f"{inside}") if inside else e.scope):
                move(f"{tile}[{row}][{local}]", (*self.batch, *place))
            if inside and move == self._read:
                with e.within(e.scope.otherwise()):
                    e.scope.line(f"{tile}[{row}][{local}] = {literal(0, self.wide)};")

    def _read(self, cell: str, place: tuple[Index, ...]) -> None:
        value = self.f.elements.value(self.f.region.instruction.operands[1], place)
        self.f.elements.scope.line(f"{cell} = {self.widened(value)};")

    def _write(self, cell: str, place: tuple[Index, ...]) -> None:
        result = self.f.result(0)
        value = self.f.elements.scope.declare(self.type, cell, "wide")
        self.f.store(result, position_of(place, result.shape), self.rounded(value))

    def _triangle(self, row: Index, column: Index) -> str:
        """An element of the triangle in double precision."""
        place = (column, row) if self.system.turns else (row, column)
        value = self.f.elements.value(self.f.region.instruction.operands[0], (*self.batch, *place))
        return self.widened(value, conjugate=self.system.conjugates)

    def _row(self, tile: str, step: Index, columns: int) -> None:
        f, e, system = self.f, self.f.elements, self.system
        row = Index(system.size - 1) - step if system.backwards else step
        threads = f.launch.block[0]
        if not system.is_unit:
            local = f.scope.names.fresh("j")
            with self.block(self.counted(local, str(f.thread()), str(columns), threads)):
                value = e.scope.declare(self.type, f"{tile}[{row}][{local}]", "right")
                diagonal = self._triangle(row, row)
                if self.wide.is_complex:
                    quotient = f.uses.call("divide_c128", value, diagonal)
                else:
                    quotient = f"{value} / {diagonal}"
                e.scope.line(f"{tile}[{row}][{local}] = {quotient};")
            f.barrier()
        number = f.scope.names.fresh("i")
        left = f"({system.size - 1} - {step}) * {columns}"
        with self.block(self.counted(number, str(f.thread()), left, threads)):
            at = Symbol(number, 0, max(0, (system.size - 1) * columns - 1)).index
            beyond, local_at = delinearize(at, (max(1, system.size - 1), columns))
            other = row - 1 - beyond if system.backwards else row + 1 + beyond
            other = e.symbol(other, "row", 0, system.size - 1)
            factor = self._triangle(other, row)
            old = e.scope.declare(self.type, f"{tile}[{other}][{local_at}]", "old")
            known = e.scope.declare(self.type, f"{tile}[{row}][{local_at}]", "known")
            e.scope.line(f"{tile}[{other}][{local_at}] = {self.subtracted(old, factor, known)};")
        f.barrier()


EMITTERS: Final[Mapping[str, EmitFunction]] = MappingProxyType(
    {"cholesky": emit_cholesky, "triangular-solve": emit_solve}
)
