"""Layouts made explicit.

    x = f32[2,3]{0,1} op(...)        =>        y = f32[3,2]{1,0} op'(...)        where  x = transpose(y)

Every array is replaced by the descending array of the same bytes: its dimensions from the slowest to the
fastest.  Each op then works on dimensions with other numbers; what moved data because layouts differed is an
explicit transpose or copy afterwards, and what only renamed dimensions is gone.

1. Every computation but ENTRY gets a signature of descending arrays; what a loop carries keeps the order of
   its body's parameter.
2. Instructions in their order: operands have become descending arrays in some order of dimensions, the rule
   of the op (``rules.py``) says in which order the result comes out.
3. A ``bitcast`` is a ``reshape`` of descending arrays, with a ``bitcast-convert`` where the type changes.
4. ENTRY's parameters and result, and whatever else the world outside reads or writes (custom calls with
   their layout constraints, transfers, asynchronous pairs), keep their layouts: a transpose that moves
   nothing stands at the border on either side.

Tiles, memory spaces and element sizes stay with the bytes.  A module with shardings by dimension keeps its
logical dimensions: there descending arrays take the place of all others, whatever moves.

Left out: reductions, products and windows over permuted arrays add in the order in which the elements lie,
as XLA does, so that their results may differ within rounding.  Everything else is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from hloopt.analysis.elementwise import is_elementwise
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module
from hloopt.ir.walk import callees_first
from hloopt.ops.traits import BODIES, TUPLES, op_table
from hloopt.passes.layout_normalization import calls, views
from hloopt.passes.layout_normalization.rewriter import Rewriter
from hloopt.passes.layout_normalization.rules import RULES, pointwise
from hloopt.passes.layout_normalization.signatures import Signatures, wraps
from hloopt.passes.layout_normalization.values import Whole, descends, plain_orders
from hloopt.rewrite import Pass, PassLog
from hloopt.types import Sharding

__all__ = ["LayoutNormalization"]

_OWN_RULES: Mapping[str, Callable[[Rewriter, Instruction], None]] = op_table(
    {
        **dict.fromkeys(BODIES, calls.call),
        "bitcast": views.bitcast,
        "parameter": calls.parameter,
        "reshape": views.reshape,
    },
    otherwise="a rule for logical shapes (``rules.RULES``)",
)
_ALWAYS = BODIES | {"bitcast", "parameter"}


@dataclass(frozen=True)
class LayoutNormalization(Pass):
    """Make all layouts descending, with explicit transposes where data moved because layouts differed.

    ENTRY's signature stays, and so do the layouts that custom calls, transfers and asynchronous pairs ask
    for.  Bodies of fusions are changed as well.  Sums over several elements may be added in another order.
    All or nothing: callers and callees change together, so that fuel for one rewrite is fuel for the module.

    gathers          false: gathers outside of fusions keep the layouts of their results, as in XLA
    """

    gathers: bool = True

    example: ClassVar[str] = """HloModule turned

ENTRY main {
  p = f32[2,3]{1,0} parameter(0)
  q = f32[3,2]{1,0} parameter(1)
  t = f32[3,2]{0,1} transpose(p), dimensions={1,0}
  s = f32[3,2]{0,1} copy(q)
  ROOT r = f32[3,2]{0,1} add(t, s)
}
"""

    def run(self, module: Module, log: PassLog) -> bool:
        if not any(map(_concerns, module.instructions())) or not log.allows():
            return False
        logical = any(map(_is_sharded, module.instructions()))
        signatures = Signatures(module, logical=logical)
        kept = frozenset() if self.gathers else frozenset(("gather",))
        signatures.freeze(module)
        changed = False
        for computation in callees_first(module):
            if not any(map(wraps, computation.callers)):
                changed |= _normalize(Rewriter(computation, signatures, kept), log)
        return changed


def _concerns(instruction: Instruction) -> bool:
    return instruction.opcode == "bitcast" or not descends(instruction.shape)


def _is_sharded(instruction: Instruction) -> bool:
    sharding = Sharding.of(instruction.attributes)
    if sharding is None:
        return "sharding" in instruction.attributes
    return any(leaf.tiles or leaf.named for leaf in sharding.leaves)


def _normalize(rewriter: Rewriter, log: PassLog) -> bool:
    for instruction in list(rewriter.computation):
        rewriter.position = instruction
        if _is_untouched(rewriter, instruction):
            rewriter.values[instruction] = Whole(instruction, plain_orders(instruction.shape))
        else:
            _visit(rewriter, instruction, log)
    rewriter.finish()
    return rewriter.changed


def _is_untouched(rewriter: Rewriter, instruction: Instruction) -> bool:
    """Whether instruction and operands are descending as they are."""
    if instruction.opcode in _ALWAYS or not descends(instruction.shape):
        return False
    for operand in instruction.operands:
        value = rewriter.values[operand]
        if not isinstance(value, Whole) or value.instruction is not operand:
            return False
        if operand in rewriter.logical_shapes or not descends(operand.shape):
            return False
        if value.orders != plain_orders(operand.shape):
            return False
    return True


def _visit(rewriter: Rewriter, instruction: Instruction, log: PassLog) -> None:
    shape = instruction.shape
    if rewriter.stays(instruction):
        calls.stay(rewriter, instruction)
        if not descends(shape):
            reason = f"{instruction.opcode} decides the layouts of its buffers"
            log.miss("make layouts descending", instruction, reason)
        return
    rule = _OWN_RULES.get(instruction.opcode) or RULES.get(instruction.opcode)
    if rule is None:
        rule = pointwise if _is_pointwise(instruction) else Rewriter.apply_logically
    if rewriter.logical or _is_dynamic(instruction):
        rule = _OWN_RULES.get(instruction.opcode, Rewriter.apply_logically)
        if instruction.opcode == "reshape":
            rule = Rewriter.apply_logically
        elif instruction.opcode in TUPLES | {"constant", "transpose"}:
            rule = RULES[instruction.opcode]
    rule(rewriter, instruction)
    if not descends(shape):
        log.hit("make layouts descending", instruction)
    elif instruction.opcode == "bitcast":
        log.hit("bitcast => reshape", instruction)


def _is_pointwise(instruction: Instruction) -> bool:
    """Elementwise ops whose operands are arrays of the result's dimensions, or scalars."""
    return instruction.opcode == "map" or is_elementwise(instruction)


def _is_dynamic(instruction: Instruction) -> bool:
    return instruction.shape.is_dynamic or any(
        operand.shape.is_dynamic for operand in instruction.operands
    )
