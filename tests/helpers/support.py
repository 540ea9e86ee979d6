"""Shared by the tests: sample programs, recorded inputs and outputs of corpus programs."""

from __future__ import annotations

import cProfile
import gc
import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner, Result

from hloopt.types import DTYPES

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Sample:
    """One row of samples/README.md."""

    name: str
    summary: str
    options: tuple[str, ...]


def sample_table(folder: Path) -> list[Sample]:
    """The rows of the table in samples/README.md: what the page tells is what the tests run."""
    rows = []
    for line in (folder / "README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 3 and cells[0] not in ("sample", "---"):
            rows.append(Sample(cells[0], cells[1], tuple(shlex.split(cells[2].strip("`")))))
    return rows


def invoke(*words: str, stdin: str | bytes = "", columns: int | None = None) -> Result:
    """A command in this process; an exception that is not an answer fails the test at its place."""
    from hloopt.cli.main import cli

    # Pytest's workers say how wide they are.
    runner = CliRunner(env={"COLUMNS": None if columns is None else str(columns)})
    result = runner.invoke(cli, list(words), input=stdin, prog_name="hloopt")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def count_calls(step: Callable[[], object], name: str = "") -> int:
    """How many Python functions ``step`` calls, or how often that of a name: work compared without a clock."""
    # Whoever watches the garbage collector is called whenever it runs.
    collects = gc.isenabled()
    gc.disable()
    profile = cProfile.Profile(builtins=False)
    profile.enable()
    try:
        step()
    finally:
        profile.disable()
        if collects:
            gc.enable()
    return sum(
        row.callcount
        for row in profile.getstats()
        if not isinstance(row.code, str) and name in ("", row.code.co_name)
    )


@dataclass(frozen=True)
class Recorded:
    """Inputs and outputs that XLA's CPU compiler gave, with tolerances."""

    inputs: list[Array]
    outputs: list[Array]
    specs: list[dict[str, Any]]


def as_type(values: Array, dtype_name: str) -> Array:
    """A stored array as its true type: types NumPy lacks are stored as unsigned views."""
    wanted = DTYPES[dtype_name].numpy
    if values.dtype == wanted:
        return values
    if wanted.itemsize == values.dtype.itemsize and dtype_name not in ("s4", "u4"):
        return values.view(wanted)
    return values.view(np.int8 if dtype_name == "s4" else np.uint8).astype(wanted)


def recorded(stem: Path) -> Recorded | None:
    """The record beside ``STEM.before.hlo``; None where there are no results (the bench programs)."""
    arrays_path, meta_path = stem.with_name(f"{stem.name}.npz"), stem.with_name(f"{stem.name}.json")
    if not arrays_path.exists():
        return None
    meta = json.loads(meta_path.read_text())
    with np.load(arrays_path) as arrays:
        inputs = [
            as_type(arrays[f"in_{index}"], spec["dtype"])
            for index, spec in enumerate(meta["inputs"])
        ]
        outputs = [
            as_type(arrays[f"out_{index}"], spec["dtype"])
            for index, spec in enumerate(meta["outputs"])
        ]
    return Recorded(inputs, outputs, meta["outputs"])


def mismatch(got: list[Array], record: Recorded) -> str:
    """What differs beyond the recorded tolerances, or an empty string.

    An element passes when it is equal, both are NaN, or ``|got - want| <= atol + rtol * |want|``, of integers
    ``<= spread``; an output passes when the failing fraction is at most ``max_mismatch_fraction``.
    """
    if len(got) != len(record.outputs):
        return f"{len(got)} outputs, not {len(record.outputs)}"
    for index, (left, right, spec) in enumerate(
        zip(got, record.outputs, record.specs, strict=True)
    ):
        if left.shape != right.shape or left.dtype != right.dtype:
            return f"out_{index}: {left.dtype}{left.shape}, not {right.dtype}{right.shape}"
        if left.dtype.kind in "biu":
            bad = _failing_integers(left, right, spec.get("spread", 0.0))
        else:
            bad = _failing(left, right, spec.get("rtol", 0.0), spec.get("atol", 0.0))
        if bad > spec.get("max_mismatch_fraction", 0.0):
            return f"out_{index}: {bad:.2%} of the elements differ"
    return ""


def _failing_integers(got: Array, want: Array, spread: float) -> float:
    bad = got != want
    if spread:
        bad &= np.abs(got.astype(np.float64) - want.astype(np.float64)) > spread
    return float(bad.mean()) if bad.size else 0.0


def _failing(got: Array, want: Array, rtol: float, atol: float) -> float:
    if got.size == 0:
        return 0.0
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    left, right = got.astype(wide), want.astype(wide)
    with np.errstate(invalid="ignore", over="ignore"):
        close = np.abs(left - right) <= atol + rtol * np.abs(right)
    close &= np.isfinite(left) & np.isfinite(right)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    return float((~(close | same)).mean())
