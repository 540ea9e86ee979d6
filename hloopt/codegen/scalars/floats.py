"""Ops of real floats: C's operators and functions in the compute type, rounded once."""

from __future__ import annotations

from collections.abc import Mapping

from hloopt.codegen.device import Uses, library
from hloopt.codegen.scalars.forms import code, computed_type, mask, narrow, of_code, widen
from hloopt.codegen.scalars.integers import IntegerRule
from hloopt.kernel_ir.expressions import Binary, Call, Expr
from hloopt.kernel_ir.types import BOOL
from hloopt.ops.traits import ELEMENTWISE, op_table
from hloopt.types import DType

__all__ = ["FLOATS", "finite"]

# Types whose sign is one bit that every code may have.
_SIGN_BITS = {
    "f16": 0x8000,
    "bf16": 0x8000,
    "f8e5m2": 0x80,
    "f8e4m3": 0x80,
    "f8e4m3fn": 0x80,
    "f8e3m4": 0x80,
    "f4e2m1fn": 0x8,
}


def _operator(sign: str, name: str = "") -> IntegerRule:
    """An operator of C's; for types that have a function ``name_type`` in the library, that."""

    def rule(kind: DType, uses: Uses, *operands: Expr) -> Expr:
        if f"{name}_{kind.name}" in library():
            return uses.call(f"{name}_{kind.name}", *operands, type=uses.type(kind))
        x, y = (widen(operand, kind, uses) for operand in operands)
        return narrow(Binary.of(sign, x, y), kind, uses)

    return rule


def _c_function(name: str) -> IntegerRule:
    """A function of C's: ``name`` of doubles, with an f behind it of floats."""

    def rule(kind: DType, uses: Uses, *operands: Expr) -> Expr:
        wide = tuple(widen(operand, kind, uses) for operand in operands)
        full = name if kind.name == "f64" else f"{name}f"
        return narrow(Call(full, wide, computed_type(kind)), kind, uses)

    return rule


def _of_library(name: str) -> IntegerRule:
    """A function of the library: ``name_f32`` or ``name_f64``, or one of a narrow type itself."""

    def rule(kind: DType, uses: Uses, *operands: Expr) -> Expr:
        if f"{name}_{kind.name}" in library():
            return uses.call(f"{name}_{kind.name}", *operands, type=uses.type(kind))
        wide = [widen(operand, kind, uses) for operand in operands]
        return narrow(uses.call(f"{name}_f32", *wide, type=computed_type(kind)), kind, uses)

    return rule


def _negate(kind: DType, uses: Uses, x: Expr) -> Expr:
    if (sign := _SIGN_BITS.get(kind.name)) is not None:
        return of_code(code(x, kind) ^ mask(sign), kind, uses)
    return narrow(-widen(x, kind, uses), kind, uses)


def _absolute(kind: DType, uses: Uses, x: Expr) -> Expr:
    if (sign := _SIGN_BITS.get(kind.name)) is not None:
        return of_code(code(x, kind) & mask(sign - 1), kind, uses)
    return _c_function("fabs")(kind, uses, x)


def _clamp(kind: DType, uses: Uses, least: Expr, x: Expr, greatest: Expr) -> Expr:
    ending, type = kind.name, uses.type(kind)
    if f"maximum_{ending}" not in library():
        least, x, greatest = (widen(operand, kind, uses) for operand in (least, x, greatest))
        ending, type = "f32", computed_type(kind)
    raised = uses.call(f"maximum_{ending}", least, x, type=type)
    result = uses.call(f"minimum_{ending}", raised, greatest, type=type)
    return result if ending == kind.name else narrow(result, kind, uses)


def finite(kind: DType, uses: Uses, x: Expr) -> Expr:
    """``is-finite``, a ``bool``."""
    ending = "f64" if kind.name == "f64" else "f32"
    return uses.call(f"finite_{ending}", widen(x, kind, uses), type=BOOL)


FLOATS: Mapping[str, IntegerRule] = op_table(
    {
        "abs": _absolute,
        "acos": _c_function("acos"),
        "acosh": _c_function("acosh"),
        "add": _operator("+", "add"),
        "asin": _c_function("asin"),
        "asinh": _c_function("asinh"),
        "atan2": _c_function("atan2"),
        "atanh": _c_function("atanh"),
        "cbrt": _c_function("cbrt"),
        "ceil": _c_function("ceil"),
        "clamp": _clamp,
        "cosh": _c_function("cosh"),
        "cosine": _c_function("cos"),
        "divide": _operator("/"),
        "erf": _c_function("erf"),
        "exponential": _c_function("exp"),
        "exponential-minus-one": _c_function("expm1"),
        "floor": _c_function("floor"),
        "log": _c_function("log"),
        "log-plus-one": _c_function("log1p"),
        "logistic": _of_library("logistic"),
        "maximum": _of_library("maximum"),
        "minimum": _of_library("minimum"),
        "multiply": _operator("*", "multiply"),
        "negate": _negate,
        "power": _c_function("pow"),
        "remainder": _c_function("fmod"),
        "round-nearest-afz": _c_function("round"),
        "round-nearest-even": _c_function("rint"),
        "rsqrt": _c_function("rsqrt"),
        "sign": _of_library("sign"),
        "sine": _c_function("sin"),
        "sinh": _c_function("sinh"),
        "sqrt": _c_function("sqrt"),
        "subtract": _operator("-", "subtract"),
        "tan": _c_function("tan"),
        "tanh": _c_function("tanh"),
    },
    ELEMENTWISE,
    "not for floats, or in ``table.py``",
)
