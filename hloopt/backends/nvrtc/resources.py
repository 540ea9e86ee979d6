"""The resources of a function's machine code, read from the assembler's report.

The report is ptxas's (``--ptxas-options=-v``): for each entry function a line that names it, one with stack
frame and spills, and one with registers, barriers, shared and constant memory.  Functions that were not
inlined are reported after, without registers; what they take is part of the callers' figures, except for
spills, which are counted with the program's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from hloopt.dataclass import dataclass

__all__ = ["Resources", "read_resources"]


@dataclass(frozen=True, slots=True)
class Resources:
    """Of one thread: registers (32 bits each), stack and spills in bytes; of one block: shared bytes.

    ``stack`` is that of the deepest call; ``constant`` are bytes of all constant banks, arguments included
    (ptxas reports none from sm_90 on).
    """

    registers: int = 0
    stack: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    shared: int = 0
    constant: int = 0
    barriers: int = 0


_ENTRY = re.compile(r"Compiling entry function '(?P<name>[^']+)' for")
_PROPERTIES = re.compile(r"Function properties for (?P<name>\S+)")
_SPILLS = re.compile(
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads"
)
_USED = re.compile(r"Used (?P<registers>\d+) registers")
_CUMULATIVE = re.compile(r"(\d+) bytes cumulative stack size")
_SHARED = re.compile(r"(\d+)(?:\+(\d+))? bytes smem")
_CONSTANT = re.compile(r"(\d+) bytes cmem\[\d+\]")
_BARRIERS = re.compile(r"used (\d+) barriers")


def read_resources(log: str) -> Mapping[str, Resources]:
    """What each function takes, entry functions and those that were not inlined, by their linkage names."""
    found: dict[str, Resources] = {}
    entry = function = ""
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            entry = match["name"]
            found[entry] = Resources()
        elif match := _PROPERTIES.search(line):
            function = match["name"]
            found.setdefault(function, Resources())
        elif match := _SPILLS.search(line):
            found[function] = replace(
                found[function],
                stack=int(match["stack"]),
                spill_stores=int(match["stores"]),
                spill_loads=int(match["loads"]),
            )
        elif match := _USED.search(line):
            found[entry] = _used(found[entry], line, int(match["registers"]))
    return MappingProxyType(found)


def _used(before: Resources, line: str, registers: int) -> Resources:
    cumulative = _CUMULATIVE.search(line)
    barriers = _BARRIERS.search(line)
    return replace(
        before,
        registers=registers,
        stack=max(before.stack, int(cumulative[1]) if cumulative else 0),
        shared=sum(int(a) + int(b or 0) for a, b in _SHARED.findall(line)),
        constant=sum(int(size) for size in _CONSTANT.findall(line)),
        barriers=int(barriers[1]) if barriers else 0,
    )
