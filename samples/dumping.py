"""How the programs of a folder become ``NAME.hlo`` and ``NAME.npz``; needs JAX, on a CPU.

The dump is what JAX hands to XLA, before any pass, with every constant written out.  The outputs are those of
XLA's CPU compiler.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DUMPS = tempfile.mkdtemp()
os.environ["XLA_FLAGS"] = (
    f"--xla_dump_to={DUMPS} --xla_dump_hlo_as_text --xla_dump_large_constants=true"
)

import jax  # noqa: E402 - XLA reads its flags when it is loaded
import numpy as np  # noqa: E402

# Paths in the dump begin at the folder of samples, wherever that lies.
jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/samples/")


@dataclass(frozen=True)
class Program:
    """A function and its arrays.

    recorded  True: inputs and outputs are; False: inputs alone; None: neither, they are not worth their bytes
    """

    function: Callable[..., Any]
    inputs: Sequence[Any]
    recorded: bool | None = True


def dump(name: str, program: Program, folder: Path) -> None:
    """Write ``NAME.hlo`` and ``NAME.npz``: ``in_0`` ... in the order of parameters, ``out_0`` ..."""

    def entry(*arguments: Any) -> Any:
        return program.function(*arguments)

    entry.__name__ = name
    inputs = [np.asarray(value) for value in program.inputs]
    compiled = jax.jit(entry, keep_unused=True).lower(*inputs).compile()
    (text,) = Path(DUMPS).glob(f"module_*.jit_{name}.before_optimizations.txt")
    shutil.copyfile(text, folder / f"{name}.hlo")
    if program.recorded is None:
        return
    arrays = {f"in_{number}": value for number, value in enumerate(inputs)}
    if program.recorded:
        outputs = jax.tree.leaves(compiled(*inputs))
        arrays |= {f"out_{number}": np.asarray(value) for number, value in enumerate(outputs)}
    np.savez_compressed(folder / f"{name}.npz", **arrays)


def main(programs: Mapping[str, Program], folder: Path) -> None:
    """Make the programs that the command line names, or all."""
    for name in sys.argv[1:] or programs:
        dump(name, programs[name], folder)
        print(*(f"{path.name} {path.stat().st_size}" for path in folder.glob(f"{name}.[hn]*")))
    shutil.rmtree(DUMPS)
