"""``make bench-gpu``, second part: steps of Cartpole a second on this GPU.

The naive program at O3 beside XLA's naive, the variants that the paper wrote by hand for XLA, and the kernel
written by hand (``samples/cartpole/cartpole.cu``): the same physics, numbers and results.  Medians of warm runs
with inputs in place; ours and the kernel by hand by the GPU's clock, XLA's with what its host does.  XLA gets the
programs after ``rng-expander``, since a dump made on a CPU draws its numbers in loops.  It is asked where
HLOOPT_XLA_PYTHON names a Python that has JAX with CUDA.  Without a GPU: one line, exit code 5.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hloopt
from hloopt.backends import check_device
from hloopt.errors import DeviceError
from hloopt.runtime.inputs import load_inputs
from tests.benchmarks.gpu import ROOT, show, theirs

CARTPOLE = ROOT / "samples" / "cartpole"
STEPS = 1000
# The kinds of commands that XLA records and replays: by default no loops.
RECORDED = "--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUSTOM_CALL,WHILE,CONDITIONAL"
UNROLLED = "--xla_gpu_enable_while_loop_unrolling=WHILE_LOOP_UNROLLING_FULL_UNROLL"
VARIANTS = {
    "naive": ("naive", ""),
    "naive, loop recorded": ("naive", RECORDED),
    "numbers drawn before": ("random_before", ""),
    "separate arrays": ("separate", ""),
    "separate, loop recorded": ("separate", RECORDED),
    "unrolled by 10": ("unrolled_10", ""),
    "unrolled by 10, loop recorded": ("unrolled_10", RECORDED),
    "unrolled, all of it": ("separate", UNROLLED),
}


@contextmanager
def flags(words: str) -> Iterator[None]:
    """XLA's flags for processes that are started meanwhile."""
    before = os.environ.get("XLA_FLAGS")
    os.environ["XLA_FLAGS"] = f"{before or ''} {words}".strip()
    try:
        yield
    finally:
        if before is None:
            del os.environ["XLA_FLAGS"]
        else:
            os.environ["XLA_FLAGS"] = before


def program(name: str, environments: int) -> hloopt.Module:
    """A dump, for another count of environments where it is not 2,048."""
    text = (CARTPOLE / f"{name}.hlo").read_text()
    text = re.sub(r"(?<![\w.%-])2048(?![\w.])", str(environments), text)
    module = hloopt.parse(text, name)
    hloopt.verify(module)
    return module


def xla_seconds(name: str, environments: int, words: str, repeat: int) -> float | None:
    """The median of XLA; None where it cannot be asked, refuses, or compiles for more than five minutes."""
    module = hloopt.optimize(program(name, environments), "rng-expander")
    inputs = load_inputs(CARTPOLE / "naive.npz", module)
    with TemporaryDirectory() as folder, flags(words):
        path = Path(folder) / f"{name}.hlo"
        path.write_text(module.to_text())
        try:
            return theirs(path, inputs, repeat)
        except subprocess.TimeoutExpired:
            print(f"{name} {words}: XLA took more than five minutes", file=sys.stderr)
            return None


def our_seconds(name: str, environments: int, repeat: int) -> float:
    """The median of a program at O3."""
    from hloopt.backends.cuda import CudaDevice
    from hloopt.backends.cuda.description import describe_gpu
    from hloopt.backends.cuda.profile import profile
    from hloopt.backends.device_compile import prepare
    from hloopt.backends.nvrtc import TIMED
    from hloopt.runtime.program import DeviceOptions

    module = program(name, environments)
    prepared = prepare(hloopt.optimize(module, "O3"), DeviceOptions())
    with closing(CudaDevice(flags=TIMED)) as device:
        inputs = load_inputs(CARTPOLE / "naive.npz", module)
        found = profile(prepared, inputs, device, describe_gpu(device), repeat=repeat)
    return float(found.whole.median)


def by_hand(environments: int, repeat: int) -> float:
    """The median of the kernel written by hand."""
    from hloopt.backends.cuda import CudaDevice
    from hloopt.backends.nvrtc import TIMED

    script = runpy.run_path(str(CARTPOLE / "yardstick.py"))
    (key,) = load_inputs(CARTPOLE / "naive.npz", program("naive", environments))
    with closing(CudaDevice(flags=TIMED)) as device:
        return float(
            script["seconds"](script["Yardstick"](device, key, environments, STEPS), repeat)
        )


def ladder(environments: int, repeat: int) -> list[dict[str, Any]]:
    """Rows of seconds, steps a second, and how many times faster than XLA's naive."""
    taken: dict[str, float | None] = {
        f"XLA, {label}": xla_seconds(name, environments, words, repeat)
        for label, (name, words) in VARIANTS.items()
    }
    taken["O3, naive"] = our_seconds("naive", environments, repeat)
    taken["O3, unrolled by 10"] = our_seconds("unrolled_10", environments, repeat)
    taken["by hand"] = by_hand(environments, repeat)
    naive = taken["XLA, naive"]
    best = min(
        (seconds for row, seconds in taken.items() if row[:3] == "XLA" and seconds), default=None
    )
    return [
        {
            "program": label,
            "seconds": seconds,
            "steps a second": environments * STEPS / seconds if seconds else None,
            "of XLA naive": naive / seconds if naive and seconds else None,
            "of XLA best": best / seconds if best and seconds else None,
        }
        for label, seconds in taken.items()
    ]


def main() -> int:
    """Measure, and print tables or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--environments", type=int, nargs="+", default=[2048, 65536, 1_000_003])
    parser.add_argument("--json", action="store_true", dest="as_json")
    options = parser.parse_args()
    try:
        check_device("gpu")
    except DeviceError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    found = {count: ladder(count, options.repeat) for count in options.environments}
    if options.as_json:
        print(json.dumps(found))
        return 0
    for count, rows in found.items():
        show(f"Cartpole, {count:,} environments, {STEPS:,} steps", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
