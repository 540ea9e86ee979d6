"""Reading and writing one element."""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.codegen.device import Uses
from hloopt.codegen.scalars.forms import code, of_code, parts, unsigned
from hloopt.codegen.types import elements_per_byte, is_packed, is_struct
from hloopt.kernel_ir.expressions import Array, Cast, Expr, Make, Member, Operand, as_expr
from hloopt.kernel_ir.statements import Set
from hloopt.kernel_ir.types import BYTE, INT, UINT
from hloopt.types import DType

__all__ = ["load", "pack", "store", "unpack"]


def load(memory: Array, index: Operand, dtype: DType, uses: Uses) -> Expr:
    """The element at ``index`` of memory, as an expression.

    Packed elements are taken out of their byte; the index counts elements.
    """
    type, at = uses.type(dtype), as_expr(index)
    if not is_packed(dtype):
        place = memory[at]
        by_member = uses.native and is_struct(dtype)
        return Make(type, _members(place, dtype)) if by_member else place
    per_byte = elements_per_byte(dtype)
    return unpack(memory[at / per_byte], at, dtype, uses)


def unpack(byte: Operand, position: Operand, dtype: DType, uses: Uses) -> Expr:
    """Element ``position`` (modulo the elements of a byte) of a packed byte."""
    at = Cast(UINT, as_expr(position))
    type, bits = uses.type(dtype), uses.call(f"unpacked<{dtype.bits}>", byte, at, type=UINT)
    if dtype.kind == "signed":
        return uses.call(f"wrap_signed<{dtype.bits}>", bits.cast(INT), type=type)
    return bits.cast(BYTE) if dtype.kind == "unsigned" else of_code(bits, dtype, uses)


def store(memory: Array, index: Operand, value: Operand, dtype: DType, uses: Uses) -> list[Set]:
    """The statements that write one element; raises ``ValueError`` for packed types.

    Bytes of packed elements are written whole: see ``pack``.
    """
    if is_packed(dtype):
        raise ValueError(f"an element of {dtype.name} shares its byte; write packed bytes whole")
    uses.type(dtype)
    place, whole = memory[index], as_expr(value)
    if not (uses.native and is_struct(dtype)):
        return [Set(place, whole)]
    members = zip(_members(place, dtype), _members(whole, dtype), strict=True)
    return [Set(target, member) for target, member in members]


def _members(expr: Expr, dtype: DType) -> tuple[Member, ...]:
    return parts(expr, dtype) if dtype.is_complex else (code(expr, dtype),)


def pack(values: Sequence[Operand], dtype: DType, uses: Uses) -> Expr:
    """The byte of all its elements, first element lowest, as an expression of ``unsigned char``.

    Missing elements at the end leave their bits 0.  Raises ``ValueError`` for types that are not packed,
    for no values and for too many.
    """
    if not is_packed(dtype) or not 0 < len(values) <= elements_per_byte(dtype):
        raise ValueError(f"{len(values)} elements of {dtype.name} in a byte")
    uses.type(dtype)
    byte: Expr | None = None
    for position, value in enumerate(map(as_expr, values)):
        bits = code(value, dtype) if dtype.is_float else value
        part: Expr = bits.cast(UINT) & unsigned((1 << dtype.bits) - 1, dtype)
        if position:
            part = part << position * dtype.bits
        byte = part if byte is None else byte | part
    assert byte is not None
    return byte.cast(BYTE)
