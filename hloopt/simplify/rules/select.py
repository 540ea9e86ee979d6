"""Rules for select: which arm it is, arms that are selects, and ops of what was selected."""

from __future__ import annotations

from collections.abc import Callable

from hloopt.analysis.elementwise import is_elementwise
from hloopt.analysis.integer_values import INTEGER_RULES
from hloopt.ir import Instruction
from hloopt.ops.traits import DEVICE_NUMBERS, EXTREMA, MODULAR
from hloopt.rewrite import Match, Rule, op, splat, splat_literal, variables
from hloopt.simplify.constant_arithmetic import computed
from hloopt.simplify.predicates import (
    INTEGER,
    PRED,
    has_kind,
    has_known_arithmetic,
    is_used_here,
)
from hloopt.types import Literal

__all__ = ["RULES"]

A, B, C, P, Q = variables("A B C P Q")
C1, C2 = splat(name="C1"), splat(name="C2")
TRUE, FALSE = splat(1).where(has_kind(PRED)), splat(0).where(has_kind(PRED))


def _same_dims(match: Match) -> bool:
    # A scalar predicate chooses whole arrays: then it is not the result.
    return match.P.array.dims == match.array.dims


def _inverts(match: Match) -> bool:
    """Whether the negation of P costs nothing: it is a comparison, which becomes the opposite one."""
    compare = match.P
    if compare.opcode != "compare" or not is_used_here(compare) or not _same_dims(match):
        return False
    kind = compare.operands[0].array.dtype
    if compare.direction in ("EQ", "NE") or kind.is_integer or kind.is_pred:
        return True
    return not any(match.range_of(operand).nan for operand in compare.operands)


def _known_choice(match: Match) -> Instruction | None:
    known = match.range_of(match.P)
    return (match.A if known.low else match.B) if known.is_single else None


def _converted(on_true: int) -> Callable[[Match], Instruction | None]:
    """``select(P, 1, 0)`` as the number that P is."""

    def rewrite(match: Match) -> Instruction | None:
        chosen, dtype = match.P, match.array.dtype
        if not _same_dims(match) or not has_known_arithmetic(match.root) or dtype.is_pred:
            return None
        if dtype.name == "s1" or not _are_one_and_zero(match, on_true):
            return None
        if not on_true:
            if not _inverts(match):
                return None
            chosen = match.make("not", chosen, shape=chosen.shape)
        return match.result("convert", chosen)

    return rewrite


def _are_one_and_zero(match: Match, on_true: int) -> bool:
    one, zero = (match.C1, match.C2) if on_true else (match.C2, match.C1)
    shape = match.array
    return all(
        splat_literal(entry) == computed("convert", shape.dtype, match.splat(match.P.array, number))
        for entry, number in ((one, 1), (zero, 0))
    )


def _of_equals(match: Match) -> Instruction | None:
    """``select(A == B, A, B)``: what is equal may still be zeros of two signs."""
    direction = match.inner.direction
    if direction not in ("EQ", "NE") or not _elementwise_choice(match):
        return None
    if match.A.array.dtype.kind not in (*INTEGER, PRED) and (
        not has_known_arithmetic(match.A) or _two_zeros(match)
    ):
        return match.refuse("zeros of both signs are equal")
    chosen_when_equal, otherwise = match.root.operands[1:]
    return otherwise if direction == "EQ" else chosen_when_equal


def _two_zeros(match: Match) -> bool:
    """Whether A and B may both be zero, and one of them -0."""
    a, b = match.range_of(match.A), match.range_of(match.B)
    return a.has_zero and b.has_zero and (a.negative_zero or b.negative_zero)


def _elementwise_choice(match: Match) -> bool:
    compare = match.inner
    return (
        compare.array.dims == match.array.dims
        and match.A.array.dtype is match.array.dtype
        and compare.attributes.get("type") != "TOTALORDER"
    )


