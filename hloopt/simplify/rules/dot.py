"""Rules for dot; passes/dots has what changes its form."""

from __future__ import annotations

from dataclasses import replace

from hloopt.ir import Instruction
from hloopt.rewrite import Match, Rule, op, var, variables
from hloopt.rewrite.dimension_numbers import dot_attributes
from hloopt.rewrite.regions import named_combiner
from hloopt.simplify.data_movement import in_order
from hloopt.simplify.predicates import exact_or_fast, exact_or_real, resized, scalar_value
from hloopt.simplify.rules.reduce import fold, is_plain, reduced_dims
from hloopt.types import Dims, DotDims, SliceRange, inverse_permutation

__all__ = ["RULES"]

A, B, C = variables("A B C")
_MOST_PIECES = 4


def _contracts_nothing(match: Match) -> Instruction | None:
    lhs, dims = match.inner, DotDims.of(match.root.attributes)
    if all(lhs.array.dims[d] for d in dims.lhs_contracting) or not match.array.elements:
        return None
    return match.full(0)


def _one_type(dot: Instruction) -> bool:
    return all(operand.array.dtype is dot.array.dtype for operand in dot.operands)


def _sums(match: Match) -> bool:
    """Whether the root adds up, from 0, what one dot gives to it alone."""
    root, dot, zero = match.root, match.inner, scalar_value(match.root.operands[1])
    return (
        is_plain(root)
        and named_combiner(root.to_apply) == "add"
        and zero is not None
        and not complex(zero)
        and _one_type(dot)
        and len(dot.users) == 1
    )


def _sum_of_batch(match: Match) -> Instruction | None:
    """The sum over batch dimensions of a dot contracts them as well."""
    root, dot = match.root, match.inner
    dims, summed = DotDims.of(dot.attributes), reduced_dims(root)
    if not summed or any(dim >= len(dims.lhs_batch) for dim in summed):
        return None
    if not exact_or_real(match):
        return match.refuse("floats would be added in another order")
    kept = [place for place in range(len(dims.lhs_batch)) if place not in summed]
    changed = DotDims(
        (*dims.lhs_contracting, *(dims.lhs_batch[dim] for dim in summed)),
        (*dims.rhs_contracting, *(dims.rhs_batch[dim] for dim in summed)),
        tuple(dims.lhs_batch[dim] for dim in kept),
        tuple(dims.rhs_batch[dim] for dim in kept),
    )
    return match.result("dot", *dot.operands, **dot_attributes(dot, changed))


def _sum_of_free(match: Match) -> Instruction | None:
    """The sum over dimensions of one operand is the dot of that operand's sum."""
    root, dot = match.root, match.inner
    dims, summed = DotDims.of(dot.attributes), reduced_dims(root)
    if not summed or summed[0] < len(dims.lhs_batch) or not exact_or_real(match):
        return None
    places = dims.places(*(operand.array.rank for operand in dot.operands))
    first, second = (
        tuple(dim for dim, place in side.items() if place in summed) for side in places
    )
    lhs, rhs = _summed(match, dot.operands[0], first), _summed(match, dot.operands[1], second)
    changed = DotDims(
        _without(dims.lhs_contracting, first),
        _without(dims.rhs_contracting, second),
        _without(dims.lhs_batch, first),
        _without(dims.rhs_batch, second),
    )
    return match.result("dot", lhs, rhs, **dot_attributes(dot, changed))


def _summed(match: Match, operand: Instruction, dims: Dims) -> Instruction:
    if not dims:
        return operand
    kept = tuple(size for dim, size in enumerate(operand.array.dims) if dim not in dims)
    return fold(match, operand, dims, resized(operand.array, kept))


def _without(dims: Dims, dropped: Dims) -> Dims:
    """The same dimensions after those that were dropped are gone."""
    return tuple(dim - sum(gone < dim for gone in dropped) for dim in dims)


def _of_concatenate(match: Match) -> Instruction | None:
    """Pieces along a contracted dimension: a sum of dots, worth it where the other side is a constant."""
    root, joined = match.root, match.inner
    dims = DotDims.of(root.attributes)
    (along,) = joined.dimensions
    if along not in dims.lhs_contracting or match.C.opcode != "constant" or not _one_type(root):
        return None
    if len(joined.operands) > _MOST_PIECES or len(joined.users) != 1:
        return None
    if not exact_or_fast(match):
        return match.refuse("floats of each piece would be rounded before they are added")
    other = dims.rhs_contracting[dims.lhs_contracting.index(along)]
    begin, total = 0, None
    for piece in joined.operands:
        size = piece.array.dims[along]
        ranges = [SliceRange(0, extent) for extent in match.C.array.dims]
        ranges[other] = SliceRange(begin, begin + size)
        begin += size
        shape = resized(match.C.array, tuple(entry.size for entry in ranges))
        part = match.make("slice", match.C, shape=shape, slice=tuple(ranges))
        product = match.result("dot", piece, part, **dot_attributes(root, dims))
        total = product if total is None else match.result("add", total, product)
    return total


