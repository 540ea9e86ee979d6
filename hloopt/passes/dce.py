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
    keeps_schedule: ClassVar[bool] = True

    def run(self, module: Module, log: PassLog) -> bool:
        """Remove in one sweep per computation, then the computations that lost their last caller."""
        effects = Effects(module)
        instructions = sum(_sweep(computation, effects) for computation in module)
        computations = _remove_uncalled(module)
        if instructions:
            log.hit("remove an instruction", count=instructions)
        if computations:
            log.hit("remove a computation", count=computations)
        return bool(instructions or computations)


def _sweep(computation: Computation, effects: Effects) -> int:
    needed = reachable([entry for entry in computation if _is_root(entry, effects)])
    removed = 0
    for instruction in reversed(computation):
        if instruction not in needed:
            edit.remove(instruction)
            removed += 1
    return removed


def _is_root(instruction: Instruction, effects: Effects) -> bool:
    return (
        instruction.is_root
        or instruction.opcode == "parameter"
        or bool(instruction.control_predecessors)
        or bool(instruction.control_successors)
        or effects.has(instruction)
    )


def _remove_uncalled(module: Module) -> int:
    pending = [entry for entry in module if not entry.callers and entry is not module.entry]
    removed = 0
    while pending:
        computation = pending.pop()
        called = {entry for caller in computation for entry in called_computations(caller)}
        edit.remove_computation(computation)
        removed += 1
        pending.extend(entry for entry in called if not entry.callers)
    return removed
