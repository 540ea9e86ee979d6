"""Rules for slice: it moves towards the parameters, so that less is computed and moved."""

from __future__ import annotations

from math import prod

from hloopt.ir import Instruction, edit
from hloopt.rewrite import Match, Rule, op, own_attributes, splat_literal, used_once, variables
from hloopt.simplify.data_movement import (
    PASSABLE,
    all_users_are,
    common_factors,
    dimensions,
    moved,
    ranges,
    with_dims,
    without_sparsity,
)
from hloopt.simplify.predicates import exact_or_fast, resized, same_dims
from hloopt.types import DotDims, SliceRange, inverse_permutation

__all__ = ["RULES", "is_only_sliced", "part", "sliced"]

A, B = variables("A B")


def sliced(match: Match, operand: Instruction, taken: tuple[SliceRange, ...]) -> Instruction:
    return match.result("slice", operand, slice=taken)


def part(match: Match, operand: Instruction, taken: tuple[SliceRange, ...]) -> Instruction:
    """A slice that is not the result; the operand itself where nothing is cut off.

    The same slice of it that is there already serves again: else a chain of ops whose values are used twice
    would be walked up one step for each time that equal instructions are merged.
    """
    sizes = tuple(entry.size for entry in taken)
    if sizes == operand.array.dims:
        return operand
    known = _same_slice(match, operand, taken)
    if known is not None:
        edit.move_after(operand, known)
        return known
    return match.make("slice", operand, shape=with_dims(operand.array, sizes), slice=taken)


def _same_slice(
    match: Match, operand: Instruction, taken: tuple[SliceRange, ...]
) -> Instruction | None:
    if len(operand.users) > _MOST_SLICES:
        return None
    wanted = with_dims(operand.array, tuple(entry.size for entry in taken))
    for user in operand.users:
        if (
            user.opcode == "slice"
            and user is not match.root
            and user.attributes == {"slice": taken}
            and user.shape == wanted
            and not user.has_control_edges
        ):
            return user
    return None


_MOST_SLICES = 8
_MOST_ROWS = 64


def is_only_sliced(instruction: Instruction) -> bool:
    """Whether a few slices are all that needs it: the whole is not made any more."""
    return len(instruction.users) <= _MOST_SLICES and all_users_are(instruction, "slice")


def _is_taken_apart(reshape: Instruction) -> bool:
    """Whether it goes away without another reshape coming for it: slices that are reshaped again."""
    users = reshape.users
    return (
        len(users) <= _MOST_ROWS
        and all_users_are(reshape, "slice")
        and all(len(user.users) == 1 and all_users_are(user, "reshape") for user in users)
    )


def _slice_once(match: Match) -> Instruction:
    inner, outer = ranges(match.inner), ranges(match.root)
    return sliced(match, match.A, tuple(map(_composed, inner, outer)))


def _composed(inner: SliceRange, outer: SliceRange) -> SliceRange:
    start, stride = inner.start + outer.start * inner.stride, inner.stride * outer.stride
    size = outer.size
    if not size:
        return SliceRange(inner.start, inner.start)
    return SliceRange(start, start + (size - 1) * stride + 1, stride if size > 1 else 1)


def _without_stride(match: Match) -> Instruction | None:
    """A stride means nothing where one element is taken."""
    taken = ranges(match.root)
    plain = tuple(
        SliceRange(entry.start, entry.start + 1) if entry.size == 1 else entry for entry in taken
    )
    return sliced(match, match.A, plain) if plain != taken else None


def _slice_of_broadcast(match: Match) -> Instruction:
    """Slice what is broadcast, where a dimension of it is cut, and broadcast less."""
    dims = dimensions(match.inner)
    taken = ranges(match.root)
    source = part(match, match.A, tuple(taken[d] for d in dims))
    return match.result("broadcast", source, dimensions=dims)


def _slice_before_reverse(match: Match) -> Instruction | None:
    """Take the same elements from the other end, and turn fewer."""
    turned, taken = dimensions(match.F), list(ranges(match.root))
    for d in turned:
        entry, size = taken[d], match.A.array.dims[d]
        last = entry.start + (entry.size - 1) * entry.stride
        taken[d] = SliceRange(size - 1 - last, size - entry.start, entry.stride)
        if not entry.size:
            taken[d] = SliceRange(0, 0)
    source = part(match, match.A, tuple(taken))
    return match.result("reverse", source, dimensions=turned)


def _slice_before_transpose(match: Match) -> Instruction:
    permutation, taken = dimensions(match.F), ranges(match.root)
    source = part(match, match.A, tuple(taken[d] for d in inverse_permutation(permutation)))
    return match.result("transpose", source, dimensions=permutation)


def _slice_before_reshape(match: Match) -> Instruction | None:
    """What is taken of each group of dimensions is a range of the dimensions before the reshape."""
    inner = match.F
    if not (used_once(inner) or _is_taken_apart(inner)):
        return None
    if 0 in inner.array.dims or 0 in match.array.dims:
        return None
    before, after = match.A.array.dims, inner.array.dims
    taken = [SliceRange(0, size) for size in before]
    for old, new in common_factors(before, after):
        whole = [ranges(match.root)[d] for d in new]
        sizes = [after[d] for d in new]
        moved = _regrouped(whole, sizes, [before[d] for d in old])
        if moved is None:
            return None
        for d, entry in zip(old, moved, strict=True):
            taken[d] = entry
    source = part(match, match.A, tuple(taken))
    return match.result("reshape", source)


