"""Headers that are read once, and by which compilers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hloopt.backends import host_compiler
from hloopt.backends.host_compiler import HostCompiler, find_compiler, headers_read_once
from hloopt.errors import DeviceError

FLAGS = ("-std=c++17", "-O2")


@pytest.fixture
def gnu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> HostCompiler:
    """GCC, with a cache of its own, and a folder of headers."""
    monkeypatch.setenv("HLOOPT_CACHE_DIR", str(tmp_path / "cache"))
    try:
        compiler = find_compiler("a test")
    except DeviceError as error:
        pytest.skip(error.message)
    if not compiler.is_gnu:
        pytest.skip("is about GCC")
    headers = tmp_path / "include"
    headers.mkdir()
    (headers / "all.h").write_text('#pragma once\n#include "part.h"\nconst int all = part + 1;\n')
    (headers / "part.h").write_text("#pragma once\nconst int part = 1;\n")
    return compiler


def _read(compiler: HostCompiler, tmp_path: Path, name: str) -> str:
    """What GCC says that it read for a unit in a new folder (-H): ``!`` precedes a header in GCC's own form."""
    headers, beside = tmp_path / "include", tmp_path / name
    beside.mkdir()
    unit = beside / "unit.cpp"
    unit.write_text('#include "all.h"\n#include "part.h"\nstatic_assert(all == part + 1);\n')
    with headers_read_once(compiler, FLAGS, headers / "all.h", (headers,), beside):
        command = [*compiler.command, *FLAGS, f"-I{headers}", "-H", "-fsyntax-only", str(unit)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stderr


def test_gcc_reads_headers_once(gnu: HostCompiler, tmp_path: Path) -> None:
    """The first unit reads them, another one does not, and one after a change of any of them does."""
    assert _read(gnu, tmp_path, "first").startswith(f". {tmp_path}/include/all.h")
    assert _read(gnu, tmp_path, "second").startswith(f"! {tmp_path}/second/all.h.gch")
    part = tmp_path / "include" / "part.h"
    part.write_text(part.read_text().replace("1", "2"))
    assert _read(gnu, tmp_path, "third").startswith(".")
    assert _read(gnu, tmp_path, "fourth").startswith("!")


def test_what_is_kept_and_then_thrown_away_is_read_again(gnu: HostCompiler, tmp_path: Path) -> None:
    """A unit is compiled even where another process cleans the cache at that moment."""
    _read(gnu, tmp_path, "first")
    headers, beside = tmp_path / "include", tmp_path / "second"
    beside.mkdir()
    with headers_read_once(gnu, FLAGS, headers / "all.h", (headers,), beside):
        (entry,) = (tmp_path / "cache" / "headers").glob("*.gch")
        entry.unlink()
        unit = beside / "unit.cpp"
        unit.write_text('#include "all.h"\nstatic_assert(all == 2);\n')
        command = [*gnu.command, *FLAGS, f"-I{headers}", "-fsyntax-only", str(unit)]
        subprocess.run(command, check=True)


def test_a_header_that_is_refused(gnu: HostCompiler, tmp_path: Path) -> None:
    """The compiler's error is the caller's."""
    (tmp_path / "include" / "all.h").write_text("int f() { return nothing; }\n")
    headers = tmp_path / "include"
    with (
        pytest.raises(DeviceError, match="refuses the generated code"),
        headers_read_once(gnu, FLAGS, headers / "all.h", (headers,), tmp_path),
    ):
        pass


def test_another_compiler_reads_them_each_time(
    gnu: HostCompiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing is made that only GCC would find."""
    other = HostCompiler(gnu.command, "clang version 14.0.6")

    def refuse(*_: object) -> None:
        raise AssertionError("nothing is compiled")

    monkeypatch.setattr(host_compiler, "compile_with", refuse)
    headers = tmp_path / "include"
    with headers_read_once(other, FLAGS, headers / "all.h", (headers,), tmp_path):
        assert not (tmp_path / "all.h.gch").exists()
