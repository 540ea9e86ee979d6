"""The page of ``hloopt study``: one file, no network, no scripts; bars, and the tables they are drawn from."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final
from urllib.parse import quote

from hloopt.numbers import seconds
from hloopt.report.study import (
    Study,
    StudyDevice,
    launch_text,
    result_text,
    study_json,
    time_text,
)
from hloopt.report.study_table import bought_text, notes
from hloopt.study.cells import Cell, TimeParts
from hloopt.study.plan import ModuleRow, Strategy

__all__ = ["study_page"]

_STYLE: Final = Path(__file__).with_name("study.css")
_PARTS: Final = (
    ("launch", "launches"),
    ("memory", "memory"),
    ("compute", "arithmetic"),
    ("latency", "waiting for earlier results"),
)
_MOST_AROUND: Final = 1.25
"""Times the longest bar that the lines of runs may take."""
_ABOUT_EVEN: Final = 0.02
"""A step that gains or loses less than this is shown without colour."""

_RESULTS: Final = {
    "equal": "right",
    "within tolerance": "right",
    "differ": "wrong",
    "not verified": "doubt",
}


def study_page(study: Study, made: str, texts: Mapping[tuple[str, ...], str] | None = None) -> str:
    """The whole page; ``made`` says by what and when.

    ``texts`` are the paths of optimised modules from the page's folder, by module, strategy and target.
    """
    title = escape(study.title or "A study of passes")
    modules = [row for row in study.modules if study.rows(row.name)]
    ids = {row.name: f"module-{number}" for number, row in enumerate(modules)}
    body = [
        _header(study, title, made),
        _problems(study),
        _filters(study),
        _summary(study, modules, ids),
        *(_module(study, row, ids, texts or {}) for row in modules),
        _strategies(study.strategies),
        _notes(study),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{title}</title>\n<style>\n{_STYLE.read_text()}{_hiding(study)}</style>\n"
        "</head>\n<body>\n" + "\n".join(filter(None, body)) + "\n</body>\n</html>\n"
    )


def _header(study: Study, title: str, made: str) -> str:
    counts = [
        _counted(len(study.modules), "module"),
        _counted(len(study.strategies), "strategy", "strategies"),
        _counted(len(study.devices), "device"),
    ]
    verdict = _verdict(study)
    return (
        f"<header>\n<h1>{title}</h1>\n"
        f'<p class="soft">{", ".join(counts)}. Times as fast as <b>{escape(study.baseline)}</b>. '
        f"{verdict} {escape(made)} {_download(study)}</p>\n</header>"
    )


def _download(study: Study) -> str:
    """A link that holds the file: what ``--json`` prints of the study."""
    data = b64encode(json.dumps(study_json(study)).encode()).decode().replace("/", "%2F")
    return (
        f'<a download="study.json" href="data:application/json;base64,{data}">The data (JSON)</a>'
    )


def _choices(study: Study) -> list[tuple[str, list[tuple[str, str]]]]:
    """What may be hidden: a heading, and a class with its label each."""
    groups = [
        ("devices", [(f"d{number}", one.name) for number, one in enumerate(study.devices)]),
        ("strategies", [(f"s{number}", one.name) for number, one in enumerate(study.strategies)]),
    ]
    return [group for group in groups if len(group[1]) > 1]


def _filters(study: Study) -> str:
    """Checkboxes that hide devices and strategies, by CSS alone: the page has no scripts."""
    fields = []
    for heading, choices in _choices(study):
        boxes = "".join(
            f'<label><input type="checkbox" id="show-{key}" checked> {escape(label)}</label>'
            for key, label in choices
        )
        fields.append(f"<fieldset><legend>Show {heading}</legend>{boxes}</fieldset>")
    return f'<form class="filters soft">{"".join(fields)}</form>' if fields else ""


def _hiding(study: Study) -> str:
    return "".join(
        f"body:has(#show-{key}:not(:checked)) .{key} {{ display: none; }}\n"
        for _, choices in _choices(study)
        for key, _ in choices
    )


def _number(study: Study, strategy: str) -> str:
    """The class of a strategy's rows."""
    names = [one.name for one in study.strategies]
    return f"s{names.index(strategy)}"


