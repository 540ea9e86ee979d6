"""Comparing two arrays: the largest errors, where they are, and what of them is more than allowed."""

from __future__ import annotations

from math import inf
from typing import Final, Literal, TypeAlias

import ml_dtypes
import numpy as np

from hloopt.dataclass import dataclass
from hloopt.types import Array, DType, dtype, of_numpy

__all__ = [
    "MARGINS",
    "OutputComparison",
    "ResultVerdict",
    "compared",
    "not_finite",
    "ulp_distance",
    "unlike",
    "widen",
]


ResultVerdict: TypeAlias = Literal[
    "equal", "within tolerance", "differ", "nothing verified", "not verified"
]

_AT_ONCE = 1 << 18  # elements: the doubles made of them stay in a cache

MARGINS: Final = {"f64": 16, "c128": 16, "f32": 16, "c64": 16, "f16": 4, "bf16": 4}
"""Units of rounding (half a unit in the last place) that an element may always be off.

Functions of f32 are off by 4 units in the last place on some devices.  2 of any narrower type.
"""

_TIMES: Final = 8
_TIMES_NARROW: Final = 4
"""So many times the largest difference seen is allowed: a few draws seldom show the largest there is.

Of floats of 16 bits or fewer it is half of that: their functions are made in f32 and rounded once, while each
step of a draw is off by a whole unit in the last place, twice what rounding can be.
"""

_PLAIN: Final = 2.0**13
"""Errors in units in the last place are meaningful where no more of them than this are allowed."""


@dataclass(frozen=True, slots=True)
class OutputComparison:
    """How one output differs.

    ``absolute`` and ``relative`` (to the wanted value) are the largest errors over elements of which both are
    finite, ``ulp`` the largest where the last place is meaningful: not in sums that cancel.
    ``share`` is the worst element's error as a part of what is allowed it (``allowed``), ``where`` its index; 1
    or less is right.  ``mismatches`` counts elements that are not right; ``finite`` those wanted that are
    numbers.  ``rtol`` and ``atol`` are the user's, None where the judge decides.  ``undecided``: what rounding
    allows these mismatches is not known.
    """

    dtype: str
    elements: int
    mismatches: int
    absolute: float = 0.0
    relative: float = 0.0
    ulp: int = 0
    where: tuple[int, ...] = ()
    rtol: float | None = None
    atol: float | None = None
    problem: str = ""
    share: float = 0.0
    allowed: float = 0.0
    finite: int = 0
    undecided: bool = False

    @property
    def passed(self) -> bool:
        """Whether every element is right and shape and type agree."""
        return not self.mismatches and not self.problem

    @property
    def verdict(self) -> ResultVerdict:
        """In a word."""
        if not self.passed:
            return "not verified" if self.undecided else "differ"
        if not self.finite:
            return "nothing verified"
        return "within tolerance" if self.share else "equal"

    @property
    def reason(self) -> str:
        """What is wrong, or why nothing is verified; empty where all is right."""
        if self.problem:
            return self.problem
        if self.mismatches:
            return (
                f"{self.mismatches} of {self.elements} elements of {self.dtype} {self._excess}, "
                f"worst at [{','.join(map(str, self.where))}]"
            )
        if self.finite:
            return ""
        return "holds no finite number" if self.elements else "has no elements"

    @property
    def _excess(self) -> str:
        if self.rtol is not None and self.atol is not None:
            return f"exceed atol {self.atol:.2g} + rtol {self.rtol:.2g}"
        if self.undecided:
            return "are off by more than a few units of rounding, and no time was left to find the limit"
        if not self.allowed or not np.isfinite(self.share):
            return "differ"
        return f"off by up to {self.share:.3g} times what rounding allows"


def unlike(kind: DType, size: int, problem: str) -> OutputComparison:
    """The comparison with what cannot be compared."""
    return OutputComparison(kind.name, size, size, inf, inf, problem=problem, share=inf)


