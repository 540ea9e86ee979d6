"""The tables of ``hloopt stats --target``: how long each kernel will take, and what bounds it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias, get_args

from rich.console import Console

from hloopt.cost_models.model import Bound
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import ROOFLINE
from hloopt.kernels.costs import KernelCost
from hloopt.numbers import byte_size, seconds
from hloopt.report.console import TableColumn, records_table, say, table
from hloopt.report.fit import FittedTable
from hloopt.report.fusion_diff import computes
from hloopt.rewrite.source_lines import lines_text

__all__ = ["By", "iteration_notes", "prediction_json", "show_prediction", "sum_word"]

By: TypeAlias = Literal["kernel", "source", "opcode"]
_BOUNDS = get_args(Bound)


def prediction_json(predictor: Predictor, rows: Sequence[KernelCost]) -> dict[str, Any]:
    """Times in seconds; those of a kernel are of one launch, ``total_seconds`` of all that count."""
    whole = sum(row.seconds for row in rows)
    return {
        "target": predictor.target.name,
        "calibrated": predictor.target.calibrated,
        "cost_model": predictor.model.name,
        "seconds": whole,
        "launches": sum(row.counted for row in rows),
        "launches_known": all(row.known for row in rows),
        "launches_bounded": all(row.bounded for row in rows),
        "seconds_by_bound": _by_bound(rows),
        "kernels": [_kernel_json(row, whole) for row in _longest_first(rows)],
        "sources": [_sum_json(name, group, whole) for name, group in _grouped(rows, "source")],
        "opcodes": [_sum_json(name, group, whole) for name, group in _grouped(rows, "opcode")],
    }


def _kernel_json(row: KernelCost, whole: float) -> dict[str, Any]:
    found = row.prediction
    assert found is not None, "rows of a prediction"
    home = row.instruction.computation
    return {
        "name": row.instruction.name,
        "opcode": _opcode(row),
        "computation": home.name if home is not None else "",
        "line": row.line,
        "lines": list(row.lines),
        "launches": row.launches,
        "launches_counted": row.counted,
        "launches_known": row.known,
        "launches_bounded": row.bounded,
        "by": found.by,
        "bound": found.bound,
        "seconds": found.seconds,
        "total_seconds": row.seconds,
        "share": _share(row.seconds, whole),
        "read_seconds": found.read_seconds,
        "write_seconds": found.write_seconds,
        "compute_seconds": found.compute_seconds,
        "blocks": found.blocks or None,
        "threads": found.threads or None,
        "coalesced": found.coalesced,
        "bytes_read": row.cost.bytes_read,
        "bytes_written": row.cost.bytes_written,
        "flops": row.cost.flops,
        "transcendentals": row.cost.transcendentals,
    }


def _sum_json(name: str, rows: Sequence[KernelCost], whole: float) -> dict[str, Any]:
    spent = sum(row.seconds for row in rows)
    return {
        "name": name,
        "kernels": len(rows),
        "launches": sum(row.counted for row in rows),
        "seconds": spent,
        "share": _share(spent, whole),
    }


def show_prediction(
    rows: Sequence[KernelCost],
    predictor: Predictor,
    console: Console,
    *,
    by: By = "kernel",
    top: int = 20,
) -> None:
    """Print the ``top`` rows that take longest (0: all), the whole, and what the figures rest on."""
    target = predictor.target
    whole = sum(row.seconds for row in rows)
    launches = sum(row.counted for row in rows)
    model = predictor.model.name
    say(
        console,
        ("predicted ", "bold"),
        f"{sum_word(rows)}{seconds(whole)} on {target.title} by {model}: "
        f"{_count(launches, 'launch', 'launches')} of {_count(len(rows), 'kernel', 'kernels')}",
    )
    spent = _by_bound(rows)
    waits = [f"{_percent(spent[bound], whole)} {bound}" for bound in _BOUNDS if spent[bound]]
    if waits:
        say(console, f"bound by: {', '.join(waits)}")
    console.print()
    console.print(
        _by_kernel(rows, whole, top, model) if by == "kernel" else _sums(rows, by, whole, top)
    )
    for note in _notes(rows, predictor):
        say(console, note)


def _by_kernel(rows: Sequence[KernelCost], whole: float, top: int, model: str) -> FittedTable:
    made = table(
        "kernel",
        "computes",
        "from",
        "bound by",
        "launches",
        "bytes",
        "one",
        "all",
        "share",
        left=4,
        optional=("computes", "bytes", "one"),
    )
    ordered = _longest_first(rows)
    shown = ordered[:top] if top else ordered
    for row in shown:
        found = row.prediction
        assert found is not None, "rows of a prediction"
        bound = f"{found.bound}, uncoalesced" if not found.coalesced else found.bound
        made.add_row(
            row.instruction.name,
            computes(row.instruction),
            lines_text(row.lines),
            f"{bound}*" if found.by == ROOFLINE != model else bound,
            row.launches_text,
            byte_size(row.cost.bytes_accessed),
            seconds(found.seconds),
            seconds(row.seconds) if row.counted else "-",
            _percent(row.seconds, whole) if row.counted else "-",
        )
    rest = ordered[len(shown) :]
    if rest:
        spent = sum(row.seconds for row in rest)
        launches = str(sum(row.counted for row in rest))
        share = _percent(spent, whole)
        made.add_row(f"{len(rest)} others", "", "", "", launches, "", "", seconds(spent), share)
    return made


def _sums(rows: Sequence[KernelCost], by: By, whole: float, top: int) -> FittedTable:
    groups = [(name or "(no line)", group) for name, group in _grouped(rows, by)]
    shown = groups[:top] if top else groups
    if rest := groups[len(shown) :]:
        shown = [*shown, (f"{len(rest)} others", [row for _, group in rest for row in group])]
    columns = (
        TableColumn(by, "name"),
        TableColumn("kernels", "kernels"),
        TableColumn("launches", "launches"),
        TableColumn("time", "seconds", seconds),
        TableColumn("share", "share", "{:.1%}".format),
    )
    return records_table(columns, (_sum_json(name, group, whole) for name, group in shown))


def _notes(rows: Sequence[KernelCost], predictor: Predictor) -> Iterable[str]:
    """Notes on what the figures leave open."""
    yield from iteration_notes(rows)
    aside = sum(row.counted < row.launches for row in rows)
    if aside:
        count = _count(aside, "kernel is", "kernels are")
        yield f"- {count} in branches that are not counted: of each conditional only the longest is"
    libraries = sum(row.prediction is not None and row.prediction.by == ROOFLINE for row in rows)
    if libraries and predictor.model.name != ROOFLINE:
        count = _count(libraries, "kernel", "kernels")
        yield (
            f"* {count} the model cannot price (libraries, collectives, tiles that do not fit): "
            "bytes and flops over the rates of the device, the least they can take"
        )


def iteration_notes(rows: Sequence[KernelCost]) -> Iterable[str]:
    """What ``+`` and ``<=`` beside launches mean, as far as they occur."""
    unknown = sum(not row.bounded for row in rows)
    if unknown:
        count = _count(unknown, "kernel is", "kernels are")
        yield f"+ {count} in loops whose trip count is unknown: a lower bound, each of these loops counts once"
    most = sum(row.bounded and not row.known for row in rows)
    if most:
        count = _count(most, "kernel is", "kernels are")
        bound = "an upper bound, each of these loops counts as often as it may run"
        yield f"<= {count} in loops that may end sooner: {bound}"


def sum_word(rows: Sequence[KernelCost]) -> str:
    """``at least `` or ``at most `` before a sum over kernels; empty where all launches are known."""
    counted = [row for row in rows if row.counted]
    if all(row.known for row in counted):
        return ""
    return "at most " if all(row.bounded for row in counted) else "at least "


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


def _longest_first(rows: Iterable[KernelCost]) -> list[KernelCost]:
    return sorted(rows, key=lambda row: -row.seconds)


def _grouped(rows: Iterable[KernelCost], by: By) -> list[tuple[str, list[KernelCost]]]:
    """Rows by line or opcode, the longest group first."""
    name: Callable[[KernelCost], str] = _opcode if by == "opcode" else lambda row: row.line
    groups: dict[str, list[KernelCost]] = defaultdict(list)
    for row in rows:
        groups[name(row)].append(row)
    return sorted(groups.items(), key=lambda group: -sum(row.seconds for row in group[1]))


def _opcode(row: KernelCost) -> str:
    """The opcode; of a fusion with its kind, of a custom call with its target."""
    attributes = row.instruction.attributes
    detail = attributes.get("kind") or attributes.get("custom_call_target")
    return f"{row.instruction.opcode} {detail}" if detail else row.instruction.opcode


def _by_bound(rows: Iterable[KernelCost]) -> dict[str, float]:
    spent = dict.fromkeys(_BOUNDS, 0.0)
    for row in rows:
        if row.prediction is not None:
            spent[row.prediction.bound] += row.seconds
    return spent


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _percent(part: float, whole: float) -> str:
    return f"{_share(part, whole):.1%}"
