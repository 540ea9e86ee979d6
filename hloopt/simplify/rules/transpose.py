"""Rules for transpose."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.rewrite import Match, Rule, op, own_attributes, same_op, variables
from hloopt.simplify.data_movement import (
    PASSABLE,
    REORDERED,
    dimensions,
    in_order,
    keeps_places,
    lies_alike,
    moved,
    reshaped_before,
)
from hloopt.simplify.predicates import exact_or_fast, resized
from hloopt.types import Dims, DotDims, inverse_permutation, record_of

__all__ = ["RULES"]

A, B = variables("A B")


def _composed(inner: Dims, outer: Dims) -> Dims:
    return tuple(inner[d] for d in outer)


def _transpose(match: Match, operand: Instruction, permutation: Dims) -> Instruction:
    return match.result("transpose", operand, dimensions=permutation)


def _moved(broadcast: Instruction, permutation: Dims) -> Dims:
    """Where a transpose takes the dimensions of a broadcast."""
    place = {old: new for new, old in enumerate(permutation)}
    return tuple(place[d] for d in dimensions(broadcast))


def _transpose_of_broadcast(match: Match) -> Instruction | None:
    dims = _moved(match.inner, dimensions(match.root))
    return match.result("broadcast", match.A, dimensions=dims) if in_order(dims) else None


def _transpose_before_broadcast(match: Match) -> Instruction | None:
    """Move the few elements that are repeated afterwards."""
    source, dims = match.A.array, _moved(match.inner, dimensions(match.root))
    if in_order(dims) or source.elements >= match.array.elements:
        return None
    permutation = inverse_permutation(dims)
    sizes = tuple(source.dims[d] for d in permutation)
    small = match.make("transpose", match.A, shape=resized(source, sizes), dimensions=permutation)
    return match.result("broadcast", small, dimensions=tuple(sorted(dims)))


def _transpose_of_iota(match: Match) -> Instruction:
    dimension = match.inner.iota_dimension
    return match.result("iota", iota_dimension=dimensions(match.root).index(dimension))


def _transpose_is_reshape(match: Match) -> Instruction | None:
    moved = tuple(d for d in dimensions(match.root) if match.A.array.dims[d] != 1)
    return match.result("reshape", match.A) if in_order(moved) else None


def _past_reshape(match: Match) -> Instruction | None:
    """Transpose once, after the reshape, where whole groups of dimensions are what it moves."""
    found = reshaped_before(match, match.T, match.R.array.dims)
    if found is None:
        return None
    source, permutation = found
    return _transpose(match, source, _composed(permutation, dimensions(match.root)))


def _undone(match: Match) -> Instruction | None:
    """Compute in the order that both transposes come from and go back to."""
    root, permutation = match.root, dimensions(match.root)

    def back(operand: Instruction) -> Instruction | None:
        if operand.opcode == "transpose":
            turned, source = _composed(dimensions(operand), permutation), operand.operands[0]
            comes_back = turned == tuple(range(len(turned)))
            return source if comes_back and lies_alike(source.array, root.array) else None
        if operand.opcode != "broadcast":
            return None
        dims = _moved(operand, permutation)
        if list(dims) != sorted(dims):
            return None
        shape = root.array.with_dtype(operand.array.dtype)
        return match.make("broadcast", *operand.operands, shape=shape, dimensions=dims)

    return moved(match, match.F, back, undoing="transpose")


def _swapped_dot(match: Match) -> Instruction | None:
    """The transpose puts the right side's dimensions before the left side's, and moves nothing else."""
    dot = match.D
    dims, permutation = DotDims.of(dot.attributes), dimensions(match.root)
    batch = len(dims.lhs_batch)
    left = match.A.array.rank - batch - len(dims.lhs_contracting)
    total = dot.array.rank
    swapped = (*range(batch), *range(batch + left, total), *range(batch, batch + left))
    if permutation != swapped:
        return None
    attributes = own_attributes(dot)
    for name in ("batch_dims", "contracting_dims"):
        pair = {side: attributes.pop(f"{side}_{name}", None) for side in ("lhs", "rhs")}
        for side, other in (("lhs", "rhs"), ("rhs", "lhs")):
            if pair[other] is not None:
                attributes[f"{side}_{name}"] = pair[other]
    if len(set(record_of(attributes, "operand_precision", tuple) or ())) > 1:
        return match.refuse("the operands of the dot have different precisions")
    if unknown := attributes.keys() - _SWAPPED:
        return match.refuse(f"the dot has {', '.join(sorted(unknown))}")
    return match.result("dot", match.B, match.A, **attributes)


_SWAPPED = {
    "lhs_batch_dims",
    "rhs_batch_dims",
    "lhs_contracting_dims",
    "rhs_contracting_dims",
    "operand_precision",
    "algorithm",
}


RULES = (
    Rule("transpose(A) => A", op("transpose", A).where(keeps_places), A),
    Rule(
        "transpose(transpose(A)) => transpose(A)",
        op("transpose", op("transpose", A)),
        lambda match: _transpose(
            match, match.A, _composed(dimensions(match.inner), dimensions(match.root))
        ),
    ),
    Rule(
        "transpose(broadcast(A)) => broadcast(A)",
        op("transpose", op("broadcast", A)),
        _transpose_of_broadcast,
    ),
    Rule(
        "transpose(broadcast(A)) => broadcast(transpose(A))",
        op("transpose", op("broadcast", A)),
        _transpose_before_broadcast,
    ),
    Rule("transpose(iota) => iota", op("transpose", op("iota")), _transpose_of_iota),
    Rule("transpose(A) => reshape(A)", op("transpose", A), _transpose_is_reshape),
    Rule(
        "transpose(reshape(transpose(A))) => transpose(reshape(A))",
        op("transpose", op("reshape", op("transpose", A).bind("T")).bind("R").one_use),
        _past_reshape,
    ),
    Rule(
        "transpose(f(transpose(A))) => f(A)",
        op("transpose", op(PASSABLE).bind("F").one_use),
        _undone,
    ),
    Rule(
        "transpose(dot(A, B)) => dot(B, A)",
        op("transpose", op("dot", A, B).bind("D").one_use),
        _swapped_dot,
        when=exact_or_fast,
    ),
    Rule("transpose(copy(A)) => transpose(A)", op("transpose", REORDERED), same_op(A)),
)
