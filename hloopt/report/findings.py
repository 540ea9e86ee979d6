"""The paragraphs of ``hloopt why``: what costs, why, what changes it, and what that gave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from textwrap import fill
from typing import Final

from rich.console import Console

from hloopt.findings import (
    KINDS,
    ContendedScatter,
    Finding,
    Findings,
    Gain,
    GainlessChange,
    KernelShare,
    LinkedCollectives,
    LoopBuffer,
    MeasuredGain,
    ReducedDot,
    RefusedArray,
)
from hloopt.findings.both_arms import RowChoice
from hloopt.findings.full_sorts import MAY_CALL_CUB
from hloopt.findings.peak import WrittenArrays
from hloopt.findings.whole_sorts import WholeSort
from hloopt.numbers import amount, byte_size, seconds
from hloopt.report.console import TableColumn, paragraph, records_table, say, show_name, table
from hloopt.report.fit import FittedTable
from hloopt.report.rewritten import brief_shape
from hloopt.rewrite.source_lines import lines_text

__all__ = ["kinds_json", "kinds_table", "show_findings"]

_WIDTH: Final = 80
_INDENT: Final = "   "
_MUCH: Final = 1 << 20
"""Bytes of a peak from which on it is told what is alive there."""
_LINKS: Final = 6
_GAINLESS: Final = 3
"""Changes without gain that are named, those of time that come nearest to one."""
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
    for note in _notes(found):
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
    said = f"gain ({gain.how}): {_figure(gain, gain.before)} -> {_figure(gain, gain.after)}"
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


def _figure(gain: Gain | GainlessChange, value: float) -> str:
    if gain.measure == "time":
        return seconds(value)
    if gain.measure == "memory":
        return byte_size(round(value))
    return f"{amount(round(value))} {gain.unit}"


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


def _notes(found: Findings) -> Iterator[str]:
    if found.peak_bytes >= _MUCH:
        yield f"- {_peak_text(found)}"
    if found.peak.written is not None:
        yield f"- {_written_text(found.peak.written)}"
    said = {row.instruction for row in found.rows if row.kind == "loop-copy"}
    for one in found.loops:
        if one.loop not in said:
            yield f"- {_loop_text(one)}"
    for array in found.arrays:
        if array.name not in said:
            yield f"- {_array_text(array)}"
    if found.reduced is not None:
        yield f"- {_reduced_text(found.reduced)}"
    for scatter in found.scatters:
        if scatter.name not in said:
            yield f"- {_scatter_text(scatter)}"
    for sort in found.sorts:
        yield f"- {_sort_text(sort)}"
    for choice in found.choices:
        yield f"- {_choice_text(choice)}"
    for linked in found.links[:_LINKS]:
        yield f"- {_link_text(linked)}"
    nearest = sorted((row for row in found.useless if row.measure == "time"), key=_part_left)
    for change in nearest[:_GAINLESS]:
        yield f"- {_gainless_text(change)}"
    left = len(found.useless) - len(nearest[:_GAINLESS])
    if left and (found.rows or nearest):
        yield f"- {left} other change{'' if left == 1 else 's'} tried without gain"
    if found.untried:
        left = sum(found.untried.values())
        yield f"- {left} smaller candidates were not tried: a larger -n tries more"


def _part_left(row: GainlessChange) -> float:
    return row.after / row.before if row.before else 1.0


def _gainless_text(row: GainlessChange) -> str:
    """``thin-product for %dot at m.py:7: 2.6 ms -> 2.7 ms, no gain (write it as ...)``."""
    place = f" at {row.line}" if row.line else ""
    change = f"{_figure(row, row.before)} -> {_figure(row, row.after)}"
    return f"{row.kind} for %{row.instruction}{place}: {change}, {row.reason} ({row.remedy})"


def _peak_text(found: Findings) -> str:
    use = found.peak
    place = f" at {use.line}" if use.line else ""
    rows = []
    for row in use.arrays:
        kinds = "temporaries" if row.kind == "temporary" else f"{row.kind}s"
        count = f"{len(row.names)} {kinds}" if len(row.names) > 1 else f"the {row.kind}"
        named = f" %{row.names[0]}" if len(row.names) == 1 else ""
        line = f" from {row.line}" if row.line else ""
        rows.append(f"{count}{named} {row.shape}{line}, {byte_size(row.byte_size)}")
    if use.others:
        several = "s" if use.others > 1 else ""
        rows.append(f"{use.others:,} other array{several}, {byte_size(use.other_bytes)}")
    return f"most memory is needed by %{use.at}{place}, where these are alive: {'; '.join(rows)}"


def _written_text(row: WrittenArrays) -> str:
    one = len(row.names) == 1
    what = f"one array {row.shape}" if one else f"{len(row.names)} arrays {row.shape}"
    names = ", ".join(f"%{name}" for name in row.names[:4])
    more = f" and {len(row.names) - 4} more" if len(row.names) > 4 else ""
    lines = f" at {', '.join(row.lines[:4])}" if row.lines else ""
    return (
        f"the program has {what} of {byte_size(row.byte_size)}{'' if one else ' each'}{lines} ({names}{more}), "
        "which no kernel of this plan writes to memory: what keeps them apart (another version of XLA, a "
        "result, a gradient) needs the bytes; jax.lax.map(f, xs, batch_size=...) over a dimension of theirs "
        "does without"
    )


def _choice_text(row: RowChoice) -> str:
    place = f" at {row.line}" if row.line else ""
    return (
        f"%{row.name}{place} chooses {row.rows:,} rows one by one between %{row.arm} and %{row.other}, and "
        "both are computed for all of them, which is what jax.vmap makes of jax.lax.cond: a run takes "
        f"{seconds(row.seconds)}, and {seconds(row.without)} without %{row.arm}. Where few rows need it, "
        "compute it for these alone (rows = jnp.nonzero(p, size=k)[0], then y.at[rows].set(f(x[rows]))); "
        "where often none does, jax.lax.cond(p.any(), ...) around the vmap; jax.lax.map runs one row after "
        "another, each with its own branch"
    )


def _loop_text(row: LoopBuffer) -> str:
    place = f" at {row.line}" if row.line else ""
    often = f"{row.iterations:,}{'' if row.exact else '+'} times"
    text = f"%{row.loop}{place} runs {often} and updates element {row.element} of its state, {row.shape}"
    readers, several = " and ".join(row.readers), len(row.readers) > 1
    if row.copies:
        text += f", which each iteration copies: {row.writer} writes it"
        text += f" while {readers} still {'read' if several else 'reads'} it" if readers else ""
        verbs = "takes", "and moves"
    else:
        order = f"after {readers} {'have' if several else 'has'} read it"
        text += f", in place: no copy is needed, as {row.writer} "
        text += f"writes {order}" if readers else "alone reads the old value"
        verbs = "would take", "and move"
    total = row.seconds * row.iterations
    moved = byte_size(2 * row.byte_size * row.iterations)
    return f"{text}; a copy in each iteration {verbs[0]} {seconds(total)} {verbs[1]} {moved} in all"


def _reduced_text(row: ReducedDot) -> str:
    place = f" at {row.line}" if row.line else ""
    others = f" with {row.others} other dot{'' if row.others == 1 else 's'}" if row.others else ""
    widened = "" if row.shape.startswith(row.summed) else ", to which factors are converted"
    now, kept = (seconds(one) for one in row.seconds)
    return (
        f"%{row.name}{place}, a dot {row.shape}, becomes multiply and reduce{others}: "
        f"dot-strength-reduction takes it, since {row.reason}; the sum is made in {row.summed}"
        f"{widened}; the module takes {now} so and {kept} with dots "
        "(--xla_gpu_enable_dot_strength_reduction=false keeps them)"
    )


def _scatter_text(row: ContendedScatter) -> str:
    place = f" at {row.line}" if row.line else ""
    text = (
        f"%{row.name}{place} combines {row.windows:,} windows in {row.places:,} places, and those that "
        f"meet wait for each other (contention): it takes {seconds(row.seconds)} with {row.least:,} a "
        f"place, spread evenly, and {seconds(row.worst)} with all in one"
    )
    if row.native:
        text += (
            f" ({seconds(row.swapped)} where the compiler has no atomic {row.native} but compares and swaps, "
            "as jaxlib 0.10.2 to 0.11.0)"
        )
    return f"{text}; sorted by index, with indices_are_sorted=True, they are summed first and do not wait"


def _sort_text(row: WholeSort) -> str:
    place = f" at {row.line}" if row.line else ""
    kernel = f" in %{row.kernel}" if row.kernel != row.name else ""
    kernels = f" by {row.passes} kernels" if row.passes > 1 else ""
    text = (
        f"%{row.name}{place}{kernel} puts rows of {row.row:,} elements in order{kernels}: "
        f"{seconds(row.seconds)}, {row.share:.0%} of the whole, and more is read of them than a few elements "
        "at one end. XLA has no cheaper op that gives the same"
    )
    if row.top is not None:
        text += (
            f"; where 16 of each row are enough, which is another result, jax.lax.top_k(x, 16) takes "
            f"{seconds(row.top)}, and what follows has less to do"
        )
    return f"{text}. {MAY_CALL_CUB}" if row.passes > 1 else text


def _link_text(row: LinkedCollectives) -> str:
    place = f" at {row.line}" if row.line else ""
    several = "" if row.count == 1 else "s"
    return (
        f"{row.count:,}{'' if row.exact else '+'} {row.opcode}{several}{place} over {row.over}, "
        f"{byte_size(row.bytes)} in all: {seconds(row.seconds)}, an estimate by datasheets of links, without "
        "waiting for other devices"
    )


def _array_text(row: RefusedArray) -> str:
    place = f" at {row.line}" if row.line else ""
    readers = ", ".join(f"%{name}" for name in row.readers[:2])
    more = f" and {len(row.readers) - 2} more" if len(row.readers) > 2 else ""
    text = (
        f"%{row.name}{place}, {byte_size(row.byte_size)}, goes through memory from %{row.writer} to "
        f"{readers}{more}: {row.pass_name} does not fuse it into %{row.reader} ({row.code}): {row.reason}"
    )
    if row.fused is None or row.apart is None:
        return text
    if row.code not in ("slower", "triton-slower"):
        text += f"; fused {row.fused:.3g} us, apart {row.apart:.3g} us"
    if row.fused >= row.apart:
        return f"{text}; by these prices the refusal is right"
    return f"{text}; by these prices fused is faster" + (
        f": {' or '.join(row.changes)}" if row.changes else ", but no option lifts this refusal"
    )


def kinds_json() -> list[dict[str, str]]:
    """The kinds of findings, for scripts."""
    return [{"kind": kind.name, "title": kind.title, "measure": kind.measure} for kind in KINDS]


def kinds_table() -> FittedTable:
    """The kinds of findings."""
    made = table("kind", "what is found", "gain in", left=3)
    for kind in KINDS:
        made.add_row(kind.name, kind.title, kind.measure)
    return made
