"""Integer ops and those of pred: wrapping, truncating, total."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from hloopt.codegen.device import Uses
from hloopt.codegen.scalars.forms import (
    as_signed,
    as_unsigned,
    own_bits,
    unsigned,
    unsigned_type,
    wrapped,
)
from hloopt.codegen.types import register_type
from hloopt.kernel_ir.expressions import Binary, Call, Expr, Number, Select, both, either, ne
from hloopt.kernel_ir.types import INT, LONG, UINT, ULONG
from hloopt.ops.traits import ELEMENTWISE, op_table
from hloopt.types import DType

__all__ = ["INTEGERS", "PREDS", "IntegerRule"]

IntegerRule: TypeAlias = Callable[..., Expr]
"""Given the type, what is used of the library, and the operands."""


def _ring(sign: str) -> IntegerRule:
    """``+``, ``-`` or ``*`` modulo the width, through unsigned."""

    def rule(kind: DType, uses: Uses, x: Expr, y: Expr) -> Expr:
        plain = Binary.of(sign, as_unsigned(x, kind), as_unsigned(y, kind))
        return _cast(plain, kind, uses)

    return rule


def _bitwise(sign: str) -> IntegerRule:
    def rule(kind: DType, uses: Uses, x: Expr, y: Expr) -> Expr:
        plain = Binary.of(sign, x, y)
        # Of two sign-extended or zero-extended numbers the result is extended alike.
        return plain if kind.bits >= 32 else plain.cast(register_type(kind))

    return rule


def _chosen(sign: str) -> IntegerRule:
    def rule(kind: DType, uses: Uses, x: Expr, y: Expr) -> Expr:
        return Select(Binary.of(sign, x, y), x, y)

    return rule


def _called(name: str) -> IntegerRule:
    """A function of the library for signed numbers and one for unsigned; a narrow result wraps."""

    def rule(kind: DType, uses: Uses, x: Expr, y: Expr) -> Expr:
        type = register_type(kind)
        call = uses.call(f"{name}_{kind.kind}<{type}>", x, y, type=type)
        return wrapped(call, kind, uses) if kind.bits < 8 else call

    return rule


def _power(kind: DType, uses: Uses, x: Expr, y: Expr) -> Expr:
    wide, type = unsigned_type(kind), register_type(kind)
    if kind.kind == "unsigned":
        return wrapped(uses.call(f"power_unsigned<{wide}>", x, y, type=wide), kind, uses)
    call = uses.call(f"power_signed<{wide}, {type}>", x, y, type=type)
    return wrapped(call, kind, uses) if kind.bits < 8 else call


def _multiply_high(kind: DType, uses: Uses, x: Expr, y: Expr) -> Expr:
    if kind.name == "s64":
        return uses.call("multiply_high_s64", x, y, type=LONG)
    if kind.name == "u64":
        return Call("__umul64hi", (x, y), ULONG)
    wide, word = (LONG, INT) if kind.kind == "signed" else (ULONG, UINT)
    product = x.cast(wide) * y >> kind.bits
    return wrapped(product.cast(word) if kind.bits < 8 else product, kind, uses)


def _shift_left(kind: DType, uses: Uses, x: Expr, y: Expr) -> Expr:
    return _cast(_shifted(as_unsigned(x, kind), "<<", y, kind, uses), kind, uses)


def _shift_right_logical(kind: DType, uses: Uses, x: Expr, y: Expr) -> Expr:
    return _cast(_shifted(own_bits(x, kind), ">>", y, kind, uses), kind, uses)


def _shifted(x: Expr, sign: str, y: Expr, kind: DType, uses: Uses) -> Expr:
    """A shift that leaves nothing where the amount is as large as the type."""
    amount = own_bits(y, kind)
    if isinstance(y, Number) and y.value is not None and 0 <= y.value < kind.bits:
        return Binary.of(sign, x, amount)
    if uses.native:
        # No condition: a host's compiler would write loops anew for each that does not change in them.
        within = -(amount < kind.bits).cast(unsigned_type(kind))
        return Binary.of(sign, x, amount & kind.bits - 1) & within
    return Select(amount < kind.bits, Binary.of(sign, x, amount), unsigned(0, kind))


def _cast(plain: Expr, kind: DType, uses: Uses) -> Expr:
    """The result of an operation in ``unsigned_type``."""
    return plain if register_type(kind) == unsigned_type(kind) else wrapped(plain, kind, uses)


def _shift_right_arithmetic(kind: DType, uses: Uses, x: Expr, y: Expr) -> Expr:
    amount = own_bits(y, kind)
    signed = x if kind.kind == "signed" else as_signed(x, kind, uses)
    plain = signed >> Select.of(amount < kind.bits, amount, kind.bits - 1)
    return plain if kind.kind == "signed" and kind.bits >= 32 else wrapped(plain, kind, uses)


def _absolute(kind: DType, uses: Uses, x: Expr) -> Expr:
    return Select(x < 0, _negate(kind, uses, x), x)


def _negate(kind: DType, uses: Uses, x: Expr) -> Expr:
    return _cast(unsigned(0, kind) - as_unsigned(x, kind), kind, uses)


def _sign(kind: DType, uses: Uses, x: Expr) -> Expr:
    return wrapped((x > 0) - (x < 0), kind, uses)


def _invert(kind: DType, uses: Uses, x: Expr) -> Expr:
    return ~x if kind.bits >= 32 else wrapped(~as_unsigned(x, kind), kind, uses)


def _population(kind: DType, uses: Uses, x: Expr) -> Expr:
    name = "__popcll" if kind.bits > 32 else "__popc"
    return wrapped(Call(name, (own_bits(x, kind),), INT), kind, uses)


def _leading_zeros(kind: DType, uses: Uses, x: Expr) -> Expr:
    name, type = ("__clzll", LONG) if kind.bits > 32 else ("__clz", INT)
    count: Expr = Call(name, (own_bits(x, kind).cast(type),), INT)
    return wrapped(count - (32 - kind.bits) if kind.bits < 32 else count, kind, uses)


def _clamp(kind: DType, uses: Uses, least: Expr, x: Expr, greatest: Expr) -> Expr:
    inner = Select(least > x, least, x)
    return Select(inner < greatest, inner, greatest)


INTEGERS: Mapping[str, IntegerRule] = op_table(
    {
        "abs": _absolute,
        "add": _ring("+"),
        "and": _bitwise("&"),
        "clamp": _clamp,
        "count-leading-zeros": _leading_zeros,
        "divide": _called("divide"),
        "maximum": _chosen(">"),
        "minimum": _chosen("<"),
        "mulhi": _multiply_high,
        "multiply": _ring("*"),
        "negate": _negate,
        "not": _invert,
        "or": _bitwise("|"),
        "popcnt": _population,
        "power": _power,
        "remainder": _called("remainder"),
        "shift-left": _shift_left,
        "shift-right-arithmetic": _shift_right_arithmetic,
        "shift-right-logical": _shift_right_logical,
        "sign": _sign,
        "subtract": _ring("-"),
        "xor": _bitwise("^"),
    },
    ELEMENTWISE,
    "not for integers, or in ``table.py``",
)


def _any(kind: DType, uses: Uses, *operands: Expr) -> Expr:
    return either(operands)


def _all(kind: DType, uses: Uses, *operands: Expr) -> Expr:
    return both(operands)


def _not(kind: DType, uses: Uses, x: Expr) -> Expr:
    return x.negated()


def _differ(kind: DType, uses: Uses, x: Expr, y: Expr) -> Expr:
    return ne(x, y)


def _clamp_preds(kind: DType, uses: Uses, least: Expr, x: Expr, greatest: Expr) -> Expr:
    return both([either([least, x]), greatest])


# Both sides of && and || are values already, so that nothing is skipped.
PREDS: Mapping[str, IntegerRule] = op_table(
    {
        "add": _any,
        "and": _all,
        "clamp": _clamp_preds,
        "maximum": _any,
        "minimum": _all,
        "multiply": _all,
        "not": _not,
        "or": _any,
        "xor": _differ,
    },
    ELEMENTWISE,
    "not for preds, or in ``table.py``",
)
