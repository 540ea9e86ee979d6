"""What other roundings make of an array's elements: how far they move, and what rounding decides of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.types import Array, DType, dtype, of_numpy

__all__ = ["AT_ONCE", "Movement", "bits_of", "ulp_distance", "wide", "widen"]

AT_ONCE: Final = 1 << 18
"""Elements: the doubles made of them stay in a cache."""

_NEAR_POLE: Final = 8
_MANY: Final = 16
"""Evaluations that show by values seen only once how many have not been seen."""

_NUMBER: Final = 1
_NAN: Final = 2
_ABOVE: Final = 4
_BELOW: Final = 8


@dataclass(slots=True)
class Movement:
    """What the elements of an array (flat) are where all is rounded otherwise.

    spread   how far each has moved
    beyond   how far, where each rounding moved several times as far as a rounding does
    kinds    of floats what each has been, a bit each: a number, NaN, either infinity; None: all numbers
    low      beside ``high`` the least and the largest number it has been; None: the definition has numbers only
    samples  of integers and pred the array of every evaluation, the definition's first
    """

    spread: Array
    beyond: Array
    kinds: Array | None = None
    low: Array | None = None
    high: Array | None = None
    samples: tuple[Array, ...] = ()

    @staticmethod
    def of(own: Array) -> Movement:
        """Of the definition's array, while no other evaluation is known."""
        flat, kind = np.ascontiguousarray(own).reshape(-1), of_numpy(own.dtype)
        found = Movement(np.zeros(flat.size), np.zeros(flat.size))
        if kind.is_integer or kind.is_pred:
            found.samples = (flat,)
            return found
        kinds = _kinds(_line(flat, kind))
        if (kinds != _NUMBER).any():
            found.kinds = kinds
            found.low, found.high = np.full(flat.size, np.inf), np.full(flat.size, -np.inf)
        return found

    @staticmethod
    def joined(parts: Sequence[Movement]) -> Movement:
        """What two definitions of the same array have become."""
        first, *others = parts
        for other in others:
            kinds = [part.kinds for part in (first, other) if part.kinds is not None]
            ends = first if other.low is None else other
            if first.low is not None and other.low is not None:
                assert first.high is not None
                assert other.high is not None
                ends = Movement(
                    first.spread,
                    first.beyond,
                    low=np.minimum(first.low, other.low),
                    high=np.maximum(first.high, other.high),
                )
            first = Movement(
                np.maximum(first.spread, other.spread),
                np.maximum(first.beyond, other.beyond),
                np.bitwise_or.reduce(kinds) | _NUMBER * (len(kinds) < 2) if kinds else None,
                ends.low,
                ends.high,
                (*first.samples, *other.samples),
            )
        return first

    def part(self, place: slice) -> Movement:
        """Of some elements."""
        kinds, low, high = (
            None if array is None else array[place] for array in (self.kinds, self.low, self.high)
        )
        samples = tuple(sample[place] for sample in self.samples)
        return Movement(self.spread[place], self.beyond[place], kinds, low, high, samples)

    @property
    def is_decided(self) -> bool:
        """Whether no integer has moved, and whatever is a number always was one."""
        first = self.samples[:1]
        return self.kinds is None and all(sample is first[0] for sample in self.samples)

    def add(self, own: Array, other: Array, *, farther: bool) -> None:
        """Note another evaluation; ``farther``: one whose roundings move several times as far."""
        kind = of_numpy(own.dtype)
        widen(self.beyond if farther else self.spread, own, other)
        flat = np.ascontiguousarray(other).reshape(-1)
        if self.samples:
            same = np.array_equal(bits_of(flat), bits_of(self.samples[0]))
            self.samples = (*self.samples, self.samples[0] if same else flat)
            return
        line = _line(flat, kind)
        kinds = _kinds(line)
        numbers = kinds == _NUMBER
        if self.kinds is not None:
            self.kinds |= kinds
        elif not numbers.all():
            self.kinds = kinds | np.uint8(_NUMBER)
        if self.low is not None and self.high is not None:
            np.minimum(self.low, line, out=self.low, where=numbers)
            np.maximum(self.high, line, out=self.high, where=numbers)

    def allows(self, got: Array, want: Array) -> Array:
        """Where rounding decides what an element is, and ``got`` is one of the things it may be.

        An integer is one that it has been; where a value was seen only once, others are likely (I. J. Good,
        Biometrika 40, 1953), and those are allowed that are no further away.  Where the definition has no
        number, a number is allowed that is no further from those seen than they are from each other, or eight
        times as far where it may be an infinity, too: few of those seen are numbers then.
        """
        kind = of_numpy(got.dtype)
        if kind.is_integer or kind.is_pred:
            return self._chosen(got, want, kind)
        if self.kinds is None:
            return np.zeros(got.shape, np.bool_)
        line = _line(got, kind)
        mine, theirs = _kinds(line), _kinds(_line(want, kind))
        # Between numbers and NaN some functions have a pole, which few roundings hit.
        edge = (self.kinds & _NAN != 0) & (self.kinds & _NUMBER != 0)
        poles = np.bitwise_or.reduce(self.kinds, initial=0) & (_ABOVE | _BELOW)
        able = self.kinds | np.where(edge, poles, 0)
        found: Array = (mine != theirs) & (mine & able != 0)
        if self.low is not None and self.high is not None:
            room = np.where(self.high > self.low, self.high - self.low, 0.0)
            room = room * np.where(able & (_BELOW | _ABOVE), _NEAR_POLE, 1)
            near = (line >= self.low - room) & (line <= self.high + room)
            found &= (mine != _NUMBER) | near
        return found

    def _chosen(self, got: Array, want: Array, kind: DType) -> Array:
        off = ulp_distance(got, want, kind)
        found: Array = off <= np.maximum(self.spread, self.beyond)
        if not self.samples:
            return found
        at = np.flatnonzero(found)
        seen = np.sort(np.stack([_ordered(sample[at], kind) for sample in self.samples]), axis=0)
        other = np.ones((1, at.size), np.bool_)
        steps = np.concatenate([other, seen[1:] != seen[:-1], other])
        rare = (steps[1:] & steps[:-1]).any(axis=0)
        many = len(self.samples) > _MANY
        found[at] = (seen == _ordered(got[at], kind)).any(axis=0) | (rare & many)
        return found


