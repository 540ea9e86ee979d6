"""Rules for dynamic-update-slice, and for sums and choices of what is changed in a part only."""

from __future__ import annotations

from hloopt.ir import Computation, Instruction
from hloopt.rewrite import Match, Pattern, Rule, op, splat_literal, used_once, var, variables
from hloopt.simplify.predicates import exact_or_fast, is_negative_zero
from hloopt.simplify.rules.start_indices import joined_starts, number, starts_of
from hloopt.types import PaddingDim, ScatterDims

__all__ = ["RULES", "SUMS_OF_UPDATES"]

A, P = variables("A P")
UPDATE = op("dynamic-update-slice").one_use.bind("B")


def _part(match: Match, whole: Instruction, update: Instruction) -> Instruction:
    """What is in ``whole`` where the update goes."""
    sizes = update.operands[1].array.dims
    shape = update.operands[1].array.with_dtype(whole.array.dtype)
    return match.make(
        "dynamic-slice", whole, *update.operands[2:], shape=shape, dynamic_slice_sizes=sizes
    )


def _put_back(match: Match, whole: Instruction, part: Instruction) -> Instruction:
    return match.result("dynamic-update-slice", whole, part, *match.B.operands[2:])


def _added_part(match: Match) -> Instruction | None:
    """Outside the update a zero is added: exact unless that turns -0.0 into 0.0."""
    zero = match.B.operands[0]
    literal = splat_literal(zero)
    if literal is None or literal.array is None or bool(literal.array):
        return None
    if not (
        exact_or_fast(match) or is_negative_zero(zero) or not match.range_of(match.A).negative_zero
    ):
        return match.refuse("outside the update -0.0 would become 0.0")
    update = match.B.operands[1]
    total = match.make("add", _part(match, match.A, match.B), update, shape=update.shape)
    return _put_back(match, match.A, total)


def _chosen_part(match: Match) -> Instruction | None:
    """A choice between an array and the same array with a part changed."""
    if match.B.operands[0] is not match.A:
        return None
    update, predicate = match.B.operands[1], match.P
    before = _part(match, match.A, match.B)
    chosen = predicate if not predicate.array.dims else _part(match, predicate, match.B)
    arms = (before, update) if match.root.operands[1] is match.A else (update, before)
    choice = match.make("select", chosen, *arms, shape=update.shape)
    return _put_back(match, match.A, choice)


def _one_scatter(match: Match) -> Instruction | None:
    """Two sums scattered over zeros: one, of both lists of indices and updates."""
    first, second = match.A, match.B
    if first is second or not _adds_to_zeros(first) or not _adds_to_zeros(second):
        return None
    return _joined_scatters(match, first, second)


def _one_after_another(match: Match) -> Instruction | None:
    """Sums scattered over what sums were scattered over: the updates of both, in this order."""
    first, second = match.A, match.root
    if not all(len(entry.operands) == 3 and _adds(entry.to_apply) for entry in (first, second)):
        return None
    return _joined_scatters(match, first, second)


def _joined_scatters(match: Match, first: Instruction, second: Instruction) -> Instruction | None:
    """One scatter into the operand of ``first``, of the indices and updates of both."""
    if not exact_or_fast(match):
        return match.refuse("the updates would be added in another order, which needs fast_math")
    dims = ScatterDims.of(first.attributes)
    if dims != ScatterDims.of(second.attributes) or dims.input_batching_dims:
        return None
    rank = first.operands[1].array.rank
    if rank != 2 or dims.index_vector_dim != 1 or second.operands[1].array.rank != rank:
        return match.refuse("the indices are not a list of index vectors")
    if first.operands[1].array.dtype is not second.operands[1].array.dtype:
        return match.refuse("the indices have different types")
    along = dims.batch_dims(first.operands[2].array.rank)[0]
    sizes = [list(entry.operands[2].array.dims) for entry in (first, second)]
    for entry in sizes:
        entry.pop(along)
    if sizes[0] != sizes[1]:
        return match.refuse("the updates have windows of different sizes")
    joined = [
        match.make("concatenate", first.operands[at], second.operands[at], dimensions=(where,))
        for at, where in ((1, 0), (2, along))
    ]
    attributes = {
        key: value
        for key, value in first.attributes.items()
        if key not in ("indices_are_sorted", "unique_indices")
    }
    return match.result("scatter", first.operands[0], *joined, **attributes)


def _adds_to_zeros(scatter: Instruction) -> bool:
    literal = splat_literal(scatter.operands[0])
    if len(scatter.operands) != 3 or literal is None or literal.array is None:
        return False
    return not bool(literal.array) and _adds(scatter.to_apply)


def _scattered_into(match: Match) -> Instruction | None:
    """The updates added to what they were to be added to in the end."""
    scatter = match.B
    if not _adds_to_zeros(scatter) or match.A is scatter:
        return None
    if not exact_or_fast(match):
        return match.refuse("the updates would be added in another order, which needs fast_math")
    return match.result("scatter", match.A, *scatter.operands[1:], **scatter.attributes)


def _adds(computation: Computation) -> bool:
    root = computation.root
    return root.opcode == "add" and set(root.operands) == set(computation.parameters)