def _verdict(study: Study) -> str:
    checked = [one.checked.results for one in study.cells if one.checked is not None]
    wrong, open_ = checked.count("differ"), checked.count("not verified")
    if wrong:
        return f'<span class="wrong">Results of {wrong} of {len(checked)} cells differ.</span>'
    if open_:
        return f'<span class="doubt">{open_} of {len(checked)} cells are not verified.</span>'
    return (
        f'<span class="right">The results of all {_counted(len(checked), "cell")} are right.</span>'
    )


def _problems(study: Study) -> str:
    lines = list(study.problems())
    if not lines:
        return ""
    items = []
    for line in lines:
        kind = line.partition(":")[0]
        mark = "wrong" if kind in ("differs", "failed") else "doubt"
        items.append(
            f'<li><span class="{mark}">{escape(kind)}</span>{escape(line[len(kind) :])}</li>'
        )
    return f'<ul class="problems">\n{chr(10).join(items)}\n</ul>'


def _summary(study: Study, modules: Sequence[ModuleRow], ids: dict[str, str]) -> str:
    """The fastest strategy of each module on each device that has times."""
    rows = []
    timed = [
        device
        for device in study.devices
        if any(study.best(row.name, device.name) for row in modules)
    ]
    if not timed:
        return ""
    for row in modules:
        cells = []
        for device in timed:
            best = study.best(row.name, device.name)
            about = f'class="{_device(study, device)}" data-device="{escape(device.name)}"'
            if best is None:
                cells.append(f"<td {about}>-</td>")
                continue
            ratio = study.over(best)
            line = f"{escape(best.strategy)}, {escape(seconds(best.seconds or 0.0))}"
            is_fact = ratio.is_clear and best.measured is not None
            strong = f"<b>{ratio}</b>" if is_fact else ratio
            cells.append(f'<td {about}>{strong}<br> <span class="soft">{line}</span></td>')
        link = f'<a href="#{ids[row.name]}">{escape(row.name)}</a>'
        rows.append(f'<tr><th scope="row">{link}</th>{"".join(cells)}</tr>')
    heads = [(f"{one.name}, {one.heading}", _device(study, one)) for one in timed]
    return _table("The fastest of each module", ["module", *heads], rows, kind="figures best")


def _device(study: Study, device: StudyDevice) -> str:
    """The class of what is about a device."""
    return f"d{study.devices.index(device)}"


def _module(
    study: Study, row: ModuleRow, ids: dict[str, str], texts: Mapping[tuple[str, ...], str]
) -> str:
    about = [f"<code>{escape(row.file)}</code>"]
    if row.variant_of:
        parent = escape(row.variant_of)
        link = f'<a href="#{ids[row.variant_of]}">{parent}</a>' if row.variant_of in ids else parent
        about.append(f"a variant of {link}, whose baseline counts")
    kept = [
        f'<a href="{escape(quote(path))}">{escape(" for ".join(key[1:]))}</a>'
        for key, path in texts.items()
        if key[0] == row.name
    ]
    if kept:
        about.append(f"text after {', '.join(kept)}")
    figures = [_figure(study, row, device) for device in study.devices]
    return (
        f'<section id="{ids[row.name]}">\n<h2>{escape(row.name)}</h2>\n'
        f'<p class="soft">{", ".join(about)}</p>\n{"".join(figures)}</section>'
    )


def _figure(study: Study, row: ModuleRow, device: StudyDevice) -> str:
    strategies = study.rows(row.name)
    cells = [study.cell(row.name, one.name, device.name) for one in strategies]
    found = [(one, cell) for one, cell in zip(strategies, cells, strict=True) if cell is not None]
    if study.missing(row.name, device.name):
        why = found[0][1].problem if found else ""
        return (
            f'<figure class="{_device(study, device)}">\n<figcaption><h3>{escape(device.name)}</h3>'
            f'<span class="doubt">no device</span><span class="soft">{escape(why)}</span>'
            "</figcaption></figure>\n"
        )
    longest = _longest([cell for _, cell in found])
    bars = ""
    if longest:
        items = [_bar(study, one, cell, longest) for one, cell in found]
        bars = f'<ol class="bars">\n{chr(10).join(items)}\n</ol>\n{_key(found)}'
    where = study.places().get(device.name, device.title)
    caption = (
        f"<figcaption><h3>{escape(device.name)}</h3><span>{escape(device.heading)}</span>"
        f'<span class="soft">{escape(where)}</span></figcaption>'
    )
    table = _figures_table(study, device, found, f"{row.name} on {device.name}")
    folded = f"<details>\n<summary>Figures</summary>\n{table}</details>\n" if bars else table
    kernels = _kernels(study, row, device, found)
    return (
        f'<figure class="{_device(study, device)}">\n{caption}\n{bars}{folded}{kernels}</figure>\n'
    )


