"""Computations called by a single instruction: needed before a copy of a caller may be changed."""

from __future__ import annotations

from collections.abc import Iterable

from hloopt.ir import Computation, Instruction, build, edit
from hloopt.ir.walk import called_computations

__all__ = ["own_computation", "own_fusion_bodies", "remove_uncalled"]


def own_computation(caller: Instruction, name: str) -> None:
    """Make the computation an attribute names exclusive to its caller: a copy where it is shared."""
    called: Computation = caller.attributes[name]
    module = called.module
    assert module is not None
    if sum(called.callers.values()) > 1:
        copy = edit.add_computation(module, build.clone_computation(called))
        edit.set_attribute(caller, name, copy)
        own_fusion_bodies(copy)


def own_fusion_bodies(instructions: Iterable[Instruction]) -> None:
    """Give each of the fusions among some instructions its own body, as a fusion must have.

    For instructions that were copied; once what they were copied from is gone, if it is to go.
    """
    for instruction in instructions:
        if instruction.opcode == "fusion" and instruction.computation is not None:
            own_computation(instruction, "calls")


def remove_uncalled(computations: Iterable[Computation]) -> None:
    """Remove those of some computations that have no caller, and what they called alone."""
    pending = list(computations)
    while pending:
        computation = pending.pop()
        module = computation.module
        if module is None or computation.callers or computation is module.entry:
            continue
        called = {one for caller in computation for one in called_computations(caller)}
        edit.remove_computation(computation)
        pending.extend(called)
