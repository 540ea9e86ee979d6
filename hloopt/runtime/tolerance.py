"""What error of an element is allowed: by what a user gives, or by what rounding explains."""

from __future__ import annotations

from typing import Final

import ml_dtypes
import numpy as np

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.types import Array, DType

__all__ = ["FREE", "MARGINS", "Tolerance", "own_margin", "sampled_margin"]

MARGINS: Final = {"f64": 16, "c128": 16, "f32": 16, "c64": 16, "f16": 4, "bf16": 4}
"""Units of rounding (half a unit in the last place) that an element may be off where no more is known.

Functions of f32 are off by 4 units in the last place on some devices.  2 of any narrower type.
"""

_TIMES: Final = 8
_TIMES_NARROW: Final = 4
"""So many times the largest difference seen is allowed: a few draws seldom show the largest there is.

Of floats of 16 bits or fewer it is half of that: their functions are made in f32 and rounded once, while each
step of a draw is off by a whole unit in the last place, twice what rounding can be.
"""


_PART: Final = 8
_NEAR: Final = 512
"""An eighth of a bound is allowed where it is no more than 512 times the largest difference seen."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What a user allows in place of what rounding allows; where nothing is given, the judge decides.

    rtol, atol  ``|got - want| <= atol + rtol * |want|``; where one of them is None it counts as 0
    ulp         so many units in the last place, the two zeros being one value and all NaN another
    bitwise     no difference at all: neither in the sign of a zero nor in the payload of a NaN

    Integers and pred have to be equal in any case.
    """

    rtol: float | None = None
    atol: float | None = None
    ulp: int | None = None
    bitwise: bool = False

    @property
    def is_given(self) -> bool:
        """Whether it takes the place of what rounding allows."""
        return self != FREE

    def check(self) -> None:
        """Raise ``UsageError`` where two say different things."""
        near = self.rtol is not None or self.atol is not None
        given = {
            "bitwise": self.bitwise,
            "ulp": self.ulp is not None,
            "rtol and atol": near,
        }
        found = [name for name, is_given in given.items() if is_given]
        if len(found) > 1:
            raise UsageError(
                f"{found[0]} and {found[1]} exclude each other: each is the whole tolerance"
            )

    def __str__(self) -> str:
        if self.bitwise:
            return "equal bits"
        if self.ulp is not None:
            return f"{self.ulp} ulp"
        if not self.is_given:
            return "what rounding allows"
        return f"atol {self.atol or 0.0:.2g} + rtol {self.rtol or 0.0:.2g}"


FREE: Final = Tolerance()
"""Nothing is given: the judge decides."""


def own_margin(scale: Array, kind: DType) -> Array:
    """What an element's own magnitude allows; below the least normal number a device may have no bits."""
    facts = ml_dtypes.finfo(kind.numpy)  # type: ignore[no-untyped-call]
    margin = MARGINS.get(kind.name, 2)
    least = (
        facts.smallest_subnormal * margin if kind.bits <= 16 and kind.name != "bf16" else facts.tiny
    )
    return np.asarray(float(facts.eps) / 2 * margin * scale + float(least))


def sampled_margin(spread: Array, kind: DType, bound: Array | None = None) -> Array:
    """What is allowed where an element has moved by ``spread`` when all was rounded otherwise.

    A part of the ``bound`` on its error is allowed in any case, where what was seen comes near it: the draws of
    two functions that have the same value are the same, and what they are off by may cancel.
    """
    times = _TIMES_NARROW if kind.is_float and kind.bits <= 16 else _TIMES
    if bound is None:
        return times * spread
    part = np.where(bound <= _NEAR * spread, bound / _PART, 0.0)
    return np.asarray(np.maximum(times * spread, part))
