"""Wraps every op left over in a fusion.

    a = add(x, y)    =>    wrapped_add = fusion(x, y), kind=kLoop, calls=wrapped_add_computation

XLA generates code for fusions and library calls only; an op that no fusion took becomes one by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

from hloopt.dataclass import dataclass
from hloopt.fusion import apply
from hloopt.fusion.kinds import choose_kind
from hloopt.ir import Computation, Instruction, Module, edit, walk
from hloopt.ops.traits import ELEMENTAL, FOLDING, INDEXING, MOVING, SEQUENTIAL
from hloopt.rewrite.naming import ModuleNames
from hloopt.rewrite.pass_ import Pass, PassLog

__all__ = ["FusionWrapper"]

_WRAPPED: Final = (MOVING | INDEXING | FOLDING) & ELEMENTAL - {"bitcast", "select-and-scatter"} | {
    "iota",
    "map",
    "scatter",
}
_RUN_OTHERWISE: Final = frozenset({"copy"})
"""Elementwise by table, but a transfer between memory spaces."""


@dataclass(frozen=True)
class FusionWrapper(Pass):
    """Wrap every op that no fusion took, and that a kernel computes, in a fusion by itself.

    Elementwise ops and those that move, gather or reduce elements; dots and convolutions, too, where no
    library call took their place.  Copies, bitcasts, tuples, sorts, constants, random numbers and calls
    need no fusion.  Loops, branches and calls are entered; what a reduce or a sort applies is not.
    """

    keeps_schedule: ClassVar[bool] = True
    example: ClassVar[str] = """HloModule example

ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  ROOT r = f32[4] add(x, y)
}
"""

    def run(self, module: Module, log: PassLog) -> bool:
        """Visit each instruction that is run by itself once."""
        names = ModuleNames(module)
        changed = False
        for instruction in list(_in_order(module.entry)):
            if not _needs_kernel(instruction):
                continue
            if not log.allows():
                break
            log.hit(f"wrap {instruction.opcode}", instruction)
            opcode = instruction.opcode
            kind = choose_kind(instruction, instruction)
            fusion = apply.wrap(instruction, kind, names.fresh(f"wrapped_{opcode}"))
            edit.rename_computation(fusion.calls, f"wrapped_{opcode}_computation")
            changed = True
        return changed


def _needs_kernel(instruction: Instruction) -> bool:
    opcode = instruction.opcode
    if opcode in _WRAPPED:
        return instruction.is_understood
    elementwise = instruction.op.is_elementwise and bool(instruction.operands)
    return elementwise and opcode not in _RUN_OTHERWISE and instruction.is_understood


def _in_order(entry: Computation) -> Iterator[Instruction]:
    """Instructions run one by one, operands first, the bodies of loops and branches where they are called.

    The numbers of names follow this order.
    """
    seen = {entry}
    stack = [iter(walk.post_order(entry))]
    while stack:
        instruction = next(stack[-1], None)
        if instruction is None:
            stack.pop()
            continue
        yield instruction
        if instruction.opcode in SEQUENTIAL:
            for called in reversed(list(walk.called_computations(instruction))):
                if called not in seen:
                    seen.add(called)
                    stack.append(iter(walk.post_order(called)))
