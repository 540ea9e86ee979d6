"""Programs of JAX as files, written by a Python that has JAX; hloopt is not imported.

    python lowered.py FOLDER [NAME...]

For each program: ``NAME.mlir`` and ``NAME.debug.mlir`` (StableHLO text without and with locations), ``NAME.bytecode``,
``NAME.mlir.bc`` (the portable artifact of ``jax.export``), ``NAME.hlo`` (JAX's own HLO), ``NAME.npz`` with ``in_K`` and
``out_K``, and for open sizes ``NAME.open.mlir.bc`` with the shapes of ``in_K`` in ``NAME.json``.
"""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8".strip()
)
sys.path.insert(0, str(Path(__file__).resolve().parent))

import jax
import numpy as np
from jax import export
from programs import Program, programs


def stored(array: Any) -> Any:
    """Types that NumPy lacks as unsigned views, as hloopt reads them."""
    array = np.asarray(array)
    plain = array.dtype.kind != "V" and array.dtype.isbuiltin == 1
    return array if plain else array.view(f"u{array.dtype.itemsize}")


def write(program: Program, folder: Path) -> None:
    """All files of a program."""
    base = folder / program.name
    jitted = jax.jit(
        program.function,
        donate_argnums=program.donate,
        static_argnums=program.static,
        keep_unused=True,
    )
    with program.tracing():
        lowered = jitted.lower(*program.arguments)
        Path(f"{base}.mlir").write_text(lowered.as_text())
        Path(f"{base}.debug.mlir").write_text(lowered.as_text(debug_info=True))
        Path(f"{base}.hlo").write_text(lowered.as_text(dialect="hlo", debug_info=True))
        stream = io.BytesIO()
        lowered.compiler_ir("stablehlo").operation.write_bytecode(stream)
        Path(f"{base}.bytecode").write_bytes(stream.getvalue())
        exported = export.export(jitted)(*program.arguments)
        Path(f"{base}.mlir.bc").write_bytes(exported.mlir_module_serialized)
        given = [one for n, one in enumerate(program.arguments) if n not in program.static]
        leaves = [np.asarray(one) for one in jax.tree.leaves(given)]
        facts: dict[str, Any] = {"devices": program.devices}
        if program.open is not None:
            wide = export.export(jitted)(*program.open())
            Path(f"{base}.open.mlir.bc").write_bytes(wide.mlir_module_serialized)
            facts["shapes"] = {str(n): f"f32{list(one.shape)}" for n, one in enumerate(leaves)}
        arrays = {f"in_{n}": stored(one) for n, one in enumerate(leaves)}
        results = jax.tree.leaves(jitted(*program.arguments))
        arrays |= {f"out_{n}": stored(one) for n, one in enumerate(results)}
    np.savez(f"{base}.npz", **arrays)
    Path(f"{base}.json").write_text(json.dumps(facts))


def main(folder: str, *names: str) -> None:
    """Write those named, or all."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, program in programs(8).items():
        if not names or name in names:
            write(program, Path(folder))
            print(name, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
