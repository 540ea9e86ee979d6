"""The simplify pass; its rules are data in ``rules/``, a file for the ops at their root."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.ir import Module
from hloopt.ir.walk import open_computations
from hloopt.rewrite import Pass, PassLog, RuleSet, apply_rules
from hloopt.simplify.rules import (
    arg_max,
    arithmetic,
    bitcast_copy,
    boolean,
    broadcast,
    collective,
    comparison,
    comparison_pairs,
    concatenate,
    constant,
    control_flow,
    convert,
    convolution,
    divide_power,
    dot,
    dynamic_slice,
    dynamic_update_slice,
    gather_rows,
    gather_scatter,
    integer,
    minimum_maximum,
    pad,
    reduce,
    reduce_of_moved,
    reduce_window,
    reshape,
    reverse,
    select,
    slice,
    slice_of_pieces,
    sort,
    start_indices,
    transpose,
    unary,
)

__all__ = ["RULES", "Simplify"]

RULES = RuleSet(
    (
        *arithmetic.RULES,
        *unary.RULES,
        *divide_power.RULES,
        *integer.RULES,
        *boolean.RULES,
        *comparison.RULES,
        *comparison_pairs.RULES,
        *select.RULES,
        *minimum_maximum.RULES,
        *dynamic_update_slice.SUMS_OF_UPDATES,
        *convolution.FACTORS,
        *convert.RULES,
        *bitcast_copy.RULES,
        *constant.RULES,
        *broadcast.RULES,
        *sort.RULES,
        *reshape.RULES,
        *transpose.RULES,
        *reverse.RULES,
        *slice.RULES,
        *slice_of_pieces.RULES,
        *start_indices.RULES,
        *dynamic_slice.RULES,
        *dynamic_update_slice.RULES,
        *pad.RULES,
        *concatenate.RULES,
        *reduce.RULES,
        *reduce_of_moved.RULES,
        *arg_max.RULES,
        *reduce_window.RULES,
        *gather_rows.RULES,
        *gather_scatter.RULES,
        *dot.RULES,
        *convolution.RULES,
        *collective.RULES,
        *control_flow.RULES,
        *control_flow.TUPLE_RULES,
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

    settles: ClassVar[bool] = True
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
        """Apply the rules to every computation that is not the body of a fusion or asynchronous call."""
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
