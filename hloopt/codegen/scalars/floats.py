"""Ops of real floats: C's operators and functions in the compute type, rounded once."""

from __future__ import annotations

from collections.abc import Mapping

from hloopt.codegen.device import Uses, library
from hloopt.codegen.scalars.forms import narrow, widen
from hloopt.codegen.scalars.integers import Rule
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


def _in_compute_type(form: str, double_form: str = "") -> Rule:
    """``form`` over operands ``{0}``, ``{1}`` ..., of doubles ``double_form``."""

    def rule(kind: DType, operands: tuple[str, ...], uses: Uses) -> str:
        wide = (widen(operand, kind, uses) for operand in operands)
        chosen = double_form if double_form and kind.name == "f64" else form
        return narrow(chosen.format(*wide), kind, uses)

    return rule


def _operator(sign: str, name: str = "") -> Rule:
    """An operator of C's; for types that have a function ``name_type`` in the library, that."""

    def rule(kind: DType, operands: tuple[str, ...], uses: Uses) -> str:
        if f"{name}_{kind.name}" in library():
            return uses.call(f"{name}_{kind.name}", *operands)
        x, y = (widen(operand, kind, uses) for operand in operands)
        plain = f"{x} {sign} {y}"
        return narrow(plain, kind, uses) if kind.is_narrow_float else f"({plain})"

    return rule


def _c_function(name: str) -> Rule:
    """A function of C's: ``name`` of doubles, with an f behind it of floats."""
    return _in_compute_type(f"{name}f({{}})", f"{name}({{}})")


def _c_function_of_two(name: str) -> Rule:
    return _in_compute_type(f"{name}f({{}}, {{}})", f"{name}({{}}, {{}})")


def _of_library(name: str) -> Rule:
    """A function of the library: ``name_f32`` or ``name_f64``, or one of a narrow type itself."""

    def rule(kind: DType, operands: tuple[str, ...], uses: Uses) -> str:
        if f"{name}_{kind.name}" in library():
            return uses.call(f"{name}_{kind.name}", *operands)
        wide = [widen(operand, kind, uses) for operand in operands]
        ending = "f64" if kind.name == "f64" else "f32"
        return narrow(uses.call(f"{name}_{ending}", *wide), kind, uses)

    return rule


def _negate(kind: DType, operands: tuple[str, ...], uses: Uses) -> str:
    (x,) = operands
    if (sign := _SIGN_BITS.get(kind.name)) is not None:
        word = "short" if kind.bits == 16 else "char"
        return f"{uses.type(kind)}{{(unsigned {word})({x}.bits ^ {sign:#x})}}"
    negated = f"-{widen(x, kind, uses)}"
    return narrow(negated, kind, uses) if kind.is_narrow_float else f"({negated})"


def _absolute(kind: DType, operands: tuple[str, ...], uses: Uses) -> str:
    (x,) = operands
    if (sign := _SIGN_BITS.get(kind.name)) is not None:
        word = "short" if kind.bits == 16 else "char"
        return f"{uses.type(kind)}{{(unsigned {word})({x}.bits & {sign - 1:#x})}}"
    return _c_function("fabs")(kind, operands, uses)


def _clamp(kind: DType, operands: tuple[str, ...], uses: Uses) -> str:
    if f"maximum_{kind.name}" in library():
        least, x, greatest = operands
        raised = uses.call(f"maximum_{kind.name}", least, x)
        return uses.call(f"minimum_{kind.name}", raised, greatest)
    least, x, greatest = (widen(operand, kind, uses) for operand in operands)
    raised = uses.call("maximum_f32", least, x)
    return narrow(uses.call("minimum_f32", raised, greatest), kind, uses)


def finite(kind: DType, operands: tuple[str, ...], uses: Uses) -> str:
    """``is-finite``, a ``bool``."""
    (x,) = operands
    ending = "f64" if kind.name == "f64" else "f32"
    return uses.call(f"finite_{ending}", widen(x, kind, uses))


FLOATS: Mapping[str, Rule] = op_table(
    {
        "abs": _absolute,
        "acos": _c_function("acos"),
        "acosh": _c_function("acosh"),
        "add": _operator("+", "add"),
        "asin": _c_function("asin"),
        "asinh": _c_function("asinh"),
        "atan2": _c_function_of_two("atan2"),
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
        "power": _c_function_of_two("pow"),
        "remainder": _c_function_of_two("fmod"),
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
