"""Programs from text to result, and again and again, beside XLA's CPU compiler.

``cold`` adds up the steps of a process that has run nothing: parsing, the pipeline's passes, compiling and the
first run, with what they load; importing ``hloopt`` or JAX itself is left out.  ``whole`` is the process from
its start to the first result.  ``warm`` is the quickest run, and the median of the processes' where there are
several.  The processes of a program take turns, so that a busy moment of the machine meets all of them.
"""

from __future__ import annotations

import statistics
from functools import cache
from math import exp, log
from typing import Any

from hloopt.errors import HlooptError
from tests.benchmarks.children import Program, ours, programs, saved, theirs
from tests.oracle.oracle import available

__all__ = ["EXECUTING", "executing"]

EXECUTING = "Executing (seconds; cold: text to result, warm: quickest run; ratios to XLA, above 1 is slower)"
PIPELINES = ("none", "O1", "O2")
"""Each has a column of its own."""
NATIVE = ("O1", "O2")
"""Those of the device ``native``."""
SECONDS = 0.3
"""How long each process repeats the run."""
LIMIT = 12.0
"""How many times XLA's time a program may take without being marked."""


def executing(count: int) -> list[dict[str, Any]]:
    """A row a program, then the geometric means of the ratios."""
    rounds = max(1, count // 7)
    rows = [_row(program, rounds) for program in programs()]
    if available():
        rows.append(_means(rows))
    return rows


def _row(program: Program, rounds: int) -> dict[str, Any]:
    inputs = saved(program)
    sides: dict[str, list[dict[str, Any]]] = {}
    for _ in range(rounds):
        for pipeline in PIPELINES:
            told = ours(program.path, inputs, pipeline, seconds=SECONDS)
            sides.setdefault(pipeline, []).append(told)
        for pipeline in NATIVE if native() == "" else ():
            told = ours(program.path, inputs, pipeline, "native", SECONDS)
            sides.setdefault(f"native {pipeline}", []).append(told)
        if available():
            sides.setdefault("xla", []).append(theirs(program.path, inputs, SECONDS))
    row: dict[str, Any] = {"program": program.name}
    row |= {f"cold {one}": _work(sides[one]) for one in PIPELINES}
    row |= {f"whole {one}": _median(sides[one], "whole") for one in PIPELINES}
    row |= {f"warm {one}": _median(found, "warm") for one, found in sides.items() if one != "xla"}
    if available():
        row |= {
            "xla cold": _work(sides["xla"]),
            "xla whole": _median(sides["xla"], "whole"),
            "xla warm": _median(sides["xla"], "warm"),
        }
        row |= _ratios(row)
    return row


def _ratios(row: dict[str, Any]) -> dict[str, Any]:
    """Of each of our columns to XLA's of its kind; and a mark for what is too slow."""
    found = {
        f"ratio {column}": row[column] / row[f"xla {column.split()[0]}"]
        for column in tuple(row)
        if column.startswith(("cold", "whole", "warm")) and row[column] is not None
    }
    slow = [
        column.removeprefix("ratio ")
        for column, ratio in found.items()
        if column.startswith("ratio warm") and ratio > LIMIT
    ]
    return {**found, "over": f"{LIMIT:.0f}x: {', '.join(slow)}" if slow else ""}


def _means(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Geometric means of the ratios, of the programs that a column has."""
    last: dict[str, Any] = {"program": "geometric mean"}
    for column in rows[0]:
        if column.startswith("ratio "):
            values = [row[column] for row in rows if column in row]
            last[column] = exp(statistics.fmean(map(log, values)))
    return last


def _work(found: list[dict[str, Any]]) -> float | None:
    """The steps of a process together, the median of the processes."""
    steps = ("parse", "optimize", "compile", "first")
    told = [sum(one.get(step, 0.0) for step in steps) for one in found if "refused" not in one]
    return statistics.median(told) if told else None


def _median(found: list[dict[str, Any]], step: str) -> float | None:
    told = [one[step] for one in found if "refused" not in one]
    return statistics.median(told) if told else None


@cache
def native() -> str:
    """Why there is no column of the device ``native``, empty where there is one."""
    from hloopt.backends import DEVICES, check_device

    if "native" not in DEVICES:
        return "there is no such device"
    try:
        check_device("native")
    except HlooptError as error:
        return str(error)
    return ""
