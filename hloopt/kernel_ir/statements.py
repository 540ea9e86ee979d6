"""Statements of the kernel IR, and the function that has them.

    Let Declare Set                  a value that never changes, a variable or an array, an assignment
    For While If Block               blocks; a ``For`` counts, a ``While`` runs until a ``Break``
    Do Barrier Break Return          a call for its effect, waiting for other threads, ways out
    Agree                            waiting for the block, and learning whether all of it agrees
    Copy Commit Wait                 asynchronous copies into shared memory, their groups, and waiting for these
    LoadMatrices MultiplyMatrices    what the 32 threads of a warp do together (``matrix_steps.py``)

A name is declared once in a function, but loops one behind the other may have one counter.  What is written
to memory is a ``Set`` of an ``Element``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias, TypeVar

from hloopt.dataclass import dataclass
from hloopt.kernel_ir.expressions import (
    TRUE,
    Address,
    Array,
    Element,
    Expr,
    Member,
    Var,
    as_expr,
    parts_of,
    with_parts,
)
from hloopt.kernel_ir.types import INT, Type, pointer

__all__ = [
    "Agree",
    "Barrier",
    "Block",
    "Body",
    "Break",
    "Commit",
    "Copy",
    "Declare",
    "Do",
    "For",
    "Function",
    "If",
    "Let",
    "LoadMatrices",
    "MultiplyMatrices",
    "Parameter",
    "Return",
    "Set",
    "Statement",
    "Target",
    "Wait",
    "While",
    "bodies_of",
    "expressions_of",
    "mapped",
    "walk",
]


@dataclass(frozen=True, slots=True)
class Let:
    """``const type name = value;``."""

    var: Var
    value: Expr


@dataclass(frozen=True, slots=True)
class Declare:
    """A variable or an array, with what it begins with where anything is said.

    values     of a variable one, of an array one an element, 0 where they end
    is_static  it is in memory once, and begins so once
    align      of an array, in bytes; 0 leaves it to the compiler
    offset     of a shared array in the memory that the launch gives, in bytes; None for a separate one
    """

    target: Var | Array
    values: tuple[Expr, ...] = ()
    is_static: bool = False
    align: int = 0
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Set:
    """``target sign= value;`` of a variable, or of an element of memory, or of a member of one."""

    target: Target
    value: Expr
    sign: str = ""


@dataclass(frozen=True, slots=True)
class Do:
    """A call for what it does."""

    call: Expr


@dataclass(frozen=True, slots=True)
class Barrier:
    """Wait for the threads of the block, or of the warp: what they wrote is there."""

    scope: str = "block"


@dataclass(frozen=True, slots=True)
class Agree:
    """Wait for the threads of the block, and name whether ``test`` holds in all of them; a ``Barrier``, too."""

    var: Var
    test: Expr


@dataclass(frozen=True, slots=True)
class Break:
    """Leave the loop around."""


@dataclass(frozen=True, slots=True)
class Return:
    """Leave the function, with what it returns if that is anything."""

    value: Expr | None = None


@dataclass(frozen=True, slots=True)
class Copy:
    """Begin to copy ``bytes`` bytes (4, 8 or 16) from global into shared memory, both aligned to as many.

    Where ``test`` does not hold, the bytes become 0 and the source is not read.  They are there for this
    thread behind the ``Wait`` for their group, for the others behind a ``Barrier`` after that.
    """

    target: Address
    source: Address
    bytes: int
    test: Expr = TRUE


@dataclass(frozen=True, slots=True)
class Commit:
    """Make a group of the copies that this thread has begun since the last one; it may be empty."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for the groups of copies of this thread, but for the last ``groups`` of them."""

    groups: int = 0


@dataclass(frozen=True, slots=True)
class LoadMatrices:
    """A warp reads 1, 2 or 4 matrices of 8 rows of 16 bytes from shared memory, one into each register.

    ``source`` is where row r of matrix i begins in the thread whose lane is 8 i + r; lanes beyond these
    name any place of the array.  Lane l gets the four bytes at 4 (l % 4) of row l / 4.  ``is_transposed``
    takes a matrix as 8 by 8 elements of 16 bits: lane l gets elements 2 (l % 4) and the next of column l / 4.
    """

    registers: tuple[Var | Element, ...]
    source: Address
    is_transposed: bool = False


