"""What is known of all elements of an array: bounds, and which special values cannot be among them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from math import inf

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.types import Array, DType

__all__ = ["IEEE", "UNKNOWN", "ValueRange", "anything", "hull", "of_elements"]

IEEE = ("f16", "bf16", "f32", "f64")
"""The float types whose arithmetic is bounded here; others have NaN in place of infinities or of -0."""


@dataclass(frozen=True, slots=True)
class ValueRange:
    """A claim about each element x of an array; a weaker claim is always true as well.

    low, high       low <= x <= high, unless x is NaN; ints for integers and pred (0 and 1)
    nan             whether x may be NaN
    negative_zero   whether x may be -0.0
    whole           x is a whole number, infinite or NaN
    """

    low: float
    high: float
    nan: bool = False
    negative_zero: bool = False
    whole: bool = False

    @property
    def is_finite(self) -> bool:
        """Whether no element is infinite or NaN."""
        return not self.nan and self.low != -inf and self.high != inf

    @property
    def is_single(self) -> bool:
        """Whether all elements are the same number; zeros may still differ in sign."""
        return self.low == self.high and not self.nan

    @property
    def is_non_negative(self) -> bool:
        """Whether no element is negative, -0.0 or NaN."""
        return self.low >= 0 and not self.nan and not self.negative_zero

    @property
    def has_zero(self) -> bool:
        """Whether 0 or -0.0 may be among the elements."""
        return self.low <= 0 <= self.high

    @property
    def has_sign(self) -> bool:
        """Whether an element may have the sign of a negative number."""
        return self.low < 0 or self.negative_zero

    @property
    def has_no_sign(self) -> bool:
        """Whether an element may have the sign of a positive number: +0.0 counts."""
        return self.high >= 0

    @property
    def may_be_infinite(self) -> bool:
        """Whether an element may be infinite."""
        return self.low == -inf or self.high == inf


UNKNOWN = ValueRange(-inf, inf, nan=True, negative_zero=True)
"""Says nothing: complex numbers, tuples, and floats of rare types."""


@cache
def anything(dtype: DType) -> ValueRange:
    """What holds of every array of an element type."""
    if dtype.is_pred or dtype.is_integer:
        low, high = dtype.limits
        return ValueRange(low, high, whole=True)
    return UNKNOWN


def hull(ranges: Iterable[ValueRange]) -> ValueRange:
    """The strongest claim that holds wherever one of several does; there is at least one."""
    found = list(ranges)
    return ValueRange(
        min(entry.low for entry in found),
        max(entry.high for entry in found),
        any(entry.nan for entry in found),
        any(entry.negative_zero for entry in found),
        all(entry.whole for entry in found),
    )


def of_elements(values: Array, dtype: DType) -> ValueRange:
    """What holds of the elements of a constant."""
    if dtype.is_complex or not values.size:
        return anything(dtype)
    if dtype.is_pred or dtype.is_integer:
        wide = values.astype(np.int64) if dtype.bits < 64 else values
        return ValueRange(int(wide.min()), int(wide.max()), whole=True)
    numbers = values.astype(np.float64)
    is_nan = np.isnan(numbers)
    real = numbers[~is_nan]
    if not real.size:
        return UNKNOWN
    return ValueRange(
        float(real.min()),
        float(real.max()),
        bool(is_nan.any()),
        bool(np.any((real == 0) & np.signbit(real))),
        bool(np.all(np.trunc(real) == real)),
    )
