"""Computations of their own for every call, loop and branch."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.ir.walk import callees_first, wrapped_computations
from hloopt.ops.traits import SEQUENTIAL
from hloopt.rewrite import Pass, PassLog

__all__ = ["FlattenCallGraph"]

_GROWTH: Final = 10
_ROOM: Final = 10_000
_STEP = "give a call its own computation"


@dataclass(frozen=True)
class FlattenCallGraph(Pass):
    """Copy computations that several calls, loops or branches share, so that each may be changed alone.

    Callers come first, so that what a copy calls is copied in turn.  The first call keeps the original.
    Left alone: computations that keep the state of random numbers, which copies would each have, what
    reduces, sorts and the like apply, and bodies of fusions and asynchronous ops.

    Copies stop where the module has 10 times the instructions it came with, if these are more than 10,000:
    what would make it larger stays shared.

    largest   the most instructions of the whole module after copying, whatever it came with
    """

    keeps_schedule: ClassVar[bool] = True
    example: ClassVar[str] = """HloModule example

double {
  a = f32[4] parameter(0)
  ROOT b = f32[4] add(a, a)
}

ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] call(x), to_apply=double
  ROOT z = f32[4] call(y), to_apply=double
}
"""

    largest: int = 100_000

    def __post_init__(self) -> None:
        if self.largest < 1:
            raise UsageError(f"{self.name}: largest must be at least 1, got {self.largest}")

    def run(self, module: Module, log: PassLog) -> bool:
        """One walk over the computations that were there, callers before what they call."""
        wrapped = wrapped_computations(module)
        size = module.instruction_count()
        limit = min(self.largest, max(_ROOM, _GROWTH * module.source_size()))
        changed = False
        for computation in reversed(callees_first(module)):
            if computation in wrapped or not _may_copy(computation):
                continue
            for caller, name, place in _sites(computation)[1:]:
                if size + len(computation) > limit:
                    reason = f"{size + len(computation)} instructions, the limit is {limit}"
                    log.miss(_STEP, caller, reason)
                    break
                if not log.allows():
                    return changed
                log.hit(_STEP, caller, f"a copy of {computation.name}")
                size += len(computation)
                copy = edit.add_computation(module, build.clone_computation(computation))
                _name(copy, caller, name, place)
                changed = True
        return changed


def _may_copy(computation: Computation) -> bool:
    return all(caller.opcode in SEQUENTIAL for caller in computation.callers) and not any(
        inner.opcode == "rng-get-and-update-state" for inner in computation
    )


def _sites(computation: Computation) -> list[tuple[Instruction, str, int | None]]:
    """Every place that names the computation: the instruction, the attribute, the position in a list."""
    found: list[tuple[Instruction, str, int | None]] = []
    for caller in computation.callers:
        for name, value in caller.attributes.items():
            if value is computation:
                found.append((caller, name, None))
            elif isinstance(value, tuple):
                found += [
                    (caller, name, k) for k, entry in enumerate(value) if entry is computation
                ]
    return found


def _name(copy: Computation, caller: Instruction, name: str, place: int | None) -> None:
    value: Any = copy
    if place is not None:
        old = caller.attributes[name]
        value = (*old[:place], copy, *old[place + 1 :])
    edit.set_attribute(caller, name, value)
