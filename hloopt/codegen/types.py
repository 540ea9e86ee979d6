"""C types of HLO's element types, in registers and in memory.

Elements narrower than a byte are packed in memory, first element lowest, and have a byte of their own in
registers: a signed one sign-extended, all others with zeros above.
"""

from __future__ import annotations

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

_C_TYPES = {
    "pred": "bool",
    "s1": "signed char",
    "s2": "signed char",
    "s4": "signed char",
    "s8": "signed char",
    "s16": "short",
    "s32": "int",
    "s64": "long long",
    "u1": "unsigned char",
    "u2": "unsigned char",
    "u4": "unsigned char",
    "u8": "unsigned char",
    "u16": "unsigned short",
    "u32": "unsigned",
    "u64": "unsigned long long",
    "f32": "float",
    "f64": "double",
}

_STRUCTS = frozenset(
    {
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
    }
)


def device_problem(dtype: DType) -> str:
    """Why an element type has no form on a device; empty when it has one."""
    if dtype.name in _C_TYPES or dtype.name in _STRUCTS:
        return ""
    if dtype.is_array:
        return (
            f"{dtype.name} elements are {dtype.bits} bits wide, which have no packed form in memory"
        )
    return f"{dtype.name} has no elements"


def register_type(dtype: DType) -> str:
    """The C type of a value; raises ``ValueError`` where ``device_problem`` says something."""
    if dtype.name in _STRUCTS:
        return dtype.name
    if (name := _C_TYPES.get(dtype.name)) is not None:
        return name
    raise ValueError(device_problem(dtype))


def storage_type(dtype: DType) -> str:
    """The C type a pointer to elements points to: bytes for packed ones."""
    return "unsigned char" if is_packed(dtype) else register_type(dtype)


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
    return dtype.name in _STRUCTS
