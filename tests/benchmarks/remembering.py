"""How much memory a run takes beside what has to be there at once."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.children import FOLDER, Program, child, programs, saved

__all__ = ["MEMORY", "memory"]

MEMORY = "Memory of a run on cpu (megabytes; ratio of its peak to what lives at once)"
LEAST = 1 << 20
"""Bytes of inputs, and of what lives at once beside them: fewer are lost in what a process takes by itself."""
PIPELINES = ("none", "O2")


def memory(count: int, *, models: bool = False) -> list[dict[str, Any]]:
    """Programs with large inputs, each pipeline in a process of its own; with ``models`` the large ones too."""
    del count  # memory is the same each time
    chosen = [one for one in programs() if sum(array.nbytes for array in one.inputs) >= LEAST]
    rows = []
    for program in chosen + (large_models() if models else []):
        for pipeline in PIPELINES:
            command = [sys.executable, str(FOLDER / "run_ours.py"), "memory"]
            said = json.loads(child([*command, str(program.path), str(saved(program)), pipeline]))
            if said["bound"] >= LEAST:
                rows.append(
                    {
                        "program": program.name,
                        "pipeline": pipeline,
                        "inputs": sum(array.nbytes for array in program.inputs) / 1e6,
                        "live": said["bound"] / 1e6,
                        "peak": said["peak"] / 1e6,
                        "ratio": said["peak"] / said["bound"],
                    }
                )
    return rows


def large_models() -> list[Program]:
    """Of the corpus' models those that a machine of 16 GB runs, with inputs from a seed."""
    import hloopt
    from hloopt.runtime.inputs import generate

    corpus = os.environ.get("HLOOPT_CORPUS")
    found = []
    for name in ("resnet50_train", "detr_predict", "dit_predict") if corpus else ():
        path = Path(str(corpus)) / "models" / f"{name}.hlo"
        module = hloopt.parse(path.read_text(), path.name)
        found.append(Program(name, path, [np.asarray(array) for array in generate(module)]))
    return found
