"""What each elementwise op means to z3: HLO's integers as bit vectors, its floats as IEEE numbers.

Every definition is that of the interpreter.  Functions that z3 has no theory of are unknown functions: equal
operands give equal results, and nothing else is known of them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import z3

from hloopt.ops.traits import op_table
from hloopt.types import DType, dtype

__all__ = ["EASY", "MEANINGS", "constant", "sort_of"]

_FORMATS: Final = {
    "f16": (5, 11),
    "bf16": (8, 8),
    "f32": (8, 24),
    "f64": (11, 53),
    "f8e5m2": (5, 3),
    "f8e4m3": (4, 4),
    "f8e3m4": (3, 5),
}
"""Bits of the exponent, and of the significand with its hidden one, of the types that are IEEE formats."""

_MOST_FACTORS: Final = 16
_NEAREST = z3.RNE()

Meaning = Callable[["DType", Sequence[DType], Any, Sequence[Any]], Any]
"""The result's type, the operands' types, what else makes the term, the operands; None: not known to z3."""


def sort_of(kind: DType | None) -> Any:
    """The sort of the elements of a type."""
    if kind is None:
        return z3.DeclareSort("array")
    if kind.is_pred:
        return z3.BoolSort()
    if kind.is_integer:
        return z3.BitVecSort(kind.bits)
    if kind.name in _FORMATS:
        return z3.FPSort(*_FORMATS[kind.name])
    return z3.DeclareSort(kind.name)


def _is_ieee(kind: DType) -> bool:
    """Whether z3 computes with floats of this type."""
    return kind.name in _FORMATS


def constant(value: Any, kind: DType) -> Any:
    """A value of a type; all NaN are one."""
    if kind.is_pred:
        return z3.BoolVal(bool(value))
    if kind.is_integer:
        return z3.BitVecVal(int(value), kind.bits)
    array = np.asarray(value, kind.numpy).reshape(1)
    bits = int(array.view(f"u{array.dtype.itemsize}")[0])
    sort = sort_of(kind)
    if not _is_ieee(kind):
        return z3.Const(f"{kind.name} {bits:x}", sort)
    if np.isnan(array.astype(np.float64)[0]):
        return z3.fpNaN(sort)
    return z3.fpBVToFP(z3.BitVecVal(bits, kind.bits), sort)


def _known(kinds: Sequence[DType]) -> bool:
    return all(kind.is_pred or kind.is_integer or _is_ieee(kind) for kind in kinds)


def _arithmetic(integer: Any, real: Any, pred: Any = None) -> Meaning:
    """An op by its meaning for integers, floats and pred; each of two operands, or more that it folds."""

    def meaning(kind: DType, kinds: Sequence[DType], data: Any, args: Sequence[Any]) -> Any:
        function = pred if kind.is_pred else integer if kind.is_integer else real
        if function is None or not _known([kind, *kinds]):
            return None
        if len(args) == 1:
            return function(kind, args[0])
        total = args[0]
        for arg in args[1:]:
            total = function(kind, total, arg)
        return total

    return meaning


def _plain(integer: Any, real: Any, pred: Any = None) -> Meaning:
    """As ``_arithmetic``, of functions that do not ask for the type."""

    def typed(function: Any) -> Any:
        return None if function is None else lambda _, *args: function(*args)

    return _arithmetic(typed(integer), typed(real), typed(pred))


def _bits(value: int, kind: DType) -> Any:
    return z3.BitVecVal(value, kind.bits)


def _signed(kind: DType) -> bool:
    return kind.kind == "signed"


def _divide(kind: DType, x: Any, y: Any) -> Any:
    quotient = x / y if _signed(kind) else z3.UDiv(x, y)
    return z3.If(y == 0, _bits(-1, kind), quotient)


def _remainder(kind: DType, x: Any, y: Any) -> Any:
    return z3.If(y == 0, x, z3.SRem(x, y) if _signed(kind) else z3.URem(x, y))


def _less(kind: DType, x: Any, y: Any, *, or_equal: bool = False) -> Any:
    if kind.is_pred:
        return z3.Or(z3.Not(x), y) if or_equal else z3.And(z3.Not(x), y)
    if kind.is_float:
        return z3.fpLEQ(x, y) if or_equal else z3.fpLT(x, y)
    if _signed(kind):
        return x <= y if or_equal else x < y
    return z3.ULE(x, y) if or_equal else z3.ULT(x, y)


def _extremum(*, largest: bool) -> Meaning:
    def integer(kind: DType, x: Any, y: Any) -> Any:
        return z3.If(_less(kind, x, y) == largest, y, x)

    def real(kind: DType, x: Any, y: Any) -> Any:
        # Of two zeros the positive one is larger.
        tied = z3.If(z3.fpIsNegative(x) == largest, y, x)
        found = z3.If(_less(kind, x, y) == largest, y, x)
        number = z3.If(z3.And(z3.fpIsZero(x), z3.fpIsZero(y)), tied, found)
        return z3.If(z3.fpIsNaN(x), x, z3.If(z3.fpIsNaN(y), y, number))

    return _arithmetic(integer, real)


def _multiply_high(kind: DType, x: Any, y: Any) -> Any:
    extend = z3.SignExt if _signed(kind) else z3.ZeroExt
    product = extend(kind.bits, x) * extend(kind.bits, y)
    return z3.Extract(2 * kind.bits - 1, kind.bits, product)


def _population(kind: DType, x: Any) -> Any:
    total = _bits(0, kind)
    for at in range(kind.bits):
        total += z3.ZeroExt(kind.bits - 1, z3.Extract(at, at, x)) if kind.bits > 1 else x
    return total


def _leading_zeros(kind: DType, x: Any) -> Any:
    found = _bits(kind.bits, kind)
    for at in range(kind.bits):
        found = z3.If(z3.Extract(at, at, x) == 1, _bits(kind.bits - 1 - at, kind), found)
    return found


def _sign(kind: DType, x: Any) -> Any:
    return z3.If(x == 0, _bits(0, kind), z3.If(x < 0, _bits(-1, kind), _bits(1, kind)))


def _float_sign(kind: DType, x: Any) -> Any:
    one = z3.FPVal(1.0, sort_of(kind))
    signed = z3.If(z3.fpIsNegative(x), z3.fpNeg(one), one)
    return z3.If(z3.Or(z3.fpIsNaN(x), z3.fpIsZero(x)), x, signed)


def _to_integral(mode: Any) -> Meaning:
    return _plain(None, lambda x: z3.fpRoundToIntegral(mode, x))


def _compare(kind: DType, kinds: Sequence[DType], data: Any, args: Sequence[Any]) -> Any:
    direction, total = data
    operand, (x, y) = kinds[0], args
    if total or not _known(kinds):
        return None
    if direction in ("EQ", "NE"):
        equal = z3.fpEQ(x, y) if operand.is_float else x == y
        return equal if direction == "EQ" else z3.Not(equal)
    return _less(operand, x, y, or_equal=direction == "LE")


def _select(kind: DType, kinds: Sequence[DType], data: Any, args: Sequence[Any]) -> Any:
    return z3.If(*args)


def _is_finite(kind: DType, kinds: Sequence[DType], data: Any, args: Sequence[Any]) -> Any:
    return z3.Not(z3.Or(z3.fpIsNaN(args[0]), z3.fpIsInf(args[0]))) if _known(kinds) else None


def _power(kind: DType, kinds: Sequence[DType], data: Any, args: Sequence[Any]) -> Any:
    """Integers to a small power that is known."""
    x, y = args
    if not kind.is_integer or not z3.is_bv_value(y) or y.as_long() > _MOST_FACTORS:
        return None
    if _signed(kind) and y.as_signed_long() < 0:
        return None
    total = _bits(1, kind)
    for _ in range(y.as_long()):
        total *= x
    return total


def _convert(kind: DType, kinds: Sequence[DType], data: Any, args: Sequence[Any]) -> Any:
    source, x = kinds[0], args[0]
    if not _known([kind, source]):
        return None
    if kind.is_pred:
        return z3.Not(z3.fpIsZero(x)) if source.is_float else x != 0
    if source.is_pred:
        return z3.If(x, constant(1, kind), constant(0, kind))
    if source.is_integer and kind.is_integer:
        return _resized(x, source, kind)
    if source.is_integer:
        return _rounded(x, source, kind)
    if kind.is_integer:
        return _saturated(x, kind)
    narrow = source.bits == 64 and kind.bits == 16
    inner = z3.fpFPToFP(_NEAREST, x, sort_of(dtype("f32"))) if narrow else x
    return z3.fpFPToFP(_NEAREST, inner, sort_of(kind))


def _resized(x: Any, source: DType, kind: DType) -> Any:
    more = kind.bits - source.bits
    if more <= 0:
        return z3.Extract(kind.bits - 1, 0, x)
    return z3.SignExt(more, x) if _signed(source) else z3.ZeroExt(more, x)


def _rounded(x: Any, source: DType, kind: DType) -> Any:
    """An integer as a float; of 16 bits and fewer by way of f32."""
    wide = sort_of(kind if kind.bits > 16 else dtype("f32"))
    convert = z3.fpSignedToFP if _signed(source) else z3.fpUnsignedToFP
    found = convert(_NEAREST, x, wide)
    return found if kind.bits > 16 else z3.fpFPToFP(_NEAREST, found, sort_of(kind))


def _saturated(x: Any, kind: DType) -> Any:
    """A float as an integer: towards zero, at most the type's bounds, 0 for NaN."""
    least, greatest = kind.limits
    double = z3.FPSort(11, 53)
    wide = z3.fpFPToFP(_NEAREST, x, double)
    convert = z3.fpToSBV if _signed(kind) else z3.fpToUBV
    inside = convert(z3.RTZ(), wide, z3.BitVecSort(kind.bits))
    above = z3.fpGEQ(wide, z3.FPVal(float(greatest), double))
    below = z3.fpLEQ(wide, z3.FPVal(float(least), double))
    found = z3.If(above, _bits(greatest, kind), z3.If(below, _bits(least, kind), inside))
    return z3.If(z3.fpIsNaN(x), _bits(0, kind), found)


