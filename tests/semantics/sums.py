"""Sums of products in exact numbers: the type they are made in, one rounding to it, and the result's type."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from tests.semantics.elements import INTEGERS
from tests.semantics.formats import FORMATS, array_of, rounded, width, wrapped

Array = np.ndarray[Any, Any]
Number = Any

__all__ = ["KINDS", "converted", "small", "summed", "widest"]

# By range, then by precision, then by width: a product has the last of its operands' and its result's types.
_ORDER = [
    "pred",
    "u1",
    "s1",
    "u2",
    "s2",
    "u4",
    "s4",
    "u8",
    "s8",
    "u16",
    "s16",
    "u32",
    "s32",
    "u64",
    "s64",
    "f4e2m1fn",
    "f6e2m3fn",
    "f8e3m4",
    "f6e3m2fn",
    "f8e4m3b11fnuz",
    "f8e4m3fn",
    "f8e5m2",
    "f16",
    "bf16",
    "f32",
    "f64",
    "c64",
    "c128",
]

KINDS = tuple(name for name in _ORDER if name not in ("u1", "s1", "c64", "c128"))
"""Real types; of types of equal range and precision, whose product has no type, one."""


def widest(*names: str) -> str:
    """The type that products of these types are made in."""
    return max(names, key=_ORDER.index)


def small(
    name: str, dims: Sequence[int], chooser: random.Random, *, special: bool = False
) -> Array:
    """Numbers whose products have sums that float32 holds exactly; infinities and NaN where ``special``.

    Some need nine bits, which narrow types round.
    """
    return array_of(name, [_small(name, chooser, special) for _ in range(prod(dims))], dims)


def _small(name: str, chooser: random.Random, special: bool) -> Number:
    if name in ("c64", "c128"):
        part = "f32" if name == "c64" else "f64"
        return complex(*(_small(part, chooser, special) for _ in "ri"))
    if name == "pred" or name in INTEGERS:
        return (
            chooser.choice([chooser.randint(-6, 6), 257])
            if width(name) > 8
            else chooser.randint(-6, 6)
        )
    if special and chooser.random() < 0.15:
        return rounded(name, chooser.choice([math.inf, -math.inf, math.nan]))
    exact = Fraction(
        chooser.choice([257, -256]) if chooser.random() < 0.2 else chooser.randint(-6, 6), 2
    )
    return rounded(name, exact)


def converted(source: str, target: str, value: Number) -> Number:
    """A number of one type as one of another: integers wrap, floats saturate to integers and round to floats."""
    if source == target:
        return value
    if target == "pred":
        return value != 0
    if target in ("c64", "c128"):
        part = "f32" if target == "c64" else "f64"
        return complex(rounded(part, complex(value).real), rounded(part, complex(value).imag))
    if isinstance(value, complex):
        value = value.real
    if target in FORMATS:
        return rounded(target, value if isinstance(value, float) else Fraction(value))
    if not isinstance(value, float):
        return wrapped(target, int(value))
    if math.isnan(value):
        return 0
    half = 1 << (width(target) - 1)
    least, greatest = (-half, half - 1) if target[0] == "s" else (0, 2 * half - 1)
    return least if value < least else greatest if value > greatest else math.trunc(value)


def summed(kind: str, pairs: Iterable[tuple[Number, Number]]) -> Number:
    """The sum of the products of pairs of a type's numbers, as the type holds it."""
    found = list(pairs)
    if kind == "pred":
        return any(x and y for x, y in found)
    if kind not in FORMATS and kind not in ("c64", "c128"):
        return wrapped(kind, sum(x * y for x, y in found))
    if kind in FORMATS:
        return rounded(kind, _exact(found))
    part = "f32" if kind == "c64" else "f64"
    real = _exact([(x.real, y.real) for x, y in found] + [(-x.imag, y.imag) for x, y in found])
    imag = _exact([(x.real, y.imag) for x, y in found] + [(x.imag, y.real) for x, y in found])
    return complex(rounded(part, real), rounded(part, imag))


def _exact(pairs: Sequence[tuple[float, float]]) -> Fraction | float:
    if all(math.isfinite(x) and math.isfinite(y) for x, y in pairs):
        return sum((Fraction(x) * Fraction(y) for x, y in pairs), Fraction(0))
    return sum((x * y for x, y in pairs), 0.0)
