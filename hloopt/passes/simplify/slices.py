"""Rules for slice, dynamic-slice, dynamic-update-slice, pad and concatenate."""

from __future__ import annotations

from itertools import pairwise

from hloopt.ir import Instruction
from hloopt.passes.simplify.conditions import resized, scalar_value
from hloopt.rewrite import Match, Rule, op, splat, splat_literal, var
from hloopt.types import PaddingDim, SliceRange

__all__ = ["RULES"]

A, B, S = var("A"), var("B"), splat(name="S")


def _ranges(instruction: Instruction) -> tuple[SliceRange, ...]:
    found: tuple[SliceRange, ...] = instruction.attributes["slice"]
    return found


def _padding(instruction: Instruction) -> tuple[PaddingDim, ...]:
    found: tuple[PaddingDim, ...] = instruction.attributes["padding"]
    return found


def _dimension(concatenate: Instruction) -> int:
    dimension: int = concatenate.attributes["dimensions"][0]
    return dimension


def _slice(match: Match, operand: Instruction, ranges: tuple[SliceRange, ...]) -> Instruction:
    return match.make("slice", (operand,), {"slice": ranges}, match.root.shape)


def _same_dims(match: Match) -> bool:
    return match.A.array.dims == match.root.array.dims


def _slice_once(match: Match) -> Instruction:
    inner, outer = _ranges(match.root.operands[0]), _ranges(match.root)
    return _slice(match, match.A, tuple(map(_composed, inner, outer)))


def _composed(inner: SliceRange, outer: SliceRange) -> SliceRange:
    start, stride = inner.start + outer.start * inner.stride, inner.stride * outer.stride
    size = outer.size
    if not size:
        return SliceRange(inner.start, inner.start)
    return SliceRange(start, start + (size - 1) * stride + 1, stride if size > 1 else 1)


def _slice_of_broadcast(match: Match) -> Instruction:
    """Slice what is broadcast, where a dimension of it is cut, and broadcast less."""
    inner, ranges = match.root.operands[0], _ranges(match.root)
    dims: tuple[int, ...] = inner.attributes.get("dimensions", ())
    kept = tuple(ranges[d] for d in dims)
    source, shape = match.A, match.A.array
    sizes = tuple(entry.size for entry in kept)
    if sizes != shape.dims:
        source = match.make("slice", (source,), {"slice": kept}, resized(shape, sizes))
    return match.make("broadcast", (source,), {"dimensions": dims}, match.root.shape)


def _slice_of_concatenate(match: Match) -> Instruction | None:
    """Take the one operand in which the whole range lies."""
    inner, ranges = match.root.operands[0], _ranges(match.root)
    dimension = _dimension(inner)
    wanted = ranges[dimension]
    offset = 0
    for operand in inner.operands:
        size = operand.array.dims[dimension]
        if offset <= wanted.start and wanted.limit <= offset + size:
            moved = SliceRange(wanted.start - offset, wanted.limit - offset, wanted.stride)
            changed = (*ranges[:dimension], moved, *ranges[dimension + 1 :])
            return _slice(match, operand, changed)
        offset += size
    return None


def _slice_of_pad(match: Match) -> Instruction | None:
    """Where the slice reads data only, read it before the padding."""
    moved: list[SliceRange] = []
    pads = zip(
        _ranges(match.root), _padding(match.root.operands[0]), match.A.array.dims, strict=True
    )
    for wanted, padding, size in pads:
        start, limit = wanted.start - padding.low, wanted.limit - padding.low
        if padding.interior or start < 0 or limit > size or wanted.size == 0:
            return None
        moved.append(SliceRange(start, limit, wanted.stride))
    return _slice(match, match.A, tuple(moved))


def _first_is_whole(match: Match) -> Instruction | None:
    operand = match.root.operands[0]
    return operand if operand.array.dims == match.root.array.dims else None


def _constant_starts(match: Match) -> Instruction | None:
    """Starts are clamped so that the slice stays inside."""
    operand, starts = match.root.operands[0], match.root.operands[1:]
    dims, sizes = operand.array.dims, match.root.array.dims
    if len(starts) != len(dims):
        return None
    ranges: list[SliceRange] = []
    for start, dim, size in zip(starts, dims, sizes, strict=True):
        value = scalar_value(start)
        if value is None or start.array.dims:
            if dim != size:
                return None
            ranges.append(SliceRange(0, size))
            continue
        first = max(0, min(int(value), dim - size))
        ranges.append(SliceRange(first, first + size))
    return _slice(match, operand, tuple(ranges))


