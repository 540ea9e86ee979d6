"""Rules for tuples and get-tuple-element; the pass tuple-simplifier has these alone."""

from __future__ import annotations

from typing import Final

from hloopt.ir import Instruction
from hloopt.rewrite import Match, Rule, op
from hloopt.types import TupleShape

__all__ = ["RULES"]

_ENDS: Final = {"recv": ("recv-done", "tuple"), "send": ("send-done", "tuple")}
"""The one op that may use a transfer.  Through a tuple and a loop around it others may, too."""


def _element(match: Match) -> Instruction | None:
    index: int = match.root.attributes["index"]
    whole = match.inner
    element = whole.operands[index]
    if element.opcode not in _ENDS:
        return element
    kept = _keeps(whole)
    return element if kept is None else match.refuse(f"{kept.name} keeps the {element.opcode}")


def _keeps(whole: Instruction) -> Instruction | None:
    """What needs a tuple with transfers as it is; else each of them is read by the one op that ends it."""
    if whole.is_root:
        return whole
    read: set[Instruction] = set()
    for user in whole.users:
        if user.opcode != "get-tuple-element":
            return user
        element = whole.operands[user.attributes["index"]]
        ends = _ENDS.get(element.opcode)
        if ends is None:
            continue
        by = list(user.users)
        if user.is_root or element in read or len(by) != 1 or by[0].opcode not in ends:
            return user
        read.add(element)
    return None


def _whole(match: Match) -> Instruction | None:
    """The tuple that all the elements come from, in order and complete."""
    operands = match.root.operands
    if not operands or operands[0].opcode != "get-tuple-element":
        return None
    source = operands[0].operands[0]
    if not isinstance(source.shape, TupleShape) or len(source.shape.elements) != len(operands):
        return None
    for index, operand in enumerate(operands):
        if operand.opcode != "get-tuple-element" or operand.operands[0] is not source:
            return None
        if operand.attributes["index"] != index:
            return None
    return source


def _taken_apart(match: Match) -> Instruction | None:
    literal = match.root.literal
    if literal is None or not match.root.is_tuple or literal.elided:
        return None
    elements = tuple(map(match.constant, literal.elements))
    return match.result("tuple", *elements)


def _barred(match: Match) -> Instruction | None:
    """A barrier of the elements that somebody reads; the others are not held back by it."""
    root = match.root
    inner = root.operands[0]
    if root.is_root or inner.opcode != "tuple" or not root.users:
        return None
    if any(user.opcode != "get-tuple-element" for user in root.users):
        return None
    used = sorted({user.attributes["index"] for user in root.users})
    if len(used) == len(inner.operands):
        return None
    if "sharding" in root.attributes:
        return match.refuse("its sharding is one of the whole tuple")
    read = tuple(inner.operands[index] for index in used)
    kept = read[0]
    if len(used) > 1:
        kept = match.make("tuple", *read)
    barrier = match.make("opt-barrier", kept, shape=kept.shape, **root.attributes)
    elements = list(inner.operands)
    for place, index in enumerate(used):
        elements[index] = barrier
        if len(used) > 1:
            elements[index] = match.make("get-tuple-element", barrier, index=place)
    return match.result("tuple", *elements)


RULES = (
    Rule("constant((A, B)) => tuple(constant(A), constant(B))", op("constant"), _taken_apart),
    Rule("get-tuple-element(tuple(A, B)) => A", op("get-tuple-element", op("tuple")), _element),
    Rule("tuple(get-tuple-element(A), ...) => A", op("tuple"), _whole),
    Rule(
        "opt-barrier(tuple(A, B)) where B is not read => tuple(opt-barrier(A), B)",
        op("opt-barrier"),
        _barred,
    ),
)
