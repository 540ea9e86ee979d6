"""What is known of an array as matrices: where its zeros are, what is equal, what its rows are like.

A matrix is any two dimensions of an array, at each index of the others.  Dimensions are named by their
numbers, a pair of them with the smaller one first: (rows, columns) of a matrix that is not transposed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from itertools import combinations
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.types import Dims

__all__ = [
    "NOTHING",
    "Band",
    "Box",
    "CountedIndices",
    "DimPair",
    "HotIndex",
    "MatrixProperties",
    "box_of",
    "whole_band",
]

DimPair: TypeAlias = tuple[int, int]
Band: TypeAlias = tuple[int, int]
"""The least and the greatest column minus row that may hold something; nothing where least > greatest."""
Box: TypeAlias = tuple[tuple[int, int], ...]
"""Of each dimension the first index, and the one behind the last."""

_MOST_BOXES: Final = 16
_V = TypeVar("_V")
_NONE: Final[Mapping[Any, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class CountedIndices:
    """Elements that are ``offset`` and a multiple of each index; nothing in them wraps around."""

    offset: int
    factors: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class HotIndex:
    """Along a dimension the element at index ``value + offset`` is 1, if there is such a one; all others are 0.

    ``places`` says which dimension of the array each one of ``value`` is; None: one of a single element.
    """

    value: Instruction
    places: tuple[int | None, ...]
    offset: int


@dataclass(frozen=True)
class MatrixProperties:
    """Claims about an array, each true of whatever the parameters are; what is not said is not known.

    bands        of a pair: the diagonals outside of which all is zero
    true_bands   the same of a pred: the diagonals outside of which all is true
    boxes        outside of all of them all is zero; None where nothing is known
    is_clean     whether those zeros are zeros always; if not, they are NaN where NaN or infinity met them
    constant     dimensions along which all elements are the same
    hot          dimensions along which one element is 1 at most and the others are 0; the index, if it is known
    units        pairs of which all on the diagonal is 1
    symmetric    pairs that can be exchanged, and whether that keeps all bits, not up to rounding only
    definite     pairs whose matrices are positive definite (True) or semidefinite, but for rounding
    ranks        of a pair: an upper bound of the rank, but for rounding
    orthonormal  (along, other): vectors along the one, for each index of the other, are orthonormal, but for
                 rounding and where they are finite
    kronecker    pairs whose matrices are Kronecker products, with the rows and columns of the right factor
    affine       of integers: what they count
    """

    bands: Mapping[DimPair, Band] = field(default_factory=lambda: _NONE)
    true_bands: Mapping[DimPair, Band] = field(default_factory=lambda: _NONE)
    boxes: tuple[Box, ...] | None = None
    is_clean: bool = True
    constant: frozenset[int] = frozenset()
    hot: Mapping[int, HotIndex | None] = field(default_factory=lambda: _NONE)
    units: frozenset[DimPair] = frozenset()
    symmetric: Mapping[DimPair, bool] = field(default_factory=lambda: _NONE)
    definite: Mapping[DimPair, bool] = field(default_factory=lambda: _NONE)
    ranks: Mapping[DimPair, int] = field(default_factory=lambda: _NONE)
    orthonormal: frozenset[DimPair] = frozenset()
    kronecker: Mapping[DimPair, tuple[int, int]] = field(default_factory=lambda: _NONE)
    affine: CountedIndices | None = None

    def band(self, row: int, column: int) -> Band | None:
        """The diagonals outside of which all is zero, of these rows and columns; None if nothing is known."""
        if row < column:
            return self.bands.get((row, column))
        band = self.bands.get((column, row))
        return band and (-band[1], -band[0])

    def is_lower(self, row: int, column: int) -> bool:
        """Whether all above the diagonal is zero."""
        band = self.band(row, column)
        return band is not None and band[1] <= 0

    def is_upper(self, row: int, column: int) -> bool:
        """Whether all below the diagonal is zero."""
        return self.is_lower(column, row)

    def is_diagonal(self, row: int, column: int) -> bool:
        """Whether all beside the diagonal is zero."""
        return self.is_lower(row, column) and self.is_upper(row, column)

    def is_identity(self, row: int, column: int) -> bool:
        """Whether it is 1 on the diagonal, and 0 beside it."""
        return (min(row, column), max(row, column)) in self.units and self.is_diagonal(row, column)

    def is_symmetric(self, row: int, column: int, *, exact: bool = False) -> bool:
        """Whether exchanging the two changes nothing; if ``exact``, no bit."""
        found = self.symmetric.get((min(row, column), max(row, column)))
        return found is not None and (found or not exact)

    def is_definite(self, row: int, column: int) -> bool:
        """Whether matrices are symmetric and positive definite by construction."""
        return self.definite.get((min(row, column), max(row, column)), False)

    def rank(self, row: int, column: int) -> int | None:
        """An upper bound of the rank; None where nothing is known."""
        if row in self.constant or column in self.constant:
            return 1
        return self.ranks.get((min(row, column), max(row, column)))

    @property
    def says_something(self) -> bool:
        """Whether anything about matrices is known."""
        return self != replace(NOTHING, affine=self.affine)

    def moved(self, places: Mapping[int, int], dims: Dims) -> MatrixProperties:
        """Of an array of ``dims`` that has its dimensions at other places, and is the same along all others.

        What is about dimensions without a place is left out.
        """
        affine = self.affine
        if affine is not None:
            kept = {places[d]: by for d, by in affine.factors.items() if d in places}
            affine = (
                CountedIndices(affine.offset, kept) if len(kept) == len(affine.factors) else None
            )
        return MatrixProperties(
            bands=_banded(self.bands, places),
            true_bands=_banded(self.true_bands, places),
            boxes=self.boxes and tuple(_box_moved(box, places, dims) for box in self.boxes),
            is_clean=self.is_clean,
            constant=frozenset(places[dim] for dim in self.constant if dim in places),
            hot={
                places[dim]: hot and _hot_moved(hot, places)
                for dim, hot in self.hot.items()
                if dim in places
            },
            units=frozenset(_paired(dict.fromkeys(self.units), places)),
            symmetric=_paired(self.symmetric, places),
            definite=_paired(self.definite, places),
            ranks=_paired(self.ranks, places),
            orthonormal=frozenset(
                (places[a], places[b]) for a, b in self.orthonormal if a in places and b in places
            ),
            kronecker=_paired(self.kronecker, places, lambda sizes: (sizes[1], sizes[0])),
            affine=affine,
        )

    def zeros_only(self) -> MatrixProperties:
        """What it says about zeros alone."""
        return MatrixProperties(bands=self.bands, boxes=self.boxes, is_clean=self.is_clean)

    def within(self, dims: Dims) -> MatrixProperties:
        """Without what says nothing of an array of these dimensions."""
        pairs = {
            pair: band
            for pair, band in self.bands.items()
            if not _covers(band, whole_band(dims, pair))
        }
        trues = {
            pair: band
            for pair, band in self.true_bands.items()
            if not _covers(band, whole_band(dims, pair))
        }
        whole = box_of(dims)
        boxes = self.boxes
        if boxes is not None:
            boxes = tuple(dict.fromkeys(box for box in boxes if all(a < b for a, b in box)))
            if whole in boxes or len(boxes) > _MOST_BOXES:
                boxes = None
        ranks = {
            (p, q): rank
            for (p, q), rank in self.ranks.items()
            if rank < min(dims[p], dims[q]) and p not in self.constant and q not in self.constant
        }
        # Zeros may differ in their signs.
        symmetric = {
            (p, q): False for p, q in pairs if dims[p] == dims[q] and pairs[p, q] == (0, 0)
        }
        return replace(
            self,
            bands=pairs,
            true_bands=trues,
            boxes=boxes,
            ranks=ranks,
            symmetric={**symmetric, **self.symmetric},
        )

    def named(self, dims: Dims) -> Iterable[str]:
        """Each claim in words, of pairs those that are matrices by their sizes."""
        for p, q in combinations(range(len(dims)), 2):
            if dims[p] > 1 and dims[q] > 1:
                words = list(self._of_pair(p, q, dims))
                if words:
                    where = "" if len(dims) == 2 else f" in dimensions {p} and {q}"
                    yield ", ".join(words) + where
        for dim in sorted(self.hot):
            if dims[dim] > 1 and not any(self.is_identity(p, dim) for p in range(len(dims))):
                yield f"one-hot along dimension {dim}"
        for dim in sorted(self.constant):
            if dims[dim] > 1:
                yield f"constant along dimension {dim}"
        if self.boxes:
            share = sum(_elements(box) for box in self.boxes) / max(_elements(box_of(dims)), 1)
            if share < 1:
                blocks = "1 block" if len(self.boxes) == 1 else f"{len(self.boxes)} blocks"
                yield f"zero outside of {blocks}, {share:.0%} of the elements"

    def _of_pair(self, p: int, q: int, dims: Dims) -> Iterable[str]:
        if self.is_identity(p, q):
            yield "identity"
            return
        band = self.bands.get((p, q))
        if band is not None:
            yield _band_words(band, whole_band(dims, (p, q))) + (
                "" if self.is_clean else " (for finite values)"
            )
        if (p, q) in self.definite:
            yield "positive definite" if self.definite[p, q] else "positive semidefinite"
        if (p, q) in self.symmetric and not (band and band == (0, 0)):
            yield "symmetric" if self.symmetric[p, q] else "symmetric but for rounding"
        if (p, q) in self.ranks:
            yield f"of rank {self.ranks[p, q]} at most"
        for along, other in ((p, q), (q, p)):
            if (along, other) in self.orthonormal:
                yield f"orthonormal along dimension {along}"
        if (p, q) in self.kronecker:
            rows, columns = self.kronecker[p, q]
            yield f"a Kronecker product with a right side of {rows} x {columns}"


def _band_words(band: Band, whole: Band) -> str:
    low, high = band
    if low > high:
        return "zero"
    if band == (0, 0):
        return "diagonal"
    if low <= whole[0]:
        return "lower triangular" if high == 0 else f"zero above diagonal {high}"
    if high >= whole[1]:
        return "upper triangular" if low == 0 else f"zero below diagonal {low}"
    return f"banded, diagonals {low} to {high}"


def whole_band(dims: Dims, pair: DimPair) -> Band:
    """All diagonals of a pair."""
    return 1 - dims[pair[0]], dims[pair[1]] - 1


def box_of(dims: Dims) -> Box:
    """All of an array."""
    return tuple((0, size) for size in dims)


def _covers(band: Band, whole: Band) -> bool:
    return band[0] <= whole[0] and band[1] >= whole[1]


def _elements(box: Box) -> int:
    count = 1
    for begin, end in box:
        count *= end - begin
    return count


def _banded(bands: Mapping[DimPair, Band], places: Mapping[int, int]) -> dict[DimPair, Band]:
    return _paired(bands, places, lambda band: (-band[1], -band[0]))


def _paired(
    claims: Mapping[DimPair, _V],
    places: Mapping[int, int],
    swapped: Callable[[_V], _V] = lambda claim: claim,
) -> dict[DimPair, _V]:
    """Claims about pairs, ``swapped`` where the order of the two changes."""
    found: dict[DimPair, _V] = {}
    for (p, q), claim in claims.items():
        if p in places and q in places:
            p, q = places[p], places[q]
            found[min(p, q), max(p, q)] = claim if p < q else swapped(claim)
    return found


def _box_moved(box: Box, places: Mapping[int, int], dims: Dims) -> Box:
    moved = list(box_of(dims))
    for dim, place in places.items():
        moved[place] = box[dim]
    return tuple(moved)


def _hot_moved(hot: HotIndex, places: Mapping[int, int]) -> HotIndex | None:
    """Dimensions of one element may go; where another one does, the index is not known any more."""
    moved: list[int | None] = []
    for dim, place in enumerate(hot.places):
        if place is None or place in places:
            moved.append(None if place is None else places[place])
        elif hot.value.array.dims[dim] == 1:
            moved.append(None)
        else:
            return None
    return HotIndex(hot.value, tuple(moved), hot.offset)


NOTHING: Final = MatrixProperties()
