"""Factors and triangular systems: a call of triangular.h, factors.h or reflections.h for each matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from hloopt.analysis.index import Index, delinearize
from hloopt.analysis.layout import major_to_minor
from hloopt.codegen.native.nest import tasks
from hloopt.codegen.writer import EmitFunction, FunctionWriter, Pointee
from hloopt.dataclass import dataclass
from hloopt.kernels.families.native_linear_systems import FEW, Routine, apart, room_of, routine_of
from hloopt.kernels.spec import Place

__all__ = ["EMITTERS"]


@dataclass(frozen=True)
class _Matrix:
    """Where a matrix, a vector or a number of a stack lies, and how far its rows and columns are apart."""

    at: str
    rows: int
    columns: int

    def text(self) -> str:
        return f"{self.at}, {self.rows}, {self.columns}"

    def turned(self) -> _Matrix:
        """With its dimensions changed for each other."""
        return _Matrix(self.at, self.columns, self.rows)

    def backwards(self, rows: int, columns: int) -> _Matrix:
        """Rows from the last of so many on, and columns alike where there is more than one."""
        behind = (rows - 1) * self.rows
        step = self.columns
        if columns:
            behind, step = behind + (columns - 1) * self.columns, -step
        return _Matrix(f"{self.at} + {behind}", -self.rows, step)

    def from_column(self, first: Index) -> _Matrix:
        """From a column on."""
        return _Matrix(f"{self.at} + {first * self.columns}", self.rows, self.columns)


@dataclass
class _Stack:
    """One task's work: which matrix, and where the room of the task begins."""

    f: FunctionWriter
    routine: Routine
    batch: tuple[int, ...]
    matrix: Index
    room: str

    @property
    def wide(self) -> str:
        """The C type that is computed in."""
        is_complex = self.f.region.operands[0].dtype.is_complex
        return "hloopt::Pair" if is_complex else "double"

    def operand(self, number: int, inner: int = 2) -> _Matrix:
        """The matrix, or vector, of operand ``number``."""
        place = Place("operand", self.f.region.canonical(number))
        return self._lying(self.f.pointees[place], inner)

    def result(self, number: int = 0, inner: int = 2) -> _Matrix:
        """The matrix, vector or number of result leaf ``number``."""
        return self._lying(self.f.result(number), inner)

    def _lying(self, pointee: Pointee, inner: int) -> _Matrix:
        shape = pointee.shape
        strides = [0] * shape.rank
        step = 1
        for dimension in reversed(major_to_minor(shape)):
            strides[dimension] = step
            step *= shape.dims[dimension]
        index = delinearize(self.matrix, self.batch) if self.batch else ()
        at = Index(0)
        for one, stride in zip(index, strides, strict=False):
            at = at + one * stride
        rows, columns = (0, 0, *strides)[-2:] if inner == 2 else (0, (0, *strides)[-1])
        return _Matrix(f"{pointee.name} + {at}", rows, columns)


_Call = Callable[[_Stack], None]


def _emitter(header: str, call: _Call) -> EmitFunction:
    def emit(f: FunctionWriter) -> None:
        f.uses.include(header)
        routine = routine_of(f.region.instruction)
        assert isinstance(routine, Routine)
        batch = f.region.operands[0].dims[:-2]
        each, columns = f.tile["matrices"], f.tile.get("columns", routine.columns)
        parts = -(-routine.columns // columns) if routine.system is not None else 1
        with tasks(f, "unit", each, prod(batch) * parts) as unit:
            place = unit // each * room_of(routine, columns)
            wide = "hloopt::Pair" if f.region.operands[0].dtype.is_complex else "double"
            room = f"({wide}*){f.scratch(0).name} + {place}"
            stack = _Stack(f, routine, batch, unit // parts, room)
            if routine.system is not None:
                _solve(stack, unit % parts * columns, columns)
            else:
                call(stack)

    return emit


def _write(stack: _Stack, function: str, arguments: Sequence[object], to: str = "") -> None:
    text = ", ".join(map(str, arguments))
    name = f"hloopt::{function}<{stack.wide}>"
    stack.f.elements.scope.line(f"{to}{name}({text});")


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _cholesky(stack: _Stack) -> None:
    routine = stack.routine
    lower, keeps = _flag(routine.lower), _flag(routine.keeps)
    info = ""
    if routine.keeps:
        info = f"*({stack.result(1, 0).at}) = "
    matrices = stack.operand(0).text(), lower, keeps, stack.result().text()
    _write(stack, "cholesky", [routine.rows, *matrices, stack.room, apart(routine.rows)], info)


def _solve(stack: _Stack, first: Index, columns: int) -> None:
    routine, system = stack.routine, stack.routine.system
    assert system is not None
    size = system.size
    a, b, x = stack.operand(0), stack.operand(1), stack.result()
    if system.turns:
        a = a.turned()
    if not system.is_left:
        b, x = b.turned(), x.turned()
    b, x = b.from_column(first), x.from_column(first)
    if system.backwards:
        a, b, x = a.backwards(size, size), b.backwards(size, 0), x.backwards(size, 0)
    count = str(columns)
    if routine.columns % columns:
        count = f"hloopt::least({columns}, {routine.columns} - ({first}))"
    flags = _flag(system.conjugates), _flag(system.is_unit)
    # Which way is taken, and what room there is, must not differ between the tasks.
    way = "solve_few" if columns <= FEW else "solve_many"
    rest = [stack.room] if columns <= FEW else [stack.room, apart(size)]
    _write(stack, way, [size, count, a.text(), *flags, b.text(), x.text(), *rest])


def _lu(stack: _Stack) -> None:
    routine = stack.routine
    pivots, info = stack.result(1, 1), stack.result(2, 0)
    arguments = [routine.rows, routine.columns, stack.operand(0).text(), stack.result().text()]
    given = [*arguments, pivots.at, pivots.columns, stack.room, apart(routine.columns)]
    _write(stack, "lu", given, f"*({info.at}) = ")


def _qr(stack: _Stack) -> None:
    routine = stack.routine
    taus = stack.result(1, 1)
    arguments = [routine.rows, routine.columns, stack.operand(0).text(), stack.result().text()]
    given = [*arguments, taus.at, taus.columns, stack.room, apart(routine.columns)]
    _write(stack, "qr", given)


def _householder_product(stack: _Stack) -> None:
    routine, taus = stack.routine, stack.operand(1, 1)
    steps = stack.f.region.operands[1].dims[-1]
    arguments = [routine.rows, routine.columns, steps, stack.operand(0).text()]
    given = [*arguments, taus.at, taus.columns, stack.result().text()]
    _write(stack, "householder_product", [*given, stack.room, apart(routine.columns)])


EMITTERS = {
    "native-cholesky": _emitter("factors.h", _cholesky),
    "native-triangular-solve": _emitter("triangular.h", lambda _: None),
    "native-lu": _emitter("factors.h", _lu),
    "native-qr": _emitter("reflections.h", _qr),
    "native-householder-product": _emitter("reflections.h", _householder_product),
}
"""What writes each kernel of this family."""
