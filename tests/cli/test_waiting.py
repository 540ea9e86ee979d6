"""What a terminal shows while somebody waits."""

from __future__ import annotations

import io
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import hloopt
from hloopt.cli import streams, waiting
from hloopt.driver.run import Activity
from hloopt.interpret import evaluate_participants
from hloopt.interpret.progress import Progress


class Terminal(io.StringIO):
    """Something that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal in the place of stderr, and less patience."""
    made = Terminal()
    for module in (waiting, streams):
        monkeypatch.setattr(module, "sys", SimpleNamespace(stderr=made))
    monkeypatch.setattr(waiting, "_PATIENCE", 0.05)
    return made


def wait_for(terminal: Terminal, text: str) -> None:
    """Until a text is shown; the clock only bounds what must not happen."""
    end = time.monotonic() + 20
    while text not in terminal.getvalue():
        assert time.monotonic() < end, terminal.getvalue()
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (80, "running dump/a_module_with_a_long_name.txt: compilation, 7 %: 0 s"),
        (60, "running ...dule_with_a_long_name.txt: compilation, 7 %: 0 s"),
        (40, "...long_name.txt: compilation, 7 %: 0 s"),
    ],
)
def test_a_long_wait_is_told_and_goes_away(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, width: int, line: str
) -> None:
    """On one line, no longer than the terminal is wide: names are cut, not how far it is."""
    monkeypatch.setenv("COLUMNS", str(width))
    with waiting.patience(
        "running", "dump/a_module_with_a_long_name.txt", lambda: "compilation, 7 %"
    ):
        wait_for(terminal, "running" if width > 40 else "long")
    assert terminal.getvalue() == f"\r\x1b[K{line}\r\x1b[K"
    assert len(line) < width + 2


def test_wide_and_hostile_names(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns are counted, not characters, and no name moves the cursor."""
    monkeypatch.setenv("COLUMNS", "40")
    with waiting.patience("reading", "\x1b[2J" + "\u6f22" * 1_000_000):
        wait_for(terminal, "reading")
    line = terminal.getvalue().split("\x1b[K")[1]
    assert line == "reading ..." + "\u6f22" * 11 + ": 0 s\r"


def test_the_seconds_are_counted(terminal: Terminal) -> None:
    """From the first that is shown."""
    with waiting.patience("reading"):
        wait_for(terminal, "reading: 1 s")
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_an_error_takes_the_note_away(terminal: Terminal) -> None:
    """What comes next begins on a line of its own."""

    def stopped() -> None:
        with waiting.patience("reading"):
            wait_for(terminal, "reading")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_a_short_wait_is_not_told(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one among several, which the bar tells."""
    with waiting.patience("reading", alone=False):
        time.sleep(0.15)
    monkeypatch.setattr(waiting, "_PATIENCE", 60.0)
    with waiting.patience("reading"):
        pass
    assert terminal.getvalue() == ""


def test_a_pipe_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts read stderr as well."""
    made = io.StringIO()
    for module in (waiting, streams):
        monkeypatch.setattr(module, "sys", SimpleNamespace(stderr=made))
    monkeypatch.setattr(waiting, "_PATIENCE", 0.0)
    with waiting.patience("reading"):
        time.sleep(0.05)
    with waiting.progress(["a", "b"], str) as each:
        assert list(each) == ["a", "b"]
    assert made.getvalue() == ""


def test_of_several_items_it_is_told_which(terminal: Terminal) -> None:
    """With its number and how many there are."""
    with waiting.progress(["one", "two"], str) as each:
        for item in each:
            wait_for(terminal, item)
    assert "\x1b[K1 of 2: one: " in terminal.getvalue()
    assert "\x1b[K2 of 2: two: " in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_the_end_is_estimated(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the part that is done, at the speed since it began; of another stage anew."""
    monkeypatch.setattr(waiting, "_SOONEST", 0.0)
    now, part = [0.0], [0.0]
    fake = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(waiting, "time", fake)
    remaining = waiting._Remaining()
    assert remaining.text(None) == ""
    for now[0], part[0], text in (
        (1.0, 0.0, ""),
        (10.0, 0.004, ""),
        (10.0, 0.25, ", about 30 s left"),
        (20.0, 0.25, ", about 60 s left"),
        (100.0, 0.25, ", about 5 min left"),
        (40_000.0, 0.25, ", about 33 h left"),
        (40_001.0, 0.1, ""),  # another stage
        (40_011.0, 0.55, ", about 10 s left"),
    ):
        assert remaining.text(part[0]) == text


def test_the_estimate_of_a_loop_is_that_of_its_iterations() -> None:
    """Of one whose count is not known there is none."""
    progress = Progress()
    assert progress.part is None
    progress.begin(4)
    progress.done = 3
    assert progress.part == 0.75
    iterations = iter(range(10))
    next(iterations)
    progress.enter(iterations, 10, 10)
    assert progress.part == 0.1
    progress.iteration(3)
    assert progress.part is None
    progress.iteration(3, 12)
    assert (progress.part, str(progress)) == (0.25, "iteration 3 of 12, 25 %")


def test_the_interpreter_says_how_many_iterations_there_are() -> None:
    """As the driver counts them, before they run."""
    path = Path(__file__).parents[2] / "samples" / "while_loop.hlo"
    module = hloopt.read(path)
    seen: list[str] = []

    class Watched(Progress):
        def check(self) -> None:
            seen.append(str(self))

    inputs = [np.arange(1, 65, dtype=np.float32)]
    evaluate_participants(module, [inputs], progress=Watched(None, lambda loop: 10))
    assert "iteration 5 of 10, 50 %" in seen


def test_what_is_done_may_change(terminal: Terminal) -> None:
    """A function is asked again each second."""
    stage = Activity()
    progress = Progress()
    with waiting.patience("running", "m", lambda: str(stage)):
        stage.enter("inputs")
        wait_for(terminal, "running m: inputs: ")
        stage.enter("interpreter", progress)
        progress.done, progress.total = 3, 4
        wait_for(terminal, "running m: interpreter, 75 %: ")
