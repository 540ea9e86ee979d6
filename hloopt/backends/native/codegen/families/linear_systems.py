"""Factors and triangular systems: a call of triangular.h, factors.h or reflections.h for each matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from hloopt.analysis.index import Index, delinearize
from hloopt.analysis.layout import major_to_minor
from hloopt.backends.native.codegen.nest import tasks
from hloopt.backends.native.kernels.linear_systems import FEW, Routine, apart, room_of, routine_of
from hloopt.codegen.writer import EmitFunction, FunctionWriter, Pointee
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.expressions import (
    FALSE,
    TRUE,
    Array,
    ArrayValue,
    Call,
    Element,
    Expr,
    Operand,
    as_expr,
)
from hloopt.kernel_ir.types import DOUBLE, INT, Type, pointer, struct
from hloopt.kernels.spec import LeafPlace

__all__ = ["EMITTERS"]


@dataclass(frozen=True)
class _Matrix:
    """Where a matrix, a vector or a number of a stack lies, and how far its rows and columns are apart."""

    memory: Array
    at: Index
    rows: int
    columns: int

    @property
    def first(self) -> Element:
        """The first element."""
        return self.memory[self.at]

    @property
    def given(self) -> tuple[Operand, ...]:
        """What a routine takes: address, rows and columns."""
        return (self.memory.address(self.at), self.rows, self.columns)

    def turned(self) -> _Matrix:
        """The transpose."""
        return replace(self, rows=self.columns, columns=self.rows)

    def backwards(self, rows: int, columns: int) -> _Matrix:
        """Rows from the last of so many on, and columns alike where there is more than one."""
        behind = (rows - 1) * self.rows
        step = self.columns
        if columns:
            behind, step = behind + (columns - 1) * self.columns, -step
        return _Matrix(self.memory, self.at + behind, -self.rows, step)

    def from_column(self, first: Index) -> _Matrix:
        """From a column on."""
        return replace(self, at=self.at + first * self.columns)


@dataclass
class _Stack:
    """One task's work: which matrix, what is computed in, and where the room of the task begins."""

    f: FunctionWriter
    routine: Routine
    batch: tuple[int, ...]
    matrix: Index
    wide: Type
    room: Expr

    def operand(self, number: int, inner: int = 2) -> _Matrix:
        """The matrix, or vector, of operand ``number``."""
        place = LeafPlace("operand", self.f.region.canonical(number))
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
        return _Matrix(pointee.memory, at, rows, columns)

    def call(self, function: str, *given: Operand, to: Element | None = None) -> None:
        """Call a routine; ``to`` is set to what it says of its success."""
        call = Call(f"hloopt::{function}<{self.wide}>", tuple(map(as_expr, given)), INT)
        if to is None:
            self.f.elements.scope.do(call)
        else:
            self.f.elements.scope.set(to, call)


_Routine = Callable[[_Stack], None]


def _emitter(header: str, call: _Routine) -> EmitFunction:
    def emit(f: FunctionWriter) -> None:
        f.uses.include(header)
        routine = routine_of(f.region.instruction)
        assert isinstance(routine, Routine)
        batch = f.region.operands[0].dims[:-2]
        each, columns = f.tile["matrices"], f.tile.get("columns", routine.columns)
        parts = -(-routine.columns // columns) if routine.system is not None else 1
        wide = struct("hloopt::Pair") if f.region.operands[0].dtype.is_complex else DOUBLE
        with tasks(f, "item", each, prod(batch) * parts) as unit:
            place = unit // each * room_of(routine, columns)
            room = ArrayValue(f.scratch(0).memory).cast(pointer(wide)) + place
            stack = _Stack(f, routine, batch, unit // parts, wide, room)
            if routine.system is not None:
                _solve(stack, unit % parts * columns, columns)
            else:
                call(stack)

    return emit


def _flag(value: bool) -> Expr:
    return TRUE if value else FALSE


def _cholesky(stack: _Stack) -> None:
    routine = stack.routine
    flags = _flag(routine.lower), _flag(routine.keeps)
    matrices = *stack.operand(0).given, *flags, *stack.result().given
    info = stack.result(1, 0).first if routine.keeps else None
    stack.call("cholesky", routine.rows, *matrices, stack.room, apart(routine.rows), to=info)


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
    count = as_expr(columns)
    if routine.columns % columns:
        left = Index(routine.columns) - first
        count = Call("hloopt::least", (count, as_expr(left)), INT)
    flags = _flag(system.conjugates), _flag(system.is_unit)
    # The algorithm, and its scratch memory, must not differ between tasks.
    way = "solve_few" if columns <= FEW else "solve_many"
    rest = [stack.room] if columns <= FEW else [stack.room, apart(size)]
    stack.call(way, size, count, *a.given, *flags, *b.given, *x.given, *rest)


def _lu(stack: _Stack) -> None:
    routine = stack.routine
    pivots, info = stack.result(1, 1), stack.result(2, 0)
    matrices = *stack.operand(0).given, *stack.result().given
    rest = *pivots.given[::2], stack.room, apart(routine.columns)
    stack.call("lu", routine.rows, routine.columns, *matrices, *rest, to=info.first)


def _qr(stack: _Stack) -> None:
    routine = stack.routine
    matrices = *stack.operand(0).given, *stack.result().given
    rest = *stack.result(1, 1).given[::2], stack.room, apart(routine.columns)
    stack.call("qr", routine.rows, routine.columns, *matrices, *rest)


def _householder_product(stack: _Stack) -> None:
    routine, taus = stack.routine, stack.operand(1, 1)
    steps = stack.f.region.operands[1].dims[-1]
    given = *stack.operand(0).given, *taus.given[::2], *stack.result().given
    room = stack.room, apart(routine.columns)
    stack.call("householder_product", routine.rows, routine.columns, steps, *given, *room)


EMITTERS = {
    "native-cholesky": _emitter("factors.h", _cholesky),
    "native-triangular-solve": _emitter("triangular.h", lambda _: None),
    "native-lu": _emitter("factors.h", _lu),
    "native-qr": _emitter("reflections.h", _qr),
    "native-householder-product": _emitter("reflections.h", _householder_product),
}
"""What writes each kernel of this family."""
