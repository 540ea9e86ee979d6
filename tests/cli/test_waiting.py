"""What a terminal shows while somebody waits."""

from __future__ import annotations

import io
import time
from types import SimpleNamespace

import pytest

from hloopt.cli import waiting
from hloopt.cli.runner import Stage
from hloopt.interpret.progress import Progress


class Terminal(io.StringIO):
    """Something that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal in the place of stderr, and less patience."""
    made = Terminal()
    monkeypatch.setattr(waiting, "sys", SimpleNamespace(stderr=made))
    monkeypatch.setattr(waiting, "_PATIENCE", 0.05)
    return made


def wait_for(terminal: Terminal, text: str) -> None:
    """Until a text is shown; the clock only bounds what must not happen."""
    end = time.monotonic() + 20
    while text not in terminal.getvalue():
        assert time.monotonic() < end, terminal.getvalue()
        time.sleep(0.01)


def test_a_long_wait_is_told_and_goes_away(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the seconds, on one line, no longer than the terminal is wide."""
    monkeypatch.setenv("COLUMNS", "24")
    with waiting.patience("reading a_file_with_a_long_name.txt"):
        wait_for(terminal, "reading")
    assert terminal.getvalue() == "\r\x1b[Kreading a_file_with_a_l\r\x1b[K"


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
    monkeypatch.setattr(waiting, "sys", SimpleNamespace(stderr=made))
    monkeypatch.setattr(waiting, "_PATIENCE", 0.0)
    with waiting.patience("reading"):
        time.sleep(0.05)
    with waiting.progress(["a", "b"], str) as each:
        assert list(each) == ["a", "b"]
    assert made.getvalue() == ""


def test_several_items_have_a_bar(terminal: Terminal) -> None:
    """Which names the one that is at work."""
    with waiting.progress(["one", "two"], str) as each:
        assert list(each) == ["one", "two"]
    assert "two" in terminal.getvalue()


def test_what_is_done_may_change(terminal: Terminal) -> None:
    """A function is asked again each second."""
    stage = Stage()
    progress = Progress()
    with waiting.patience(lambda: f"running m: {stage}"):
        stage.enter("inputs")
        wait_for(terminal, "running m: inputs: ")
        stage.enter("interpreter", progress)
        progress.done, progress.total = 3, 4
        wait_for(terminal, "running m: interpreter, 75 %: ")
