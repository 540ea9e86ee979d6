"""Rules for concatenate."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from math import prod

from hloopt.ir import Instruction
from hloopt.rewrite import Match, Rule, op, own_attributes, same_layout, splat_literal, used_once
from hloopt.simplify.data_movement import (
    concatenated,
    dimensions,
    ranges,
    with_dims,
)
from hloopt.simplify.predicates import exact_or_fast, resized
from hloopt.types import DotDims, PaddingDim, SliceRange

__all__ = ["RULES"]


def _concatenate(match: Match, operands: tuple[Instruction, ...]) -> Instruction:
    return match.result("concatenate", *operands, dimensions=dimensions(match.root))


def _one_operand(match: Match) -> Instruction | None:
    return match.inner if len(match.root.operands) == 1 else None


def _without_empty(match: Match) -> Instruction | None:
    root = match.root
    kept = tuple(operand for operand in root.operands if operand.array.elements)
    if not kept or len(kept) == len(root.operands):
        return None
    return _concatenate(match, kept)


def _flattened(match: Match) -> Instruction | None:
    """A whole tree at once, from its last concatenate: step by step would copy operands again and again."""
    root = match.root
    dimension = concatenated(root)
    if _goes_into_another(root):
        return None
    operands: list[Instruction] = []
    pending = [root]
    while pending:
        operand = pending.pop()
        if operand is root or (
            operand.opcode == "concatenate"
            and concatenated(operand) == dimension
            and _goes_into_another(operand)
        ):
            pending.extend(reversed(operand.operands))
        else:
            operands.append(operand)
    return _concatenate(match, tuple(operands)) if len(operands) != len(root.operands) else None


def _goes_into_another(concatenate: Instruction) -> bool:
    """Whether its only use is in a concatenate along the same dimension."""
    if len(concatenate.users) != 1 or concatenate.is_root:
        return False
    ((user, count),) = concatenate.users.items()
    same = user.opcode == "concatenate" and concatenated(user) == concatenated(concatenate)
    return same and count == 1


_Join = Callable[[Match, list[Instruction]], Instruction]


def _joined_runs(
    match: Match, belongs: Callable[[Instruction, Instruction], bool], join: _Join
) -> Instruction | None:
    """Neighbours that belong together become one operand; all of them, the result."""
    operands = match.root.operands
    if len(operands) < 2:
        return None
    runs = [[operands[0]]]
    for left, right in pairwise(operands):
        if belongs(left, right):
            runs[-1].append(right)
        else:
            runs.append([right])
    if len(runs) == len(operands):
        return None
    whole = tuple(join(match, run) if len(run) > 1 else run[0] for run in runs)
    return whole[0] if len(whole) == 1 else _concatenate(match, whole)


def _length(match: Match, run: list[Instruction]) -> tuple[int, ...]:
    """The sizes of neighbours together."""
    dimension = concatenated(match.root)
    dims = list(run[0].array.dims)
    dims[dimension] = sum(operand.array.dims[dimension] for operand in run)
    return tuple(dims)


def _same_value(left: Instruction, right: Instruction) -> bool:
    literal = splat_literal(left)
    return literal is not None and literal == splat_literal(right)


def _one_splat(match: Match, run: list[Instruction]) -> Instruction:
    literal = splat_literal(run[0])
    assert literal is not None
    return match.splat_of(with_dims(match.array, _length(match, run)), literal)


def _splats(match: Match) -> Instruction | None:
    return _joined_runs(match, _same_value, _one_splat)


def _slices(match: Match) -> Instruction | None:
    """One slice, where each operand goes on where the one before ended."""
    dimension = concatenated(match.root)

    return _joined_runs(match, partial(_follows, dimension), _one_slice)


def _follows(dimension: int, left: Instruction, right: Instruction) -> bool:
    """Whether the second slice goes on where the first one ended."""
    if not left.opcode == right.opcode == "slice" or left.operands != right.operands:
        return False
    before, after = list(ranges(left)), list(ranges(right))
    first, second = before.pop(dimension), after.pop(dimension)
    adjacent = first.limit == second.start and first.stride == second.stride == 1
    return adjacent and before == after


def _one_slice(match: Match, run: list[Instruction]) -> Instruction:
    source, taken = _taken(run, concatenated(match.root))
    dims = _length(match, run)
    if dims == source.array.dims == match.array.dims and same_layout(
        source.shape, match.root.shape
    ):
        return source
    return match.make("slice", source, shape=with_dims(source.array, dims), slice=taken)


def _taken(run: list[Instruction], dimension: int) -> tuple[Instruction, tuple[SliceRange, ...]]:
    """What neighbours are slices of, and all that they take."""
    taken = list(ranges(run[0]))
    taken[dimension] = SliceRange(taken[dimension].start, ranges(run[-1])[dimension].limit)
    return run[0].operands[0], tuple(taken)


def _broadcasts(match: Match) -> Instruction | None:
    """The same thing repeated along the joined dimension, which it does not have."""
    dimension = concatenated(match.root)

    def repeats(left: Instruction, right: Instruction) -> bool:
        return (
            left.opcode == right.opcode == "broadcast"
            and left.operands == right.operands
            and dimensions(left) == dimensions(right)
            and dimension not in dimensions(left)
        )

    def join(match: Match, run: list[Instruction]) -> Instruction:
        shape = with_dims(match.array, _length(match, run))
        return match.make("broadcast", *run[0].operands, shape=shape, dimensions=dimensions(run[0]))

    return _joined_runs(match, repeats, join)


def _of_broadcasts(match: Match) -> Instruction | None:
    """Join what is repeated, where all operands repeat alike, along other dimensions."""
    root, dimension = match.root, concatenated(match.root)
    first = root.operands[0]
    dims = dimensions(first)
    if dimension not in dims or len(root.operands) < 2 or _goes_into_another(root):
        return None
    sources: list[Instruction] = []
    for operand in root.operands:
        if operand.opcode != "broadcast" or dimensions(operand) != dims or not used_once(operand):
            return None
        sources.append(operand.operands[0])
    sizes = tuple(root.array.dims[d] for d in dims)
    if prod(sizes) >= root.array.elements:
        return None
    joined = match.make(
        "concatenate",
        *sources,
        shape=resized(root.array, sizes),
        dimensions=(dims.index(dimension),),
    )
    return match.result("broadcast", joined, dimensions=dims)


def _is_pad(match: Match) -> Instruction | None:
    """One operand between equal values is padded with them."""
    root, dimension = match.root, concatenated(match.root)
    if _goes_into_another(root):
        return None
    literals = [splat_literal(operand) for operand in root.operands]
    inner = [index for index, literal in enumerate(literals) if literal is None]
    values = {literal for literal in literals if literal is not None}
    if len(inner) != 1 or len(values) != 1:
        return None
    (place,) = inner
    sizes = [operand.array.dims[dimension] for operand in root.operands]
    entries = [PaddingDim(0, 0)] * root.array.rank
    entries[dimension] = PaddingDim(sum(sizes[:place]), sum(sizes[place + 1 :]))
    value = match.constant(values.pop())
    return match.result("pad", root.operands[place], value, padding=tuple(entries))


def _tiles(match: Match) -> Instruction | None:
    """All operands are the same: repeat it."""
    root, dimension = match.root, concatenated(match.root)
    source, count = root.operands[0], len(root.operands)
    if count < 2 or any(operand is not source for operand in root.operands):
        return None
    if _goes_into_another(root):
        return None
    if 0 in source.array.dims or splat_literal(source) is not None:
        return None
    rank = source.array.rank
    places = (*range(dimension), *range(dimension + 1, rank + 1))
    dims = (*source.array.dims[:dimension], count, *source.array.dims[dimension:])
    tiled = match.make("broadcast", source, shape=resized(root.array, dims), dimensions=places)
    return match.result("reshape", tiled)


def _of_dots(match: Match) -> Instruction | None:
    """One dot of what was cut: the pieces of one operand are neighbours, the other operand is the same."""
    belongs = partial(_goes_on, concatenated(match.root))
    if not any(belongs(*pair) for pair in pairwise(match.root.operands)):
        return None
    if not exact_or_fast(match):
        return match.refuse("sums of a wider dot may be in another order, which fast_math allows")
    return _joined_runs(match, belongs, _one_dot)


def _goes_on(dimension: int, left: Instruction, right: Instruction) -> bool:
    if not left.opcode == right.opcode == "dot" or not (used_once(left) and used_once(right)):
        return False
    side = _cut_side(left, dimension)
    if own_attributes(left) != own_attributes(right) or side is None:
        return False
    at, along = side
    same = left.operands[1 - at] is right.operands[1 - at]
    return same and _follows(along, left.operands[at], right.operands[at])


def _cut_side(dot: Instruction, dimension: int) -> tuple[int, int] | None:
    """The operand, and its dimension, that a free dimension of the result comes from."""
    dims = DotDims.of(dot.attributes)
    if dimension < len(dims.lhs_batch):
        return None
    for at, places in enumerate(dims.places(*(operand.array.rank for operand in dot.operands))):
        for along, place in places.items():
            if place == dimension:
                return at, along
    return None


def _one_dot(match: Match, run: list[Instruction]) -> Instruction:
    first = run[0]
    side = _cut_side(first, concatenated(match.root))
    assert side is not None
    at, along = side
    operands = list(first.operands)
    source, taken = _taken([one.operands[at] for one in run], along)
    dims = tuple(entry.size for entry in taken)
    operands[at] = source
    if dims != source.array.dims:
        shape = with_dims(source.array, dims)
        operands[at] = match.make("slice", source, shape=shape, slice=taken)
    return match.again(first, *operands, shape=with_dims(match.array, _length(match, run)))


RULES = (
    Rule("concatenate(A) => A", op("concatenate"), _one_operand),
    Rule("concatenate(A, empty) => concatenate(A)", op("concatenate"), _without_empty),
    Rule(
        "concatenate(concatenate(A, B), C) => concatenate(A, B, C)", op("concatenate"), _flattened
    ),
    Rule("concatenate(broadcast(C), broadcast(C)) => broadcast(C)", op("concatenate"), _splats),
    Rule("concatenate(slice(A), slice(A)) => slice(A)", op("concatenate"), _slices),
    Rule(
        "concatenate(dot(A, slice(B)), dot(A, slice(B))) => dot(A, slice(B))",
        op("concatenate"),
        _of_dots,
    ),
    Rule("concatenate(broadcast(A), broadcast(A)) => broadcast(A)", op("concatenate"), _broadcasts),
    Rule(
        "concatenate(broadcast(A), broadcast(B)) => broadcast(concatenate(A, B))",
        op("concatenate"),
        _of_broadcasts,
    ),
    Rule("concatenate(A, broadcast(C)) => pad(A, C)", op("concatenate"), _is_pad),
    Rule("concatenate(A, A) => reshape(broadcast(A))", op("concatenate"), _tiles),
)
