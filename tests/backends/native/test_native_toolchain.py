"""Compiling native programs: what is called, how often, and what comes of texts in parts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hloopt
from hloopt.backends.host_compiler import HostCompiler, find_compiler
from hloopt.backends.native import toolchain
from hloopt.backends.native.codegen import UNIT, parts, render
from hloopt.backends.native.compile import compile_native, prepare_native
from hloopt.backends.native.program import NativeProgram
from hloopt.errors import DeviceError
from hloopt.runtime.inputs import generate

UNITS = """HloModule m
ENTRY e {
  x = f32[40] parameter(0)
  y = bf16[40] parameter(1)
  a = f32[40] sine(x)
  b = f32[40] sine(a)
  c = f32[40] cosine(b)
  d = bf16[40] tanh(y)
  i = s32[] parameter(2)
  s = f32[4] dynamic-slice(c, i), dynamic_slice_sizes={4}
  ROOT r = (f32[4], f32[40], bf16[40]) tuple(s, c, d)
}
"""


def test_units() -> None:
    """Functions of one text are written once; units compiled apart do what one does."""
    module = hloopt.parse(UNITS)
    prepared = prepare_native(module)
    assert len(parts(prepared.plan)) == 4
    source = render(prepared.plan, functions_of_a_unit=1)
    assert len(source.split(UNIT)) == 5
    given = generate(module, 0)
    whole = compile_native(module).run(given)
    apart = NativeProgram(prepared.module, prepared.plan, source=source).run(given)
    for one, other in zip(whole, apart, strict=True):
        assert one.tobytes() == other.tobytes()


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]) -> None:
    """Without a compiler the error names the device and what to install, before anything is planned."""
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        DeviceError, match="the device 'native' needs a C\\+\\+ compiler, and neither"
    ):
        hloopt.compile(hloopt.parse(UNITS), device="native")


_CLANG = """#!/bin/sh
# Answers as clang does, which stops at flags of GCC alone.
for given; do
  case "$given" in
    --version) echo "clang version 14.0.6"; exit 0 ;;
    -fno-thread-jumps) echo "clang: error: unknown argument: '$given'" >&2; exit 1 ;;
  esac
done
exec COMPILER "$@"
"""


def test_a_compiler_that_is_not_gcc_is_given_no_flag_of_gcc(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where clang is the system's compiler, programs run as well."""
    real = find_compiler("the device 'native'")
    script = tmp_path / "clang++"
    script.write_text(_CLANG.replace("COMPILER", " ".join(real.command)))
    script.chmod(0o755)
    monkeypatch.setenv("HLOOPT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", str(script))
    assert not find_compiler("the device 'native'").is_gnu
    module = hloopt.parse(
        "HloModule m\nENTRY e { x = f32[3] parameter(0) ROOT r = f32[3] abs(x) }\n"
    )
    (result,) = compile_native(module).run([np.array([-1, 2, -3], np.float32)])
    assert result.tolist() == [1, 2, 3]


def test_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]) -> None:
    """A program is compiled once, kept by content, and compiled again for another compiler."""
    monkeypatch.setenv("HLOOPT_CACHE_DIR", str(tmp_path))
    calls: list[list[str]] = []
    compile_ = toolchain.link_with

    def counted(compiler: HostCompiler, arguments: list[str]) -> None:
        calls.append(arguments)
        compile_(compiler, arguments)

    monkeypatch.setattr(toolchain, "link_with", counted)
    text = 'extern "C" int hloopt_run(char* const*, void*) { return 0; }\n'
    first = toolchain.build_library(text)
    assert toolchain.build_library(text) == first
    assert len(calls) == 1
    toolchain.build_library(text + "// other\n")
    assert len(calls) == 2
    command = " ".join(find_compiler("the device 'native'").command)
    monkeypatch.setenv("CXX", f"{command} -DOTHER")
    toolchain.build_library(text)
    assert len(calls) == 3
    with pytest.raises(DeviceError, match="refuses the generated code"):
        toolchain.build_library("int f() { return nothing; }\n")


MANY_THREADS = """
import resource, sys
import numpy as np
import hloopt

module = hloopt.parse("HloModule m\\nENTRY e {\\n  x = f32[4000000] parameter(0)\\n  ROOT y = f32[4000000] negate(x)\\n}")
program = hloopt.compile(module, device="native", threads=100000)
x = np.arange(4000000, dtype=np.float32)
limits = resource.getrlimit(resource.RLIMIT_AS)
# As much memory beside what there is as the stacks of some dozens of threads take.
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + (1 << 29)
resource.setrlimit(resource.RLIMIT_AS, (size, limits[1]))
(y,) = program.run([x])
resource.setrlimit(resource.RLIMIT_AS, limits)
assert np.array_equal(y, -x)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process as Linux does")
def test_more_threads_than_the_system_gives() -> None:
    """Those there are do everything; nothing ends the process."""
    done = subprocess.run(
        [sys.executable, "-c", MANY_THREADS], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
