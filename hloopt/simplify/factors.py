"""Rules for constant factors of convolutions: multiplied with what is smallest."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.rewrite import Match, Rule, op, splat, splat_literal, variables
from hloopt.simplify.conditions import exact_or_fast, exact_or_real

__all__ = ["RULES"]

A, B, D = variables("A B D")
C = splat(name="C")
CONVOLUTION = op("convolution", A, B).one_use.bind("P")


def _may_move(match: Match) -> bool:
    """Whether products may be made in another order: integers of one type wrap alike in any."""
    return exact_or_real(match) and (match.floats_are_real or _one_type(match))


def _may_fold(match: Match) -> bool:
    """The same where filter and bias are constants, which XLA multiplies by default."""
    return exact_or_fast(match) and (match.fast_math or _one_type(match))


def _one_type(match: Match) -> bool:
    dtype = match.array.dtype
    return match.A.array.dtype is match.B.array.dtype is dtype


def _scaled(match: Match, operand: Instruction) -> Instruction | None:
    """An operand times the constant, if both have the element type of the result."""
    literal = splat_literal(match.C)
    if literal is None or operand.array.dtype is not match.array.dtype:
        return None
    factor = match.splat_of(operand.array, literal)
    return match.make("multiply", operand, factor, shape=operand.array)


def _on_operand(match: Match) -> Instruction | None:
    """Onto the filter or the input, whichever is smaller, if it is smaller than the result."""
    at = 0 if match.A.array.elements < match.B.array.elements else 1
    smaller = (match.A, match.B)[at]
    if smaller.array.elements >= match.array.elements:
        return None
    return _convolved(match, at)


def _convolved(match: Match, at: int) -> Instruction | None:
    operands = [match.A, match.B]
    product = _scaled(match, operands[at])
    if product is None:
        return None
    operands[at] = product
    return match.make("convolution", *operands, shape=match.P.shape, **match.P.attributes)


def _with_bias(match: Match) -> Instruction | None:
    """Filter and bias are constants: then both products are computed once and for all."""
    if match.B.opcode != "constant" or not _is_constant(match.D):
        return None
    convolved, bias = _convolved(match, 1), _scaled(match, match.D)
    if convolved is None or bias is None:
        return None
    return match.result("add", convolved, bias)


def _is_constant(instruction: Instruction) -> bool:
    if instruction.opcode == "broadcast":
        instruction = instruction.operands[0]
    return instruction.opcode == "constant"


def _from_input(match: Match) -> Instruction | None:
    """From the larger operand to the smaller one."""
    left, right = match.A.array, match.B.array
    if left.dtype is not right.dtype or right.elements >= left.elements:
        return None
    literal = splat_literal(match.C)
    if literal is None:
        return None
    product = match.make("multiply", match.B, match.splat_of(right, literal), shape=right)
    return match.result("convolution", match.A, product, **match.root.attributes)


RULES = (
    Rule(
        "convolution(A, B) * C => convolution(A, B * C)",
        CONVOLUTION * C,
        _on_operand,
        when=_may_move,
    ),
    Rule(
        "(convolution(A, B) + D) * C => convolution(A, B * C) + D * C",
        (CONVOLUTION + D).one_use * C,
        _with_bias,
        when=_may_fold,
    ),
    Rule(
        "convolution(A * C, B) => convolution(A, B * C)",
        op("convolution", (A * C).one_use, B),
        _from_input,
        when=_may_move,
    ),
)
