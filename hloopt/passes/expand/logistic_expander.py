"""The logistic function by the exponential."""

from __future__ import annotations

from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.passes.expand.expander import Expander
from hloopt.passes.expand.writer import Term, Writer

__all__ = ["LogisticExpander"]


@dataclass(frozen=True)
class LogisticExpander(Expander):
    """Write ``logistic(x)`` as ``1 / (1 + exp(-x))``.

    Equal within rounding: a few units in the last place; a result below the smallest normal number may
    be 0, as ``exp(-x)`` overflows there.  Floats narrower than f32 are computed in f32 and rounded once, where
    XLA computes in the type itself and so loses f16 below -11 and f8 below -7.  An op that sets
    ``result_accuracy`` stays.
    """

    opcodes: ClassVar[frozenset[str]] = frozenset({"logistic"})
    example: ClassVar[str] = """\
HloModule sigmoid

ENTRY main {
  x = f32[8]{0} parameter(0)
  ROOT y = f32[8]{0} logistic(x)
}
"""

    def obstacle(self, instruction: Instruction) -> str | None:
        """An accuracy that the op sets."""
        if "result_accuracy" in instruction.attributes:
            return "it sets its accuracy with result_accuracy"
        return None

    def expand(self, instruction: Instruction, write: Writer) -> Term:
        """One over one plus the exponential."""
        x = write.term(instruction.operands[0])
        power = (-x.wide()).unary("exponential")
        return (1 / (power + 1)).convert(x.dtype)
