"""What rules about moved data ask: dimension lists, ranges, users."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hloopt.analysis.layout import reshaped_groups
from hloopt.ir import Instruction
from hloopt.ops import OPS
from hloopt.rewrite import Match, op, own_attributes, same_layout, used_once, var
from hloopt.simplify.predicates import resized
from hloopt.types import ArrayShape, Dims, PaddingDim, SliceRange

__all__ = [
    "PASSABLE",
    "REORDERED",
    "adds_only_ones",
    "all_users_are",
    "before_transpose",
    "common_factors",
    "concatenated",
    "dimensions",
    "dimensions_besides_ones",
    "in_order",
    "is_scalar",
    "keeps_places",
    "lies_alike",
    "matched_dims",
    "moved",
    "only_ones_differ",
    "paddings",
    "progression",
    "ranges",
    "reorders_only",
    "reshaped_before",
    "unmodified_dimensions",
    "with_dims",
    "without_sparsity",
]

REORDERED = op("copy", var("A")).where(lambda copy: used_once(copy) and reorders_only(copy))
"""A copy only of the order in memory, for what may read the elements of ``A`` in any order."""

_NOT_MOVED = ("copy", "reduce-precision", "stochastic-convert")
PASSABLE = tuple(
    name for name, row in OPS.items() if row.family == "elementwise" and name not in _NOT_MOVED
)
"""Elementwise ops that data movement may pass; a copy is there for its layout."""


def is_scalar(instruction: Instruction) -> bool:
    """Whether this is an array of rank 0."""
    return isinstance(instruction.shape, ArrayShape) and not instruction.shape.dims


def dimensions(instruction: Instruction) -> Dims:
    """The attribute ``dimensions``; nothing where there is none."""
    found: Dims = instruction.attributes.get("dimensions", ())
    return found


def ranges(instruction: Instruction) -> tuple[SliceRange, ...]:
    """What a slice takes, a range a dimension."""
    found: tuple[SliceRange, ...] = instruction.attributes["slice"]
    return found


def paddings(instruction: Instruction) -> tuple[PaddingDim, ...]:
    """What a pad adds, an entry a dimension."""
    found: tuple[PaddingDim, ...] = instruction.attributes["padding"]
    return found


def concatenated(concatenate: Instruction) -> int:
    """The dimension along which a concatenate joins."""
    return dimensions(concatenate)[0]


def reorders_only(copy: Instruction) -> bool:
    """Whether a copy changes the order of dimensions in memory, and neither tiles nor memory space."""
    given, made = copy.operands[0].array.layout, copy.array.layout
    return (given.suffix if given else "") == (made.suffix if made else "")


def all_users_are(instruction: Instruction, *opcodes: str) -> bool:
    """Whether all users are of these opcodes, and the instruction is not the root."""
    return not instruction.is_root and all(user.opcode in opcodes for user in instruction.users)


def common_factors(before: Dims, after: Dims) -> list[tuple[Dims, Dims]]:
    """The smallest groups of neighbouring dimensions that a reshape makes out of each other.

    Each pair is the numbers of dimensions before and of those after with the same product; all groups
    together are all dimensions, in order.  A dimension of one element goes with its left neighbour, or with
    the first.  No dimension may be 0.
    """
    starts = [(0, 0), *((left[0], right[0]) for left, right in reshaped_groups(before, after)[1:])]
    ends = [*starts[1:], (len(before), len(after))]
    bounds = zip(starts, ends, strict=True)
    groups = [(tuple(range(i, k)), tuple(range(j, m))) for (i, j), (k, m) in bounds]
    return groups if before or after else []


def unmodified_dimensions(before: Dims, after: Dims) -> dict[int, int]:
    """Dimensions that a reshape leaves alone, from their number before to that after.

    Both lists are cut where their running products agree; a piece that holds, apart from ones, a single
    equal dimension on both sides is unmodified.
    """
    found: dict[int, int] = {}
    i = j = 0
    while i < len(before) and j < len(after):
        if before[i] == after[j]:
            found[i] = j
            i, j = i + 1, j + 1
        elif before[i] == 1:
            i += 1
        elif after[j] == 1:
            j += 1
        else:
            left, right = before[i], after[j]
            i, j = i + 1, j + 1
            while left != right:
                if left < right and i < len(before):
                    left, i = left * before[i], i + 1
                elif j < len(after):
                    right, j = right * after[j], j + 1
                else:
                    return found
    return found


def adds_only_ones(before: Dims, after: Dims) -> bool:
    """Whether a reshape keeps all dimensions, so that a broadcast behind it can do its work."""
    kept = unmodified_dimensions(before, after)
    return only_ones_differ(before, after) and len(kept) == len(before)


def dimensions_besides_ones(dims: Dims) -> list[int]:
    """The numbers of the dimensions that do not have exactly one element."""
    return [number for number, size in enumerate(dims) if size != 1]


def only_ones_differ(before: Dims, after: Dims) -> bool:
    """Whether two lists of sizes agree apart from ones."""
    return [size for size in before if size != 1] == [size for size in after if size != 1]


def before_transpose(permutation: Dims, dims: Dims, after: Dims) -> tuple[Dims, Dims] | None:
    """How ``reshape(transpose(x))`` is a ``transpose(reshape(x))``: sizes in between, and permutation.

    ``dims`` are the sizes after the transpose, ``after`` those after the reshape.  None unless what the
    reshape merges or splits lies together, in order, before the transpose too.
    """
    if 0 in dims:
        return None
    sources = sorted(source for source, size in zip(permutation, dims, strict=True) if size != 1)
    rank = {source: number for number, source in enumerate(sources)}
    placed: list[tuple[int, int, Dims]] = []
    for number, (group, made) in enumerate(common_factors(dims, after)):
        ranks = [rank[permutation[d]] for d in group if dims[d] != 1]
        if ranks and ranks != list(range(ranks[0], ranks[0] + len(ranks))):
            return None
        placed.append((ranks[0] if ranks else len(rank), number, made))
    order = [d for _, _, made in sorted(placed) for d in made]
    back = {d: position for position, d in enumerate(order)}
    return tuple(after[d] for d in order), tuple(back[d] for d in range(len(after)))


def in_order(dims: Dims) -> bool:
    """Whether dimensions come in the order of their numbers."""
    return list(dims) == sorted(dims)


def keeps_places(moved: Instruction) -> bool:
    """Whether a transpose or broadcast leaves each dimension where it is, and adds none."""
    return dimensions(moved) == tuple(range(moved.array.rank))


def matched_dims(before: Dims, after: Dims) -> dict[int, int]:
    """Dimensions of ``before`` to those of ``after``, which differ in ones only; ones are left out."""
    numbers = map(dimensions_besides_ones, (before, after))
    return dict(zip(*numbers, strict=True))


def progression(match: Match, dimension: int, first: int, step: int) -> Instruction:
    """``first + step * iota`` along a dimension of the root's shape."""
    numbers = match.result("iota", iota_dimension=dimension)
    if step != 1:
        numbers = match.result("multiply", numbers, match.full(step))
    return match.result("add", numbers, match.full(first)) if first else numbers


