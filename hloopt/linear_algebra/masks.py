"""What shows in an instruction that it is zero, sums from zero, or takes a diagonal; masks that are made."""

from __future__ import annotations

from typing import Final

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.rewrite import splat_literal
from hloopt.rewrite.regions import combiner_computation, named_combiner
from hloopt.rewrite.site import Site, row_major
from hloopt.types import DTYPES, ArrayShape, Dims

__all__ = [
    "SlicedDiagonal",
    "compared",
    "compared_dims",
    "diagonal_of",
    "gathered_diagonal",
    "is_masked",
    "is_summing",
    "is_zero",
    "sliced_diagonal",
    "where_places",
]

_KEEPING: Final = frozenset({"broadcast", "convert", "reshape"})
_MOST_VIEWS: Final = 16
_LEAST_BITS: Final = 32
"""Of integers that hold every position."""


def is_summing(reduce: Instruction) -> bool:
    """Whether a reduce adds one array up, from 0."""
    if reduce.opcode != "reduce" or len(reduce.operands) != 2 or not reduce.is_array:
        return False
    return is_zero(reduce.operands[1]) and named_combiner(reduce.to_apply) == "add"


def is_zero(value: Instruction) -> bool:
    """Whether all elements are the same zero."""
    literal = splat_literal(value)
    return literal is not None and literal.array is not None and not literal.array.any()


def is_masked(select: Instruction) -> bool:
    """Whether a select leaves the diagonal alone, with zeros beside it."""
    return is_zero(select.operands[2]) and compared_dims(select.operands[0]) is not None


def compared_dims(mask: Instruction) -> tuple[int, int] | None:
    """The two dimensions whose positions a mask finds equal."""
    found = compared(mask)
    return found[:2] if found is not None and found[2] == "EQ" else None


def compared(mask: Instruction) -> tuple[int, int, str] | None:
    """The two dimensions whose positions a mask compares, and in which direction."""
    if mask.opcode == "broadcast":
        inner = mask.operands[0]
        found = compared(inner) if inner.opcode == "compare" else None
        return found and (
            int(mask.dimensions[found[0]]),
            int(mask.dimensions[found[1]]),
            found[2],
        )
    if mask.opcode != "compare":
        return None
    one, other = (_counted_dim(operand) for operand in mask.operands)
    if one is None or other is None or mask.array.dims[one] != mask.array.dims[other]:
        return None
    return (one, other, str(mask.direction)) if one != other else None


def _counted_dim(value: Instruction) -> int | None:
    """The dimension whose position an array of integers has in each element."""
    views: list[Instruction] = []
    while value.opcode != "iota":
        if value.opcode not in _KEEPING or len(views) == _MOST_VIEWS:
            return None
        views.append(value)
        value = value.operands[0]
    if not value.array.dtype.is_integer or value.array.dtype.bits < _LEAST_BITS:
        return None
    found: int | None = int(value.iota_dimension)
    for view in reversed(views):
        if found is not None:
            found = _dim_after(view, found)
    return found


def _dim_after(view: Instruction, dim: int) -> int | None:
    """Where a dimension of the operand is; None where it is not kept as it is."""
    if view.opcode == "broadcast":
        return int(view.dimensions[dim])
    if view.opcode == "convert":
        kind = view.array.dtype
        return dim if kind.is_integer and kind.bits >= _LEAST_BITS else None
    before, after = (
        [(place, size) for place, size in enumerate(shape.dims) if size > 1]
        for shape in (view.operands[0].array, view.array)
    )
    if [size for _, size in before] != [size for _, size in after]:
        return None
    places = [place for place, _ in before]
    return after[places.index(dim)][0] if dim in places else None


