"""Finding the compiler, and not calling it twice."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hloopt.backends import host_compiler
from hloopt.backends.emulator import check_emulator, toolchain
from hloopt.backends.host_compiler import HostCompiler, compile_with, find_compiler, link_with
from hloopt.errors import DeviceError

SOURCE = "__global__ void k(int* out) { out[threadIdx.x] = 1 + threadIdx.x; }\n"


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a compiler the error says what to install, and its exit code is that of a missing device."""
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DeviceError) as caught:
        check_emulator()
    assert str(caught.value) == (
        "the emulator needs a C++ compiler, and neither $CXX nor c++, g++, clang++ is there: install one "
        "(Debian and Ubuntu: apt install g++; Fedora: dnf install gcc-c++; macOS: xcode-select --install) "
        "or name it in CXX"
    )
    assert caught.value.exit_code == 5


def test_wrong_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A compiler named in CXX is the one that is used, or an error."""
    monkeypatch.setenv("CXX", "no-such-compiler -O1")
    with pytest.raises(
        DeviceError, match="CXX names the compiler 'no-such-compiler', which is not"
    ):
        find_compiler("the emulator")
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.raises(DeviceError, match=f"the C\\+\\+ compiler '{broken}' does not work"):
        find_compiler("the emulator")
    monkeypatch.setenv("CXX", "g++ 'half a word")
    with pytest.raises(DeviceError, match="which is not a command: No closing quotation"):
        find_compiler("the emulator")


def test_compiler_that_writes_nothing(tmp_path: Path) -> None:
    """It is told before anybody looks for the file."""
    with pytest.raises(DeviceError, match="'true' reported no error and wrote nothing"):
        compile_with(HostCompiler(("true",), ""), ["-c", "a.cpp", "-o", str(tmp_path / "a.o")])


def test_compiler_that_is_killed(tmp_path: Path) -> None:
    """As where memory runs out: nothing is wrong with the code."""
    killed = tmp_path / "killed"
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o755)
    with pytest.raises(DeviceError, match="was ended by SIGKILL: there may be too little memory"):
        compile_with(HostCompiler((str(killed),), ""), ["-o", str(tmp_path / "a.o")])


def test_compiler_with_options(
    compiler: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """CXX may have options."""
    found = find_compiler("the emulator")
    monkeypatch.setenv("CXX", " ".join([*found.command, "-DSOMETHING"]))
    assert find_compiler("the emulator").command == (*found.command, "-DSOMETHING")
    assert find_compiler("the emulator").version == found.version


@pytest.mark.parametrize(
    ("there", "flags"),
    [((), []), (("ld.lld",), ["-fuse-ld=lld"]), (("ld.lld", "ld.gold"), ["-fuse-ld=gold"])],
)
def test_the_quickest_linker_that_is_there(
    there: Sequence[str], flags: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A linker that is not there is not named: the compiler would refuse it."""
    compiler = tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/given\n')
    for path in (compiler, *(tmp_path / name for name in there)):
        path.touch()
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("platform.system", lambda: "Linux")
    host_compiler.quick_linker.cache_clear()
    try:
        link_with(HostCompiler((str(compiler),), ""), ["-o", str(compiler)])
    finally:
        host_compiler.quick_linker.cache_clear()
    given = (tmp_path / "given").read_text().split()
    assert given == [*flags, "-o", str(compiler)]


def test_cache(bench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A program is compiled once for each mode; a damaged executable is compiled again."""
    monkeypatch.setenv("HLOOPT_CACHE_DIR", str(tmp_path))
    calls: list[list[str]] = []

    def count(name: str) -> None:
        call = getattr(toolchain, name)

        def counted(compiler: Any, arguments: list[str]) -> None:
            calls.append(arguments)
            call(compiler, arguments)

        monkeypatch.setattr(toolchain, name, counted)

    count("compile_with")
    count("link_with")

    def run(mode: str) -> list[int]:
        made = bench(SOURCE, mode=mode)
        out = made.blank(16)
        made.launch("k", 1, 4, [out])
        values = list(made.read(out, np.int32))
        made.device.close()
        return values

    assert run("fast") == [1, 2, 3, 4]
    assert len(calls) == 2  # the runtime and the program
    assert run("fast") == [1, 2, 3, 4]
    assert len(calls) == 2
    assert run("check") == [1, 2, 3, 4]
    assert len(calls) == 3
    programs = [path for path in (tmp_path / "emulator").iterdir() if not path.suffix]
    assert len(programs) == 2
    for path in programs:
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2])
        os.utime(path)
    assert run("fast") == [1, 2, 3, 4]
    assert len(calls) == 4


def test_folder_whose_programs_cannot_run(
    bench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A cache on a file system that runs no programs is an error that says what to do."""
    monkeypatch.setenv("HLOOPT_CACHE_DIR", str(tmp_path))
    made = bench(SOURCE)
    made.device._executable.chmod(0o644)
    with pytest.raises(
        DeviceError, match=r"cannot run '.*': Permission denied; HLOOPT_CACHE_DIR may name"
    ):
        made.launch("k", 1, 4, [made.blank(16)])


def test_headers_travel_with_the_package() -> None:
    """The headers lie beside the Python files, whose folder is packed whole."""
    names = {path.name for path in toolchain.INCLUDE.iterdir()}
    assert {"emulator.h", "runtime.cpp", "checked.h"} <= names


def test_other_processors(bench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no switch of fibers for the processor, ucontext's is taken."""
    monkeypatch.setenv(
        "CXX", " ".join([*find_compiler("the emulator").command, "-DHLOOPT_UCONTEXT"])
    )
    source = """__global__ void k(const int* in, int* out) {
  __shared__ int s[96];
  s[threadIdx.x] = in[threadIdx.x];
  for (int i = 0; i < 3; i++) {
    __syncthreads();
    const int other = s[(threadIdx.x + 1) % 96] + __shfl_xor_sync(0xffffffffu, s[threadIdx.x], 1);
    __syncthreads();
    s[threadIdx.x] = other;
  }
  out[blockIdx.x * 96 + threadIdx.x] = s[threadIdx.x];
}"""
    given = np.arange(96, dtype=np.int32)
    want = given
    for _ in range(3):
        want = np.roll(want, -1) + want[np.arange(96) ^ 1]
    made = bench(source)
    out = made.blank(96 * 4 * 50)
    made.launch("k", 50, 96, [made.buffer(given), out])
    assert (made.read(out, np.int32).reshape(50, 96) == want).all()
