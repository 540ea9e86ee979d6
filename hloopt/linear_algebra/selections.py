"""Products with identities, one-hot rows and diagonal matrices, without a product."""

from __future__ import annotations

from collections.abc import Iterator

from hloopt.analysis.matrix_properties import HotIndex, Matrices, MatrixProperties
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


@dataclass(frozen=True)
class Selection:
    """What takes the place of a dot one side of which selects from the other one, or scales it.

    selecting  the place of that side among the operands
    free       its dimension that comes back, and ``depth`` the contracted one; those of the ``other``
    before     seconds of the dot
    way        what takes less
    """

    dot: Instruction
    selecting: int
    free: int
    depth: int
    other_depth: int
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

    @property
    def size(self) -> int:
        """Of the contracted dimension."""
        return self.other.array.dims[self.other_depth]

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
        rest = [dim for dim in range(self.other.array.rank) if dim != self.other_depth]
        return (self.other_depth, *rest) if self.selecting == 0 else (*rest, self.other_depth)

    @property
    def _place(self) -> int:
        """Where the selecting side's free dimension is in the result."""
        return 0 if self.selecting == 0 else self.dot.array.rank - 1

    def _scaled(self, site: Site, value: Instruction) -> Instruction:
        """Each row by the element of the diagonal: the sum of a row that has no other."""
        matrix = self.dot.operands[self.selecting]
        dtype = matrix.array.dtype
        shape = row_major(matrix.array, (matrix.array.dims[self.free],))
        diagonal = site.make(
            "reduce",
            matrix,
            site.scalar(dtype.name, 0),
            shape=shape,
            dimensions=(self.depth,),
            to_apply=combiner_computation(matrix.module, "add", dtype.name),
        )
        spread = site.make("broadcast", diagonal, shape=value.array, dimensions=(self._place,))
        return site.make("multiply", spread, value, shape=value.array)

    def _scattered(self, site: Site, hot: HotIndex) -> Instruction:
        """Rows added up at the indices; those of no row are left out, as scatter does."""
        places = self._spread_index(site, hot)
        dims = self.dot.array.dims
        return site.make(
            "scatter",
            site.splat(row_major(self.other.array, dims), 0),
            places,
            site.transpose(self.other, self._order),
            shape=row_major(self.other.array, dims),
            update_window_dims=tuple(dim for dim in range(len(dims)) if dim != self._place),
            inserted_window_dims=(self._place,),
            scatter_dims_to_operand_dims=(self._place,),
            index_vector_dim=1,
            to_apply=combiner_computation(self.dot.module, "add", self.other.array.dtype.name),
        )

    def _spread_index(self, site: Site, hot: HotIndex) -> Instruction:
        """An index for each row of the selecting side, or, of what is scattered, of the other one."""
        index = hot.value
        along = self.depth if self.rule == _SCATTERED else self.free
        rows = self.dot.operands[self.selecting].array.dims[along]
        flat = site.reshape(index, row_major(index.array, (index.array.elements,)))
        if index.array.elements != rows:
            scalar = site.reshape(flat, row_major(index.array, ()))
            flat = site.fill(row_major(index.array, (rows,)), scalar)
        return flat

    def _gathered(self, site: Site, hot: HotIndex) -> Instruction:
        """Rows at the indices, zeros where an index is none of a row."""
        dtype = hot.value.array.dtype
        rows = self.dot.operands[self.selecting].array.dims[self.free]
        low, high = dtype.limits
        first, last = max(-hot.offset, int(low)), min(self.size - 1 - hot.offset, int(high))
        if first > last:
            return site.splat(row_major(self.dot.array, self.dot.array.dims), 0)
        flat = self._spread_index(site, hot)
        ends = [site.scalar(dtype.name, end) for end in (first, last)]
        near = site.make("clamp", ends[0], flat, ends[1], shape=flat.array)
        counted = ArrayShape(DTYPES["s32"], (rows,), flat.array.layout)
        places = near if dtype.name == "s32" else site.make("convert", near, shape=counted)
        if hot.offset:
            places = site.make("add", places, site.splat(counted, hot.offset), shape=counted)
        found = self._rows_at(site, places)
        shape = ArrayShape(DTYPES["pred"], (rows,), flat.array.layout)
        is_one = site.make("compare", near, flat, shape=shape, direction="EQ")
        mask = ArrayShape(DTYPES["pred"], found.array.dims, found.array.layout)
        spread = site.make("broadcast", is_one, shape=mask, dimensions=(self._place,))
        zeros = site.splat(found.array, 0)
        return site.make("select", spread, found, zeros, shape=found.array)

    def _rows_at(self, site: Site, places: Instruction) -> Instruction:
        """The parts of the other side at these places of the contracted dimension."""
        other = self.other.array
        dims = self.dot.array.dims
        return site.make(
            "gather",
            self.other,
            places,
            shape=row_major(other, dims),
            offset_dims=tuple(dim for dim in range(len(dims)) if dim != self._place),
            collapsed_slice_dims=(self.other_depth,),
            start_index_map=(self.other_depth,),
            index_vector_dim=1,
            slice_sizes=tuple(
                1 if dim == self.other_depth else size for dim, size in enumerate(other.dims)
            ),
        )


