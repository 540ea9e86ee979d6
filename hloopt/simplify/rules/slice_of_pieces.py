"""Rules for slices of what is put together: concatenate, pad, iota, dynamic-update-slice."""

from __future__ import annotations

from operator import le

from hloopt.ir import Instruction
from hloopt.ops.traits import PERMUTING, REARRANGING, SOURCES
from hloopt.rewrite import Match, Rule, op, splat_literal, variables
from hloopt.rewrite.regions import is_exact, named_combiner
from hloopt.simplify.data_movement import (
    PASSABLE,
    all_users_are,
    concatenated,
    is_scalar,
    paddings,
    progression,
    ranges,
    with_dims,
)
from hloopt.simplify.predicates import resized
from hloopt.simplify.rules.slice import is_only_sliced, part, sliced
from hloopt.simplify.update_chains import ElementBox, UpdateChains, written_box
from hloopt.types import PaddingDim, SliceRange, WindowDim

__all__ = ["RULES"]

A, B = variables("A B")


def _slice_of_concatenate(match: Match) -> Instruction | None:
    """Take the one operand in which the whole range lies."""
    found = _piece(match.inner, ranges(match.root))
    return None if found is None else sliced(match, *found)


def _piece(
    concatenate: Instruction, taken: tuple[SliceRange, ...]
) -> tuple[Instruction, tuple[SliceRange, ...]] | None:
    """The operand in which a slice lies, and its place there."""
    dimension = concatenated(concatenate)
    wanted, offset = taken[dimension], 0
    for operand in concatenate.operands:
        size = operand.array.dims[dimension]
        if offset <= wanted.start and wanted.limit <= offset + size:
            moved = SliceRange(wanted.start - offset, wanted.limit - offset, wanted.stride)
            return operand, _with(taken, dimension, moved)
        offset += size
    return None


def _with(
    taken: tuple[SliceRange, ...], dimension: int, entry: SliceRange
) -> tuple[SliceRange, ...]:
    return (*taken[:dimension], entry, *taken[dimension + 1 :])


def _slice_before_concatenate(match: Match) -> Instruction | None:
    """Join only what is sliced; the whole concatenate is then dead."""
    inner, taken = match.F, ranges(match.root)
    dimension = concatenated(inner)
    wanted = taken[dimension]
    if wanted.stride != 1 or not wanted.size or not is_only_sliced(inner):
        return None
    pieces: list[Instruction] = []
    offset = 0
    for operand in inner.operands:
        size = operand.array.dims[dimension]
        first, limit = max(0, wanted.start - offset), min(size, wanted.limit - offset)
        if first < limit:
            pieces.append(part(match, operand, _with(taken, dimension, SliceRange(first, limit))))
        offset += size
    if len(pieces) < 2:
        return None
    return match.result("concatenate", *pieces, dimensions=(dimension,))


_MOST_SLICES = 64


def _slice_past_pieces(match: Match) -> Instruction | None:
    """Compute from pieces alone, where slices, together no more than the whole, take it apart again."""
    computed, taken = match.F, ranges(match.root)
    if len(computed.users) > _MOST_SLICES or not all_users_are(computed, "slice"):
        return None
    joins = [operand for operand in computed.operands if operand.opcode == "concatenate"]
    if sum(user.array.elements for user in computed.users) > computed.array.elements or not joins:
        return None
    pieces: list[Instruction] = []
    for operand in computed.operands:
        literal = splat_literal(operand)
        if is_scalar(operand):
            pieces.append(operand)
        elif operand.opcode == "concatenate":
            found = _piece(operand, taken)
            if found is None:
                return None
            pieces.append(part(match, *found))
        elif literal is not None:
            shape = with_dims(operand.array, match.array.dims)
            pieces.append(match.splat_of(shape, literal))
        elif operand.opcode in _AT_HAND:
            pieces.append(part(match, operand, taken))
        else:
            return match.refuse(f"operand {operand.name} is neither a concatenate nor a broadcast")
    shape = with_dims(computed.array, match.array.dims)
    return match.again(computed, *pieces, shape=shape)


_AT_HAND = SOURCES | REARRANGING - PERMUTING | {"get-tuple-element", "reshape"}


def _slice_of_pad(match: Match) -> Instruction | None:
    """Where the slice reads data only, read it before the padding."""
    moved: list[SliceRange] = []
    pads = zip(ranges(match.root), paddings(match.inner), match.A.array.dims, strict=True)
    for wanted, padding, size in pads:
        step, count = padding.interior + 1, wanted.size
        first, rest = divmod(wanted.start - padding.low, step)
        stride, between = divmod(wanted.stride, step) if count > 1 else (1, 0)
        last = first + (count - 1) * stride
        if not count or rest or between or first < 0 or last >= size:
            return None
        moved.append(SliceRange(first, last + 1, stride))
    return sliced(match, match.A, tuple(moved))


def _slice_of_padding(match: Match) -> Instruction | None:
    """In one dimension nothing but padding is taken."""
    pads = zip(ranges(match.root), paddings(match.inner), match.A.array.dims, strict=True)
    for wanted, padding, size in pads:
        step, last = padding.interior + 1, wanted.start + (wanted.size - 1) * wanted.stride
        end = padding.low + (size - 1) * step
        outside = not size or last < padding.low or wanted.start > end
        start, stride = wanted.start - padding.low, wanted.stride if wanted.size > 1 else step
        if outside or (start % step and stride % step == 0):
            return match.result("broadcast", match.B, dimensions=())
    return None