def _line(flat: Array, kind: DType) -> Array:
    """Floats as doubles; of complex numbers the moduli."""
    with np.errstate(all="ignore"):
        return np.abs(flat).astype(np.float64) if kind.is_complex else flat.astype(np.float64)


def _kinds(line: Array) -> Array:
    """What each double is, as a bit."""
    found = np.full(line.shape, _NUMBER, np.uint8)
    other = ~np.isfinite(line)
    if other.any():
        places = line[other]
        found[other] = np.where(np.isnan(places), _NAN, np.where(places > 0, _ABOVE, _BELOW))
    return found


def widen(most: Array, own: Array, other: Array) -> None:
    """Make ``most`` as large as the differences of two evaluations; what is no number moves nothing."""
    kind = of_numpy(own.dtype)
    left, right = np.ascontiguousarray(own).reshape(-1), np.ascontiguousarray(other).reshape(-1)
    if np.array_equal(bits_of(left), bits_of(right)):
        return
    with np.errstate(all="ignore"):
        for start in range(0, left.size, AT_ONCE):
            part = slice(start, start + AT_ONCE)
            if kind.is_integer or kind.is_pred:
                difference = ulp_distance(left[part], right[part], kind).astype(np.float64)
            else:
                difference = np.abs(wide(left[part], kind) - wide(right[part], kind))
            difference = np.where(np.isfinite(difference), difference, 0.0)
            np.maximum(most[part], difference, out=most[part])


def bits_of(array: Array) -> Array:
    """The bytes of an array."""
    return array.view(f"V{array.dtype.itemsize}").view(np.uint8)


def ulp_distance(got: Array, want: Array, kind: DType) -> Array:
    """How many values of the type lie between two arrays of it, element by element (0: the same).

    Bit patterns are mapped to integers in the order of the values, so that the count is exact across zero.
    Of complex numbers it is the larger one of the two parts' distances.
    """
    if kind.is_complex:
        part = dtype("f32" if kind.name == "c64" else "f64")
        return np.maximum(
            ulp_distance(got.real, want.real, part), ulp_distance(got.imag, want.imag, part)
        )
    left, right = _ordered(got, kind), _ordered(want, kind)
    distance: Array = np.where(left > right, left - right, right - left)
    return distance.reshape(want.shape)


def _ordered(values: Array, kind: DType) -> Array:
    """Unsigned integers in the order of the values; both zeros are the same one."""
    if kind.kind == "signed":
        return values.astype(np.int64).view(np.uint64) ^ np.uint64(1 << 63)
    if not kind.is_float:
        return values.astype(np.uint64)
    width = values.dtype.itemsize * 8
    bits = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}").astype(np.uint64)
    if kind.name == "f8e8m0fnu":
        return bits
    sign_bit = np.uint64(1 << (min(width, kind.bits) - 1))
    magnitude = bits & (sign_bit - np.uint64(1))
    negative = (bits & sign_bit) != 0
    middle = np.uint64(1 << 63)
    return np.where(negative, middle - magnitude, middle + magnitude)


def wide(values: Array, kind: DType) -> Array:
    """Values as doubles, or as complex numbers of doubles."""
    if kind.is_complex:
        return values.astype(np.complex128)
    return values.astype(np.float64)
