"""Rules for convert and reduce-precision."""

from __future__ import annotations

import numpy as np

from hloopt.ir import Instruction
from hloopt.ops.traits import MODULAR, PICKING
from hloopt.rewrite import Match, Rule, op, splat, variables
from hloopt.simplify.predicates import (
    COMPLEX,
    FLOAT,
    INTEGER,
    PRED,
    SIGNED,
    UNSIGNED,
    is_plain,
    known_value,
    scalar_value,
)
from hloopt.types import DType

__all__ = ["PAIRS", "RULES", "is_lossless"]

A, B, P = variables("A B P")

# (exponent bits, mantissa bits) of the IEEE-like types; the 8-bit types are not all nested in each other.
_FORMAT = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}


def is_lossless(source: DType, target: DType) -> bool:
    """Whether every value of ``source``, -0.0 and NaN included, is a value of ``target``."""
    if source is target:
        return True
    if source.kind == PRED:
        # One signed bit has no 1, and f8e8m0fnu has no 0.
        return target.name in _FORMAT or (target.kind in INTEGER and target.name != "s1")
    if source.kind in INTEGER:
        digits = source.bits - (source.kind == SIGNED)
        if target.kind in INTEGER:
            signs = source.kind == SIGNED and target.kind != SIGNED
            return not signs and digits <= target.bits - (target.kind == SIGNED)
        return target.name in _FORMAT and digits <= _FORMAT[target.name][1] + 1
    if COMPLEX in (source.kind, target.kind):
        return (source.name, target.name) == ("c64", "c128")
    if source.name not in _FORMAT or target.name not in _FORMAT:
        narrow = source.kind == FLOAT and source.bits <= 8
        return narrow and target.name in ("f32", "f64")
    return all(
        mine <= theirs
        for mine, theirs in zip(_FORMAT[source.name], _FORMAT[target.name], strict=True)
    )


def _one_convert(match: Match) -> Instruction | None:
    """The middle step may go where it keeps every value, and the rest is one rounding."""
    source, middle = match.A.array.dtype, match.inner.array.dtype
    target = match.array.dtype
    if not is_lossless(source, middle):
        return None
    if source is target:
        return match.result("convert", match.A)
    same_kind = source.kind == middle.kind or {source.kind, middle.kind} <= set(INTEGER)
    both_ways = source.kind == PRED and target.name != "s1"  # 1 saturates there, true is all bits
    if not (same_kind or is_lossless(middle, target) or both_ways):
        return None
    return match.result("convert", match.A)


def _same_type(match: Match) -> bool:
    return match.A.array.dtype is match.array.dtype


def _keeps_format(match: Match) -> bool:
    exponent, mantissa = _FORMAT.get(match.array.dtype.name, (1 << 30, 1 << 30))
    attributes = match.root.attributes
    return bool(attributes["exponent_bits"] >= exponent and attributes["mantissa_bits"] >= mantissa)


# Modulo a power of two: the low bits of the result come from the low bits of the operands.
# Of no negative number: what does not fit cannot come out.
_UNSIGNED = ("divide", "remainder")
_SIGNS = ("abs", "negate")


def _stays_narrow(opcode: str, narrow: DType, wide: DType) -> bool:
    """Whether ``convert(f(convert(A), ...))`` is ``f(A, ...)`` to the last bit, from narrow and back."""
    if narrow.kind in INTEGER and wide.kind in INTEGER and narrow.bits >= 8:
        if opcode in MODULAR:
            return narrow.bits <= wide.bits
        if opcode in _UNSIGNED:
            return narrow.kind == wide.kind == UNSIGNED and narrow.bits <= wide.bits
    if narrow.kind == FLOAT and opcode in _SIGNS:
        return narrow.name in _FORMAT and is_lossless(narrow, wide)
    if narrow.kind == FLOAT or (narrow.kind in INTEGER and narrow.bits >= 8):
        return (
            opcode in PICKING
            and is_lossless(narrow, wide)
            and (narrow.kind != FLOAT or narrow.name in _FORMAT)
        )
    return False


