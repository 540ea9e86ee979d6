"""Rules for pad."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.rewrite import Match, Rule, op, own_attributes, splat, splat_literal, used_once, var
from hloopt.simplify.data_movement import (
    PASSABLE,
    dimensions,
    is_scalar,
    lies_alike,
    paddings,
    with_dims,
)
from hloopt.simplify.predicates import (
    exact_or_fast,
    is_negative_zero,
    is_positive_zero,
    resized,
)
from hloopt.types import ArrayShape, PaddingDim, SliceRange, array

__all__ = ["RULES"]

A, B, S = var("A"), var("B"), splat(name="S")

_NOTHING = PaddingDim(0, 0, 0)


def _pads_nothing(match: Match) -> bool:
    return match.A.array.dims == match.array.dims and all(
        entry == _NOTHING or (not (entry.low or entry.high) and size <= 1)
        for entry, size in zip(paddings(match.root), match.A.array.dims, strict=True)
    )


def _pads_with_itself(match: Match) -> Instruction | None:
    left, right = splat_literal(match.S), splat_literal(match.root.operands[1])
    if left is None or left != right:
        return None
    return match.splat_of(match.array, left)


def _pad(
    match: Match, operand: Instruction, value: Instruction, entries: tuple[PaddingDim, ...]
) -> Instruction:
    return match.result("pad", operand, value, padding=entries)


def _of_nothing(match: Match) -> Instruction | None:
    if match.A.array.elements or not match.array.elements:
        return None
    return match.result("broadcast", match.B, dimensions=())


def _without_interior(match: Match) -> Instruction | None:
    """There is nothing between the elements of a dimension that has one."""
    entries = paddings(match.root)
    plain = tuple(
        PaddingDim(entry.low, entry.high) if size <= 1 else entry
        for entry, size in zip(entries, match.A.array.dims, strict=True)
    )
    return _pad(match, match.A, match.B, plain) if plain != entries else None


def _cut_first(match: Match) -> Instruction | None:
    """Elements that negative padding drops are dropped before; between elements nothing is added."""
    entries = paddings(match.root)
    if all(entry.low >= 0 and entry.high >= 0 for entry in entries):
        return None
    taken: list[SliceRange] = []
    rest: list[PaddingDim] = []
    for entry, size in zip(entries, match.A.array.dims, strict=True):
        low, high = max(0, -entry.low), size - max(0, -entry.high)
        if (entry.interior and (low or high < size)) or low >= high:
            return None
        taken.append(SliceRange(low, high))
        rest.append(PaddingDim(max(0, entry.low), max(0, entry.high), entry.interior))
    sizes = tuple(entry.size for entry in taken)
    shape = with_dims(match.A.array, sizes)
    if shape.dims == match.array.dims:
        shape = match.array
    cut = match.make("slice", match.A, shape=shape, slice=tuple(taken))
    return (
        cut if all(entry == _NOTHING for entry in rest) else _pad(match, cut, match.B, tuple(rest))
    )


def _pad_once(match: Match) -> Instruction | None:
    """Two rims of one value."""
    inner = match.inner
    values = [inner.operands[1], match.root.operands[1]]
    literals = [splat_literal(value) for value in values]
    if values[0] is not values[1] and (literals[0] is None or literals[0] != literals[1]):
        return None
    both: list[PaddingDim] = []
    for first, second in zip(paddings(inner), paddings(match.root), strict=True):
        if second.interior or min(first.low, first.high, second.low, second.high) < 0:
            return None
        both.append(PaddingDim(first.low + second.low, first.high + second.high, first.interior))
    return _pad(match, match.A, values[1], tuple(both))


def _before_broadcast(match: Match) -> Instruction | None:
    """Pad before repeating, where a dimension that is repeated is not padded."""
    dims, entries = dimensions(match.inner), paddings(match.root)
    if list(dims) != sorted(dims):
        return None
    kept = tuple(d for d in range(len(entries)) if d in dims or entries[d] != _NOTHING)
    if len(kept) == len(entries) or not kept:
        return None
    source = match.A
    if kept != dims:
        shape = match.inner.array
        small = resized(shape, tuple(shape.dims[d] for d in kept))
        places = tuple(kept.index(d) for d in dims)
        source = match.make("broadcast", source, shape=small, dimensions=places)
    sizes = tuple(match.array.dims[d] for d in kept)
    padded = match.make(
        "pad",
        source,
        match.B,
        shape=resized(match.array, sizes),
        padding=tuple(entries[d] for d in kept),
    )
    return match.result("broadcast", padded, dimensions=kept)


def _after_elementwise(match: Match) -> Instruction | None:
    """Compute before padding, and the padding once; the padded operands go away."""
    root = match.root
    pads = {operand for operand in root.operands if operand.opcode == "pad"}
    first = next(iter(pads), None)
    if first is None or any(list(pad.users) != [root] or pad.is_root for pad in pads):
        return None
    if any(paddings(pad) != paddings(first) for pad in pads):
        return None
    shape = first.operands[0].array
    if shape.elements >= root.array.elements:
        return None
    operands: list[Instruction] = []
    values: list[Instruction] = []
    for operand in root.operands:
        literal = splat_literal(operand)
        if operand.opcode == "pad":
            source = operand.operands[0]
            if not lies_alike(source.array, shape):
                return None
            operands.append(source)
            values.append(operand.operands[1])
        elif is_scalar(operand):
            operands.append(operand)
            values.append(operand)
        elif literal is not None:
            operands.append(match.splat_of(shape.with_dtype(operand.array.dtype), literal))
            values.append(match.constant(literal))
        else:
            return None
    attributes = own_attributes(root)
    small = match.make(
        root.opcode, *operands, shape=shape.with_dtype(root.array.dtype), **attributes
    )
    value = match.make(root.opcode, *values, shape=array(root.array.dtype), **attributes)
    return _pad(match, small, value, paddings(first))


def _side_by_side(match: Match) -> Instruction | None:
    """The gradient of slices: parts at disjoint places are padded once, and -0 + 0 stays 0."""
    pads = [_without_zero(operand) for operand in match.root.operands]
    if match.array.dynamic or not all(map(_is_padded_once, pads)):
        return None
    value = pads[0].operands[1]
    is_neutral = all(is_negative_zero(pad.operands[1]) for pad in pads)
    if not is_neutral and not all(is_positive_zero(pad.operands[1]) for pad in pads):
        return None
    entries = [paddings(pad) for pad in pads]
    differing = [at for at, pair in enumerate(zip(*entries, strict=True)) if pair[0] != pair[1]]
    if len(differing) != 1:
        return None
    (along,) = differing
    if entries[0][along].low > entries[1][along].low:
        pads.reverse()
        entries.reverse()
    low, begin, high = entries[0][along].low, entries[1][along].low, entries[1][along].high
    parts = [_without_zero(pad.operands[0]) for pad in pads]
    lengths = [part.array.dims[along] for part in parts]
    between = begin - low - lengths[0]
    if between < 0 or min(low, high) < 0:
        return None
    if between:
        parts.insert(1, match.fill(_of_length(parts[0].array, along, between), value))
    around = list(entries[0])
    around[along] = PaddingDim(low, high)
    shape = _of_length(parts[0].array, along, sum(lengths) + between)
    if all(entry == _NOTHING for entry in around):
        shape = match.array
    whole = match.make("concatenate", *parts, shape=shape, dimensions=(along,))
    if shape is not match.array:
        whole = _pad(match, whole, value, tuple(around))
    if is_neutral or exact_or_fast(match):
        return whole
    return match.result("add", whole, match.full(0))


def _of_length(shape: ArrayShape, dimension: int, size: int) -> ArrayShape:
    return with_dims(shape, (*shape.dims[:dimension], size, *shape.dims[dimension + 1 :]))


def _is_padded_once(value: Instruction) -> bool:
    return (
        value.opcode == "pad"
        and used_once(value)
        and not any(entry.interior for entry in paddings(value))
    )


def _without_zero(instruction: Instruction) -> Instruction:
    """What +0 is added to, where that is so and has no other reader."""
    if instruction.opcode != "add" or not used_once(instruction):
        return instruction
    value, zero = instruction.operands
    return value if is_positive_zero(zero) else instruction


RULES = (
    Rule("pad(A, B) => A", op("pad", A, B), A, when=_pads_nothing),
    Rule("pad(broadcast(C), C) => broadcast(C)", op("pad", S, splat()), _pads_with_itself),
    Rule("pad(empty, B) => broadcast(B)", op("pad", A, B), _of_nothing),
    Rule("pad(A, B) between no elements => pad(A, B)", op("pad", A, B), _without_interior),
    Rule("pad(A, B) of less than nothing => pad(slice(A), B)", op("pad", A, B), _cut_first),
    Rule("pad(pad(A, B), B) => pad(A, B)", op("pad", op("pad", A, B), var("C")), _pad_once),
    Rule(
        "pad(broadcast(A), B) => broadcast(pad(broadcast(A), B))",
        op("pad", op("broadcast", A), B),
        _before_broadcast,
    ),
    Rule("pad(A, 0) + pad(B, 0) => pad(concatenate(A, B), 0)", op("add"), _side_by_side),
    Rule("f(pad(A, C), pad(B, D)) => pad(f(A, B), f(C, D))", op(PASSABLE), _after_elementwise),
)