@dataclass(frozen=True, slots=True)
class MultiplyMatrices:
    """A warp adds a product of two small matrices to ``sums``.

    step         a key of ``MATRIX_STEPS``, which says what the registers of each lane hold
    sums         variables or elements of local arrays
    left, right  registers of the two operands
    """

    step: str
    sums: tuple[Var | Element, ...]
    left: tuple[Expr, ...]
    right: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class For:
    """``for (type var = first; var < stop; var += step)``.

    test    how the variable is compared with ``stop``: <, <=, > or >=
    change  how it changes: += or -= or *= or /= ``step``
    unroll  None says nothing, 0 writes the loop out, n unrolls n iterations
    is_simd  whether its iterations are independent, so that they may be lanes of vectors
    """

    var: Var
    first: Expr
    stop: Expr
    body: Body
    step: Expr = as_expr(1)
    test: str = "<"
    change: str = "+="
    unroll: int | None = None
    is_simd: bool = False


@dataclass(frozen=True, slots=True)
class While:
    """``while (test)``."""

    test: Expr
    body: Body
    unroll: int | None = None


@dataclass(frozen=True, slots=True)
class If:
    """``if (test) ... else ...``."""

    test: Expr
    body: Body
    otherwise: Body = ()


@dataclass(frozen=True, slots=True)
class Block:
    """Statements in braces, whose names end with it."""

    body: Body


Statement: TypeAlias = (
    "Let | Declare | Set | Do | Barrier | Agree | Break | Return | Copy | Commit | Wait"
    " | LoadMatrices | MultiplyMatrices | For | While | If | Block"
)
Body: TypeAlias = "tuple[Statement, ...]"
Target: TypeAlias = Var | Element | Member
S = TypeVar("S", bound="Statement")


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a function is given: a number, or a pointer to an array.

    is_alone  whether nothing else points there
    is_read   whether the function only reads it
    """

    target: Var | Array
    is_alone: bool = False
    is_read: bool = True

    @property
    def type(self) -> Type:
        """What is passed for it."""
        if isinstance(self.target, Var):
            return self.target.type
        return pointer(self.target.element, is_read=self.is_read)


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel for threads of a device; or, with ``threads`` 0, the tasks of a kernel for the host.

    threads          of a block
    blocks_per_core  how many blocks a core must have room for at least; 0 leaves it to the assembler
    index_type       of indices
    """

    name: str
    parameters: tuple[Parameter, ...]
    body: Body
    threads: int = 0
    blocks_per_core: int = 0
    index_type: Type = INT


_BODIES: Final[Mapping[type, tuple[str, ...]]] = {
    For: ("body",),
    While: ("body",),
    If: ("body", "otherwise"),
    Block: ("body",),
}
_EXPRESSIONS: Final[Mapping[type, tuple[str, ...]]] = {
    Let: ("value",),
    Declare: ("values",),
    Set: ("target", "value"),
    Do: ("call",),
    Agree: ("test",),
    Copy: ("target", "source", "test"),
    LoadMatrices: ("source", "registers"),
    MultiplyMatrices: ("sums", "left", "right"),
    For: ("first", "stop", "step"),
    While: ("test",),
    If: ("test",),
    Return: ("value",),
}


def bodies_of(statement: Statement) -> tuple[Body, ...]:
    """The blocks in a statement."""
    return tuple([getattr(statement, name) for name in _BODIES.get(type(statement), ())])


def expressions_of(statement: Statement) -> tuple[Expr, ...]:
    """The expressions of a statement itself, a target among them, not in its blocks."""
    return parts_of(statement, _EXPRESSIONS)


def mapped(statement: S, change: Callable[[Expr], Expr], inside: Callable[[Body], Body]) -> S:
    """A statement with its own expressions changed, and its blocks."""
    bodies: dict[str, Any] = {
        name: inside(getattr(statement, name)) for name in _BODIES.get(type(statement), ())
    }
    made: S = with_parts(statement, _EXPRESSIONS, change)
    return replace(made, **bodies) if bodies else made


def walk(body: Sequence[Statement]) -> Iterator[Statement]:
    """All statements, each before those in its blocks."""
    pending = list(reversed(body))
    while pending:
        statement = pending.pop()
        yield statement
        for inner in reversed(bodies_of(statement)):
            pending += reversed(inner)
