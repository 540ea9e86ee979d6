"""What XLA makes of the text we print, asked in a process that may die of it.

reread      XLA reads it; excused where XLA does not read what itself prints of the module
same        XLA reads the same module from it as from the original text
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hloopt.workers.process import Worker
from hloopt.workers.records import NoAnswer
from tests.oracle.oracle import CHILD, python

__all__ = ["NOT_ITS_OWN", "reread", "xla_worker"]

TIME_LIMIT = 300.0
NOT_ITS_OWN = "XLA does not read what itself prints of this module"

# Names of computations are no part of what is compared: those of computations in place are made up.
_HEADING = re.compile(r"^(\s*(?:ENTRY )?)\S+ ((?:\(.*)?\{)$", re.MULTILINE)
_CONSTANT = re.compile(r" constant\(.*?\)(?=[,\n])")


def xla_worker() -> Worker:
    """A process that answers questions about XLA's reading."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    return Worker((python(), str(CHILD), "answer"), TIME_LIMIT, environment)


def reread(worker: Worker, original: Path, printed: Path) -> dict[str, str]:
    """The outcomes of both stages."""
    ours = _ask(worker, printed)
    if ours["error"]:
        own = _ask(worker, original, again=True)["error"]
        if own:
            return {"reread": f"failed: {NOT_ITS_OWN}: {own}"}
        return {"reread": f"failed: {ours['error']}"}
    theirs = _ask(worker, original)
    if theirs["error"]:
        return {
            "reread": "ok",
            "same": f"failed: XLA does not read the original: {theirs['error']}",
        }
    elided = "{...}" in original.read_text()
    left, right = (_plain(answer["module"], elided) for answer in (theirs, ours))
    return {"reread": "ok", "same": "ok" if left == right else f"failed: {_first(left, right)}"}


def _ask(worker: Worker, path: Path, again: bool = False) -> dict[str, Any]:
    try:
        return dict(worker.ask({"path": str(path), "again": again}))
    except NoAnswer as reason:
        return {"error": f"XLA: {reason}", "module": None}


def _plain(module: str, elided: bool) -> str:
    """XLA's canonical text without names of computations, and without values that it made up."""
    text = _HEADING.sub(r"\1\2", module)
    return _CONSTANT.sub(" constant()", text) if elided else text


def _first(left: str, right: str) -> str:
    """The first lines that differ."""
    pairs = zip(left.splitlines(), right.splitlines(), strict=False)
    for one, other in pairs:
        if one != other:
            return f"{_short(one)} is read as {_short(other)}"
    return "one text goes on where the other ends"


def _short(line: str) -> str:
    line = line.strip()
    return line if len(line) < 300 else f"{line[:300]}..."
