"""Which control flow of a function all threads of a block share, so that they may wait for each other in it.

Threads differ by ``threadIdx`` and by what atomic operations return, and so do variables and local arrays that
are computed from that, or set where only some threads come.  An element of memory that threads share is the
same for all of them where its index is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from hloopt.analysis.index import symbols_of
from hloopt.kernel_ir.expressions import (
    Address,
    Array,
    ArrayValue,
    Call,
    Element,
    Expr,
    IndexValue,
    Member,
    Var,
    subexpressions,
)
from hloopt.kernel_ir.statements import (
    Agree,
    Barrier,
    Block,
    Break,
    Declare,
    For,
    Function,
    If,
    Let,
    LoadMatrices,
    MultiplyMatrices,
    Return,
    Set,
    Statement,
    While,
    expressions_of,
)

__all__ = ["split_barriers"]

Together: TypeAlias = Agree | Barrier | LoadMatrices | MultiplyMatrices

_ATOMIC: Final = ("atomic", "swap_if")
_THREAD: Final = "threadIdx."


def split_barriers(function: Function) -> list[tuple[Together, Statement]]:
    """What threads do together and some of a block may not reach, each with the condition that diverges.

    What a warp does together is among it, though threads of other warps are not needed there.
    """
    flow = _Flow()
    while flow.changed:
        flow.changed = False
        flow.found = []
        flow.body(function.body, None)
    return flow.found


class _Flow:
    """Data and control flow, iterated to a fixpoint of what differs.

    differing  names of variables and local arrays, and (by ``id``) loops whose exits diverge
    """

    def __init__(self) -> None:
        self.differing: set[str | int] = set()
        self.changed = True
        self.found: list[tuple[Together, Statement]] = []

    def body(self, body: Sequence[Statement], parts: Statement | None) -> set[type]:
        """Visit statements that only some threads reach where ``parts`` diverges.

        Returns by what some of them leave: ``Break``, ``Return``.
        """
        left: set[type] = set()
        for statement in body:
            ways = self._statement(statement, parts)
            if ways and parts is None:
                parts = statement
            left |= ways
        return left

    def _statement(self, statement: Statement, parts: Statement | None) -> set[type]:
        is_parted = parts is not None
        for expr in expressions_of(statement):
            self._passed(expr, is_parted)
        match statement:
            case Let(var, value):
                self._mark(var.name, self._differs(value))
            case Declare(target, values):
                self._mark(target.name, any(map(self._differs, values)))
            case Set(target, value):
                # An element of an array is set in one thread or another where its place differs.
                places = [target] if not isinstance(target, Var) else []
                self._mark(_root(target), is_parted or any(map(self._differs, [value, *places])))
            case Agree() | Barrier() | LoadMatrices() | MultiplyMatrices():
                for register in _given(statement):
                    self._mark(_root(register), differs=True)
                if parts is not None:
                    self.found.append((statement, parts))
            case Break() | Return():
                return {type(statement)} if is_parted else set()
            case Block():
                return self.body(statement.body, parts)
            case If():
                own = parts or (statement if self._differs(statement.test) else None)
                return self.body(statement.body, own) | self.body(statement.otherwise, own)
            case For() | While():
                return self._loop(statement, parts)
        return set()

    def _loop(self, loop: For | While, parts: Statement | None) -> set[type]:
        if isinstance(loop, For):
            self._mark(loop.var.name, self._differs(loop.first) or self._differs(loop.step))
        own = parts
        if own is None and (
            id(loop) in self.differing or any(map(self._differs, expressions_of(loop)))
        ):
            own = loop
        ways = self.body(loop.body, own)
        self._mark(id(loop), bool(ways))
        return ways - {Break}

    def _mark(self, name: str | int | None, differs: bool) -> None:
        if differs and name is not None and name not in self.differing:
            self.differing.add(name)
            self.changed = True

    def _differs(self, expr: Expr) -> bool:
        return any(map(self._is_source, subexpressions(expr)))

    def _is_source(self, expr: Expr) -> bool:
        match expr:
            case Var(name):
                return self._is_name(name)
            case IndexValue(index):
                return any(self._is_name(symbol.name) for symbol in symbols_of([index]))
            case Element(array) | ArrayValue(array):
                return array.name in self.differing
            case Call(function):
                return function.startswith(_ATOMIC)
        return False

    def _is_name(self, name: str) -> bool:
        return name.startswith(_THREAD) or name in self.differing

    def _passed(self, expr: Expr, is_parted: bool) -> None:
        """A function may set what it gets the address of from anything that it is given."""
        for call in subexpressions(expr):
            if isinstance(call, Call):
                differs = is_parted or self._differs(call)
                for given in call.arguments:
                    if isinstance(given, Address):
                        self._mark(_root(given.element), differs)
                    elif isinstance(given, ArrayValue):
                        self._mark(_own(given.array), differs)


def _given(statement: Together) -> Sequence[Expr]:
    """What is set, in each lane to something else."""
    match statement:
        case LoadMatrices():
            return statement.registers
        case MultiplyMatrices():
            return statement.sums
    return ()


def _own(array: Array) -> str | None:
    """The name of an array that each thread has for itself."""
    return array.name if array.space == "local" else None


def _root(target: Expr) -> str | None:
    """The variable or local array of which something is set."""
    while isinstance(target, Member):
        target = target.operand
    if not isinstance(target, Var | Element):
        return None
    return target.name if isinstance(target, Var) else _own(target.array)
