"""The paragraphs of ``hloopt why``: what costs, why, what changes it, and what that gave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from textwrap import fill
from typing import Final

from rich.console import Console

from hloopt.findings import (
    KINDS,
    Finding,
    Findings,
    Gain,
    KernelShare,
    MeasuredGain,
)
from hloopt.numbers import byte_size, seconds
from hloopt.report.console import TableColumn, paragraph, records_table, say, show_name, table
from hloopt.report.finding_notes import figure, notes
from hloopt.report.fit import FittedTable
from hloopt.report.rewritten import brief_shape
from hloopt.rewrite.source_lines import lines_text

__all__ = ["kinds_json", "kinds_table", "show_findings"]

_WIDTH: Final = 80
_INDENT: Final = "   "
_VERDICTS: Final = {
    "nothing verified": "no result has a finite number, so nothing is verified",
    "not verified": "the changed module is valid HLO, its results were not compared",
}
_HOW: Final = {"model": "in the program", "flag": "XLA flag", "hloopt": "hloopt"}


def show_findings(found: Findings, console: Console, *, file: str = "") -> None:
    """Print the whole, a paragraph for each finding, and the kernels that take longest."""
    show_name(found.module, file, console)
    width = min(console.width, _WIDTH)
    launches = f"{found.launches:,} launch{'' if found.launches == 1 else 'es'}"
    planned = "as it is planned" if found.pipeline == "as given" else f"after {found.pipeline}"
    paragraph(
        console,
        f"predicted {seconds(found.seconds)} on {found.target} by {found.cost_model}, {launches}, "
        f"{byte_size(found.peak_bytes)} at the peak, {planned}",
        width,
    )
    if found.measured is not None:
        run = found.measured
        runs = "1 run" if run.runs == 1 else f"{run.runs:,} runs"
        paragraph(
            console,
            f"measured {seconds(run.run_seconds)} a run: {runs} of {run.program.label}, "
            f"{run.share(run.joined):.0%} of it joined to kernels of this plan; findings are ranked by it",
            width,
        )
    for number, row in enumerate(found.rows, 1):
        console.print()
        _show(number, row, console, width)
    if not found.rows:
        console.print()
        paragraph(console, _nothing(found), width)
    if found.kernels:
        console.print()
        console.print(_kernels(found.kernels, measured=found.measured is not None))
    for note in notes(found):
        paragraph(console, note, width)


def _show(number: int, row: Finding, console: Console, width: int) -> None:
    place = f" at {lines_text(row.lines)}" if row.lines else ""
    _headline(console, f"{number}. {row.title}{place}", width)
    for text in _sentences(row):
        paragraph(console, text, width, _INDENT)


def _headline(console: Console, text: str, width: int) -> None:
    lines = fill(
        text, width, subsequent_indent=_INDENT, break_on_hyphens=False, break_long_words=False
    )
    say(console, (lines, "bold"))


def _sentences(row: Finding) -> Iterator[str]:
    name = f"%{row.instruction} ({row.opcode} {brief_shape(row.shape)})"
    yield f"{name}{f', {row.op_name}' if row.op_name else ''}"
    if row.cost.seconds:
        cost = row.cost
        launches = f"{cost.launches:,}{'' if cost.exact else '+'}"
        measured = "" if cost.measured is None else f"measured {seconds(cost.measured)}, predicted "
        # A change may leave most kernels of a loop as they are, and change those of others.
        costs = "its kernels that would change cost" if row.opcode == "while" else "costs"
        if cost.mostly_beside:
            costs = "it and the kernels around it that would change cost"
        yield (
            f"{costs} {measured}{seconds(cost.seconds)} ({cost.share:.0%} of the whole), "
            f"{byte_size(cost.bytes)}, {launches} launch{'' if cost.launches == 1 else 'es'}, "
            f"bound by {cost.bound}"
        )
    yield row.why
    if row.others:
        shown = ", ".join(f"%{name}" for name in row.others[:3])
        more = f" and {len(row.others) - 3} more" if len(row.others) > 3 else ""
        yield f"with it: {shown}{more}"
    for remedy in row.remedies:
        yield f"{_HOW[remedy.way]}: {remedy.text}"
    yield _gain_text(row.gain)
    if row.gain.measured is not None:
        yield _measured_text(row.gain.measured)


def _gain_text(gain: Gain) -> str:
    """``gain: 2.14 ms -> 95 us (predicted); results within tolerance``."""
    said = f"gain ({gain.how}): {figure(gain, gain.before)} -> {figure(gain, gain.after)}"
    if gain.measure == "time" and gain.after:
        said += f", {_ratio(gain.before / gain.after)} times as fast"
    elif gain.measure != "time":
        before, after = gain.seconds
        said += f"; a run takes {seconds(after)}" + (
            f" instead of {seconds(before)}"
            if abs(after - before) > 0.005 * before
            else " as before"
        )
    reason = f" ({gain.reason})" if gain.reason else ""
    part = f"; priced with {gain.part} instructions around it" if gain.part else ""
    verdict = _VERDICTS.get(gain.verdict, f"results {gain.verdict}")
    return f"{said}{part}; {verdict}{reason}"


def _measured_text(real: MeasuredGain) -> str:
    if real.reason:
        return f"not measured on {real.device}: {real.reason}"
    times = f"{seconds(real.before)} -> {seconds(real.after)}"
    if real.gains:
        return f"gain (measured on {real.device}): {times}, {_ratio(real.before / real.after)} times as fast"
    slower = real.is_sure and real.after > real.before
    why = "it is slower" if slower else "the runs differ by no more than their own spread"
    return f"no gain when measured on {real.device}: {times}; {why}"


def _ratio(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _nothing(found: Findings) -> str:
    tried = len(found.useless)
    if not tried:
        return "nothing found that could be changed"
    return f"nothing found that gains: {tried} change{'' if tried == 1 else 's'} tried"


def _kernels(rows: Iterable[KernelShare], *, measured: bool) -> FittedTable:
    real = (TableColumn("measured", "measured_seconds", _maybe),) if measured else ()
    columns = (
        TableColumn("longest kernels", "name"),
        TableColumn("from", "line"),
        TableColumn("bound by", "bound"),
        TableColumn("launches", "launches"),
        *real,
        TableColumn("predicted" if measured else "time", "seconds", seconds),
        *(() if measured else (TableColumn("share", "share", "{:.0%}".format),)),
    )
    return records_table(columns, (row.to_json() for row in rows), left=3)


def _maybe(value: float | None) -> str:
    return "" if value is None else seconds(value)


def kinds_json() -> list[dict[str, str]]:
    """The kinds of findings, for scripts."""
    return [{"kind": kind.name, "title": kind.title, "measure": kind.measure} for kind in KINDS]


def kinds_table() -> FittedTable:
    """The kinds of findings."""
    made = table("kind", "what is found", "gain in", left=3)
    for kind in KINDS:
        made.add_row(kind.name, kind.title, kind.measure)
    return made
