"""Turns: processes that measure alone, and those that wait for them."""

from __future__ import annotations

import select
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hloopt.study import turns
from hloopt.study.turns import Turns

OTHER = """
import sys
from hloopt.study.turns import Turns
turns = Turns(sys.argv[1])
with turns.shared():
    print("in", flush=True)
    sys.stdin.readline()
    with turns.alone():
        print("alone", flush=True)
        sys.stdin.readline()
    print("together", flush=True)
    sys.stdin.readline()
"""


class Process:
    """Another process, led by lines."""

    def __init__(self, name: str) -> None:
        command = [sys.executable, "-c", OTHER, name]
        pipe = subprocess.PIPE
        self.found = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def says(self, word: str) -> None:
        assert self.found.stdout is not None
        assert self.found.stdout.readline() == f"{word}\n"

    def go_on(self) -> None:
        assert self.found.stdin is not None
        self.found.stdin.write("\n")
        self.found.stdin.flush()

    def end(self) -> None:
        self.found.kill()
        self.found.communicate()


def test_one_measures_while_the_others_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for those at work; who comes later waits for it; of another study nobody waits."""
    monkeypatch.setenv("HLOOPT_CACHE_DIR", str(tmp_path / "cache"))
    other = Process("a")
    try:
        other.says("in")
        mine = Turns("a")
        with mine.shared():
            other.go_on()
            assert not select.select([other.found.stdout], [], [], 0.3)[0]
        other.says("alone")
        with Turns("b").shared(), Turns("b").alone():
            pass
        released = threading.Event()

        def release() -> None:
            released.set()
            other.go_on()

        threading.Timer(0.3, release).start()
        with mine.shared():
            assert released.is_set()
            other.says("together")
    finally:
        other.end()


def test_a_process_that_dies_gives_its_turn_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even while it is alone."""
    monkeypatch.setenv("HLOOPT_CACHE_DIR", str(tmp_path / "cache"))
    other = Process("a")
    other.says("in")
    other.go_on()
    other.says("alone")
    other.end()
    with Turns("a").shared():
        pass


def test_without_a_cache_none_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder is the user's own."""
    monkeypatch.setattr(turns, "own_folder", lambda *_, **__: None)
    first, second = Turns("a"), Turns("a")
    with first.shared(), second.shared(), first.alone():
        pass
