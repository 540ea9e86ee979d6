"""Products of triangles, bands and blocks, as products of the parts that are not zero.

A result is cut into rectangles, each of which is one product over the part of the depth in which neither
side is zero: cut by rows where the left side has zeros, by columns where the right one has, and by both
where the result is symmetric, of which one half is then computed and mirrored.  What a mask makes zero
afterwards is not computed either.  No sum is taken apart: each element is the sum of the same numbers, less
those that are zero.  Rows of a triangle cut into p parts leave (p + 1) / 2 p of the flops.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from hloopt.analysis.matrix_properties import NOTHING, Matrices, MatrixProperties
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.linear_algebra.prices import AlgebraPrices, gained_time
from hloopt.linear_algebra.rectangles import (
    Interval,
    PartsWriter,
    Rectangle,
    RectangleKind,
    size_of,
)
from hloopt.numbers import amount
from hloopt.rewrite.site import Site
from hloopt.types import DotDims

__all__ = ["BlockSide", "PartedProduct", "block_plan", "parts_of"]

_PARTS: Final = 4
"""Into so many parts a side is cut at most."""
_LEAST: Final = 128
"""Rows of a part."""
_MOST_TIME: Final = 0.9
"""Of what the whole takes: copies of parts cost more or less than the model says."""


@dataclass(frozen=True)
class BlockSide:
    """Where a factor is zero, by its free dimension and its depth; of the result, by rows and columns."""

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


@dataclass(frozen=True)
class PartedProduct:
    """A product by its parts; ``before`` is what the whole takes."""

    dot: Instruction
    whole: Rectangle
    before: tuple[float, int]

    @property
    def gain(self) -> str:
        """For a remark, without the target."""
        return (
            f"{gained_time(self.before[0], self.whole.seconds)}, "
            f"{amount(self.before[1])} => {amount(self.whole.flops)} flops"
        )

    def write(self) -> Instruction:
        """Put the parts in the place of the product; what stands there now."""
        site = Site(self.dot)
        return site.replace(PartsWriter(self.dot, site).made(self.whole))


def block_plan(dot: Instruction, matrices: Matrices, prices: AlgebraPrices) -> PartedProduct | None:
    """The parts of a dot that take less than the whole; None where there are none.

    A dot has one free dimension a side, one contracted one, and any batch.
    """
    search = _Search.of(dot, matrices, prices)
    if search is None:
        return None
    whole, before = search.better(), search.whole()
    if whole is None:
        return None
    return PartedProduct(dot, whole, (before.seconds, before.flops))


def parts_of(
    sizes: tuple[int, int, int, int],
    sides: tuple[BlockSide, BlockSide],
    prices: AlgebraPrices,
    *,
    is_symmetric: bool,
) -> Rectangle | None:
    """The same of a product that is not written yet, of ``sizes`` batch, rows, columns and depth."""
    search = _Search(sizes, sides, BlockSide(0, 1, NOTHING), prices, is_symmetric=is_symmetric)
    return search.better() if search.has_parts else None


def _left_of(dot: Instruction, matrices: Matrices) -> MatrixProperties:
    """Zeros where the only reader of a product, a select, takes the other value; nothing of any other."""
    users = list(dict.fromkeys(dot.users))
    if len(users) == 1 and users[0].opcode == "select" and not dot.is_root:
        mask, on_true, on_false = users[0].operands
        if mask.array.rank == dot.array.rank and on_true is not on_false:
            known = matrices.of(mask)
            return (
                known.zeros_only() if dot is on_true else MatrixProperties(bands=known.true_bands)
            )
    return MatrixProperties()


class _Search:
    """The cheapest rectangles; each is looked at once."""

    def __init__(
        self,
        sizes: tuple[int, int, int, int],
        sides: tuple[BlockSide, BlockSide],
        result: BlockSide,
        prices: AlgebraPrices,
        *,
        is_symmetric: bool,
    ) -> None:
        self._sides = sides
        self._result = result
        self._prices = prices
        self._batch, self._rows, self._columns, self._depth = sizes
        # A mask that leaves one half makes the other one needless.
        self.is_symmetric = is_symmetric and not result.has_zeros
        self._known: dict[tuple[Interval, Interval, bool], Rectangle] = {}

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
            BlockSide(left[0], dims.lhs_contracting[0], matrices.of(lhs)),
            BlockSide(right[0], dims.rhs_contracting[0], matrices.of(rhs)),
        )
        rank, (*batch, rows, columns) = dot.array.rank, dot.array.dims
        sizes = (prod(batch), rows, columns, lhs.array.dims[dims.lhs_contracting[0]])
        result = BlockSide(rank - 2, rank - 1, _left_of(dot, matrices))
        is_symmetric = matrices.of(dot).is_symmetric(rank - 2, rank - 1)
        made = cls(sizes, sides, result, prices, is_symmetric=is_symmetric)
        return made if made.has_parts else None

    @property
    def has_parts(self) -> bool:
        """Whether anything is known by which parts could be better than the whole."""
        return self.is_symmetric or any(side.has_zeros for side in (*self._sides, self._result))

    def whole(self) -> Rectangle:
        """The product as it is."""
        return self._product((0, self._rows), (0, self._columns), (0, self._depth))

    def better(self) -> Rectangle | None:
        """The cheapest way to compute all by parts; None where the whole takes as little."""
        found, whole = (
            self._best((0, self._rows), (0, self._columns), mirrored=self.is_symmetric),
            self.whole(),
        )
        if found.flops >= whole.flops or found.seconds > whole.seconds * _MOST_TIME:
            return None
        return found

    def _best(self, rows: Interval, columns: Interval, *, mirrored: bool = False) -> Rectangle:
        """The cheapest of one product, and of two parts of each side that may be cut."""
        key = rows, columns, mirrored
        found = self._known.get(key)
        if found is None:
            own, depth, others = self._cut(rows, columns)
            if _is_empty(own) or _is_empty(depth) or _is_empty(others):
                seconds = self._moved(size_of(rows) * size_of(columns))
                found = Rectangle(rows, columns, "zero", seconds, 0)
            else:
                ways = [self._product(rows, columns, depth)]
                if (own, others) != (rows, columns):
                    ways.append(self._padded(rows, columns, self._product(own, others, depth)))
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
        rows, columns = self._result.cut(rows, columns)
        return rows, depth, columns

    def _halved(self, rows: Interval, columns: Interval) -> list[Rectangle]:
        found: list[Rectangle] = []
        is_cut = self.is_symmetric or self._result.has_zeros
        if self._sides[0].has_zeros or is_cut:
            found += [
                self._joined(
                    rows, columns, "rows", (self._best(a, columns), self._best(b, columns))
                )
                for a, b in self._two(rows, self._rows, 0)
            ]
        if self._sides[1].has_zeros or is_cut:
            found += [
                self._joined(rows, columns, "columns", (self._best(rows, a), self._best(rows, b)))
                for a, b in self._two(columns, self._columns, 1)
            ]
        return found

    def _mirrored(self, rows: Interval) -> list[Rectangle]:
        """Both squares on the diagonal, and what is below it twice."""
        found: list[Rectangle] = []
        for a, b in self._two(rows, self._rows, 0):
            below = self._best(b, a)
            parts = (self._best(a, a, mirrored=True), below, self._best(b, b, mirrored=True))
            joined = self._joined(rows, rows, "mirrored", parts)
            sides = size_of(a) * size_of(b), self._rows * self._columns
            turned = self._prices.mirrored(*(self._batch * side for side in sides))
            found.append(
                Rectangle(
                    rows, rows, "mirrored", joined.seconds + turned, joined.flops, parts=parts
                )
            )
        return found

    def _joined(
        self, rows: Interval, columns: Interval, how: RectangleKind, parts: tuple[Rectangle, ...]
    ) -> Rectangle:
        seconds = self._moved(size_of(rows) * size_of(columns)) + sum(
            part.seconds for part in parts
        )
        return Rectangle(
            rows, columns, how, seconds, sum(part.flops for part in parts), parts=parts
        )

    def _padded(self, rows: Interval, columns: Interval, part: Rectangle) -> Rectangle:
        """A product with zeros around it."""
        seconds = part.seconds + self._moved(size_of(rows) * size_of(columns))
        return Rectangle(rows, columns, "padded", seconds, part.flops, parts=(part,))

    def _product(self, rows: Interval, columns: Interval, depth: Interval) -> Rectangle:
        """One dot of the parts, which are cut out before where they are not all of an operand."""
        m, n, k = size_of(rows), size_of(columns), size_of(depth)
        seconds = self._prices.matrix_product(self._batch, m, n, k)
        if m * k < self._rows * self._depth:
            seconds += self._moved(m * k)
        if k * n < self._depth * self._columns:
            seconds += self._moved(k * n)
        return Rectangle(rows, columns, "product", seconds, 2 * self._batch * m * n * k, depth)

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
