"""Layouts for a module that has none yet."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module, edit
from hloopt.ir.walk import top_level_computations
from hloopt.ops.traits import TRANSFERS
from hloopt.passes.free_layouts import free_layouts
from hloopt.rewrite import Pass, PassLog
from hloopt.types import ArrayShape, Layout, Shape, TupleShape, descending

__all__ = ["LayoutAssignment"]


@dataclass(frozen=True)
class LayoutAssignment(Pass):
    """Give every array a row-major layout, as XLA does for GPUs where no library call wants another.

    A gather, and what is computed from gathers alone, is laid out for those who read it: a transpose of it
    then moves nothing, and a reduce finds its rows side by side (``free_layouts.py``).

    Before XLA assigns layouts those in a text mean nothing: a frontend's transpose has the layout with which
    it would move no byte.  The parameters of the entry, and its result, have those of
    ``entry_computation_layout``.  Left alone are modules whose layouts were assigned (those with a
    ``bitcast``, a fusion or a schedule), and what a custom call or an infeed wants to be laid out.
    """

    example: ClassVar[
        str
    ] = """HloModule example, entry_computation_layout={(f32[4,3]{1,0})->f32[3,4]{1,0}}

ENTRY main {
  x = f32[4,3]{1,0} parameter(0)
  t = f32[3,4]{0,1} transpose(x), dimensions={1,0}
  ROOT n = f32[3,4]{1,0} negate(t)
}
"""

    def run(self, module: Module, log: PassLog) -> bool:
        """Look at each instruction once."""
        if module.attributes.get("is_scheduled") or any(map(_is_assigned, module.instructions())):
            return False
        given = "entry_computation_layout" in module.attributes
        changed = False
        for instruction in module.instructions():
            of_entry = instruction.computation is module.entry
            if instruction.opcode in _WANTED or (of_entry and instruction.opcode == "parameter"):
                continue
            if of_entry and instruction.is_root and not given:
                continue
            shape = _row_major(instruction.shape)
            if shape == instruction.shape:
                continue
            if not log.allows():
                break
            log.hit("row-major layout", instruction)
            edit.set_shape(instruction, shape)
            changed = True
        return changed | _choose(module, log)


def _choose(module: Module, log: PassLog) -> bool:
    changed = False
    for computation in top_level_computations(module):
        for instruction, order in free_layouts(computation).items():
            if not log.allows():
                return changed
            log.hit("layout that its readers want", instruction)
            edit.set_shape(instruction, replace(instruction.array, layout=Layout(order[::-1])))
            changed = True
    return changed


_WANTED = TRANSFERS - {"recv-done", "send-done"} | {"custom-call"}


def _is_assigned(instruction: Instruction) -> bool:
    return instruction.opcode in ("bitcast", "fusion")


def _row_major(shape: Shape) -> Shape:
    """The shape itself where no array has another layout."""
    if isinstance(shape, TupleShape):
        elements = tuple(map(_row_major, shape.elements))
        return shape if elements == shape.elements else replace(shape, elements=elements)
    if not isinstance(shape, ArrayShape) or shape.layout is None:
        return shape
    wanted = descending(len(shape.dims))
    return (
        shape
        if shape.layout.minor_to_major == wanted.minor_to_major
        else replace(shape, layout=wanted)
    )