def _scalar_broadcast(match: Match) -> Instruction | None:
    operand = match.root.operands[0]
    source = operand.operands[0]
    if source.array.dims:
        return None
    return match.make("broadcast", (source,), {"dimensions": ()}, match.root.shape)


def _update_is_whole(match: Match) -> Instruction | None:
    update = match.root.operands[1]
    return update if update.array.dims == match.root.array.dims else None


def _update_is_itself(match: Match) -> Instruction | None:
    """Writing back what was read at the same place."""
    operand, update, *starts = match.root.operands
    same = update.operands[0] is operand and list(update.operands[1:]) == starts
    return operand if same else None


def _pads_nothing(match: Match) -> bool:
    nothing = PaddingDim(0, 0, 0)
    return _same_dims(match) and all(
        entry == nothing or (not (entry.low or entry.high) and size <= 1)
        for entry, size in zip(_padding(match.root), match.A.array.dims, strict=True)
    )


def _pads_with_itself(match: Match) -> Instruction | None:
    left, right = splat_literal(match.S), splat_literal(match.root.operands[1])
    if left is None or left != right:
        return None
    return match.splat_of(match.root.array, left)


def _one_operand(match: Match) -> Instruction | None:
    return match.root.operands[0] if len(match.root.operands) == 1 else None


def _without_empty(match: Match) -> Instruction | None:
    root = match.root
    kept = tuple(operand for operand in root.operands if operand.array.elements)
    if not kept or len(kept) == len(root.operands):
        return None
    return match.make("concatenate", kept, {"dimensions": (_dimension(root),)}, root.shape)


def _flattened(match: Match) -> Instruction | None:
    """A whole tree at once, from its last concatenate: step by step would copy operands again and again."""
    root = match.root
    dimension = _dimension(root)
    if _goes_into_another(root):
        return None
    operands: list[Instruction] = []
    pending = [root]
    while pending:
        operand = pending.pop()
        if operand is root or (
            operand.opcode == "concatenate"
            and _dimension(operand) == dimension
            and _goes_into_another(operand)
        ):
            pending.extend(reversed(operand.operands))
        else:
            operands.append(operand)
    if len(operands) == len(root.operands):
        return None
    return match.make("concatenate", tuple(operands), {"dimensions": (dimension,)}, root.shape)


def _goes_into_another(concatenate: Instruction) -> bool:
    """Whether its only use is in a concatenate along the same dimension."""
    if len(concatenate.users) != 1 or concatenate.is_root:
        return False
    ((user, count),) = concatenate.users.items()
    same = user.opcode == "concatenate" and _dimension(user) == _dimension(concatenate)
    return same and count == 1


def _concatenated_splats(match: Match) -> Instruction | None:
    first = splat_literal(match.root.operands[0])
    if first is None or any(splat_literal(operand) != first for operand in match.root.operands):
        return None
    return match.splat_of(match.root.array, first)


def _adjacent_slices(match: Match) -> Instruction | None:
    """One slice, where each operand goes on where the one before ended."""
    operands = match.root.operands
    if len(operands) < 2 or any(
        operand.opcode != "slice" or operand.operands[0] is not operands[0].operands[0]
        for operand in operands
    ):
        return None
    dimension = _dimension(match.root)
    ranges = [list(_ranges(operand)) for operand in operands]
    along = [entry.pop(dimension) for entry in ranges]
    if any(left.limit != right.start for left, right in pairwise(along)):
        return None
    if any(entry.stride != 1 for entry in along) or any(rest != ranges[0] for rest in ranges):
        return None
    whole = ranges[0]
    whole.insert(dimension, SliceRange(along[0].start, along[-1].limit))
    return _slice(match, operands[0].operands[0], tuple(whole))


