"""Rules for dynamic-update-slice."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.rewrite import Match, Pattern, Rule, op, splat_literal
from hloopt.simplify.dimensions import used_once
from hloopt.simplify.dynamic_index import joined_starts, number, starts_of
from hloopt.types import PaddingDim

__all__ = ["RULES"]

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
