"""Types of the kernel IR: scalars, structs of the device library, vectors of neighbours in memory."""

from __future__ import annotations

from typing import Final

from hloopt.dataclass import dataclass

__all__ = [
    "BOOL",
    "BYTE",
    "DOUBLE",
    "FLOAT",
    "INT",
    "LONG",
    "SBYTE",
    "SHORT",
    "UINT",
    "ULONG",
    "USHORT",
    "VOID",
    "Type",
    "common_type",
    "pointer",
    "struct",
    "vector",
]


@dataclass(frozen=True, slots=True)
class Type:
    """A type of values.

    name     in C
    kind     bool, signed, unsigned, float, struct, vector, pointer or void
    bits     of a scalar or a struct; 0 of others
    element  of a vector
    lanes    how many elements a vector has
    """

    name: str
    kind: str
    bits: int = 0
    element: Type | None = None
    lanes: int = 0

    def __str__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def is_integer(self) -> bool:
        """Whether it counts: bool is not among them."""
        return self.kind in ("signed", "unsigned")

    @property
    def is_number(self) -> bool:
        """Whether C's arithmetic takes it, a bool included."""
        return self.is_integer or self.kind in ("float", "bool")


BOOL: Final = Type("bool", "bool", 8)
BYTE: Final = Type("unsigned char", "unsigned", 8)
SBYTE: Final = Type("signed char", "signed", 8)
SHORT: Final = Type("short", "signed", 16)
INT: Final = Type("int", "signed", 32)
UINT: Final = Type("unsigned", "unsigned", 32)
LONG: Final = Type("long long", "signed", 64)
USHORT: Final = Type("unsigned short", "unsigned", 16)
ULONG: Final = Type("unsigned long long", "unsigned", 64)
FLOAT: Final = Type("float", "float", 32)
DOUBLE: Final = Type("double", "float", 64)
VOID: Final = Type("void", "void")


def struct(name: str, bits: int = 0) -> Type:
    """A struct of the device library, or of a header; 0 bits where its size does not matter."""
    return Type(name, "struct", bits)


def vector(element: Type, lanes: int) -> Type:
    """``lanes`` neighbours that are read or written by one access."""
    return Type(f"Vector<{element}, {lanes}>", "vector", 0, element, lanes)


def pointer(element: Type, *, is_read: bool = False) -> Type:
    """Where elements lie; ``is_read`` says that nothing is written through it."""
    return Type(f"{'const ' * is_read}{element}*", "pointer")


def common_type(left: Type, right: Type) -> Type:
    """What C computes in when it joins two numbers: its usual arithmetic conversions (C17, 6.3.1.8)."""
    if not (left.is_number and right.is_number):
        return left
    floats = [one for one in (left, right) if one.kind == "float"]
    if floats:
        return max(floats, key=lambda one: one.bits)
    wide = max(left.bits, right.bits, 32)
    is_unsigned = any(one.kind == "unsigned" and one.bits == wide for one in (left, right))
    return {(32, False): INT, (32, True): UINT, (64, False): LONG, (64, True): ULONG}[
        wide, is_unsigned
    ]
