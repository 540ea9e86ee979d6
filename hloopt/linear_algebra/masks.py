"""What shows in an instruction that it is zero, sums from zero, or takes the diagonal of a matrix."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.rewrite import splat_literal
from hloopt.rewrite.regions import named_combiner

__all__ = ["compared_dims", "gathered_diagonal", "is_masked", "is_summing"]


def is_summing(reduce: Instruction) -> bool:
    """Whether a reduce adds one array up, from 0."""
    if reduce.opcode != "reduce" or len(reduce.operands) != 2 or not reduce.is_array:
        return False
    return _is_zero(reduce.operands[1]) and named_combiner(reduce.to_apply) == "add"


def _is_zero(value: Instruction) -> bool:
    literal = splat_literal(value)
    return literal is not None and literal.array is not None and not literal.array.any()


def is_masked(select: Instruction) -> bool:
    """Whether a select leaves the diagonal alone, with zeros beside it."""
    return _is_zero(select.operands[2]) and compared_dims(select.operands[0]) is not None


def compared_dims(mask: Instruction) -> tuple[int, int] | None:
    """The two dimensions whose positions a mask finds equal."""
    if mask.opcode == "broadcast":
        inner = compared_dims(mask.operands[0])
        return inner and (int(mask.dimensions[inner[0]]), int(mask.dimensions[inner[1]]))
    if mask.opcode != "compare" or mask.direction != "EQ":
        return None
    one, other = (_counted_dim(operand) for operand in mask.operands)
    if one is None or other is None or mask.array.dims[one] != mask.array.dims[other]:
        return None
    return (one, other) if one != other else None


def _counted_dim(value: Instruction) -> int | None:
    """The dimension whose position an array of integers has in each element."""
    if value.opcode == "iota":
        return int(value.iota_dimension)
    if value.opcode == "broadcast":
        inner = _counted_dim(value.operands[0])
        return None if inner is None else int(value.dimensions[inner])
    if value.opcode == "reshape":
        kept = [dim for dim, size in enumerate(value.array.dims) if size > 1]
        before = value.operands[0].array.dims
        inner = _counted_dim(value.operands[0])
        places = [dim for dim, size in enumerate(before) if size > 1]
        same = [before[dim] for dim in places] == [value.array.dims[dim] for dim in kept]
        return kept[places.index(inner)] if same and inner in places else None
    if value.opcode == "convert" and value.array.dtype.is_integer and value.array.dtype.bits >= 32:
        return _counted_dim(value.operands[0])
    return None


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
