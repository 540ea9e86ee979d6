"""Shared objects of native programs: compiled for speed, cached by content."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from hloopt.backends.emulator.toolchain import INCLUDE as WORDS
from hloopt.backends.host_compiler import (
    HostCompiler,
    compile_with,
    find_compiler,
    headers_read_once,
    link_with,
    machine_flags,
    processor,
)
from hloopt.backends.native.codegen import UNIT
from hloopt.backends.numpy.threads import thread_count
from hloopt.compiled_cache import CompiledCache

__all__ = [
    "INCLUDE",
    "INCLUDED",
    "build_library",
    "check_native",
    "compile_units",
    "language_flags",
    "shared_pool",
]

INCLUDE = Path(__file__).parent / "include"
_FOLDERS = (INCLUDE, WORDS)

# Roundings as HLO requires: nothing contracted or reassociated; no traps.  Generated code computes what may
# wrap in unsigned types: -fwrapv would let indices wrap, too, and turn contiguous loads into gathers.
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
    "-pthread",
    "-w",
    # GNU's library reads its special functions with <cmath>, a third of all that a unit reads, unless it has
    # them already; other libraries ignore the macro.
    "-D_GLIBCXX_BITS_SPECFUN_H",
)

# GCC would turn several selects by one predicate into two branches, and a comparison of what was selected
# before into a choice between two comparisons: neither is vectorised.
_GNU_FLAGS = ("-fno-thread-jumps", "-fno-tree-pre")

INCLUDED = tuple(f"-I{folder}" for folder in _FOLDERS)

_USER = "the device 'native'"

_cache = CompiledCache("native", ".so")


def check_native() -> None:
    """Raise ``DeviceError`` where there is no C++ compiler."""
    find_compiler(_USER)


def language_flags(compiler: HostCompiler) -> tuple[str, ...]:
    """The flags of all units, whatever the processor."""
    return (*_FLAGS, *(_GNU_FLAGS if compiler.is_gnu else ()))


def build_library(text: str, include: tuple[str, ...] = (), header: str = "") -> Path:
    """The shared object of a text of one unit or several (``UNIT``), out of the cache or made now.

    ``include`` has folders of other headers, which are taken to stay as they are; ``header`` is the one of ours
    that each unit begins with, if they begin with one.
    Raises ``DeviceError`` where there is no compiler, or where it refuses the text.
    """
    compiler = find_compiler(_USER)
    own = (*machine_flags(), *(f"-I{folder}" for folder in include))
    flags = (*language_flags(compiler), *own)
    identity: list[str | bytes] = [
        *compiler.command,
        compiler.version,
        *flags,
        processor(),
        *_headers(),
        text,
    ]

    def build(path: Path) -> None:
        if not header:
            _compile(compiler, flags, text, path)
            return
        with headers_read_once(compiler, flags, INCLUDE / header, _FOLDERS, path.parent):
            _compile(compiler, flags, text, path)

    return _cache.get_or_build(identity, build)


@cache
def shared_pool() -> Any:
    """The function by which all programs of this process share work among threads.

    Raises as ``build_library``.
    """
    text = (INCLUDE / "pool.cpp").read_text(encoding="utf-8")
    return ctypes.CDLL(str(build_library(text))).hloopt_share


def _compile(compiler: HostCompiler, flags: tuple[str, ...], text: str, path: Path) -> None:
    """Compile the units of a text, and link them."""
    if UNIT not in text:
        source = path.with_name("unit_0.cpp")
        source.write_text(text, encoding="utf-8")
        given = [*flags, *INCLUDED, "-shared", str(source), "-o", str(path)]
        link_with(compiler, given)
        return
    objects = [str(one) for one in compile_units(compiler, flags, text, path.parent)]
    link_with(compiler, [*flags, "-shared", *objects, "-o", str(path)])


def compile_units(
    compiler: HostCompiler, flags: tuple[str, ...], text: str, folder: Path
) -> list[Path]:
    """Compile the units of a text in parallel, and give the objects, which are in the folder.

    Raises ``DeviceError`` where the compiler refuses the text.
    """
    units = text.split(UNIT)
    sources = [folder / f"unit_{number}.cpp" for number in range(len(units))]
    for source, unit in zip(sources, units, strict=True):
        source.write_text(unit, encoding="utf-8")

    def compiled(source: Path) -> Path:
        # The driver, which is the last unit of several, consists of calls: optimising it does not pay.
        quick = ["-O1"] if source is sources[-1] and len(sources) > 1 else []
        made = source.with_suffix(".o")
        given = [*flags, *INCLUDED, *quick, "-c", str(source), "-o", str(made)]
        compile_with(compiler, given)
        return made

    with ThreadPoolExecutor(thread_count()) as pool:
        return list(pool.map(compiled, sources))


def _headers() -> list[bytes]:
    return [
        path.read_bytes()
        for folder in _FOLDERS
        for path in sorted(folder.iterdir())
        if path.suffix == ".h"
    ]
