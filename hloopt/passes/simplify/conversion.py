"""Rules for convert, bitcast-convert, bitcast, reduce-precision and copy."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.passes.simplify.conditions import COMPLEX, FLOAT, INTEGER, PRED, SIGNED
from hloopt.rewrite import Match, Rule, op, same_layout, var
from hloopt.types import ArrayShape, DType

__all__ = ["RULES", "is_lossless"]

A, B = var("A"), var("B")

# (exponent bits, mantissa bits) of the IEEE-like types; the 8-bit types are not all nested in each other.
_FORMAT = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}
_COMPLEX_PART = {"c64": "f32", "c128": "f64"}


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
    source, middle = match.A.array.dtype, match.root.operands[0].array.dtype
    target = match.root.array.dtype
    if not is_lossless(source, middle):
        return None
    if source is target:
        return match.make("convert", (match.A,), {}, match.root.shape)
    same_kind = source.kind == middle.kind or {source.kind, middle.kind} <= set(INTEGER)
    both_ways = source.kind == PRED and target.name != "s1"  # 1 saturates there, true is all bits
    if not (same_kind or is_lossless(middle, target) or both_ways):
        return None
    return match.make("convert", (match.A,), {}, match.root.shape)


def _same_type(match: Match) -> bool:
    return match.A.array.dtype is match.root.array.dtype


def _keeps_format(match: Match) -> bool:
    exponent, mantissa = _FORMAT.get(match.root.array.dtype.name, (1 << 30, 1 << 30))
    attributes = match.root.attributes
    return bool(attributes["exponent_bits"] >= exponent and attributes["mantissa_bits"] >= mantissa)


def _one_bitcast_convert(match: Match) -> Instruction | None:
    shapes = [match.A.array, match.root.operands[0].array, match.root.array]
    if len({(shape.dtype.bits, shape.dims) for shape in shapes}) != 1:
        return None
    return match.make("bitcast-convert", (match.A,), {}, match.root.shape)


def _same_shape(match: Match) -> bool:
    given, wanted = match.A.shape, match.root.shape
    if not isinstance(given, ArrayShape) or not isinstance(wanted, ArrayShape):
        return False
    return given.dtype is wanted.dtype and given.dims == wanted.dims


def _bitcast_identity(match: Match) -> bool:
    return _same_shape(match) and same_layout(match.A.shape, match.root.shape)


def _one_bitcast(match: Match) -> Instruction | None:
    shapes = (match.A.shape, match.root.operands[0].shape, match.root.shape)
    widths = {shape.dtype.bits if isinstance(shape, ArrayShape) else 0 for shape in shapes}
    if len(widths) != 1 or 0 in widths:
        return None
    return match.make("bitcast", (match.A,), {}, match.root.shape)


RULES = (
    Rule(
        "convert(A) => A",
        op("convert", A),
        A,
        when=_same_type,
        example="x = $T[6] parameter(0)\n ROOT r = $T[6] convert(x)",
        counterexample="x = s32[6] parameter(0)\n ROOT r = u32[6] convert(x)",
        types=("f32", "bf16", "s8", "pred"),
    ),
    Rule(
        "convert(convert(A)) => convert(A)",
        op("convert", op("convert", A)),
        _one_convert,
        example="x = $T[6] parameter(0)\n w = f32[6] convert(x)\n ROOT r = $T[6] convert(w)",
        counterexample="x = f32[6] parameter(0)\n w = bf16[6] convert(x)\n"
        "ROOT r = f32[6] convert(w)",
        types=("bf16", "f16", "f8e4m3fn", "s8", "u16", "pred"),
    ),
    Rule(
        "reduce-precision(A) => A",
        op("reduce-precision", A),
        A,
        when=_keeps_format,
        example="x = bf16[6] parameter(0)\n"
        "ROOT r = bf16[6] reduce-precision(x), exponent_bits=8, mantissa_bits=7",
        counterexample="x = f32[6] parameter(0)\n"
        "ROOT r = f32[6] reduce-precision(x), exponent_bits=8, mantissa_bits=7",
    ),
    Rule(
        "bitcast-convert(A) => A",
        op("bitcast-convert", A),
        A,
        when=_same_shape,
        example="x = u32[6] parameter(0)\n ROOT r = u32[6] bitcast-convert(x)",
        counterexample="x = u32[6] parameter(0)\n ROOT r = f32[6] bitcast-convert(x)",
    ),
    Rule(
        "bitcast-convert(bitcast-convert(A)) => bitcast-convert(A)",
        op("bitcast-convert", op("bitcast-convert", A)),
        _one_bitcast_convert,
        example="x = s32[6] parameter(0)\n y = u32[6] bitcast-convert(x)\n"
        "ROOT r = f32[6] bitcast-convert(y)",
        counterexample="x = s32[6] parameter(0)\n y = u16[6,2] bitcast-convert(x)\n"
        "ROOT r = f32[6] bitcast-convert(y)",
    ),
    Rule(
        "bitcast(A) => A",
        op("bitcast", A),
        A,
        when=_bitcast_identity,
        example="x = f32[2,3]{0,1} parameter(0)\n ROOT r = f32[2,3]{0,1} bitcast(x)",
        counterexample="x = f32[3,3]{0,1} parameter(0)\n ROOT r = f32[3,3]{1,0} bitcast(x)",
    ),
    Rule(
        "bitcast(bitcast(A)) => bitcast(A)",
        op("bitcast", op("bitcast", A)),
        _one_bitcast,
        example="x = f32[2,3]{0,1} parameter(0)\n y = f32[3,2]{1,0} bitcast(x)\n"
        "ROOT r = f32[6]{0} bitcast(y)",
        counterexample="x = f32[2,3]{1,0} parameter(0)\n y = f32[6]{0} reshape(x)\n"
        "ROOT r = f32[3,2]{1,0} bitcast(y)",
    ),
    Rule(
        "copy(A) => A",
        op("copy", A),
        A,
        example="x = f32[2,3] parameter(0)\n y = f32[2,3] negate(x)\n ROOT r = f32[2,3] copy(y)",
        counterexample="x = f32[2,3]{1,0} parameter(0)\n ROOT r = f32[2,3]{0,1} copy(x)",
    ),
)
