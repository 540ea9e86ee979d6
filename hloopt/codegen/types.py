"""C types of HLO's element types, in registers and in memory.

Elements narrower than a byte are packed in memory, first element lowest, and have a byte of their own in
registers: a signed one sign-extended, all others with zeros above.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hloopt.kernel_ir.types import (
    BOOL,
    BYTE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    SBYTE,
    SHORT,
    UINT,
    ULONG,
    USHORT,
    Type,
    struct,
)
from hloopt.types import ArrayShape, DType

__all__ = [
    "device_problem",
    "elements_per_byte",
    "is_packed",
    "is_struct",
    "register_type",
    "storage_type",
    "stored_elements",
]

_TYPES: Final[Mapping[str, Type]] = {
    "pred": BOOL,
    **dict.fromkeys(("s1", "s2", "s4", "s8"), SBYTE),
    "s16": SHORT,
    "s32": INT,
    "s64": LONG,
    **dict.fromkeys(("u1", "u2", "u4", "u8"), BYTE),
    "u16": USHORT,
    "u32": UINT,
    "u64": ULONG,
    "f32": FLOAT,
    "f64": DOUBLE,
    **{
        name: struct(name)
        for name in (
            "f16",
            "bf16",
            "c64",
            "c128",
            "f8e5m2",
            "f8e4m3",
            "f8e4m3fn",
            "f8e4m3b11fnuz",
            "f8e3m4",
            "f8e5m2fnuz",
            "f8e4m3fnuz",
            "f8e8m0fnu",
            "f4e2m1fn",
        )
    },
}


def device_problem(dtype: DType) -> str:
    """Why an element type has no form on a device; empty when it has one."""
    if dtype.name in _TYPES:
        return ""
    if dtype.is_array:
        return (
            f"{dtype.name} elements are {dtype.bits} bits wide, which have no packed form in memory"
        )
    return f"{dtype.name} has no elements"


def register_type(dtype: DType) -> Type:
    """The type of a value; raises ``ValueError`` where ``device_problem`` says something."""
    if (found := _TYPES.get(dtype.name)) is not None:
        return found
    raise ValueError(device_problem(dtype))


def storage_type(dtype: DType) -> Type:
    """The type of what a pointer to elements points to: bytes for packed ones."""
    return BYTE if is_packed(dtype) else register_type(dtype)


def is_packed(dtype: DType) -> bool:
    """Whether several elements share a byte in memory."""
    return dtype.bits < 8


def elements_per_byte(dtype: DType) -> int:
    """How many elements share a byte: 8, 4 or 2; 1 for types of a byte and wider."""
    return 8 // dtype.bits if is_packed(dtype) else 1


def stored_elements(shape: ArrayShape) -> int:
    """How many elements of the storage type an array has in memory."""
    return -(-shape.elements // elements_per_byte(shape.dtype))


def is_struct(dtype: DType) -> bool:
    """Whether the register type is a struct of the device library, named as the element type."""
    return register_type(dtype).kind == "struct"