_IDENTITY = "dot(identity, A) => A"
_ONE_HOT = "dot(one-hot rows, A) => gather(A)"
_SCATTERED = "dot(one-hot columns, A) => scatter(A)"
_DIAGONAL = "dot(diagonal, A) => multiply(diagonal, A)"


def selection(dot: Instruction, matrices: Matrices, prices: AlgebraPrices) -> Selection | None:
    """The cheapest way to compute a dot without a product, if it takes less; None where there is none.

    One side is a matrix, there are no batch dimensions, and all element types are the same.
    """
    found = [one for one in _selections(dot, matrices, prices) if one.seconds[1] < one.seconds[0]]
    return min(found, key=lambda one: one.seconds[1], default=None)


def _selections(dot: Instruction, matrices: Matrices, prices: AlgebraPrices) -> Iterator[Selection]:
    dims = DotDims.of(dot.attributes)
    if len(dot.operands) != 2 or len(dims.lhs_contracting) != 1 or dims.lhs_batch:
        return
    if any(operand.array.dtype is not dot.array.dtype for operand in dot.operands):
        return
    contracted = dims.lhs_contracting[0], dims.rhs_contracting[0]
    for at, side in enumerate(dot.operands):
        if side.array.rank != 2:
            continue
        depth, other = contracted[at], dot.operands[1 - at].array
        rows, size = side.array.dims[1 - depth], side.array.dims[depth]
        sizes = (rows, size, other.elements // max(size, 1))
        before = prices.matrix_product(1, rows, sizes[2], size)
        for way in selecting_rules(matrices.of(side), 1 - depth, sizes, prices):
            yield Selection(dot, at, 1 - depth, depth, contracted[1 - at], before, way)


def selecting_rules(
    known: MatrixProperties, free: int, sizes: tuple[int, int, int], prices: AlgebraPrices
) -> Iterator[SelectingRule]:
    """The rules by which a matrix of two dimensions selects from another one.

    free   its dimension that comes back; the other one is summed
    sizes  rows and columns of it, and the columns of the other matrix
    """
    rows, size, columns = sizes
    depth = 1 - free
    moved = 2 * prices.elementwise(rows * columns)
    if rows == size and known.is_identity(free, depth):
        yield SelectingRule(_IDENTITY, moved, 0)
    elif rows == size and known.is_diagonal(free, depth):
        yield SelectingRule(_DIAGONAL, prices.sum(rows * size) + moved, rows * (size + columns))
    hot = known.hot.get(depth)
    if hot is not None and all(place in (None, free) for place in hot.places):
        after = prices.launch + moved + prices.elementwise(rows)
        yield SelectingRule(_ONE_HOT, after, rows * columns, hot)
    hot = known.hot.get(free)
    # An offset could make an index of a row of one that is none.
    if hot is not None and not hot.offset and all(place in (None, depth) for place in hot.places):
        # The zeros are written, then each row is read, added to one that is read, and written.
        after = 2 * prices.launch + moved + 3 * prices.elementwise(size * columns)
        yield SelectingRule(_SCATTERED, after, size * columns, hot)
