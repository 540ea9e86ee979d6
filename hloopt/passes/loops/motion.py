"""What a loop does only for its end, or always alike, done outside of it: the frame of such passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from hloopt.errors import UsageError
from hloopt.ir import Instruction, Module
from hloopt.ir.walk import callees_first, open_computations
from hloopt.passes.loops.carried import CarriedState, growth_obstacle
from hloopt.rewrite import Pass, PassLog

__all__ = ["check_growth", "inner_loops_first", "move_out"]

_Part = TypeVar("_Part")


def inner_loops_first(module: Module) -> Iterator[Instruction]:
    """The loops of a module with a tuple for their state, each after those within it; they may be changed."""
    # Callees come before their callers.
    for computation in open_computations(module, callees_first(module)):
        for instruction in list(computation):
            if instruction.opcode == "while" and instruction.is_tuple:
                yield instruction


def move_out(
    loop: Instruction,
    step: str,
    log: PassLog,
    *,
    found: Callable[[PassLog], Sequence[_Part]],
    begin: Callable[[CarriedState], Callable[[_Part], None]],
    told: Callable[[_Part], tuple[Instruction, str]],
) -> bool:
    """Move parts of a loop, whose state then has other elements, out of it; whether any was moved.

    ``found`` looks for them, ``begin`` makes what moves one, ``told`` is what the log says of it.
    """
    if not found(log):
        return False
    reason = growth_obstacle(loop)
    if reason:
        log.miss(step, loop, reason)
        return False
    if not log.allows():
        return False
    # Its body may be a copy from here on, so that they are looked for again.
    move, changed = begin(CarriedState(loop)), False
    for part in found(PassLog()):
        if not log.allows():
            break
        instruction, reason = told(part)
        log.hit(step, instruction, reason)
        move(part)
        changed = True
    return changed


def check_growth(one: Pass, most: float) -> None:
    """Raise ``UsageError`` for a limit of bytes that a loop carries besides that is below 0."""
    if most < 0:
        raise UsageError(f"{one.name}: max_growth is a number of bytes a byte, or 0")
