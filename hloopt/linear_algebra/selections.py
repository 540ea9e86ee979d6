"""Products with identities, one-hot rows and diagonal matrices, without a product."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

from hloopt.analysis.matrix_properties import NOTHING, HotIndex, Matrices, MatrixProperties
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.linear_algebra.prices import AlgebraPrices
from hloopt.rewrite.regions import combiner_computation
from hloopt.rewrite.site import Site, row_major
from hloopt.types import DTYPES, ArrayShape, DotDims

__all__ = ["SelectingRule", "Selection", "selecting_rules", "selection"]


@dataclass(frozen=True)
class SelectingRule:
    """A rule by which a matrix selects; ``seconds`` and ``flops`` after it, ``hot`` where the ones are."""

    name: str
    seconds: float
    flops: int
    hot: HotIndex | None = None


class _SideDims(NamedTuple):
    """The dimensions of one side of a dot: of both sides, its own, and those that are summed."""

    batch: tuple[int, ...]
    free: tuple[int, ...]
    depth: tuple[int, ...]


@dataclass(frozen=True)
class Selection:
    """What takes the place of a dot one side of which selects from the other one, or scales it.

    selecting  the place of that side among the operands
    own        its dimensions, and ``others`` those of the other side
    before     seconds of the dot
    way        what takes less
    """

    dot: Instruction
    selecting: int
    own: _SideDims
    others: _SideDims
    before: float
    way: SelectingRule

    @property
    def rule(self) -> str:
        """The equation."""
        return self.way.name

    @property
    def seconds(self) -> tuple[float, float]:
        """Before and after."""
        return self.before, self.way.seconds

    @property
    def other(self) -> Instruction:
        """What is selected from."""
        return self.dot.operands[1 - self.selecting]

    def is_exact(self, matrices: Matrices) -> bool:
        """Whether all bits stay: zeros that are added change nothing, if no sign or infinity meets them.

        Of rows that are added up the order is another one.
        """
        if self.dot.array.dtype.is_integer:
            return True
        if self.rule == _SCATTERED:
            return False
        ranges = [matrices.values.of(self.other)]
        if self.rule == _DIAGONAL:
            ranges.append(matrices.values.of(self.dot.operands[self.selecting]))
        return all(found.is_finite and not found.has_sign for found in ranges)

    def write(self) -> Instruction:
        """Put it in the place of the dot; what stands there now."""
        site = Site(self.dot)
        hot = self.way.hot
        if self.rule == _SCATTERED and hot is not None:
            made = self._scattered(site, hot)
        elif hot is not None:
            made = self._gathered(site, hot)
        else:
            made = site.transpose(self.other, self._order)
            if self.rule == _DIAGONAL:
                made = self._scaled(site, made)
        return site.replace(made)

    @property
    def _order(self) -> tuple[int, ...]:
        """The dimensions of the other side, the contracted one where the free one of the dot is."""
        (depth,), rest = self.others.depth, self.others.free
        return (depth, *rest) if self.selecting == 0 else (*rest, depth)

    @property
    def _batch(self) -> tuple[int, ...]:
        """The dimensions of the result that both sides have."""
        return tuple(range(len(self.own.batch)))

    @property
    def _places(self) -> tuple[int, ...]:
        """Where the selecting side's free dimensions are in the result."""
        first = len(self.own.batch) + (len(self.others.free) if self.selecting else 0)
        return tuple(range(first, first + len(self.own.free)))

    def _scaled(self, site: Site, value: Instruction) -> Instruction:
        """Each row by the element of the diagonal: the sum of a row that has no other."""
        matrix = self.dot.operands[self.selecting]
        dtype = matrix.array.dtype
        (free,) = self.own.free
        shape = row_major(matrix.array, (matrix.array.dims[free],))
        diagonal = site.make(
            "reduce",
            matrix,
            site.scalar(dtype.name, 0),
            shape=shape,
            dimensions=self.own.depth,
            to_apply=combiner_computation(matrix.module, "add", dtype.name),
        )
        spread = site.make("broadcast", diagonal, shape=value.array, dimensions=self._places)
        return site.make("multiply", spread, value, shape=value.array)

    def _scattered(self, site: Site, hot: HotIndex) -> Instruction:
        """Rows added up at the indices; those of no row are left out, as scatter does."""
        dims, other = self.dot.array.dims, self.other
        kept = self.others.free
        # Of the other side all that is no row counts through the indices, in the order it has there.
        along = [dim for dim in range(other.array.rank) if dim not in kept]
        theirs = (*self.others.batch, *self.others.depth)
        own = dict(zip(theirs, (*self.own.batch, *self.own.depth), strict=True))
        places = self._spread_index(site, hot, [own[dim] for dim in along])
        batching = {
            "input_batching_dims": self._batch,
            "scatter_indices_batching_dims": tuple(along.index(dim) for dim in self.others.batch),
        }
        return site.make(
            "scatter",
            site.splat(row_major(other.array, dims), 0),
            places,
            other,
            shape=row_major(other.array, dims),
            update_window_dims=kept,
            inserted_window_dims=self._places,
            scatter_dims_to_operand_dims=self._places,
            index_vector_dim=len(along),
            to_apply=combiner_computation(self.dot.module, "add", other.array.dtype.name),
            **(batching if self._batch else {}),
        )

    def _spread_index(self, site: Site, hot: HotIndex, along: Sequence[int]) -> Instruction:
        """The index with dimensions ``along`` of the selecting side, repeated along those that it lacks."""
        known = [dim for dim in along if dim in hot.places]
        index, dims = hot.value, self.dot.operands[self.selecting].array.dims
        given = [place for place in hot.places if place is not None]
        sizes = tuple(dims[place] for place in given)
        index = site.reshape(index, row_major(index.array, sizes))
        index = site.transpose(index, tuple(given.index(dim) for dim in known))
        if len(known) == len(along):
            return index
        shape = row_major(index.array, tuple(dims[dim] for dim in along))
        places = tuple(along.index(dim) for dim in known)
        return site.make("broadcast", index, shape=shape, dimensions=places)

    def _gathered(self, site: Site, hot: HotIndex) -> Instruction:
        """Rows at the indices, zeros where an index is none of a row."""
        dtype = hot.value.array.dtype
        (depth,) = self.others.depth
        low, high = dtype.limits
        last = self.other.array.dims[depth] - 1 - hot.offset
        first, last = max(-hot.offset, int(low)), min(last, int(high))
        if first > last:
            return site.splat(row_major(self.dot.array, self.dot.array.dims), 0)
        index = self._spread_index(site, hot, (*self.own.batch, *self.own.free))
        ends = [site.scalar(dtype.name, end) for end in (first, last)]
        near = site.make("clamp", ends[0], index, ends[1], shape=index.array)
        counted = ArrayShape(DTYPES["s32"], index.array.dims, index.array.layout)
        places = near if dtype.name == "s32" else site.make("convert", near, shape=counted)
        if hot.offset:
            places = site.make("add", places, site.splat(counted, hot.offset), shape=counted)
        found = self._rows_at(site, places)
        shape = ArrayShape(DTYPES["pred"], index.array.dims, index.array.layout)
        is_one = site.make("compare", near, index, shape=shape, direction="EQ")
        mask = ArrayShape(DTYPES["pred"], found.array.dims, found.array.layout)
        kept = (*self._batch, *self._places)
        spread = site.make("broadcast", is_one, shape=mask, dimensions=kept)
        zeros = site.splat(found.array, 0)
        return site.make("select", spread, found, zeros, shape=found.array)

    def _rows_at(self, site: Site, places: Instruction) -> Instruction:
        """The parts of the other side at these places of the contracted dimension."""
        other, kept = self.other.array, (*self._batch, *self._places)
        dims = self.dot.array.dims
        gone = (*self.others.batch, *self.others.depth)
        batching = {
            "operand_batching_dims": self.others.batch,
            "start_indices_batching_dims": self._batch,
        }
        return site.make(
            "gather",
            self.other,
            places,
            shape=row_major(other, dims),
            offset_dims=tuple(dim for dim in range(len(dims)) if dim not in kept),
            collapsed_slice_dims=self.others.depth,
            start_index_map=self.others.depth,
            index_vector_dim=places.array.rank,
            slice_sizes=tuple(1 if dim in gone else size for dim, size in enumerate(other.dims)),
            **(batching if self._batch else {}),
        )


