"""Reductions cut and regrouped so that one block of a kernel finishes each, and which may be regrouped."""

from __future__ import annotations

from collections.abc import Iterator

from hloopt.analysis.layout import is_descending
from hloopt.interpret import EVALUATORS
from hloopt.interpret.interpreter import Interpreter
from hloopt.interpret.pairs import choice_of
from hloopt.interpret.regions import is_associative
from hloopt.ir import Instruction, Module
from hloopt.ops.traits import IDEMPOTENT
from hloopt.rewrite.regions import is_exact, is_identity, named_combiner
from hloopt.rewrite.site import sites

__all__ = ["plain_reduces", "regrouping_obstacle"]


def plain_reduces(module: Module) -> Iterator[Instruction]:
    """The reduces of row-major arrays of known size, over at least one dimension, that a pass may replace."""
    for reduce in sites(module, "reduce"):
        inputs = reduce.fold_inputs
        if reduce.dimensions and all(is_descending(one.array) for one in inputs):
            yield reduce


def regrouping_obstacle(reduce: Instruction, fast_math: bool) -> str:
    """Why partial results cannot be reduced in turn, each from the initial value on; empty if they can."""
    body = reduce.to_apply
    if len(reduce.operands) > 2:
        assert body.module is not None, "of a module"
        context = Interpreter(body.module, EVALUATORS)
        choice = choice_of(body, context)
        if choice is None or choice.ties == "last" or not is_associative(body, context):
            return "the region is not known to choose alike in any grouping"
        return ""
    opcode = named_combiner(body)
    if not opcode:
        return "the region is not one associative op of its two parameters"
    shape = reduce.array
    if not is_exact(opcode, shape) and not fast_math:
        return f"{opcode} of {shape.dtype} rounds by its order, which needs fast_math"
    if opcode not in IDEMPOTENT and not is_identity(opcode, reduce.operands[1]):
        return f"the initial value is not the identity of {opcode}, and would be combined twice"
    return ""
