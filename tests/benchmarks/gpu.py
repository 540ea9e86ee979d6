"""``make bench-gpu``: programs beside XLA on the same GPU, and memory-bound kernels beside the copy of memory.

Medians of warm runs with inputs in place; both sides replay CUDA graphs.  XLA is asked where HLOOPT_XLA_PYTHON
names a Python that has JAX with CUDA; without it that column is empty.  Without a GPU the script ends with one
line and exit code 5.  ``--json`` prints the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import hloopt
from hloopt.errors import DeviceError, HlooptError
from hloopt.runtime.inputs import generate, load_inputs

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

MEGABYTE = 1 << 20
SIZES = (64 * MEGABYTE, 256 * MEGABYTE, 1024 * MEGABYTE)

# $N elements, $R rows of 1024.
SUM = """sum {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}

ENTRY e {
  a = f32[$R,1024] parameter(0)
  o = f32[] constant(0)
  ROOT r = %s reduce(a, o), dimensions={%d}, to_apply=sum
}"""
ADD = """ENTRY e {
  a = %s[$N] parameter(0)
  b = %s[$N] parameter(1)
  ROOT c = %s[$N] add(a, b)
}"""
TRANSPOSE = """ENTRY e {
  a = f32[$R,1024] parameter(0)
  ROOT t = f32[1024,$R] transpose(a), dimensions={1,0}
}"""
# Beside each text the bytes that an element moves.
BOUND_BY_MEMORY = {
    "add, f32": (12, ADD % ("f32", "f32", "f32")),
    "add, bf16": (6, ADD % ("bf16", "bf16", "bf16")),
    "transpose, f32": (8, TRANSPOSE),
    "sum of rows, f32": (4, SUM % ("f32[$R]", 1)),
    "sum of columns, f32": (4, SUM % ("f32[1024]", 0)),
}


def programs() -> list[Path]:
    """The samples, and what the corpus has of programs as they were before optimisation."""
    found = sorted((ROOT / "samples").glob("*.hlo"))
    corpus = os.environ.get("HLOOPT_CORPUS")
    return found + (sorted((Path(corpus) / "jax").glob("*.before.hlo")) if corpus else [])


def inputs_of(path: Path, module: hloopt.Module) -> list[Any]:
    """The arrays beside a program, or such as suit it."""
    stored = path.with_name(f"{path.name.split('.')[0]}.npz")
    return load_inputs(stored, module) if stored.exists() else generate(module)


def ours(module: hloopt.Module, inputs: list[Any], repeat: int) -> Any:
    """The profile of the optimised module on this GPU."""
    from hloopt.backends.cuda import CudaDevice
    from hloopt.backends.cuda.description import describe_gpu, this_gpu
    from hloopt.backends.cuda.profile import profile
    from hloopt.backends.device_compile import prepare
    from hloopt.backends.nvrtc import TIMED
    from hloopt.kernels.selection import KernelSelection
    from hloopt.runtime.program import DeviceOptions

    with closing(CudaDevice(flags=TIMED)) as device:
        target = describe_gpu(device)
        _, known = this_gpu()
        selection = KernelSelection(target=known.name) if known else KernelSelection()
        better = hloopt.optimize(module, "O2")
        options = DeviceOptions(selection=selection)
        return profile(prepare(better, options), inputs, device, target, repeat=repeat)


def theirs(path: Path, inputs: list[Any], repeat: int) -> float | None:
    """Median seconds of XLA's run in a process of its own; None where it cannot be asked, or refuses."""
    python = os.environ.get("HLOOPT_XLA_PYTHON")
    if not python:
        return None
    with TemporaryDirectory() as folder:
        arrays = Path(folder) / "inputs.npz"
        raw = {
            f"in_{n}": np.ascontiguousarray(a).view(np.uint8) if a.ndim else a
            for n, a in enumerate(inputs)
        }
        np.savez(arrays, **raw)
        meta = [[str(a.dtype), list(a.shape)] for a in inputs]
        command = [python, str(HERE / "gpu_xla.py"), str(path), str(arrays), str(repeat)]
        done = subprocess.run(
            command,
            input=json.dumps(meta),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no answer"]
        print(f"{path.name}: XLA: {last[0]}", file=sys.stderr)
        return None
    return float(done.stdout)


def beside_xla(repeat: int) -> list[dict[str, Any]]:
    """Programs: our seconds, XLA's, and how many times faster ours are."""
    rows = []
    for path in programs():
        module = hloopt.parse(path.read_text(), str(path))
        try:
            inputs = inputs_of(path, module)
            found = ours(module, inputs, repeat)
        except HlooptError as error:
            print(f"{path.name}: {error}", file=sys.stderr)
            continue
        seconds, xla = found.whole.median, theirs(path, inputs, repeat)
        rows.append(
            {
                "program": path.name,
                "seconds": seconds,
                "busy": found.busy,
                "xla": xla,
                "times_faster": xla / seconds if xla else None,
            }
        )
    return rows


def beside_copies(repeat: int) -> list[dict[str, Any]]:
    """Memory-bound kernels: bytes a second, as a share of what a copy on the device reaches."""
    from hloopt.backends.cuda import CudaDevice
    from hloopt.backends.cuda.timing import Stopwatch

    with closing(CudaDevice()) as device:
        bandwidth = Stopwatch(device).copy_bandwidth()
    rows = []
    for name, (width, body) in BOUND_BY_MEMORY.items():
        for size in SIZES:
            elements = size // width // 1024 * 1024
            text = f"HloModule m\n\n{body}\n".replace("$N", str(elements)).replace(
                "$R", str(elements // 1024)
            )
            module = hloopt.parse(text, name)
            found = ours(module, generate(module), repeat)
            rate = found.kernels[0].bytes_per_second
            rows.append({"kernel": name, "bytes": size, "rate": rate, "of_copy": rate / bandwidth})
    return rows


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """A table of rows alike."""
    table = Table(title=title)
    for column in rows[0] if rows else ():
        table.add_column(column, justify="left" if column in ("program", "kernel") else "right")
    for row in rows:
        table.add_row(
            *(
                f"{v:.4g}" if isinstance(v, float) else "" if v is None else str(v)
                for v in row.values()
            )
        )
    Console().print(table)


def main() -> int:
    """Measure, and print tables or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=50)
    parser.add_argument("--json", action="store_true", dest="as_json")
    options = parser.parse_args()
    try:
        from hloopt.backends import check_device

        check_device("gpu")
    except DeviceError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    found = {
        "beside XLA": beside_xla(options.repeat),
        "memory-bound kernels beside a copy": beside_copies(options.repeat),
    }
    if options.as_json:
        print(json.dumps(found))
        return 0
    for title, rows in found.items():
        show(title, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
