"""Rules for copy, bitcast and bitcast-convert: what reads the same bytes, or the same values, again."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.ops.traits import REARRANGING
from hloopt.rewrite import Match, Rule, op, same_layout, splat_literal, used_once, var
from hloopt.simplify.data_movement import (
    PASSABLE,
    dimensions,
    dimensions_besides_ones,
    lies_alike,
    moved,
    only_ones_differ,
    unmodified_dimensions,
)
from hloopt.types import ArrayShape

__all__ = ["RULES"]

A = var("A")

# What may write its result in any order, so that a copy into another order is not needed after it.
_MOVES = REARRANGING - {"bitcast", "reverse", "slice"}


def _one_bitcast_convert(match: Match) -> Instruction | None:
    """Bits are only named; a pred has more of them than it shows."""
    shapes = [match.A.array, match.inner.array, match.array]
    if any(shape.dtype.is_pred for shape in shapes):
        return None
    source, _, result = shapes
    if source.dtype.bits != result.dtype.bits or source.dims != result.dims:
        return None
    return match.result("bitcast-convert", match.A)


def _same_shape(match: Match) -> bool:
    given, wanted = match.A.shape, match.root.shape
    if not isinstance(given, ArrayShape) or not isinstance(wanted, ArrayShape):
        return False
    return given.dtype is wanted.dtype and given.dims == wanted.dims


def _bitcast_identity(match: Match) -> bool:
    return _same_shape(match) and same_layout(match.A.shape, match.root.shape)


def _one_bitcast(match: Match) -> Instruction | None:
    shapes = (match.A.shape, match.inner.shape, match.root.shape)
    widths = {shape.dtype.bits if isinstance(shape, ArrayShape) else 0 for shape in shapes}
    return match.result("bitcast", match.A) if len(widths) == 1 and 0 not in widths else None


def _row_major(shape: ArrayShape) -> bool:
    """Whether elements lie in the order of their indices, without tiles or spaces of memory."""
    if shape.layout is None:
        return True
    order = [d for d in shape.layout.minor_to_major[::-1] if shape.dims[d] != 1]
    return not shape.layout.suffix and order == sorted(order)


def _bitcast_of_broadcast(match: Match) -> Instruction | None:
    """Where both sides are row-major, a bitcast is a reshape; one value is one in any order."""
    inner, root = match.inner.array, match.array
    if inner.dtype is not root.dtype or inner.elements != root.elements or not inner.elements:
        return None
    dims = dimensions(match.inner)
    if dims:
        if not (_row_major(inner) and _row_major(root)):
            return None
        kept = unmodified_dimensions(inner.dims, root.dims)
        if not all(d in kept for d in dims):
            return None
        dims = tuple(kept[d] for d in dims)
    return match.result("broadcast", match.A, dimensions=dims)


def _bitcast_undone(match: Match) -> Instruction | None:
    """Compute in the shape that both bitcasts come from and go back to."""
    root, computed = match.root, match.F

    def back(operand: Instruction) -> Instruction | None:
        shape, literal = root.array.with_dtype(operand.array.dtype), splat_literal(operand)
        if not lies_alike(operand.array, computed.array):
            return None
        if operand.opcode == "bitcast":
            source = operand.operands[0]
            kept = source.array.dtype is shape.dtype and computed.array.dtype is root.array.dtype
            return source if kept and lies_alike(source.array, shape) else None
        return None if literal is None else match.splat_of(shape, literal)

    return moved(match, computed, back, undoing="bitcast")


def _space(shape: ArrayShape) -> str:
    """Tiles and space of memory; a copy may be there for them."""
    return shape.layout.suffix if shape.layout else ""


def _copied_result(match: Match) -> Instruction | None:
    """The op writes in the order that the copy makes."""
    root, moved = match.root, match.F
    shapes = [root.array, moved.array, *(operand.array for operand in moved.operands)]
    if len({_space(shape) for shape in shapes}) > 1:
        return match.refuse("the copy changes tiles or the space of memory")
    return match.again(moved, *moved.operands)


def _copy_around_bitcast(match: Match) -> Instruction | None:
    """Copies on both sides of a bitcast that only adds or drops ones: a reshape does it all."""
    root, bitcast, inner = match.root, match.B, match.C
    if not (used_once(bitcast) and used_once(inner)):
        return None
    before, after = inner.array, bitcast.array
    shapes = (match.A.array, before, after, root.array)
    if len({(_space(shape), shape.dtype) for shape in shapes}) > 1:
        return None
    if 0 in before.dims or not only_ones_differ(before.dims, after.dims):
        return None
    if _order(before) != _order(after):
        return None
    return match.result("reshape", match.A)


def _order(shape: ArrayShape) -> list[int]:
    """The numbers, among dimensions that are not one, in the order in which they lie in memory."""
    number = {d: place for place, d in enumerate(dimensions_besides_ones(shape.dims))}
    major = tuple(range(shape.rank))
    if shape.layout is not None:
        major = shape.layout.minor_to_major[::-1]
    return [number[d] for d in major if d in number]


RULES = (
    Rule("bitcast-convert(A) => A", op("bitcast-convert", A), A, when=_same_shape),
    Rule(
        "bitcast-convert(bitcast-convert(A)) => bitcast-convert(A)",
        op("bitcast-convert", op("bitcast-convert", A)),
        _one_bitcast_convert,
    ),
    Rule("bitcast(A) => A", op("bitcast", A), A, when=_bitcast_identity),
    Rule("bitcast(bitcast(A)) => bitcast(A)", op("bitcast", op("bitcast", A)), _one_bitcast),
    Rule(
        "bitcast(broadcast(A)) => broadcast(A)",
        op("bitcast", op("broadcast", A)),
        _bitcast_of_broadcast,
    ),
    Rule(
        "bitcast(f(bitcast(A))) => f(A)",
        op("bitcast", op(PASSABLE).bind("F").one_use),
        _bitcast_undone,
    ),
    Rule("copy(A) => A", op("copy", A), A),
    Rule("copy(f(A)) => f(A)", op("copy", op(_MOVES).bind("F").one_use), _copied_result),
    Rule(
        "copy(bitcast(copy(A))) => reshape(A)",
        op("copy", op("bitcast", op("copy", A).bind("C")).bind("B")),
        _copy_around_bitcast,
    ),
)
