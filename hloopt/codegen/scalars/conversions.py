"""Expressions of ``convert`` between all element types, and of the same bits as another type."""

from __future__ import annotations

from hloopt.codegen.device import Uses
from hloopt.codegen.scalars.forms import F32, narrow, own_bits, part, unsigned_type, widen, wrapped
from hloopt.codegen.types import is_struct, register_type
from hloopt.types import DType

__all__ = ["convert", "reinterpret"]


# Here, and not after every op, the sign of a NaN is kept.
_KEEPS_NANS = frozenset({"f16", "bf16"})


def convert(expr: str, source: DType, target: DType, uses: Uses) -> str:
    """A value of ``source`` as ``target`` by the rules of the op ``convert``.

    Floats to integers truncate and saturate, NaN to 0; integers wrap; the rest rounds.  f64 becomes f16
    and bf16 by way of f32, narrower types at once; the real part stands for a complex number.
    ``expr`` is a name or a literal.
    """
    uses.type(target)
    if source is target:
        return expr
    if target.is_pred:
        return _truth(expr, source, uses)
    if source.is_complex:
        return _from_complex(expr, source, target, uses)
    if target.is_complex:
        real = convert(expr, source, part(target), uses)
        zero = "0.0f" if part(target) is F32 else "0.0"
        return f"{target.name}{{{real}, {zero}}}"
    if source.is_pred and target.bits >= 8 and not target.is_narrow_float:
        # Compilers know vectors of choices, not of truth values made numbers.
        return f"({register_type(target)})({expr} ? 1 : 0)"
    if target.is_integer:
        return _to_integer(expr, source, target, uses)
    if not target.is_narrow_float:
        value = widen(expr, source, uses)
        if register_type(target) == "float" and source.is_narrow_float:
            return value
        return f"({register_type(target)}){value}"
    if source.name == "f64" and target.bits < 16:
        return narrow(uses.call("round_to_odd", expr), target, uses)
    if not source.is_float:
        return narrow(f"(float){expr}", target, uses)
    value = f"(float){expr}" if source.name == "f64" else widen(expr, source, uses)
    if target.name in _KEEPS_NANS:
        return uses.call(f"convert_{target.name}", value)
    return narrow(value, target, uses)


def _truth(expr: str, source: DType, uses: Uses) -> str:
    if source.is_complex:
        zero = "0.0f" if source.name == "c64" else "0.0"
        return f"({expr}.re != {zero} || {expr}.im != {zero})"
    if source.is_integer:
        return f"({expr} != 0)"
    zero = "0.0" if source.name == "f64" else "0.0f"
    return f"({widen(expr, source, uses)} != {zero})"


def _from_complex(expr: str, source: DType, target: DType, uses: Uses) -> str:
    if target.is_complex:
        return uses.call("widen_c64" if target.name == "c128" else "round_c64", expr)
    return convert(f"{expr}.re", part(source), target, uses)


def _to_integer(expr: str, source: DType, target: DType, uses: Uses) -> str:
    name = register_type(target)
    if source.is_float:
        sign = "signed" if target.kind == "signed" else "unsigned"
        return uses.call(f"saturate_{sign}<{name}, {target.bits}>", widen(expr, source, uses))
    if target.bits < 8:
        return wrapped(f"({'int' if target.kind == 'signed' else 'unsigned'}){expr}", target, uses)
    return f"({name}){expr}"


def reinterpret(expr: str, source: DType, target: DType, uses: Uses) -> str:
    """The bits of a value of ``source`` as a value of ``target``, which is as wide.

    Raises ``ValueError`` where the widths differ.  ``expr`` is a name or a literal.
    """
    uses.type(target)
    if source is target:
        return expr
    if source.bits != target.bits:
        raise ValueError(f"{source.name} and {target.name} have different widths")
    return _of_bits(_bits(expr, source, uses), target, uses)


def _bits(expr: str, source: DType, uses: Uses) -> str:
    """The bits as an unsigned number as wide as the type, at least as ``unsigned``."""
    if source.is_complex:
        return uses.call("bits_of_c64", expr)
    if source.name == "f32":
        return f"__float_as_uint({expr})"
    if source.name == "f64":
        return f"(unsigned long long)__double_as_longlong({expr})"
    if source.is_pred:
        return f"(unsigned){expr}"
    if is_struct(source):
        return f"(unsigned){expr}.bits"
    return own_bits(expr, source)


def _of_bits(bits: str, target: DType, uses: Uses) -> str:
    name = register_type(target)
    if target.is_complex:
        return uses.call("c64_of_bits", bits)
    if target.name == "f32":
        return f"__uint_as_float({bits})"
    if target.name == "f64":
        return f"__longlong_as_double((long long)({bits}))"
    if target.is_pred:
        return f"({bits} != 0u)"
    if is_struct(target):
        return f"{name}{{(unsigned {'short' if target.bits == 16 else 'char'})({bits})}}"
    if name == unsigned_type(target):
        return bits
    return wrapped(bits, target, uses)
