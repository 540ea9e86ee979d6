"""Dead code elimination."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hloopt.ir import Computation, Instruction, Module, edit
from hloopt.ir.walk import called_computations, reachable
from hloopt.passes.effects import Effects
from hloopt.rewrite import Pass, PassLog

__all__ = ["DeadCodeElimination"]


@dataclass(frozen=True)
class DeadCodeElimination(Pass):
    """Remove instructions nothing needs and computations nobody calls.

    Roots: a computation's result, its parameters (they are its signature), side effects and collectives,
    and both ends of control edges.
    """

    name: ClassVar[str] = "dce"
    example: ClassVar[str] = """HloModule example

ENTRY main {
  x = f32[4] parameter(0)
  unused = f32[4] exponential(x)
  ROOT r = f32[4] negate(x)
}
"""
    keeps_schedule: ClassVar[bool] = True

    def run(self, module: Module, log: PassLog) -> bool:
        """Remove in one sweep per computation, then the computations that lost their last caller."""
        effects = Effects(module)
        changed = False
        for computation in module:
            changed |= _sweep(computation, effects, log)
        return _remove_uncalled(module, log) or changed


def _sweep(computation: Computation, effects: Effects, log: PassLog) -> bool:
    needed = reachable([entry for entry in computation if _is_root(entry, effects)])
    changed = False
    for instruction in reversed(computation):
        if instruction not in needed and log.allows():
            log.hit("remove an instruction", instruction, "nothing needs it")
            edit.remove(instruction)
            changed = True
    return changed


def _is_root(instruction: Instruction, effects: Effects) -> bool:
    return (
        instruction.is_root
        or instruction.opcode == "parameter"
        or bool(instruction.control_predecessors)
        or bool(instruction.control_successors)
        or effects.has(instruction)
    )


def _remove_uncalled(module: Module, log: PassLog) -> bool:
    pending = [entry for entry in module if not entry.callers and entry is not module.entry]
    changed = False
    while pending and log.allows():
        computation = pending.pop()
        called = {entry for caller in computation for entry in called_computations(caller)}
        log.hit("remove a computation", computation.root, "nothing calls it")
        edit.remove_computation(computation)
        changed = True
        pending.extend(entry for entry in called if not entry.callers)
    return changed
