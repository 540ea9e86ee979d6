"""XLA itself, in a process of its own: bad input may abort it.

    python xla_child.py accepts FILE...          one JSON line a file: null or XLA's message
    python xla_child.py run FILE IN.npz OUT.npz  compile for the CPU and run
    python xla_child.py draws FOLDER             run each NAME.hlo for every draw of NAME.npz, whose arrays have one
                                                 dimension more: NAME.out has results, NAME.optimized XLA's module
    python xla_child.py serve                    runs after runs: [FILE, IN.npz, OUT.npz] a line in, null or XLA's message out
    python xla_child.py participants FILE IN.npz OUT.npz REPLICAS PARTITIONS
                                                 the same by several, each with in_0.N and out_0.N of its own
    python xla_child.py times FILE COUNT         seconds of each reading and printing, as JSON
    python xla_child.py answer                   reads questions, a line of JSON each: see ``answer``

Uses jaxlib's own modules; hloopt is not imported.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def read(path: str) -> Any:
    """XLA's module of a text."""
    import jaxlib._hlo as hlo

    return hlo.hlo_module_from_text(Path(path).read_text())


def accepts(paths: list[str]) -> None:
    """Whether XLA's parser reads each file."""
    for path in paths:
        try:
            read(path)
        except Exception as error:  # noqa: BLE001 - whatever XLA says is the answer
            print(json.dumps(str(error).splitlines()[0]))
        else:
            print("null")


def answer() -> None:
    """For every ``{"path": ..., "again": bool}`` a line ``{"error": ..., "module": ...}``.

    ``again``: what XLA prints of the file is read instead of the file.  ``module`` is XLA's canonical text
    of what was read, constants in full, unless some are left out in the file: XLA makes up values for those.
    """
    import jaxlib._hlo as hlo

    for line in sys.stdin:
        question = json.loads(line)
        said: dict[str, str | None] = {"error": None, "module": None}
        try:
            text = Path(question["path"]).read_text()
            module = hlo.hlo_module_from_text(text)
            options = hlo.HloPrintOptions.canonical()
            options.print_large_constants = "{...}" not in text
            if question["again"]:
                module = hlo.hlo_module_from_text(module.to_string())
            else:
                options.print_metadata = options.print_backend_config = True
                options.print_control_dependencies = True
                said["module"] = module.to_string(options)
        except Exception as error:  # noqa: BLE001 - whatever XLA says is the answer
            lines = [line for line in str(error).splitlines() if line.strip()]
            said["error"] = " ".join(lines[:2])
        print(json.dumps(said), flush=True)


def times(path: str, count: int) -> None:
    """Time XLA's parser and printer on one text: pairs of seconds."""
    import jaxlib._hlo as hlo

    text, pairs = Path(path).read_text(), []
    for _ in range(count):
        start = time.perf_counter()
        module = hlo.hlo_module_from_text(text)
        middle = time.perf_counter()
        module.to_string()
        pairs.append((middle - start, time.perf_counter() - middle))
    print(json.dumps(pairs))


def stored(array: Any) -> Any:
    """As a file can have it: bf16 and its like as raw bytes, since NumPy does not read what it writes for f8e5m2."""
    return array if array.dtype.isbuiltin == 1 else array.view(f"V{array.dtype.itemsize}")


def _typed(array: Any, shape: Any) -> Any:
    """The parameter says what raw bytes are."""
    return array.view(shape.numpy_dtype()) if array.dtype.kind == "V" else array


def compiled(path: str) -> tuple[Any, Any, list[Any]]:
    """A module compiled for XLA's CPU backend: the program, its device, the shapes of its parameters."""
    import jax
    import jaxlib._hlo as hlo
    import jaxlib._jax as backend
    from jaxlib import lapack, xla_client

    jax.config.update("jax_enable_x64", True)  # or 64-bit inputs are halved
    lapack._lapack.initialize()  # LAPACK targets are null pointers until then
    device = jax.devices("cpu")[0]
    computation = hlo.XlaComputation(read(path).as_serialized_hlo_module_proto())
    program = device.client.compile_and_load(
        backend.mlir.xla_computation_to_mlir_module(computation),
        backend.DeviceList((device,)),
        xla_client.CompileOptions(),
    )
    return program, device, computation.program_shape().parameter_shapes()


