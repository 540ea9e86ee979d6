"""Sums of products over named indices: the form in which dots, sums, scalings and transposes are all alike.

    sum over s of  coefficient * factor[axes] * factor[axes] * ...

A transpose is another order of the same indices, a broadcast leaves one out, a dot sums those that both sides
have.  (SPORES, arXiv 2002.07951, shows that this form decides equality in linear algebra.)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeAlias

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction

__all__ = [
    "Coefficient",
    "Factor",
    "IndexAxes",
    "IndexAxis",
    "IndexSpace",
    "IndexWindow",
    "NumberedTerms",
    "Sum",
    "TensorIndex",
    "TensorTerm",
    "align",
]

TensorIndex: TypeAlias = int
"""A number that stands for an index, such as the i of ``A[i,k]``."""
IndexAxis: TypeAlias = tuple[TensorIndex, ...]
"""What one dimension counts through, the last index quickest; empty for a dimension of one element."""
IndexAxes: TypeAlias = tuple[IndexAxis, ...]
Coefficient: TypeAlias = int | float


@dataclass(frozen=True, slots=True)
class IndexWindow:
    """An index of a whole dimension that ``inner`` moves along, from ``start`` on in steps of ``stride``."""

    inner: TensorIndex
    start: int | Instruction
    stride: int
    size: int


class IndexSpace:
    """The indices of one cluster, with their sizes; some are parts of others, some are windows."""

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._parts: dict[TensorIndex, IndexAxis] = {}
        self.windows: dict[TensorIndex, IndexWindow] = {}

    def new(self, size: int) -> TensorIndex:
        """A new index that counts to ``size``."""
        self._sizes.append(size)
        return len(self._sizes) - 1

    def axis(self, size: int) -> IndexAxis:
        """A new axis of a dimension."""
        return (self.new(size),) if size > 1 else ()

    def window(
        self, axis: IndexAxis, start: int | Instruction, stride: int, size: int
    ) -> IndexAxis | None:
        """The axis of a whole dimension of which ``axis`` sees a part; None where that is not one index."""
        if len(axis) > 1:
            return None
        index = self.new(size)
        inner = axis[0] if axis else self.new(1)
        self.windows[index] = IndexWindow(inner, start, stride, size)
        return (index,)

    @property
    def splits(self) -> int:
        """How many indices were split."""
        return len(self._parts)

    def size(self, index: TensorIndex) -> int:
        """How many values an index has."""
        return self._sizes[index]

    def resolved(self, axis: Iterable[TensorIndex]) -> IndexAxis:
        """The same axis in the parts that its indices were split into."""
        found: list[TensorIndex] = []
        for index in axis:
            parts = self._parts.get(index)
            found += (index,) if parts is None else self.resolved(parts)
        return tuple(found)

    def split(self, index: TensorIndex, outer: int) -> IndexAxis:
        """Split an index into one of ``outer`` values and one of the rest."""
        parts = (self.new(outer), self.new(self.size(index) // outer))
        self._parts[index] = parts
        return parts

    def aligned(self, one: IndexAxis, other: IndexAxis) -> bool:
        """Split indices until two axes of as many values count alike; False where they cannot."""
        while True:
            sides = [self.resolved(axis) for axis in (one, other)]
            for first, second in zip(*sides, strict=False):
                if self.size(first) != self.size(second):
                    break
            else:
                return len(sides[0]) == len(sides[1])
            if self.size(first) < self.size(second):
                first, second = second, first
            if self.size(first) % self.size(second) or first in self.windows:
                return False
            self.split(first, self.size(second))

    def regrouped(self, axes: IndexAxes, sizes: Iterable[int]) -> IndexAxes | None:
        """The indices of ``axes`` as those of dimensions of other sizes, split where one ends within another.

        None where the dimensions have no common refinement, or a window would be cut.
        """
        pending = [index for axis in axes for index in self.resolved(axis)][::-1]
        found: list[IndexAxis] = []
        for size in sizes:
            axis: list[TensorIndex] = []
            left = size
            while left > 1:
                if not pending:
                    return None
                index = pending.pop()
                if left % self.size(index) == 0:
                    axis.append(index)
                    left //= self.size(index)
                elif self.size(index) % left == 0 and index not in self.windows:
                    outer, inner = self.split(index, left)
                    axis.append(outer)
                    pending.append(inner)
                    left = 1
                else:
                    return None
            found.append(tuple(axis))
        return tuple(found) if not pending else None


@dataclass(frozen=True)
class Factor:
    """What is multiplied: an instruction, a sum, or the identity (None): 1 where its axes are equal."""

    value: Instruction | Sum | None
    axes: IndexAxes = ()


@dataclass(frozen=True)
class TensorTerm:
    """``coefficient`` times the product of the factors, summed over ``summed``; its other indices come back."""

    coefficient: Coefficient
    factors: tuple[Factor, ...] = ()
    summed: frozenset[TensorIndex] = frozenset()

    def scaled(self, by: Coefficient) -> TensorTerm:
        """The term ``by`` times."""
        return replace(self, coefficient=self.coefficient * by)

    def summed_over(self, indices: frozenset[TensorIndex]) -> TensorTerm:
        """Summed over more of its indices."""
        return replace(self, summed=self.summed | indices)

    def times(self, other: TensorTerm) -> TensorTerm:
        """The product of two terms that share no summed index."""
        return TensorTerm(
            self.coefficient * other.coefficient,
            (*self.factors, *other.factors),
            self.summed | other.summed,
        )


@dataclass(frozen=True)
class Sum:
    """Terms that are added; what a term lacks of an index it is repeated along."""

    terms: tuple[TensorTerm, ...]


class NumberedTerms:
    """Terms with numbers for their instructions (``leaves``) and indices, in the order in which they come.

    Equal for terms that differ in these alone, if the ``indices`` are alike, too: their sizes and windows.
    """

    def __init__(self, space: IndexSpace) -> None:
        self._space = space
        self._numbers: dict[TensorIndex, int] = {}
        self.leaves: dict[Instruction, int] = {}
        self.indices: list[object] = []

    def terms(self, terms: Iterable[TensorTerm]) -> tuple[object, ...]:
        """Coefficients, factors and summed indices."""
        return tuple(
            (
                term.coefficient,
                tuple(self._factor(factor) for factor in term.factors),
                tuple(sorted(self.axis(term.summed))),
            )
            for term in terms
        )

    def axis(self, axis: Iterable[TensorIndex]) -> tuple[int, ...]:
        """The numbers of indices."""
        return tuple(self._index(index) for index in self._space.resolved(axis))

    def _factor(self, factor: Factor) -> object:
        value: object = None
        if isinstance(factor.value, Sum):
            value = self.terms(factor.value.terms)
        elif factor.value is not None:
            value = self._leaf(factor.value)
        return value, tuple(self.axis(axis) for axis in factor.axes)

    def _leaf(self, value: Instruction) -> int:
        return self.leaves.setdefault(value, len(self.leaves))

    def _index(self, index: TensorIndex) -> int:
        found = self._numbers.get(index)
        if found is None:
            found = self._numbers[index] = len(self.indices)
            self.indices.append(None)
            window, about = self._space.windows.get(index), None
            if window is not None:
                start = window.start
                about = (
                    ("leaf", self._leaf(start)) if isinstance(start, Instruction) else start,
                    window.stride,
                    self.axis((window.inner,)),
                )
            self.indices[found] = self._space.size(index), about
        return found


def align(factors: Iterable[Factor], space: IndexSpace) -> bool:
    """Split the indices of each dimension where they are split in another factor that reads it.

    So what is computed of equal dimensions is equal.  False where the two indices of an identity, which is
    no instruction, cannot count alike.
    """
    read: dict[Instruction, IndexAxes] = {}
    pairs: list[tuple[IndexAxis, IndexAxis]] = []
    identities: list[tuple[IndexAxis, IndexAxis]] = []
    for factor in factors:
        if isinstance(factor.value, Instruction):
            pairs += zip(read.setdefault(factor.value, factor.axes), factor.axes, strict=True)
        elif factor.value is None:
            one, other = factor.axes
            identities.append((one, other))
    splits = -1
    while splits != space.splits:
        splits = space.splits
        if not all(space.aligned(*pair) for pair in identities):
            return False
        for pair in pairs:
            space.aligned(*pair)
    return True
