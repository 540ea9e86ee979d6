"""Lines of C in nested blocks, names that are used once, and what each block has computed already."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TypeAlias

from hloopt.codegen.device.library import library, names
from hloopt.dataclass import dataclass

__all__ = ["Names", "Scope", "TooLong", "identifier"]

Key: TypeAlias = tuple[object, ...]

_UNFIT = re.compile(r"[^A-Za-z0-9_]+")
_INDENT = "  "


def identifier(text: str) -> str:
    """A C identifier made of any text; different texts may give the same one."""
    name = _UNFIT.sub("_", text).strip("_")
    return name if name and not name[0].isdigit() else f"v_{name}"


# Words of C++ and of CUDA that an instruction's name could be.
_WORDS = """alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl const
constexpr continue decltype default delete do double else enum explicit export extern false float for friend
goto if inline int long mutable namespace new not not_eq nullptr operator or or_eq private protected public
register return short signed sizeof static struct switch template this throw true try typedef typeid typename
union unsigned using virtual void volatile while xor xor_eq threadIdx blockIdx blockDim gridDim warpSize min max
abs atomicAdd atomicCAS main"""


_MATH = """acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs floor
fma fmax fmin fmod hypot isfinite isinf isnan ldexp log log10 log1p log2 nearbyint nextafter pow remainder rint
round rsqrt sin sincos sinh sqrt tan tanh trunc"""

_CALLED = re.compile(r"([A-Za-z_]\w*)(?:<[^<>]*>)?\(")


@cache
def _reserved() -> frozenset[str]:
    """What no variable may be called: words of the language, and whatever a kernel may call."""
    called = {name for entry in library().values() for name in _CALLED.findall(entry.source)}
    math = {name + suffix for name in _MATH.split() for suffix in ("", "f")}
    return frozenset({*_WORDS.split(), *math, *names(), *called})


class TooLong(Exception):  # noqa: N818 - it ends an attempt; nobody is told of an error
    """A function has more code than it was allowed."""


class Names:
    """Identifiers of one function: each is given once.

    ``room`` is how many bytes of code may still be written; a line beyond it raises ``TooLong``.
    """

    def __init__(self, room: int | None = None) -> None:
        self.room = room
        self._next: dict[str, int] = {}

    def take(self, text: str) -> None:
        """Count what is written."""
        if self.room is not None:
            self.room -= len(text) + 1
            if self.room < 0:
                raise TooLong

    @property
    def issued(self) -> frozenset[str]:
        """All that were given."""
        return frozenset(self._next)

    def fresh(self, hint: str) -> str:
        """An identifier like ``hint`` that nobody has."""
        base = identifier(hint)
        count = self._next.get(base)
        if count is None and base not in _reserved():
            self._next[base] = 1
            return base
        number = count or 1
        while f"{base}_{number}" in self._next:
            number += 1
        self._next[base] = number + 1
        self._next[f"{base}_{number}"] = 1
        return f"{base}_{number}"


@dataclass(frozen=True, slots=True)
class _Section:
    lines: Scope


class Scope:
    """A block of C: its lines, the blocks in it, and the names of the values computed in it.

    What an outer block has computed is known in the inner ones, never the other way round.
    ``changes`` counts the statements and shared sections, but not the blocks.
    """

    def __init__(self, names: Names, parent: Scope | None = None) -> None:
        self.names = names
        self.parent = parent
        self._lines: list[str | Scope | _Section] = []
        self._known: dict[Key, str] = {}
        self.changes = 0

    def line(self, text: str) -> None:
        """Add a statement."""
        self.names.take(text)
        self.changes += 1
        self._lines.append(text)

    def block(self, header: str) -> Scope:
        """Begin ``header {``, to be filled through the scope returned; it ends with the next line here."""
        self.names.take(header)
        inner = Scope(self.names, self)
        self._lines.append(f"{header} {{")
        self._lines.append(inner)
        self._lines.append("}")
        return inner

    def section(self, *, shared: bool = True) -> Scope:
        """Lines at this very place, to be filled later on, while what is behind them is written.

        What they compute is known here: then, until they are done, nothing but blocks may be written here.
        It is not unless ``shared``.
        """
        inner = Scope(self.names, self.parent)
        if shared:
            inner._known = self._known
            self.changes += 1
        self._lines.append(_Section(inner))
        return inner

    def otherwise(self, header: str = "else") -> Scope:
        """Go on from the block that was begun last: ``} else {``."""
        self.names.take(header)
        inner = Scope(self.names, self)
        self._lines[-1] = f"}} {header} {{"
        self._lines.append(inner)
        self._lines.append("}")
        return inner

    def declare(self, type_name: str, value: str, hint: str) -> str:
        """``const T name = value;``; returns the name."""
        name = self.names.fresh(hint)
        self.line(f"const {type_name} {name} = {value};")
        return name

    def variable(self, type_name: str, hint: str, value: str = "") -> str:
        """``T name = value;`` of a variable that will change; returns the name."""
        name = self.names.fresh(hint)
        self.line(f"{type_name} {name} = {value};" if value else f"{type_name} {name};")
        return name

    def known(self, key: Key) -> str | None:
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

    def remember(self, key: Key, name: str) -> None:
        """The value is there from now on, in this block."""
        self._known[key] = name

    def items(self) -> Iterator[str | Scope]:
        """Lines and blocks in order, a block between the lines that open and close it."""
        for line in self._lines:
            if isinstance(line, _Section):
                yield from line.lines.items()
            else:
                yield line

    def text(self, depth: int = 0) -> Iterator[str]:
        """The lines, indented."""
        for line in self._lines:
            if isinstance(line, Scope):
                yield from line.text(depth + 1)
            elif isinstance(line, _Section):
                yield from line.lines.text(depth)
            else:
                yield f"{_INDENT * depth}{line}"
