"""Rules for reshape."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.rewrite import Match, Rule, op, var
from hloopt.simplify.data_movement import (
    PASSABLE,
    REORDERED,
    concatenated,
    dimensions,
    in_order,
    is_scalar,
    lies_alike,
    matched_dims,
    moved,
    only_ones_differ,
    paddings,
    reshaped_before,
    unmodified_dimensions,
    with_dims,
)
from hloopt.simplify.predicates import resized, same_dims
from hloopt.types import Dims, PaddingDim, array

__all__ = ["RULES"]

A, B, S = var("A"), var("B"), var("S", is_scalar)


def _broadcast(match: Match, operand: Instruction, dims: Dims) -> Instruction:
    return match.result("broadcast", operand, dimensions=dims)


def _reshaped(match: Match, operand: Instruction, dims: Dims) -> Instruction:
    """The operand with other sizes; what a reshape made is taken from before it."""
    if operand.array.dims == dims:
        return operand
    if operand.opcode == "reshape":
        source = operand.operands[0]
        if lies_alike(source.array, with_dims(source.array, dims)):
            return source
        operand = source
    return match.make("reshape", operand, shape=resized(operand.array, dims))


def _reshape_of_broadcast(match: Match) -> Instruction | None:
    """Broadcast to the new sizes; what has one element and would lose its place is dropped before."""
    inner, source = match.inner, match.A
    if 0 in inner.array.dims:
        return None
    kept = unmodified_dimensions(inner.array.dims, match.array.dims)
    placed = list(zip(dimensions(inner), source.array.dims, strict=True))
    if any(d not in kept and size != 1 for d, size in placed):
        return None
    dims = tuple(size for d, size in placed if d in kept)
    if len(dims) < len(placed):
        if source.array.elements == match.array.elements:
            return match.result("reshape", source) if in_order(dimensions(inner)) else None
        source = _reshaped(match, source, dims)
    return _broadcast(match, source, tuple(kept[d] for d, _ in placed if d in kept))


def _reshape_of_iota(match: Match) -> Instruction | None:
    inner = match.inner
    if 0 in inner.array.dims:
        return None
    kept = unmodified_dimensions(inner.array.dims, match.array.dims)
    dim = inner.iota_dimension
    return match.result("iota", iota_dimension=kept[dim]) if dim in kept else None


def _past_transpose(match: Match) -> Instruction | None:
    """Reshape once, before the transpose, where whole groups of dimensions are what it moves."""
    found = reshaped_before(match, match.T, match.array.dims)
    return None if found is None else match.result("transpose", found[0], dimensions=found[1])


def _undone(match: Match) -> Instruction | None:
    """Compute in the shape that both reshapes come from and go back to."""
    root = match.root

    def back(operand: Instruction) -> Instruction | None:
        if operand.opcode == "reshape":
            source = operand.operands[0]
            return source if lies_alike(source.array, root.array) else None
        if operand.opcode != "broadcast" or 0 in operand.array.dims:
            return None
        kept = unmodified_dimensions(operand.array.dims, root.array.dims)
        if not all(d in kept for d in dimensions(operand)):
            return None
        shape = root.array.with_dtype(operand.array.dtype)
        dims = tuple(kept[d] for d in dimensions(operand))
        return match.make("broadcast", *operand.operands, shape=shape, dimensions=dims)

    return moved(match, match.F, back, undoing="reshape")


def _comes_back(operand: Instruction, dims: Dims) -> bool:
    """Whether reshaping to these sizes undoes a reshape, or is part of a broadcast."""
    if operand.opcode == "reshape":
        return operand.operands[0].array.dims == dims
    return operand.opcode == "broadcast"


def _past_concatenate(match: Match) -> Instruction | None:
    """Only ones come or go, and each operand is a reshape that is undone, or a broadcast."""
    root, inner = match.root, match.F
    before, after = inner.array.dims, root.array.dims
    dimension = concatenated(inner)
    if 0 in before or not only_ones_differ(before, after) or before[dimension] == 1:
        return None
    along = unmodified_dimensions(before, after)[dimension]
    sizes = [
        (*after[:along], operand.array.dims[dimension], *after[along + 1 :])
        for operand in inner.operands
    ]
    if not all(map(_comes_back, inner.operands, sizes)):
        return None
    operands = tuple(
        _reshaped(match, operand, dims) for operand, dims in zip(inner.operands, sizes, strict=True)
    )
    return match.result("concatenate", *operands, dimensions=(along,))


def _past_pad(match: Match) -> Instruction | None:
    """Only ones come or go after a pad, and a reshape before it is merged with this one."""
    root, inner = match.root, match.F
    before, after = inner.array.dims, root.array.dims
    if 0 in before or 0 in match.A.array.dims or not only_ones_differ(before, after):
        return None
    entries = paddings(inner)
    padded = match.A.array.dims
    if any(entries[d] != PaddingDim(0, 0) for d, size in enumerate(before) if size == 1):
        return None
    sizes, moved = [1] * len(after), [PaddingDim(0, 0)] * len(after)
    for old, new in matched_dims(before, after).items():
        sizes[new], moved[new] = padded[old], entries[old]
    source = _reshaped(match, match.A, tuple(sizes))
    return match.result("pad", source, match.B, padding=tuple(moved))


def _past_update(match: Match) -> Instruction | None:
    """Only ones come or go, and operand or update is a reshape that is undone, or a broadcast."""
    root, inner = match.root, match.F
    operand, update, *starts = inner.operands
    before, after = inner.array.dims, root.array.dims
    if 0 in update.array.dims or 0 in before or not only_ones_differ(before, after):
        return None
    if len(starts) != len(before):
        return None
    zero = match.splat(array(starts[0].array.dtype), 0) if len(after) > len(before) else starts[0]
    indices, sizes = [zero] * len(after), [1] * len(after)
    kept = matched_dims(before, after)
    ones = [start for d, start in enumerate(starts) if d not in kept]
    for new in range(len(after)):
        if after[new] == 1:
            indices[new] = ones.pop() if ones else zero
    for old, new in kept.items():
        indices[new], sizes[new] = starts[old], update.array.dims[old]
    if not (_comes_back(operand, after) or _comes_back(update, tuple(sizes))):
        return None
    return match.result(
        "dynamic-update-slice",
        _reshaped(match, operand, after),
        _reshaped(match, update, tuple(sizes)),
        *indices,
    )


RULES = (
    Rule("reshape(A) => A", op("reshape", A), A, when=same_dims),
    Rule("reshape(reshape(A)) => reshape(A)", op("reshape", op("reshape", A)), op("reshape", A)),
    Rule(
        "reshape(scalar) => broadcast(scalar)",
        op("reshape", S),
        op("broadcast", S, dimensions=()),
        when=lambda match: match.array.rank > 0,
    ),
    Rule(
        "reshape(broadcast(A)) => broadcast(A)",
        op("reshape", op("broadcast", A)),
        _reshape_of_broadcast,
    ),
    Rule("reshape(iota) => iota", op("reshape", op("iota")), _reshape_of_iota),
    Rule(
        "reshape(transpose(reshape(A))) => transpose(reshape(A))",
        op("reshape", op("transpose", op("reshape", A)).bind("T").one_use),
        _past_transpose,
    ),
    Rule("reshape(f(reshape(A))) => f(A)", op("reshape", op(PASSABLE).bind("F").one_use), _undone),
    Rule(
        "reshape(concatenate(reshape(A), reshape(B))) => concatenate(A, B)",
        op("reshape", op("concatenate").bind("F").one_use),
        _past_concatenate,
    ),
    Rule(
        "reshape(pad(reshape(A), B)) => pad(reshape(A), B)",
        op("reshape", op("pad", op("reshape").bind("A"), B).bind("F").one_use),
        _past_pad,
    ),
    Rule(
        "reshape(dynamic-update-slice(reshape(A), B, I)) => dynamic-update-slice(A, reshape(B), I)",
        op("reshape", op("dynamic-update-slice").bind("F").one_use),
        _past_update,
    ),
    Rule("reshape(copy(A)) => reshape(A)", op("reshape", REORDERED), op("reshape", A)),
)
