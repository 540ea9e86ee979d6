"""Ctrl-C ends every command at once: exit 130, one word, no traceback, no part of a file."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from hloopt.driver.writing import write_bytes, write_text

ENDLESS = """HloModule m
body {
  t = (s64[]) parameter(0)
  i = s64[] get-tuple-element(t), index=0
  one = s64[] constant(1)
  next = s64[] add(i, one)
  ROOT r = (s64[]) tuple(next)
}
condition {
  t = (s64[]) parameter(0)
  i = s64[] get-tuple-element(t), index=0
  limit = s64[] constant(1000000000000)
  ROOT c = pred[] compare(i, limit), direction=LT
}
ENTRY e {
  start = s64[] parameter(0)
  t = (s64[]) tuple(start)
  ROOT w = (s64[]) while(t), condition=condition, body=body
}
"""

# The newline parts the word from the ^C that a terminal shows.
INTERRUPTED = (130, "", "\ninterrupted\n")

ENDS = (".hlo", ".pb", ".")  # of words that are names of files

# Runs the command, and tells the parent through a pipe when a function is called for the first time.
CHILD = """
import importlib, os, sys
place, pipe, *words = sys.argv[1:]
name, _, function = place.partition(":")
module = importlib.import_module(name)
real = getattr(module, function)
def told(*arguments, **named):
    os.write(int(pipe), b"x")
    return real(*arguments, **named)
setattr(module, function, told)
sys.argv = ["hloopt", *words]
from hloopt.cli.main import main
main()
"""


def long_module(lines: int = 60_000) -> str:
    """A text that takes seconds to read."""
    body = "\n".join(
        f'  v{n} = f32[4]{{0}} add(x, x), metadata={{op_name="{n}"}}' for n in range(lines)
    )
    return f"HloModule m\nENTRY e {{\n  x = f32[4] parameter(0)\n{body}\n  ROOT r = f32[4] abs(x)\n}}\n"


def interrupted(
    place: str, *words: str, folder: Path, after: float, stderr: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    """The command, sent SIGINT ``after`` seconds in a function; it must not have ended before."""
    ours, theirs = os.pipe()
    words = tuple(str(folder / word) if word.endswith(ENDS) else word for word in words)
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, place, str(theirs), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        pass_fds=[theirs],
    ) as child:
        os.close(theirs)
        try:
            ready, _, _ = select.select([ours], [], [], 60)
            if not ready or os.read(ours, 1) != b"x":
                pytest.fail(f"{place} was not called: {child.communicate()}")
            with pytest.raises(subprocess.TimeoutExpired):
                child.wait(after)
            child.send_signal(signal.SIGINT)
            output, errors = child.communicate(timeout=30)
        finally:
            os.close(ours)
            child.kill()
    return subprocess.CompletedProcess(words, child.returncode, output, errors)


@pytest.mark.parametrize(
    "words",
    [
        ["check", "long.hlo"],
        ["stats", "long.hlo", "small.hlo", "--json"],
        ["optimize", "long.hlo", "-o", "out.hlo"],
    ],
    ids=lambda words: words[0],
)
def test_while_a_long_text_is_read(tmp_path: Path, words: list[str]) -> None:
    """Nothing is printed but the word, and nothing is written."""
    (tmp_path / "long.hlo").write_text(long_module())
    (tmp_path / "small.hlo").write_text(ENDLESS)
    result = interrupted("hloopt.text.parser:parse_module", *words, folder=tmp_path, after=0.2)
    assert (result.returncode, result.stdout, result.stderr) == INTERRUPTED
    assert sorted(path.name for path in tmp_path.iterdir()) == ["long.hlo", "small.hlo"]


@pytest.mark.parametrize(
    "options", [["--save", "out.pb"], ["--participants", "3"]], ids=["alone", "several"]
)
def test_while_a_long_program_runs(tmp_path: Path, options: list[str]) -> None:
    """A loop that does not end, be it in a participant's thread."""
    (tmp_path / "endless.hlo").write_text(ENDLESS)
    result = interrupted(
        "hloopt.interpret:evaluate_participants",
        "run",
        "endless.hlo",
        *options,
        folder=tmp_path,
        after=0.3,
    )
    assert (result.returncode, result.stdout, result.stderr) == INTERRUPTED
    assert [path.name for path in tmp_path.iterdir()] == ["endless.hlo"]


