"""How long a command takes that has next to nothing to do."""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.children import ROOT, child

__all__ = ["STARTING", "starting"]

STARTING = "Starting (seconds of the whole process)"
# What is checked: about 20 kB, and about 35.
CHECKED = ("softmax_cross_entropy", "layernorm_gelu")


def starting(count: int) -> list[dict[str, Any]]:
    """Median and quickest, the commands in turn, so that a busy moment meets all of them."""
    commands = {
        'python -c "import numpy"': ["-c", "import numpy"],
        "hloopt --help": ["-m", "hloopt", "--help"],
    }
    for name in CHECKED:
        path = ROOT / "samples" / f"{name}.hlo"
        size = Path(path).stat().st_size // 1000
        commands[f"hloopt check, {size} kB"] = ["-m", "hloopt", "check", str(path)]
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(count + 1):
        for name, command in commands.items():
            start = time.perf_counter()
            child([sys.executable, *command])
            if turn:  # the first leaves bytecode and tables for the others
                seconds[name].append(time.perf_counter() - start)
    return [
        {"command": name, "median": statistics.median(found), "quickest": min(found)}
        for name, found in seconds.items()
    ]
