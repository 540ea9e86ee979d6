"""Broadcasts moved behind what is computed with them."""

from __future__ import annotations

from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.rewrite import RulePass, RuleSet
from hloopt.simplify.rules.broadcast import SINKING

__all__ = ["BroadcastSinking"]


@dataclass(frozen=True)
class BroadcastSinking(RulePass):
    """Compute once what a broadcast would make many of, and broadcast the result.

    1. An elementwise op whose operands are all broadcasts, iotas or scalars is computed in the dimensions
       that some operand has, and broadcast in the others.
    2. Whole trees follow, from the leaves on: the broadcast behind one op is an operand of the next.
       An op with several users is computed once for all; the broadcast goes on behind each of them.
    3. Broadcasts that then follow each other become one.

    For n operands of m elements in place of a result of M, an op costs m instead of M.  These are rules of
    ``simplify``, which applies them as well; alone they leave everything else as it is.
    """

    rule_set: ClassVar[RuleSet] = RuleSet(SINKING)
    example: ClassVar[str] = """HloModule rows

ENTRY main {
  x = f32[64]{0} parameter(0)
  y = f32[64]{0} parameter(1)
  a = f32[64,1000]{1,0} broadcast(x), dimensions={0}
  b = f32[64,1000]{1,0} broadcast(y), dimensions={0}
  s = f32[64,1000]{1,0} add(a, b)
  e = f32[64,1000]{1,0} exponential(s)
  n = f32[64,1000]{1,0} negate(s)
  ROOT r = (f32[64,1000]{1,0}, f32[64,1000]{1,0}) tuple(e, n)
}
"""
