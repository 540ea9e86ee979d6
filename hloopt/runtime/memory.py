"""How much memory a run takes: the peak of what is resident while it runs, measured, not estimated.

Linux reports it (``VmHWM`` of ``/proc/self/status``) and lets a process reset it (``/proc/self/clear_refs``);
elsewhere nothing is reported, since a peak that cannot be reset includes all that ran before.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hloopt.dataclass import dataclass

__all__ = ["MemoryGrowth", "memory_limit", "peak_memory"]

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
_GROUPS = Path("/proc/self/cgroup")
_GROUP_FILES = Path("/sys/fs/cgroup")


@dataclass(slots=True)
class MemoryGrowth:
    """``peak`` is the bytes by which resident memory grew at most; None where the system does not report it."""

    peak: int | None = None


@contextmanager
def peak_memory() -> Iterator[MemoryGrowth]:
    """A context that measures the peak of memory allocated inside it.

    It belongs to the whole process: other threads count too.  Arrays that are never written take none.
    """
    memory = MemoryGrowth()
    _give_back()
    before = _resident("VmRSS") if _reset_peak() else None
    try:
        yield memory
    finally:
        after = _resident("VmHWM")
        if before is not None and after is not None:
            memory.peak = max(0, after - before)


def memory_limit() -> int | None:
    """The bytes of memory this process may have: the machine's, or those of its control group (as of a
    container) where these are less; None where the system does not report it.
    """
    limits = list(_group_limits())
    with suppress(AttributeError, ValueError, OSError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(limits, default=None)


def _group_limits() -> Iterator[int]:
    """Of the process's group and those it lies in, by either version of control groups."""
    try:
        lines = _GROUPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, kinds, path = line.split(":", 2)
        if number == "0":
            root, name = _GROUP_FILES, "memory.max"
        elif "memory" in kinds.split(","):
            root, name = _GROUP_FILES / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            with suppress(OSError, ValueError):
                yield int((folder / name).read_text())
            if folder == root:
                break


def _give_back() -> None:
    """Return freed memory to the system: what a run takes from it again would not be seen."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _reset_peak() -> bool:
    try:
        _RESET.write_text(_RESET_PEAK)
    except OSError:
        return False
    return True


def _resident(name: str) -> int | None:
    try:
        found = re.search(rf"^{name}:\s*(\d+) kB", _STATUS.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found is not None else None