def _kernels(
    study: Study, row: ModuleRow, device: StudyDevice, found: Sequence[tuple[Strategy, Cell]]
) -> str:
    """The kernels that take longest of each strategy, by the model, with the lines of the program."""
    rows = [
        f'<tr class="{_number(study, one.name)}"><th scope="row">{escape(one.name)}</th>'
        f"<td><code>{escape(kernel.name)}</code></td><td>{escape(seconds(kernel.seconds))}</td>"
        f"<td>{kernel.seconds / (cell.predicted.seconds or 1.0):.0%}</td><td>{kernel.runs:,}</td>"
        f"<td>{escape(kernel.line or '-')}</td></tr>"
        for one, cell in found
        if cell.predicted is not None and not cell.same_as
        for kernel in cell.predicted.longest
    ]
    if not rows:
        return ""
    heads = ["strategy", "kernel", device.heading, "of all", "runs", "line"]
    table = _table(f"{row.name} on {device.name}", heads, rows, kind="figures kernels")
    return f"<details>\n<summary>Longest kernels</summary>\n{table}</details>\n"


def _longest(cells: Sequence[Cell]) -> float:
    """The seconds that a bar has room for: the longest time, and the runs around it if they are near."""
    longest = max((cell.seconds or 0.0 for cell in cells), default=0.0)
    ends = [cell.measured.timing.middle[1] for cell in cells if cell.measured is not None]
    return max(longest, min(max(ends, default=0.0), _MOST_AROUND * longest))


def _bar(study: Study, strategy: Strategy, cell: Cell, longest: float) -> str:
    """One row: name, bar, time, ratio to the baseline, what the step bought."""
    marks = [_number(study, strategy.name)]
    marks += ["step"] if strategy.before or strategy.whole else []
    marks += ["base"] if strategy.name == study.baseline else []
    marks += ["known"] if cell.measured is not None else []
    time = escape(time_text(cell))
    over = study.over(cell) if cell.seconds else ""
    segments = "".join(
        f'<span class="{name}" style="width:{100 * part / longest:.3f}%"></span>'
        for name, part in _segments(cell)
        if part
    )
    if cell.measured is not None:
        low, high = (min(end, longest) for end in cell.measured.timing.middle)
        place = f"left:{100 * low / longest:.3f}%;width:{100 * (high - low) / longest:.3f}%"
        segments += f'<i class="whisker" style="{place}"></i>'
    return (
        f'<li class="{" ".join(marks)}"><span class="name">{escape(strategy.label)}</span>'
        f'<span class="bar" role="img" aria-label="{escape(_spoken(cell))}">{segments}</span>'
        f'<span class="time">{time}</span><span class="over">{over}</span>'
        f"<span>{_chip(study, cell)}</span></li>"
    )


def _segments(cell: Cell) -> list[tuple[str, float]]:
    if cell.measured is not None:
        return [("measured", cell.measured.seconds)]
    if cell.predicted is None:
        return []
    return [(name, getattr(cell.predicted.parts, name)) for name, _ in _PARTS]


def _spoken(cell: Cell) -> str:
    """What a bar shows, in words."""
    if cell.predicted is None or not cell.predicted.seconds:
        return time_text(cell)
    parts: TimeParts = cell.predicted.parts
    shares = [
        f"{getattr(parts, name) / parts.seconds:.0%} {label}"
        for name, label in _PARTS
        if getattr(parts, name)
    ]
    return f"{time_text(cell)}: {', '.join(shares)}"


def _chip(study: Study, cell: Cell) -> str:
    """What is wrong, else which strategy gives the same module, else what the step bought."""
    if cell.wrong:
        return '<span class="chip loss">results differ</span>'
    if cell.problem:
        return f'<span class="chip doubt" title="{escape(cell.problem)}">{escape(time_text(cell))}</span>'
    if cell.same_as:
        return f'<span class="soft">same as {escape(cell.same_as)}</span>'
    ratio = study.bought(cell)
    if ratio.value is None:
        return ""
    change = ratio.value - 1 if ratio.is_clear else 0.0
    mark = " gain" if change > _ABOUT_EVEN else " loss" if change < -_ABOUT_EVEN else ""
    return f'<span class="chip{mark}">bought {ratio}</span>'