def test_while_a_dump_is_counted(tmp_path: Path) -> None:
    """``ls`` reads many files."""
    text = long_module(20_000)
    for number in range(300):
        path = tmp_path / f"module_{number:04d}.f.before_optimizations.txt"
        if number:
            path.hardlink_to(tmp_path / "module_0000.f.before_optimizations.txt")
        else:
            path.write_text(text)
    result = interrupted("hloopt.dumps:counts", "ls", ".", folder=tmp_path, after=0.05)
    assert (result.returncode, result.stdout, result.stderr) == INTERRUPTED


def test_on_a_terminal_the_progress_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line about several files goes away before the word comes; the cursor was always there."""
    monkeypatch.setenv("_HLOOPT_PATIENCE", "0")
    for name in ("a.hlo", "b.hlo"):
        (tmp_path / name).write_text(long_module())
    ours, theirs = pty.openpty()
    words = ("stats", "a.hlo", "b.hlo")
    place = "hloopt.text.parser:parse_module"
    result = interrupted(place, *words, folder=tmp_path, after=0.3, stderr=theirs)
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # the other end is closed and all is read
        while select.select([ours], [], [], 0)[0]:
            shown += os.read(ours, 4096)
    os.close(ours)
    assert result.returncode == 130
    assert b"a.hlo" in shown
    assert b"\x1b[?25" not in shown
    assert shown.replace(b"\r\n", b"\n").endswith(b"\r\x1b[K\ninterrupted\n")


# A first module is printed, and reading the second is interrupted; ``{}`` is where.
SECOND = """
import os, signal, sys
sys.argv = ["hloopt", *sys.argv[1:]]
from hloopt.cli.main import main
from hloopt import reading
import {0} as place
real, calls = place.{1}, []
def second(*arguments, **named):
    calls.append(1)
    if len(calls) == 2:
        signal.raise_signal(signal.SIGINT)
    return real(*arguments, **named)
place.{1} = second
main()
"""
SMALL = "HloModule m\nENTRY e {\n  ROOT x = f32[4] parameter(0)\n}\n"


@pytest.mark.parametrize(
    ("place", "words", "kept", "told"),
    [
        ("hloopt.cli.files read_input", ["stats"], "a.hlo  m\n", "1 of 2 modules are done"),
        (
            "hloopt.cli.files read_input",
            ["run"],
            "a.hlo  inputs: seed 0",
            "1 of 2 modules are done",
        ),
        ("hloopt.cli.files read_input", ["stats", "--json"], '"instructions": 1', "1 of 2 modules"),
        ("hloopt.cli.actions.check read_input", ["check"], "a.hlo: ok\n", "1 of 2 files are done"),
        (
            "hloopt.cli.study_runner optimised",
            ["study", "--strategy", "O0", "--strategy", "O1", "--device", "h200"],
            "a  a.hlo\n",
            "1 of 4 cells are done",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_is_done_is_kept(
    tmp_path: Path, place: str, words: list[str], kept: str, told: str
) -> None:
    """Of several modules those that are done are printed, and how many they are."""
    for name in ("a.hlo", "b.hlo"):
        (tmp_path / name).write_text(SMALL)
    done = subprocess.run(
        [sys.executable, "-c", SECOND.format(*place.split()), *words, "a.hlo", "b.hlo"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 130, done.stderr
    assert kept in done.stdout
    assert "b.hlo" not in done.stdout
    assert f"interrupted: {told}" in done.stderr
    assert "Traceback" not in done.stderr


FINALISER = """
import signal, sys, time, weakref
sys.argv = ["hloopt", "--version"]
from hloopt.cli import main
class Object: pass
def leave(*arguments, **named):
    one = Object()
    reference = weakref.ref(one, lambda gone: signal.raise_signal(signal.SIGINT))
    del one
    for _ in range(2000):
        time.sleep(0.01)
main.cli.main = leave
main.main()
"""


def test_an_interrupt_in_a_finaliser_is_not_lost() -> None:
    """Python can raise nothing there: it comes again at once, and no traceback is printed."""
    done = subprocess.run(
        [sys.executable, "-c", FINALISER], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize("when", ["replace", "open"])
def test_while_a_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The old one stays as it was, and nothing is left beside it."""
    path = tmp_path / "m.hlo"
    path.write_text("old")

    def stop(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, when, stop)
    with pytest.raises(KeyboardInterrupt):
        write_text(str(path), "new", "m.hlo")
    with pytest.raises(KeyboardInterrupt):
        write_bytes(str(path), b"new", "m.hlo")
    monkeypatch.undo()
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.hlo"]
    assert path.read_text() == "old"
