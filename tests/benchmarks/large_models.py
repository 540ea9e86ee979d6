"""Large models with weights from a seed, one run each, beside XLA's CPU compiler."""

from __future__ import annotations

from typing import Any

from tests.benchmarks.children import ours, saved, theirs
from tests.benchmarks.remembering import large_models
from tests.oracle.oracle import available

__all__ = ["MODELS", "models"]

MODELS = "Large models (seconds; one run each)"
PIPELINE = "O2"


def models(count: int) -> list[dict[str, Any]]:
    """Parsing, optimising, compiling, the first run and a run after it; and XLA's."""
    del count  # one run each
    rows = []
    for program in large_models():
        inputs = saved(program)
        found = ours(program.path, inputs, PIPELINE, seconds=1e-3)
        row: dict[str, Any] = {"model": program.name}
        row |= {step: found[step] for step in ("parse", "optimize", "compile", "first", "warm")}
        if available():
            said = theirs(program.path, inputs, seconds=1e-3)
            row |= {f"xla {step}": said[step] for step in ("parse", "compile", "first", "warm")}
            row["ratio first"] = row["first"] / row["xla first"]
            row["ratio warm"] = row["warm"] / row["xla warm"]
        rows.append(row)
    return rows
