"""Whether XLA compiles what O2 made, fusions taken apart, and computes the recorded outputs from it."""

from __future__ import annotations

from pathlib import Path
from subprocess import TimeoutExpired
from tempfile import TemporaryDirectory

import numpy as np

from tests.corpus.records import record_of
from tests.helpers.support import as_type, mismatch
from tests.oracle.oracle import ask

__all__ = ["compiled"]


def compiled(original: Path, emitted: Path) -> dict[str, str]:
    """The outcome of the stage for a file with recorded results."""
    record = record_of(original)
    assert record is not None, f"nothing is recorded for {original}"
    with TemporaryDirectory() as folder:
        given, found = Path(folder, "given.npz"), Path(folder, "found.npz")
        np.savez(given, **{f"in_{index}": array for index, array in enumerate(record.inputs)})
        try:
            ask("run", str(emitted), str(given), str(found))
        except (AssertionError, TimeoutExpired) as error:
            return {"compiled": f"failed: XLA: {_last_line(error)}"}
        with np.load(found) as arrays:
            results = [
                as_type(arrays[f"out_{index}"], spec["dtype"])
                for index, spec in enumerate(record.specs)
            ]
    difference = mismatch(results, record)
    return {"compiled": f"failed: {difference}" if difference else "ok"}


def _last_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
