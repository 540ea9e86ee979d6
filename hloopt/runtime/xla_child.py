"""XLA's CPU compiler, run by a Python that has jaxlib; hloopt is not imported.

    python xla_child.py MODULE.hlo IN.npz OUT.npz REPEAT

Writes ``out_0``, ... and prints a line of JSON: ``seconds`` of each run after a first one, and ``version``.
Without arguments it serves: each line of stdin is a JSON list of a number and these arguments, and answered by
a line with the ``number``, and the ``error`` where there was one.  The first line says that it is ready.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def typed(array: Any, shape: Any) -> Any:
    """Types that NumPy lacks come as unsigned views; the parameter says what they are."""
    wanted = shape.numpy_dtype()
    return array if array.dtype == wanted else array.view(wanted)


def stored(array: Any) -> Any:
    """The inverse of ``typed``, for results."""
    plain = array.dtype.type.__module__ == "numpy"
    return array if plain else array.view(f"u{array.dtype.itemsize}")


def started() -> Any:
    """jax, with what it needs in place: a second or two, the first time."""
    import jax

    jax.config.update("jax_enable_x64", True)  # or 64-bit inputs are halved
    jax.devices("cpu")
    return jax


def run(path: str, inputs: str, outputs: str, repeat: int) -> dict[str, Any]:
    """Compile, run, time."""
    import jaxlib
    import jaxlib._hlo as hlo
    import jaxlib._jax as backend
    import numpy as np
    from jaxlib import lapack, xla_client

    jax = started()
    lapack._lapack.initialize()  # LAPACK targets are null pointers until then
    device = jax.devices("cpu")[0]
    module = hlo.hlo_module_from_text(Path(path).read_text())
    computation = hlo.XlaComputation(module.as_serialized_hlo_module_proto())
    program = device.client.compile_and_load(
        backend.mlir.xla_computation_to_mlir_module(computation),
        backend.DeviceList((device,)),
        xla_client.CompileOptions(),
    )
    with np.load(inputs) as arrays:
        values = [
            jax.device_put(typed(arrays[f"in_{index}"], wanted), device)
            for index, wanted in enumerate(computation.program_shape().parameter_shapes())
        ]
    seconds = []
    for _ in range(repeat + 1):
        start = time.perf_counter()
        results = program.execute(values)
        for value in results:
            value.block_until_ready()
        seconds.append(time.perf_counter() - start)
    arrays = {f"out_{index}": stored(np.asarray(value)) for index, value in enumerate(results)}
    np.savez(outputs, **arrays)
    return {"seconds": seconds[1:], "version": jaxlib.__version__}


def serve() -> None:
    """Say that this is ready, with the number -1, and answer requests until there are no more."""
    started()
    print(json.dumps({"number": -1}), flush=True)
    for line in sys.stdin:
        number, *arguments = json.loads(line)
        try:
            reply = run(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever XLA raises is the answer
            reply = {"error": str(error) or type(error).__name__}
        print(json.dumps({"number": number, **reply}), flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 1:
        serve()
    else:
        print(json.dumps(run(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))))
