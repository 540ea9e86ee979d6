"""The simplify pass: rules as data, a file per subject."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.ir import Module
from hloopt.ir.walk import open_computations
from hloopt.rewrite import Pass, PassLog, RuleSet, apply_rules
from hloopt.simplify import (
    arithmetic,
    bitcast,
    boolean,
    bounds,
    broadcast,
    choices,
    collective,
    compare,
    comparisons,
    complexes,
    concatenate,
    constants,
    control,
    conversion,
    convolution,
    dot,
    dynamic_index,
    dynamic_slice,
    dynamic_update,
    factors,
    gather,
    integers,
    intervals,
    pad,
    powers,
    products,
    quotients,
    reduce,
    reduce_moves,
    reduce_pairs,
    reduce_window,
    reshape,
    reverse,
    scatter,
    select,
    signs,
    sizes,
    slice_pieces,
    slices,
    sort,
    transpose,
    tuples,
    updates,
)

__all__ = ["RULES", "Simplify"]

RULES = RuleSet(
    (
        *arithmetic.RULES,
        *products.RULES,
        *signs.RULES,
        *quotients.RULES,
        *powers.RULES,
        *integers.RULES,
        *complexes.RULES,
        *boolean.RULES,
        *compare.RULES,
        *comparisons.RULES,
        *intervals.RULES,
        *select.RULES,
        *choices.RULES,
        *bounds.RULES,
        *updates.RULES,
        *factors.RULES,
        *conversion.RULES,
        *bitcast.RULES,
        *constants.RULES,
        *broadcast.RULES,
        *reshape.RULES,
        *transpose.RULES,
        *reverse.RULES,
        *slices.RULES,
        *slice_pieces.RULES,
        *dynamic_index.RULES,
        *dynamic_slice.RULES,
        *dynamic_update.RULES,
        *pad.RULES,
        *concatenate.RULES,
        *reduce.RULES,
        *reduce_moves.RULES,
        *reduce_pairs.RULES,
        *reduce_window.RULES,
        *gather.RULES,
        *scatter.RULES,
        *sort.RULES,
        *dot.RULES,
        *convolution.RULES,
        *collective.RULES,
        *control.RULES,
        *tuples.RULES,
        *sizes.RULES,
    )
)


@dataclass(frozen=True)
class Simplify(Pass):
    """Apply algebraic rules until none matches; results stay the same to the last bit.

    Bodies of fusions are left alone (what is in a fusion was decided with the code as it is), and so is
    what an async-start wraps.

    fast_math        whether to add what XLA does by default: signs of zero and the last bits may change,
                     and what overflows where factors and terms are regrouped
    floats_are_real  whether floats obey the laws of real numbers, as with XLA's option of that name:
                     x * 0 and x - x are 0, of infinities and NaN as well; includes fast_math
    own              false: only what XLA's simplifier does for GPUs (hloopt passes --xla-rules)
    disable          rules to leave out, by their equations: simplify{disable=["A + 0 => A"]}
    """

    example: ClassVar[str] = """HloModule example

ENTRY main {
  x = f32[4] parameter(0)
  one = f32[] constant(1)
  ones = f32[4] broadcast(one), dimensions={}
  y = f32[4] multiply(ones, x)
  a = f32[4] negate(y)
  b = f32[4] negate(a)
  ROOT r = f32[4] exponential(b)
}
"""
    rules: ClassVar[Mapping[str, bool]] = {
        rule.name: rule.fast_math or rule.floats_are_real for rule in RULES.rules
    }

    fast_math: bool = False
    floats_are_real: bool = False
    own: bool = True
    disable: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._rules()

    def run(self, module: Module, log: PassLog) -> bool:
        """Apply the rules to every computation that is no body of a fusion or asynchronous call."""
        rules = self._rules()
        changed = False
        for computation in open_computations(module):
            changed |= apply_rules(
                computation,
                rules,
                log,
                fast_math=self.fast_math or self.floats_are_real,
                floats_are_real=self.floats_are_real,
            )
        return changed

    def _rules(self) -> RuleSet:
        fast = self.fast_math or self.floats_are_real
        return _rules(self.disable, fast, self.floats_are_real, self.own)


@lru_cache(maxsize=16)
def _rules(disable: tuple[str, ...], fast_math: bool, floats_are_real: bool, own: bool) -> RuleSet:
    if not own:
        from hloopt.simplify.xla import own_rules

        disable = (*disable, *own_rules(rule.name for rule in RULES.rules))
    return RULES.without(disable, fast_math, floats_are_real)
