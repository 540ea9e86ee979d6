"""Small pieces of C that several tables write: casts that wrap, bits of an element, narrow floats."""

from __future__ import annotations

from collections.abc import Callable

from hloopt.codegen.device import Uses
from hloopt.codegen.types import register_type
from hloopt.types import DType, dtype

__all__ = [
    "F32",
    "F64",
    "as_signed",
    "as_unsigned",
    "computed",
    "narrow",
    "own_bits",
    "part",
    "suffix",
    "unsigned_type",
    "widen",
    "wrapped",
]

F32 = dtype("f32")
F64 = dtype("f64")


def unsigned_type(kind: DType) -> str:
    """The unsigned C type in which an integer type computes: as wide as it is, at least as ``int``."""
    return "unsigned long long" if kind.bits > 32 else "unsigned"


def suffix(kind: DType) -> str:
    """What is behind the digits of an unsigned number of that type."""
    return "ull" if kind.bits > 32 else "u"


def wrapped(expr: str, kind: DType, uses: Uses) -> str:
    """An integer expression, as wide as ``unsigned_type`` or int, modulo the width of a type."""
    if kind.bits < 8:
        sign = "signed" if kind.kind == "signed" else "unsigned"
        return uses.call(f"wrap_{sign}<{kind.bits}>", expr)
    return f"({register_type(kind)})({expr})"


def as_unsigned(expr: str, kind: DType) -> str:
    """The value as ``unsigned_type``: sign-extended, which is the same modulo the type's width."""
    return expr if register_type(kind) == unsigned_type(kind) else f"({unsigned_type(kind)}){expr}"


def own_bits(expr: str, kind: DType) -> str:
    """The element's own bits as ``unsigned_type``, zeros above."""
    if kind.kind == "unsigned" or kind.bits >= 32:
        return as_unsigned(expr, kind)
    if kind.bits < 8:
        return f"((unsigned){expr} & {(1 << kind.bits) - 1}u)"
    return f"(unsigned)(unsigned {'char' if kind.bits == 8 else 'short'}){expr}"


def as_signed(expr: str, kind: DType, uses: Uses) -> str:
    """The bits of an unsigned element as a signed number, its uppermost bit the sign."""
    if kind.bits < 8:
        return uses.call(f"wrap_signed<{kind.bits}>", f"(int){expr}")
    names = {8: "signed char", 16: "short", 32: "int", 64: "long long"}
    return f"({names[kind.bits]}){expr}"


def widen(expr: str, kind: DType, uses: Uses) -> str:
    """A real float as its compute type, a C float or double."""
    return uses.call(f"widen_{kind.name}", expr) if kind.is_narrow_float else expr


def narrow(expr: str, kind: DType, uses: Uses) -> str:
    """A C float or double, in the compute type, rounded to a type."""
    return uses.call(f"round_{kind.name}", expr) if kind.is_narrow_float else expr


def computed(
    kind: DType, operands: tuple[str, ...], uses: Uses, function: Callable[..., str]
) -> str:
    """``function`` of the operands in the compute type, rounded back."""
    return narrow(function(*(widen(operand, kind, uses) for operand in operands)), kind, uses)


def part(kind: DType) -> DType:
    """The type of the parts of a complex type."""
    return F32 if kind.name == "c64" else F64
