"""Kernels that xla-gpu-2026 makes of what a user has, beside those of XLA's final module for an H200.

    python -m tests.corpus.pipeline_beside [--exact] [--folder F] [NAME...]

A row a program; with names each kernel.

From NAME.before.hlo and NAME.h200.hlo of a folder (``jax`` of the corpus), with fast_math (XLA's simplifier changes
roundings) except with --exact.  A kernel is what is launched: fusions, library calls, and ops that run alone
(``runtime/kernels.py``), on both sides by one function; copies that keep the layout are transfers of memory, which
XLA hands to the driver, and count on neither.  Rows that differ say which opcodes one side has more of.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import hloopt
from hloopt.ir import Instruction, Module, walk
from hloopt.kernels import is_kernel

ROOT = Path(__file__).resolve().parents[2]

__all__ = ["BEFORE", "EXACT", "FINAL", "PIPELINE", "Kernels", "compare_kernels", "launched"]

BEFORE, FINAL = ".before.hlo", ".h200.hlo"
EXACT = "xla-gpu-2026"
PIPELINE = f"{EXACT}{{fast_math=true}}"


@dataclass(frozen=True)
class Kernels:
    """The kernels of both sides."""

    ours: tuple[Instruction, ...]
    theirs: tuple[Instruction, ...]

    @property
    def same(self) -> bool:
        """Whether there are as many."""
        return len(self.ours) == len(self.theirs)

    def surplus(self) -> str:
        """The opcodes that one side has more of, ours first."""
        ours, theirs = (Counter(one.opcode for one in side) for side in (self.ours, self.theirs))
        return " | ".join(
            " ".join(f"{opcode}:{count}" for opcode, count in sorted(more.items()))
            for more in (ours - theirs, theirs - ours)
        )


def launched(module: Module) -> Iterator[Instruction]:
    """What is launched when the module runs, each instruction of a loop's body once."""
    for computation in walk.top_level_computations(module):
        for instruction in computation:
            if is_kernel(instruction) and not _is_transfer(instruction):
                yield instruction


def _is_transfer(instruction: Instruction) -> bool:
    if instruction.opcode != "copy":
        return False
    return instruction.array.layout == instruction.operands[0].array.layout


def compare_kernels(before: str, final: str, pipeline: str = PIPELINE) -> Kernels:
    """What the pipeline makes of one text, beside another."""
    ours = hloopt.optimize(hloopt.parse(before, "before"), pipeline, target="h200")
    return Kernels(tuple(launched(ours)), tuple(launched(hloopt.parse(final, "final"))))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--exact", action="store_true", help="keep every bit")
    parser.add_argument(
        "--folder", type=Path, help="where the texts are; default: jax of HLOOPT_CORPUS"
    )
    options = parser.parse_args()
    folder = options.folder or Path(os.environ["HLOOPT_CORPUS"]) / "jax"
    names = options.names or sorted(
        path.name.removesuffix(FINAL) for path in folder.glob(f"*{FINAL}")
    )
    same = done = 0
    for name in names:
        before, final = ((folder / f"{name}{end}").read_text() for end in (BEFORE, FINAL))
        found = compare_kernels(before, final, EXACT if options.exact else PIPELINE)
        done, same = done + 1, same + found.same
        apart = "" if found.same else f"  {found.surplus()}"
        print(f"{name:32} ours {len(found.ours):4} XLA {len(found.theirs):4}{apart}", flush=True)
        if options.names:
            for side, kernels in (("ours", found.ours), ("XLA", found.theirs)):
                print(side, *map(_line, kernels), sep="\n  ")
    print(f"as many kernels: {same} of {done}")
    return 0


def _line(kernel: Instruction) -> str:
    body = kernel.attributes.get("calls") if kernel.opcode == "fusion" else None
    ops = ",".join(one.opcode for one in body if one.opcode not in _SILENT) if body else ""
    return f"{kernel.opcode} {str(kernel.shape)[:60]} {ops[:120]}"


_SILENT = frozenset(("parameter", "constant", "broadcast", "bitcast"))


if __name__ == "__main__":
    raise SystemExit(main())
