"""How long each kernel of a program took on this CPU, beside what is predicted; and the same as a trace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from statistics import median
from typing import Any, Final

from rich.console import Console

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module
from hloopt.kernels.costs import KernelCost
from hloopt.numbers import seconds
from hloopt.profiles.trace_events import (
    PROGRAM_ID,
    TraceEvent,
    TraceMetadata,
    chrome_trace,
    held_module,
)
from hloopt.report.console import TableColumn, records_table, say
from hloopt.report.fusion_diff import computes
from hloopt.rewrite.source_lines import kernel_lines
from hloopt.runtime.timing import ClockSpan, RecordedRun, TimedStep, Timing

__all__ = ["KernelTimes"]

_MOST_ROWS: Final = 40
_NS: Final = 1e-9


@dataclass(frozen=True)
class KernelTimes:
    """What was recorded of a program's steps: kernels, library calls, loops and conditionals.

    device    ``cpu`` or ``native``; ``module`` is the one that ran there
    runs      those in which steps were timed, each with what every participant recorded
    timed     how long these took, and ``plain`` the runs of the same program without a clock
    spans     of the last run, ``left_out`` more of them were not kept
    costs     of the module's kernels, with what ``model`` predicts for native code on this processor
    """

    device: str
    module: Module
    steps: Sequence[TimedStep]
    runs: Sequence[Sequence[RecordedRun]]
    timed: Timing
    plain: Timing
    spans: Sequence[ClockSpan]
    left_out: int
    costs: Mapping[Instruction, KernelCost]
    model: str

    @property
    def participants(self) -> int:
        """How many ran the program."""
        return len(self.runs[-1])

    @property
    def busy(self) -> float:
        """Seconds of a run in steps, of all participants together: the median."""
        return median(sum(sum(one.own) for one in run) for run in self.runs) * _NS

    @property
    def overhead(self) -> float:
        """What the clock added to a run, as a part of one without it: of the shortest ones, at least 0."""
        return max(self.timed.least / self.plain.least - 1.0, 0.0) if self.plain.least else 0.0

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The JSON of each step that ran, what takes longest in a run first."""
        found = [
            self._json(number, step)
            for number, step in enumerate(self.steps)
            if any(one.executions[number] for run in self.runs for one in run)
        ]
        whole = sum(row["seconds"] for row in found) or 1.0
        for row in found:
            row["share"] = row["seconds"] / whole
        return sorted(found, key=lambda row: -float(row["seconds"]))

    def _json(self, number: int, step: TimedStep) -> dict[str, Any]:
        taken = [one.own[number] * _NS for run in self.runs for one in run]
        entry, last = step.instruction, self.runs[-1][0]
        costs = [self.costs[one] for one in step.instructions if one in self.costs]
        predicted = sum(cost.seconds for cost in costs) or None
        home = entry.computation
        return {
            "name": entry.name,
            "with": [one.name for one in step.instructions[:-1]],
            "computation": home.name if home is not None else None,
            "opcode": entry.opcode,
            "computes": computes(entry),
            "kernel": step.kernel,
            "lines": list(self._lines(step)),
            "executions": last.executions[number],
            "iterations": last.iterations[number] or None,
            "seconds": median(taken),
            "most_seconds": max(taken),
            "least_seconds": min(taken),
            "share": 0.0,
            "predicted_seconds": predicted,
            "ratio": median(taken) / predicted if predicted else None,
            "bytes": sum(cost.cost.bytes_accessed for cost in costs) if costs else None,
            "flops": sum(cost.cost.flops for cost in costs) if costs else None,
        }

    def _lines(self, step: TimedStep) -> Sequence[str]:
        """The lines of the user's program: the kernel's own first, then those of what is computed with it."""
        found: dict[str, None] = {}
        for entry in reversed(step.instructions):
            cost = self.costs.get(entry)
            lines = cost.lines if cost is not None else kernel_lines(self.module, entry)
            found.update(dict.fromkeys(lines))
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """Times in seconds: of a run without the clock, with it, in steps; bytes and flops of one execution."""
        return {
            "device": self.device,
            "runs": len(self.runs),
            "participants": self.participants,
            "seconds": self.plain.median,
            "timed_seconds": self.timed.median,
            "busy": self.busy,
            "overhead": self.overhead,
            "cost_model": self.model,
            "kernels": self.rows,
            "sources": self._sources(),
        }

    def _sources(self) -> list[dict[str, Any]]:
        """Sums by the first line of the user's program, the longest first."""
        groups: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in self.rows:
            groups[next(iter(row["lines"]), "")].append(row)
        found = [
            {
                "name": name,
                "kernels": len(rows),
                "seconds": sum(row["seconds"] for row in rows),
                "share": sum(row["share"] for row in rows),
            }
            for name, rows in groups.items()
        ]
        return sorted(found, key=lambda row: -row["share"])

    def show(self, console: Console) -> None:
        """Print a row a kernel, what takes longest in a run first, and how the times were taken."""
        console.print()
        shown = self.rows[:_MOST_ROWS]
        joined = any(row["with"] for row in shown)
        columns = [one for one in _COLUMNS if one.heading != "with" or joined]
        optional = ("computes", "with", "ratio", "times", "kernel")
        left = 4 + joined
        console.print(records_table(columns, shown, left=left, optional=optional))
        for line in self._notes():
            say(console, line)

    def _notes(self) -> Iterator[str]:
        left = len(self.rows) - _MOST_ROWS
        if left > 0:
            share = sum(row["share"] for row in self.rows[_MOST_ROWS:])
            yield f"others, {left}: {share:.1%} (--json has all)"
        count = "1 run" if len(self.runs) == 1 else f"{len(self.runs)} runs"
        added = f"the clock adds {self.overhead:.0%}" if self.overhead >= _SLIGHT else "no slower"
        yield (
            f"{seconds(self.busy)} of {seconds(self.timed.median)} a run are in kernels; {count} with a clock "
            f"around each, {seconds(self.plain.median)} without: {added}"
        )
        yield f"predicted: native code on this processor, by the model {self.model}"
        if self.participants > 1:
            yield (
                f"measured is the median of {self.participants} participants, each while it runs itself"
            )

    def trace(self) -> dict[str, object]:
        """The last run for Perfetto: the JSON of Chrome's trace events; XLA has the same names for ``args``."""
        begin = min((span.begin for span in self.spans), default=0)
        events = [self._event(span, begin) for span in self.spans]
        events.sort(key=lambda event: (event.start, -event.seconds))
        metadata = TraceMetadata(
            self.module.name,
            PROGRAM_ID,
            held_module(self.module),
            self.left_out,
            self._times() if self.left_out else (),
        )
        return chrome_trace(events, f"hloopt, {self.device}", metadata)

    def _times(self) -> list[tuple[str, int, int, float]]:
        return [
            (step.instruction.name, participant, one.executions[number], one.own[number] * _NS)
            for participant, one in enumerate(self.runs[-1])
            for number, step in enumerate(self.steps)
            if one.executions[number]
        ]

    def _event(self, span: ClockSpan, begin: int) -> TraceEvent:
        step = self.steps[span.step]
        row = f"participant {span.participant}" if self.participants > 1 else self.device
        times = (span.begin - begin) * _NS, (span.end - span.begin) * _NS
        if span.is_iteration:
            arguments: dict[str, str | int | float] = {"loop": step.instruction.name}
            return TraceEvent("iteration", *times, "iteration", row, arguments)
        arguments = {**self._arguments[span.step], "device_ordinal": span.participant}
        return TraceEvent(step.instruction.name, *times, step.kernel, row, arguments)

    @cached_property
    def _arguments(self) -> list[dict[str, str | int | float]]:
        """What a click on each step shows."""
        found = []
        for step in self.steps:
            entry = step.instruction
            fields = entry.metadata.fields if entry.metadata is not None else {}
            costs = [self.costs[one] for one in step.instructions if one in self.costs]
            given: dict[str, str | int | float] = {
                "hlo_op": entry.name,
                "hlo_module": self.module.name,
                "program_id": PROGRAM_ID,
                "run_id": len(self.runs),
                "kernel": step.kernel,
                "source": next(iter(self._lines(step)), ""),
                "tf_op": str(fields.get("op_name", "")),
                "with": ", ".join(one.name for one in step.instructions[:-1]),
            }
            if costs:
                given["bytes_accessed"] = sum(cost.cost.bytes_accessed for cost in costs)
                given["flops"] = sum(cost.cost.flops for cost in costs)
            found.append({key: value for key, value in given.items() if value != ""})
        return found


_SLIGHT: Final = 0.01


def _kernel(row: Mapping[str, Any]) -> str:
    count = row["iterations"]
    kernel = row["opcode"] if row["kernel"] == "numpy" else row["kernel"]
    return f"{kernel} of {count}" if count else str(kernel)


def _maybe(value: float | None) -> str:
    return "" if value is None else seconds(value)


_COLUMNS: Final = (
    TableColumn("instruction", "name"),
    TableColumn("with", "with", ", ".join),
    TableColumn("computes", "computes"),
    TableColumn("kernel", "", _kernel),
    TableColumn("from", "lines", lambda lines: next(iter(lines), "")),
    TableColumn("times", "executions"),
    TableColumn("measured", "seconds", seconds),
    TableColumn("predicted", "predicted_seconds", _maybe),
    TableColumn("ratio", "ratio", lambda value: "" if value is None else f"{value:.3g}x"),
    TableColumn("share", "share", "{:.1%}".format),
)