def gathered_diagonal(gather: Instruction) -> dict[int, int] | None:
    """Where in a gather's result each dimension of its operand is, where all indices are positions.

    None for gathers of another kind: those of windows, or of indices that are computed.
    """
    operand, indices = gather.operands
    attributes = gather.attributes
    rank, vector = gather.array.rank, int(attributes["index_vector_dim"])
    offsets = tuple(attributes["offset_dims"])
    batch = [dim for dim in range(rank) if dim not in offsets]
    # Where a dimension of the indices is in the result.
    rest = [dim for dim in range(indices.array.rank) if dim != vector]
    place = dict(zip(rest, batch, strict=True))
    found: dict[int, int] = {}
    for dim, other in zip(
        attributes.get("operand_batching_dims", ()),
        attributes.get("start_indices_batching_dims", ()),
        strict=True,
    ):
        found[dim] = place[other]
    parts = _components(indices, vector)
    start = tuple(attributes["start_index_map"])
    if parts is None or len(parts) != len(start):
        return None
    for dim, counted in zip(start, parts, strict=True):
        if counted not in place or attributes["slice_sizes"][dim] != 1:
            return None
        if dim not in attributes["collapsed_slice_dims"]:
            return None
        found[dim] = place[counted]
    whole = [dim for dim in range(operand.array.rank) if dim not in found]
    if any(attributes["slice_sizes"][dim] != operand.array.dims[dim] for dim in whole):
        return None
    if len(whole) != len(offsets):
        return None
    found |= dict(zip(whole, offsets, strict=True))
    fits = all(operand.array.dims[dim] == gather.array.dims[at] for dim, at in found.items())
    return found if fits else None


@dataclass(frozen=True)
class SlicedDiagonal:
    """Dimensions ``dim`` and ``dim + 1`` of a matrix at equal indices, from row and column ``start`` on."""

    dim: int
    start: tuple[int, int]


def sliced_diagonal(value: Instruction) -> SlicedDiagonal | None:
    """The diagonal that a slice takes of ``reshape(matrix)``: of n columns every (n + 1)th element of its rows.

    None for other slices.
    """
    flat, ranges = value.operands[0], value.attributes["slice"]
    cut = [at for at, part in enumerate(ranges) if part.size != flat.array.dims[at]]
    if len(cut) != 1 or flat.opcode != "reshape":
        return None
    (dim,) = cut
    before, after, part = flat.operands[0].array.dims, flat.array.dims, ranges[dim]
    if len(before) != len(after) + 1 or before[:dim] + before[dim + 2 :] != _without(after, dim):
        return None
    rows, columns = before[dim : dim + 2]
    row, column = divmod(part.start, columns)
    is_within = row + part.size <= rows and column + part.size <= columns
    return SlicedDiagonal(dim, (row, column)) if is_within and part.stride == columns + 1 else None


def _without(dims: Dims, dim: int) -> Dims:
    return dims[:dim] + dims[dim + 1 :]


def _components(indices: Instruction, vector: int) -> list[int] | None:
    """The dimension that each component of the index vectors counts along."""
    pieces = indices.operands if indices.opcode == "concatenate" else (indices,)
    if indices.opcode == "concatenate" and tuple(indices.dimensions) != (vector,):
        return None
    found: list[int] = []
    for piece in pieces:
        counted = _counted_dim(piece)
        if counted is None or counted == vector:
            return None
        found += [counted] * (piece.array.dims[vector] if vector < piece.array.rank else 1)
    return found


def where_places(
    site: Site, like: ArrayShape, places: tuple[int, int], direction: str
) -> Instruction:
    """A pred of the dimensions of ``like``: whether the index of one is in a relation to that of the other."""
    counted = ArrayShape(DTYPES["s32"], like.dims, like.layout)
    counts = [site.make("iota", shape=counted, iota_dimension=place) for place in places]
    mask = ArrayShape(DTYPES["pred"], like.dims, like.layout)
    return site.make("compare", *counts, shape=mask, direction=direction)


def diagonal_of(site: Site, matrix: Instruction) -> Instruction:
    """The diagonals [batch, n] of matrices [batch, n, n]: sums of rows in which nothing else is left."""
    shape = matrix.array
    rank, name = shape.rank, shape.dtype.name
    mask = where_places(site, shape, (rank - 2, rank - 1), "EQ")
    alone = site.make("select", mask, matrix, site.splat(shape, 0), shape=shape)
    return site.make(
        "reduce",
        alone,
        site.scalar(name, 0),
        shape=row_major(shape, shape.dims[:-1]),
        dimensions=(rank - 1,),
        to_apply=combiner_computation(matrix.module, "add", name),
    )
