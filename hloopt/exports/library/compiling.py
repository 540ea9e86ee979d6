"""Compilers of a library: for this processor, for a level of x86-64, or for another machine."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from hloopt.backends.host_compiler import (
    HostCompiler,
    compile_with,
    find_compiler,
    identify,
    machine_flags,
)
from hloopt.backends.native.toolchain import INCLUDE, INCLUDED, compile_units, language_flags
from hloopt.dataclass import dataclass
from hloopt.errors import DeviceError, UsageError
from hloopt.exports.library.unit import share_name

__all__ = ["MARCHES", "LibraryCompiler", "library_compiler"]

MARCHES: Final = ("native", "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64")

_FEATURES: Final = (
    *("sse4.2", "popcnt", "avx", "avx2", "fma", "bmi", "bmi2", "avx512f", "avx512bw", "avx512cd"),
    *("avx512dq", "avx512vl", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vnni"),
    *("avx512bitalg", "avx512vpopcntdq"),
)
"""Names of ``__builtin_cpu_supports`` in GCC and Clang; a macro of that name says that code may use it."""

_TIME_LIMIT: Final = 600.0
_USER: Final = "a library"


@dataclass(frozen=True)
class LibraryCompiler:
    """A compiler with the flags for a processor (``march``), and what its code needs of it (``features``)."""

    compiler: HostCompiler
    march: str
    flags: tuple[str, ...]
    features: tuple[str, ...]
    machine: str

    @property
    def identity(self) -> str:
        """What the code depends on beside its text."""
        return " ".join((*self.flags, *self.features, self.machine, self.compiler.version))

    def objects(self, prefix: str, kernels: str, unit: str, folder: Path) -> list[Path]:
        """Compile the units of the kernels, that of the tables and the threads' into a folder.

        Raises ``DeviceError`` where the compiler refuses the text.
        """
        own = (*language_flags(self.compiler), "-fvisibility=hidden", f"-Dhloopt=hloopt_{prefix}")
        made = compile_units(self.compiler, (*own, *self.flags), kernels, folder)
        # What asks whether the processor suits has to run on any.
        plain = {"tables": unit, "threads": (INCLUDE / "pool.cpp").read_text(encoding="utf-8")}
        for name, text in plain.items():
            source = folder / f"{name}.cpp"
            source.write_text(text, encoding="utf-8")
            target = folder / f"{name}.o"
            given = [*own, *INCLUDED, f"-I{folder}", f"-Dhloopt_share={share_name(prefix)}"]
            arguments = [*given, "-O2", "-c", str(source), "-o", str(target)]
            compile_with(self.compiler, arguments, folder)
            made.append(target)
        return made

    def link(self, objects: Sequence[Path], output: Path, called: str) -> None:
        """Write a shared library, which the loader knows as ``called``.  Raises ``DeviceError``."""
        own: tuple[str, ...] = ("-shared", "-static-libgcc")
        if "linux" in self.machine:
            # Its threads never end: unloading it would take their code away.
            wanted = ("--as-needed", "-z", "nodelete", "-z", "defs", "-soname", called)
            own += tuple(word for one in wanted for word in ("-Xlinker", one))
        given = [*own, "-pthread", *map(str, objects), "-o", str(output)]
        compile_with(self.compiler, given)

    def archive(self, objects: Sequence[Path], output: Path) -> None:
        """Write a static library.  Raises ``DeviceError``."""
        tool = self._asked("-print-prog-name=ar").strip() or "ar"
        if shutil.which(tool) is None:
            raise DeviceError(f"a static library needs '{tool}', which is not there")
        command = [tool, "rcsD" if "linux" in self.machine else "rcs", output, *objects]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIME_LIMIT, check=False
        )
        if done.returncode:
            raise DeviceError(f"'{tool}' failed: {done.stderr.strip()[:500]}")

    def _asked(self, *options: str) -> str:
        return _asked(self.compiler, *options)


def library_compiler(march: str) -> LibraryCompiler:
    """The compiler for a processor, one of ``MARCHES``.

    Raises ``UsageError`` for another one, ``DeviceError`` where no compiler for it is there.
    """
    if march not in MARCHES:
        raise UsageError(f"--march {march} is not known: one of {', '.join(MARCHES)}")
    if march == "native":
        compiler, flags = find_compiler(_USER), machine_flags()
    else:
        wanted = march.partition("-v")[0].replace("x86-64", "x86_64")
        compiler = _for_machine(wanted)
        flags = ("-fstack-clash-protection",)
        flags += () if march == "aarch64" else (f"-march={march}",)
    defined = set(re.findall(r"#define __(\w+)__ ", _asked(compiler, *flags, *_MACROS)))
    features = [one for one in _FEATURES if one.upper().replace(".", "_") in defined]
    machine = _asked(compiler, "-dumpmachine").strip()
    return LibraryCompiler(compiler, march, flags, tuple(features), machine)


_MACROS: Final = ("-dM", "-E", "-x", "c++", "/dev/null")


def _for_machine(machine: str) -> HostCompiler:
    """The host's compiler where that is its machine, else a cross compiler by its usual name."""
    try:
        host = find_compiler(_USER)
    except DeviceError:
        if platform.machine() == machine:
            raise
    else:
        if _asked(host, "-dumpmachine").startswith(machine):
            return host
    name = f"{machine}-linux-gnu-g++"
    path = shutil.which(name)
    if path is None:
        package = f"g++-{machine.replace('_', '-')}-linux-gnu"
        raise DeviceError(
            f"no C++ compiler for {machine} is there: install {name} (Debian and Ubuntu: "
            f"apt install {package}) or name one in CXX"
        )
    return identify(path)


@cache
def _asked(compiler: HostCompiler, *options: str) -> str:
    """What a compiler prints for some options.  Raises ``DeviceError``."""
    try:
        done = subprocess.run(
            [*compiler.command, *options], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        command = " ".join([*compiler.command, *options])
        raise DeviceError(f"the C++ compiler does not answer '{command}': {error}") from error
    return done.stdout
