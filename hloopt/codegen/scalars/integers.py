"""Integer ops and those of pred: wrapping, truncating, total."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from hloopt.codegen.device import Uses
from hloopt.codegen.scalars.forms import (
    as_signed,
    as_unsigned,
    own_bits,
    suffix,
    unsigned_type,
    wrapped,
)
from hloopt.codegen.types import register_type
from hloopt.ops.traits import ELEMENTWISE, op_table
from hloopt.types import DType

__all__ = ["INTEGERS", "PREDS", "Rule"]

Rule: TypeAlias = Callable[[DType, tuple[str, ...], Uses], str]


def _ring(sign: str) -> Rule:
    """``+``, ``-`` or ``*`` modulo the width, through unsigned."""

    def rule(kind: DType, operands: tuple[str, ...], uses: Uses) -> str:
        x, y = (as_unsigned(operand, kind) for operand in operands)
        plain = f"{x} {sign} {y}"
        if register_type(kind) == unsigned_type(kind):
            return f"({plain})"
        return wrapped(plain, kind, uses)

    return rule


def _bitwise(sign: str) -> Rule:
    def rule(kind: DType, operands: tuple[str, ...], uses: Uses) -> str:
        x, y = operands
        plain = f"({x} {sign} {y})"
        # Of two sign-extended or zero-extended numbers the result is extended alike.
        return plain if kind.bits >= 32 else f"({register_type(kind)}){plain}"

    return rule


def _chosen(sign: str) -> Rule:
    def rule(kind: DType, operands: tuple[str, ...], uses: Uses) -> str:
        x, y = operands
        return f"({x} {sign} {y} ? {x} : {y})"

    return rule


def _called(name: str) -> Rule:
    """A function of the library for signed numbers and one for unsigned; a narrow result wraps."""

    def rule(kind: DType, operands: tuple[str, ...], uses: Uses) -> str:
        call = uses.call(f"{name}_{kind.kind}<{register_type(kind)}>", *operands)
        return wrapped(call, kind, uses) if kind.bits < 8 else call

    return rule


def _power(kind: DType, operands: tuple[str, ...], uses: Uses) -> str:
    wide = unsigned_type(kind)
    if kind.kind == "unsigned":
        return wrapped(uses.call(f"power_unsigned<{wide}>", *operands), kind, uses)
    call = uses.call(f"power_signed<{wide}, {register_type(kind)}>", *operands)
    return wrapped(call, kind, uses) if kind.bits < 8 else call


def _multiply_high(kind: DType, operands: tuple[str, ...], uses: Uses) -> str:
    x, y = operands
    if kind.name == "s64":
        return uses.call("multiply_high_s64", x, y)
    if kind.name == "u64":
        return f"__umul64hi({x}, {y})"
    wide = "long long" if kind.kind == "signed" else "unsigned long long"
    product = f"({wide}){x} * {y} >> {kind.bits}"
    if kind.bits < 8:
        return wrapped(f"({'int' if kind.kind == 'signed' else 'unsigned'})({product})", kind, uses)
    return wrapped(product, kind, uses)


def _shift_left(kind: DType, operands: tuple[str, ...], uses: Uses) -> str:
    x, y = operands
    return _cast(_shifted(as_unsigned(x, kind), "<<", y, kind, uses), kind, uses)


def _shift_right_logical(kind: DType, operands: tuple[str, ...], uses: Uses) -> str:
    x, y = operands
    return _cast(_shifted(own_bits(x, kind), ">>", y, kind, uses), kind, uses)


def _shifted(x: str, operator: str, y: str, kind: DType, uses: Uses) -> str:
    """A shift that leaves nothing where the amount is as large as the type."""
    amount = own_bits(y, kind)
    if _is_below(y, kind):
        return f"{x} {operator} {amount}"
    if uses.native:
        # No condition: a host's compiler would write loops anew for each that does not change in them.
        mask = "unsigned long long" if kind.bits > 32 else "unsigned"
        within = f"-({mask})({amount} < {kind.bits})"
        return f"({x} {operator} ({amount} & {kind.bits - 1})) & {within}"
    return f"{amount} < {kind.bits} ? {x} {operator} {amount} : 0{suffix(kind)}"


def _is_below(amount: str, kind: DType) -> bool:
    """Whether an amount is a literal of fewer bits than the type has."""
    number = amount.rstrip("ul")
    return number.isdecimal() and int(number) < kind.bits


def _cast(plain: str, kind: DType, uses: Uses) -> str:
    if register_type(kind) == unsigned_type(kind):
        return f"({plain})"
    return wrapped(plain, kind, uses)


def _shift_right_arithmetic(kind: DType, operands: tuple[str, ...], uses: Uses) -> str:
    x, y = operands
    amount = own_bits(y, kind)
    signed = x if kind.kind == "signed" else as_signed(x, kind, uses)
    plain = f"{signed} >> ({amount} < {kind.bits} ? {amount} : {kind.bits - 1})"
    if kind.kind == "signed" and kind.bits >= 32:
        return f"({plain})"
    return wrapped(plain, kind, uses)


def _absolute(kind: DType, operands: tuple[str, ...], uses: Uses) -> str:
    (x,) = operands
    return f"({x} < 0 ? {_negate(kind, operands, uses)} : {x})"


def _negate(kind: DType, operands: tuple[str, ...], uses: Uses) -> str:
    (x,) = operands
    return _cast(f"0{suffix(kind)} - {as_unsigned(x, kind)}", kind, uses)


def _sign(kind: DType, operands: tuple[str, ...], uses: Uses) -> str:
    (x,) = operands
    return wrapped(f"({x} > 0) - ({x} < 0)", kind, uses)


def _invert(kind: DType, operands: tuple[str, ...], uses: Uses) -> str:
    (x,) = operands
    return f"(~{x})" if kind.bits >= 32 else wrapped(f"~{as_unsigned(x, kind)}", kind, uses)


def _population(kind: DType, operands: tuple[str, ...], uses: Uses) -> str:
    bits = own_bits(operands[0], kind)
    return wrapped(f"__popcll({bits})" if kind.bits > 32 else f"__popc({bits})", kind, uses)


def _leading_zeros(kind: DType, operands: tuple[str, ...], uses: Uses) -> str:
    bits = own_bits(operands[0], kind)
    if kind.bits > 32:
        return wrapped(f"__clzll((long long){bits})", kind, uses)
    above = f" - {32 - kind.bits}" if kind.bits < 32 else ""
    return wrapped(f"__clz((int){bits}){above}", kind, uses)


def _clamp(kind: DType, operands: tuple[str, ...], uses: Uses) -> str:
    least, x, greatest = operands
    inner = f"({least} > {x} ? {least} : {x})"
    return f"({inner} < {greatest} ? {inner} : {greatest})"


INTEGERS: Mapping[str, Rule] = op_table(
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


def _logical(form: str) -> Rule:
    def rule(kind: DType, operands: tuple[str, ...], uses: Uses) -> str:
        return f"({form.format(*operands)})"

    return rule


# Both sides of && and || are values already, so that nothing is skipped.
PREDS: Mapping[str, Rule] = op_table(
    {
        "add": _logical("{} || {}"),
        "and": _logical("{} && {}"),
        "clamp": _logical("({0} || {1}) && {2}"),
        "maximum": _logical("{} || {}"),
        "minimum": _logical("{} && {}"),
        "multiply": _logical("{} && {}"),
        "not": _logical("!{}"),
        "or": _logical("{} || {}"),
        "xor": _logical("{} != {}"),
    },
    ELEMENTWISE,
    "not for preds, or in ``table.py``",
)
