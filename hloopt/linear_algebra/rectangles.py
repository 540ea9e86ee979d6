"""Rectangles of a product's result, and the instructions that make them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.rewrite.site import Site, row_major
from hloopt.types import ArrayShape, DotDims, PaddingDim, SliceRange

__all__ = ["Interval", "PartsWriter", "Rectangle", "RectangleKind", "size_of"]

Interval: TypeAlias = tuple[int, int]
"""The first index, and the one behind the last."""
RectangleKind: TypeAlias = Literal["zero", "product", "padded", "rows", "columns", "mirrored"]


def size_of(one: Interval) -> int:
    """How many indices there are."""
    return max(one[1] - one[0], 0)


@dataclass(frozen=True)
class Rectangle:
    """A part of the result and how it is made; ``seconds`` and ``flops`` of all that takes."""

    rows: Interval
    columns: Interval
    how: RectangleKind
    seconds: float
    flops: int
    depth: Interval = (0, 0)
    parts: tuple[Rectangle, ...] = ()


class PartsWriter:
    """Makes the instructions of rectangles, each part of an operand once."""

    def __init__(self, dot: Instruction, site: Site) -> None:
        self._dot = dot
        self._site = site
        dims = DotDims.of(dot.attributes)
        lhs, rhs = dot.operands
        self._free = dims.lhs_free(lhs.array.rank)[0], dims.rhs_free(rhs.array.rank)[0]
        self._depth = dims.lhs_contracting[0], dims.rhs_contracting[0]
        self._slices: dict[tuple[Instruction, tuple[Interval, ...]], Instruction] = {}

    def made(self, one: Rectangle) -> Instruction:
        """The value of a rectangle."""
        if one.how == "zero":
            return self._site.splat(self._shape(one.rows, one.columns), 0)
        if one.how == "product":
            sides = [
                self._part(at, free, one.depth) for at, free in enumerate((one.rows, one.columns))
            ]
            return self._site.again(self._dot, *sides, shape=self._shape(one.rows, one.columns))
        parts = [self.made(part) for part in one.parts]
        if one.how == "padded":
            return self._with_zeros(parts[0], one)
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

    def _with_zeros(self, part: Instruction, one: Rectangle) -> Instruction:
        site, (inner,) = self._site, one.parts
        shape = self._shape(one.rows, one.columns)
        around = [PaddingDim(0, 0, 0)] * (shape.rank - 2)
        for within, whole in ((inner.rows, one.rows), (inner.columns, one.columns)):
            around.append(PaddingDim(within[0] - whole[0], whole[1] - within[1], 0))
        zero = site.scalar(shape.dtype.name, 0)
        return site.make("pad", part, zero, shape=shape, padding=tuple(around))

    def _side_by_side(
        self, parts: Sequence[Instruction], one: Rectangle, along: int
    ) -> Instruction:
        return self._concatenated(parts, one.rows, one.columns, along)

    def _concatenated(
        self, parts: Sequence[Instruction], rows: Interval, columns: Interval, along: int
    ) -> Instruction:
        dims = (self._dot.array.rank + along,)
        shape = self._shape(rows, columns)
        return self._site.make("concatenate", *parts, shape=shape, dimensions=dims)

    def _shape(self, rows: Interval, columns: Interval) -> ArrayShape:
        dims = (*self._dot.array.dims[:-2], size_of(rows), size_of(columns))
        return row_major(self._dot.array, dims)

    def _part(self, at: int, free: Interval, depth: Interval) -> Instruction:
        operand = self._dot.operands[at]
        whole = [(0, size) for size in operand.array.dims]
        wanted = list(whole)
        wanted[self._free[at]], wanted[self._depth[at]] = free, depth
        if wanted == whole:
            return operand
        key = operand, tuple(wanted)
        if key not in self._slices:
            shape = row_major(operand.array, tuple(map(size_of, wanted)))
            ranges = tuple(SliceRange(begin, end) for begin, end in wanted)
            self._slices[key] = self._site.make("slice", operand, shape=shape, slice=ranges)
        return self._slices[key]