_IDENTITY = "dot(identity, A) => A"
_ONE_HOT = "dot(one-hot rows, A) => gather(A)"
_SCATTERED = "dot(one-hot columns, A) => scatter(A)"
_DIAGONAL = "dot(diagonal, A) => multiply(diagonal, A)"


def selection(dot: Instruction, matrices: Matrices, prices: AlgebraPrices) -> Selection | None:
    """The cheapest way to compute a dot without a product, if it takes less; None where there is none.

    All element types are the same.
    """
    found = [one for one in _selections(dot, matrices, prices) if one.seconds[1] < one.seconds[0]]
    return min(found, key=lambda one: one.seconds[1], default=None)


def _selections(dot: Instruction, matrices: Matrices, prices: AlgebraPrices) -> Iterator[Selection]:
    dims = DotDims.of(dot.attributes)
    if len(dot.operands) != 2 or not dims.lhs_contracting:
        return
    if any(operand.array.dtype is not dot.array.dtype for operand in dot.operands):
        return
    lhs, rhs = (operand.array for operand in dot.operands)
    sides = (
        _SideDims(dims.lhs_batch, dims.lhs_free(lhs.rank), dims.lhs_contracting),
        _SideDims(dims.rhs_batch, dims.rhs_free(rhs.rank), dims.rhs_contracting),
    )
    for at, side in enumerate(dot.operands):
        known = matrices.of(side)
        if known == NOTHING:
            continue
        own, others = sides[at], sides[1 - at]
        batch, rows, size = (prod(side.array.dims[dim] for dim in part) for part in own)
        columns = prod(dot.operands[1 - at].array.dims[dim] for dim in others.free)
        before = prices.matrix_product(batch, rows, columns, size)
        for way in selecting_rules(known, own, (batch, rows, size, columns), prices):
            yield Selection(dot, at, own, others, before, way)


