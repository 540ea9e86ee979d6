"""Conversions to wider types that are taken back, and data moved in the wider type."""

from __future__ import annotations

from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.ops.traits import PERMUTING
from hloopt.rewrite import (
    Match,
    Rule,
    RulePass,
    RuleSet,
    op,
    splat_literal,
    used_once,
    var,
)
from hloopt.simplify.data_movement import adds_only_ones, all_users_are
from hloopt.simplify.rules.convert import PAIRS, is_lossless
from hloopt.types import DType, Literal, array

__all__ = ["RULES", "ConvertPairs"]

A = var("A")

_ONE_OPERAND = PERMUTING - {"bitcast"}
"""Ops that make as many elements as they read."""


def _moved(match: Match, moved: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
    """The same movement of operands of another element type."""
    shape = moved.array.with_dtype(operands[0].array.dtype)
    return match.again(moved, *operands, shape=shape)


def _convert(match: Match, operand: Instruction) -> Instruction:
    shape = operand.array.with_dtype(match.array.dtype)
    return match.make("convert", operand, shape=shape)


def _widens(source: DType, target: DType) -> bool:
    return source.bits < target.bits


def _convert_after(match: Match) -> Instruction | None:
    """Move first, in the narrow type, and widen what arrives."""
    root, widened = match.root, match.inner
    if not _widens(match.A.array.dtype, root.array.dtype):
        return None
    if not used_once(widened):
        return match.refuse(f"{len(widened.users)} others use the wide values as well")
    if root.opcode == "reshape" and _is_taken_in(root):
        return match.refuse("the broadcasts behind it do the work of the reshape")
    return _convert(match, _moved(match, root, (match.A,)))


def _is_taken_in(reshape: Instruction) -> bool:
    """Whether ``simplify`` makes one op of a reshape and each of its users, where it stands."""
    before, after = reshape.operands[0].array.dims, reshape.array.dims
    return all_users_are(reshape, "broadcast") and adds_only_ones(before, after)


def _convert_after_concatenate(match: Match) -> Instruction | None:
    """All pieces come from one narrow type, or are one value that it has."""
    root = match.root
    wide = root.array.dtype
    converted = [operand for operand in root.operands if operand.opcode == "convert"]
    sources = {operand.operands[0].array.dtype for operand in converted}
    if len(sources) != 1 or not all(map(used_once, converted)):
        return None
    (narrow,) = sources
    if not _widens(narrow, wide):
        return None
    pieces: list[Instruction] = []
    for operand in root.operands:
        if operand.opcode == "convert":
            pieces.append(operand.operands[0])
            continue
        literal = _narrow_literal(operand, narrow)
        if literal is None:
            return None
        pieces.append(match.splat_of(operand.array.with_dtype(narrow), literal))
    return _convert(match, _moved(match, root, tuple(pieces)))


def _convert_after_pad(match: Match) -> Instruction | None:
    """Padding with a value that the narrow type has, where no more is converted than before."""
    root, widened = match.root, match.inner
    narrow = match.A.array.dtype
    if not _widens(narrow, root.array.dtype) or not used_once(widened):
        return None
    if root.array.elements > match.A.array.elements:
        return match.refuse(
            f"{root.array.elements} elements would be converted instead of {match.A.array.elements}"
        )
    literal = _narrow_literal(root.operands[1], narrow)
    if literal is None:
        return None
    return _convert(match, _moved(match, root, (match.A, match.constant(literal))))


def _narrow_literal(operand: Instruction, narrow: DType) -> Literal | None:
    """One value in the narrow type, if it is there to the last bit."""
    literal = splat_literal(operand)
    if literal is None or literal.array is None:
        return None
    if narrow.kind == "pred" or literal.array.dtype.kind == "c":
        return None
    small = literal.array.astype(narrow.numpy)
    back = Literal(literal.shape, small.astype(literal.array.dtype))
    return Literal(array(narrow), small) if back == literal else None


def _convert_before(match: Match) -> Instruction | None:
    """Narrow first, and move what is left."""
    root, moved = match.root, match.F
    narrow, wide = root.array.dtype, moved.array.dtype
    if not _widens(narrow, wide):
        return None
    operands = tuple(_convert(match, operand) for operand in moved.operands)
    return match.again(moved, *operands)


def _convert_before_concatenate(match: Match) -> Instruction | None:
    """Narrow the pieces, some of which were widened out of the same type."""
    root, moved = match.root, match.F
    narrow = root.array.dtype
    back = [
        operand
        for operand in moved.operands
        if operand.opcode == "convert"
        and operand.operands[0].array.dtype is narrow
        and is_lossless(narrow, operand.array.dtype)
    ]
    if not back or len(moved.operands) > 2 * len(back):
        return None
    return _convert_before(match)


RULES = (
    *PAIRS,
    Rule(
        "move(convert(A)) => convert(move(A)) to a wider type",
        op((*_ONE_OPERAND, "slice"), op("convert", A)),
        _convert_after,
    ),
    Rule(
        "concatenate(convert(A), convert(B)) => convert(concatenate(A, B)) to a wider type",
        op("concatenate"),
        _convert_after_concatenate,
    ),
    Rule(
        "pad(convert(A), C) => convert(pad(A, C)) to a wider type",
        op("pad", op("convert", A), var("C")),
        _convert_after_pad,
    ),
    Rule(
        "convert(move(A)) => move(convert(A)) to a narrower type",
        op("convert", op((*_ONE_OPERAND, "broadcast", "pad")).bind("F").one_use),
        _convert_before,
    ),
    Rule(
        "convert(concatenate(convert(A), B)) => concatenate(A, convert(B))",
        op("convert", op("concatenate").bind("F").one_use),
        _convert_before_concatenate,
    ),
)


@dataclass(frozen=True)
class ConvertPairs(RulePass):
    """Move data in the narrower type, and drop conversions to a wider type that are taken back.

    1. A conversion to a wider type goes behind copies, reshapes, transposes, reverses, slices and
       concatenates, one to a narrower type before them, save slices, and before broadcasts and pads: fewer
       bytes are moved, no more elements converted.  Conversion is elementwise, so that this is exact.
    2. What comes together is one conversion, or none, where the first loses nothing; what is computed
       between two conversions is computed in the narrow type where the result is the same to the last
       bit (integers modulo their range, maximum, minimum, select, clamp, signs).

    Left alone: a pair that rounds, such as f32 to bf16 and back, which changes values; wide values that
    others use; broadcasts and pads, behind which more elements would be converted.
    """

    rule_set: ClassVar[RuleSet] = RuleSet(RULES)
    example: ClassVar[str] = """HloModule pairs

ENTRY main {
  x = bf16[64,32]{1,0} parameter(0)
  w = f32[64,32]{1,0} convert(x)
  t = f32[32,64]{1,0} transpose(w), dimensions={1,0}
  f = f32[2048]{0} reshape(t)
  ROOT r = bf16[2048]{0} convert(f)
}
"""
