"""Which narrow type has the values of an instruction exactly, by the ops in front of it that keep values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from hloopt.ir import Instruction
from hloopt.ops.traits import REARRANGING
from hloopt.types import DType

__all__ = ["EXACT", "exact_dtype", "keeps_values"]

_SMALL_FLOATS: Final = frozenset({
    "f8e5m2", "f8e4m3", "f8e4m3fn", "f8e4m3b11fnuz", "f8e3m4", "f8e5m2fnuz", "f8e4m3fnuz", "f4e2m1fn",
})  # fmt: skip
EXACT: Final[Mapping[str, frozenset[str]]] = {
    "f16": _SMALL_FLOATS | {"f16"},
    "bf16": _SMALL_FLOATS | {"bf16"},
    "s8": frozenset({"s2", "s4", "s8"}),
}
"""The types whose numbers the operands of a matrix unit have exactly."""

_KEEPING: Final = REARRANGING - {"bitcast"} | {"convert"}


def exact_dtype(instruction: Instruction, is_inside: Callable[[Instruction], bool]) -> DType:
    """The narrowest type that has the values of an instruction, as the ops say of which ``is_inside`` holds."""
    found: DType = instruction.array.dtype
    while (
        instruction.opcode in _KEEPING
        and is_inside(instruction)
        and keeps_values(instruction.operands[0].array.dtype, instruction.array.dtype)
    ):
        instruction = instruction.operands[0]
        found = instruction.array.dtype
    return found


def keeps_values(source: DType, target: DType) -> bool:
    """Whether every number of one type is one of another."""
    if source is target:
        return True
    if source.is_float:
        return target.name == "f32" or source.name in EXACT.get(target.name, ())
    return source.kind == target.kind == "signed" and source.bits <= target.bits