def _narrowed(operand: Instruction, narrow: DType, match: Match) -> Instruction | None:
    """What was converted up, or a constant that the narrow type has too."""
    if operand.opcode == "convert" and operand.operands[0].array.dtype is narrow:
        return operand.operands[0]
    value = scalar_value(operand)
    if value is None or narrow.kind not in INTEGER or not np.isfinite(value):
        return None
    low, high = narrow.limits
    number = int(value)
    return match.splat(operand.array.with_dtype(narrow), number) if low <= number <= high else None


def _narrow(match: Match) -> Instruction | None:
    """Compute in the type that operands come from and the result goes back to."""
    computed, root = match.F, match.root
    narrow, wide = root.array.dtype, computed.array.dtype
    if narrow is wide or not _stays_narrow(computed.opcode, narrow, wide):
        return None
    operands: list[Instruction] = []
    for index, operand in enumerate(computed.operands):
        if computed.opcode == "select" and index == 0:
            operands.append(operand)
            continue
        small = _narrowed(operand, narrow, match)
        if small is None:
            return None
        operands.append(small)
    if all(entry.opcode in ("constant", "broadcast") for entry in operands):
        return None
    return match.again(computed, *operands)


def _of_iota(match: Match) -> Instruction | None:
    """Where both types have every number of the iota."""
    iota = match.I
    dimension = iota.iota_dimension
    largest = iota.array.dims[dimension] - 1
    if not all(_has_number(shape.dtype, largest) for shape in (iota.array, match.array)):
        return None
    return match.result("iota", iota_dimension=dimension)


def _has_number(dtype: DType, largest: int) -> bool:
    """Whether all integers from 0 are values of the type."""
    if dtype.kind in INTEGER:
        return largest <= dtype.limits[1]
    if dtype.name in _FORMAT:
        return largest <= 1 << (_FORMAT[dtype.name][1] + 1)
    return False


def _order_kept(match: Match) -> Instruction | None:
    """Compare before a conversion that keeps every value and their order."""
    source, wide = match.A.array.dtype, match.inner.array.dtype
    if source is not match.B.array.dtype or not is_lossless(source, wide):
        return None
    if match.root.attributes.get("type") == "TOTALORDER" or source.kind == PRED:
        return None
    if source.kind == FLOAT and source.name not in _FORMAT:
        return None
    return match.result("compare", match.A, match.B, direction=match.root.direction)


def _truth(match: Match) -> Instruction | None:
    """A truth value as a number, compared with 0 or 1."""
    value, dtype = complex(known_value(match.C)), match.A.array.dtype
    if not is_plain(match.root) or dtype.kind != PRED or value not in (0, 1):
        return None
    if not is_lossless(dtype, match.C.array.dtype):
        return None
    direction = match.root.direction
    if direction in (("EQ", "GE") if value else ("NE", "GT")):
        return match.A
    if direction in (("NE", "LT") if value else ("EQ", "LE")):
        return match.result("not", match.A)
    return None


def _select_of_splats(match: Match) -> Instruction:
    """Two constants are converted before the program runs."""
    root = match.root
    operands = tuple(
        match.make("convert", operand, shape=operand.array.with_dtype(root.array.dtype))
        for operand in match.F.operands[1:]
    )
    return match.result("select", match.P, *operands)


PAIRS = (
    Rule("convert(A) => A", op("convert", A), A, when=_same_type),
    Rule("convert(convert(A)) => convert(A)", op("convert", op("convert", A)), _one_convert),
    Rule(
        "convert(f(convert(A), convert(B))) => f(A, B)",
        op("convert", op((*MODULAR, *_UNSIGNED, *PICKING, *_SIGNS[:1])).bind("F").one_use),
        _narrow,
    ),
)
"""Conversions that follow each other, and what is computed between two."""

RULES = (
    *PAIRS,
    Rule("convert(iota) => iota", op("convert", op("iota").bind("I")), _of_iota),
    Rule(
        "convert(select(P, C, D)) => select(P, convert(C), convert(D))",
        op("convert", op("select", P, splat(), splat()).bind("F").one_use),
        _select_of_splats,
    ),
    Rule(
        "compare(convert(A), convert(B)) => compare(A, B)",
        op("compare", op("convert", A), op("convert", B)),
        _order_kept,
    ),
    Rule("compare(convert(P), 0) => P", op("compare", op("convert", A), splat(name="C")), _truth),
    Rule("reduce-precision(A) => A", op("reduce-precision", A), A, when=_keeps_format),
)
