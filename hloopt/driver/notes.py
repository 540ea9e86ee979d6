"""What a run notes beside its table: memory, what the interpreter evaluates, what XLA leaves open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hloopt.analysis.liveness import peak
from hloopt.backends.numpy.quick_math import QUICK
from hloopt.errors import UnsupportedError
from hloopt.ir import Module
from hloopt.kernels.plan import HostStep, walk_steps
from hloopt.report.numbers import byte_size
from hloopt.runtime.comparison import not_finite
from hloopt.runtime.memory import memory_limit
from hloopt.spelling import first_of

if TYPE_CHECKING:
    from hloopt.driver.options import RunOptions
    from hloopt.driver.reference import Outputs
    from hloopt.report.run import RunReport
    from hloopt.runtime.program import Program

__all__ = [
    "bytes_alive",
    "check_memory",
    "on_amended",
    "on_differences",
    "on_host",
    "on_not_finite",
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


def on_differences(
    module: Module, report: RunReport, options: RunOptions, *, is_fast: bool
) -> list[str]:
    """Where results differ: what else than a wrong pass may be to blame."""
    given, optimised = (
        any(not entry.passed for _, entry in report.compared(row))
        for row in [row for row in report.rows if row.timing is not None][-2:]
    )
    if given and not options.exact and options.device in ("cpu", "native"):
        found = next((one for part in module for one in part if one.opcode in QUICK), None)
        if found is not None:
            told = (
                f"f32 functions such as {found.opcode} are off by some units in the last place on "
                f"{options.device}, which a long loop makes large: --device cpu --exact computes them as the "
                "interpreter does"
            )
            return [told]
    elif optimised and not given and is_fast:
        changes = (
            "fast_math lets passes change roundings, which an ill-conditioned module makes large"
        )
        return [f"{changes}: without it every bit is kept"]
    return []


def on_not_finite(results: Outputs) -> list[str]:
    """What a reader should know who sees that all results agree."""
    counts = [not_finite(array) for arrays in results for array in arrays]
    broken = [number for number, count in enumerate(counts) if count]
    if not broken:
        return []
    first, each = broken[0], max(1, len(results[0]))
    participant = f".{first // each}" if len(results) > 1 else ""
    size = results[first // each][first % each].size
    place = f"{counts[first]} of {size} elements of out_{first % each}{participant}"
    return [f"{len(broken)} of {len(counts)} results hold NaN or infinity: {place}"]


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
