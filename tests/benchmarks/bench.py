"""``make bench``: medians and ratios, printed, never asserted.

Reading is timed beside XLA's own parser where jaxlib can be asked (HLOOPT_XLA_PYTHON or the extra xla), and
the executor beside the interpreter, in one run on one machine.  ``--json`` prints the figures.

``first`` is what a user waits for: the first reading of a text in a new process, imports and grammar not
counted.  ``again`` is the same text once more in the same process; hloopt then has every shape and attribute
value of it at hand, so it says nothing of a text that is new.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import hloopt
from tests.benchmarks.blocking import BLOCKING, blocking
from tests.benchmarks.executing import EXECUTING, executing, native
from tests.benchmarks.iterations import ITERATIONS, iterations
from tests.benchmarks.large_models import MODELS, models
from tests.benchmarks.looping import LOOPING, looping
from tests.benchmarks.moving import MOVING, moving
from tests.benchmarks.native_kernels import NATIVE_KERNELS, native_kernels
from tests.benchmarks.optimizing import OPTIMIZING, optimizing
from tests.benchmarks.remembering import MEMORY, memory
from tests.benchmarks.starting import STARTING, starting
from tests.helpers.support import as_type, sample_table
from tests.oracle.oracle import ask, available

ROOT = Path(__file__).resolve().parents[2]

FOLDER = ROOT / "samples"
MEGABYTE = 1_000_000


READING = "Reading and printing (seconds; ratios to XLA's parser and printer)"
RUNNING = "Running (seconds; ratio of interpreter to executor after O2)"


def median(step: Callable[[], object], count: int) -> float:
    """Median seconds of ``count`` calls after one to warm up."""
    step()
    times = []
    for _ in range(count):
        gc.collect()
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def texts() -> list[Path]:
    """What is read: the larger samples, and of the corpus the models with the most text."""
    found = sorted(FOLDER.glob("*.hlo"), key=lambda path: -path.stat().st_size)[:3]
    corpus = os.environ.get("HLOOPT_CORPUS")
    if corpus:
        models = (Path(corpus) / "models").glob("*.hlo")
        found += [path for path in sorted(models) if path.stat().st_size > MEGABYTE]
    return found


def read_repeatedly(path: str, count: int) -> list[tuple[float, float]]:
    """Seconds of ``count`` readings and printings in this process, which has read nothing of size."""
    text = Path(path).read_text()
    hloopt.parse("HloModule m\nENTRY e { ROOT p = f32[] parameter(0) }\n")  # loads the grammar
    pairs = []
    for _ in range(count):
        gc.collect()
        start = time.perf_counter()
        module = hloopt.parse(text)
        middle = time.perf_counter()
        module.to_text()
        pairs.append((middle - start, time.perf_counter() - middle))
    return pairs


def read_in_new_process(path: Path, count: int) -> list[tuple[float, float]]:
    """The same in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "tests.benchmarks.bench",
        "--read",
        str(path),
        "--count",
        str(count),
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return [tuple(pair) for pair in json.loads(result.stdout)]


def reading(count: int) -> list[dict[str, Any]]:
    """Median seconds to read a text into a module and to print it, first and again; XLA's beside it.

    The two take turns, so that a busy moment of the machine meets both.
    """
    rows = []
    for path in texts():
        ours, theirs = [], []
        for _ in range(count):
            ours.append(read_in_new_process(path, 2))
            if available():
                theirs.append(json.loads(ask("times", str(path), "2")))
        row: dict[str, Any] = {"text": path.stem, "megabytes": path.stat().st_size / 1e6}
        for column, (turn, step) in {
            "first": (0, 0),
            "again": (1, 0),
            "print": (1, 1),
        }.items():
            row[column] = statistics.median(run[turn][step] for run in ours)
            if theirs:
                row[f"xla {column}"] = statistics.median(run[turn][step] for run in theirs)
                row[f"ratio {column}"] = row[column] / row[f"xla {column}"]
        rows.append(row)
    return rows


def running(count: int) -> list[dict[str, Any]]:
    """Seconds of the interpreter, and of the executor on the optimised module."""
    rows = []
    for sample in sample_table(FOLDER):
        module = hloopt.parse((FOLDER / f"{sample.name}.hlo").read_text(), sample.name)
        with np.load(FOLDER / f"{sample.name}.npz") as arrays:
            inputs = [
                as_type(arrays[f"in_{index}"], parameter.array.dtype.name)
                for index, parameter in enumerate(module.entry.parameters)
            ]
        plain = hloopt.compile(module)
        better = hloopt.compile(hloopt.optimize(module, "O2"))
        row = {
            "sample": sample.name,
            "interpreter": median(lambda: hloopt.evaluate(module, inputs), count),  # noqa: B023
            "executor": median(lambda: plain.run(inputs), count),  # noqa: B023
            "executor_o2": median(lambda: better.run(inputs), count),  # noqa: B023
        }
        row["ratio"] = row["interpreter"] / row["executor_o2"]
        rows.append(row)
    return rows


def show(title: str, rows: list[dict[str, Any]], console: Console) -> None:
    """A table of one list of rows."""
    table = Table(title=title)
    columns = dict.fromkeys(name for row in rows for name in row)
    for name in columns:
        table.add_column(name, justify="left" if isinstance(rows[0].get(name), str) else "right")
    for row in rows:
        table.add_row(*(_cell(row.get(name)) for name in columns))
    console.print(table)


def _cell(value: float | str | None) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else f"{value:.4g}"


TABLES = {
    "starting": (starting, STARTING),
    "executing": (executing, EXECUTING),
    "memory": (memory, MEMORY),
    "reading": (reading, READING),
    "optimizing": (optimizing, OPTIMIZING),
    "running": (running, RUNNING),
    "looping": (looping, LOOPING),
    "trips": (iterations, ITERATIONS),
    "blocks": (blocking, BLOCKING),
    "moving": (moving, MOVING),
    "native": (native_kernels, NATIVE_KERNELS),
}
LONG = {"models": (models, MODELS)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=(*TABLES, *LONG), help="one of the tables")
    parser.add_argument("--models", action="store_true", help="large models too: takes long")
    parser.add_argument("--read", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        print(json.dumps(read_repeatedly(options.read, options.count)))
        return
    every = {**TABLES, **LONG}
    chosen = [options.only] if options.only else list(every if options.models else TABLES)
    figures = {
        name: memory(options.count, models=options.models)
        if name == "memory"
        else every[name][0](options.count)
        for name in chosen
    }
    if options.json:
        print(json.dumps({"schema": 1, **figures}))
        return
    # Written to a file or a pipe, a table keeps all of its columns.
    console = Console() if sys.stdout.isatty() else Console(width=240)
    for name, rows in figures.items():
        show(every[name][1], rows, console)
    if "executing" in figures and native():
        console.print(f"No column of the device native: {native()}.")


if __name__ == "__main__":
    main()
