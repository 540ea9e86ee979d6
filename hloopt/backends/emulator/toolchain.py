"""The host's C++ compiler: found, identified by its version, and called."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from hloopt.compiled_cache import CompiledCache
from hloopt.dataclass import dataclass
from hloopt.errors import DeviceError

__all__ = [
    "HostCompiler",
    "build_program",
    "check_emulator",
    "compile_with",
    "find_compiler",
    "identify",
    "machine_flags",
    "processor",
]

INCLUDE = Path(__file__).parent / "include"

_NAMES = ("c++", "g++", "clang++")
_HELP = (
    "install one (Debian and Ubuntu: apt install g++; Fedora: dnf install gcc-c++; "
    "macOS: xcode-select --install) or name it in CXX"
)
_TIME_LIMIT = 600.0

# As on the GPU: nothing contracted, no traps, integers that wrap, no strict aliasing.
_LANGUAGE = (
    "-std=c++17",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fwrapv",
    "-fno-strict-aliasing",
    "-fno-exceptions",
    "-fno-rtti",
    "-pthread",
    "-w",
)
# GCC makes fused multiply-adds of complex products side by side, whatever -ffp-contract says.
_FAST = ("-O2", "-ftree-vectorize", "-fno-tree-slp-vectorize")
# Our checks do not see arrays in registers; GCC and Clang have both flags.
_BOUNDS = ("-fsanitize=bounds", "-fsanitize-undefined-trap-on-error")
_CHECKED = ("-O1", "-DHLOOPT_CHECK", *_BOUNDS)

_cache = CompiledCache("emulator", "")


@dataclass(frozen=True, slots=True)
class HostCompiler:
    """A command and its version text."""

    command: tuple[str, ...]
    version: str

    @property
    def is_gnu(self) -> bool:
        """Whether it has the flags that only GCC has."""
        return "Free Software Foundation" in self.version


def find_compiler() -> HostCompiler:
    """``$CXX``, or else the first of c++, g++ and clang++ there is.

    Raises ``DeviceError`` where there is none, or where ``$CXX`` cannot be read.
    """
    if os.name != "posix":
        raise DeviceError("the emulator needs a POSIX system (Linux, macOS, WSL)")
    written = os.environ.get("CXX", "")
    try:
        named = shlex.split(written)
    except ValueError as error:
        raise DeviceError(f"CXX is {written!r}, which is not a command: {error}") from error
    if named and shutil.which(named[0]) is None:
        raise DeviceError(f"CXX names the compiler {named[0]!r}, which is not there: {_HELP}")
    for command in [named] if named else [[name] for name in _NAMES]:
        path = shutil.which(command[0])
        if path is not None:
            return identify(path, *command[1:])
    raise DeviceError(
        f"the emulator needs a C++ compiler, and neither $CXX nor {', '.join(_NAMES)} is there: {_HELP}"
    )


def check_emulator() -> None:
    """Raise ``DeviceError`` where the emulator cannot run: no C++ compiler, or no POSIX system."""
    find_compiler()


@cache
def identify(*command: str) -> HostCompiler:
    """The compiler of a command.  Raises ``DeviceError`` where it does not work."""
    try:
        answer = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise DeviceError(f"the C++ compiler {command[0]!r} does not work: {error}") from error
    return HostCompiler(command, answer.stdout)


def build_program(text: str, *, is_checked: bool) -> Path:
    """The executable of a translation unit, out of the cache or compiled now.

    Raises ``DeviceError`` where there is no compiler, or where it refuses the text.
    """
    compiler = find_compiler()
    flags = (*_LANGUAGE, *machine_flags(), *(_CHECKED if is_checked else _FAST))
    headers = _headers()
    identity: tuple[str | bytes, ...] = (
        *compiler.command,
        compiler.version,
        *flags,
        processor(),
        *headers,
    )
    runtime_flags = (*_LANGUAGE, *machine_flags(), "-O2")

    def build_runtime(path: Path) -> None:
        compile_with(
            compiler, [*runtime_flags, "-c", "-o", str(path), str(INCLUDE / "runtime.cpp")]
        )

    def build(path: Path) -> None:
        unit = path.with_name("program.cpp")
        unit.write_text(text)
        inputs = [str(unit), "-x", "none", str(runtime)]
        compile_with(compiler, [*flags, f"-I{INCLUDE}", "-x", "c++", *inputs, "-o", str(path)])

    runtime = CompiledCache("emulator", ".o").get_or_build(
        ["runtime", *compiler.command, compiler.version, *runtime_flags, processor(), *headers],
        build_runtime,
    )
    return _cache.get_or_build([*identity, text], build)


def _headers() -> list[bytes]:
    return [file.read_bytes() for file in sorted(INCLUDE.iterdir()) if file.is_file()]


def machine_flags() -> tuple[str, ...]:
    """Flags for this processor; large frames touch each page, so that stack overflow is detected."""
    flags = []
    if platform.machine() in ("x86_64", "AMD64"):
        flags.append("-march=native")
    if platform.system() == "Linux":
        flags.append("-fstack-clash-protection")
    return tuple(flags)


@cache
def processor() -> str:
    """A text that distinguishes processors that do not run each other's code."""
    known = [platform.system(), platform.machine(), platform.processor()]
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return " ".join(known)
    for word in ("vendor_id", "cpu family", "model", "flags"):
        found = re.search(rf"^{word}\s*:(.*)$", text, re.MULTILINE)
        known.append(found[1].strip() if found else "")
    return " ".join(known)


def compile_with(
    compiler: HostCompiler, arguments: Sequence[str], folder: Path | None = None
) -> None:
    """Run the compiler, in a folder if one is given; it is to write what follows ``-o``.

    Raises ``DeviceError`` with its first errors, when it takes too long, or when it writes nothing.
    """
    try:
        done = subprocess.run(
            [*compiler.command, *arguments],
            capture_output=True,
            text=True,
            timeout=_TIME_LIMIT,
            check=False,
            cwd=folder,
        )
    except subprocess.TimeoutExpired as error:
        raise DeviceError(f"the C++ compiler did not end within {_TIME_LIMIT:.0f} s") from error
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        raise DeviceError(f"the C++ compiler was ended by {name}: there may be too little memory")
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        lines = errors[:5] or done.stderr.splitlines()[:5] or [f"exit code {done.returncode}"]
        raise DeviceError("the C++ compiler refuses the generated code:\n" + "\n".join(lines))
    if not Path(arguments[arguments.index("-o") + 1]).exists():
        command = " ".join(compiler.command)
        raise DeviceError(f"the C++ compiler '{command}' reported no error and wrote nothing")