def selecting_rules(
    known: MatrixProperties,
    own: tuple[Sequence[int], Sequence[int], Sequence[int]],
    sizes: tuple[int, int, int, int],
    prices: AlgebraPrices,
) -> Iterator[SelectingRule]:
    """The rules by which a matrix, or a batch of them, selects from another one.

    own    its batch dimensions, those that come back, and those that are summed
    sizes  how many matrices; rows and columns of each, and the columns of the other one
    """
    batch, free, depth = own
    count, rows, size, columns = sizes
    moved = 2 * prices.elementwise(count * rows * columns)
    if len(free) == len(depth) == 1 and not batch and rows == size:
        if known.is_identity(free[0], depth[0]):
            yield SelectingRule(_IDENTITY, moved, 0)
        elif known.is_diagonal(free[0], depth[0]):
            seconds = prices.sum(rows * size) + moved
            yield SelectingRule(_DIAGONAL, seconds, rows * (size + columns))
    hot = known.hot.get(depth[0]) if len(depth) == 1 else None
    if hot is not None and {None, *batch, *free} >= set(hot.places):
        after = prices.launch + moved + prices.elementwise(count * rows)
        yield SelectingRule(_ONE_HOT, after, count * rows * columns, hot)
    hot = known.hot.get(free[0]) if len(free) == 1 else None
    # An offset could make an index of a row of one that is none.
    if hot is not None and not hot.offset and {None, *batch, *depth} >= set(hot.places):
        # The zeros are written, then each row is read, added to one that is read, and written.
        added = count * size * columns
        after = 2 * prices.launch + moved + 3 * prices.elementwise(added)
        yield SelectingRule(_SCATTERED, after, added, hot)
