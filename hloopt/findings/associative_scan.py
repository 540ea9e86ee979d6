"""Scans along a dimension of arrays, as ``jax.lax.associative_scan`` writes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from hloopt.dataclass import dataclass
from hloopt.passes.expand.writer import Term
from hloopt.types import PaddingDim, SliceRange, array

__all__ = ["LinearStep", "Scale", "ScanOperator", "composed", "rows_of", "scanned"]

ScanOperator: TypeAlias = Callable[[Sequence[Term], Sequence[Term]], list[Term]]
"""An associative op on several arrays together, the earlier ones first."""

Scale: TypeAlias = "Term | int"


@dataclass(frozen=True)
class LinearStep:
    """``scale * h + shift`` for some h; the shift None where it is 0."""

    scale: Scale
    shift: Term | None

    def negated(self) -> LinearStep:
        """What it is with the other sign."""
        return LinearStep(-self.scale, None if self.shift is None else -self.shift)

    def plus(self, other: LinearStep) -> LinearStep:
        """The sum, of the same h."""
        known = [one for one in (self.shift, other.shift) if one is not None]
        shift = known[0] + known[1] if len(known) == 2 else (*known, None)[0]
        return LinearStep(_added(self.scale, other.scale), shift)


def _added(one: Scale, other: Scale) -> Scale:
    if isinstance(one, Term):
        return one if isinstance(other, int) and other == 0 else one + other
    return _added(other, one) if isinstance(other, Term) else one + other


def scanned(values: list[Term], combine: ScanOperator, axis: int = 0) -> list[Term]:
    """Row ``t`` of each result combines the rows up to ``t``; rows are what an index of ``axis`` has.

    Neighbours are combined, the scan of those is that of every second row, and one step more gives the others
    (Blelloch, Prefix sums and their applications, 1990).
    """
    count = values[0].dims[axis]
    if count < 2:
        return values
    pairs = [
        [rows_of(one, first, count - 1 + first, 2, axis) for one in values] for first in (0, 1)
    ]
    odd = scanned(combine(*pairs), combine, axis)
    even = [rows_of(one, 0, 1, 1, axis) for one in values]
    if count > 2:
        later = [rows_of(one, 2, count, 2, axis) for one in values]
        rest = combine([rows_of(one, 0, (count - 1) // 2, 1, axis) for one in odd], later)
        even = [one.writer.concatenate(axis, one, two) for one, two in zip(even, rest, strict=True)]
    return [_woven(one, two, axis) for one, two in zip(even, odd, strict=True)]


def composed(first: Sequence[Term], then: Sequence[Term]) -> list[Term]:
    """Of pairs ``(a, b)`` that stand for ``a * h + b``: one after the other, ``c * (a * h + b) + d``."""
    return [then[0] * first[0], then[0] * first[1] + then[1]]


def rows_of(term: Term, first: int, limit: int, stride: int = 1, axis: int = 0) -> Term:
    """Rows ``first``, ``first + stride`` and so on, before ``limit``; nothing is made for all of them."""
    ranges = [SliceRange(0, size) for size in term.dims]
    ranges[axis] = SliceRange(first, limit, stride)
    shape = array(term.dtype, tuple(one.size for one in ranges))
    if shape.dims == term.dims:
        return term
    return term.writer.make("slice", term, shape=shape, slice=tuple(ranges))


def _woven(even: Term, odd: Term, axis: int) -> Term:
    """Two arrays row by row in turn."""
    zero = even.writer.scalar(even.dtype, 0)
    more = int(even.dims[axis] > odd.dims[axis])
    left, right = (
        one.writer.make("pad", one, zero, padding=_spread_out(len(one.dims), axis, low, high))
        for one, low, high in ((even, 0, 1 - more), (odd, 1, more))
    )
    if even.dtype.is_pred:
        return left | right
    return left + right


def _spread_out(rank: int, axis: int, low: int, high: int) -> tuple[PaddingDim, ...]:
    """A row of padding between any two rows."""
    return tuple(
        PaddingDim(low, high, 1) if dim == axis else PaddingDim(0, 0) for dim in range(rank)
    )
