"""Rules for select of select, and for ops of what was selected."""

from __future__ import annotations

from hloopt.analysis.elementwise import is_elementwise
from hloopt.analysis.integer_values import INTEGER_RULES
from hloopt.ir import Instruction
from hloopt.ops.traits import DEVICE_NUMBERS, EXTREMA, MODULAR
from hloopt.rewrite import Match, Rewrite, Rule, op, variables
from hloopt.simplify.conditions import (
    INTEGER,
    PRED,
    has_kind,
    is_used_here,
)
from hloopt.simplify.folding import computed
from hloopt.types import Literal

__all__ = ["RULES"]

A, B, C, P, Q = variables("A B C P Q")


def _single(match: Match) -> Instruction | None:
    """Integers and pred that can have one value only; zeros of floats may differ in sign."""
    shape, known = match.array, match.values.of(match.root)
    if not known.is_single or not (shape.dtype.is_integer or shape.dtype.is_pred):
        return None
    return match.splat(shape, int(known.low))


_WHOLE_OPS = INTEGER_RULES.keys() | DEVICE_NUMBERS | {"convert", "iota", "select"}


def _joined(opcode: str) -> Rewrite:
    """Two choices of the same: ``select(P, A, select(Q, A, B))`` takes A where either holds."""

    def join(match: Match) -> Instruction | None:
        if match.P.array.dims != match.Q.array.dims:
            return None
        predicate = match.make(opcode, match.P, match.Q, shape=match.P.shape)
        return match.result("select", predicate, match.A, match.B)

    return join


def _are_alike(left: Instruction, right: Instruction, operands: int) -> bool:
    """Whether both are the same elementwise op, and nothing else reads them."""
    return (
        left.opcode == right.opcode
        and len(left.operands) == operands
        and is_elementwise(left)
        and left.attributes == right.attributes
        and is_used_here(left)
        and is_used_here(right)
    )


def _same_op(match: Match) -> Instruction | None:
    """Arms made by the same op of one operand: one such op of the choice."""
    predicate, left, right = match.root.operands
    if not _are_alike(left, right, 1) or left.opcode in _NOT_SHARED:
        return None
    if left.operands[0].array.dtype is not right.operands[0].array.dtype:
        return None
    choice = match.make(
        "select", predicate, left.operands[0], right.operands[0], shape=left.operands[0].array
    )
    return match.result(left.opcode, choice, **left.attributes)


_NOT_SHARED = ("copy", "reduce-precision", "bitcast-convert")


def _shared_operand(match: Match) -> Instruction | None:
    """Arms made by the same op, with one operand the same: ``select(P, A + B, A + C)``."""
    predicate, left, right = match.root.operands
    alike = _are_alike(left, right, 2)
    if not alike or left.opcode in ("compare", "stochastic-convert", "complex"):
        return None
    shape = match.array
    for at in (0, 1):
        if left.operands[at] is right.operands[at]:
            choice = match.make(
                "select", predicate, left.operands[1 - at], right.operands[1 - at], shape=shape
            )
            operands = (left.operands[0], choice) if at == 0 else (choice, left.operands[1])
            return match.make(left.opcode, *operands, shape=shape, **left.attributes)
    return None


def _of_chosen_constants(match: Match) -> Instruction | None:
    """An op of ``select(P, C1, C2)``, and of a further constant, is computed now for both."""
    root = match.root
    shape, choice = root.array, root.operands[0]
    if choice.opcode != "select" or not is_used_here(choice):
        return None
    predicate, *chosen = choice.operands
    found: list[Literal] = []
    for arm in chosen:
        value = computed(
            root.opcode, shape.dtype, arm, *root.operands[1:], attributes=root.attributes
        )
        if value is None:
            return None
        found.append(value)
    arms = [match.splat_of(shape, value) for value in found]
    return match.make("select", predicate, *arms, shape=shape)


_COMPUTED = MODULAR | EXTREMA | {"abs", "convert"}


RULES = (
    Rule(
        "select(P, select(P, A, B), C) => select(P, A, C)",
        op("select", P, op("select", P, A, B), C),
        op("select", P, A, C),
    ),
    Rule(
        "select(P, A, select(P, B, C)) => select(P, A, C)",
        op("select", P, A, op("select", P, B, C)),
        op("select", P, A, C),
    ),
    Rule(
        "select(P, A, select(Q, A, B)) => select(P | Q, A, B)",
        op("select", P, A, op("select", Q, A, B).one_use),
        _joined("or"),
    ),
    Rule(
        "select(P, select(Q, A, B), B) => select(P & Q, A, B)",
        op("select", P, op("select", Q, A, B).one_use, B),
        _joined("and"),
    ),
    Rule("select(P, f(A), f(B)) => f(select(P, A, B))", op("select"), _same_op),
    Rule("select(P, f(A, B), f(A, C)) => f(A, select(P, B, C))", op("select"), _shared_operand),
    Rule("f(select(P, C1, C2)) => select(P, f(C1), f(C2))", op(_COMPUTED), _of_chosen_constants),
    Rule(
        "whole number with one value => constant",
        op(_WHOLE_OPS).where(has_kind(*INTEGER, PRED)),
        _single,
    ),
)
