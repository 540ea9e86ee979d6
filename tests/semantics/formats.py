"""Element types from their bits, in Python's own numbers: sign, exponent and mantissa, no library.

Numbers are ``int`` for integers and pred, ``float`` for floats (f64 holds every value of every type) and
``complex``.  ``rounded`` takes exact ``Fraction``s to a type: to nearest, ties to even.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Number = Any

__all__ = [
    "FORMATS",
    "Format",
    "array_of",
    "bits_of",
    "decoded",
    "encoded",
    "numbers",
    "rounded",
    "width",
    "wrapped",
]


@dataclass(frozen=True)
class Format:
    """``specials``: what the codes above the finite numbers are.

    ieee     the uppermost exponent is infinity and NaN
    fn       all ones are NaN, there is no infinity
    fnuz     the code of -0 is NaN, there is neither infinity nor -0
    finite   every code is a finite number
    scale    exponent alone: no sign, no zero; all ones are NaN
    """

    exponent: int
    mantissa: int
    bias: int
    specials: str

    @property
    def bits(self) -> int:
        return (self.specials != "scale") + self.exponent + self.mantissa

    @property
    def least_exponent(self) -> int:
        """Of the smallest normal number."""
        return -self.bias if self.specials == "scale" else 1 - self.bias

    @cached_property
    def greatest(self) -> Fraction:
        """The largest finite number."""
        top = (1 << self.exponent) - 1 - (self.specials in ("ieee", "scale"))
        mantissa = (1 << self.mantissa) - 1 - (self.specials == "fn")
        one = Fraction(2) ** self.mantissa
        return (1 + mantissa / one) * Fraction(2) ** (top - self.bias)


FORMATS = {
    "f64": Format(11, 52, 1023, "ieee"),
    "f32": Format(8, 23, 127, "ieee"),
    "f16": Format(5, 10, 15, "ieee"),
    "bf16": Format(8, 7, 127, "ieee"),
    "f8e5m2": Format(5, 2, 15, "ieee"),
    "f8e4m3": Format(4, 3, 7, "ieee"),
    "f8e3m4": Format(3, 4, 3, "ieee"),
    "f8e4m3fn": Format(4, 3, 7, "fn"),
    "f8e5m2fnuz": Format(5, 2, 16, "fnuz"),
    "f8e4m3fnuz": Format(4, 3, 8, "fnuz"),
    "f8e4m3b11fnuz": Format(4, 3, 11, "fnuz"),
    "f8e8m0fnu": Format(8, 0, 127, "scale"),
    "f6e3m2fn": Format(3, 2, 3, "finite"),
    "f6e2m3fn": Format(2, 3, 1, "finite"),
    "f4e2m1fn": Format(2, 1, 1, "finite"),
}


@cache
def decoded(name: str, code: int) -> float:
    """The number that a code stands for."""
    form = FORMATS[name]
    if form.specials == "scale":
        return math.nan if code == 0xFF else math.ldexp(1.0, code - form.bias)
    sign = -1.0 if code >> (form.bits - 1) else 1.0
    exponent = code >> form.mantissa & ((1 << form.exponent) - 1)
    mantissa = code & ((1 << form.mantissa) - 1)
    highest = exponent == (1 << form.exponent) - 1
    if form.specials == "fnuz" and code == 1 << (form.bits - 1):
        return math.nan
    if form.specials == "fn" and highest and mantissa == (1 << form.mantissa) - 1:
        return math.nan
    if form.specials == "ieee" and highest:
        return math.nan if mantissa else sign * math.inf
    leading = (1 << form.mantissa) if exponent else 0
    place = max(exponent, 1) - form.bias - form.mantissa
    return sign * math.ldexp(float(leading + mantissa), place)


def rounded(name: str, value: Fraction | float) -> float:
    """The value of a type nearest to an exact one; NaN stands for no value, -0.0 keeps its sign.

    A Fraction of 0 is +0.
    """
    form = FORMATS[name]
    if isinstance(value, float) and not math.isfinite(value):
        return _beyond(form, math.copysign(1, value)) if math.isinf(value) else _no_number(form)
    sign = math.copysign(1, value) if isinstance(value, float) else -1.0 if value < 0 else 1.0
    size = abs(value if isinstance(value, Fraction) else Fraction(value))
    if form.specials == "scale":
        return _scale(size) if sign > 0 else math.nan
    power = max(_exponent(size), form.least_exponent) if size else form.least_exponent
    place = power - form.mantissa
    count = _nearest(size.numerator << max(-place, 0), size.denominator << max(place, 0))
    if count << max(place, 0) > form.greatest * (1 << max(-place, 0)):
        return _beyond(form, sign)
    if count == 0 and form.specials == "fnuz":
        return 0.0
    return sign * math.ldexp(count, place)


def _nearest(above: int, below: int) -> int:
    """The whole number nearest to a fraction, ties to even."""
    whole, rest = divmod(above, below)
    return whole + (2 * rest > below or (2 * rest == below and whole % 2 == 1))


def _scale(size: Fraction) -> float:
    """f8e8m0fnu: without a mantissa there is no even neighbour, so that ties go up.

    XLA and ml_dtypes round numbers that are subnormal in f32 between 0 and 2^-126, and write 2^-127 for 0.
    """
    if size == 0:
        return math.nan
    if size < Fraction(2) ** -126:
        return 2.0**-126 if size > Fraction(2) ** -127 else 2.0**-127
    power = _exponent(size)
    power += size / Fraction(2) ** power >= Fraction(3, 2)
    return 2.0**power if power <= 127 else math.nan


def _exponent(size: Fraction) -> int:
    above, below = size.numerator, size.denominator
    guess = above.bit_length() - below.bit_length()
    return guess if below << max(guess, 0) <= above << max(-guess, 0) else guess - 1


def _beyond(form: Format, sign: float) -> float:
    """What infinity and all that rounds to more than the greatest number become."""
    if form.specials == "finite":
        return sign * float(form.greatest)
    return sign * math.inf if form.specials == "ieee" else math.nan


def _no_number(form: Format) -> float:
    return -0.0 if form.specials == "finite" else math.nan


def encoded(name: str, number: float) -> int:
    """The code of a value of the type (any NaN: one of its NaNs)."""
    form = FORMATS[name]
    top = form.bits - 1
    if math.isnan(number):
        return {"fnuz": 1 << top, "scale": 0xFF}.get(form.specials, (1 << top) - 1)
    if form.specials == "scale":
        return round(math.log2(number)) + form.bias
    sign = (math.copysign(1, number) < 0) << top
    if math.isinf(number):
        return sign | ((1 << form.exponent) - 1) << form.mantissa
    size = abs(number)
    power = max(math.frexp(size)[1] - 1, form.least_exponent) if size else form.least_exponent
    count = math.ldexp(size, form.mantissa - power)  # below 2^53, so that it is exact
    whole = int(count)
    assert count == whole, f"{number} is no {name}"
    if whole < 1 << form.mantissa:  # subnormal
        return sign | whole
    return sign | (power + form.bias) << form.mantissa | (whole - (1 << form.mantissa))


def width(name: str) -> int:
    """The bits of an element."""
    if name == "pred":
        return 8
    return FORMATS[name].bits if name in FORMATS else int(name[1:])


def bits_of(name: str, array: Array) -> list[int]:
    """The bits of the elements, as unsigned numbers; those of c128 one part after the other."""
    raw = np.ascontiguousarray(array).reshape(-1)
    mask = (1 << width(name)) - 1
    return [int(code) & mask for code in raw.view(f"u{min(raw.dtype.itemsize, 8)}")]


def numbers(name: str, array: Array) -> list[Number]:
    """The elements as Python's numbers, row-major."""
    if name in ("c64", "c128"):
        part = "f32" if name == "c64" else "f64"
        both = np.ascontiguousarray(array).reshape(-1).view(f"f{array.dtype.itemsize // 2}")
        parts = numbers(part, both)
        return [complex(*pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
    codes = bits_of(name, array)
    if name in FORMATS:
        return [decoded(name, code) for code in codes]
    return [wrapped(name, code) for code in codes]


def wrapped(name: str, number: int) -> int:
    """An integer modulo 2^bits, in the range of the type."""
    bits = width(name)
    number &= (1 << bits) - 1
    return number - (1 << bits) if name[0] == "s" and number >> (bits - 1) else number


def array_of(name: str, values: Iterable[Number], dims: Sequence[int] | None = None) -> Array:
    """An array of values of a type; integers wrap, pred is true for all but 0."""
    from hloopt.types import DTYPES

    storage = DTYPES[name].numpy
    found = list(values)
    if name in ("c64", "c128"):
        part = "f32" if name == "c64" else "f64"
        array = array_of(part, [x for z in found for x in (z.real, z.imag)]).view(storage)
    elif name == "pred":
        array = np.array([bool(value) for value in found], storage)
    elif name in FORMATS:
        codes = [encoded(name, value) for value in found]
        array = np.array(codes, f"u{storage.itemsize}").view(storage)
    else:
        whole = [wrapped(name, value) for value in found]
        kind = np.dtype(f"{'i' if name[0] == 's' else 'u'}{storage.itemsize}")
        array = np.array(whole, kind).astype(storage)
    return array.reshape((len(found),) if dims is None else tuple(dims))
