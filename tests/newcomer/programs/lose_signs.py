"""A pass with a mistake."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hloopt import Module, Pass, PassLog
from hloopt.ir import edit


@dataclass(frozen=True)
class LoseSigns(Pass):
    """Replace negations by what they negate."""

    name: ClassVar[str] = "lose-signs"

    def run(self, module: Module, log: PassLog) -> bool:
        changed = False
        for instruction in module.entry:
            if instruction.opcode == "negate" and log.allows():
                log.hit("lose a sign", instruction)
                edit.replace_instruction(instruction, instruction.operands[0])
                changed = True
        return changed
