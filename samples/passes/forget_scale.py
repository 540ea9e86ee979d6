"""A pass with a mistake, for ``hloopt bisect`` to find: it takes every divisor that is one number for 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hloopt import Module, Pass, PassLog
from hloopt.ir import edit


@dataclass(frozen=True)
class ForgetScale(Pass):
    """Remove divisions by a broadcast number, whatever the number is."""

    name: ClassVar[str] = "forget-scale"

    def run(self, module: Module, log: PassLog) -> bool:
        changed = False
        for division in list(module.entry):
            scaled = division.opcode == "divide" and division.operands[1].opcode == "broadcast"
            if scaled and log.allows():
                log.hit("A / 1 => A", division)
                edit.replace_instruction(division, division.operands[0])
                changed = True
        return changed