SUMS_OF_UPDATES = (
    Rule(
        "A + dynamic-update-slice(0, B, I) => dynamic-update-slice(A, dynamic-slice(A, I) + B, I)",
        A + UPDATE,
        _added_part,
    ),
    Rule(
        "select(P, A, dynamic-update-slice(A, B, I)) => dynamic-update-slice(A, select(P, ...), I)",
        op("select", P, A, UPDATE),
        _chosen_part,
    ),
    Rule(
        "select(P, dynamic-update-slice(A, B, I), A) => dynamic-update-slice(A, select(P, ...), I)",
        op("select", P, UPDATE, A),
        _chosen_part,
    ),
    Rule(
        "scatter(0, I, U) + scatter(0, J, V) => scatter(0, concatenate(I, J), concatenate(U, V))",
        op("scatter").one_use.bind("A") + op("scatter").one_use.bind("B"),
        _one_scatter,
    ),
    Rule(
        "A + scatter(0, I, U) => scatter(A, I, U)",
        A + op("scatter").one_use.bind("B"),
        _scattered_into,
    ),
    Rule(
        "scatter(scatter(A, I, U), J, V) => scatter(A, concatenate(I, J), concatenate(U, V))",
        op("scatter", op("scatter").one_use.bind("A"), var("J"), var("V")),
        _one_after_another,
    ),
)


_UPDATE = "dynamic-update-slice"


def _update_is_whole(match: Match) -> Instruction | None:
    update = match.root.operands[1]
    return update if update.array.dims == match.array.dims else None


def _update_is_itself(match: Match) -> Instruction | None:
    """Writing back what was read at the same place."""
    operand, update, *starts = match.root.operands
    same = update.operands[0] is operand and list(update.operands[1:]) == starts
    return operand if same else None


def _update_is_empty(match: Match) -> Instruction | None:
    operand, update = match.root.operands[:2]
    return operand if not update.array.elements else None


def _is_pad(match: Match) -> Instruction | None:
    """One value around an update at a known place."""
    root = match.root
    operand, update, starts = *root.operands[:2], starts_of(root)
    literal = splat_literal(operand)
    if literal is None or not starts or not update.array.elements:
        return None
    padding: list[PaddingDim] = []
    for start, dim, size in zip(starts, root.array.dims, update.array.dims, strict=True):
        low = number(start, dim, size)
        if low is None:
            return None
        padding.append(PaddingDim(low, dim - size - low))
    value = match.constant(literal) if operand.array.dims else operand
    return match.result("pad", update, value, padding=tuple(padding))


def _covers_earlier(match: Match) -> Instruction | None:
    """The part written before is written again, all of it."""
    root, earlier = match.root, match.inner
    if not used_once(earlier) or len(root.operands) != len(earlier.operands):
        return None
    pairs = zip(root.operands[2:], earlier.operands[2:], strict=True)
    sizes = (root.array.dims, root.operands[1].array.dims, earlier.operands[1].array.dims)
    if not starts_of(root):
        return None
    for (start, before), dim, size, old in zip(pairs, *sizes, strict=True):
        if start is before and size == old:
            continue
        first, old_first = number(start, dim, size), number(before, dim, old)
        if first is None or old_first is None:
            return None
        if not first <= old_first <= old_first + old <= first + size:
            return None
    return match.result(_UPDATE, earlier.operands[0], *root.operands[1:])


def _joined(match: Match) -> Instruction | None:
    """Writing into a part that is written back: straight into the whole, at both starts together."""
    root = match.root
    operand, inner, *_ = root.operands
    part, update = inner.operands[:2]
    same = part.opcode == "dynamic-slice" and part.operands[0] is operand
    if not (used_once(inner) and same) or part.operands[1:] != starts_of(root):
        return None
    sizes = (root.array.dims, part.array.dims, update.array.dims)
    starts = joined_starts(match, starts_of(root), starts_of(inner), sizes)
    return None if starts is None else match.result(_UPDATE, operand, update, *starts)


def _over(opcode: str, index: int) -> Pattern:
    return op(_UPDATE).where(lambda instruction: instruction.operands[index].opcode == opcode)


RULES = (
    Rule("dynamic-update-slice(A, B, ...) => B", op("dynamic-update-slice"), _update_is_whole),
    Rule(
        "dynamic-update-slice(A, dynamic-slice(A, I), I) => A",
        _over("dynamic-slice", 1),
        _update_is_itself,
    ),
    Rule("dynamic-update-slice(A, empty, I) => A", op(_UPDATE), _update_is_empty),
    Rule(
        "dynamic-update-slice(broadcast(C), B, I) => pad(B, C)",
        op(_UPDATE).where(lambda update: splat_literal(update.operands[0]) is not None),
        _is_pad,
    ),
    Rule(
        "dynamic-update-slice(dynamic-update-slice(A, B, I), C, I) => dynamic-update-slice(A, C, I)",
        _over(_UPDATE, 0),
        _covers_earlier,
    ),
    Rule(
        "dynamic-update-slice(A, dynamic-update-slice(dynamic-slice(A, I), B, J), I) => "
        "dynamic-update-slice(A, B, I + J)",
        _over(_UPDATE, 1),
        _joined,
    ),
)
