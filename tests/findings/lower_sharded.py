"""Programs over eight devices as XLA plans them for a GPU, written by a Python that has JAX; hloopt is not imported.

    python lower_sharded.py FOLDER --gpu SPEC

``NAME.before.hlo`` are plans whose collectives nothing runs beside (``--xla_gpu_disable_async_collectives``), and
``NAME.after.hlo`` those that XLA makes without that flag.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_SIDES = {"before": "--xla_gpu_disable_async_collectives=ALLREDUCE,ALLGATHER", "after": ""}
_DEVICES = 8


def gathered_weights(jax: Any) -> tuple[Callable[..., Any], tuple[Any, ...], str]:
    """A layer computes while the weights of the next one come."""

    def function(w: Any, x: Any, y: Any) -> Any:
        return jax.numpy.tanh(x @ y) @ jax.lax.all_gather(w, "d", tiled=True)

    return function, ((4096, 4096),) * 3, "sww"


def layers_of_sharded_weights(jax: Any) -> tuple[Callable[..., Any], tuple[Any, ...], str]:
    """Each gathers its own."""

    def function(x: Any, *weights: Any) -> Any:
        for w in weights:
            x = jax.numpy.tanh(x @ jax.lax.all_gather(w, "d", tiled=True))
        return x.sum(0)

    return function, ((16384, 2048), *((2048, 2048),) * 4), "sssss"


def gradients_of_layers(jax: Any) -> tuple[Callable[..., Any], tuple[Any, ...], str]:
    """Those of one layer are summed over the devices while the next ones are computed."""

    def function(x: Any, *weights: Any) -> Any:
        hidden = [x]
        for w in weights:
            hidden.append(jax.numpy.tanh(hidden[-1] @ w))
        g, found = hidden[-1], []
        for w, h in zip(weights[::-1], hidden[-2::-1], strict=True):
            found.append(jax.lax.psum(h.T @ g, "d"))
            g = g @ w.T
        return found

    return function, ((16384, 2048), *((2048, 2048),) * 4), "swwww"


PROGRAMS = (gathered_weights, layers_of_sharded_weights, gradients_of_layers)


def write(folder: Path, spec: Path, side: str) -> None:
    """The plans of one side: a flag of the process is that of all of them."""
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    from lower_pair import gpus_of

    mesh = Mesh(np.array(gpus_of(spec, f"1x1x{_DEVICES}")), ("d",))
    for program in PROGRAMS:
        function, shapes, kinds = program(jax)
        specs = tuple(PartitionSpec("d") if kind == "s" else PartitionSpec() for kind in kinds)
        given = [
            jax.ShapeDtypeStruct(shape, jax.numpy.bfloat16, sharding=NamedSharding(mesh, one))
            for shape, one in zip(shapes, specs, strict=True)
        ]
        split = jax.shard_map(
            function, mesh=mesh, in_specs=specs, out_specs=PartitionSpec(), check_vma=False
        )
        text = jax.jit(split).lower(*given).compile().as_text()
        (folder / f"{program.__name__}.{side}.hlo").write_text(text)


def main() -> None:
    """Write both sides, each by a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gpu", type=Path, required=True)
    parser.add_argument("--side", choices=list(_SIDES))
    given = parser.parse_args()
    if given.side:
        write(given.folder, given.gpu, given.side)
        return
    given.folder.mkdir(parents=True, exist_ok=True)
    for side, flags in _SIDES.items():
        again = [
            sys.executable,
            __file__,
            str(given.folder),
            "--gpu",
            str(given.gpu),
            "--side",
            side,
        ]
        devices = f"--xla_force_host_platform_device_count={_DEVICES}"
        subprocess.run(again, check=True, env={**os.environ, "XLA_FLAGS": f"{devices} {flags}"})
    print(" ".join(one.__name__ for one in PROGRAMS))


if __name__ == "__main__":
    main()
