"""Comparing two arrays: the largest errors, where they are, and what of them is more than allowed."""

from __future__ import annotations

from dataclasses import asdict
from math import inf, isfinite
from typing import Any, Final, Literal, TypeAlias

import ml_dtypes
import numpy as np

from hloopt.dataclass import dataclass
from hloopt.runtime.movement import AT_ONCE, Movement, bits_of, ulp_distance, wide
from hloopt.runtime.tolerance import FREE, Tolerance, own_margin, sampled_margin
from hloopt.types import Array, DType, of_numpy

__all__ = [
    "Allowance",
    "OutputComparison",
    "ResultVerdict",
    "compared",
    "explained",
    "not_finite",
    "unlike",
]


ResultVerdict: TypeAlias = Literal[
    "equal", "within tolerance", "differ", "nothing verified", "not verified"
]

_PLAIN: Final = 2.0**13
"""Errors in units in the last place are meaningful where no more of them than this are allowed."""


@dataclass(frozen=True, slots=True)
class OutputComparison:
    """How one output differs.

    ``absolute`` and ``relative`` (to the wanted value) are the largest errors over elements of which both are
    finite, ``ulp`` the largest where the last place is meaningful: not in sums that cancel.
    ``share`` is the worst element's error (``error``) as a part of what it is allowed (``allowed``).
    ``where`` is its index, ``got`` and ``want`` are its values as texts, ``bound`` says in words what
    allows that much.  ``mismatches`` counts elements that are not right, ``finite`` those wanted that are
    numbers.  ``undecided``: what rounding allows these mismatches is not known.
    """

    dtype: str
    elements: int
    mismatches: int
    absolute: float = 0.0
    relative: float = 0.0
    ulp: int = 0
    where: tuple[int, ...] = ()
    tolerance: Tolerance = FREE
    problem: str = ""
    share: float = 0.0
    allowed: float = 0.0
    finite: int = 0
    undecided: bool = False
    error: float = 0.0
    got: str = ""
    want: str = ""
    bound: str = ""

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
            values = f"got {self.got}, want {self.want}{self._error}"
            if not self.where:
                return f"the {self.dtype} {self._excess}: {values}"
            return (
                f"{self.mismatches} of {self.elements} elements of {self.dtype} {self._excess}; "
                f"worst at [{','.join(map(str, self.where))}]: {values}"
            )
        if self.finite:
            return ""
        return "holds no finite number" if self.elements else "has no elements"

    @property
    def _excess(self) -> str:
        if self.tolerance.is_given:
            return f"{self._are} not within the tolerance given ({self.tolerance})"
        if self.undecided:
            limit = "and no time was left to find the limit"
            return f"{self._are} off by more than a few units of rounding, {limit}"
        if not self.allowed or not isfinite(self.share):
            return "differs" if self.mismatches == 1 else "differ"
        return f"{self._are} off by up to {self.share:.3g} times what rounding allows"

    @property
    def _are(self) -> str:
        return "is" if self.mismatches == 1 else "are"

    @property
    def _error(self) -> str:
        if self.tolerance.is_given or not self.bound or not isfinite(self.error):
            return ""
        if not self.allowed:
            return f" ({self.bound})"
        return f", error {self.error:.3g}, allowed {self.allowed:.3g} ({self.bound})"

    def to_json(self) -> dict[str, Any]:
        """As JSON values; numbers that are not finite are strings."""
        values = {**asdict(self), **asdict(self.tolerance), "ulp": self.ulp}
        del values["tolerance"]
        values |= {"most_ulp": self.tolerance.ulp, "passed": self.passed, "verdict": self.verdict}
        return {
            key: value if not isinstance(value, float) or isfinite(value) else str(value)
            for key, value in values.items()
        }


def unlike(kind: DType, size: int, problem: str) -> OutputComparison:
    """The comparison with what cannot be compared."""
    return OutputComparison(kind.name, size, size, inf, inf, problem=problem, share=inf)


@dataclass(frozen=True, slots=True)
class Allowance:
    """What is known of what rounding allows the elements of an array, each flat, None where it is not known.

    moved   what each was where all was rounded otherwise
    bound   how far each can be off at most; infinite where that is not known
    alone   the bound alone allows: no other roundings were tried
    """

    moved: Movement | None = None
    bound: Array | None = None
    alone: bool = False

    def part(self, place: slice) -> Allowance:
        """Of some elements."""
        moved = None if self.moved is None else self.moved.part(place)
        return Allowance(moved, None if self.bound is None else self.bound[place], self.alone)


def compared(
    got: Array, want: Array, tolerance: Tolerance, allowance: Allowance
) -> tuple[OutputComparison, int]:
    """Compare two arrays of one storage type.

    Beside it how many of the mismatches are within the bound of ``allowance``: samples may yet allow them.
    """
    kind = of_numpy(want.dtype)
    if got.dtype != want.dtype or got.shape != want.shape:
        problem = f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
        return unlike(kind, want.size, problem), 0
    left, right = np.ascontiguousarray(got).reshape(-1), np.ascontiguousarray(want).reshape(-1)
    if np.array_equal(bits_of(left), bits_of(right)):
        finite = want.size - not_finite(want)
        return OutputComparison(kind.name, want.size, 0, tolerance=tolerance, finite=finite), 0
    found = _Found(kind, tolerance)
    with np.errstate(all="ignore"):
        for start in range(0, right.size, AT_ONCE):
            part = slice(start, start + AT_ONCE)
            found.add(left[part], right[part], allowance.part(part), start)
    comparison = OutputComparison(
        kind.name,
        want.size,
        found.mismatches,
        found.absolute,
        found.relative,
        found.ulp,
        tuple(int(at) for at in np.unravel_index(found.worst, want.shape)),
        tolerance,
        "",
        found.share,
        found.allowed,
        found.finite,
        error=found.error,
        got=str(left[found.worst]),
        want=str(right[found.worst]),
        bound=found.bound,
    )
    return comparison, found.open


