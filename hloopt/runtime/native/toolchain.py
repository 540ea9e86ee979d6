"""Shared objects of native programs: compiled for speed, kept by content."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

from hloopt.errors import DeviceError
from hloopt.runtime.compiled_cache import CompiledCache
from hloopt.runtime.emulator import toolchain as emulator

__all__ = ["build_library", "check_native", "shared_pool"]

INCLUDE = Path(__file__).parent / "include"
_WORDS = emulator.INCLUDE

# Roundings as HLO asks for them: nothing contracted or regrouped; no traps.  Generated code computes what may
# wrap without signs: -fwrapv would let indices wrap, too, and make gathers of neighbours.
_FLAGS = (
    "-std=c++17",
    "-O3",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-strict-aliasing",
    "-fno-exceptions",
    "-fno-rtti",
    "-fopenmp-simd",
    "-fPIC",
    "-shared",
    "-pthread",
    "-w",
)

_cache = CompiledCache("native", ".so")


def check_native() -> None:
    """Raise ``DeviceError`` where no C++ compiler is to be found."""
    try:
        emulator.find_compiler()
    except DeviceError as error:
        raise DeviceError(str(error).replace("the emulator", "the device 'native'")) from error


def build_library(text: str) -> Path:
    """The shared object of a translation unit, out of the cache or compiled now.

    Raises ``DeviceError`` where there is no compiler, or where it refuses the text.
    """
    return _build(text, (*_FLAGS, *emulator.machine_flags()))


@cache
def shared_pool() -> Any:
    """The function by which all programs of this process share work among threads.

    Raises as ``build_library``.
    """
    text = (INCLUDE / "pool.cpp").read_text(encoding="utf-8")
    return ctypes.CDLL(str(_build(text, (*_FLAGS, *emulator.machine_flags())))).hloopt_share


def _build(text: str, flags: tuple[str, ...]) -> Path:
    check_native()
    compiler = emulator.find_compiler()
    identity: list[str | bytes] = [
        *compiler.command,
        compiler.version,
        *flags,
        emulator.processor(),
        *_headers(),
        text,
    ]

    def build(path: Path) -> None:
        unit = path.with_name("program.cpp")
        unit.write_text(text, encoding="utf-8")
        arguments = [*flags, f"-I{INCLUDE}", f"-I{_WORDS}", str(unit), "-o", str(path)]
        emulator.compile_with(compiler, arguments)

    return _cache.get_or_build(identity, build)


def _headers() -> list[bytes]:
    return [
        path.read_bytes()
        for folder in (INCLUDE, _WORDS)
        for path in sorted(folder.iterdir())
        if path.suffix == ".h"
    ]
