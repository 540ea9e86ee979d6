"""What gates say of modules, as records: shown as tables, and written as JSON, Markdown and SARIF."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from rich.console import Console

from hloopt.dataclass import dataclass
from hloopt.display import Displayed
from hloopt.report.console import say, table
from hloopt.report.fusion_diff import figure_text
from hloopt.report.gate import GateVerdict
from hloopt.report.sarif import physical_location, sarif_log
from hloopt.rewrite.source_lines import lines_text

__all__ = ["MOST_KERNELS", "CostlierKernel", "GateReport", "GatedModule"]

MOST_KERNELS: Final = 5
"""Kernels that are named for a limit that is exceeded."""

_MOST_ROWS: Final = 500
"""Rows of a Markdown table: a job's summary holds 1 MiB, and is dropped whole where it is larger."""


@dataclass(frozen=True, slots=True)
class CostlierKernel:
    """A kernel that is new, or costs more than those whose work it does.

    status   as ``KernelGroup`` has it
    others   kernels that belong to the same group, which together cost ``change`` more
    line     of its instruction in the text, 0 where it has none
    lines    of the user's program
    change   by how much the figure of the gate is larger in one run of the entry
    """

    name: str
    status: str
    others: int
    computes: str
    line: int
    lines: tuple[str, ...]
    change: float


@dataclass(frozen=True, slots=True)
class GatedModule:
    """What the gates say of one module; ``base_file`` is empty for a new one, which has no ``before``."""

    name: str
    base_file: str
    head_file: str
    line: int
    before: Mapping[str, float]
    after: Mapping[str, float]
    verdicts: tuple[GateVerdict, ...]
    costlier: Mapping[str, tuple[CostlierKernel, ...]]

    @property
    def exceeded(self) -> list[GateVerdict]:
        """The gates that do not let it pass."""
        return [one for one in self.verdicts if not one.passed]

    @property
    def changed(self) -> bool:
        """Whether a figure that has a gate is another than before."""
        return any(one.before != one.after for one in self.verdicts)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "module": self.name,
            "base_file": self.base_file or None,
            "head_file": self.head_file or None,
            "before": dict(self.before) or None,
            "after": dict(self.after),
            "gates": [
                {
                    "gate": one.gate.text,
                    "figure": one.gate.figure,
                    "before": self.before.get(one.gate.figure),
                    "after": one.after,
                    "limit": one.limit,
                    "passed": one.passed,
                }
                for one in self.verdicts
            ],
            "costlier": {
                figure: [
                    {
                        "kernel": row.name,
                        "status": row.status,
                        "others": row.others,
                        "computes": row.computes,
                        "line": row.line,
                        "lines": list(row.lines),
                        "change": row.change,
                    }
                    for row in rows
                ]
                for figure, rows in self.costlier.items()
            },
        }


