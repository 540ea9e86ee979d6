"""Tuples made of all elements of a tuple, and elements of tuples just made."""

from __future__ import annotations

from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.rewrite import RulePass, RuleSet
from hloopt.simplify.rules.control_flow import TUPLE_RULES

__all__ = ["TupleSimplifier"]


@dataclass(frozen=True)
class TupleSimplifier(RulePass):
    """Take elements straight from where they were put into a tuple, and whole tuples from theirs."""

    example: ClassVar[str] = """HloModule example

ENTRY main {
  x = f32[4] parameter(0)
  y = s32[2] parameter(1)
  t = (f32[4], s32[2]) tuple(x, y)
  a = f32[4] get-tuple-element(t), index=0
  ROOT r = f32[4] negate(a)
}
"""

    rule_set: ClassVar[RuleSet] = RuleSet(TUPLE_RULES)
