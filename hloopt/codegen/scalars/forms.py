"""Small pieces that several tables write: casts that wrap, bits of an element, narrow floats."""

from __future__ import annotations

from typing import Final

from hloopt.codegen.device import Uses
from hloopt.codegen.types import register_type
from hloopt.kernel_ir.expressions import Expr, Make, Member, Number
from hloopt.kernel_ir.types import BYTE, DOUBLE, FLOAT, INT, UINT, ULONG, USHORT, Type
from hloopt.types import DType, dtype

__all__ = [
    "as_signed",
    "as_unsigned",
    "code",
    "computed_type",
    "mask",
    "narrow",
    "of_code",
    "own_bits",
    "part",
    "parts",
    "unsigned",
    "unsigned_type",
    "widen",
    "wrapped",
]

_SIGNED: Final = {bits: register_type(dtype(f"s{bits}")) for bits in (8, 16, 32, 64)}


def unsigned_type(kind: DType) -> Type:
    """The unsigned type in which an integer type computes: as wide as it is, at least as ``int``."""
    return ULONG if kind.bits > 32 else UINT


def unsigned(number: int, kind: DType) -> Number:
    """A number of ``unsigned_type``."""
    return Number(f"{number}{'ull' if kind.bits > 32 else 'u'}", unsigned_type(kind), number)


def mask(number: int) -> Number:
    """A number whose bits count."""
    return Number(f"{number:#x}", INT, number)


def wrapped(expr: Expr, kind: DType, uses: Uses) -> Expr:
    """An integer expression, as wide as ``unsigned_type`` or int, modulo the width of a type."""
    type = register_type(kind)
    if kind.bits < 8:
        return uses.call(f"wrap_{kind.kind}<{kind.bits}>", expr, type=type)
    return expr.cast(type)


def as_unsigned(expr: Expr, kind: DType) -> Expr:
    """The value as ``unsigned_type``: sign-extended, which is the same modulo the type's width."""
    type = unsigned_type(kind)
    return expr if register_type(kind) == type else expr.cast(type)


def own_bits(expr: Expr, kind: DType) -> Expr:
    """The element's own bits as ``unsigned_type``, zeros above."""
    if kind.kind == "unsigned" or kind.bits >= 32:
        return as_unsigned(expr, kind)
    if kind.bits < 8:
        return expr.cast(UINT) & unsigned((1 << kind.bits) - 1, kind)
    return expr.cast(_word(kind)).cast(UINT)


def as_signed(expr: Expr, kind: DType, uses: Uses) -> Expr:
    """The bits of an unsigned element as a signed number, its uppermost bit the sign."""
    if kind.bits < 8:
        return uses.call(f"wrap_signed<{kind.bits}>", expr.cast(INT), type=_SIGNED[8])
    return expr.cast(_SIGNED[kind.bits])


def computed_type(kind: DType) -> Type:
    """The type in which a real float is computed."""
    return DOUBLE if kind.name == "f64" else FLOAT


def widen(expr: Expr, kind: DType, uses: Uses) -> Expr:
    """A real float in its compute type."""
    return uses.call(f"widen_{kind.name}", expr, type=FLOAT) if kind.is_narrow_float else expr


def narrow(expr: Expr, kind: DType, uses: Uses) -> Expr:
    """A real float, in the compute type, rounded to a type."""
    if not kind.is_narrow_float:
        return expr
    return uses.call(f"round_{kind.name}", expr, type=uses.type(kind))


def _word(kind: DType) -> Type:
    return USHORT if kind.bits == 16 else BYTE


def code(expr: Expr, kind: DType) -> Member:
    """The bits of a narrow float."""
    return Member(expr, "bits", _word(kind))


def of_code(bits: Expr, kind: DType, uses: Uses) -> Make:
    """The narrow float that has such bits."""
    return Make(uses.type(kind), (bits if bits.type == _word(kind) else bits.cast(_word(kind)),))


def part(kind: DType) -> DType:
    """The type of the parts of a complex type."""
    return dtype("f32" if kind.name == "c64" else "f64")


def parts(expr: Expr, kind: DType) -> tuple[Member, Member]:
    """The real and the imaginary part of a complex number."""
    type = register_type(part(kind))
    return Member(expr, "re", type), Member(expr, "im", type)