def _as_extremum(match: Match) -> Instruction | None:
    """``select(A > B, A, B)``: the larger, unless a NaN or zeros of two signs take part."""
    direction = match.inner.direction
    if direction in ("EQ", "NE") or not _elementwise_choice(match):
        return None
    a, b = match.range_of(match.A), match.range_of(match.B)
    if match.A.array.dtype.kind not in (*INTEGER, PRED):
        if not has_known_arithmetic(match.A):
            return None
        if not match.floats_are_real and (a.nan or b.nan or _two_zeros(match)):
            return match.refuse("NaN or zeros of both signs may be compared")
    first = match.root.operands[1] is match.A
    opcode = "maximum" if first == (direction in ("GT", "GE")) else "minimum"
    return match.result(opcode, match.A, match.B)


def _single(match: Match) -> Instruction | None:
    """Integers and pred that can have one value only; zeros of floats may differ in sign."""
    shape, known = match.array, match.range_of(match.root)
    if not known.is_single or not (shape.dtype.is_integer or shape.dtype.is_pred):
        return None
    return match.full(int(known.low))


_WHOLE_OPS = INTEGER_RULES.keys() | DEVICE_NUMBERS | {"convert", "iota", "select"}


def _same_predicates(match: Match) -> bool:
    return match.P.array.dims == match.Q.array.dims


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
    (one,), (other,) = left.operands, right.operands
    if one.array.dtype is not other.array.dtype:
        return None
    choice = match.make("select", predicate, one, other, shape=one.array)
    return match.result(left.opcode, choice, **left.attributes)


_NOT_SHARED = ("copy", "reduce-precision", "bitcast-convert")


def _shared_operand(match: Match) -> Instruction | None:
    """Arms made by the same op, with one operand the same: ``select(P, A + B, A + C)``."""
    predicate, left, right = match.root.operands
    alike = _are_alike(left, right, 2)
    if not alike or left.opcode in ("compare", "stochastic-convert", "complex"):
        return None
    for at in (0, 1):
        if left.operands[at] is right.operands[at]:
            arms = (left.operands[1 - at], right.operands[1 - at])
            operands = [left.operands[at], match.result("select", predicate, *arms)]
            return match.result(left.opcode, *operands[:: 1 - 2 * at], **left.attributes)
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
    return match.result("select", predicate, *arms)


_COMPUTED = MODULAR | EXTREMA | {"abs", "convert"}


RULES = (
    Rule("select(P, A, A) => A", op("select", P, A, A), A),
    Rule("select(P, A, B) => A where P is known", op("select", P, A, B), _known_choice),
    Rule("select(true, A, B) => A", op("select", TRUE, A, B), A),
    Rule("select(false, A, B) => B", op("select", FALSE, A, B), B),
    Rule("select(not(P), A, B) => select(P, B, A)", op("select", ~P, A, B), op("select", P, B, A)),
    Rule("select(P, true, false) => P", op("select", P, TRUE, FALSE), P, when=_same_dims),
    Rule("select(P, false, true) => not(P)", op("select", P, FALSE, TRUE), ~P, when=_same_dims),
    Rule("select(P, A, false) => P & A", op("select", P, A, FALSE), P & A, when=_same_dims),
    Rule("select(P, true, A) => P | A", op("select", P, TRUE, A), P | A, when=_same_dims),
    Rule("select(P, false, A) => not(P) & A", op("select", P, FALSE, A), ~P & A, when=_inverts),
    Rule("select(P, A, true) => not(P) | A", op("select", P, A, TRUE), ~P | A, when=_inverts),
    Rule("select(P, 1, 0) => convert(P)", op("select", P, C1, C2), _converted(1)),
    Rule("select(P, 0, 1) => convert(not(P))", op("select", P, C1, C2), _converted(0)),
    Rule("select(A == B, A, B) => B", op("select", op("compare", A, B), A, B), _of_equals),
    Rule("select(A == B, B, A) => A", op("select", op("compare", A, B), B, A), _of_equals),
    Rule("select(A > B, A, B) => max(A, B)", op("select", op("compare", A, B), A, B), _as_extremum),
    Rule("select(A > B, B, A) => min(A, B)", op("select", op("compare", A, B), B, A), _as_extremum),
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
        op("select", P | Q, A, B),
        when=_same_predicates,
    ),
    Rule(
        "select(P, select(Q, A, B), B) => select(P & Q, A, B)",
        op("select", P, op("select", Q, A, B).one_use, B),
        op("select", P & Q, A, B),
        when=_same_predicates,
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
