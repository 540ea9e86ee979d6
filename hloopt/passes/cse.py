"""Common subexpression elimination."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from hloopt.ir import Computation, Instruction, Module, edit
from hloopt.ir.walk import callees_first
from hloopt.passes.effects import Effects
from hloopt.rewrite import Pass, PassLog
from hloopt.types import ArrayShape, Literal, Shape, TupleShape, descending

__all__ = ["CommonSubexpressionElimination"]

_NOT_MERGED = ("parameter", "rng", "rng-bit-generator", "rng-get-and-update-state", "opt-barrier",
               "after-all", "domain", "add-dependency")  # fmt: skip
_NOT_COMPARED = ("origin", "statistics")


@dataclass(frozen=True)
class CommonSubexpressionElimination(Pass):
    """Compute equal things once.

    Two instructions of a computation are equal when opcode, shape with layout, attributes and operands
    are (operands in any order where the op is commutative); constants by value, called computations by
    structure.  Never merged: side effects, random numbers, optimization barriers (they are there to keep
    equal things apart), tokens, and instructions with control edges.
    """

    name: ClassVar[str] = "cse"
    example: ClassVar[str] = """HloModule example

ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  a = f32[4] add(x, y)
  b = f32[4] add(y, x)
  ROOT r = f32[4] multiply(a, b)
}
"""

    def run(self, module: Module, log: PassLog) -> bool:
        """One pass over each computation, callees first, with a hash table."""
        merger = _Merger(Effects(module), log)
        for computation in callees_first(module):
            merger.merge(computation)
        return merger.changed


@dataclass
class _Merger:
    """``numbers`` gives computations of the same structure the same number."""

    effects: Effects
    log: PassLog
    changed: bool = False
    structures: dict[Hashable, int] = field(default_factory=dict)
    numbers: dict[Computation, int] = field(default_factory=dict)
    shapes: dict[Shape, Shape] = field(default_factory=dict)

    def merge(self, computation: Computation) -> None:
        seen: dict[Hashable, Instruction] = {}
        rows: list[Hashable] = []
        position: dict[Instruction, int] = {}
        for instruction in computation:
            key = self.key(instruction, position)
            if self.may_merge(instruction) and self.log.allows():
                first = seen.setdefault(key, instruction)
                if first is not instruction:
                    self.log.hit("merge equal instructions", instruction, f"equal to {first.name}")
                    edit.replace_uses(instruction, first)
                    edit.remove(instruction)
                    self.changed = True
                    continue
            position[instruction] = len(rows)
            rows.append((key, tuple(position[e] for e in instruction.control_predecessors)))
        structure = (tuple(rows), position[computation.root])
        self.numbers[computation] = self.structures.setdefault(structure, len(self.structures))

    def may_merge(self, instruction: Instruction) -> bool:
        return not (
            instruction.opcode in _NOT_MERGED
            or instruction.control_predecessors
            or instruction.control_successors
            or "output_to_operand_aliasing" in instruction.attributes
            or self.effects.has(instruction)
        )

    def key(self, instruction: Instruction, position: dict[Instruction, int]) -> Hashable:
        operands = tuple(position[operand] for operand in instruction.operands)
        if len(operands) == 2 and operands[0] > operands[1] and instruction.op.commutative:
            operands = operands[::-1]
        attributes = instruction.attributes
        return (
            instruction.opcode,
            self.shape(instruction.shape),
            operands,
            tuple(
                (name, self.value(attributes[name]))
                for name in sorted(attributes)
                if name not in _NOT_COMPARED
            ),
        )

    def shape(self, shape: Shape) -> Shape:
        """The shape with row-major layouts written out, one object for equal ones."""
        known = self.shapes.get(shape)
        if known is None:
            known = self.shapes[shape] = _with_layout(shape)
        return known

    def value(self, value: Any) -> Hashable:
        if isinstance(value, Computation):
            return ("computation", self.numbers[value])
        if isinstance(value, tuple) and value and isinstance(value[0], Computation):
            return ("computations", *(self.numbers[entry] for entry in value))
        if isinstance(value, Literal):
            return value.key
        hashable: Hashable = value
        return hashable


def _with_layout(shape: Shape) -> Shape:
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(map(_with_layout, shape.elements)))
    if isinstance(shape, ArrayShape) and shape.layout is None:
        return ArrayShape(shape.dtype, shape.dims, descending(shape.rank), shape.dynamic)
    return shape
