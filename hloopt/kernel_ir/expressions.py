"""Expressions of the kernel IR: trees of frozen nodes, each of which has its type.

    Var Number IndexValue           a variable, a number, an index computed by ``analysis/index.py``
    Unary Binary Select Cast         C's operators
    Call Member Make                 a function, a member of a struct, a struct of its parts
    Element Address ArrayValue       an element of memory, where it lies, where an array begins

``value + 1``, ``-value``, ``value < other`` and their kin make nodes; ``eq``, ``ne``, ``both`` and ``either``
stand for the operators that Python gives another meaning.  ``as_expr`` takes whatever may stand for an operand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Final, TypeAlias

from hloopt.analysis.index import Index
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.types import BOOL, INT, Type, common_type, pointer

__all__ = [
    "FALSE",
    "TRUE",
    "Address",
    "Array",
    "ArrayValue",
    "Binary",
    "Call",
    "Cast",
    "Element",
    "Expr",
    "IndexValue",
    "Make",
    "Member",
    "Number",
    "Operand",
    "Select",
    "Unary",
    "Var",
    "as_expr",
    "below",
    "both",
    "either",
    "eq",
    "ne",
    "operands_of",
    "parts_of",
    "subexpressions",
    "with_operands",
    "with_parts",
]

COMPARISONS: Final = frozenset({"<", "<=", ">", ">=", "==", "!="})
LOGICAL: Final = frozenset({"&&", "||"})


def _operator(sign: str) -> Callable[[Expr, Operand], Expr]:
    return lambda left, right: Binary.of(sign, left, right)


def _reflected(sign: str) -> Callable[[Expr, Operand], Expr]:
    return lambda right, left: Binary.of(sign, left, right)


class Expr:
    """A value that a kernel computes; ``type`` is its type."""

    __slots__ = ()

    type: Type

    __add__, __radd__ = _operator("+"), _reflected("+")
    __sub__, __rsub__ = _operator("-"), _reflected("-")
    __mul__, __rmul__ = _operator("*"), _reflected("*")
    __truediv__, __mod__ = _operator("/"), _operator("%")
    __lshift__, __rshift__ = _operator("<<"), _operator(">>")
    __and__, __or__, __xor__ = _operator("&"), _operator("|"), _operator("^")
    __lt__, __le__ = _operator("<"), _operator("<=")
    __gt__, __ge__ = _operator(">"), _operator(">=")

    def __neg__(self) -> Expr:
        return Unary("-", self, self.type)

    def __invert__(self) -> Expr:
        return Unary("~", self, self.type)

    def negated(self) -> Expr:
        """``!x``."""
        return Unary("!", self, BOOL)

    def member(self, name: str, type: Type) -> Expr:
        """``x.name``."""
        return Member(self, name, type)

    def cast(self, type: Type) -> Expr:
        """``(type)x``."""
        return Cast(type, self)


@dataclass(frozen=True, slots=True)
class Var(Expr):
    """A variable of a function, which has each name once."""

    name: str
    type: Type

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True, slots=True)
class Number(Expr):
    """A number as C writes it; ``value`` is the number, where Python has it."""

    text: str
    type: Type
    value: int | float | None = None


@dataclass(frozen=True, slots=True)
class IndexValue(Expr):
    """An index; its symbols are variables of the function."""

    index: Index
    type: Type = INT


@dataclass(frozen=True, slots=True)
class Unary(Expr):
    """``-x``, ``~x`` or ``!x``."""

    sign: str
    operand: Expr
    type: Type


@dataclass(frozen=True, slots=True)
class Binary(Expr):
    """One of C's operators of two operands."""

    sign: str
    left: Expr
    right: Expr
    type: Type

    @staticmethod
    def of(sign: str, left: Operand, right: Operand) -> Binary:
        """The operation on two operands, of the type that C gives it."""
        x, y = as_expr(left), as_expr(right)
        if sign in COMPARISONS or sign in LOGICAL:
            type = BOOL
        elif sign in ("<<", ">>"):
            type = common_type(x.type, x.type)
        else:
            type = common_type(x.type, y.type)
        return Binary(sign, x, y, type)


@dataclass(frozen=True, slots=True)
class Select(Expr):
    """``test ? chosen : other``."""

    test: Expr
    chosen: Expr
    other: Expr

    @property
    def type(self) -> Type:  # type: ignore[override]
        """The type of what is chosen; of two numbers of different types the common one."""
        if self.chosen.type == self.other.type:
            return self.chosen.type
        return common_type(self.chosen.type, self.other.type)

    @staticmethod
    def of(test: Operand, chosen: Operand, other: Operand) -> Select:
        """A choice of two operands."""
        return Select(as_expr(test), as_expr(chosen), as_expr(other))


@dataclass(frozen=True, slots=True)
class Cast(Expr):
    """``(type)x``."""

    type: Type
    operand: Expr


@dataclass(frozen=True, slots=True)
class Call(Expr):
    """``function(arguments)``; template arguments belong to the function's name."""

    function: str
    arguments: tuple[Expr, ...]
    type: Type

    @property
    def name(self) -> str:
        """The function's name without template arguments."""
        return self.function.partition("<")[0]


