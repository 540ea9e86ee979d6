"""Comparing results: by element type, with the largest errors and where they are.

An element passes when it is equal, both are NaN, or ``|got - want| <= atol + rtol * |want|`` (complex numbers
by modulus).  Integers and pred must be equal; 0.0 equals -0.0.  Where no ``atol`` is given it is a fraction of
the largest finite magnitude wanted, since an element near zero carries the rounding of its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.types import DType, dtype, of_numpy

__all__ = [
    "TOLERANCES",
    "Comparison",
    "Tolerance",
    "compare",
    "compare_all",
    "compare_named",
    "not_finite",
    "ulp_distance",
]

Array = np.ndarray[Any, Any]

_AT_ONCE = 1 << 18  # elements: the doubles made of them stay in a cache


@dataclass(frozen=True, slots=True)
class Tolerance:
    """``rtol`` as is; ``scaled_atol`` times the largest magnitude gives the default ``atol``."""

    rtol: float
    scaled_atol: float


TOLERANCES: dict[str, Tolerance] = {
    "f64": Tolerance(1e-11, 1e-13),
    "c128": Tolerance(1e-11, 1e-13),
    "f32": Tolerance(2e-5, 2e-6),
    "c64": Tolerance(2e-5, 2e-6),
    "f16": Tolerance(4e-3, 1e-3),
    "bf16": Tolerance(3e-2, 8e-3),
    "f8e3m4": Tolerance(0.07, 0.02),
    "f8e4m3": Tolerance(0.13, 0.02),
    "f8e4m3fn": Tolerance(0.13, 0.02),
    "f8e4m3fnuz": Tolerance(0.13, 0.02),
    "f8e4m3b11fnuz": Tolerance(0.13, 0.02),
    "f8e5m2": Tolerance(0.26, 0.03),
    "f8e5m2fnuz": Tolerance(0.26, 0.03),
    "f6e2m3fn": Tolerance(0.13, 0.05),
    "f6e3m2fn": Tolerance(0.26, 0.05),
    "f4e2m1fn": Tolerance(0.5, 0.1),
    "f8e8m0fnu": Tolerance(1.0, 0.0),
}
"""Two roundings of the type, or a few: what reordering sums and fusing may change."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How one output differs.

    ``absolute``, ``relative`` (to the wanted value) and ``ulp`` are the largest errors over elements of which
    both are finite; ``where`` is the index of the worst mismatch, or of the largest absolute error when all
    elements pass; ``mismatches`` counts elements that do not pass.
    """

    dtype: str
    elements: int
    mismatches: int
    absolute: float
    relative: float
    ulp: int
    where: tuple[int, ...]
    rtol: float
    atol: float
    problem: str = ""

    @property
    def passed(self) -> bool:
        """Whether every element passes and shape and type agree."""
        return not self.mismatches and not self.problem


def compare(
    got: Array, want: Array, *, rtol: float | None = None, atol: float | None = None
) -> Comparison:
    """Compare two arrays of one storage type."""
    kind = of_numpy(want.dtype)
    if got.dtype != want.dtype or got.shape != want.shape:
        problem = f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
        return Comparison(kind.name, want.size, want.size, inf, inf, 0, (), 0.0, 0.0, problem)
    left, right = np.ascontiguousarray(got).reshape(-1), np.ascontiguousarray(want).reshape(-1)
    found = _Found()
    with np.errstate(all="ignore"):
        rtol, atol = _tolerance(kind, right, rtol, atol)
        for start in range(0, right.size, _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            found.add(left[part], right[part], kind, rtol, atol, start)
    failed = found.mismatches > 0
    place = found.worst_failing if failed else found.worst
    return Comparison(
        kind.name,
        want.size,
        found.mismatches,
        found.failing if failed else found.absolute,
        found.relative,
        found.ulp,
        tuple(int(at) for at in np.unravel_index(place, want.shape)) if want.size else (),
        rtol,
        atol,
    )


@dataclass(slots=True)
class _Found:
    """The largest errors so far and the places of the worst, in elements from the first.

    ``failing`` is the largest error of an element that does not pass.
    """

    mismatches: int = 0
    absolute: float = 0.0
    failing: float = 0.0
    relative: float = 0.0
    ulp: int = 0
    worst: int = 0
    worst_failing: int = 0
    _rank: float = -1.0
    _failing_rank: float = -1.0

    def add(
        self, got: Array, want: Array, kind: DType, rtol: float, atol: float, start: int
    ) -> None:
        """Look at some more elements, the first of which is number ``start``."""
        left, right = _wide(got, kind), _wide(want, kind)
        ulps = ulp_distance(got, want, kind)
        if kind.is_integer or kind.is_pred:
            # Wide integers that differ may be the same double.
            same, error = ulps == 0, ulps.astype(np.float64)
        else:
            same = (left == right) | (np.isnan(left) & np.isnan(right))
            error = np.where(same, 0.0, np.abs(left - right))
        finite = np.isfinite(left) & np.isfinite(right)
        scale = np.abs(right)
        # An infinite bound would let anything pass for an infinity.
        fails = ~(same | (finite & (error <= atol + rtol * scale)))
        bounded = np.where(finite, error, 0.0)
        relative = np.where(finite & (scale > 0), bounded / scale, 0.0)
        self.absolute = max(self.absolute, float(bounded.max()))
        self.relative = max(self.relative, float(relative.max()))
        self.ulp = max(self.ulp, int(ulps[finite].max(initial=0)))
        # A NaN against a number is worse than any number.
        rank = np.where(np.isnan(error), inf, error)
        at = int(np.argmax(rank))
        if rank[at] > self._rank:
            self._rank, self.worst = float(rank[at]), start + at
        if fails.any():
            self.mismatches += int(np.count_nonzero(fails))
            self.failing = float(np.maximum(self.failing, error[fails].max()))  # NaN stays
            at = int(np.argmax(np.where(fails, rank, -1.0)))
            if rank[at] > self._failing_rank:
                self._failing_rank, self.worst_failing = float(rank[at]), start + at


def compare_all(
    got: Sequence[Array],
    want: Sequence[Array],
    *,
    rtol: float | None = None,
    atol: float | None = None,
) -> list[Comparison]:
    """Compare two flat result lists, which must have the same length."""
    return [
        compare(left, right, rtol=rtol, atol=atol) for left, right in zip(got, want, strict=True)
    ]


def compare_named(
    got: Mapping[str, Array],
    want: Mapping[str, Array],
    *,
    rtol: float | None = None,
    atol: float | None = None,
) -> list[tuple[str, Comparison]]:
    """Compare arrays of the same name; one that only one side has is a problem."""
    found = []
    for name in [*want, *(name for name in got if name not in want)]:
        if name in got and name in want:
            entry = compare(got[name], want[name], rtol=rtol, atol=atol)
        else:
            one = want.get(name, got.get(name))
            assert one is not None
            problem = "is not written" if name in want else "is written, too"
            kind = of_numpy(one.dtype).name
            entry = Comparison(kind, one.size, one.size, inf, inf, 0, (), 0.0, 0.0, problem)
        found.append((name, entry))
    return found


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


def _tolerance(
    kind: DType, want: Array, rtol: float | None, atol: float | None
) -> tuple[float, float]:
    default = TOLERANCES.get(kind.name)
    if default is None:
        return 0.0, 0.0
    if atol is None:
        atol = default.scaled_atol * _largest(want, kind)
    return (default.rtol if rtol is None else rtol), atol


def _largest(values: Array, kind: DType) -> float:
    """The largest finite magnitude."""
    largest = 0.0
    for start in range(0, values.size, _AT_ONCE):
        magnitude = np.abs(_wide(values[start : start + _AT_ONCE], kind))
        largest = max(largest, float(magnitude[np.isfinite(magnitude)].max(initial=0.0)))
    return largest
