"""Concatenates of more arrays than a kernel has parameters for."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Instruction, Module, build, edit
from hloopt.ir.walk import open_computations
from hloopt.rewrite.pass_ import Pass, PassLog

__all__ = ["VariadicOpSplitter"]


@dataclass(frozen=True)
class VariadicOpSplitter(Pass):
    """Write a concatenate of very many arrays as concatenates of concatenates.

    Operands are taken in groups of exactly ``most``; those that do not fill a last group wait for the
    next round, where they stand beside the concatenates made before.  Bodies of fusions are left as they are.

    most   the most operands a concatenate may have
    """

    example: ClassVar[str] = (
        "HloModule example\n\nENTRY main {\n  x = f32[2] parameter(0)\n  ROOT r = f32[260] concatenate("
        + ", ".join(["x"] * 130)
        + "), dimensions={0}\n}\n"
    )

    most: int = 128

    def __post_init__(self) -> None:
        if self.most < 2:
            raise UsageError(f"{self.name}: most={self.most}: a concatenate joins 2 arrays or more")

    def run(self, module: Module, log: PassLog) -> bool:
        """Look at each concatenate once."""
        changed = False
        for computation in open_computations(module):
            for instruction in list(computation):
                if instruction.opcode != "concatenate" or len(instruction.operands) <= self.most:
                    continue
                if not log.allows():
                    return changed
                count = len(instruction.operands)
                log.hit(f"split a concatenate of more than {self.most}", instruction, f"{count}")
                self._split(instruction)
                changed = True
        return changed

    def _split(self, concatenate: Instruction) -> None:
        operands = concatenate.operands
        while len(operands) > self.most:
            full = len(operands) - len(operands) % self.most
            groups = [operands[at : at + self.most] for at in range(0, full, self.most)]
            made = tuple(_joined(concatenate, group) for group in groups)
            operands = made + operands[full:]
        edit.set_operands(concatenate, operands)


def _joined(concatenate: Instruction, group: tuple[Instruction, ...]) -> Instruction:
    """A concatenate of some of the operands, before the whole one and in its layout."""
    attributes = {"dimensions": concatenate.dimensions}
    made = build.make(concatenate, "concatenate", group, attributes, metadata=concatenate.metadata)
    edit.set_shape(made, replace(made.array, layout=concatenate.array.layout))
    return made
