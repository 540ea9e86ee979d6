"""Tuples that are taken apart and put together again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.ir import Module
from hloopt.ir.walk import open_computations
from hloopt.passes.simplify.tuples import RULES
from hloopt.rewrite import Pass, PassLog, RuleSet, apply_rules

__all__ = ["TupleSimplifier"]

_RULES = RuleSet(RULES)


@dataclass(frozen=True)
class TupleSimplifier(Pass):
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

    rules: ClassVar[Mapping[str, bool]] = {rule.name: rule.fast_math for rule in RULES}

    def run(self, module: Module, log: PassLog) -> bool:
        """Apply the tuple rules of ``simplify`` where ``simplify`` does."""
        changed = False
        for computation in open_computations(module):
            changed |= apply_rules(computation, _RULES, log)
        return changed
