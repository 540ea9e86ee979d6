"""``mpiexec``, of whichever MPI there is: where it is, and how it starts more processes than there are cores."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["descendants", "environment", "is_open_mpi", "mpiexec", "start", "why_not"]


@functools.cache
def mpiexec() -> Path | None:
    """The one beside this Python, which a wheel of MPICH brings, or that of the system."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.is_file() else shutil.which("mpiexec")
    return Path(found) if found else None


@functools.cache
def why_not() -> str:
    """Why no process can be started; nothing where some can."""
    if importlib.util.find_spec("mpi4py") is None:
        return "no mpi4py: install the extra mpi"
    if mpiexec() is None:
        return "no mpiexec, neither beside Python nor on the PATH"
    return ""


@functools.cache
def is_open_mpi() -> bool:
    """Whether ``mpiexec`` is Open MPI's."""
    words = [str(mpiexec()), "--version"]
    said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=30).stdout
    return any(name in said for name in ("OpenRTE", "Open MPI", "PRRTE"))


def start(processes: int) -> list[str]:
    """The words before a command that start it so many times.

    Open MPI starts no more processes than there are cores, unless it is told that this is meant.
    """
    more = ["--oversubscribe"] if is_open_mpi() else []
    return [str(mpiexec()), *more, "-n", str(processes)]


def environment() -> dict[str, str]:
    """This process's; Open MPI refuses the user root, which containers have, without two variables."""
    names = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
    return dict(os.environ) | dict.fromkeys(names, "1")


def descendants(parent: int) -> list[tuple[int, str]]:
    """Numbers and command lines of a process's children, their children and so on."""
    found, pending = [], [parent]
    while pending:
        children = Path(f"/proc/{pending.pop()}/task").glob("*/children")
        for number in (int(word) for file in children for word in file.read_text().split()):
            line = Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            found.append((number, line))
            pending.append(number)
    return found
