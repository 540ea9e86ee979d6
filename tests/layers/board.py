"""What the operations of ``programs.py`` become: ``python -m tests.layers.board``.

A line a program: kernels, MiB moved and microseconds predicted of our plan, beside the least, and beside XLA's plan
where ``--xla FOLDER`` has its modules (``NAME.TYPE.txt``).  ``HLOOPT_XLA_PYTHON`` names a Python that has JAX, which
writes the programs.  Products of f32 are planned with ``--precision``, TF32 unless another is named, which is what XLA
takes.  At the end the share that is within the bounds of each figure.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from math import exp, log
from pathlib import Path

from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import model_for
from hloopt.driver.kernels import select_kernels
from hloopt.ir import Module
from hloopt.kernels.costs import kernel_costs, totals
from hloopt.passes.dots.precision import PRECISIONS, DotPrecision
from hloopt.pipelines import Given
from hloopt.reading import read
from hloopt.targets import find_gpu

_BANDWIDTH = 4.45e12
"""Bytes a second that estimates for the H200 come to."""
_RATES = {"bfloat16": 786e12, "float32": 393e12}
"""Flops a second at which products are priced; f32 as TF32."""
_BOUNDS = {"launches": 1.5, "bytes": 1.3, "time": 1.5}


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--type", choices=sorted(_RATES), action="append")
    parser.add_argument("--level", default="O3")
    parser.add_argument("--xla", type=Path)
    parser.add_argument("--precision", choices=sorted(PRECISIONS), default="tf32")
    given = parser.parse_args()
    met: dict[str, list[bool]] = {name: [] for name in _BOUNDS}
    ratios = []
    with tempfile.TemporaryDirectory() as place:
        for dtype in given.type or sorted(_RATES):
            folder = Path(place) / dtype
            write_programs(folder, dtype, given.names)
            print(f"{dtype:32} kernels     MiB      us   least: kernels     MiB      us  times")
            for facts in sorted(folder.glob("*.json")):
                passes = [DotPrecision(given.precision), given.level]
                ratio = line(facts, dtype, passes, met, given.xla)
                ratios += [ratio] if ratio else []
    for name, results in met.items():
        share = sum(results) / max(1, len(results))
        print(f"{name} at most {_BOUNDS[name]} times the least: {share:.0%} of {len(results)}")
    if ratios:
        mean = exp(sum(map(log, ratios)) / len(ratios))
        print(f"time beside XLA's plan: {mean:.2f} (geometric mean of {len(ratios)})")


def write_programs(folder: Path, dtype: str, names: list[str]) -> None:
    """The programs of one type as files."""
    python = os.environ.get("HLOOPT_XLA_PYTHON")
    if not python:
        sys.exit("HLOOPT_XLA_PYTHON names no Python that has JAX")
    script = str(Path(__file__).with_name("programs.py"))
    subprocess.run([python, script, str(folder), dtype, *names], check=True)


def line(
    facts: Path, dtype: str, passes: Given, met: dict[str, list[bool]], xla: Path | None
) -> float | None:
    """Print the line of one program; its time beside that of XLA's plan, where there is one."""
    name, least = facts.stem, json.loads(facts.read_text())
    chosen = select_kernels(facts.with_suffix(".hlo"), pipeline=passes, target="h200")
    launches, moved, seconds = priced(chosen.module)
    best = max(least["bytes"] / _BANDWIDTH, least["flops"] / _RATES[dtype])
    met["launches"].append(launches <= _BOUNDS["launches"] * least["kernels"])
    met["bytes"].append(moved <= _BOUNDS["bytes"] * least["bytes"])
    met["time"].append(seconds <= _BOUNDS["time"] * best + 1e-6)
    mib = 1 / 2**20
    text = (
        f"{name:32} {launches:7} {moved * mib:7.0f} {seconds * 1e6:7.0f} "
        f"{least['kernels']:16} {least['bytes'] * mib:7.0f} {best * 1e6:7.0f} {seconds / best:6.1f}"
    )
    theirs = xla / f"{name}.{dtype}.txt" if xla else None
    ratio = None
    if theirs is not None and theirs.exists():
        launches, moved, other = priced(read(theirs))
        ratio = seconds / other
        text += f"  XLA {launches} {moved * mib:.0f} {other * 1e6:.0f}"
    print(text, flush=True)
    return ratio


def priced(module: Module) -> tuple[int, int, float]:
    """Launches, bytes and seconds of a module that is ready, by the model that every report shows."""
    costs = kernel_costs(module, Predictor(model_for("xla-2026", find_gpu("h200"))))
    total = totals(module, costs)
    assert total.seconds is not None, "predicted"
    return total.launches, total.cost.bytes_accessed, total.seconds


if __name__ == "__main__":
    main()
