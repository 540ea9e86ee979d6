"""Expressions of ``convert`` between all element types, and of the same bits as another type."""

from __future__ import annotations

from hloopt.codegen.device import Uses
from hloopt.codegen.scalars.forms import (
    code,
    narrow,
    of_code,
    own_bits,
    part,
    parts,
    unsigned_type,
    widen,
    wrapped,
)
from hloopt.codegen.scalars.literals import literal
from hloopt.codegen.types import is_struct, register_type
from hloopt.kernel_ir.expressions import (
    Call,
    Expr,
    Make,
    Number,
    Operand,
    Select,
    as_expr,
    either,
    ne,
)
from hloopt.kernel_ir.types import DOUBLE, FLOAT, INT, LONG, UINT, ULONG
from hloopt.types import DType, dtype

__all__ = ["convert", "reinterpret"]


# Here, and not after every op, the sign of a NaN is kept.
_KEEPS_NANS = frozenset({"f16", "bf16"})


def convert(value: Operand, source: DType, target: DType, uses: Uses) -> Expr:
    """A value of ``source`` as ``target`` by the rules of the op ``convert``.

    Floats to integers truncate and saturate, NaN to 0; integers wrap; the rest rounds.  f64 becomes f16
    and bf16 by way of f32, narrower types at once; the real part stands for a complex number.
    ``value`` is a name or a literal.
    """
    type, expr = uses.type(target), as_expr(value)
    if source is target:
        return expr
    if target.is_pred:
        return _truth(expr, source, uses)
    if source.is_complex:
        return _from_complex(expr, source, target, uses)
    if target.is_complex:
        half = part(target)
        return Make(type, (convert(expr, source, half, uses), literal(0, half)))
    if source.is_pred and target.bits >= 8 and not target.is_narrow_float:
        # Compilers know vectors of choices, not of truth values made numbers.
        return Select.of(expr, 1, 0).cast(type)
    if target.is_integer:
        return _to_integer(expr, source, target, uses)
    if not target.is_narrow_float:
        wide = widen(expr, source, uses)
        return wide if type == FLOAT and source.is_narrow_float else wide.cast(type)
    if source.name == "f64" and target.bits < 16:
        return narrow(uses.call("round_to_odd", expr, type=FLOAT), target, uses)
    is_single = source.is_float and source.name != "f64"
    single = widen(expr, source, uses) if is_single else expr.cast(FLOAT)
    if source.is_float and target.name in _KEEPS_NANS:
        return uses.call(f"convert_{target.name}", single, type=type)
    return narrow(single, target, uses)


def _truth(expr: Expr, source: DType, uses: Uses) -> Expr:
    if source.is_complex:
        zero = literal(0, part(source))
        return either([ne(one, zero) for one in parts(expr, source)])
    if source.is_integer:
        return ne(expr, 0)
    kind = source if source.name == "f64" else dtype("f32")
    return ne(widen(expr, source, uses), literal(0, kind))


def _from_complex(expr: Expr, source: DType, target: DType, uses: Uses) -> Expr:
    if target.is_complex:
        name = "widen_c64" if target.name == "c128" else "round_c64"
        return uses.call(name, expr, type=uses.type(target))
    return convert(parts(expr, source)[0], part(source), target, uses)


def _to_integer(expr: Expr, source: DType, target: DType, uses: Uses) -> Expr:
    type = register_type(target)
    if source.is_float:
        name = f"saturate_{target.kind}<{type}, {target.bits}>"
        return uses.call(name, widen(expr, source, uses), type=type)
    if target.bits < 8:
        return wrapped(expr.cast(INT if target.kind == "signed" else UINT), target, uses)
    return expr.cast(type)


def reinterpret(value: Operand, source: DType, target: DType, uses: Uses) -> Expr:
    """The bits of a value of ``source`` as a value of ``target``, which is as wide.

    Raises ``ValueError`` where the widths differ.  ``value`` is a name or a literal.
    """
    uses.type(target)
    if source is target:
        return as_expr(value)
    if source.bits != target.bits:
        raise ValueError(f"{source.name} and {target.name} have different widths")
    return _of_bits(_bits(as_expr(value), source, uses), target, uses)


def _bits(expr: Expr, source: DType, uses: Uses) -> Expr:
    """The bits as an unsigned number as wide as the type, at least as ``unsigned``."""
    if source.is_complex:
        return uses.call("bits_of_c64", expr, type=ULONG)
    if source.name == "f32":
        return Call("__float_as_uint", (expr,), UINT)
    if source.name == "f64":
        return Call("__double_as_longlong", (expr,), LONG).cast(ULONG)
    if source.is_pred:
        return expr.cast(UINT)
    if is_struct(source):
        return code(expr, source).cast(UINT)
    return own_bits(expr, source)


def _of_bits(bits: Expr, target: DType, uses: Uses) -> Expr:
    if target.is_complex:
        return uses.call("c64_of_bits", bits, type=uses.type(target))
    if target.name == "f32":
        return Call("__uint_as_float", (bits,), FLOAT)
    if target.name == "f64":
        return Call("__longlong_as_double", (bits.cast(LONG),), DOUBLE)
    if target.is_pred:
        return ne(bits, Number("0u", UINT, 0))
    if is_struct(target):
        return of_code(bits, target, uses)
    if register_type(target) == unsigned_type(target):
        return bits
    return wrapped(bits, target, uses)
