"""Measured times of a module's instructions, beside what a cost model predicts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from hloopt.analysis.measured import JoinedTimes, MeasuredInstruction, join, joined_times
from hloopt.cost_models.predictor import Predictor
from hloopt.dataclass import dataclass
from hloopt.ir import Module
from hloopt.kernels.costs import KernelCost, kernel_costs
from hloopt.numbers import seconds
from hloopt.profiles import read_profile
from hloopt.profiles.spans import ProgramTimes, TraceProfile
from hloopt.report.console import TableColumn, records_table, say
from hloopt.report.fusion_diff import computes
from hloopt.report.prediction import By
from hloopt.rewrite.source_lines import kernel_lines, lines_text
from hloopt.spelling import first_of

__all__ = ["MeasuredTimes", "held_modules", "measured", "measured_times", "read_profile"]

_MOST_LISTED: Final = 10
_MOST_NAMES: Final = 5


@dataclass(frozen=True)
class MeasuredTimes:
    """What a trace says of a module, and what a cost model does; ``model`` is empty without one.

    costs  of the kernels of the module, by instruction
    """

    measured: JoinedTimes
    costs: Mapping[Any, KernelCost]
    model: str = ""
    target: str = ""

    def to_json(self) -> dict[str, Any]:
        """Times in seconds: ``seconds`` of a run, ``total_seconds`` of all."""
        found = self.measured
        return {
            "trace": found.trace,
            "program": found.program.name,
            "program_id": found.program.number or None,
            "runs": found.runs,
            "seconds": found.run_seconds,
            "total_seconds": found.total,
            "joined": found.share(found.joined),
            "joined_by": {way: found.share(rows) for way, rows in self._ways().items()},
            "module_in_trace": found.held,
            "cost_model": self.model or None,
            "target": self.target or None,
            "kernels": self.rows(),
            "sources": self._sums("source"),
            "opcodes": self._sums("opcode"),
            "not_joined": [self._json(row) for row in found.rest],
            "not_measured": [row.instruction.name for row in self._missing()],
        }

    def rows(self, names: Iterable[str] = ()) -> list[dict[str, Any]]:
        """The JSON of the joined rows; of those that ``names`` mean, here or in the trace, where it has any."""
        wanted = frozenset(names)
        return [
            self._json(row)
            for row in self.measured.joined
            if not wanted or wanted & {row.name, *row.names}
        ]

    def _json(self, row: MeasuredInstruction) -> dict[str, Any]:
        entry = row.instruction
        cost = self.costs.get(entry) if entry is not None else None
        predicted = cost.seconds if cost is not None and cost.prediction is not None else None
        home = entry.computation if entry is not None else None
        return {
            "name": row.name,
            "computation": home.name if home is not None else None,
            "opcode": entry.opcode if entry is not None else None,
            "computes": computes(entry) if entry is not None else "",
            "lines": list(self._lines(row)),
            "in_trace": list(row.names),
            "joined_by": row.way or None,
            "runs": len(row.seconds),
            "executions": row.executions,
            "seconds": row.median,
            "most_seconds": max(row.seconds),
            "total_seconds": row.total,
            "share": self.measured.share([row]),
            "predicted_seconds": predicted,
            "ratio": row.median / predicted if predicted else None,
        }

    def _lines(self, row: MeasuredInstruction) -> Sequence[str]:
        entry = row.instruction
        if entry is None:
            return ()
        cost = self.costs.get(entry)
        return cost.lines if cost is not None else kernel_lines(self.measured.module, entry)

    def _ways(self) -> dict[str, list[MeasuredInstruction]]:
        ways: defaultdict[str, list[MeasuredInstruction]] = defaultdict(list)
        for row in self.measured.joined:
            ways[row.way].append(row)
        return dict(ways)

    def _missing(self) -> list[KernelCost]:
        """Kernels of the module that the trace does not have."""
        seen = {row.instruction for row in self.measured.joined}
        return [cost for entry, cost in self.costs.items() if entry not in seen and cost.counted]

    def _sums(self, by: By) -> list[dict[str, Any]]:
        """Sums by line of the user's program or by opcode, the longest first."""
        groups: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in self.rows():
            name = row["opcode"] if by == "opcode" else next(iter(row["lines"]), "")
            groups[name].append(row)
        found = []
        for name, rows in groups.items():
            predictions = [row["predicted_seconds"] for row in rows]
            spent = sum(row["seconds"] for row in rows)
            predicted = None if None in predictions else sum(predictions)
            found.append(
                {
                    "name": name,
                    "kernels": len(rows),
                    "seconds": spent,
                    "share": sum(row["share"] for row in rows),
                    "predicted_seconds": predicted,
                    "ratio": spent / predicted if predicted else None,
                }
            )
        return sorted(found, key=lambda row: -row["share"])

    # ---- shown --------------------------------------------------------------------------------------

    def show(self, console: Console, *, by: By = "kernel", top: int = 20) -> None:
        """Print the ``top`` rows that took longest (0: all), what was not joined, and what that means."""
        found = self.measured
        runs = "1 run" if found.runs == 1 else f"{found.runs} runs"
        say(
            console,
            ("measured ", "bold"),
            f"{seconds(found.run_seconds)} a run: {runs} of {found.program.label}",
        )
        ways = {_WAYS[way]: f"{found.share(rows):.0%}" for way, rows in self._ways().items()}
        parts = ", ".join(f"{share} {way}" for way, share in ways.items())
        say(console, f"joined to instructions: {parts or 'nothing'}")
        console.print()
        if found.joined:
            self._show_table(console, by, top)
        rest = found.rest[:_MOST_LISTED]
        if rest:
            more = len(found.rest) - len(rest)
            title = f"not joined: {found.share(found.rest):.1%} of the measured time"
            title += f"; {more} more, each of them shorter" if more else ""
            say(console, f"\n{title}" if found.joined else title)
            console.print(records_table(_REST, map(self._json, rest)))
        for note in self._notes():
            say(console, note)

    def show_named(self, console: Console, *, names: Iterable[str] = ()) -> None:
        """Print what was measured of what ``names`` mean, here or in the trace; without any, of the longest."""
        wanted = sorted(names)
        rows = self.rows(wanted)
        if not rows:
            say(console, f"measured: {self.measured.trace} has nothing of {', '.join(wanted)}")
            return
        say(console, ("measured ", "bold"), f"in {self.measured.trace}")
        kept = [column for column in _KERNELS if column.heading not in _PREDICTED]
        shown = rows if wanted else rows[:_MOST_LISTED]
        console.print(records_table(kept, shown, left=3, optional=("times", "computes", "longest")))

    def _show_table(self, console: Console, by: By, top: int) -> None:
        rows = self.rows() if by == "kernel" else self._sums(by)
        shown = rows[:top] if top else rows
        columns: Sequence[TableColumn] = _KERNELS
        left = 3
        if by != "kernel":
            columns, left = (TableColumn(by, "name", lambda name: name or "(no line)"), *_SUMS), 1
        optional = ("times", "computes", "longest")
        kept = columns if self.model else [one for one in columns if one.heading not in _PREDICTED]
        console.print(records_table(kept, shown, left=left, optional=optional))
        if len(shown) < len(rows):
            share = sum(row["share"] for row in rows[len(shown) :])
            say(console, f"others, {len(rows) - len(shown)}: {share:.1%} (--top 0 lists all)")

    def _notes(self) -> Iterator[str]:
        found = self.measured
        if self.model:
            yield f"predicted for {self.target} by {self.model}: all launches of a run, as measured"
        loops = [
            row for row in found.joined if row.instruction and row.instruction.opcode == "while"
        ]
        if found.share(loops) > _LEAST_GAPS:
            names = first_of([f"%{row.name}" for row in loops], _MOST_NAMES)
            yield (
                f"- {found.share(loops):.1%} is of {names}: time in the loop during which nothing inside of it "
                "was measured, such as the gaps between its kernels"
            )
        by_name = found.share(row for row in found.rows if row.way in ("name", "kernel"))
        missing = self._missing()
        if missing and by_name > _NEARLY_ALL:
            names = first_of([row.instruction.name for row in missing], _MOST_NAMES)
            count = "1 kernel was" if len(missing) == 1 else f"{len(missing)} kernels were"
            yield f"- {count} not measured: {names}"
        if by_name > _NEARLY_ALL:
            return
        if found.held:
            yield (
                "- the trace holds the module that ran, which has its names: hloopt stats --profile "
                f"{found.trace} --module '^{found.program.name}'"
            )
        else:
            yield (
                "- instructions have these names after XLA's passes: give that module "
                "(*after_optimizations.txt)"
            )