def compared(
    got: Array, want: Array, given: tuple[float, float] | None, spread: Array | None
) -> OutputComparison:
    """Compare two arrays of one storage type.

    ``given`` are a user's ``rtol`` and ``atol``; ``spread`` is how far each element (flat) moves by rounding.
    """
    kind = of_numpy(want.dtype)
    if got.dtype != want.dtype or got.shape != want.shape:
        problem = f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
        return unlike(kind, want.size, problem)
    left, right = np.ascontiguousarray(got).reshape(-1), np.ascontiguousarray(want).reshape(-1)
    rtol, atol = given or (None, None)
    if np.array_equal(_bits(left), _bits(right)):
        finite = want.size - not_finite(want)
        return OutputComparison(kind.name, want.size, 0, rtol=rtol, atol=atol, finite=finite)
    found = _Found(kind, given)
    with np.errstate(all="ignore"):
        for start in range(0, right.size, _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            more = None if spread is None else spread[part]
            found.add(left[part], right[part], more, start)
    return OutputComparison(
        kind.name,
        want.size,
        found.mismatches,
        found.absolute,
        found.relative,
        found.ulp,
        tuple(int(at) for at in np.unravel_index(found.worst, want.shape)),
        rtol,
        atol,
        "",
        found.share,
        found.allowed,
        found.finite,
    )


def _bits(array: Array) -> Array:
    return array.view(f"V{array.dtype.itemsize}").view(np.uint8)


class _Found:
    """The largest errors so far, and the place of the worst, in elements from the first.

    ``absolute`` is the largest error of an element that is not right, where there is one.
    """

    def __init__(self, kind: DType, given: tuple[float, float] | None) -> None:
        self.kind, self.given = kind, given
        self.mismatches = self.ulp = self.finite = self.worst = 0
        self.absolute = self.relative = self.share = self.allowed = 0.0
        self._rank: tuple[float, float] = (-1.0, -1.0)

    def add(self, got: Array, want: Array, spread: Array | None, start: int) -> None:
        """Compare some more elements, the first of which is number ``start``."""
        kind = self.kind
        left, right = _wide(got, kind), _wide(want, kind)
        ulps = ulp_distance(got, want, kind)
        exact = kind.is_integer or kind.is_pred
        # Wide integers that differ may be the same double.
        same = ulps == 0 if exact else (left == right) | (np.isnan(left) & np.isnan(right))
        error = np.where(same, 0.0, np.maximum(ulps, 1) if exact else np.abs(left - right))
        finite = np.isfinite(left) & np.isfinite(right)
        scale = np.abs(right)
        allowed = self._allowed(scale, spread)
        share = np.where(same, 0.0, np.where(finite, error / allowed, inf))
        share = np.where(np.isnan(share), inf, share)
        wrong = share > 1
        failed = self.mismatches > 0 or bool(wrong.any())
        bounded = np.where(finite, error, 0.0)
        self.relative = max(
            self.relative, float(np.where(finite & (scale > 0), bounded / scale, 0.0).max())
        )
        self.ulp = max(self.ulp, int(ulps[finite & self._plain(scale, allowed)].max(initial=0)))
        self.finite += int(np.count_nonzero(np.isfinite(right)))
        if failed and not self.mismatches:
            self.absolute = 0.0
        counted = error[wrong] if failed else bounded
        if counted.size:
            self.absolute = float(np.maximum(self.absolute, counted.max()))  # NaN stays
        self.mismatches += int(np.count_nonzero(wrong))
        # A NaN against a number is worse than any number; of equal shares the larger error.
        worst = share == share.max()
        at = int(np.argmax(np.where(worst, np.where(np.isnan(error), inf, error), -1.0)))
        rank = float(share[at]), float(error[at]) if not np.isnan(error[at]) else inf
        if rank > self._rank:
            self._rank, self.worst = rank, start + at
            self.share, self.allowed = rank[0], float(allowed[at])

    def _plain(self, scale: Array, allowed: Array) -> Array:
        """The elements whose errors in units in the last place are meaningful."""
        kind = self.kind
        if kind.is_integer or kind.is_pred or self.given is not None:
            return np.ones(scale.shape, np.bool_)
        step = float(ml_dtypes.finfo(kind.numpy).eps)  # type: ignore[no-untyped-call]
        most = np.maximum(min(_PLAIN * step, 0.125) * scale, _own_margin(scale, kind))
        return np.asarray(allowed <= most)

    def _allowed(self, scale: Array, spread: Array | None) -> Array:
        """The error of each element that is allowed; of an infinity or NaN none."""
        kind = self.kind
        if kind.is_integer or kind.is_pred:
            own = np.zeros(scale.shape)
        elif self.given is not None:
            rtol, atol = self.given
            own = atol + rtol * scale
        else:
            own = _own_margin(scale, kind)
        if spread is not None:
            times = _TIMES_NARROW if kind.is_float and kind.bits <= 16 else _TIMES
            own = np.maximum(own, times * spread)
        return own


def _own_margin(scale: Array, kind: DType) -> Array:
    """What an element's own magnitude allows; below the least normal number a device may have no bits."""
    facts = ml_dtypes.finfo(kind.numpy)  # type: ignore[no-untyped-call]
    margin = MARGINS.get(kind.name, 2)
    least = (
        facts.smallest_subnormal * margin if kind.bits <= 16 and kind.name != "bf16" else facts.tiny
    )
    return np.asarray(float(facts.eps) / 2 * margin * scale + float(least))


def widen(most: Array, own: Array, other: Array) -> None:
    """Make ``most`` as large as the differences of two evaluations."""
    kind = of_numpy(own.dtype)
    left, right = np.ascontiguousarray(own).reshape(-1), np.ascontiguousarray(other).reshape(-1)
    if np.array_equal(_bits(left), _bits(right)):
        return
    with np.errstate(all="ignore"):
        for start in range(0, left.size, _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            if kind.is_integer or kind.is_pred:
                difference = ulp_distance(left[part], right[part], kind).astype(np.float64)
            else:
                difference = np.abs(_wide(left[part], kind) - _wide(right[part], kind))
            difference = np.where(np.isfinite(difference), difference, 0.0)
            np.maximum(most[part], difference, out=most[part])


def not_finite(array: Array) -> int:
    """How many elements are NaN or infinite."""
    kind = of_numpy(array.dtype)
    if not (kind.is_float or kind.is_complex):
        return 0
    flat = np.ascontiguousarray(array).reshape(-1)
    return sum(
        int(np.count_nonzero(~np.isfinite(flat[start : start + _AT_ONCE].astype(kind.compute))))
        for start in range(0, flat.size, _AT_ONCE)
    )


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


def _wide(values: Array, kind: DType) -> Array:
    if kind.is_complex:
        return values.astype(np.complex128)
    return values.astype(np.float64)
