"""The page of a study: whole, by itself, and safe whatever things are called."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from hloopt.report.study import Ratio, Study, StudyDevice, study_json
from hloopt.report.study_page import study_page
from hloopt.rewrite import Pipeline
from hloopt.runtime.timing import Timing
from hloopt.study.cells import Cell, Checked, Counts, Measured, Predicted, TimeParts
from hloopt.study.plan import ModuleRow, Strategy
from tests.helpers.support import invoke

EVIL = '<script>alert("x")</script>'
_VOID = {"meta", "br", "input"}


class _Reader(HTMLParser):
    """Checks that tags nest, and keeps them with their attributes, and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(page: str) -> _Reader:
    """The page, every tag of which is closed in its place."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert not reader.open
    return reader


def strategies() -> Iterator[Strategy]:
    """A baseline and a ladder of two rungs, the second with a name that is HTML."""
    yield Strategy("base", "base", Pipeline(()), "", family="base")
    yield Strategy("s base", "s, base", Pipeline(()), "cse", kind="ladder", family="s")
    yield Strategy(
        EVIL, f"+ {EVIL}", Pipeline(()), EVIL, kind="ladder", family="s", before="s base"
    )


def predicted(*parts: float) -> Predicted:
    """A prediction of so many seconds of launches, memory, arithmetic and latency."""
    return Predicted("h200", "xla-2026", True, TimeParts(*parts))


def made() -> Study:
    """Two modules on three devices: predicted, measured and not there."""
    study = Study(
        f"A study of {EVIL}",
        "base",
        [ModuleRow("m.hlo", "m"), ModuleRow("v.hlo", EVIL, variant_of="m")],
        list(strategies()),
        [
            StudyDevice("h200", "NVIDIA H200", "xla-2026"),
            StudyDevice("cpu", "here"),
            StudyDevice("gpu", "there"),
        ],
    )
    right, wrong = Checked("equal", "cpu", ("interpreter",)), Checked("differ", "cpu", (), EVIL)
    counts = Counts(3, 30, False, 4096)
    times = {"base": (4e-6, 2e-6, 1e-6, 1e-6), "s base": (2e-6, 1e-6, 1e-6, 0.0)}
    for row in study.modules:
        for one in study.strategies:
            parts = predicted(*times.get(one.name, (1e-6, 0.0, 0.0, 0.0)))
            checked = wrong if one.name == EVIL and row.variant_of else right
            study.cells.append(
                Cell(row.name, one.name, "h200", "predicted", counts, checked, predicted=parts)
            )
            timing = Measured(Timing((0.001, 0.002, 0.004)), f"machine {EVIL}")
            study.cells.append(
                Cell(row.name, one.name, "cpu", "measured", counts, right, measured=timing)
            )
            study.cells.append(Cell(row.name, one.name, "gpu", "measured", problem=f"no {EVIL}"))
    return study


@pytest.fixture(scope="module")
def page() -> str:
    """The page of that study."""
    return study_page(made(), "Made by a test.")


def test_it_is_one_page_without_network_or_scripts(page: str) -> None:
    """No address, no script, no import; the browser is told to allow none."""
    assert not re.search(r"https?:|//|@import|url\(|src=|<script|javascript:", page)
    tags = read(page).tags
    policy = next(attributes for tag, attributes in tags if "http-equiv" in attributes)
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'"
    anchors = [attributes for tag, attributes in tags if tag == "a"]
    links = [one["href"] for one in anchors if "download" not in one]
    ids = {attributes.get("id") for _, attributes in tags}
    assert links
    assert all(link is not None and link[0] == "#" and link[1:] in ids for link in links)


def test_the_data_is_in_the_page(page: str) -> None:
    """A link that downloads what ``--json`` prints."""
    (link,) = re.findall(r'href="data:application/json;base64,([^"]*)"', page)
    assert json.loads(b64decode(unquote(link))) == study_json(made())


def test_devices_and_strategies_can_be_hidden(page: str) -> None:
    """Each has a box, whose rule hides what is of its class."""
    boxes = re.findall(r'<input type="checkbox" id="show-(\w+)" checked>', page)
    assert boxes == re.findall(r"body:has\(#show-(\w+):not\(:checked\)\) \.\1 \{", page)
    study = made()
    assert len(boxes) == len(study.devices) + len(study.strategies)
    used = {
        name
        for _, attributes in read(page).tags
        for name in (attributes.get("class") or "").split()
    }
    assert set(boxes) <= used


def test_names_are_text(page: str) -> None:
    """Whatever a module, a strategy, a machine or an error is called, it is shown, never obeyed."""
    assert EVIL in "".join(read(page).text)
    assert "<script" not in page.lower()


def test_bars_are_as_long_as_the_times(page: str) -> None:
    """Widths are shares of the longest time of the module on the device, stacked by part; runs are a line over it."""
    widths = re.findall(r'<span class="(\w+)" style="width:([\d.]+)%">', page)
    assert widths[:8] == [
        ("launch", "50.000"), ("memory", "25.000"), ("compute", "12.500"), ("latency", "12.500"),
        ("launch", "25.000"), ("memory", "12.500"), ("compute", "12.500"), ("launch", "12.500"),
    ]  # fmt: skip
    assert re.search(r'<li class="[\w ]*\bknown"', page)  # measured: in bold
    assert ("measured", "80.000") in widths  # half of the runs take up to 4 ms, which is cut off
    assert '<i class="whisker" style="left:40.000%;width:60.000%"></i>' in page


def test_what_two_strategies_make_alike_is_said_once() -> None:
    """In the place of what a step bought; and a column that nothing is in is left out."""
    first, second = Strategy("O2", "O2", Pipeline(()), ""), Strategy("O3", "O3", Pipeline(()), "")
    study = Study(
        "", "O2", [ModuleRow("m.hlo", "m")], [first, second], [StudyDevice("h200", "NVIDIA H200", "xla-2026")]
    )  # fmt: skip
    for one, alike in ((first, ""), (second, "O2")):
        parts = predicted(1e-6, 0.0, 0.0, 0.0)
        study.cells.append(Cell("m", one.name, "h200", "predicted", predicted=parts, same_as=alike))
    page = study_page(study, "")
    assert page.count("same as O2") == 1
    assert ">bought</th>" not in page
    assert "<b>1.00x</b>" not in page  # predicted, so not in bold
    assert "known" not in page.partition("</style>")[2]


def test_bars_are_told_in_words_and_tables_have_heads(page: str) -> None:
    """What is drawn can be read aloud: every bar has a label, every table a caption and heads."""
    tags = read(page).tags
    labels = [attributes["aria-label"] for _, attributes in tags if attributes.get("role") == "img"]
    assert labels[0] == (
        "8 us: 50% launches, 25% memory, 12% arithmetic, 12% waiting for earlier results"
    )
    assert "2 ms ± 1 ms" in labels
    counts = {name: sum(tag == name for tag, _ in tags) for name in ("table", "caption", "thead")}
    assert len(set(counts.values())) == 1
    assert all("scope" in attributes for tag, attributes in tags if tag == "th")


def test_it_tells_what_is_wrong_and_what_is_not_there(page: str) -> None:
    """Differing results stand at the top and at their row; a device that is not there has no table."""
    text = " ".join("".join(read(page).text).split())
    assert "Results of 1 of 12 cells differ." in text
    assert "results differ" in text
    assert text.count("no device") == 3  # once among the problems, once for each module
    assert "bought 4.00x" in text
    assert "8.00x" in text  # of the module whose results are right


@pytest.mark.parametrize(
    ("seconds", "mark", "ratio"),
    [((0.001, 0.0011, 0.0012), " gain", "3.64x"), ((0.001, 0.003, 0.0045), "", "~")],
)
def test_only_times_that_part_are_coloured(
    seconds: tuple[float, ...], mark: str, ratio: str
) -> None:
    """A step whose times overlap with those before it has bought nothing that anybody could see."""
    rungs = list(strategies())[1:]
    study = Study("", rungs[0].name, [ModuleRow("m.hlo", "m")], rungs, [StudyDevice("cpu", "here")])
    for one, taken in zip(rungs, ((0.0038, 0.004, 0.0041), seconds), strict=True):
        measured = Measured(Timing(taken), "here")
        study.cells.append(Cell("m", one.name, "cpu", "measured", measured=measured))
    page = study_page(study, "")
    assert f'<span class="chip{mark}">bought {ratio}</span>' in page
    assert (f'data-device="cpu"><b>{ratio}</b>' in page) == bool(mark)
    assert ("~ where times overlap" in page) == (not mark)
    assert ("vary by more than a fifth" in page) == (not mark)


def test_light_dark_and_paper() -> None:
    """The style has a dark form and one for printing, where bars keep their colours."""
    page = study_page(made(), "")
    assert "@media (prefers-color-scheme: dark)" in page
    assert "print-color-adjust: exact" in page


def test_the_command_writes_it_whole(tmp_path: Path) -> None:
    """Into a folder that is made; nothing else is left beside it."""
    module = tmp_path / "m.hlo"
    module.write_text(
        "HloModule m\nENTRY e { x = f32[8] parameter(0) ROOT y = f32[8] negate(x) }\n"
    )
    out = tmp_path / "made" / "study.html"
    words = ("--strategy", "O1", "--device", "h200", "--html", str(out))
    result = invoke("study", str(module), *words)
    assert result.exit_code == 0, result.stderr
    assert [path.name for path in out.parent.iterdir()] == ["study.html"]
    found = read(out.read_text())
    assert "NVIDIA H200" in "".join(found.text)
    assert "Longest kernels" in "".join(found.text)
    result = invoke("study", str(module), *words, "--out", str(tmp_path / "kept"))
    assert result.exit_code == 0, result.stderr
    links = [
        attributes.get("href") or "" for tag, attributes in read(out.read_text()).tags if tag == "a"
    ]
    assert "../kept/m/O1.h200.hlo" in links or "../kept/m/O1.hlo" in links
    assert (tmp_path / "kept/m").is_dir()


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (None, "-"),
        (0.5, "0.50x"),
        (9.99, "9.99x"),
        (9.999, "10.0x"),
        (99.94, "99.9x"),
        (280, "280x"),
    ],
)
def test_ratios(ratio: float | None, text: str) -> None:
    """Three digits."""
    assert str(Ratio(ratio)) == text