def _slice_before_pad(match: Match) -> Instruction | None:
    """Pad only as far as is sliced; the whole pad is then dead."""
    inner = match.F
    if not is_only_sliced(inner) or 0 in match.array.dims:
        return None
    taken: list[SliceRange] = []
    padded: list[PaddingDim] = []
    for wanted, entry, size in zip(
        ranges(match.root), paddings(inner), match.A.array.dims, strict=True
    ):
        if wanted.stride != 1 or (entry.interior and wanted.size != inner.array.dims[len(taken)]):
            return None
        if entry.interior or wanted.size == inner.array.dims[len(taken)]:
            taken.append(SliceRange(0, size))
            padded.append(entry)
            continue
        first, limit = max(0, wanted.start - entry.low), min(size, wanted.limit - entry.low)
        if first >= limit:
            return None
        taken.append(SliceRange(first, limit))
        low = first + entry.low - wanted.start
        padded.append(PaddingDim(low, wanted.size - low - (limit - first)))
    source = part(match, match.A, tuple(taken))
    return match.result("pad", source, match.B, padding=tuple(padded))


def _slice_of_iota(match: Match) -> Instruction | None:
    """The iota from its first number on, in the steps of the slice."""
    iota = match.inner
    dimension = iota.iota_dimension
    wanted, dtype = ranges(match.root)[dimension], iota.array.dtype
    first, step = wanted.start, wanted.stride if wanted.size > 1 else 1
    if not wanted.size or (first, step) == (0, 1):
        return progression(match, dimension, 0, 1)
    if not dtype.is_integer or dtype.bits < 8 or wanted.limit > dtype.limits[1]:
        return None
    return progression(match, dimension, first, step)


def _slice_of_update(match: Match) -> Instruction | None:
    """Past all updates beside it; at a known place, it may lie within what one of them has written."""
    wanted = ranges(match.root)
    if 0 in match.array.dims:
        return sliced(match, match.F.operands[0], wanted)
    box = [entry.start for entry in wanted], [_end(entry) for entry in wanted]
    chains: UpdateChains = match.memory.setdefault(UpdateChains, UpdateChains())
    writer = chains.writer(match.F, box)
    written = written_box(writer)
    if written is not None and _lies_within(box, written):
        update, (first, limit) = writer.operands[1], written
        if update.array.dims == tuple(end - at for at, end in zip(first, limit, strict=True)):
            moved = (
                SliceRange(entry.start - at, _end(entry) - at, entry.stride)
                for entry, at in zip(wanted, first, strict=True)
            )
            return sliced(match, update, tuple(moved))
    return None if writer is match.F else sliced(match, writer, wanted)


def _end(taken: SliceRange) -> int:
    """Behind the last element that is taken."""
    return taken.start + (taken.size - 1) * taken.stride + 1


def _lies_within(inner: ElementBox, outer: ElementBox) -> bool:
    return all(map(le, outer[0], inner[0])) and all(map(le, inner[1], outer[1]))


def _slice_of_prefixes(match: Match) -> Instruction | None:
    """The last of running reductions is the reduction of everything."""
    scan, root = match.F, match.root
    rank, opcode = root.array.rank, named_combiner(scan.to_apply)
    if len(scan.operands) != 2 or not (match.fast_math or is_exact(opcode, root.array)):
        return None
    window = scan.window.dims
    long = [d for d in range(rank) if window[d] != WindowDim(1)]
    if len(long) != 1:
        return None
    (along,) = long
    size, taken = scan.array.dims[along], list(ranges(root))
    if window[along] != WindowDim(size, pad_low=size - 1) or taken[along].start != size - 1:
        return None
    taken[along] = SliceRange(0, size)
    source = part(match, scan.operands[0], tuple(taken))
    dims = (*root.array.dims[:along], *root.array.dims[along + 1 :])
    total = match.make(
        "reduce",
        source,
        scan.operands[1],
        shape=resized(root.array, dims),
        dimensions=(along,),
        to_apply=scan.to_apply,
    )
    return match.result("reshape", total)


RULES = (
    Rule(
        "slice(concatenate(A, B)) => slice(B)",
        op("slice", op("concatenate")),
        _slice_of_concatenate,
    ),
    Rule(
        "slice(concatenate(A, B)) => concatenate(slice(A), slice(B))",
        op("slice", op("concatenate").bind("F")),
        _slice_before_concatenate,
    ),
    Rule(
        "slice(f(concatenate(A, B))) => f(A)",
        op("slice", op(PASSABLE).bind("F")),
        _slice_past_pieces,
    ),
    Rule("slice(pad(A, B)) => slice(A)", op("slice", op("pad", A, B)), _slice_of_pad),
    Rule("slice(pad(A, B)) => broadcast(B)", op("slice", op("pad", A, B)), _slice_of_padding),
    Rule(
        "slice(pad(A, B)) => pad(slice(A), B)",
        op("slice", op("pad", A, B).bind("F")),
        _slice_before_pad,
    ),
    Rule("slice(iota) => C + D * iota", op("slice", op("iota")), _slice_of_iota),
    Rule(
        "slice(dynamic-update-slice(A, B, C)) => slice(B)",
        op("slice", op("dynamic-update-slice").bind("F")),
        _slice_of_update,
    ),
    Rule(
        "slice(reduce-window(A)) => reshape(reduce(A))",
        op("slice", op("reduce-window").bind("F").one_use),
        _slice_of_prefixes,
    ),
)
