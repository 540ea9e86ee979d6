"""Scalar expressions over the elements of a module's parameters, each made once.

An array of a module is an array of numbers of these terms, so that ops that only move elements are what they
are in the interpreter.  Two elements with one number are the same value, whatever the inputs.

Equality is that of values: zeros of two signs are different, all NaN are one.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import ml_dtypes
import numpy as np

from hloopt.dataclass import dataclass
from hloopt.graphs import post_order
from hloopt.ops.traits import ASSOCIATIVE, EXTREMA, op_table
from hloopt.types import Array, DType, dtype

__all__ = ["ElementTerm", "ElementTerms", "TooManyTermsError", "part_of"]

_MOST_TERMS: Final = 1 << 18
_MOST_FLAT: Final = 64
"""Operands that a chain of one associative op is written with."""

_OF_PREDS: Final[Mapping[str, str]] = op_table(
    {"add": "or", "and": "and", "maximum": "or", "minimum": "and", "multiply": "and", "or": "or", "xor": "xor"},
    ASSOCIATIVE,
)  # fmt: skip
_SWAPPED: Final = {"GT": "LT", "GE": "LE"}
_BY_PARTS: Final = frozenset({"add", "subtract", "negate"})


def part_of(kind: DType) -> DType:
    """The type of the parts of a complex type."""
    return dtype("f32" if kind.name == "c64" else "f64")


def _real(kind: DType | None) -> DType:
    assert kind is not None
    return part_of(kind) if kind.is_complex else kind


def _keeps_all(kind: DType, data: Any) -> bool:
    """Whether ``reduce-precision`` to these bits of exponent and mantissa is no less precise."""
    facts = ml_dtypes.finfo(kind.numpy)  # type: ignore[no-untyped-call]
    wanted = dict(data)
    exponent, mantissa = int(wanted["exponent_bits"]), int(wanted["mantissa_bits"])
    return exponent >= int(facts.nexp) and mantissa >= int(facts.nmant)


@cache
def _holds(wide: DType, narrow: DType, target: DType) -> bool:
    """Whether a conversion by way of ``wide`` changes nothing of what the one to ``target`` gives."""
    if wide.is_integer and narrow.is_integer:
        fits = wide.limits[0] <= narrow.limits[0] and narrow.limits[1] <= wide.limits[1]
        return fits or (target.is_integer and target.bits <= min(wide.bits, narrow.bits))
    if not (wide.is_float and narrow.is_float):
        return False
    outer, inner = (ml_dtypes.finfo(kind.numpy) for kind in (wide, narrow))  # type: ignore[no-untyped-call]
    return bool(
        outer.nmant >= inner.nmant
        and outer.maxexp >= inner.maxexp
        and outer.minexp - outer.nmant <= inner.minexp - inner.nmant
        and _has_specials(wide, narrow)
    )


def _has_specials(wide: DType, narrow: DType) -> bool:
    """Whether a type has the zeros, infinities and NaN that another one has; not all of 8 bits do."""
    specials = np.array([0.0, -0.0, np.inf, -np.inf, np.nan])
    with np.errstate(invalid="ignore"):
        own = specials.astype(narrow.numpy)
        before, after = (x.astype(np.float64) for x in (own, own.astype(wide.numpy)))
    signs = np.isnan(before) | (np.signbit(before) == np.signbit(after))
    return bool(signs.all()) and np.array_equal(before, after, equal_nan=True)


class TooManyTermsError(Exception):
    """The module has more distinct terms than the limit."""


@dataclass(frozen=True, slots=True)
class ElementTerm:
    """One expression.

    op    an elementwise opcode; ``constant``, ``parameter``, or what no solver looks into: ``sum`` and
          ``sum-of-products`` of floats, whose order of additions HLO leaves open, ``array`` (an op on whole
          arrays), ``exchange`` (an op that also reads what other participants have) and ``element`` of one
    kind  its element type; None of an ``array``
    args  numbers of terms
    data  what else makes it: attributes, the place of a parameter's element
    """

    op: str
    kind: DType | None
    args: tuple[int, ...] = ()
    data: Hashable = None


class ElementTerms:
    """All terms of a proof, by number."""

    def __init__(self) -> None:
        self._terms: list[ElementTerm] = []
        self._numbers: dict[tuple[object, ...], int] = {}
        self._values: dict[int, Any] = {}

    def __getitem__(self, number: int) -> ElementTerm:
        return self._terms[number]

    def __len__(self) -> int:
        return len(self._terms)

    def below(self, roots: Sequence[int]) -> list[int]:
        """All terms that these are made of, operands first."""
        return list(post_order(roots, lambda number: self._terms[number].args))

    def value(self, number: int) -> Any:
        """The value of a constant, of its element type's storage type; None of any other term."""
        return self._values.get(number)

    def are_constant(self, numbers: Array) -> bool:
        """Whether all of these terms are constants."""
        return all(int(number) in self._values for number in np.unique(numbers))

    def values(self, numbers: Array, kind: DType) -> Array:
        """The values of terms that are constants, as an array of the storage type."""
        unique, inverse = np.unique(numbers, return_inverse=True)
        found = np.empty(len(unique), kind.numpy)
        for place, number in enumerate(unique):
            found[place] = self._values[int(number)]
        return np.asarray(found[inverse]).reshape(numbers.shape)

    def constants(self, array: Array, kind: DType) -> Array:
        """The terms of a concrete array's elements."""
        if kind.is_complex:
            part = part_of(kind)
            parts = self.constants(array.real, part), self.constants(array.imag, part)
            return self.each(lambda re, im: self.make("complex", kind, (re, im)), *parts)
        flat = np.ascontiguousarray(array).reshape(-1)
        bits = flat.view(f"u{flat.dtype.itemsize}")
        _, first, inverse = np.unique(bits, return_index=True, return_inverse=True)
        numbers = np.array([self._constant(flat[at], kind) for at in first], np.int64)
        return np.asarray(numbers[inverse]).reshape(array.shape)

    def constant(self, value: object, kind: DType) -> int:
        """The term of one value."""
        return self._constant(np.asarray(value).astype(kind.numpy)[()], kind)

    def _constant(self, value: Any, kind: DType) -> int:
        number = self._number("constant", kind, (), np.asarray(value).tobytes())
        self._values[number] = value
        return number

    def each(self, function: Any, *arrays: Array) -> Array:
        """``function`` of numbers at each place of arrays, called once for equal ones; they broadcast."""
        spread = np.broadcast_arrays(*arrays)
        dims = spread[0].shape
        rows = np.stack([array.reshape(-1) for array in spread])
        if len(rows) == 1:
            unique, inverse = np.unique(rows[0], return_inverse=True)
            unique = unique[np.newaxis]
        else:
            unique, inverse = np.unique(rows, axis=1, return_inverse=True)
        found = np.fromiter(
            (function(*row) for row in unique.T.tolist()), np.int64, unique.shape[1]
        )
        return np.asarray(found[inverse]).reshape(dims)

    def make(
        self, op: str, kind: DType | None, args: Sequence[int] = (), data: Hashable = None
    ) -> int:
        """A term in normal form: operands of commutative ops in one order, what changes nothing left out."""
        args = tuple(args)
        if kind is not None and kind.is_complex and op in _BY_PARTS:
            return self._by_parts(op, kind, args)
        if op == "compare":
            return self._compare(kind, args, data)
        if kind is not None and kind.is_pred:
            op = _OF_PREDS.get(op, op)
        if args and kind is not None:
            known = self._known(op, kind, args, data)
            if known is not None:
                return known
        if op == "clamp":
            least, x, greatest = args
            return self.make("minimum", kind, (self.make("maximum", kind, (least, x)), greatest))
        if op in ASSOCIATIVE:
            args = self._sorted(op, kind, args)
            if len(args) == 1:
                return args[0]
        number = self._number(op, kind, args, data)
        if op == "complex" and kind is not None and all(map(self._values.__contains__, args)):
            re, im = (self._values[arg] for arg in args)
            self._values[number] = kind.numpy.type(complex(re, im))
        return number

    def _known(self, op: str, kind: DType, args: tuple[int, ...], data: Hashable) -> int | None:
        """The term that this one is, where it is a simpler one."""
        first = self._terms[args[0]]
        if op == "select":
            value = self._values.get(args[0])
            if value is not None:
                return args[1] if value else args[2]
            return args[1] if args[1] == args[2] else None
        if op in ("copy", "convert", "real") and first.kind is kind:
            return args[0]
        if op == "convert" and first.op == "convert":
            inner = self._terms[first.args[0]].kind
            if inner is not None and first.kind is not None and _holds(first.kind, inner, kind):
                return self.make("convert", kind, first.args)
        if op == "imag" and first.kind is kind:
            return self.constant(0, kind)
        if op == "convert" and kind.is_complex:
            part, source = part_of(kind), _real(first.kind)
            has_imag = first.kind is not None and first.kind.is_complex
            real = self.make("convert", part, (self.make("real", source, args),))
            imag = self.make("imag", source, args)
            other = self.make("convert", part, (imag,)) if has_imag else self.constant(0, part)
            return self.make("complex", kind, (real, other))
        if op == "power":
            return self._power(kind, args)
        if op == "reduce-precision":
            return args[0] if _keeps_all(kind, data) else None
        if op == "bits":  # bitcast-convert of elements of one width
            if first.kind is kind:
                return args[0]
            if first.op == "bits":
                return self.make("bits", kind, first.args)
        if op == "not" and first.op == "not":
            return first.args[0]
        if op == "joined" and first.op == "piece":
            whole = [self._terms[arg] for arg in args]
            pieces = [(term.op, term.args, term.data) for term in whole]
            every = [("piece", first.args, at) for at in range(len(args))]
            return first.args[0] if pieces == every else None
        if op in ("real", "imag") and first.op == "complex":
            return first.args[op == "imag"]
        if op == "complex":
            second = self._terms[args[1]]
            if (first.op, second.op) == ("real", "imag") and first.args == second.args:
                return first.args[0]
        return None

    def _power(self, kind: DType, args: tuple[int, ...]) -> int | None:
        base, exponent = map(self._values.get, args)
        if kind.is_complex:
            return None
        if exponent is not None and exponent == 1:
            return args[0]
        if (exponent is not None and exponent == 0) or (base is not None and base == 1):
            return self.constant(1, kind)
        return None

    def _compare(self, kind: DType | None, args: tuple[int, ...], data: Any) -> int:
        direction, total = data
        if direction in _SWAPPED:
            direction, args = _SWAPPED[direction], args[::-1]
        elif direction in ("EQ", "NE"):
            args = tuple(sorted(args))
        operand = self._terms[args[0]].kind
        total = total and operand is not None and operand.is_float
        return self._number("compare", kind, args, (direction, total))

    def _by_parts(self, op: str, kind: DType, args: tuple[int, ...]) -> int:
        part = part_of(kind)
        parts = [
            self.make(op, part, [self.make(which, part, (arg,)) for arg in args])
            for which in ("real", "imag")
        ]
        return self.make("complex", kind, parts)

    def _sorted(self, op: str, kind: DType | None, args: tuple[int, ...]) -> tuple[int, ...]:
        """Operands in one order, and those of equal ops among them where grouping changes no bit."""
        assert kind is not None
        idempotent = op in ("and", "or") or op in EXTREMA
        if op in EXTREMA or kind.is_integer or kind.is_pred:
            flat: list[int] = []
            for arg in args:
                inner = self._terms[arg]
                same = inner.op == op and inner.kind is kind
                flat += inner.args if same else (arg,)
            if len(flat) <= _MOST_FLAT:
                args = tuple(flat)
            if idempotent:
                args = tuple(set(args))
        return tuple(sorted(args))

    def _number(self, op: str, kind: DType | None, args: tuple[int, ...], data: Hashable) -> int:
        key = (op, kind, args, data)
        number = self._numbers.get(key)
        if number is None:
            number = len(self._terms)
            if number >= _MOST_TERMS:
                raise TooManyTermsError
            self._numbers[key] = number
            self._terms.append(ElementTerm(op, kind, args, data))
        return number
