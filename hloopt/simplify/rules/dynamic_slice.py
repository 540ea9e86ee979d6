"""Rules for dynamic-slice: it moves towards the parameters; starts are clamped as the op clamps them."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.rewrite import Match, Pattern, Rule, op, own_attributes, splat_literal, used_once
from hloopt.simplify.data_movement import (
    PASSABLE,
    concatenated,
    dimensions,
    matched_dims,
    moved,
    only_ones_differ,
    ranges,
    with_dims,
    without_sparsity,
)
from hloopt.simplify.predicates import exact_or_fast, resized
from hloopt.simplify.rules.start_indices import (
    clamped,
    has_starts,
    joined_starts,
    number,
    starts_of,
)
from hloopt.types import Dims, DotDims, SliceRange, array, inverse_permutation

__all__ = ["RULES"]


def _over(*wanted: str, once: bool = False) -> Pattern:
    """A dynamic-slice, with a start for each dimension, of one of these; ``once``: which nothing else uses."""

    def test(instruction: Instruction) -> bool:
        operand = instruction.operands[0]
        return operand.opcode in wanted and (not once or used_once(operand))

    return op("dynamic-slice").where(test, has_starts)


def _take(
    match: Match, operand: Instruction, starts: tuple[Instruction, ...], sizes: tuple[int, ...]
) -> Instruction:
    """A part of an operand; the operand itself where nothing is cut off."""
    if operand.array.dims == sizes:
        return operand
    shape = with_dims(operand.array, sizes)
    return match.make("dynamic-slice", operand, *starts, shape=shape, dynamic_slice_sizes=sizes)


def _first_is_whole(match: Match) -> Instruction | None:
    operand = match.inner
    return operand if operand.array.dims == match.array.dims else None


def _constant_starts(match: Match) -> Instruction | None:
    operand, starts = match.inner, starts_of(match.root)
    taken: list[SliceRange] = []
    for start, dim, size in zip(starts, operand.array.dims, match.array.dims, strict=True):
        first = number(start, dim, size)
        if first is None:
            return None
        taken.append(SliceRange(first, first + size))
    return match.result("slice", operand, slice=tuple(taken))


def _picked(match: Match, places: Dims) -> Instruction:
    """What the inner op reads, cut where its dimensions are at ``places`` of the result."""
    starts = starts_of(match.root)
    sizes = tuple(match.array.dims[d] for d in places)
    return _take(match, match.inner.operands[0], tuple(starts[d] for d in places), sizes)


def _of_broadcast(match: Match) -> Instruction:
    """Cut what is broadcast, in the dimensions it has."""
    dims = dimensions(match.inner)
    return match.result("broadcast", _picked(match, dims), dimensions=dims)


def _of_transpose(match: Match) -> Instruction:
    permutation = dimensions(match.inner)
    return match.result(
        "transpose", _picked(match, inverse_permutation(permutation)), dimensions=permutation
    )


def _of_reshape(match: Match) -> Instruction | None:
    """Past a reshape that only adds or drops ones."""
    root, starts = match.root, starts_of(match.root)
    before, after = match.inner.operands[0].array.dims, match.inner.array.dims
    if not before or 0 in root.array.dims or not only_ones_differ(before, after):
        return None
    place = matched_dims(before, after)
    zero = starts[0] if len(place) == len(before) else match.splat(array(starts[0].array.dtype), 0)
    moved = tuple(starts[place[d]] if d in place else zero for d in range(len(before)))
    sizes = tuple(root.array.dims[place[d]] if d in place else 1 for d in range(len(before)))
    source = _take(match, match.inner.operands[0], moved, sizes)
    return match.result("reshape", source)


def _of_elementwise(match: Match) -> Instruction | None:
    """Compute only what is taken; nothing else needs the rest."""
    sizes, starts = match.array.dims, starts_of(match.root)

    def cut(operand: Instruction) -> Instruction:
        literal = splat_literal(operand)
        if literal is None:
            return _take(match, operand, starts, sizes)
        return match.splat_of(resized(operand.array, sizes), literal)

    return moved(match, match.inner, cut, with_dims(match.inner.array, sizes))


def _of_iota(match: Match) -> Instruction | None:
    """The iota from the clamped start on."""
    root, iota, starts = match.root, match.inner, starts_of(match.root)
    dimension = iota.iota_dimension
    dim, size = iota.array.dims[dimension], root.array.dims[dimension]
    dtype = iota.array.dtype
    if not dtype.is_integer or dtype.bits < 8 or dim - 1 > dtype.limits[1]:
        return None
    first = clamped(match, starts[dimension], dim, size)
    if first is None:
        return None
    if first.array.dtype is not dtype:
        first = match.make("convert", first, shape=array(dtype))
    offset = match.result("broadcast", first, dimensions=())
    if size == 1:
        return offset
    numbers = match.result("iota", iota_dimension=dimension)
    return match.result("add", numbers, offset)


def _of_dynamic_slice(match: Match) -> Instruction | None:
    """One part out of the whole; each start is clamped as it was."""
    root, inner = match.root, match.inner
    whole = inner.operands[0]
    sizes = (whole.array.dims, inner.array.dims, root.array.dims)
    starts = joined_starts(match, starts_of(inner), starts_of(root), sizes)
    return None if starts is None else _take(match, whole, starts, root.array.dims)


def _of_slice(match: Match) -> Instruction | None:
    """Out of a slice that cuts only where the start is known, or nothing."""
    root, inner, starts = match.root, match.inner, starts_of(match.root)
    moved: list[Instruction] = []
    for d, start in enumerate(starts):
        entry, dim = ranges(inner)[d], match.inner.operands[0].array.dims[d]
        if entry.size == dim:
            moved.append(start)
            continue
        first = number(start, entry.size, root.array.dims[d])
        if first is None or (entry.stride != 1 and root.array.dims[d] > 1):
            return None
        place, dtype = entry.start + first * entry.stride, start.array.dtype
        if place > dtype.limits[1]:
            return None
        moved.append(match.splat(array(dtype), place))
    return _take(match, match.inner.operands[0], tuple(moved), root.array.dims)


def _of_concatenate(match: Match) -> Instruction | None:
    """Where the start along the joined dimension is known, out of one operand."""
    root, inner, starts = match.root, match.inner, starts_of(match.root)
    d = concatenated(inner)
    first, size = number(starts[d], inner.array.dims[d], root.array.dims[d]), root.array.dims[d]
    if first is None:
        return None
    for operand in inner.operands:
        dim = operand.array.dims[d]
        if first >= 0 and first + size <= dim:
            start = match.splat(array(starts[d].array.dtype), first)
            return _take(match, operand, (*starts[:d], start, *starts[d + 1 :]), root.array.dims)
        first -= dim
    return None


def _of_dot(match: Match) -> Instruction | None:
    """Multiply only the rows and columns that are taken."""
    root, dot, starts = match.root, match.inner, starts_of(match.root)
    dims = DotDims.of(dot.attributes)
    if not without_sparsity(dot):
        return None
    zero = match.splat(array(starts[0].array.dtype), 0)
    sides: list[Instruction] = []
    places = dims.places(*(operand.array.rank for operand in dot.operands))
    for operand, place in zip(dot.operands, places, strict=True):
        first, sizes = [zero] * operand.array.rank, list(operand.array.dims)
        for d, at in place.items():
            first[d], sizes[d] = starts[at], root.array.dims[at]
        sides.append(_take(match, operand, tuple(first), tuple(sizes)))
    return match.result("dot", *sides, **own_attributes(dot))


def _of_update(match: Match) -> Instruction | None:
    """Reading back what was written at the same place."""
    updated = match.inner
    _, update, *starts = updated.operands
    same = list(match.root.operands[1:]) == starts
    return update if same and update.array.dims == match.array.dims else None


RULES = (
    Rule("dynamic-slice(A, ...) => A", op("dynamic-slice"), _first_is_whole),
    Rule(
        "dynamic-slice(A, C) => slice(A)", op("dynamic-slice").where(has_starts), _constant_starts
    ),
    Rule(
        "dynamic-slice(broadcast(A), I) => broadcast(dynamic-slice(A, I))",
        _over("broadcast"),
        _of_broadcast,
    ),
    Rule(
        "dynamic-slice(transpose(A), I) => transpose(dynamic-slice(A, I))",
        _over("transpose", once=True),
        _of_transpose,
    ),
    Rule(
        "dynamic-slice(reshape(A), I) => reshape(dynamic-slice(A, I))",
        _over("reshape", once=True),
        _of_reshape,
    ),
    Rule(
        "dynamic-slice(f(A, B), I) => f(dynamic-slice(A, I), dynamic-slice(B, I))",
        _over(*PASSABLE, once=True),
        _of_elementwise,
    ),
    Rule("dynamic-slice(iota, I) => iota + I", _over("iota"), _of_iota),
    Rule(
        "dynamic-slice(dynamic-slice(A, I), J) => dynamic-slice(A, I + J)",
        _over("dynamic-slice", once=True),
        _of_dynamic_slice,
    ),
    Rule("dynamic-slice(slice(A), I) => dynamic-slice(A, I)", _over("slice", once=True), _of_slice),
    Rule(
        "dynamic-slice(concatenate(A, B), C) => dynamic-slice(B, I)",
        _over("concatenate"),
        _of_concatenate,
    ),
    Rule(
        "dynamic-slice(dynamic-update-slice(A, B, I), I) => B",
        _over("dynamic-update-slice"),
        _of_update,
    ),
    Rule(
        "dynamic-slice(dot(A, B), I) => dot(dynamic-slice(A, I), dynamic-slice(B, I))",
        _over("dot", once=True),
        _of_dot,
        when=exact_or_fast,
    ),
)
