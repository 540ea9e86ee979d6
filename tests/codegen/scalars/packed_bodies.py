"""Loop bodies that are no elementwise op: packed elements, and the block functions of random numbers."""

from __future__ import annotations

from hloopt.codegen.device import Uses
from hloopt.codegen.scalars import load, pack
from hloopt.codegen.types import elements_per_byte, is_packed
from hloopt.kernel_ir.expressions import Array, Var
from hloopt.kernel_ir.printer import expression_text
from hloopt.kernel_ir.types import BYTE, LONG, UINT, Type, struct
from hloopt.types import DTYPES

__all__ = ["PACKED", "packed_bodies"]

PACKED = tuple(
    kind for kind in DTYPES.values() if kind.is_array and is_packed(kind) and kind.bits != 6
)


def packed_bodies(uses: Uses) -> dict[str, str]:
    """By name: ``unpack_s4`` byte array to elements, ``pack_s4`` elements to bytes, random blocks."""
    bodies = {}
    n = Var("n", LONG)
    for kind in PACKED:
        element, per_byte = uses.type(kind), elements_per_byte(kind)
        taken = load(_given(BYTE), n, kind, uses)
        bodies[f"unpack_{kind.name}"] = (
            f"    (({element}*)arrays[1])[n] = {expression_text(taken)};\n"
        )
        whole = pack([_given(element)[n * per_byte + i] for i in range(per_byte)], kind, uses)
        bodies[f"pack_{kind.name}"] = (
            f"    ((unsigned char*)arrays[1])[n] = {expression_text(whole)};\n"
        )
    words = [_given(UINT)[n * 6 + i] for i in range(6)]
    for name, size in (("threefry2x32", 2), ("philox4x32", 4)):
        block = uses.call(name, *words[: size + 2], type=struct(f"Words{size}"))
        stores = "".join(
            f"    ((unsigned*)arrays[1])[n * 4 + {i}] = block.word[{i}];\n" for i in range(size)
        )
        bodies[name] = f"    auto block = {expression_text(block)};\n{stores}"
    return bodies


def _given(element: Type) -> Array:
    return Array(f"(({element} const*)arrays[0])", element, (), "global")