def _key(found: Sequence[tuple[Strategy, Cell]]) -> str:
    """What the colours of predicted bars mean: those that are there."""
    shown = [
        f'<li><i class="{name}"></i>{escape(label)}</li>'
        for name, label in _PARTS
        if any(part for _, cell in found for key, part in _segments(cell) if key == name)
    ]
    return f'<ul class="key soft">{"".join(shown)}</ul>\n' if shown else ""


def _figures_table(
    study: Study, device: StudyDevice, found: Sequence[tuple[Strategy, Cell]], caption: str
) -> str:
    rows = []
    is_ladder = any(bought_text(study, cell) for _, cell in found)
    for strategy, cell in found:
        kernels, launches, moved = launch_text(cell)
        results = cell.checked.results if cell.checked is not None else ""
        texts = [
            kernels,
            launches,
            moved,
            time_text(cell),
            str(study.over(cell)) if cell.seconds else "-",
            *([bought_text(study, cell)] if is_ladder else []),
        ]
        mark = " base" if strategy.name == study.baseline else ""
        rows.append(
            f'<tr class="{_number(study, strategy.name)}{mark}">'
            f'<th scope="row">{escape(strategy.name)}</th>'
            + "".join(f"<td>{escape(text)}</td>" for text in texts)
            + f'<td class="{_RESULTS.get(results, "")}">{escape(result_text(cell))}</td></tr>'
        )
    heads = [
        "strategy",
        "kernels",
        "launches",
        "bytes",
        device.heading,
        "over",
        *(["bought"] if is_ladder else []),
        "results",
    ]
    return _table(caption, heads, rows)


def _strategies(strategies: Iterable[Strategy]) -> str:
    rows = [
        f'<tr><th scope="row">{escape(one.name)}</th><td>'
        f"<code>{escape(one.text or 'no passes')}</code>{_requests(one)}</td></tr>"
        for one in strategies
    ]
    return "<h2>Strategies</h2>\n" + _table(
        "What each runs", ["strategy", "passes"], rows, kind="texts"
    )


def _requests(one: Strategy) -> str:
    requests = [f"--kernel {text}" for text in one.selection.kernel]
    if one.selection.selector != type(one.selection).selector:
        requests.append(f"kernel-selection{{selector={one.selection.selector}}}")
    if one.lock is not None:
        requests.append(f"--lock {one.lock.name}")
    requests += [f"--fusion-rule {text}" for text in one.rules]
    return "".join(f"<br><code>{escape(text)}</code>" for text in requests)


def _notes(study: Study) -> str:
    lines = [
        *notes(study),
        "bars are linear in time; each device has a separate scale for each module",
    ]
    if any(cell.measured is not None for cell in study.cells):
        lines.append("a line over the end of a measured bar has half of the runs")
    if any(cell.predicted is not None for cell in study.cells):
        lines.append(
            "memory and arithmetic overlap: the longer is drawn whole, of the shorter what sticks out"
        )
    items = "".join(f"<li>{escape(line)}</li>\n" for line in lines)
    return f'<h2>About the figures</h2>\n<ul class="notes soft">\n{items}</ul>'


def _table(
    caption: str,
    heads: Sequence[str | tuple[str, str]],
    rows: Iterable[str],
    kind: str = "figures",
) -> str:
    """``rows`` are HTML already; caption and heads are texts, with a class or without."""
    pairs = [(head, "") if isinstance(head, str) else head for head in heads]
    columns = "".join(
        f'<th scope="col"{f" class={name!r}" if name else ""}>{escape(head)}</th>'
        for head, name in pairs
    )
    return (
        f'<div class="table"><table class="{kind}">\n<caption>{escape(caption)}</caption>\n'
        f"<thead><tr>{columns}</tr></thead>\n<tbody>\n{chr(10).join(rows)}\n</tbody>\n</table></div>\n"
    )


def _counted(number: int, one: str, several: str | None = None) -> str:
    return f"{number} {one if number == 1 else several or one + 's'}"
