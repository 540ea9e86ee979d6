"""One program by XLA's CPU compiler in a process of its own: what ``run_ours.py`` prints, of XLA.

    python run_xla.py HLO INPUTS.npz STARTED SECONDS

``compile`` has the ways from XLA's module to the one its compiler takes.  Importing JAX and making the client
are no step; ``whole`` has them.  A run is over when all results are there.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jaxlib._hlo as hlo
import jaxlib._jax as backend
import numpy as np
from jaxlib import lapack, xla_client

MOST_RUNS, LEAST_RUNS = 500, 3


def main(path: str, inputs: str, started: str, seconds: str) -> dict[str, float]:
    """What ``__doc__`` says."""
    jax.config.update("jax_enable_x64", True)  # or 64-bit inputs are halved
    lapack._lapack.initialize()  # LAPACK targets are null pointers until then
    device = jax.devices("cpu")[0]
    with np.load(inputs) as arrays:
        loaded = [arrays[f"in_{index}"] for index in range(len(arrays["types"]))]

    begun = time.perf_counter()
    module = hlo.hlo_module_from_text(Path(path).read_text())
    parsed = time.perf_counter()
    computation = hlo.XlaComputation(module.as_serialized_hlo_module_proto())
    program = device.client.compile_and_load(
        backend.mlir.xla_computation_to_mlir_module(computation),
        backend.DeviceList((device,)),
        xla_client.CompileOptions(),
    )
    compiled = time.perf_counter()
    shapes = computation.program_shape().parameter_shapes()

    def put() -> list[Any]:
        return [
            jax.device_put(typed(array, shape), device)
            for array, shape in zip(loaded, shapes, strict=True)
        ]

    values = put()
    finish(program.execute(values))
    done = time.perf_counter()
    whole = time.monotonic() - float(started)
    runs: list[float] = []
    until = done + float(seconds)
    while float(seconds) and len(runs) < MOST_RUNS:
        if len(runs) >= LEAST_RUNS and time.perf_counter() > until:
            break
        if any(value.is_deleted() for value in values):
            values = put()  # a run takes over what is donated to it
            finish(values)
        start = time.perf_counter()
        finish(program.execute(values))
        runs.append(time.perf_counter() - start)
    return {
        "parse": parsed - begun,
        "compile": compiled - parsed,
        "first": done - compiled,
        "whole": whole,
        "warm": min(runs, default=done - compiled),
    }


def finish(results: list[Any]) -> None:
    """Wait for what was started."""
    for value in results:
        value.block_until_ready()


def typed(array: Any, shape: Any) -> Any:
    """NumPy writes bf16 and its like as raw bytes; the parameter says what they are."""
    return array.view(shape.numpy_dtype()) if array.dtype.kind == "V" else array


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
