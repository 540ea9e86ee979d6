"""What a pipeline did: seconds by pass, and how often each rule applied."""

from __future__ import annotations

from rich.console import Console

from hloopt.numbers import seconds
from hloopt.report.console import messages, table
from hloopt.rewrite import PipelineReport

__all__ = ["show_pipeline"]


def show_pipeline(report: PipelineReport, *, times: bool, hits: bool) -> None:
    """On stderr: seconds by pass, and how often each rule applied."""
    if times:
        _show_times(report, messages())
    if hits:
        _show_hits(report, messages())


def _show_times(report: PipelineReport, console: Console) -> None:
    """Seconds by pass, all runs together, slowest first."""
    total = report.seconds()
    runs = {name: [run for run in report.runs if run.instance.name == name] for name in total}
    made = table("pass", "time", "share", "runs", "changed")
    whole = sum(total.values()) or 1.0
    for name, spent in sorted(total.items(), key=lambda pair: -pair[1]):
        changed = sum(run.changed for run in runs[name])
        made.add_row(
            name, seconds(spent), f"{spent / whole:.0%}", str(len(runs[name])), str(changed)
        )
    made.add_row("all", seconds(whole), "", str(len(report.runs)), "")
    console.print(made)


def _show_hits(report: PipelineReport, console: Console) -> None:
    """How often each rule or step applied, by pass."""
    made = table("pass", "rule", "hits", left=2)
    for name, hits in report.hits().items():
        for rule, count in hits.most_common():
            made.add_row(name, rule, str(count))
    before, after = report.instructions_before, report.instructions_after
    console.print(made if made.row_count else "no rewrites")
    console.print(f"instructions: {before} before, {after} after")
