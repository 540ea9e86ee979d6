"""Making the instructions that take the place of another one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hloopt.ir import Instruction, build
from hloopt.types import ArrayShape, Literal, Shape, scalar

__all__ = ["Maker", "own_attributes"]


def own_attributes(instruction: Instruction) -> dict[str, Any]:
    """The attributes that say what the op computes: those of its row."""
    schema = {entry.name for entry in instruction.op.attributes}
    return {name: value for name, value in instruction.attributes.items() if name in schema}


class Maker:
    """Makes instructions right before ``root``, with its metadata; ``created`` are those it made."""

    root: Instruction
    created: list[Instruction]

    def make(
        self, opcode: str, /, *operands: Instruction, shape: Shape | None = None, **attributes: Any
    ) -> Instruction:
        """A new instruction; its shape is inferred unless given."""
        root = self.root
        made = build.make(root, opcode, operands, attributes, shape=shape, metadata=root.metadata)
        self.created.append(made)
        return made

    def result(self, opcode: str, /, *operands: Instruction, **attributes: Any) -> Instruction:
        """A new instruction of the root's shape."""
        return self.make(opcode, *operands, shape=self.root.shape, **attributes)

    def results(self, results: Sequence[Instruction]) -> Instruction:
        """What the root gives: a tuple of the results where it is one, else the only one."""
        is_tuple = self.root.is_tuple
        return self.result("tuple", *results) if is_tuple else results[0]

    def again(
        self, computed: Instruction, *operands: Instruction, shape: Shape | None = None
    ) -> Instruction:
        """The op of ``computed`` on other operands; of the root's shape unless one is given."""
        attributes = own_attributes(computed)
        return self.make(computed.opcode, *operands, shape=shape or self.root.shape, **attributes)

    def constant(self, literal: Literal) -> Instruction:
        """A new constant."""
        return self.make("constant", shape=literal.shape, literal=literal)

    def scalar(self, element: str, value: object) -> Instruction:
        """A number as a constant of rank 0."""
        return self.constant(scalar(element, value))

    def splat(self, shape: ArrayShape, value: object) -> Instruction:
        """``value`` in every element of ``shape``."""
        return self.splat_of(shape, scalar(shape.dtype.name, value))

    def splat_of(self, shape: ArrayShape, literal: Literal) -> Instruction:
        """A scalar literal in every element of ``shape``."""
        return self.fill(shape, self.constant(literal))

    def fill(self, shape: ArrayShape, value: Instruction) -> Instruction:
        """A scalar in every element of ``shape``."""
        return self.make("broadcast", value, shape=shape, dimensions=()) if shape.dims else value
