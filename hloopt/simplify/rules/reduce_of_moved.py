"""Rules for reduce of what was only moved: transposes, reshapes, concatenates and broadcasts."""

from __future__ import annotations

from hloopt.analysis.layout import reshaped_groups
from hloopt.ir import Instruction
from hloopt.ops.traits import IDEMPOTENT
from hloopt.rewrite import Match, Rule, op, variables
from hloopt.rewrite.regions import is_exact, named_combiner
from hloopt.simplify.predicates import resized
from hloopt.simplify.rules.reduce import (
    fold,
    in_any_order,
    is_neutral,
    is_plain,
    kept_dims,
    reduced_dims,
)

__all__ = ["RULES"]

A, INIT = variables("A INIT")
_MOST_PIECES = 4


def _of_transpose(match: Match) -> Instruction | None:
    """Fold the transposed array's source; what is left of the transpose comes after."""
    root, order = match.root, match.inner.dimensions
    if not is_plain(root):
        return None
    reduced = tuple(order[dim] for dim in reduced_dims(root))
    opcode = named_combiner(root.to_apply)
    in_order = list(reduced) == sorted(reduced)
    if not (in_order or match.fast_math or is_exact(opcode, root.array)):
        return match.refuse(f"elements would be folded in another order, dimensions {reduced}")
    if not in_any_order(match):
        return None
    kept = [order[dim] for dim in kept_dims(len(order), reduced_dims(root))]
    dims, straight = tuple(sorted(reduced)), sorted(kept)
    if kept == straight:
        return fold(match, match.A, dims, root.array)
    shape = resized(root.array, tuple(match.A.array.dims[dim] for dim in straight))
    inner = fold(match, match.A, dims, shape)
    back = tuple(straight.index(dim) for dim in kept)
    return match.result("transpose", inner, dimensions=back)


def _of_reshape(match: Match) -> Instruction | None:
    """Where each piece of the reshape is folded whole or kept whole, row-major order stays as it is."""
    root, source = match.root, match.A.array
    if not is_plain(root) or not source.elements:
        return None
    given = reduced_dims(root)
    reduced: list[int] = []
    for before, after in reshaped_groups(source.dims, root.operands[0].array.dims):
        folded = [dim for dim in after if dim in given]
        if not folded:
            continue
        if len(folded) < len(after):
            return None
        reduced += before
    if not reduced or not in_any_order(match):
        return None
    dims = tuple(source.dims[dim] for dim in kept_dims(source.rank, tuple(reduced)))
    shape = root.array if dims == root.array.dims else resized(root.array, dims)
    inner = fold(match, match.A, tuple(reduced), shape)
    return inner if shape is root.array else match.result("reshape", inner)


def _of_concatenate_across(match: Match) -> Instruction | None:
    """Each result folds elements of one piece alone."""
    root, joined = match.root, match.inner
    (along,) = joined.dimensions
    given = reduced_dims(root)
    if not is_plain(root) or along in given or len(joined.users) != 1:
        return None
    if len(joined.operands) > _MOST_PIECES:
        pieces = len(joined.operands)
        return match.refuse(f"{pieces} pieces exceed the limit of {_MOST_PIECES}")
    if not in_any_order(match):
        return None
    place = kept_dims(joined.array.rank, given).index(along)
    parts = []
    for piece in joined.operands:
        dims = list(root.array.dims)
        dims[place] = piece.array.dims[along]
        parts.append(fold(match, piece, given, resized(root.array, tuple(dims))))
    return match.result("concatenate", *parts, dimensions=(place,))


def _of_concatenate_along(match: Match) -> Instruction | None:
    root, joined = match.root, match.inner
    (along,) = joined.dimensions
    opcode = named_combiner(root.to_apply)
    if not is_plain(root) or not opcode or along not in reduced_dims(root):
        return None
    if len(joined.users) != 1 or len(joined.operands) > _MOST_PIECES:
        return None
    if not (match.fast_math or is_exact(opcode, root.array)):
        return match.refuse(f"floating-point {opcode} of parts rounds in between")
    if opcode not in IDEMPOTENT and not all(
        is_neutral(match, opcode, match.INIT, piece) for piece in joined.operands
    ):
        return None
    parts = [fold(match, piece, reduced_dims(root), root.array) for piece in joined.operands]
    result = parts[0]
    for part in parts[1:]:
        result = match.result(opcode, result, part)
    return result


def _of_broadcast(match: Match) -> Instruction | None:
    """Where equal elements count once, or none is folded: what is left to fold is what was broadcast."""
    root, wide = match.root, match.inner
    opcode = named_combiner(root.to_apply)
    given, mapped = reduced_dims(root), wide.attributes.get("dimensions", ())
    if not is_plain(root) or not wide.array.elements or len(mapped) == wide.array.rank:
        return None
    # Without repeated elements in it every fold is that of the source's elements, in their order.
    as_is = all(dim in mapped for dim in given) and list(mapped) == sorted(mapped)
    if not as_is and opcode not in IDEMPOTENT:
        return None
    if not in_any_order(match):
        return None
    inner = tuple(place for place, dim in enumerate(mapped) if dim in given)
    outer = kept_dims(wide.array.rank, given)
    stays = [(place, dim) for place, dim in enumerate(mapped) if dim not in given]
    dims = tuple(match.A.array.dims[place] for place, _ in stays)
    shape = resized(root.array, dims)
    if inner or match.A.array.rank:
        small = fold(match, match.A, inner, shape)
    else:
        small = match.make(opcode, match.A, match.INIT, shape=shape)
    target = tuple(outer.index(dim) for _, dim in stays)
    if dims == root.array.dims and target == tuple(range(len(dims))):
        return small
    return match.result("broadcast", small, dimensions=target)


RULES = (
    Rule(
        "reduce(transpose(A)) => transpose(reduce(A))",
        op("reduce", op("transpose", A), INIT),
        _of_transpose,
    ),
    Rule(
        "reduce(reshape(A)) => reshape(reduce(A))",
        op("reduce", op("reshape", A), INIT),
        _of_reshape,
    ),
    Rule(
        "reduce(concatenate(A, B)) across => concatenate(reduce(A), reduce(B))",
        op("reduce", op("concatenate"), INIT),
        _of_concatenate_across,
    ),
    Rule(
        "reduce(concatenate(A, B)) along => to_apply(reduce(A), reduce(B))",
        op("reduce", op("concatenate"), INIT),
        _of_concatenate_along,
    ),
    Rule(
        "reduce(broadcast(A)) => broadcast(reduce(A))",
        op("reduce", op("broadcast", A), INIT),
        _of_broadcast,
    ),
)
