"""Reading and writing one element."""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.codegen.device import Uses
from hloopt.codegen.types import elements_per_byte, is_packed, is_struct
from hloopt.types import DType

__all__ = ["load", "pack", "store", "unpack"]


def load(pointer: str, index: str, dtype: DType, uses: Uses) -> str:
    """The element at ``index`` of the elements behind a pointer, as an expression.

    Packed elements are taken out of their byte; the index counts elements.
    """
    uses.type(dtype)
    if not is_packed(dtype):
        place = f"{pointer}[{index}]"
        if not (uses.native and is_struct(dtype)):
            return place
        members = (f"{place}.{member}" for member in _members(dtype))
        return f"{uses.type(dtype)}{{{', '.join(members)}}}"
    per_byte = elements_per_byte(dtype)
    return unpack(f"{pointer}[({index}) / {per_byte}]", f"(unsigned)({index})", dtype, uses)


def unpack(byte: str, position: str, dtype: DType, uses: Uses) -> str:
    """Element ``position`` (modulo the elements of a byte) of a packed byte."""
    code = uses.call(f"unpacked<{dtype.bits}>", byte, position)
    if dtype.kind == "signed":
        return uses.call(f"wrap_signed<{dtype.bits}>", f"(int){code}")
    if dtype.kind == "unsigned":
        return f"(unsigned char){code}"
    return f"{uses.type(dtype)}{{(unsigned char){code}}}"


def store(pointer: str, index: str, value: str, dtype: DType, uses: Uses) -> str:
    """The statement that writes one element; raises ``ValueError`` for packed types.

    Bytes of packed elements are written whole: see ``pack``.
    """
    if is_packed(dtype):
        raise ValueError(f"an element of {dtype.name} shares its byte; write packed bytes whole")
    uses.type(dtype)
    place = f"{pointer}[{index}]"
    if not (uses.native and is_struct(dtype)):
        return f"{place} = {value};"
    return " ".join(f"{place}.{member} = ({value}).{member};" for member in _members(dtype))


def _members(dtype: DType) -> tuple[str, ...]:
    return ("re", "im") if dtype.is_complex else ("bits",)


def pack(values: Sequence[str], dtype: DType, uses: Uses) -> str:
    """The byte of all its elements, first element lowest, as an expression of ``unsigned char``.

    Missing elements at the end leave their bits 0.  Raises ``ValueError`` for types that are not packed,
    for no values and for too many.
    """
    if not is_packed(dtype) or not 0 < len(values) <= elements_per_byte(dtype):
        raise ValueError(f"{len(values)} elements of {dtype.name} in a byte")
    uses.type(dtype)
    mask = (1 << dtype.bits) - 1
    parts = []
    for position, value in enumerate(values):
        code = f"({value}).bits" if dtype.is_float else value
        lifted = f"((unsigned){code} & {mask}u)"
        parts.append(f"{lifted} << {position * dtype.bits}" if position else lifted)
    return f"(unsigned char)({' | '.join(parts)})"
