"""Stochastic rounding by comparing with the fraction."""

from __future__ import annotations

from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.passes.expand.expander import Expander
from hloopt.passes.expand.writer import Term, Writer
from hloopt.types import DType

__all__ = ["StochasticConvertExpander"]


@dataclass(frozen=True)
class StochasticConvertExpander(Expander):
    """Write ``stochastic-convert(x, random)`` as arithmetic, to the same integers.

    1. whole = floor(|x|); threshold = (|x| - whole) times 2 to the bits of ``random``, which is exact.
    2. The size is whole, one more where random < threshold; it has the sign of x.
    3. Outside the range of the result type, and NaN: what ``convert`` gives.

    Floats narrower than f32 are widened first, which is exact.
    """

    opcodes: ClassVar[frozenset[str]] = frozenset({"stochastic-convert"})
    example: ClassVar[str] = """\
HloModule rounding

ENTRY main {
  x = f32[8]{0} parameter(0)
  random = u32[8]{0} parameter(1)
  ROOT y = s8[8]{0} stochastic-convert(x, random)
}
"""

    def expand(self, instruction: Instruction, write: Writer) -> Term:
        """Round away from zero as often as the fraction says."""
        x, random = (write.term(operand) for operand in instruction.operands)
        kind = instruction.array.dtype
        x = x.wide()
        size = x.unary("abs")
        whole = size.unary("floor")
        threshold = ((size - whole) * 2.0**random.dtype.bits).convert(random.dtype)
        grown = whole.convert(kind) + (random < threshold).convert(kind)
        signed = (x < 0).select(-grown, grown)
        least, greatest = _bounds(kind)
        beyond = (x >= greatest) | (x <= least) | x.differs(x)
        return beyond.select(x.convert(kind), signed)


def _bounds(kind: DType) -> tuple[float, float]:
    """The least and the greatest number, as the nearest floats: what lies between is an integer already."""
    return -(2.0 ** (kind.bits - 1)), float((1 << (kind.bits - 1)) - 1)