def _of_one_element(match: Match) -> Instruction | None:
    """``A * B``: what comes back of each operand is repeated along what comes back of the other."""
    root, dims = match.root, DotDims.of(match.root.attributes)
    if any(match.A.array.dims[dim] != 1 for dim in dims.lhs_contracting) or not _one_type(root):
        return None
    if not exact_or_fast(match):
        return match.refuse("a sum from +0 has no -0, which fast_math allows")
    places = dims.places(match.A.array.rank, match.B.array.rank)
    factors = [_spread(match, *side) for side in zip(root.operands, places, strict=True)]
    return match.result("multiply", *factors)


def _spread(match: Match, operand: Instruction, places: dict[int, int]) -> Instruction:
    """An operand without its dimensions of one element, the others at their places of the result."""
    shape, value = operand.array, operand
    kept = sorted(places)
    narrow = resized(shape, tuple(shape.dims[dim] for dim in kept))
    if len(kept) < shape.rank:
        value = match.make("reshape", operand, shape=narrow)
    order = inverse_permutation(tuple(places[dim] for dim in kept))
    if not in_order(order):
        turned = resized(shape, tuple(narrow.dims[axis] for axis in order))
        value = match.make("transpose", value, shape=turned, dimensions=order)
    return match.result("broadcast", value, dimensions=tuple(sorted(places.values())))


def _matrices(dot: Instruction) -> bool:
    """Whether this is a product of two matrices over one dimension."""
    dims = DotDims.of(dot.attributes)
    ranks = [operand.array.rank for operand in dot.operands]
    return ranks == [2, 2] and len(dims.lhs_contracting) == 1 and not dims.lhs_batch


def _other_way(match: Match, side: int) -> Instruction | None:
    """``(A B) C`` as ``A (B C)``, or back where the inner dot is on the right, where that multiplies less."""
    outer, inner = match.root, match.root.operands[side]
    if not all(_matrices(dot) and _one_type(dot) for dot in (outer, inner)):
        return None
    first, second = DotDims.of(inner.attributes), DotDims.of(outer.attributes)
    met = (second.lhs_contracting, second.rhs_contracting)[side]
    if met != (1 - side,) or len(inner.users) != 1:
        return None
    # A has the sizes m and k, B k and n, C n and p.
    (m, p), own = outer.array.dims, inner.array.dims
    contracted = inner.operands[0].array.dims[first.lhs_contracting[0]]
    k, n = (own[0], contracted) if side else (contracted, own[1])
    products = (m * n * (k + p), k * p * (n + m))
    if products[1 - side] >= products[side]:
        return None
    if side:
        near = replace(second, rhs_contracting=(1 - first.lhs_contracting[0],))
        pair, far, shape = (match.A, match.B), replace(first, lhs_contracting=(1,)), (m, n)
    else:
        # B's own dimension comes first in B C, so that it is what A meets.
        near = replace(second, lhs_contracting=(1 - first.rhs_contracting[0],))
        pair, far, shape = (match.B, match.C), replace(first, rhs_contracting=(0,)), (k, p)
    numbers = dot_attributes(outer, near)
    product = match.make("dot", *pair, shape=resized(inner.array, shape), **numbers)
    operands = (product, match.C) if side else (match.A, product)
    return match.result("dot", *operands, **dot_attributes(outer, far))


RULES = (
    Rule("dot(A, B) over nothing => 0", op("dot"), _contracts_nothing),
    Rule(
        "reduce-add(dot(A, B)) over batch dimensions => dot(A, B) that contracts them",
        op("reduce", op("dot"), var("INIT")),
        _sum_of_batch,
        when=_sums,
    ),
    Rule(
        "reduce-add(dot(A, B)) over other dimensions => dot(reduce-add(A), B)",
        op("reduce", op("dot"), var("INIT")),
        _sum_of_free,
        when=_sums,
    ),
    Rule("dot(A, B) over one element => A * B", op("dot", A, var("B")), _of_one_element),
    Rule(
        "dot(concatenate(A, B), C) => dot(A, slice(C)) + dot(B, slice(C))",
        op("dot", op("concatenate"), C),
        _of_concatenate,
    ),
    Rule(
        "dot(dot(A, B), C) => dot(A, dot(B, C)) with fewer products",
        op("dot", op("dot", A, B), C),
        lambda match: _other_way(match, 0),
        when=exact_or_real,
    ),
    Rule(
        "dot(A, dot(B, C)) => dot(dot(A, B), C) with fewer products",
        op("dot", A, op("dot", B, C)),
        lambda match: _other_way(match, 1),
        when=exact_or_real,
    ),
)
