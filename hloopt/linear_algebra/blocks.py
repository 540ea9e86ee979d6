"""Products of triangles, bands and blocks, as products of the parts that are not zero.

A result is cut into rectangles, each of which is one product over the part of the depth in which neither
side is zero: cut by rows where the left side has zeros, by columns where the right one has, and by both
where the result is symmetric, of which one half is then computed and mirrored.  No sum is taken apart: each
element is the sum of the same numbers, less those that are zero.  Rows of a triangle cut into p parts leave
(p + 1) / 2 p of the flops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from hloopt.analysis.matrix_properties import Matrices, MatrixProperties
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.linear_algebra.prices import AlgebraPrices
from hloopt.rewrite.site import Site, row_major
from hloopt.types import ArrayShape, DotDims, SliceRange

__all__ = ["PartedProduct", "block_plan"]

_PARTS: Final = 4
"""Into so many parts a side is cut at most."""
_LEAST: Final = 64
"""Rows of a part."""
_MOST_TIME: Final = 0.9
"""Of what the whole takes: copies of parts cost more or less than the model says."""
Interval: TypeAlias = tuple[int, int]
"""The first index, and the one behind the last."""
_How: TypeAlias = Literal["zero", "product", "rows", "columns", "mirrored"]


@dataclass(frozen=True)
class _Side:
    """Where a factor is zero, by its free dimension and its depth."""

    free: int
    depth: int
    known: MatrixProperties

    @property
    def has_zeros(self) -> bool:
        """Whether anything is known to be zero."""
        return self.known.band(self.free, self.depth) is not None or self.known.boxes is not None

    def cut(self, free: Interval, depth: Interval) -> tuple[Interval, Interval]:
        """The part of a rectangle outside of which it is zero."""
        band = self.known.band(self.free, self.depth)
        if band is not None:
            free = _within(free, (depth[0] - band[1], depth[1] - band[0]))
            depth = _within(depth, (free[0] + band[0], free[1] + band[1]))
        if self.known.boxes is not None:
            met = [
                (one, other)
                for box in self.known.boxes
                if not _is_empty(one := _within(free, box[self.free]))
                and not _is_empty(other := _within(depth, box[self.depth]))
            ]
            free = _around([one for one, _ in met])
            depth = _around([other for _, other in met])
        return free, depth


def _within(one: Interval, other: Interval) -> Interval:
    return max(one[0], other[0]), min(one[1], other[1])


def _is_empty(one: Interval) -> bool:
    return one[0] >= one[1]


def _around(several: Sequence[Interval]) -> Interval:
    return (min(one for one, _ in several), max(end for _, end in several)) if several else (0, 0)


def _size(one: Interval) -> int:
    return max(one[1] - one[0], 0)


@dataclass(frozen=True)
class _Rectangle:
    """A part of the result and how it is made; ``seconds`` and ``flops`` of all that takes."""

    rows: Interval
    columns: Interval
    how: _How
    seconds: float
    flops: int
    depth: Interval = (0, 0)
    parts: tuple[_Rectangle, ...] = ()


@dataclass(frozen=True)
class PartedProduct:
    """A product by its parts; ``before`` is what the whole takes."""

    dot: Instruction
    whole: _Rectangle
    before: tuple[float, int]

    @property
    def gain(self) -> str:
        """For a remark, without the target."""
        return (
            f"{self.before[0] * 1e6:.3g} => {self.whole.seconds * 1e6:.3g} us, "
            f"{self.before[1]:.3g} => {self.whole.flops:.3g} flops"
        )

    def write(self) -> Instruction:
        """Put the parts in the place of the product; what stands there now."""
        site = Site(self.dot)
        return site.replace(_Writer(self.dot, site).made(self.whole))


def block_plan(dot: Instruction, matrices: Matrices, prices: AlgebraPrices) -> PartedProduct | None:
    """The parts of a dot that take less than the whole; None where there are none.

    A dot has one free dimension a side, one contracted one, and any batch.
    """
    # What is put beside others is a part already.
    if any(user.opcode in ("concatenate", "pad") for user in dot.users):
        return None
    search = _Search.of(dot, matrices, prices)
    if search is None:
        return None
    whole, before = search.best(), search.whole()
    if whole.how == "product" or whole.seconds > before.seconds * _MOST_TIME:
        return None
    return PartedProduct(dot, whole, (before.seconds, before.flops))


class _Search:
    """The cheapest rectangles; each is looked at once."""

    def __init__(
        self, dot: Instruction, sides: tuple[_Side, _Side], prices: AlgebraPrices, batch: int
    ) -> None:
        self._sides = sides
        self._prices = prices
        self._batch = batch
        self._depth = dot.operands[0].array.dims[sides[0].depth]
        self._rows, self._columns = dot.array.dims[-2], dot.array.dims[-1]
        self.is_symmetric = False
        self._known: dict[tuple[Interval, Interval, bool], _Rectangle] = {}

    @classmethod
    def of(cls, dot: Instruction, matrices: Matrices, prices: AlgebraPrices) -> _Search | None:
        """None where no parts can be better than the whole."""
        dims = DotDims.of(dot.attributes)
        if len(dot.operands) != 2 or len(dims.lhs_contracting) != 1:
            return None
        lhs, rhs = dot.operands
        left, right = dims.lhs_free(lhs.array.rank), dims.rhs_free(rhs.array.rank)
        if len(left) != 1 or len(right) != 1:
            return None
        sides = (
            _Side(left[0], dims.lhs_contracting[0], matrices.of(lhs)),
            _Side(right[0], dims.rhs_contracting[0], matrices.of(rhs)),
        )
        rank = dot.array.rank
        made = cls(
            dot, sides, prices, dot.array.elements // (dot.array.dims[-1] * dot.array.dims[-2])
        )
        made.is_symmetric = matrices.of(dot).is_symmetric(rank - 2, rank - 1)
        return made if made.is_symmetric or any(side.has_zeros for side in sides) else None

    def whole(self) -> _Rectangle:
        """The product as it is."""
        return self._product((0, self._rows), (0, self._columns), (0, self._depth))

    def best(self) -> _Rectangle:
        """The cheapest way to compute all."""
        return self._best((0, self._rows), (0, self._columns), mirrored=self.is_symmetric)

    def _best(self, rows: Interval, columns: Interval, *, mirrored: bool = False) -> _Rectangle:
        """The cheapest of one product, and of two parts of each side that may be cut."""
        key = rows, columns, mirrored
        found = self._known.get(key)
        if found is None:
            own, depth, others = self._cut(rows, columns)
            if _is_empty(own) or _is_empty(depth) or _is_empty(others):
                seconds = self._moved(_size(rows) * _size(columns))
                found = _Rectangle(rows, columns, "zero", seconds, 0)
            else:
                ways = [self._product(rows, columns, depth)]
                if mirrored:
                    ways += self._mirrored(rows)
                else:
                    ways += self._halved(rows, columns)
                found = min(ways, key=lambda way: way.seconds)
            self._known[key] = found
        return found

    def _cut(self, rows: Interval, columns: Interval) -> tuple[Interval, Interval, Interval]:
        """Rows, depth and columns outside of which there are zeros."""
        depth = (0, self._depth)
        rows, depth = self._sides[0].cut(rows, depth)
        columns, depth = self._sides[1].cut(columns, depth)
        return rows, depth, columns

    def _halved(self, rows: Interval, columns: Interval) -> list[_Rectangle]:
        found: list[_Rectangle] = []
        if self._sides[0].has_zeros or self.is_symmetric:
            found += [
                self._joined(
                    rows, columns, "rows", (self._best(a, columns), self._best(b, columns))
                )
                for a, b in self._two(rows, self._rows, 0)
            ]
        if self._sides[1].has_zeros or self.is_symmetric:
            found += [
                self._joined(rows, columns, "columns", (self._best(rows, a), self._best(rows, b)))
                for a, b in self._two(columns, self._columns, 1)
            ]
        return found

    def _mirrored(self, rows: Interval) -> list[_Rectangle]:
        """Both squares on the diagonal, and what is below it twice."""
        found: list[_Rectangle] = []
        for a, b in self._two(rows, self._rows, 0):
            below = self._best(b, a)
            parts = (self._best(a, a, mirrored=True), below, self._best(b, b, mirrored=True))
            joined = self._joined(rows, rows, "mirrored", parts)
            turned = self._moved(_size(a) * _size(b))
            found.append(
                _Rectangle(
                    rows, rows, "mirrored", joined.seconds + turned, joined.flops, parts=parts
                )
            )
        return found

    def _joined(
        self, rows: Interval, columns: Interval, how: _How, parts: tuple[_Rectangle, ...]
    ) -> _Rectangle:
        seconds = self._moved(_size(rows) * _size(columns)) + sum(part.seconds for part in parts)
        return _Rectangle(
            rows, columns, how, seconds, sum(part.flops for part in parts), parts=parts
        )

    def _product(self, rows: Interval, columns: Interval, depth: Interval) -> _Rectangle:
        """One dot of the parts, which are cut out before where they are not all of an operand."""
        m, n, k = _size(rows), _size(columns), _size(depth)
        seconds = self._prices.matrix_product(self._batch, m, n, k)
        if m * k < self._rows * self._depth:
            seconds += self._moved(m * k)
        if k * n < self._depth * self._columns:
            seconds += self._moved(k * n)
        return _Rectangle(rows, columns, "product", seconds, 2 * self._batch * m * n * k, depth)

    def _two(self, one: Interval, whole: int, at: int) -> list[tuple[Interval, Interval]]:
        """An interval in halves, and at the end of the block next to its middle; no part is too small."""
        least, middle = max(_LEAST, whole // _PARTS), sum(one) // 2
        side = self._sides[at]
        ends = {end for box in side.known.boxes or () for end in box[side.free]}
        near = sorted(ends, key=lambda end: abs(end - middle))[:1]
        return [
            ((one[0], cut), (cut, one[1]))
            for cut in dict.fromkeys((middle, *near))
            if cut - one[0] >= least and one[1] - cut >= least
        ]

    def _moved(self, elements: int) -> float:
        """Of reading and writing so many elements of each matrix of the batch."""
        return 2 * self._prices.elementwise(self._batch * elements)


class _Writer:
    """Makes the instructions of rectangles, each part of an operand once."""

    def __init__(self, dot: Instruction, site: Site) -> None:
        self._dot = dot
        self._site = site
        dims = DotDims.of(dot.attributes)
        lhs, rhs = dot.operands
        self._free = dims.lhs_free(lhs.array.rank)[0], dims.rhs_free(rhs.array.rank)[0]
        self._depth = dims.lhs_contracting[0], dims.rhs_contracting[0]
        self._slices: dict[tuple[int, Interval, Interval], Instruction] = {}

    def made(self, one: _Rectangle) -> Instruction:
        """The value of a rectangle."""
        if one.how == "zero":
            return self._site.splat(self._shape(one.rows, one.columns), 0)
        if one.how == "product":
            sides = [
                self._part(at, free, one.depth) for at, free in enumerate((one.rows, one.columns))
            ]
            return self._site.again(self._dot, *sides, shape=self._shape(one.rows, one.columns))
        parts = [self.made(part) for part in one.parts]
        if one.how != "mirrored":
            return self._side_by_side(parts, one, -2 if one.how == "rows" else -1)
        first, below, last = parts
        rank = below.array.rank
        order = (*range(rank - 2), rank - 1, rank - 2)
        above = self._site.transpose(below, order)
        begin, middle, end = one.rows[0], one.parts[0].rows[1], one.rows[1]
        top = self._concatenated([first, above], (begin, middle), one.columns, -1)
        bottom = self._concatenated([below, last], (middle, end), one.columns, -1)
        return self._side_by_side([top, bottom], one, -2)

    def _side_by_side(
        self, parts: Sequence[Instruction], one: _Rectangle, along: int
    ) -> Instruction:
        return self._concatenated(parts, one.rows, one.columns, along)

    def _concatenated(
        self, parts: Sequence[Instruction], rows: Interval, columns: Interval, along: int
    ) -> Instruction:
        dims = (self._dot.array.rank + along,)
        shape = self._shape(rows, columns)
        return self._site.make("concatenate", *parts, shape=shape, dimensions=dims)

    def _shape(self, rows: Interval, columns: Interval) -> ArrayShape:
        dims = (*self._dot.array.dims[:-2], _size(rows), _size(columns))
        return row_major(self._dot.array, dims)

    def _part(self, at: int, free: Interval, depth: Interval) -> Instruction:
        operand = self._dot.operands[at]
        whole = [(0, size) for size in operand.array.dims]
        wanted = list(whole)
        wanted[self._free[at]], wanted[self._depth[at]] = free, depth
        if wanted == whole:
            return operand
        key = at, free, depth
        if key not in self._slices:
            shape = row_major(operand.array, tuple(map(_size, wanted)))
            ranges = tuple(SliceRange(begin, end) for begin, end in wanted)
            self._slices[key] = self._site.make("slice", operand, shape=shape, slice=ranges)
        return self._slices[key]