def _same_bits(kind: DType, kinds: Sequence[DType], data: Any, args: Sequence[Any]) -> Any:
    """Elements of one width seen as another type.  A NaN has any bits, which differ from those of another."""
    source, x = kinds[0], args[0]
    if not _known([kind, source]):
        return None
    if kind.is_integer and source.is_integer:
        return x
    if source.is_integer and kind.is_float:
        return z3.fpBVToFP(x, sort_of(kind))
    if not (kind.is_integer and source.is_float):
        return None
    nan = z3.FreshConst(z3.BitVecSort(kind.bits), f"NaN of {source.name}")
    return z3.If(z3.fpIsNaN(x), nan, z3.fpToIEEEBV(x))


def _piece(kind: DType, kinds: Sequence[DType], data: Any, args: Sequence[Any]) -> Any:
    return z3.Extract((data + 1) * kind.bits - 1, data * kind.bits, args[0])


def _joined(kind: DType, kinds: Sequence[DType], data: Any, args: Sequence[Any]) -> Any:
    return z3.Concat(*reversed(args))


def _rounding(operation: Any) -> Any:
    """An operation on floats, rounded to nearest even."""
    return lambda *args: operation(_NEAREST, *args)


_OTHERWISE: Final = "a function of which z3 knows nothing"
_PRODUCTS: Final[Mapping[str, Meaning]] = op_table(
    {
        "divide": _arithmetic(_divide, lambda _, x, y: z3.fpDiv(_NEAREST, x, y)),
        "mulhi": _arithmetic(_multiply_high, None),
        "multiply": _plain(operator.mul, _rounding(z3.fpMul)),
        "power": _power,
        "remainder": _arithmetic(_remainder, None),
    },
    otherwise=_OTHERWISE,
)
_OTHERS: Final[Mapping[str, Meaning]] = op_table(
    {
        "abs": _plain(lambda x: z3.If(x < 0, -x, x), z3.fpAbs),
        "add": _plain(operator.add, _rounding(z3.fpAdd)),
        "and": _plain(operator.and_, None, z3.And),
        "ceil": _to_integral(z3.RTP()),
        "compare": _compare,
        "convert": _convert,
        "count-leading-zeros": _arithmetic(_leading_zeros, None),
        "floor": _to_integral(z3.RTN()),
        "is-finite": _is_finite,
        "maximum": _extremum(largest=True),
        "minimum": _extremum(largest=False),
        "negate": _plain(operator.neg, z3.fpNeg),
        "not": _plain(operator.invert, None, z3.Not),
        "or": _plain(operator.or_, None, z3.Or),
        "popcnt": _arithmetic(_population, None),
        "round-nearest-afz": _to_integral(z3.RNA()),
        "round-nearest-even": _to_integral(_NEAREST),
        "select": _select,
        "shift-left": _plain(operator.lshift, None),
        "shift-right-arithmetic": _plain(operator.rshift, None),
        "shift-right-logical": _plain(z3.LShR, None),
        "sign": _arithmetic(_sign, _float_sign),
        "sqrt": _plain(None, _rounding(z3.fpSqrt)),
        "subtract": _plain(operator.sub, _rounding(z3.fpSub)),
        "xor": _plain(operator.xor, None, z3.Xor),
    },
    otherwise=_OTHERWISE,
)
MEANINGS: Final[Mapping[str, Meaning]] = {
    **_PRODUCTS,
    **_OTHERS,
    "bits": _same_bits,
    "joined": _joined,
    "piece": _piece,
}
EASY: Final = MEANINGS.keys() - _PRODUCTS.keys()
"""Ops on integers and pred that z3 decides at any width; and ``select``."""
