"""Index arithmetic: integer expressions over symbols of known range, kept simple as they are made.

An ``Index`` is a constant plus a sum of atoms times coefficients; an atom is a symbol (a variable), the
quotient or the remainder of an index by a positive constant.  Sums are in normal form, so that equal
expressions are equal values: two requests for the same element get the same name.

Rules, with ``0 <= r < c`` known from ranges:

    (q*c + r) / c => q          (q*c + r) % c => r              x / 1 => x, x % 1 => 0
    (x / a) / b => x / (a*b)    (g*x + b) / (g*c) => (x + b/g) / c
    (g*x + s) / (g*c) => x / c and (g*x + s) % (g*c) => (g*x) % (g*c) + s, with 0 <= s < g
    (x % a) % b => x % b  where b divides a
    (x / c)*c + x % c => x

Division rounds down; dividends that may be negative are shifted first, since C rounds towards zero.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from math import gcd, prod
from typing import TypeAlias

from hloopt.dataclass import dataclass

__all__ = [
    "Atom",
    "Index",
    "Indices",
    "Quotient",
    "Remainder",
    "Symbol",
    "delinearize",
    "linearize",
    "narrowed",
    "symbols_of",
]


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable with a value from ``low`` to ``high``, both included, a multiple of ``multiple``."""

    name: str
    low: int
    high: int
    multiple: int = 1

    @property
    def index(self) -> Index:
        """The variable as an expression."""
        return Index(0, ((self, 1),))


@dataclass(frozen=True)
class Quotient:
    """``dividend / divisor`` of a dividend that is not negative."""

    dividend: Index
    divisor: int

    @property
    def low(self) -> int:
        """The least value."""
        return self.dividend.low // self.divisor

    @property
    def high(self) -> int:
        """The greatest value."""
        return self.dividend.high // self.divisor

    @property
    def multiple(self) -> int:
        """A number that every value is a multiple of."""
        whole, rest = divmod(self.dividend.multiple, self.divisor)
        return whole if whole and not rest else 1


@dataclass(frozen=True)
class Remainder:
    """``dividend % divisor`` of a dividend that is not negative."""

    dividend: Index
    divisor: int

    @property
    def low(self) -> int:
        """The least value."""
        return 0

    @property
    def high(self) -> int:
        """The greatest value."""
        return min(self.divisor - self.multiple, self.dividend.high)

    @property
    def multiple(self) -> int:
        """A number that every value is a multiple of."""
        return gcd(self.dividend.multiple, self.divisor)


Atom: TypeAlias = Symbol | Quotient | Remainder


