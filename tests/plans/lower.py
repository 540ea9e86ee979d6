"""Programs of ``programs.py`` as files, written by a Python that has JAX; hloopt is not imported.

    python lower.py FOLDER SPEC [NAME...]

``NAME.before.hlo`` is JAX's own HLO, ``NAME.h200.hlo`` what XLA makes of it for the GPU that SPEC describes, which
need not be there: the plug-in of JAX for CUDA has to be on the path, and autotuning is off.  Files that are there stay.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_autotune_level=0".strip()
sys.path.insert(0, str(Path(__file__).resolve().parent))

import jax
from jax.experimental import topologies
from programs import programs

_UNKNOWN = "collective_memory_granularity|max_blocks_per_multiprocessor|mem_clock_ghz|reserved_shared_memory_per_block"
"""Fields of descriptions that jaxlib 0.10.2 does not read."""


def main() -> None:
    """Write both files of each program."""
    folder, spec, names = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    folder.mkdir(parents=True, exist_ok=True)
    text = re.sub(rf"\n\s*({_UNKNOWN}).*", "", spec.read_text())
    device = topologies.get_topology_desc(
        platform="cuda", target_config=text, topology="1x1x1"
    ).devices[0]
    place = jax.sharding.SingleDeviceSharding(device)
    for name, (function, arguments) in programs().items():
        planned = folder / f"{name}.h200.hlo"
        if planned.exists() or (names and name not in names):
            continue
        with jax.enable_x64("wide" in name):
            jitted = jax.jit(function)
            lowered = jitted.lower(*arguments)
            (folder / f"{name}.before.hlo").write_text(lowered.as_text(dialect="hlo"))
            placed = jax.tree.map(
                lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), arguments
            )
            planned.write_text(jitted.lower(*placed).compile().as_text())
        print(name, flush=True)


if __name__ == "__main__":
    main()
