"""The host's C++ compiler: found, identified by its version, called, and spared headers that it has read."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from hloopt.cache_folder import own_folder
from hloopt.compiled_cache import CompiledCache
from hloopt.dataclass import dataclass
from hloopt.errors import DeviceError

__all__ = [
    "HostCompiler",
    "compile_with",
    "find_compiler",
    "headers_read_once",
    "identify",
    "link_with",
    "machine_flags",
    "processor",
    "quick_linker",
]

_NAMES = ("c++", "g++", "clang++")
_HELP = (
    "install one (Debian and Ubuntu: apt install g++; Fedora: dnf install gcc-c++; "
    "macOS: xcode-select --install) or name it in CXX"
)
_TIME_LIMIT = 600.0

_headers = CompiledCache("headers", ".gch")


@dataclass(frozen=True, slots=True)
class HostCompiler:
    """A command and its version text."""

    command: tuple[str, ...]
    version: str

    @property
    def is_gnu(self) -> bool:
        """Whether it has the flags that only GCC has."""
        return "Free Software Foundation" in self.version


def find_compiler(user: str) -> HostCompiler:
    """``$CXX``, or else the first of c++, g++ and clang++ there is; ``user`` is what needs one.

    Raises ``DeviceError`` where there is none, or where ``$CXX`` cannot be read.
    """
    if os.name != "posix":
        raise DeviceError(f"{user} needs a POSIX system (Linux, macOS, WSL)")
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
        f"{user} needs a C++ compiler, and neither $CXX nor {', '.join(_NAMES)} is there: {_HELP}"
    )


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


def link_with(compiler: HostCompiler, arguments: Sequence[str], folder: Path | None = None) -> None:
    """As ``compile_with``, for a call that links; raises as that does.

    GNU's ``ld`` takes 0.1 s for a small program, as long as all else; gold and LLD take a fifth of that.
    """
    compile_with(compiler, [*quick_linker(), *arguments], folder)


@cache
def quick_linker() -> tuple[str, ...]:
    """The flag that names one, where there is one; GCC and Clang look for it in ``PATH``."""
    if platform.system() != "Linux":
        return ()
    there = (name for name in ("gold", "lld") if shutil.which(f"ld.{name}"))
    return tuple(f"-fuse-ld={name}" for name in there)[:1]


@contextmanager
def headers_read_once(
    compiler: HostCompiler,
    flags: Sequence[str],
    header: Path,
    folders: Sequence[Path],
    beside: Path,
) -> Iterator[None]:
    """Have units in the folder ``beside`` that begin with ``header`` spared reading it, where that is known.

    Reading our headers takes most of the time of a small unit.  GCC maps a file ``X.gch`` into memory in place
    of the header X, where it finds that first and it suits the flags.  It is made beside the first units, which
    read X.  ``folders`` have all headers.  Raises ``DeviceError`` where the compiler refuses the header.
    """
    if not compiler.is_gnu or own_folder(_headers.kind, make=True) is None:
        yield
        return
    own = (*compiler.command, compiler.version, *flags, processor(), str(header))
    parts: list[str | bytes] = [*own]
    for one in (one for folder in folders for one in sorted(folder.glob("*.h"))):
        # GCC tells headers that it has read by their times, too.
        parts += [str(one), str(one.stat().st_mtime_ns), one.read_bytes()]

    def build(path: Path) -> None:
        given = [*flags, *(f"-I{folder}" for folder in folders), "-x", "c++-header", str(header)]
        compile_with(compiler, [*given, "-o", str(path)])

    if known := _headers.find(parts):
        (beside / f"{header.name}{_headers.suffix}").symlink_to(known)
        yield
        return
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(_headers.get_or_build, parts, build)
        yield
        made.result()
