"""The total order of floats by integers."""

from __future__ import annotations

from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.passes.expand.expander import Expander
from hloopt.passes.expand.writer import Term, Writer

__all__ = ["ComparisonExpander"]

_ORDERED_BY_CODES = frozenset({"f16", "bf16", "f32", "f64", "f8e5m2", "f8e4m3", "f8e3m4"})


@dataclass(frozen=True)
class ComparisonExpander(Expander):
    """Compare floats in their total order (``type=TOTALORDER``) as signed integers.

    The bits of a float that is not negative are in order as they are; those of a negative one are so
    with all but the sign turned over: -NaN < -inf < ... < -0 < +0 < ... < inf < NaN.  Types whose codes
    are not those of IEEE 754 (one NaN, no sign) are widened to f32 first, which is exact.
    """

    opcodes: ClassVar[frozenset[str]] = frozenset({"compare"})
    example: ClassVar[str] = """\
HloModule order

ENTRY main {
  x = f32[8]{0} parameter(0)
  y = f32[8]{0} parameter(1)
  ROOT less = pred[8]{0} compare(x, y), direction=LT, type=TOTALORDER
}
"""

    def is_candidate(self, instruction: Instruction) -> bool:
        """Comparisons in the total order."""
        return (
            instruction.opcode == "compare" and instruction.attributes.get("type") == "TOTALORDER"
        )

    def expand(self, instruction: Instruction, write: Writer) -> Term:
        """Compare the codes in order."""
        x, y = (_code(write.term(operand)) for operand in instruction.operands)
        return x.compare(instruction.direction, y)


def _code(x: Term) -> Term:
    """A signed integer that is in order as the float is in its total order."""
    kept = x if x.dtype.name in _ORDERED_BY_CODES else x.convert("f32")
    bits = kept.bits_as(f"s{kept.dtype.bits}")
    greatest = (1 << (kept.dtype.bits - 1)) - 1
    return (bits < 0).select(bits ^ greatest, bits)
