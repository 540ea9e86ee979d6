"""Regular expressions, compiled once for all processes.

Python takes up to 15 ms to compile one of the grammar's long expressions, and forgets it at the end.  What its
compiler hands to its engine are numbers, which the engine checks before it takes them; they are kept for
versions of Python of which it is known how they are handed over.  Elsewhere expressions are compiled.
"""

from __future__ import annotations

import json
import re
import sys
from importlib import import_module
from typing import Any

from hloopt.text import cache

__all__ = ["compiled"]

# Shorter ones are compiled as quickly as they are looked up (measured: half a millisecond).
_LONG = 400
# Tried with 3.11.7, 3.12.1 and 3.13.0: the pattern equals the one that is compiled.
_KNOWN = ((3, 11), (3, 12), (3, 13))


def compiled(expression: str) -> re.Pattern[str]:
    """``re.compile(expression)``."""
    if len(expression) < _LONG or not _is_known():
        return re.compile(expression)
    name = f"expression-{cache.digest(_engine(), expression.encode())}.json"
    stored = cache.read(name)
    numbers = _numbers(expression) if stored is None else json.loads(stored)
    if stored is None:
        cache.write(name, json.dumps(numbers, separators=(",", ":")).encode())
    return _handed_over(expression, *numbers)


def _is_known() -> bool:
    return sys.implementation.name == "cpython" and sys.version_info[:2] in _KNOWN


def _engine() -> bytes:
    """What the numbers are for."""
    engine: Any = import_module("_sre")
    return repr((sys.version, sys.byteorder, engine.MAGIC, engine.CODESIZE)).encode()


def _numbers(expression: str) -> tuple[int, list[int], int, dict[str, int]]:
    """Flags, code, number of groups, and the numbers of those with names."""
    library: Any = re
    parsed = library._parser.parse(expression, 0)
    state = parsed.state
    return state.flags, library._compiler._code(parsed, 0), state.groups - 1, state.groupdict


def _handed_over(
    expression: str, flags: int, code: list[int], groups: int, names: dict[str, int]
) -> re.Pattern[str]:
    of_group: list[str | None] = [None] * (groups + 1)
    for name, number in names.items():
        of_group[number] = name
    engine: Any = import_module("_sre")
    made: re.Pattern[str] = engine.compile(expression, flags, code, groups, names, tuple(of_group))
    return made
