"""What shows that JAX lowered a module for a CPU: on a GPU other code stands in these places."""

from __future__ import annotations

from typing import Any, Final

from hloopt.dataclass import dataclass
from hloopt.findings.trials import Subject
from hloopt.ir import Instruction
from hloopt.passes.expand.rolled_threefry import is_threefry

__all__ = ["CpuLowering", "lowered_for_cpu"]

_SHOWN: Final = 4


@dataclass(frozen=True, slots=True)
class CpuLowering:
    """Calls of LAPACK, and loops of Threefry that JAX writes without a loop elsewhere; the first of each.

    count  of all of them
    """

    calls: tuple[str, ...]
    loops: tuple[str, ...]
    count: int

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {"calls": list(self.calls), "loops": list(self.loops), "count": self.count}


def lowered_for_cpu(subject: Subject) -> CpuLowering | None:
    """None where the target is no GPU, or nothing in the module is a CPU's."""
    if not subject.planner.predictor.target.has_threads:
        return None
    calls, loops = [], []
    for one in subject.module.instructions():
        if _calls_lapack(one):
            calls.append(one.name)
        elif one.opcode == "while" and is_threefry(one):
            loops.append(one.name)
    count = len(calls) + len(loops)
    return CpuLowering(tuple(calls[:_SHOWN]), tuple(loops[:_SHOWN]), count) if count else None


def _calls_lapack(one: Instruction) -> bool:
    return one.opcode == "custom-call" and one.custom_call_target.startswith("lapack_")