def _first_before_reshape(match: Match) -> Instruction | None:
    """The first of the major dimension are the first elements, in whatever dimensions they stand."""
    taken, dims = ranges(match.root), match.F.array.dims
    count = match.array.elements
    if not count or any(entry.start or entry.stride != 1 for entry in taken):
        return None
    if [d for d, entry in enumerate(taken) if entry.size != dims[d]] != [0]:
        return None
    sizes = list(match.A.array.dims)
    for d in reversed(range(len(sizes))):
        if count < sizes[d]:
            sizes[d], count = count, 1
        elif count % sizes[d]:
            return None
        else:
            count //= sizes[d]
    source = part(match, match.A, tuple(SliceRange(0, size) for size in sizes))
    return match.result("reshape", source)


def _regrouped(
    taken: list[SliceRange], sizes: list[int], before: list[int]
) -> list[SliceRange] | None:
    """A block of dimensions of ``sizes`` as a block of ``before``, which have the same product.

    The same dimension apart from ones, or a run of neighbouring elements that is a block before too.
    """
    cut = [(entry, size) for entry, size in zip(taken, sizes, strict=True) if size != 1]
    if all(entry.size == size for entry, size in cut):
        return [SliceRange(0, size) for size in before]
    places = [d for d, size in enumerate(before) if size != 1]
    result = [SliceRange(0, size) for size in before]
    if len(cut) == 1 and len(places) == 1:
        result[places[0]] = cut[0][0]
        return result
    run = _run(cut)
    if run is None:
        return None
    start, count = run
    for place in places:
        inner = prod(before[place + 1 :])
        if start % inner == 0 and count % inner == 0:
            first, number = start // inner, count // inner
            if first + number <= before[place]:
                result[place] = SliceRange(first, first + number)
                return result
            return None
        # One row of this dimension: the run lies within it.
        row = start // inner
        if row != (start + count - 1) // inner:
            return None
        result[place] = SliceRange(row, row + 1)
        start -= row * inner
    return None


def _run(cut: list[tuple[SliceRange, int]]) -> tuple[int, int] | None:
    """First element and number of elements of a block whose elements are neighbours."""
    start, count = 0, 1
    inner = 1
    whole = True
    for entry, size in reversed(cut):
        if not whole and entry.size != 1:
            return None
        if entry.size > 1 and entry.stride != 1:
            return None
        start += entry.start * inner
        count *= entry.size
        inner *= size
        whole = whole and entry.size == size
    return start, count


def _slice_before_elementwise(match: Match) -> Instruction | None:
    """Compute only what is taken; nothing else needs the rest."""
    taken, sizes = ranges(match.root), match.array.dims

    def cut(operand: Instruction) -> Instruction:
        literal = splat_literal(operand)
        if literal is None:
            return part(match, operand, taken)
        return match.splat_of(resized(operand.array, sizes), literal)

    return moved(match, match.F, cut, with_dims(match.F.array, sizes))


def _slice_before_dot(match: Match) -> Instruction | None:
    """Multiply only the rows and columns that are taken."""
    dot, taken = match.F, ranges(match.root)
    dims = DotDims.of(dot.attributes)
    if not without_sparsity(dot):
        return match.refuse("the dot has sparse operands")
    sides: list[Instruction] = []
    places = dims.places(match.A.array.rank, match.B.array.rank)
    for operand, place in zip((match.A, match.B), places, strict=True):
        cut = (
            taken[place[d]] if d in place else SliceRange(0, size)
            for d, size in enumerate(operand.array.dims)
        )
        sides.append(part(match, operand, tuple(cut)))
    return match.result("dot", *sides, **own_attributes(dot))


RULES = (
    Rule("slice(A) => A", op("slice", A), A, when=same_dims),
    Rule("slice(slice(A)) => slice(A)", op("slice", op("slice", A)), _slice_once),
    Rule("slice(A) of one element => slice(A) without stride", op("slice", A), _without_stride),
    Rule(
        "slice(broadcast(A)) => broadcast(slice(A))",
        op("slice", op("broadcast", A)),
        _slice_of_broadcast,
    ),
    Rule(
        "slice(reverse(A)) => reverse(slice(A))",
        op("slice", op("reverse", A).bind("F").one_use),
        _slice_before_reverse,
    ),
    Rule(
        "slice(transpose(A)) => transpose(slice(A))",
        op("slice", op("transpose", A).bind("F").one_use),
        _slice_before_transpose,
    ),
    Rule(
        "slice(reshape(A)) => reshape(slice(A))",
        op("slice", op("reshape", A).bind("F")),
        _slice_before_reshape,
    ),
    Rule(
        "slice(reshape(A)) of the first rows => reshape(slice(A))",
        op("slice", op("reshape", A).bind("F")),
        _first_before_reshape,
    ),
    Rule(
        "slice(f(A, B)) => f(slice(A), slice(B))",
        op("slice", op(PASSABLE).bind("F").one_use),
        _slice_before_elementwise,
    ),
    Rule(
        "slice(dot(A, B)) => dot(slice(A), slice(B))",
        op("slice", op("dot", A, B).bind("F").one_use),
        _slice_before_dot,
        when=exact_or_fast,
    ),
)
