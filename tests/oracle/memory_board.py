"""The memory of modules beside XLA's own buffer assignment: ``python -m tests.oracle.memory_board --store FOLDER``.

XLA compiles some 250 programs of JAX for the CPU, and with ``--plugin``, the folder of JAX's plug-in for CUDA, for
``--gpu``, whose description is in the folder ``--specs`` (no GPU is needed).  A line is what XLA assigned to one module and
what ``assign_buffers`` makes of the same optimised text; lines that agree to the byte are left out unless ``--all`` is given.
Dumps of any program do as well: ``--dumps FOLDER ...`` compares those that are there.  ``HLOOPT_XLA_PYTHON`` names the
Python with JAX.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

import hloopt
from hloopt.analysis.assignment import assign_buffers
from hloopt.dumps.content import assigned_bytes
from tests.oracle.oracle import python

NEAR = 0.02
CHILD = Path(__file__).with_name("memory_child.py")


def make(store: Path, only: str, spec: Path | None, plugin: str) -> None:
    """The dumps of all programs, for a CPU or the GPU of a description; what XLA refuses is printed."""
    gpu = [] if spec is None else ["--gpu", str(spec)]
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
        "PYTHONPATH": plugin,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        # Modules of these names alone: those that make the arguments are not of interest.
        "XLA_FLAGS": f"--xla_dump_to={store} --xla_dump_hlo_as_text "
        "--xla_dump_hlo_module_re=jit_board_.* --xla_gpu_autotune_level=0",
    }
    command = [python(), "-W", "ignore", str(CHILD), "--only", only, *gpu]
    subprocess.run(command, check=True, env=environment)


def compared(folder: Path) -> Iterable[tuple[str, int, int]]:
    """Name, XLA's bytes and ours, of each module of a dump whose assignment is there."""
    for path in sorted(folder.glob("*after_optimizations.txt")):
        theirs = assigned_bytes(path)
        if theirs is not None:
            gpu = "gpu_after" in path.name
            yield path.name, theirs, assign_buffers(hloopt.read(path), gpu=gpu).byte_size


def show(title: str, rows: Iterable[tuple[str, int, int]], *, everything: bool) -> None:
    """The lines of one dump, and how many agree."""
    exact = near = count = 0
    for name, theirs, ours in rows:
        count += 1
        exact += ours == theirs
        near += abs(ours - theirs) <= NEAR * theirs
        if everything or ours != theirs:
            part = f"{ours / theirs - 1:+8.2%}" if theirs else "        "
            print(f"{theirs:>14,} {ours:>14,} {part}  {name}", flush=True)
    print(f"{title}: {exact} of {count} to the byte, {near} within {NEAR:.0%}", flush=True)


def main() -> None:
    """Make what dumps are missing, and print the board."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, default=Path(".corpus/memory"))
    parser.add_argument("--dumps", type=Path, nargs="*", default=[])
    parser.add_argument("--only", default="")
    parser.add_argument("--plugin", default="")
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--specs", type=Path, default=Path(os.environ.get("HLOOPT_CORPUS", ".")) / "gpu_specs")  # fmt: skip
    parser.add_argument("--all", action="store_true")
    given = parser.parse_args()
    folders = {str(folder): folder for folder in given.dumps}
    if not folders:
        kinds = ["cpu", *([given.gpu] if given.plugin else [])]
        folders = {kind: given.store / kind for kind in kinds}
        for kind, folder in folders.items():
            if not folder.is_dir():
                spec = None if kind == "cpu" else given.specs / f"{kind}.txtpb"
                make(folder, given.only, spec, given.plugin)
    for title, folder in folders.items():
        show(title, compared(folder), everything=given.all)


if __name__ == "__main__":
    main()
