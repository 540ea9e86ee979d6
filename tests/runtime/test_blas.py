"""BLAS has the threads that a program may have, while it runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import hloopt
from hloopt.runtime import blas
from hloopt.runtime.blas import WORTH_SHARING, blas_threads

DOT = """HloModule m
ENTRY e {
  a = f32[SIZE,SIZE] parameter(0)
  b = f32[SIZE,SIZE] parameter(1)
  ROOT c = f32[SIZE,SIZE] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
LARGE = 320


class Library:
    """Stands for BLAS."""

    def __init__(self) -> None:
        self.threads = 7
        self.set: list[int] = []

    def get_num_threads(self) -> int:
        return self.threads

    def set_num_threads(self, count: int) -> None:
        self.threads = count
        self.set.append(count)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    made = Library()
    monkeypatch.setattr(blas, "_libraries", lambda: (made,))
    monkeypatch.setattr(blas, "_idle_cores", lambda: 16)
    yield made
    assert made.threads == 7, "the process has what it had"


def dot(size: int) -> hloopt.Module:
    return hloopt.parse(DOT.replace("SIZE", str(size)))


def test_small_products_have_one_thread_and_large_ones_all(library: Library) -> None:
    """As many as the program may have."""
    assert 2 * LARGE**3 > WORTH_SHARING > 2 * 64**3
    for size, threads, wanted in ((64, 4, 1), (LARGE, 4, 4), (LARGE, 1, 1)):
        with blas_threads(dot(size), threads):
            assert library.threads == wanted
        assert library.threads == 7


def test_cores_with_other_work_get_no_thread(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is left in any case."""
    for idle, wanted in ((3, 3), (0, 1), (-5, 1)):
        monkeypatch.setattr(blas, "_idle_cores", lambda idle=idle: idle)
        with blas_threads(dot(LARGE), 4):
            assert library.threads == wanted


def test_other_processes_are_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Less this process's own threads; where the system says nothing, none."""
    load, tasks = tmp_path / "loadavg", tmp_path / "task"
    for number, state in ((1, "R"), (2, "S"), (3, "R")):
        (tasks / str(number)).mkdir(parents=True)
        (tasks / str(number) / "stat").write_text(f"{number} (a) b) {state} 1 2")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(blas, "_SYSTEM", load)
    monkeypatch.setattr(blas, "_OWN", tasks)
    assert blas._idle_cores() == 8
    for text, wanted in (("1.0 2.0 3.0 5/90 77\n", 5), ("1.0 2.0 3.0 1/90 77\n", 8), ("", 8)):
        load.write_text(text)
        assert blas._idle_cores() == wanted


def test_the_last_to_leave_puts_things_back(library: Library) -> None:
    """Programs may run at once, and end in any order, with an error too."""
    first, second = blas_threads(dot(64), 4), blas_threads(dot(LARGE), 3)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert library.threads == 3
    second.__exit__(None, None, None)
    with pytest.raises(ValueError, match="stop"), blas_threads(dot(64), 4):
        raise ValueError("stop")


def test_what_has_no_products_asks_nothing_of_blas(library: Library) -> None:
    """Not even what it has."""
    module = hloopt.parse(
        "HloModule m\nENTRY e { a = f32[4] parameter(0) ROOT b = f32[4] negate(a) }"
    )
    with blas_threads(module, 4):
        assert not library.set


@pytest.mark.parametrize("device", ["cpu", "native"])
def test_programs_set_them(library: Library, device: str) -> None:
    """While they run, by the number they are compiled for."""
    if device == "native":
        pytest.importorskip("hloopt.backends.native").check_native()
    module = hloopt.parse(DOT.replace("SIZE", "64").replace("dot(a, b)", "dot(a, b)"))
    wide = hloopt.parse(DOT.replace("SIZE", str(LARGE)))
    for one, wanted in ((module, 1), (wide, 2)):
        program = hloopt.compile(one, device=device, threads=2)
        size = one.entry.root.array.dims[0]
        library.set.clear()
        program.run([np.ones((size, size), np.float32)] * 2)
        assert library.set in ([], [wanted, 7])
        assert library.set or device == "native"


def test_blas_is_found() -> None:
    """NumPy's own, where threadpoolctl is there; its number changes and comes back."""
    pytest.importorskip("threadpoolctl")
    libraries = blas._libraries()
    before = [one.get_num_threads() for one in libraries]
    with blas_threads(dot(64), 8):
        assert all(one.get_num_threads() == 1 for one in libraries)
    assert [one.get_num_threads() for one in libraries] == before
