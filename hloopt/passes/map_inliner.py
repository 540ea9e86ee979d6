"""Maps replaced by the ops they apply."""

from __future__ import annotations

from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module, edit
from hloopt.ir.walk import open_computations
from hloopt.rewrite import Pass, PassLog, same_layout
from hloopt.rewrite.regions import is_liftable, lifted
from hloopt.rewrite.site import Site
from hloopt.types import ArrayShape

__all__ = ["MapInliner"]


@dataclass(frozen=True)
class MapInliner(Pass):
    """Apply the ops of a map's computation to whole arrays.

        map(a, b), to_apply={x, y => exp(x) + y * 2}  =>  exp(a) + b * broadcast(2)

    Left alone: maps whose computation calls others (call-inliner comes first), draws random numbers or
    works in other element types than the operands', and maps whose operands have another layout than
    the result.
    """

    example: ClassVar[str] = """HloModule maps

scaled {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  two = f32[] constant(2)
  twice = f32[] multiply(y, two)
  ROOT sum = f32[] add(x, twice)
}

ENTRY main {
  a = f32[4]{0} parameter(0)
  b = f32[4]{0} parameter(1)
  ROOT r = f32[4]{0} map(a, b), dimensions={0}, to_apply=scaled
}
"""

    def run(self, module: Module, log: PassLog) -> bool:
        """Look at each instruction once; what is put in its place holds no map."""
        changed = False
        for computation in open_computations(module, list(module)):
            for instruction in list(computation):
                if instruction.opcode == "map" and _may_inline(instruction, log):
                    if not log.allows():
                        return changed
                    log.hit("inline a map", instruction)
                    _inline(instruction)
                    changed = True
        return changed


def _may_inline(instruction: Instruction, log: PassLog) -> bool:
    shape = instruction.shape
    if not instruction.is_understood or not isinstance(shape, ArrayShape) or shape.is_dynamic:
        return False
    if not is_liftable(instruction.to_apply, instruction.operands):
        log.miss("inline a map", instruction, "its computation is not of elementwise ops alone")
        return False
    for operand in instruction.operands:
        if not same_layout(operand.array.with_dtype(shape.dtype), shape):
            log.miss("inline a map", instruction, f"operand {operand.name} has another layout")
            return False
    return True


def _inline(instruction: Instruction) -> None:
    site = Site(instruction)
    computation = instruction.to_apply
    (result,) = lifted(computation, instruction.operands, instruction.array, site)
    if result in instruction.operands and _is_marked(instruction):
        result = site.result("copy", result)
    for mark in ("sharding", "frontend_attributes"):
        if mark in instruction.attributes:
            edit.set_attribute(result, mark, instruction.attributes[mark])
    edit.replace_instruction(instruction, result)
    if not computation.callers:
        edit.remove_computation(computation)


def _is_marked(instruction: Instruction) -> bool:
    """Whether something would be lost if an operand took its place."""
    marks = ("sharding", "frontend_attributes")
    edges = instruction.has_control_edges
    return bool(edges) or any(mark in instruction.attributes for mark in marks)