class _Found:
    """The largest errors so far, and the place of the worst, in elements from the first.

    ``absolute`` is the largest error of an element that is not right, where there is one.  ``open`` counts
    mismatches whose errors are within the bound.
    """

    def __init__(self, kind: DType, tolerance: Tolerance) -> None:
        self.kind, self.tolerance = kind, tolerance
        self.exact = kind.is_integer or kind.is_pred
        self.mismatches = self.open = self.ulp = self.finite = self.worst = 0
        self.absolute = self.relative = self.share = self.allowed = self.error = 0.0
        self.bound = ""
        self._rank: tuple[float, float] = (-1.0, -1.0)

    def add(self, got: Array, want: Array, allowance: Allowance, start: int) -> None:
        """Compare some more elements, the first of which is number ``start``."""
        kind, exact = self.kind, self.exact
        left, right = wide(got, kind), wide(want, kind)
        ulps = ulp_distance(got, want, kind)
        # Wide integers that differ may be the same double.
        same = ulps == 0 if exact else (left == right) | (np.isnan(left) & np.isnan(right))
        if self.tolerance.bitwise:
            same = (bits_of(got) == bits_of(want)).reshape(got.size, -1).all(axis=1)
        error = np.where(same, 0.0, np.maximum(ulps, 1) if exact else np.abs(left - right))
        finite = np.isfinite(left) & np.isfinite(right)
        scale = np.abs(right)
        allowed = self._allowed(scale, allowance)
        measured = error if self.tolerance.ulp is None else ulps.astype(np.float64)
        share = np.where(same, 0.0, np.where(finite, measured / allowed, inf))
        share = np.where(np.isnan(share), inf, share)
        bound = allowance.bound
        far = np.where(np.isnan(error), inf, error)
        able = np.ones(error.shape, np.bool_) if bound is None else far <= bound
        if allowance.moved is not None and not self.tolerance.is_given:
            undecided = able & (share > 1) & (~finite | exact)
            if undecided.any():
                share = np.where(undecided & allowance.moved.allows(got, want), 1.0, share)
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
        self.open += int(np.count_nonzero(wrong & able))
        # A NaN against a number is worse than any number; of equal shares the larger error.
        worst = share == share.max()
        at = int(np.argmax(np.where(worst, far, -1.0)))
        rank = float(share[at]), float(far[at])
        if rank > self._rank:
            self._rank, self.worst = rank, start + at
            self.share, self.allowed, self.error = rank[0], float(allowed[at]), float(error[at])
            self.bound = self._named(scale[at : at + 1], allowance.part(slice(at, at + 1)))

    def _plain(self, scale: Array, allowed: Array) -> Array:
        """The elements whose errors in units in the last place are meaningful."""
        kind = self.kind
        if self.exact or self.tolerance.is_given:
            return np.ones(scale.shape, np.bool_)
        step = float(ml_dtypes.finfo(kind.numpy).eps)  # type: ignore[no-untyped-call]
        most = np.maximum(min(_PLAIN * step, 0.125) * scale, own_margin(scale, kind))
        return np.asarray(allowed <= most)

    def _allowed(self, scale: Array, allowance: Allowance) -> Array:
        """The error of each element that is allowed, of an infinity or NaN none; in ulp where that is given."""
        given = self.tolerance
        if given.is_given:
            if self.exact or given.bitwise:
                return np.zeros(scale.shape)
            if given.ulp is not None:
                return np.full(scale.shape, float(given.ulp))
            return np.asarray((given.atol or 0.0) + (given.rtol or 0.0) * scale)
        return explained(scale, self.kind, allowance)

    def _named(self, scale: Array, allowance: Allowance) -> str:
        """What allows an element that much, in words."""
        if self.tolerance.is_given:
            return str(self.tolerance)
        if allowance.bound is not None:
            if not allowance.bound.any():
                return "nothing here is rounded"
            if self._allowed(scale, allowance) == allowance.bound:
                return "the bound on its error"
        if self._allowed(scale, allowance) > self._allowed(scale, Allowance()):
            return "what other roundings move it by"
        return "" if self.exact else "its own rounding"


def explained(scale: Array, kind: DType, allowance: Allowance) -> Array:
    """The error that rounding allows each element, of magnitude ``scale``; 0 for a NaN or an infinity."""
    if allowance.alone and allowance.bound is not None:
        return allowance.bound
    if kind.is_integer or kind.is_pred:
        return np.zeros(scale.shape)
    own = own_margin(scale, kind)
    if allowance.moved is not None:
        moved = allowance.moved
        seen = sampled_margin(moved.spread, kind, allowance.bound)
        own = np.maximum(own, np.maximum(seen, moved.beyond))
    return own if allowance.bound is None else np.minimum(own, allowance.bound)


def not_finite(array: Array, *, nan: bool = False) -> int:
    """How many elements are NaN or infinite; NaN alone where ``nan``."""
    kind = of_numpy(array.dtype)
    if not (kind.is_float or kind.is_complex):
        return 0
    flat = np.ascontiguousarray(array).reshape(-1)
    parts = (
        flat[start : start + AT_ONCE].astype(kind.compute) for start in range(0, flat.size, AT_ONCE)
    )
    found = (np.isnan(part) if nan else ~np.isfinite(part) for part in parts)
    return sum(int(np.count_nonzero(part)) for part in found)