@dataclass(frozen=True, slots=True)
class Member(Expr):
    """``x.name``; ``at`` is the place in a member that is an array."""

    operand: Expr
    name: str
    type: Type
    at: Expr | None = None


@dataclass(frozen=True, slots=True)
class Make(Expr):
    """``type{parts}``."""

    type: Type
    parts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Array:
    """Memory that a function may access.

    name     in C
    element  the type of its elements
    dims     its extents; () of what a pointer points to where that is not known
    space    global (behind a parameter), shared (by the threads of a block), local or constant
    """

    name: str
    element: Type
    dims: tuple[int, ...]
    space: str

    def __str__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __getitem__(self, at: Operand | tuple[Operand, ...]) -> Element:
        places = at if isinstance(at, tuple) else (at,)
        return Element(self, tuple(map(as_expr, places)))

    @property
    def byte_size(self) -> int:
        """Bytes of all elements, whose size must be known."""
        return prod(self.dims) * self.element.bits // 8

    def address(self, at: Operand) -> Address:
        """Where an element lies."""
        return Address(self[at])


@dataclass(frozen=True, slots=True)
class Element(Expr):
    """``array[at]``: read where it is an operand, written where it is the target of a ``Set``."""

    array: Array
    at: tuple[Expr, ...]

    @property
    def type(self) -> Type:  # type: ignore[override]
        """The type of the array's elements."""
        return self.array.element


@dataclass(frozen=True, slots=True)
class Address(Expr):
    """``&array[at]``, or ``&variable``."""

    element: Element | Var

    @property
    def type(self) -> Type:  # type: ignore[override]
        """A pointer to the array's elements."""
        return pointer(self.element.type)


@dataclass(frozen=True, slots=True)
class ArrayValue(Expr):
    """Where an array begins, to be passed to a function."""

    array: Array

    @property
    def type(self) -> Type:  # type: ignore[override]
        """A pointer to the array's elements."""
        return pointer(self.array.element)


Operand: TypeAlias = "Expr | Index | int"

TRUE: Final = Number("true", BOOL, 1)
FALSE: Final = Number("false", BOOL, 0)


def as_expr(value: Operand) -> Expr:
    """An operand as a node; numbers are of type int."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, Index):
        return IndexValue(value)
    return Number(str(value), INT, value)


def eq(left: Operand, right: Operand) -> Expr:
    """``left == right``."""
    return Binary.of("==", left, right)


def ne(left: Operand, right: Operand) -> Expr:
    """``left != right``."""
    return Binary.of("!=", left, right)


def below(index: Index, size: int) -> list[Expr]:
    """The test that an index is below ``size``, where it may be at or above it."""
    return [as_expr(index) < size] if index.high >= size else []


def both(tests: Sequence[Operand]) -> Expr:
    """Whether all hold; true of none."""
    return _joined("&&", tests, TRUE)


def either(tests: Sequence[Operand]) -> Expr:
    """Whether any holds; false of none."""
    return _joined("||", tests, FALSE)


def _joined(sign: str, tests: Sequence[Operand], empty: Expr) -> Expr:
    if not tests:
        return empty
    first, *others = map(as_expr, tests)
    for other in others:
        first = Binary(sign, first, other, BOOL)
    return first


_OPERANDS: Final[Mapping[type, tuple[str, ...]]] = {
    Unary: ("operand",),
    Cast: ("operand",),
    Binary: ("left", "right"),
    Select: ("test", "chosen", "other"),
    Call: ("arguments",),
    Member: ("operand", "at"),
    Make: ("parts",),
    Element: ("at",),
    Address: ("element",),
}


def operands_of(expr: Expr) -> tuple[Expr, ...]:
    """The nodes right below one."""
    return parts_of(expr, _OPERANDS)


def parts_of(node: object, fields: Mapping[type, tuple[str, ...]]) -> tuple[Any, ...]:
    """What the fields of a node that ``fields`` names for its class hold: one thing, several or None."""
    found: list[Any] = []
    for name in fields.get(type(node), ()):
        value = getattr(node, name)
        if isinstance(value, tuple):
            found += value
        elif value is not None:
            found.append(value)
    return tuple(found)


def with_operands(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """An expression with the nodes right below it changed."""
    return with_parts(expr, _OPERANDS, change) if type(expr) in _OPERANDS else expr


def with_parts(
    node: Any, fields: Mapping[type, tuple[str, ...]], change: Callable[[Any], Any]
) -> Any:
    """A node with what ``parts_of`` finds in it changed."""
    changed: dict[str, Any] = {}
    for name in fields.get(type(node), ()):
        value = getattr(node, name)
        if isinstance(value, tuple):
            changed[name] = tuple(map(change, value))
        elif value is not None:
            changed[name] = change(value)
    return replace(node, **changed)


def subexpressions(expr: Expr) -> Iterator[Expr]:
    """A node and all below it, each before those below it."""
    pending = [expr]
    while pending:
        one = pending.pop()
        yield one
        pending += reversed(operands_of(one))
