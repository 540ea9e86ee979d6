"""One program in a process of its own, which has run nothing: a line of JSON with seconds.

    python run_ours.py HLO INPUTS.npz PIPELINE DEVICE STARTED SECONDS

The inputs are ``in_0``, ... with the element types' names in ``types``.  ``STARTED`` is when whoever asks
started this process, by the clock that all processes share; ``SECONDS`` is how long to repeat the run.

``whole`` is from the start of the process to the first result; ``parse``, ``optimize``, ``compile`` and ``first``
are what of it came after ``import hloopt``, ``warm`` is the quickest run after these.  ``peak`` is how many bytes
resident memory grew by in the first run, ``bound`` what lives at once in it by the module's own order.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import hloopt

# Quickest of so many runs at most, and of so many at least where a run takes longer than the time given.
MOST_RUNS, LEAST_RUNS = 500, 3


def target_of(device: str) -> str | None:
    """The device that ``hloopt run`` fuses for where nobody says so; None for what passes take by themselves."""
    return "host" if device == "native" else None


def main(
    path: str, inputs: str, pipeline: str, device: str, started: str, seconds: str
) -> dict[str, Any]:
    """What ``__doc__`` says."""
    arrays = given(inputs)
    begun = time.perf_counter()
    module = hloopt.parse(Path(path).read_text(), path)
    parsed = time.perf_counter()
    if pipeline != "none":
        module = hloopt.optimize(module, pipeline, target_of(device))
    optimized = time.perf_counter()
    program = hloopt.compile(module, device)
    compiled = time.perf_counter()
    program.run(arrays)
    done = time.perf_counter()
    whole = time.monotonic() - float(started)
    found: dict[str, Any] = {
        "parse": parsed - begun,
        "optimize": optimized - parsed,
        "compile": compiled - optimized,
        "first": done - compiled,
        "whole": whole,
    }
    runs: list[float] = []
    until = done + float(seconds)
    while float(seconds) and len(runs) < MOST_RUNS:
        if len(runs) >= LEAST_RUNS and time.perf_counter() > until:
            break
        start = time.perf_counter()
        program.run(arrays)
        runs.append(time.perf_counter() - start)
    return {**found, "warm": min(runs, default=found["first"])}


def memory(path: str, inputs: str, pipeline: str) -> dict[str, float]:
    """The peak of the first run, and its bound."""
    from hloopt.analysis.liveness import peak
    from hloopt.runtime.memory import peak_memory

    arrays = given(inputs)
    module = hloopt.parse(Path(path).read_text(), path)
    if pipeline != "none":
        module = hloopt.optimize(module, pipeline)
    alive = peak(module.entry)
    # Inputs and constants are there before the run.
    there = sum(one.byte_size for one in alive.buffers if one.kind != "temporary")
    program = hloopt.compile(module)
    with peak_memory() as found:
        kept = program.run(arrays)
    assert found.peak is not None, "this system does not tell the peak of a process"
    del kept
    return {"peak": found.peak, "bound": alive.byte_size - there}


def given(path: str) -> list[np.ndarray[Any, Any]]:
    """The inputs with their types: files have raw bytes for those that NumPy lacks."""
    with np.load(path) as arrays:
        names = [str(name) for name in arrays["types"]]
        loaded = [arrays[f"in_{index}"] for index in range(len(names))]
    return [
        array if array.dtype.kind != "V" else array.view(getattr(ml_dtypes, name))
        for array, name in zip(loaded, names, strict=True)
    ]


if __name__ == "__main__":
    if sys.argv[1] == "memory":
        print(json.dumps(memory(*sys.argv[2:])))
    else:
        try:
            print(json.dumps(main(*sys.argv[1:])))
        except (hloopt.UnsupportedError, hloopt.DeviceError) as error:
            print(json.dumps({"refused": str(error)}))
