"""Reading and writing one element."""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.codegen.device import Uses
from hloopt.codegen.types import elements_per_byte, is_packed, is_struct
from hloopt.kernel_ir.expressions import Array, Cast, Expr, Literal, Make, Member, Operand, as_expr
from hloopt.kernel_ir.statements import Set
from hloopt.kernel_ir.types import BYTE, DOUBLE, FLOAT, INT, UINT, USHORT, Type, named_type
from hloopt.types import DType

__all__ = ["load", "pack", "store", "unpack"]


def load(memory: Array, index: Operand, dtype: DType, uses: Uses) -> Expr:
    """The element at ``index`` of memory, as an expression.

    Packed elements are taken out of their byte; the index counts elements.
    """
    type = named_type(uses.type(dtype))
    at = as_expr(index)
    if not is_packed(dtype):
        place = memory[at]
        if not (uses.native and is_struct(dtype)):
            return place
        return Make(type, tuple(Member(place, name, part) for name, part in _members(dtype)))
    per_byte = elements_per_byte(dtype)
    return unpack(memory[at / per_byte], at, dtype, uses)


def unpack(byte: Operand, position: Operand, dtype: DType, uses: Uses) -> Expr:
    """Element ``position`` (modulo the elements of a byte) of a packed byte."""
    at = Cast(UINT, as_expr(position))
    code = uses.call(f"unpacked<{dtype.bits}>", byte, at, type=UINT)
    type = named_type(uses.type(dtype))
    if dtype.kind == "signed":
        return uses.call(f"wrap_signed<{dtype.bits}>", Cast(INT, code), type=type)
    if dtype.kind == "unsigned":
        return Cast(BYTE, code)
    return Make(type, (Cast(BYTE, code),))


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
    return [
        Set(Member(place, name, type), Member(whole, name, type)) for name, type in _members(dtype)
    ]


def _members(dtype: DType) -> tuple[tuple[str, Type], ...]:
    if dtype.is_complex:
        part = FLOAT if dtype.name == "c64" else DOUBLE
        return (("re", part), ("im", part))
    return (("bits", USHORT if dtype.bits == 16 else BYTE),)


def pack(values: Sequence[Operand], dtype: DType, uses: Uses) -> Expr:
    """The byte of all its elements, first element lowest, as an expression of ``unsigned char``.

    Missing elements at the end leave their bits 0.  Raises ``ValueError`` for types that are not packed,
    for no values and for too many.
    """
    if not is_packed(dtype) or not 0 < len(values) <= elements_per_byte(dtype):
        raise ValueError(f"{len(values)} elements of {dtype.name} in a byte")
    uses.type(dtype)
    mask = Literal(f"{(1 << dtype.bits) - 1}u", UINT, (1 << dtype.bits) - 1)
    byte: Expr | None = None
    for position, value in enumerate(map(as_expr, values)):
        code = Member(value, "bits", BYTE) if dtype.is_float else value
        part: Expr = Cast(UINT, code) & mask
        if position:
            part = part << position * dtype.bits
        byte = part if byte is None else byte | part
    assert byte is not None
    return Cast(BYTE, byte)