def without_sparsity(dot: Instruction) -> bool:
    """Whether both operands of a dot are whole."""
    return own_attributes(dot).keys().isdisjoint(("sparsity", "sparsity_config"))


def lies_alike(left: ArrayShape, right: ArrayShape) -> bool:
    """Whether two arrays agree in sizes and layout, whatever their element types."""
    return left.dims == right.dims and same_layout(left.with_dtype(right.dtype), right)


def with_dims(shape: ArrayShape, dims: Dims) -> ArrayShape:
    """The shape with other sizes: in the same order in memory for the same rank, else row-major."""
    if len(dims) != shape.rank:
        return resized(shape, dims)
    return replace(shape, dims=dims, dynamic=())


def moved(
    match: Match,
    computed: Instruction,
    move: Callable[[Instruction], Instruction | None],
    shape: ArrayShape | None = None,
    undoing: str = "",
) -> Instruction | None:
    """``g(f(A, B))`` as ``f(g(A), g(B))``: the op on moved operands; None where one cannot be moved.

    The scalars that some ops have beside arrays stay.  The shape is the root's unless given.  One of the
    arrays must be made by an op ``undoing``, where there is one.
    """
    operands: list[Instruction] = []
    for operand in computed.operands:
        turned = operand if is_scalar(operand) else move(operand)
        if turned is None:
            return None
        operands.append(turned)
    made = {operand.opcode for operand in computed.operands if not is_scalar(operand)}
    return (
        None if undoing and undoing not in made else match.again(computed, *operands, shape=shape)
    )


def reshaped_before(
    match: Match, transpose: Instruction, after: Dims
) -> tuple[Instruction, Dims] | None:
    """What a transpose moves in other sizes, and the permutation that makes ``after`` of it."""
    found = before_transpose(dimensions(transpose), transpose.array.dims, after)
    if found is None:
        return None
    (dims, permutation), source = found, transpose.operands[0]
    if source.array.dims != dims:
        source = match.make("reshape", source, shape=resized(source.array, dims))
    return source, permutation
