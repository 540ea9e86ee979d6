"""XLA on this machine's GPU: ``gpu_xla.py FILE INPUTS.npz REPEAT`` prints median seconds of warm runs.

Runs under a Python that has JAX with CUDA.  Types and shapes of the inputs come as JSON on stdin, since NumPy's
files do not know all of them.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path


def main(path: str, arrays: str, repeat: int) -> None:
    """Compile the text, put the inputs on the device, run."""
    import jax
    import jaxlib._hlo as hlo
    import jaxlib._jax as internal
    import ml_dtypes
    import numpy as np
    from jaxlib import xla_client

    jax.config.update("jax_enable_x64", True)
    device = jax.devices("gpu")[0]
    module = hlo.hlo_module_from_text(Path(path).read_text())
    computation = hlo.XlaComputation(module.as_serialized_hlo_module_proto())
    stable = internal.mlir.xla_computation_to_mlir_module(computation)
    executable = device.client.compile_and_load(
        stable, internal.DeviceList((device,)), xla_client.CompileOptions()
    )
    inputs = []
    with np.load(arrays) as stored:
        for number, (name, shape) in enumerate(json.load(sys.stdin)):
            kind = (
                np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)
            )
            raw = stored[f"in_{number}"]
            inputs.append((raw.view(kind) if shape else raw.astype(kind)).reshape(shape))
    seconds = []
    for attempt in range(repeat + 3):
        # Donated inputs are gone after a run.
        given = [jax.device_put(array, device) for array in inputs]
        jax.block_until_ready(given)
        start = time.perf_counter()
        jax.block_until_ready(executable.execute(given))
        if attempt >= 3:
            seconds.append(time.perf_counter() - start)
    print(statistics.median(seconds))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
