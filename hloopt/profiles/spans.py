"""What was measured: spans of time as traces have them, and their sums by program, instruction and run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final, NamedTuple, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.errors import FileError

__all__ = [
    "MODULES",
    "OPS",
    "ProgramTimes",
    "RunKey",
    "Span",
    "SpanRow",
    "SpanTimes",
    "TraceProfile",
    "program_of",
    "run_key",
    "summed",
]

OPS: Final = "XLA Ops"
"""The row of a device whose spans are instructions, whatever other rows repeat of them."""
MODULES: Final = "XLA Modules"
"""The row of a device whose spans are runs of programs."""

_MOST_SPANS: Final = 20_000_000

RunKey: TypeAlias = "int | str | None"
"""What distinguishes the runs of a program, on each device one; None in a trace that does not say."""


class Span(NamedTuple):
    """One execution of an instruction, or a kernel of it; ``start`` and ``end`` are in nanoseconds.

    ``program`` and ``number`` are the module's name and the number of its compilation, ``kernel`` the name of
    the code that ran where it is not the instruction's.  What is not known is empty.
    """

    start: float
    end: float
    instruction: str
    kernel: str = ""
    program: str = ""
    number: str = ""
    run: RunKey = None


@dataclass(frozen=True, slots=True)
class SpanRow:
    """Spans of one thread or stream, where those that others enclose are part of these."""

    name: str
    spans: list[Span]


@dataclass(slots=True)
class SpanTimes:
    """What one instruction took, without what ran inside it: seconds by run, and how often it was executed."""

    instruction: str
    kernel: str
    seconds: dict[RunKey, float] = field(default_factory=dict)
    executions: int = 0

    @property
    def total(self) -> float:
        """Seconds in all runs."""
        return sum(self.seconds.values())


@dataclass(frozen=True)
class ProgramTimes:
    """The times of one compiled program; ``module`` is its HloProto, empty where the trace has none."""

    name: str
    number: str
    times: tuple[SpanTimes, ...]
    module: bytes = b""

    @property
    def label(self) -> str:
        """What messages call it."""
        name = self.name or "(no program)"
        return f"{name}({self.number})" if self.number else name

    @property
    def total(self) -> float:
        """Seconds of all instructions in all runs."""
        return sum(row.total for row in self.times)


@dataclass(frozen=True)
class TraceProfile:
    """All programs of a trace, those that took longest first; ``form`` is xplane, nsight or chrome."""

    name: str
    form: str
    programs: tuple[ProgramTimes, ...]


def program_of(label: str) -> tuple[str, str]:
    """Name and number of ``jit_f(6)``."""
    name, bracket, number = label.rpartition("(")
    if bracket and number[-1:] == ")" and number[:-1].isdecimal():
        return name, number[:-1]
    return label, ""


def run_key(run: object, device: object) -> RunKey:
    """The run of a trace's ``run_id`` and ``device_ordinal``; either may be missing, or a text."""
    if not isinstance(run, int | str):
        return None
    return run if device in (None, 0, "0") else f"{run} on {device}"


def summed(
    name: str,
    form: str,
    devices: Iterable[Sequence[SpanRow]],
    modules: Mapping[tuple[str, str], bytes] | None = None,
) -> TraceProfile:
    """The profile of a trace from the rows of each device or process.

    ``modules`` has the HloProto of programs by name and number.  Raises ``FileError`` without any span.
    """
    found: dict[tuple[str, str], dict[tuple[str, str], SpanTimes]] = defaultdict(dict)
    count = 0
    for rows in devices:
        for row in _telling(rows):
            count += len(row.spans)
            if count > _MOST_SPANS:
                raise FileError(f"more than {_MOST_SPANS:,} spans: trace fewer runs", name=name)
            _add(row, found)
    if not found:
        raise FileError(
            "no event of this trace is of an instruction: it has neither hlo_op nor kernels",
            name=name,
        )
    known = modules or {}
    programs = [
        ProgramTimes(*key, tuple(times.values()), known.get(key, b""))
        for key, times in found.items()
    ]
    return TraceProfile(name, form, tuple(sorted(programs, key=lambda program: -program.total)))


def _telling(rows: Sequence[SpanRow]) -> list[SpanRow]:
    """The rows of a device whose spans count, each span with its program."""
    ops = [row for row in rows if row.name == OPS]
    runs = sorted(span for row in rows if row.name == MODULES for span in row.spans)
    if not ops:
        return [row for row in rows if row.name != MODULES]
    return [SpanRow(row.name, _placed(row.spans, runs)) for row in ops] if runs else ops


def _placed(spans: Sequence[Span], runs: Sequence[Span]) -> list[Span]:
    """Spans with the program and the run of the module's span that they begin in, where they name none."""
    found: list[Span] = []
    at = 0
    for span in sorted(spans):
        while at + 1 < len(runs) and runs[at + 1].start <= span.start:
            at += 1
        here = runs[at]
        if not span.program and here.start <= span.start < here.end:
            program, number = program_of(here.instruction)
            run = span.run if span.run is not None else at
            span = span._replace(program=program, number=number, run=run)
        found.append(span)
    return found


def _add(row: SpanRow, found: dict[tuple[str, str], dict[tuple[str, str], SpanTimes]]) -> None:
    """Add each span's own time, without those that it encloses, to its instruction's."""
    spans = sorted(row.spans, key=lambda span: (span.start, -span.end))
    own = [span.end - span.start for span in spans]
    around: list[int] = []
    for number, span in enumerate(spans):
        while around and spans[around[-1]].end <= span.start:
            around.pop()
        if around:
            outer = spans[around[-1]]
            own[around[-1]] -= min(span.end, outer.end) - span.start
        around.append(number)
    for span, left in zip(spans, own, strict=True):
        rows = found[span.program, span.number]
        key = span.instruction, span.kernel
        if key not in rows:
            rows[key] = SpanTimes(*key)
        times = rows[key]
        times.seconds[span.run] = times.seconds.get(span.run, 0.0) + max(left, 0.0) * 1e-9
        times.executions += 1
