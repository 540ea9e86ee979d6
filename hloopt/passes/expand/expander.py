"""What all expanders share: find the op, ask whether it may go, write what takes its place."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from hloopt.ir import Instruction, Module
from hloopt.ir.walk import open_computations
from hloopt.ops import attributes_of
from hloopt.passes.expand.writer import Term, Writer
from hloopt.rewrite import Pass, PassLog

__all__ = ["Expander"]


class Expander(Pass):
    """Base of the passes that replace an op by simpler ones.

    New instructions stand where the op stood and carry its metadata; the result has its name, layout,
    sharding and control edges.  Its backend_config goes: it says how that op was to be run.
    """

    keeps_schedule: ClassVar[bool] = True
    opcodes: ClassVar[frozenset[str]]

    @abstractmethod
    def expand(self, instruction: Instruction, write: Writer) -> Term:
        """Write what computes the instruction's result."""

    def is_candidate(self, instruction: Instruction) -> bool:
        """Whether this is what the pass is about."""
        return instruction.opcode in self.opcodes

    def step(self, instruction: Instruction) -> str:
        """What expanding this one is called in statistics and remarks."""
        return f"expand {instruction.opcode}"

    def obstacle(self, instruction: Instruction) -> str | None:
        """Why this one stays, or None."""
        return None

    def run(self, module: Module, log: PassLog) -> bool:
        """Expand every candidate outside of fusions and asynchronous calls."""
        changed = False
        for computation in open_computations(module):
            for instruction in computation:
                if self.is_candidate(instruction):
                    changed |= self._visit(instruction, log)
        return changed

    def _visit(self, instruction: Instruction, log: PassLog) -> bool:
        step = self.step(instruction)
        reason = _unknown(instruction) or self.obstacle(instruction)
        if reason is not None:
            log.miss(step, instruction, reason)
            return False
        if not log.allows():
            return False
        write = Writer.before(instruction)
        result = self.expand(instruction, write)
        log.hit(step, instruction)
        write.replace(instruction, result)
        return True


def _unknown(instruction: Instruction) -> str | None:
    if not instruction.is_understood:
        known = attributes_of(instruction.opcode) or ()
        unknown = ", ".join(sorted(set(instruction.attributes).difference(known)))
        return f"it has an attribute that is not known: {unknown}"
    for entry in (instruction, *instruction.operands):
        if entry.shape.is_dynamic:
            return f"{entry.name} has shape {entry.shape}, whose size is known at run time only"
    return None
