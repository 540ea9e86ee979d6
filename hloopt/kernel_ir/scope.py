"""Building kernel IR: statements in nested blocks, names used once, and what each block has computed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from typing import Final, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.kernel_ir.expressions import Array, Expr, Operand, Var, as_expr
from hloopt.kernel_ir.printer import statement_text
from hloopt.kernel_ir.statements import (
    Agree,
    Barrier,
    Block,
    Body,
    Break,
    Declare,
    Do,
    For,
    If,
    Let,
    Set,
    Statement,
    Target,
    While,
    walk,
)
from hloopt.kernel_ir.types import BOOL, INT, Type

__all__ = ["Names", "Scope", "TooLong", "identifier"]

Key: TypeAlias = tuple[object, ...]

_LONG: Final = 120
"""Bytes that few statements exceed."""

_UNFIT = re.compile(r"[^A-Za-z0-9_]+")


def identifier(text: str) -> str:
    """A C identifier made of any text; different texts may give the same one."""
    name = _UNFIT.sub("_", text).strip("_")
    return name if name and not name[0].isdigit() else f"v_{name}"


def _head(statement: Statement) -> Statement:
    if isinstance(statement, If):
        return If(statement.test, ())
    return replace(statement, body=()) if isinstance(statement, For | While | Block) else statement


class TooLong(Exception):  # noqa: N818 - it ends an attempt and is never reported as an error
    """A function has more code than it was allowed."""


class Names:
    """Identifiers of one function: each is given once, and none of ``reserved``.

    ``room`` is how many bytes of code may still be written; a statement that exceeds it raises ``TooLong``.
    """

    def __init__(self, room: int | None = None, reserved: frozenset[str] = frozenset()) -> None:
        self.room = room
        self._reserved = reserved
        self._next: dict[str, int] = {}
        self._unmeasured: list[Statement] = []

    def take(self, statement: Statement) -> None:
        """Count what is written, braces apart.

        Statements are measured only when so many are there that they could be too long together.
        """
        if self.room is None:
            return
        self._unmeasured += map(_head, walk((statement,)))
        if len(self._unmeasured) * _LONG > self.room:
            for one in self._unmeasured:
                self.room -= len(statement_text(one).removesuffix("\n}").removesuffix(" {")) + 1
            self._unmeasured.clear()
            if self.room < 0:
                raise TooLong

    def fresh(self, hint: str) -> str:
        """An identifier like ``hint`` that is not in use."""
        base = identifier(hint)
        count = self._next.get(base)
        if count is None and base not in self._reserved:
            self._next[base] = 1
            return base
        number = count or 1
        while f"{base}_{number}" in self._next:
            number += 1
        self._next[base] = number + 1
        self._next[f"{base}_{number}"] = 1
        return f"{base}_{number}"


@dataclass(eq=False)
class _Opened:
    """A statement whose blocks are still being filled; its own are empty."""

    statement: For | While | If | Block
    body: Scope
    otherwise: Scope | None = None

    def closed(self) -> Statement:
        """The statement with its blocks."""
        body = self.body.statements()
        if isinstance(self.statement, If):
            otherwise = () if self.otherwise is None else self.otherwise.statements()
            return replace(self.statement, body=body, otherwise=otherwise)
        return replace(self.statement, body=body)


@dataclass(frozen=True, slots=True)
class _Section:
    scope: Scope


@dataclass(eq=False)
class Scope:
    """A block that is being written: its statements, the blocks in it, and the names of values computed in it.

    What an outer block has computed is known in the inner ones, never the other way round.
    ``changes`` counts the statements and shared sections, but not the blocks.
    """

    names: Names
    parent: Scope | None = None
    changes: int = 0
    _items: list[Statement | _Opened | _Section] = field(default_factory=list)
    _known: dict[Key, Expr] = field(default_factory=dict)
    _opened: _Opened | None = None

    # ---- statements ---------------------------------------------------------------------------------

    def add(self, statement: Statement) -> None:
        """Add a statement."""
        self.names.take(statement)
        self.changes += 1
        self._items.append(statement)

    def declare(self, kind: Type, value: Operand, hint: str) -> Var:
        """``const T name = value;``; returns the name."""
        var = Var(self.names.fresh(hint), kind)
        self.add(Let(var, as_expr(value)))
        return var

    def variable(self, kind: Type, hint: str, value: Operand | None = None) -> Var:
        """``T name = value;`` of a variable that will change; returns the name."""
        var = Var(self.names.fresh(hint), kind)
        self.add(Declare(var, () if value is None else (as_expr(value),)))
        return var

    def array(
        self,
        kind: Type,
        dims: Sequence[int],
        hint: str,
        values: Sequence[Operand] = (),
        *,
        space: str = "local",
        is_static: bool = False,
        align: int = 0,
        offset: int | None = None,
    ) -> Array:
        """``T name[A][B];``, see ``Declare``."""
        array = Array(self.names.fresh(hint), kind, tuple(dims), space)
        self.add(Declare(array, tuple(map(as_expr, values)), is_static, align, offset))
        return array

    def set(self, target: Target, value: Operand, sign: str = "") -> None:
        """``target sign= value;``."""
        if isinstance(target, str):
            target = as_expr(target)
        self.add(Set(target, as_expr(value), sign))

    def do(self, call: Operand) -> None:
        """``call;``."""
        self.add(Do(as_expr(call)))

    def barrier(self, scope: str = "block") -> None:
        """Wait for the threads of the block, or of the warp."""
        self.add(Barrier(scope))

    def agree(self, test: Operand, hint: str) -> Var:
        """Wait for the threads of the block; whether ``test`` holds in all of them."""
        var = Var(self.names.fresh(hint), BOOL)
        self.add(Agree(var, as_expr(test)))
        return var

    def leave(self, test: Operand | None = None) -> None:
        """``break;``, where ``test`` holds if one is given."""
        self.add(Break() if test is None else If(as_expr(test), (Break(),)))

    # ---- blocks -------------------------------------------------------------------------------------

    def open(self, statement: For | While | If | Block) -> Scope:
        """Begin a block, to be filled through the scope returned; it ends with the next statement here."""
        self.names.take(statement)
        inner = Scope(self.names, self)
        inner._opened = _Opened(statement, inner)
        self._items.append(inner._opened)
        return inner

    def braces(self) -> Scope:
        """Begin a nested block."""
        return self.open(Block(()))

    def when(self, test: Operand) -> Scope:
        """Begin ``if (test) {``."""
        return self.open(If(as_expr(test), ()))

    def branches(self, tests: Sequence[Operand]) -> Iterator[Scope]:
        """A block for where each test holds, those before do not, and a last one for where none does.

        Each is to be filled before the next is begun.
        """
        if not tests:
            yield self.braces()
            return
        yield self.when(tests[0])
        for test in (*tests[1:], None):
            yield self.otherwise(test)

    def otherwise(self, test: Operand | None = None) -> Scope:
        """Go on from the ``when`` that was begun last: ``} else {`` or ``} else if (test) {``."""
        last = self._items[-1]
        assert isinstance(last, _Opened), "else follows the block of an if"
        while last.otherwise is not None:
            (inner,) = last.otherwise._items
            assert isinstance(inner, _Opened), "else follows the block of an if"
            last = inner
        last.otherwise = rest = Scope(self.names, self)
        return rest if test is None else rest.when(test)

    def loop(
        self,
        first: Operand,
        stop: Operand,
        hint: str,
        kind: Type = INT,
        step: Operand = 1,
        *,
        test: str = "<",
        change: str = "+=",
        unroll: int | None = None,
    ) -> tuple[Scope, Var]:
        """Begin ``for (T i = first; i < stop; i += step) {``: its block, and the counter."""
        var = Var(self.names.fresh(hint), kind)
        head = For(
            var, as_expr(first), as_expr(stop), (), as_expr(step), test, change, unroll=unroll
        )
        return self.open(head), var

    def repeat(self, test: Operand) -> Scope:
        """Begin ``while (test) {``."""
        return self.open(While(as_expr(test), ()))

    def unroll(self, times: int) -> None:
        """Of a loop's own block: have it unrolled, 0 whole; the last that is said counts."""
        self._change_head(unroll=times)

    def vectorize(self) -> None:
        """Of a loop's own block: its iterations are independent."""
        self._change_head(is_simd=True)

    def _change_head(self, **changes: object) -> None:
        assert self._opened is not None, "a nested block"
        self._opened.statement = replace(self._opened.statement, **changes)  # type: ignore[arg-type]

    def section(self, *, shared: bool = True) -> Scope:
        """Statements at this very place, to be filled later on, while what is behind them is written.

        What they compute is known here: then, until they are done, nothing but blocks may be written here.
        It is not unless ``shared``.
        """
        inner = Scope(self.names, self.parent)
        if shared:
            inner._known = self._known
            self.changes += 1
        self._items.append(_Section(inner))
        return inner

    def statements(self) -> Body:
        """What was written."""
        found: list[Statement] = []
        for item in self._items:
            if isinstance(item, _Section):
                found += item.scope.statements()
            elif isinstance(item, _Opened):
                found.append(item.closed())
            else:
                found.append(item)
        return tuple(found)

    # ---- what is known ------------------------------------------------------------------------------

    def known(self, key: Key) -> Expr | None:
        """The name under which this block or one around it has a value."""
        scope: Scope | None = self
        while scope is not None:
            name = scope._known.get(key)
            if name is not None:
                return name
            scope = scope.parent
        return None

    def is_around(self, inner: Scope) -> bool:
        """Whether a block is in this one, at any depth."""
        scope = inner.parent
        while scope is not None:
            if scope is self:
                return True
            scope = scope.parent
        return False

    def remember(self, key: Key, name: Operand) -> None:
        """Record that the value is available from here on, in this block."""
        self._known[key] = as_expr(name)
