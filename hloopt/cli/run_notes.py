"""What ``hloopt run`` says beside its table: memory, what runs on the host, what XLA leaves open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hloopt.analysis.liveness import peak
from hloopt.backends.numpy.quick_math import QUICK
from hloopt.errors import UnsupportedError
from hloopt.ir import Module
from hloopt.kernels.plan import HostStep, walk_steps
from hloopt.report.numbers import byte_size
from hloopt.runtime.memory import memory_limit
from hloopt.spelling import first_of

if TYPE_CHECKING:
    from hloopt.runtime.program import Program

__all__ = [
    "bytes_alive",
    "check_memory",
    "on_amended",
    "on_functions",
    "on_host",
    "on_selection",
    "open_numbers",
]


def bytes_alive(module: Module, participants: int) -> int:
    """The most bytes alive at once, parameters included."""
    return peak(module.entry).byte_size * participants


def on_amended(filled: int, dropped: Sequence[str]) -> list[str]:
    """What was changed in the module before anything ran."""
    notes = []
    if filled:
        notes.append(
            f"{filled} constant{'s' * (filled != 1)} left out of the text: values are invented"
        )
    if dropped:
        names = first_of(f"%{name}" for name in dropped)
        notes.append(f"calls back into Python are left out: {names}")
    return notes


def on_host(program: Program) -> list[str]:
    """A word about the instructions of a device's program that the interpreter evaluates on the host."""
    plan = getattr(program, "plan", None)
    if plan is None:
        return []
    found = [step.instruction for step in walk_steps(plan.steps) if isinstance(step, HostStep)]
    if not found:
        return []
    names = first_of(f"%{instruction.name}" for instruction in found)
    told = f"{len(found)} of {program.kernels} kernels are run by the interpreter"
    return [f"{told}, not by the device: {names}"]


def on_selection(program: Program) -> list[str]:
    """What the choice of a device's kernels has to say: a stale lock file, a kernel found wrong."""
    prepared = getattr(program, "prepared", None)
    return [] if prepared is None else prepared.notes


def on_functions(module: Module, device: str, *, exact: bool) -> list[str]:
    """Where results differ: what of it the functions of a processor's own may be to blame for."""
    if exact or device not in ("cpu", "native"):
        return []
    found = next((one for part in module for one in part if one.opcode in QUICK), None)
    if found is None:
        return []
    said = (
        f"f32 functions such as {found.opcode} are off by some units in the last place on {device}"
    )
    return [
        f"{said}, which a long loop makes large: --device cpu --exact computes them as the interpreter does"
    ]


def open_numbers(module: Module, expected: Sequence[Any] | None) -> list[str]:
    """A word about expected results of a module that draws numbers as it likes."""
    drawn = (one for computation in module for one in computation if one.opcode == "rng")
    first = next(drawn, None)
    if expected is None or first is None:
        return []
    return [
        f"XLA leaves open what rng draws ({first.name}): expected results may rest on other numbers"
    ]


def check_memory(module: Module, name: str, participants: int) -> int:
    """The most bytes alive at once.

    Raises ``UnsupportedError`` for what cannot fit: the system would end the process without a word.
    """
    limit, needed = memory_limit(), bytes_alive(module, participants)
    if limit is not None and needed > limit:
        raise UnsupportedError(
            f"this needs {byte_size(needed)} of memory at once, {byte_size(limit)} can be had",
            name=name,
        )
    return needed