@dataclass(frozen=True, slots=True)
class GateReport(Displayed):
    """What gates say of the modules of one side beside those of another.

    modules  those after, each with its partner; one row of sums where these were judged
    gone     files of modules that only the side before has
    device   whose times were predicted, empty without any
    """

    modules: tuple[GatedModule, ...]
    gone: tuple[str, ...]
    device: str = ""

    @property
    def exceeded(self) -> list[GatedModule]:
        """The modules that do not pass."""
        return [one for one in self.modules if one.exceeded]

    @property
    def passed(self) -> bool:
        """Whether no gate is exceeded."""
        return not self.exceeded

    @property
    def summary(self) -> str:
        """One line: how many modules there are, and how many cost more than they may."""
        count, bad = len(self.modules), len(self.exceeded)
        modules = f"{count} modules" if count != 1 else "1 module"
        if not bad:
            return f"{modules} within the limits"
        if count == 1:
            return "a limit is exceeded"
        return f"{bad} of {modules} {'exceed' if bad > 1 else 'exceeds'} a limit"

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "passed": self.passed,
            "device": self.device or None,
            "modules": [one.to_json() for one in self.modules],
            "gone": list(self.gone),
        }

    def show(self, console: Console) -> None:
        """Print the modules whose figures changed, and the kernels that cost more where a limit is exceeded."""
        shown = sorted((one for one in self.modules if one.changed or one.exceeded), key=_worst)
        if shown:
            made = table("module", "gate", "before", "after", "limit", "", left=2)
            for one in shown:
                name = one.name
                for cells in _verdict_cells(one):
                    made.add_row(name, *cells)
                    name = ""
            console.print(made)
        for one in shown:
            for figure, rows in one.costlier.items():
                say(console, f"\n{_place(one)}: largest increases of {figure}")
                for row in rows:
                    say(console, f"  {_kernel_text(figure, row)}")
        for file in self.gone:
            say(console, f"only before: {file}")
        say(console, ("\n" if shown else "") + self.summary + self._times())

    def _times(self) -> str:
        return f"; times are predicted for {self.device}" if self.device else ""

    def markdown(self) -> str:
        """For a job's summary: a table of what changed, the worst first, and what costs more."""
        lines = [f"### hloopt gate: {_escaped(self.summary)}", ""]
        shown = sorted((one for one in self.modules if one.changed or one.exceeded), key=_worst)
        rows = [
            f"| {_escaped(one.name)} | " + " | ".join(map(_escaped, cells)) + " |"
            for one in shown
            for cells in _verdict_cells(one)
        ]
        if rows:
            lines += ["| module | gate | before | after | limit | |", "|---|---|--:|--:|--:|---|"]
            lines += rows[:_MOST_ROWS]
            left = len(rows) - _MOST_ROWS
            lines += ["", f"and {left} rows more"] if left > 0 else []
            lines.append("")
        for one in shown[: _MOST_ROWS // MOST_KERNELS]:
            for figure, kernels in one.costlier.items():
                lines += [f"**{_escaped(_place(one))}: largest increases of {figure}**", ""]
                lines += [f"- {_escaped(_kernel_text(figure, row))}" for row in kernels] + [""]
        if self.device:
            lines += [f"Times are predicted for {_escaped(self.device)}.", ""]
        return "\n".join(lines)

    def sarif(self, version: str) -> dict[str, Any]:
        """A result for each limit that a module exceeds; ``version`` is hloopt's."""
        used = dict.fromkeys(one.gate.figure for row in self.modules for one in row.verdicts)
        rules = [
            {"id": f"gate/{name}", "shortDescription": {"text": f"{name} above the limit"}}
            for name in used
        ]
        results = [_result(row, one) for row in self.exceeded for one in row.exceeded]
        return sarif_log(version, rules, results)


def _worst(row: GatedModule) -> float:
    """Sorts modules by how far they exceed a limit, in shares of it; those that pass come last."""
    shares = [(one.after - one.limit) / (abs(one.limit) or 1.0) for one in row.exceeded]
    return -max(shares, default=0.0)


def _verdict_cells(row: GatedModule) -> Iterator[tuple[str, ...]]:
    for one in row.verdicts:
        figure = one.gate.figure
        before = figure_text(figure, one.before) if row.before else "new"
        yield (
            one.gate.text,
            before,
            figure_text(figure, one.after),
            figure_text(figure, one.limit),
            "passed" if one.passed else "EXCEEDED",
        )


def _place(row: GatedModule) -> str:
    return f"{row.head_file}:{row.line}" if row.line else row.head_file or row.name


def _kernel_text(figure: str, row: CostlierKernel) -> str:
    where = f", {lines_text(row.lines)}" if row.lines else ""
    others = f" and {row.others} more" if row.others else ""
    change = figure_text(figure, row.change)
    return f"+{change}  %{row.name}{others} ({row.status}): {row.computes}{where}"


def _escaped(text: str) -> str:
    """A module's own words in Markdown, with no meaning of theirs."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~&])", r"\\\1", text.replace("\n", " "))


def _result(row: GatedModule, verdict: GateVerdict) -> dict[str, Any]:
    figure = verdict.gate.figure
    before = f"{figure_text(figure, verdict.before)} -> " if row.before else ""
    text = (
        f"{row.name}: {figure} {before}{figure_text(figure, verdict.after)}, at most "
        f"{figure_text(figure, verdict.limit)} ({verdict.gate.text})"
    )
    result: dict[str, Any] = {
        "ruleId": f"gate/{figure}",
        "kind": "fail",
        "level": "error",
        "message": {"text": text},
    }
    if row.head_file:
        place = physical_location(row.head_file, row.line)
        result["locations"] = [{"physicalLocation": place}]
        result["relatedLocations"] = [
            {
                "id": number,
                "physicalLocation": physical_location(row.head_file, kernel.line),
                "message": {"text": _kernel_text(figure, kernel)},
            }
            for number, kernel in enumerate(row.costlier.get(figure, ()), 1)
        ]
    return result
