"""Ops of complex numbers: in f64, but for sums, and rounded once."""

from __future__ import annotations

from collections.abc import Mapping

from hloopt.codegen.device import Uses, library
from hloopt.codegen.scalars.forms import parts
from hloopt.codegen.scalars.integers import IntegerRule
from hloopt.kernel_ir.expressions import Binary, Call, Expr, Make
from hloopt.kernel_ir.types import DOUBLE, FLOAT
from hloopt.ops.traits import ELEMENTWISE, op_table
from hloopt.types import DType, dtype

__all__ = ["COMPLEXES"]


def _by_parts(sign: str) -> IntegerRule:
    def rule(kind: DType, uses: Uses, x: Expr, y: Expr) -> Expr:
        pairs = zip(parts(x, kind), parts(y, kind), strict=True)
        return Make(uses.type(kind), tuple(Binary.of(sign, left, right) for left, right in pairs))

    return rule


def _negate(kind: DType, uses: Uses, x: Expr) -> Expr:
    return Make(uses.type(kind), tuple(-one for one in parts(x, kind)))


def _absolute(kind: DType, uses: Uses, x: Expr) -> Expr:
    if kind.name == "c128":
        return Call("hypot", parts(x, kind), DOUBLE)
    wide = tuple(one.cast(DOUBLE) for one in parts(x, kind))
    return Call("hypot", wide, DOUBLE).cast(FLOAT)


def _of_library(name: str) -> IntegerRule:
    """A function of c128 in the library, which may have one of c64, too."""

    def rule(kind: DType, uses: Uses, *operands: Expr) -> Expr:
        type, double = uses.type(kind), uses.type(dtype("c128"))
        if f"{name}_{kind.name}" in library():
            return uses.call(f"{name}_{kind.name}", *operands, type=type)
        wide = [uses.call("widen_c64", operand, type=double) for operand in operands]
        result = uses.call(f"{name}_c128", *wide, type=double)
        return uses.call("round_c64", result, type=type)

    return rule


COMPLEXES: Mapping[str, IntegerRule] = op_table(
    {
        "abs": _absolute,
        "acos": _of_library("acos"),
        "acosh": _of_library("acosh"),
        "add": _by_parts("+"),
        "asin": _of_library("asin"),
        "asinh": _of_library("asinh"),
        "atan2": _of_library("atan2"),
        "atanh": _of_library("atanh"),
        "cosh": _of_library("cosh"),
        "cosine": _of_library("cosine"),
        "divide": _of_library("divide"),
        "exponential": _of_library("exponential"),
        "exponential-minus-one": _of_library("exponential_minus_one"),
        "log": _of_library("log"),
        "log-plus-one": _of_library("log_plus_one"),
        "logistic": _of_library("logistic"),
        "multiply": _of_library("multiply"),
        "negate": _negate,
        "power": _of_library("power"),
        "rsqrt": _of_library("rsqrt"),
        "sign": _of_library("sign"),
        "sine": _of_library("sine"),
        "sinh": _of_library("sinh"),
        "sqrt": _of_library("sqrt"),
        "subtract": _by_parts("-"),
        "tan": _of_library("tan"),
        "tanh": _of_library("tanh"),
    },
    ELEMENTWISE,
    "not for complex numbers, or in ``table.py``",
)
