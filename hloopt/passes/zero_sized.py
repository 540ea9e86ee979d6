"""Arrays without elements."""

from __future__ import annotations

from typing import ClassVar

from hloopt.analysis.effects import Effects
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module, edit
from hloopt.ir.walk import called_computations, wrapped_computations
from hloopt.ops.traits import NOT_MERGEABLE
from hloopt.rewrite import Pass, PassLog
from hloopt.rewrite.site import Site, is_replaceable
from hloopt.types import ArrayShape

__all__ = ["ZeroSized"]

_STEP = "no elements => broadcast(0)"
_NEVER = NOT_MERGEABLE | {"constant"}


@dataclass(frozen=True)
class ZeroSized(Pass):
    """Compute nothing where the result has no elements.

    Any instruction whose result is an array with a dimension of 0 becomes an empty broadcast of 0, and
    what only it needed is removed by ``dce``: whole calls, sorts, loops and library calls among it.

    Left alone: parameters and constants, side effects and collectives, random numbers (they move a
    state on), instructions with control edges, tuples, and sizes that are not known yet.
    """

    example: ClassVar[str] = """HloModule empty

ENTRY main {
  x = f32[0,4]{1,0} parameter(0)
  y = f32[4,8]{1,0} parameter(1)
  d = f32[0,8]{1,0} dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[4,8]{1,0} negate(y)
  ROOT r = f32[4,8]{1,0} concatenate(d, z), dimensions={0}
}
"""

    def run(self, module: Module, log: PassLog) -> bool:
        """Look at each instruction once."""
        effects, wrapped = Effects(module), wrapped_computations(module)
        changed = False
        for computation in list(module):
            if computation in wrapped or computation.module is None:
                continue
            for instruction in list(computation):
                if not _is_empty(instruction) or _is_done(instruction):
                    continue
                if effects.has(instruction):
                    log.miss(_STEP, instruction, "it does more than make its result")
                    continue
                if not is_replaceable(instruction):
                    log.miss(_STEP, instruction, "it has control edges or sizes not known yet")
                    continue
                if not log.allows():
                    return changed
                log.hit(_STEP, instruction)
                site, called = Site(instruction), tuple(called_computations(instruction))
                site.replace(site.splat(instruction.array, 0))
                for body in called:
                    if not body.callers and body.module is not None:
                        edit.remove_computation(body)
                changed = True
        return changed


def _is_empty(instruction: Instruction) -> bool:
    shape = instruction.shape
    return isinstance(shape, ArrayShape) and 0 in shape.dims and instruction.opcode not in _NEVER


def _is_done(instruction: Instruction) -> bool:
    """Whether this is a value repeated no times already, in a fusion or by itself."""
    if instruction.opcode == "fusion":
        return not instruction.operands
    return instruction.opcode == "broadcast" and instruction.operands[0].opcode == "constant"
