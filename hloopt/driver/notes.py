"""The notes of a run beside its table: memory, what the interpreter evaluates, what XLA does not define."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hloopt.analysis.liveness import peak
from hloopt.backends.numpy.quick_math import QUICK
from hloopt.errors import UnsupportedError
from hloopt.ir import Module
from hloopt.kernels.plan import HostStep, walk_steps
from hloopt.numbers import byte_size
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
    "on_untried",
    "open_numbers",
]


def bytes_alive(module: Module, participants: int) -> int:
    """The most bytes alive at once, parameters included."""
    return peak(module.entry).byte_size * participants


def on_amended(filled: int, dropped: Sequence[str]) -> list[str]:
    """The notes on changes to the module before anything ran."""
    notes = []
    if filled:
        notes.append(
            f"{filled} constant{'s' * (filled != 1)} left out of the text: values are invented"
        )
    if dropped:
        names = first_of(f"%{name}" for name in dropped)
        notes.append(f"Python callbacks are left out: {names}")
    return notes


def on_host(program: Program) -> list[str]:
    """The note on instructions of a device's program that the interpreter evaluates on the host."""
    plan = getattr(program, "plan", None)
    if plan is None:
        return []
    found = [step.instruction for step in walk_steps(plan.steps) if isinstance(step, HostStep)]
    if not found:
        return []
    names = first_of(f"%{instruction.name}" for instruction in found)
    note = f"{len(found)} of {program.kernels} kernels are run by the interpreter"
    return [f"{note}, not by the device: {names}"]


def on_selection(program: Program) -> list[str]:
    """The notes of kernel selection: a stale lock file, a kernel found wrong."""
    prepared = getattr(program, "prepared", None)
    return [] if prepared is None else prepared.notes


def on_differences(
    module: Module, report: RunReport, options: RunOptions, *, is_fast: bool
) -> list[str]:
    """Where results differ: causes other than a wrong pass."""
    given, optimised = (
        any(not entry.passed for _, entry in report.compared(row))
        for row in [row for row in report.rows if row.timing is not None][-2:]
    )
    if given and not options.exact and options.device in ("cpu", "native"):
        found = next((one for part in module for one in part if one.opcode in QUICK), None)
        if found is not None:
            note = (
                f"f32 functions such as {found.opcode} are off by some units in the last place on "
                f"{options.device}, which a long loop makes large: --device cpu --rounding exact computes them "
                "as the interpreter does"
            )
            return [note]
    elif optimised and not given and is_fast:
        changes = (
            "fast_math lets passes change roundings, which an ill-conditioned module makes large"
        )
        return [f"{changes}: without it every bit is kept"]
    return []


def on_untried(report: RunReport, options: RunOptions) -> list[str]:
    """The note where two modules agree on one input, which says little of NaN, infinities and -0."""
    passed = all(entry.passed for row in report.rows for _, entry in report.compared(row))
    if options.against is None or options.inputs or not passed:
        return []
    return [f"special values were not tried ({report.inputs} only): hloopt compare tries them"]


def on_not_finite(results: Outputs, first_made: Callable[[], str]) -> list[str]:
    """The caveat where all results agree but hold NaN or infinity; ``first_made`` says where they come from."""
    counts = [not_finite(array) for arrays in results for array in arrays]
    broken = [number for number, count in enumerate(counts) if count]
    if not broken:
        return []
    first, each = broken[0], max(1, len(results[0]))
    participant = f".{first // each}" if len(results) > 1 else ""
    size = results[first // each][first % each].size
    place = f"{counts[first]} of {size} elements of out_{first % each}{participant}"
    made = first_made()
    about = f"{place}; {made}" if made else place
    return [f"{len(broken)} of {len(counts)} results hold NaN or infinity: {about}"]


def open_numbers(module: Module, expected: Sequence[Any] | None) -> list[str]:
    """The note on expected results of a module with ``rng``, whose numbers XLA does not define."""
    drawn = (one for computation in module for one in computation if one.opcode == "rng")
    first = next(drawn, None)
    if expected is None or first is None:
        return []
    return [
        f"XLA does not define the numbers of rng ({first.name}): expected results may rest on others"
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
