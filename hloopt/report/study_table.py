"""The tables of ``hloopt study``: for each module its strategies, as many devices side by side as fit."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from hloopt.cost_models.loop_time import MODEL as LOOP_MODEL
from hloopt.dataclass import dataclass
from hloopt.report.console import say, table
from hloopt.report.study import Ratio, Study, StudyDevice, launch_text, result_text, time_text
from hloopt.study.cells import Cell
from hloopt.study.plan import ModuleRow, Strategy

__all__ = ["bought_text", "show_study"]

_GAP = 2  # columns between two columns of a table
_WORST = ("differ", "not verified", "within tolerance", "equal")


@dataclass(frozen=True)
class _Block:
    """The columns of one device; ``rows`` are the cells of its strategies."""

    device: StudyDevice
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    counts: tuple[tuple[str, str, str], ...]
    results: tuple[str, ...]
    is_timed: bool

    @property
    def width(self) -> int:
        columns = zip(self.heads, *self.rows, strict=True)
        return sum(_GAP + max(map(_columns, column)) for column in columns)


def bought_text(study: Study, cell: Cell) -> str:
    """What a step bought; empty for what is none."""
    ratio = study.bought(cell)
    return "" if ratio.value is None else str(ratio)


def show_study(study: Study, console: Console) -> None:
    """Print the tables, what went wrong, and what the figures rest on."""
    if study.title:
        console.print(Text(study.title, style="bold"), soft_wrap=True)
    for row in study.modules:
        rows = study.rows(row.name)
        if rows:
            _show_module(study, row, rows, console)
    _show_means(study, console)
    for line in study.problems():
        kind, colon, rest = line.partition(":")
        style = "red" if kind in ("differs", "failed") else "yellow"
        say(console, (kind, style), f"{colon}{rest}")
    for line in notes(study):
        console.print(Text(line, style="dim"), soft_wrap=True)


def notes(study: Study) -> list[str]:
    """What the figures are: measured where, predicted by what, ratios to what."""
    lines: list[str] = []
    if any(cell.seconds for cell in study.cells):
        lines += _about_ratios(study)
    for device, where in study.places().items():
        lines.append(f"{device}: measured, median ± median absolute deviation: {where}")
        lines += _about_times([cell for cell in study.cells if cell.device == device])
    for one in study.devices:
        if one.model:
            known = "" if one.calibrated else "; never held against measurements of such a device"
            lines.append(f"{one.name}: predicted by {one.model}: {one.title}{known}")
    if any(cell.predicted is not None and cell.predicted.loops for cell in study.cells):
        lines.append(f"* with whole loops in one kernel, which are predicted by {LOOP_MODEL}")
    open_counts = [cell.counts for cell in study.cells if cell.counts and not cell.counts.known]
    if any(not counts.bounded for counts in open_counts):
        lines.append(
            "+ launches in loops whose trip count is unknown: each of these loops counts once"
        )
    if any(counts.bounded for counts in open_counts):
        lines.append(
            "<= launches in loops that may end sooner: each of these loops counts as often as it may run"
        )
    return lines


def _about_times(cells: Sequence[Cell]) -> list[str]:
    """What is to be known of times that vary, and of ratios that are left out."""
    unsteady = [cell for cell in cells if cell.measured and cell.measured.timing.is_unsteady]
    if not unsteady:
        return []
    why = "other work competes, or runs are too short"
    count = f"{len(unsteady)} of {len(cells)}"
    return [f"{unsteady[0].device}: {count} times vary by more than a fifth: {why}"]


def _about_ratios(study: Study) -> list[str]:
    line = f"over: times as fast as '{study.baseline}' on the same device"
    if not all(study.over(cell).is_clear and study.bought(cell).is_clear for cell in study.cells):
        line += ", ~ where times overlap, or runs are fewer than three"
    if any(one.before for one in study.strategies):
        line += "; bought: over the row before"
    if any(one.whole for one in study.strategies):
        line += "; bought of a row with less: what is lost without it"
    return [line]


def _show_module(study: Study, row: ModuleRow, rows: Sequence[Strategy], console: Console) -> None:
    variant = f"  a variant of {row.variant_of}" if row.variant_of else ""
    about = f"  {row.file}" if row.file != row.name else ""
    console.print()
    say(console, (row.name, "bold"), about, variant)
    labels = [("  " if one.before or one.whole else "") + one.label for one in rows]
    there = [one for one in study.devices if not study.missing(row.name, one.name)]
    blocks = [_block(study, row.name, rows, device) for device in there]
    first = max(map(_columns, ("strategy", *labels)))
    for group in _packed(blocks, console.width - first):
        _print(group, labels, console)


def _show_means(study: Study, console: Console) -> None:
    """How much faster strategies are over all modules, where there are several."""
    means = study.means()
    if not means:
        return
    console.print()
    say(console, ("all modules", "bold"))
    heads = ("strategy", "device", "modules", "geometric mean", "least", "most")
    shown = table(*heads, left=2, optional=("modules",))
    for one in means:
        ratios = (str(Ratio(value)) for value in (one.mean, one.least, one.most))
        shown.add_row(one.strategy, one.device, str(one.modules), *ratios)
    console.print(shown)


def _block(study: Study, module: str, rows: Sequence[Strategy], device: StudyDevice) -> _Block:
    cells = [study.cell(module, one.name, device.name) for one in rows]
    is_timed = any(cell is not None and cell.way != "verified" for cell in cells)
    steps = any(one.before or one.whole for one in rows)
    heads: tuple[str, ...] = (f"{device.name}\n{device.heading.split(' by ')[0]}",)
    if is_timed:
        heads += ("\nover", *(("\nbought",) if steps else ()))
    shown: list[tuple[str, ...]] = []
    for cell in cells:
        assert cell is not None, "a strategy that is for the module has a cell for each device"
        texts: tuple[str, ...] = (time_text(cell) if is_timed else result_text(cell),)
        if is_timed:
            texts += (str(study.over(cell)),)
            texts += (bought_text(study, cell),) if steps else ()
        shown.append(texts)
    found = [cell for cell in cells if cell is not None]
    return _Block(
        device,
        heads,
        tuple(shown),
        tuple(map(launch_text, found)),
        tuple(result_text(cell) for cell in found),
        is_timed,
    )


def _packed(blocks: Sequence[_Block], width: int) -> list[list[_Block]]:
    """Devices of the same counts and results side by side, as long as they fit."""
    groups: list[list[_Block]] = []
    room = 0
    for block in blocks:
        alike = bool(groups) and _shared(groups[-1][-1]) == _shared(block)
        if not alike or block.width > room:
            groups.append([])
            room = width - _shared_width(block)
        groups[-1].append(block)
        room -= block.width
    return groups


def _shared(block: _Block) -> tuple[object, ...]:
    return block.counts, block.results, block.is_timed


def _shared_width(block: _Block) -> int:
    columns = [
        ("kernels", *(row[0] for row in block.counts)),
        ("launches", *(row[1] for row in block.counts)),
        ("bytes", *(row[2] for row in block.counts)),
        ("results", *block.results),
    ]
    return sum(_GAP + max(map(_columns, column)) for column in columns)


def _print(group: Sequence[_Block], labels: Sequence[str], console: Console) -> None:
    heads = [head for block in group for head in block.heads]
    timed = any(block.is_timed for block in group)
    made = table(
        "strategy", "kernels", "launches", "bytes", *heads, *(("results",) if timed else ())
    )
    for number, label in enumerate(labels):
        times = [text for block in group for text in block.rows[number]]
        results = (group[0].results[number],) if timed else ()
        made.add_row(label, *group[0].counts[number], *times, *results)
    console.print(made)


def _columns(text: str) -> int:
    return max(map(cell_len, text.split("\n")))
