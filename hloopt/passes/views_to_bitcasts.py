"""Ops that move no byte written as what they are: other names for a buffer."""

from __future__ import annotations

from typing import Any, ClassVar

from hloopt.analysis.layout import is_descending, reshape_is_bitcast, transpose_is_bitcast
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module, build, edit
from hloopt.ir.walk import open_computations, top_level_computations
from hloopt.rewrite import Pass, PassLog
from hloopt.types import ArrayShape

__all__ = ["ViewsToBitcasts"]

_VIEWS = ("reshape", "transpose", "bitcast-convert")


@dataclass(frozen=True)
class ViewsToBitcasts(Pass):
    """Write reshapes, transposes and conversions of bits that move no byte as ``bitcast``.

    1. A reshape of row-major arrays; dimensions of size 1 have no place in the order.
    2. A transpose that only renames dimensions, because the layouts say so.
    3. A bitcast-convert of row-major arrays, also between types of unequal width: the lowest bits come first
       in memory as they do in HLO.

    Buffer assignment then sees which values are one buffer (``analysis/aliasing.py``).  Bodies of
    fusions stay: what is inside has no buffer.  Left alone: tiled layouts, bounded dynamic dimensions,
    complex numbers and pred in 3.
    """

    keeps_schedule: ClassVar[bool] = True
    settles: ClassVar[bool] = True
    example: ClassVar[str] = """HloModule views

ENTRY main {
  p = f32[2,3]{1,0} parameter(0)
  a = f32[6]{0} reshape(p)
  b = u32[6]{0} bitcast-convert(a)
  q = f32[3,2]{0,1} parameter(1)
  c = f32[2,3]{1,0} transpose(q), dimensions={1,0}
  d = f32[2,3]{1,0} negate(c)
  ROOT r = (u32[6]{0}, f32[2,3]{1,0}) tuple(b, d)
}
"""

    def run(self, module: Module, log: PassLog) -> bool:
        """Look at each instruction that is run by itself."""
        changed = False
        for computation in open_computations(module, top_level_computations(module)):
            for instruction in computation:
                if instruction.opcode in _VIEWS and _moves_nothing(instruction):
                    if not log.allows():
                        return changed
                    _replace(instruction, log)
                    changed = True
        return changed


def _moves_nothing(instruction: Instruction) -> bool:
    source, result = instruction.operands[0].array, instruction.array
    if not (_is_plain(source) and _is_plain(result)):
        return False
    if instruction.opcode == "reshape":
        return reshape_is_bitcast(instruction)
    if instruction.opcode == "transpose":
        return transpose_is_bitcast(instruction)
    return (
        _has_free_bits(source)
        and _has_free_bits(result)
        and source.byte_size == result.byte_size
        and is_descending(source)
        and is_descending(result)
    )


def _is_plain(shape: ArrayShape) -> bool:
    return not shape.is_dynamic and (shape.layout is None or not shape.layout.suffix)


def _has_free_bits(shape: ArrayShape) -> bool:
    """Whether any bits are a value, and elements lie in whole bytes or fill them."""
    bits = shape.dtype.bits
    return (
        not shape.dtype.is_pred and not shape.dtype.is_complex and (bits % 8 == 0 or 8 % bits == 0)
    )


def _replace(instruction: Instruction, log: PassLog) -> None:
    log.hit(f"{instruction.opcode} => bitcast", instruction)
    kept: dict[str, Any] = {
        name: instruction.attributes[name]
        for name in ("sharding", "frontend_attributes")
        if name in instruction.attributes
    }
    bitcast = build.make(
        instruction, "bitcast", instruction.operands, kept, shape=instruction.shape, name="bitcast"
    )
    edit.replace_instruction(instruction, bitcast)
