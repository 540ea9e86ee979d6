"""What order a sort's comparator means: its keys, where it is a lexicographic comparison.

A comparator of ``n`` operands has parameters ``2k`` and ``2k+1`` for the two elements of operand ``k``.
Most are built from single comparisons ``compare(f(a), f(b))``: the same function of either element, each
a key, joined so that a later key decides where the earlier ones are equal:

    compare(f(a), f(b)), direction=LT                         the key f, ascending
    compare(f(a), f(b)), direction=LE                         the same, of equal elements the later first
    or(A, and(compare(f(a), f(b)), direction=EQ), B))         the key of A, then those of B
    select(compare(f(a), f(b)), direction=EQ, B, A)           the same
    select(compare(A, A with a and b swapped) = EQ, B, A)     the keys of A, then those of B

A comparator of any other form has no keys; a sort by it evaluates the comparator itself.
"""

from __future__ import annotations

from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, edit

__all__ = ["SortKey", "sort_keys"]


@dataclass(frozen=True, slots=True)
class SortKey:
    """One key of a lexicographic order.

    function    a computation: an element of every operand to the key; it belongs to no module
    descending  whether larger keys come first
    total       whether floats are compared in total order (-NaN < -inf ... -0 < +0 ... < +NaN); if not,
                the key has no place for a NaN
    later_first whether of equal elements the later one goes first (``<=``): of the last key only
    """

    function: Computation
    descending: bool
    total: bool
    later_first: bool = False


@dataclass(frozen=True, slots=True)
class _Comparison:
    """``compare(left, right)`` where ``right`` is ``left`` with the two elements swapped.

    ``left`` reads the first elements (even parameters) alone.
    """

    left: Instruction
    right: Instruction
    descending: bool
    total: bool
    later_first: bool


def sort_keys(comparator: Computation) -> tuple[SortKey, ...] | None:
    """The keys of a comparator, most significant first, or None where its form is another."""
    if any(attribute for step in comparator for attribute in _calls(step)):
        return None
    comparisons = _lexicographic(comparator.root)
    if comparisons is None:
        return None
    return tuple(
        SortKey(
            _key_function(comparator, entry.left),
            entry.descending,
            entry.total,
            entry.later_first,
        )
        for entry in comparisons
    )


def _calls(instruction: Instruction) -> list[Computation]:
    return [value for value in instruction.attributes.values() if isinstance(value, Computation)]


def _lexicographic(node: Instruction) -> list[_Comparison] | None:
    if node.opcode == "compare":
        single = _comparison(node)
        return None if single is None else [single]
    if node.opcode == "or":
        left, right = node.operands
        return _joined_by_or(left, right) or _joined_by_or(right, left)
    if node.opcode == "select":
        return _joined_by_select(*node.operands)
    return None


def _comparison(node: Instruction) -> _Comparison | None:
    direction = node.attributes["direction"]
    left, right = node.operands
    if direction not in ("LT", "GT", "LE", "GE") or not _swapped(left, right):
        return None
    parities = _parities(left)
    if parities not in ({0}, {1}):
        return None
    descending = direction in ("GT", "GE")
    if parities == {1}:
        left, right, descending = right, left, not descending
    later_first = direction in ("LE", "GE")
    return _Comparison(left, right, descending, _is_total(node), later_first)


def _is_total(node: Instruction) -> bool:
    return bool(node.attributes.get("type") == "TOTALORDER")


def _joined_by_or(first: Instruction, second: Instruction) -> list[_Comparison] | None:
    if second.opcode != "and":
        return None
    before = _lexicographic(first)
    if before is None or len(before) != 1 or before[0].later_first:
        return None
    for equal, rest in (second.operands, second.operands[::-1]):
        if _is_tie(equal, before[0]):
            after = _lexicographic(rest)
            return None if after is None else before + after
    return None


def _joined_by_select(
    condition: Instruction, on_true: Instruction, on_false: Instruction
) -> list[_Comparison] | None:
    if condition.opcode != "compare" or condition.attributes["direction"] != "EQ":
        return None
    before = _lexicographic(on_false)
    if before is None or before[-1].later_first:
        return None
    left, right = condition.operands
    tie = len(before) == 1 and _is_tie(condition, before[0])
    # Neither is less than the other: both answers are false, so equal.
    tie = tie or (_same(left, on_false) and _swapped(on_false, right))
    tie = tie or (_same(right, on_false) and _swapped(on_false, left))
    after = _lexicographic(on_true) if tie else None
    return None if after is None else before + after


def _is_tie(node: Instruction, of: _Comparison) -> bool:
    """Whether ``node`` tests that the two keys of a comparison are equal, in the same order of floats."""
    if node.opcode != "compare" or node.attributes["direction"] != "EQ":
        return False
    left, right = node.operands
    sides = (_same(left, of.left) and _same(right, of.right)) or (
        _same(left, of.right) and _same(right, of.left)
    )
    return sides and (_is_total(node) == of.total or not left.array.dtype.is_float)


def _same(left: Instruction, right: Instruction) -> bool:
    return _equal(left, right, 0, {})


def _swapped(left: Instruction, right: Instruction) -> bool:
    return _equal(left, right, 1, {})


def _equal(
    left: Instruction,
    right: Instruction,
    flip: int,
    known: dict[tuple[Instruction, Instruction], bool],
) -> bool:
    """Whether two graphs compute the same, where parameter ``p`` on the left is ``p ^ flip`` on the
    right.
    """
    pair = (left, right)
    if pair not in known:
        known[pair] = _equal_steps(left, right, flip, known)
    return known[pair]


def _equal_steps(
    left: Instruction,
    right: Instruction,
    flip: int,
    known: dict[tuple[Instruction, Instruction], bool],
) -> bool:
    if left.opcode != right.opcode or left.shape != right.shape:
        return False
    if left.opcode == "parameter":
        return left.parameter_number == right.parameter_number ^ flip
    return (
        left.attributes == right.attributes
        and len(left.operands) == len(right.operands)
        and all(
            _equal(*pair, flip, known) for pair in zip(left.operands, right.operands, strict=True)
        )
    )


def _needed(root: Instruction) -> set[Instruction]:
    seen = {root}
    pending = [root]
    while pending:
        for operand in pending.pop().operands:
            if operand not in seen:
                seen.add(operand)
                pending.append(operand)
    return seen


def _parities(root: Instruction) -> set[int]:
    return {step.parameter_number % 2 for step in _needed(root) if step.opcode == "parameter"}


def _key_function(comparator: Computation, root: Instruction) -> Computation:
    """A computation of one element per operand that computes ``root``; all its parameters exist."""
    function = Computation(f"{comparator.name}.key", comparator.offset)
    # Errors in the key are reported at the comparator's place; the module does not list the function.
    function.module = comparator.module
    needed = _needed(root)
    mapped: dict[Instruction, Instruction] = {}
    for step in comparator:
        is_parameter = step.opcode == "parameter" and step.parameter_number % 2 == 0
        if step not in needed and not is_parameter:
            continue
        attributes = dict(step.attributes)
        if is_parameter:
            attributes["parameter_number"] = step.parameter_number // 2
        operands = tuple(mapped[operand] for operand in step.operands)
        copy = Instruction(
            step.name, step.opcode, step.shape, operands, attributes, step.metadata, step.offset
        )
        mapped[step] = edit.append(function, copy)
    function.root = mapped[root]
    return function