def run(path: str, inputs: str, outputs: str) -> None:
    """Run a module on XLA's CPU backend; the npz holds arrays in parameter order."""
    import jax
    import numpy as np

    program, device, shapes = compiled(path)
    with np.load(inputs) as arrays:
        values = [
            jax.device_put(_typed(arrays[f"in_{index}"], wanted), device)
            for index, wanted in enumerate(shapes)
        ]
    results = [np.asarray(value) for value in program.execute(values)]
    np.savez(outputs, **{f"out_{index}": stored(value) for index, value in enumerate(results)})


def draws(folder: str) -> None:
    """Compile each module of a folder once and run it many times; see above."""
    import jax
    import numpy as np

    for path in sorted(Path(folder).glob("*.hlo")):
        program, device, shapes = compiled(str(path))
        path.with_suffix(".optimized").write_text(program.hlo_modules()[0].to_string())
        with np.load(path.with_suffix(".npz")) as drawn:
            arrays = [_typed(drawn[f"in_{at}"], wanted) for at, wanted in enumerate(shapes)]
        rows = [
            program.execute([jax.device_put(value, device) for value in draw])
            for draw in zip(*arrays, strict=True)
        ]
        results = {
            f"out_{at}": stored(np.stack([np.asarray(row[at]) for row in rows]))
            for at in range(len(rows[0]))
        }
        with path.with_suffix(".out").open("wb") as file:
            np.savez(file, **results)


def serve() -> None:
    """One run a line."""
    for line in sys.stdin:
        try:
            run(*json.loads(line))
        except Exception as error:  # noqa: BLE001 - whatever XLA says is the answer
            print(json.dumps(str(error)[:1000]), flush=True)
        else:
            print("null", flush=True)


def participants(path: str, inputs: str, outputs: str, replicas: int, partitions: int) -> None:
    """Run a module on as many devices of XLA's CPU backend; no array is a scalar.

    With partitions its instructions must be annotated as manual, or XLA's partitioner cuts them.
    """
    import os

    count = replicas * partitions
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={count}"
    import jax
    import jaxlib._hlo as hlo
    import jaxlib._jax as backend
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    from jaxlib import xla_client

    devices = jax.devices("cpu")
    computation = hlo.XlaComputation(read(path).as_serialized_hlo_module_proto())
    options = xla_client.CompileOptions()
    options.num_replicas, options.num_partitions = replicas, partitions
    options.executable_build_options.use_spmd_partitioning = partitions > 1
    order = np.arange(count).reshape(replicas, partitions)
    options.device_assignment = xla_client.DeviceAssignment.create(order)
    program = devices[0].client.compile_and_load(
        backend.mlir.xla_computation_to_mlir_module(computation),
        backend.DeviceList(tuple(devices)),
        options,
    )
    sharding = NamedSharding(Mesh(np.array(devices), ("all",)), PartitionSpec("all"))
    values = []
    with np.load(inputs) as arrays:
        for index, wanted in enumerate(computation.program_shape().parameter_shapes()):
            parts = [
                jax.device_put(_typed(arrays[f"in_{index}.{number}"], wanted), device)
                for number, device in enumerate(devices)
            ]
            dims = (count * parts[0].shape[0], *parts[0].shape[1:])
            values.append(jax.make_array_from_single_device_arrays(dims, sharding, parts))
    results = program.execute_sharded(values).disassemble_into_single_device_arrays()
    np.savez(
        outputs,
        **{
            f"out_{index}.{number}": stored(np.asarray(part))
            for index, parts in enumerate(results)
            for number, part in enumerate(parts)
        },
    )


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "accepts":
        accepts(arguments)
    elif command == "serve":
        serve()
    elif command == "answer":
        answer()
    elif command == "draws":
        draws(*arguments)
    elif command == "participants":
        participants(*arguments[:3], *map(int, arguments[3:]))
    elif command == "times":
        times(arguments[0], int(arguments[1]))
    else:
        run(*arguments)