_NEARLY_ALL: Final = 0.95
_LEAST_GAPS: Final = 0.01
_WAYS: Final = {
    "name": "by name",
    "kernel": "by the names of kernels",
    "pairing": "by pairing with the module in the trace",
    "metadata": "by op_name",
}


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}x"


def _maybe(value: float | None) -> str:
    return "" if value is None else seconds(value)


_PREDICTED: Final = frozenset({"predicted", "ratio"})
_SUMS: Final = (
    TableColumn("kernels", "kernels"),
    TableColumn("measured", "seconds", seconds),
    TableColumn("predicted", "predicted_seconds", _maybe),
    TableColumn("ratio", "ratio", _ratio),
    TableColumn("share", "share", "{:.1%}".format),
)
_KERNELS: Final = (
    TableColumn("instruction", "name"),
    TableColumn("computes", "computes"),
    TableColumn("from", "lines", lines_text),
    TableColumn("runs", "runs"),
    TableColumn("times", "executions"),
    TableColumn("median", "seconds", seconds),
    TableColumn("longest", "most_seconds", seconds),
    *_SUMS[2:],
)
_REST: Final = (
    TableColumn("in the trace", "name"),
    TableColumn("runs", "runs"),
    TableColumn("median", "seconds", seconds),
    TableColumn("share", "share", "{:.1%}".format),
)


def measured_times(measured: JoinedTimes, predictor: Predictor | None = None) -> MeasuredTimes:
    """The record of what was measured, with the times that ``predictor`` gives for the same kernels."""
    found = kernel_costs(measured.module, predictor)
    costs = {row.instruction: row for row in found}
    if predictor is None:
        return MeasuredTimes(measured, costs)
    return MeasuredTimes(measured, costs, predictor.model.name, predictor.target.name)


def held_modules(profile: TraceProfile) -> Sequence[ProgramTimes]:
    """The programs of a trace that were measured and whose modules it holds."""
    return [program for program in profile.programs if program.module]


def measured(
    module: Module,
    profile: TraceProfile | str | Path,
    predictor: Predictor | None = None,
    program: ProgramTimes | None = None,
) -> MeasuredTimes:
    """What a trace says of a module's instructions.

    ``program`` is the trace's that ran it, where that is known.  The module has to be as it was read.

    Raises what ``read_profile`` raises, and ``ParseError`` for a module in the trace that cannot be read.
    """
    if not isinstance(profile, TraceProfile):
        profile = read_profile(profile)
    if program is not None:
        return measured_times(join(module, profile, program, module), predictor)
    return measured_times(joined_times(module, profile), predictor)