RULES = (
    Rule(
        "slice(A) => A",
        op("slice", A),
        A,
        when=_same_dims,
        example="x = f32[4,3] parameter(0)\n ROOT r = f32[4,3] slice(x), slice={[0:4], [0:3]}",
        counterexample="x = f32[4,3] parameter(0)\n ROOT r = f32[4,2] slice(x), slice={[0:4], [1:3]}",
    ),
    Rule(
        "slice(slice(A)) => slice(A)",
        op("slice", op("slice", A)),
        _slice_once,
        example="x = f32[20] parameter(0)\n y = f32[6] slice(x), slice={[2:20:3]}\n"
        "ROOT r = f32[2] slice(y), slice={[1:5:2]}",
        counterexample="x = f32[20] parameter(0)\n y = f32[20] reverse(x), dimensions={0}\n"
        "ROOT r = f32[2] slice(y), slice={[1:5:2]}",
    ),
    Rule(
        "slice(broadcast(A)) => broadcast(slice(A))",
        op("slice", op("broadcast", A)),
        _slice_of_broadcast,
        example="x = f32[5] parameter(0)\n y = f32[4,5] broadcast(x), dimensions={1}\n"
        "ROOT r = f32[2,3] slice(y), slice={[1:3], [0:5:2]}",
        counterexample="x = f32[5] parameter(0)\n y = f32[4,5] broadcast(x), dimensions={1}\n"
        "n = f32[4,5] negate(y)\n ROOT r = f32[2,5] slice(n), slice={[1:3], [0:5]}",
    ),
    Rule(
        "slice(concatenate(A, B)) => slice(B)",
        op("slice", op("concatenate")),
        _slice_of_concatenate,
        example="x = f32[2,3] parameter(0)\n y = f32[2,5] parameter(1)\n"
        "c = f32[2,8] concatenate(x, y), dimensions={1}\n"
        "ROOT r = f32[1,2] slice(c), slice={[1:2], [4:8:2]}",
        counterexample="x = f32[2,3] parameter(0)\n y = f32[2,5] parameter(1)\n"
        "c = f32[2,8] concatenate(x, y), dimensions={1}\n"
        "ROOT r = f32[2,2] slice(c), slice={[0:2], [2:4]}",
    ),
    Rule(
        "slice(pad(A, B)) => slice(A)",
        op("slice", op("pad", A, B)),
        _slice_of_pad,
        example="x = f32[4] parameter(0)\n z = f32[] constant(0)\n p = f32[9] pad(x, z), padding=2_3\n"
        "ROOT r = f32[2] slice(p), slice={[3:6:2]}",
        counterexample="x = f32[4] parameter(0)\n z = f32[] constant(0)\n"
        "p = f32[9] pad(x, z), padding=2_3\n ROOT r = f32[3] slice(p), slice={[1:4]}",
    ),
    Rule(
        "dynamic-slice(A, ...) => A",
        op("dynamic-slice"),
        _first_is_whole,
        example="x = f32[4] parameter(0)\n i = s32[] parameter(1)\n"
        "ROOT r = f32[4] dynamic-slice(x, i), dynamic_slice_sizes={4}",
        counterexample="x = f32[4] parameter(0)\n i = s32[] parameter(1)\n"
        "ROOT r = f32[3] dynamic-slice(x, i), dynamic_slice_sizes={3}",
    ),
    Rule(
        "dynamic-slice(A, C) => slice(A)",
        op("dynamic-slice"),
        _constant_starts,
        example="x = f32[4,5] parameter(0)\n i = s32[] constant(3)\n j = s32[] constant(-1)\n"
        "ROOT r = f32[2,3] dynamic-slice(x, i, j), dynamic_slice_sizes={2,3}",
        counterexample="x = f32[4,5] parameter(0)\n i = s32[] parameter(1)\n j = s32[] constant(1)\n"
        "ROOT r = f32[2,3] dynamic-slice(x, i, j), dynamic_slice_sizes={2,3}",
    ),
    Rule(
        "dynamic-slice(broadcast(scalar), ...) => broadcast(scalar)",
        op("dynamic-slice"),
        lambda match: (
            _scalar_broadcast(match) if match.root.operands[0].opcode == "broadcast" else None
        ),
        example="x = f32[] parameter(0)\n b = f32[6] broadcast(x), dimensions={}\n"
        "i = s32[] parameter(1)\n ROOT r = f32[2] dynamic-slice(b, i), dynamic_slice_sizes={2}",
        counterexample="x = f32[6] parameter(0)\n b = f32[6,2] broadcast(x), dimensions={0}\n"
        "i = s32[] parameter(1)\n"
        "ROOT r = f32[2,2] dynamic-slice(b, i, i), dynamic_slice_sizes={2,2}",
    ),
    Rule(
        "dynamic-update-slice(A, B, ...) => B",
        op("dynamic-update-slice"),
        _update_is_whole,
        example="x = f32[4] parameter(0)\n y = f32[4] parameter(1)\n i = s32[] parameter(2)\n"
        "ROOT r = f32[4] dynamic-update-slice(x, y, i)",
        counterexample="x = f32[4] parameter(0)\n y = f32[3] parameter(1)\n i = s32[] parameter(2)\n"
        "ROOT r = f32[4] dynamic-update-slice(x, y, i)",
    ),
    Rule(
        "dynamic-update-slice(A, dynamic-slice(A, I), I) => A",
        op("dynamic-update-slice"),
        lambda match: (
            _update_is_itself(match) if match.root.operands[1].opcode == "dynamic-slice" else None
        ),
        example="x = f32[4] parameter(0)\n i = s32[] parameter(1)\n"
        "y = f32[2] dynamic-slice(x, i), dynamic_slice_sizes={2}\n"
        "ROOT r = f32[4] dynamic-update-slice(x, y, i)",
        counterexample="x = f32[4] parameter(0)\n i = s32[] parameter(1)\n j = s32[] parameter(2)\n"
        "y = f32[2] dynamic-slice(x, i), dynamic_slice_sizes={2}\n"
        "ROOT r = f32[4] dynamic-update-slice(x, y, j)",
    ),
    Rule(
        "pad(A, B) => A",
        op("pad", A, B),
        A,
        when=_pads_nothing,
        example="x = f32[4,1] parameter(0)\n z = f32[] constant(0)\n"
        "ROOT r = f32[4,1] pad(x, z), padding=0_0x0_0_3",
        counterexample="x = f32[4] parameter(0)\n z = f32[] constant(0)\n"
        "ROOT r = f32[4] pad(x, z), padding=1_-1",
    ),
    Rule(
        "pad(broadcast(C), C) => broadcast(C)",
        op("pad", S, splat()),
        _pads_with_itself,
        example="z = $T[] constant(1)\n b = $T[3] broadcast(z), dimensions={}\n"
        "ROOT r = $T[8] pad(b, z), padding=1_2_1",
        counterexample="z = f32[] constant(0)\n m = f32[] constant(-0.0)\n"
        "b = f32[3] broadcast(z), dimensions={}\n ROOT r = f32[6] pad(b, m), padding=1_2",
        types=("f32", "s32"),
    ),
    Rule(
        "concatenate(A) => A",
        op("concatenate"),
        _one_operand,
        example="x = f32[4] parameter(0)\n ROOT r = f32[4] concatenate(x), dimensions={0}",
        counterexample="x = f32[4] parameter(0)\n ROOT r = f32[8] concatenate(x, x), dimensions={0}",
    ),
    Rule(
        "concatenate(A, empty) => concatenate(A)",
        op("concatenate"),
        _without_empty,
        example="x = f32[4] parameter(0)\n y = f32[0] parameter(1)\n"
        "ROOT r = f32[8] concatenate(x, y, x), dimensions={0}",
        counterexample="x = f32[0] parameter(0)\n ROOT r = f32[0] concatenate(x, x), dimensions={0}",
    ),
    Rule(
        "concatenate(concatenate(A, B), C) => concatenate(A, B, C)",
        op("concatenate"),
        _flattened,
        example="x = f32[4,2] parameter(0)\n y = f32[4,3] parameter(1)\n"
        "c = f32[4,5] concatenate(x, y), dimensions={1}\n"
        "ROOT r = f32[4,7] concatenate(x, c), dimensions={1}",
        counterexample="x = f32[4,2] parameter(0)\n y = f32[4,2] parameter(1)\n"
        "c = f32[4,4] concatenate(x, y), dimensions={1}\n"
        "ROOT r = f32[8,4] concatenate(c, c), dimensions={0}",
    ),
    Rule(
        "concatenate(broadcast(C), broadcast(C)) => broadcast(C)",
        op("concatenate"),
        _concatenated_splats,
        example="z = f32[] constant(7)\n a = f32[3] broadcast(z), dimensions={}\n"
        "b = f32[2] broadcast(z), dimensions={}\n ROOT r = f32[5] concatenate(a, b), dimensions={0}",
        counterexample="z = f32[] constant(0)\n m = f32[] constant(-0.0)\n"
        "a = f32[3] broadcast(z), dimensions={}\n b = f32[2] broadcast(m), dimensions={}\n"
        "ROOT r = f32[5] concatenate(a, b), dimensions={0}",
    ),
    Rule(
        "concatenate(slice(A), slice(A)) => slice(A)",
        op("concatenate"),
        _adjacent_slices,
        example="x = f32[8,2] parameter(0)\n a = f32[2,2] slice(x), slice={[1:3], [0:2]}\n"
        "b = f32[4,2] slice(x), slice={[3:7], [0:2]}\n"
        "ROOT r = f32[6,2] concatenate(a, b), dimensions={0}",
        counterexample="x = f32[8,2] parameter(0)\n a = f32[2,2] slice(x), slice={[1:3], [0:2]}\n"
        "b = f32[4,2] slice(x), slice={[3:7], [0:2]}\n"
        "ROOT r = f32[6,2] concatenate(b, a), dimensions={0}",
    ),
)