class Index:
    """``constant + sum(coefficient * atom)``, in the order in which the atoms came; never changed.

    A plain class whose figures are computed once: thousands are made for a kernel.
    """

    __slots__ = ("_hash", "_high", "_low", "_multiple", "constant", "terms")

    def __init__(self, constant: int, terms: tuple[tuple[Atom, int], ...] = ()) -> None:
        self.constant = constant
        self.terms = terms
        self._low: int | None = None
        self._high: int | None = None
        self._hash: int | None = None
        self._multiple: int | None = None

    @property
    def low(self) -> int:
        """The least value the expression can have."""
        value = self._low
        if value is None:
            value = self.constant
            for atom, coefficient in self.terms:
                value += coefficient * (atom.low if coefficient > 0 else atom.high)
            self._low = value
        return value

    @property
    def high(self) -> int:
        """The greatest value the expression can have."""
        value = self._high
        if value is None:
            value = self.constant
            for atom, coefficient in self.terms:
                value += coefficient * (atom.high if coefficient > 0 else atom.low)
            self._high = value
        return value

    @property
    def is_constant(self) -> bool:
        """Whether it is a number."""
        return not self.terms

    def __hash__(self) -> int:
        value = self._hash
        if value is None:
            value = self._hash = hash((self.constant, frozenset(self.terms)))
        return value

    def __repr__(self) -> str:
        return f"<{self}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Index):
            return NotImplemented
        return self.constant == other.constant and (
            self.terms == other.terms or dict(self.terms) == dict(other.terms)
        )

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.constant + other, self.terms) if other else self
        if not isinstance(other, Index):
            return NotImplemented  # an expression of the kernel IR knows what to do
        return _sum(self.constant + other.constant, (*self.terms, *other.terms))

    def __sub__(self, other: Index | int) -> Index:
        if not isinstance(other, int | Index):
            return NotImplemented
        return self + (-other if isinstance(other, int) else other * -1)

    def __mul__(self, factor: int) -> Index:
        if not isinstance(factor, int):
            return NotImplemented
        if factor == 1:
            return self
        if factor == 0:
            return Index(0)
        return Index(
            self.constant * factor, tuple((atom, count * factor) for atom, count in self.terms)
        )

    def __floordiv__(self, divisor: int) -> Index:
        if divisor == 1:
            return self
        if self.low // divisor == self.high // divisor:
            return Index(self.low // divisor)
        if self.low < 0:
            shift = -(self.low // divisor)
            return (self + shift * divisor) // divisor - shift
        whole, rest = self._split(divisor)
        if rest.low < 0:
            return _quotient(self, divisor)
        if not whole.is_constant or whole.constant:
            return whole + rest // divisor
        large, small = _multiple_and_rest(rest, divisor)
        if small.terms or small.constant:
            return large // divisor
        return _reduced_quotient(rest, divisor)

    def __mod__(self, divisor: int) -> Index:
        if divisor == 1:
            return Index(0)
        if self.low // divisor == self.high // divisor:
            return self - self.low // divisor * divisor
        rest = self._split(divisor)[1]
        if rest.low < 0:
            rest += -(rest.low // divisor) * divisor
        rest = _without_remainders(rest, divisor)
        if rest.low // divisor == rest.high // divisor:
            return rest - rest.low // divisor * divisor
        large, small = _multiple_and_rest(rest, divisor)
        if small.terms or small.constant:
            return large % divisor + small
        common = gcd(divisor, *(count for _, count in rest.terms))
        if common > 1:
            inner = Index(
                rest.constant // common,
                tuple((atom, count // common) for atom, count in rest.terms),
            )
            return inner % (divisor // common) * common + rest.constant % common
        return Index(0, ((Remainder(rest, divisor), 1),))

    def _split(self, divisor: int) -> tuple[Index, Index]:
        """``whole * divisor + rest``: the terms that are multiples, and what is left."""
        multiples = tuple(
            (atom, count // divisor) for atom, count in self.terms if count % divisor == 0
        )
        others = tuple((atom, count) for atom, count in self.terms if count % divisor)
        return Index(self.constant // divisor, multiples), Index(self.constant % divisor, others)

    def is_multiple(self, factor: int) -> bool:
        """Whether every value is a multiple of ``factor``, as the form shows it."""
        return self.multiple % factor == 0

    @property
    def multiple(self) -> int:
        """The greatest number that every value is a multiple of, as the form shows it; 0 of 0."""
        value = self._multiple
        if value is None:
            value = gcd(self.constant, *(count * atom.multiple for atom, count in self.terms))
            self._multiple = value
        return value

    def __str__(self) -> str:
        """The C expression; its operators bind at least as tightly as a sum."""
        parts: list[str] = []
        for atom, count in self.terms:
            sign = "-" if count < 0 else "+"
            text = _atom_text(atom) if abs(count) == 1 else f"{_atom_text(atom)} * {abs(count)}"
            parts.append(f" {sign} {text}" if parts else (f"-{text}" if count < 0 else text))
        if self.constant or not parts:
            sign = "-" if self.constant < 0 else "+"
            parts.append(f" {sign} {abs(self.constant)}" if parts else str(self.constant))
        return "".join(parts)

    @property
    def is_factor(self) -> bool:
        """Whether its C expression is neither a sum nor a product."""
        terms = self.terms
        return not terms or (len(terms) == 1 and not self.constant and terms[0][1] == 1)

    @property
    def factor_text(self) -> str:
        """The C expression as a factor: in parentheses where it is a sum or a product."""
        return str(self) if self.is_factor else f"({self})"


Indices: TypeAlias = tuple[Index, ...]
"""Where an element is: an index for each dimension."""


def linearize(index: Sequence[Index], dims: Sequence[int]) -> Index:
    """The row-major position of an index in an array of ``dims``."""
    total = Index(0)
    for position, size in zip(index, dims, strict=True):
        total = total * size + position
    return total


def delinearize(linear: Index, dims: Sequence[int]) -> Indices:
    """The index of a row-major position in an array of ``dims``; it must lie in the array."""
    index: list[Index] = []
    inner = prod(dims)
    for at, size in enumerate(dims):
        inner = inner // size if size else 0
        if size <= 1 or not inner:
            index.append(Index(0))
            continue
        position = linear // inner
        index.append(position if at == 0 else position % size)
    return tuple(index)


def narrowed(index: Index, size: int) -> Index:
    """The same expression where it is known to be below ``size``: a name has a narrower range."""
    if len(index.terms) == 1:
        atom, count = index.terms[0]
        if isinstance(atom, Symbol) and count == 1:
            high = min(atom.high, size - 1 - index.constant)
            return Symbol(atom.name, atom.low, high, atom.multiple).index + index.constant
    return index


def symbols_of(index: Collection[Index]) -> Iterator[Symbol]:
    """The variables in index expressions."""
    pending: list[Atom] = [atom for position in index for atom, _ in position.terms]
    while pending:
        atom = pending.pop()
        if isinstance(atom, Symbol):
            yield atom
        else:
            pending += [inner for inner, _ in atom.dividend.terms]


def _sum(constant: int, terms: Iterable[tuple[Atom, int]]) -> Index:
    counts: dict[Atom, int] = {}
    has_remainder = False
    for atom, count in terms:
        counts[atom] = counts.get(atom, 0) + count
        has_remainder = has_remainder or isinstance(atom, Remainder)
    if has_remainder:
        joined = _join(counts)
        if joined is not None:
            return joined + constant
    return Index(constant, tuple((atom, count) for atom, count in counts.items() if count))


def _join(counts: dict[Atom, int]) -> Index | None:
    """``k*c*(x / c) + k*(x % c) => k*x`` for the first such pair."""
    for atom, count in counts.items():
        if not isinstance(atom, Remainder) or not count:
            continue
        quotient = atom.dividend // atom.divisor
        if quotient.constant or len(quotient.terms) != 1 or quotient.terms[0][1] != 1:
            continue
        other = quotient.terms[0][0]
        if counts.get(other, 0) == count * atom.divisor:
            rest = Index(
                0,
                tuple(
                    (left, number)
                    for left, number in counts.items()
                    if number and left not in (atom, other)
                ),
            )
            return atom.dividend * count + rest
    return None


def _multiple_and_rest(index: Index, divisor: int) -> tuple[Index, Index]:
    """``large + small``, large a multiple of some ``g`` that divides ``divisor``, ``0 <= small < g``."""
    factors = {atom: count * atom.multiple for atom, count in index.terms}
    steps = sorted({gcd(factor, divisor) for factor in factors.values()} - {1}, reverse=True)
    for step in steps:
        small = Index(
            index.constant % step,
            tuple((atom, count) for atom, count in index.terms if factors[atom] % step),
        )
        if small.low >= 0 and small.high < step and len(small.terms) < len(index.terms):
            return index - small, small
    return index, Index(0)


def _quotient(dividend: Index, divisor: int) -> Index:
    return Index(0, ((Quotient(dividend, divisor), 1),))


def _reduced_quotient(dividend: Index, divisor: int) -> Index:
    common = gcd(divisor, *(count for _, count in dividend.terms))
    if common > 1:
        inner = Index(
            dividend.constant // common,
            tuple((atom, count // common) for atom, count in dividend.terms),
        )
        return inner // (divisor // common)
    if not dividend.constant and len(dividend.terms) == 1:
        atom, count = dividend.terms[0]
        if count == 1 and isinstance(atom, Quotient):
            return atom.dividend // (atom.divisor * divisor)
    return _quotient(dividend, divisor)


def _without_remainders(index: Index, divisor: int) -> Index:
    """``k*(x % a)`` is ``k*x`` to a modulus that divides ``k*a``."""
    total = Index(index.constant)
    for atom, count in index.terms:
        if isinstance(atom, Remainder) and (count * atom.divisor) % divisor == 0 and count > 0:
            total += atom.dividend * count
        else:
            total += Index(0, ((atom, count),))
    rest = total._split(divisor)[1]
    return rest if rest.low >= 0 else index


def _atom_text(atom: Atom) -> str:
    if isinstance(atom, Symbol):
        return atom.name
    operator = "/" if isinstance(atom, Quotient) else "%"
    return f"({atom.dividend.factor_text} {operator} {atom.divisor})"
