"""What our fusion of 2026 makes of XLA's modules, beside what XLA makes of them.

    python tests/corpus/fusion_beside.py [--after FOLDER] [--pipeline TEXT] [NAME...]

For each ``corpus/jax`` NAME with ``NAME.prefusion.hlo`` (the module as XLA's fusion passes get it) and
``NAME.fused.hlo`` (as they leave it): the kernels of ours and theirs, how many of theirs ours has as well (a
kernel is what it computes and what results it has, by digests of values: names do not count), and whether all are
the same.  ``--after`` takes XLA's module after priority fusion alone out of FOLDER/NAME/k (dumps), and runs that
pass alone.  With names: the kernels that only one side has.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT)]

import hloopt  # noqa: E402 - the path comes first
from hloopt.analysis.value_digests import ValueDigests  # noqa: E402
from hloopt.errors import HlooptError  # noqa: E402
from hloopt.ir import Instruction, Module  # noqa: E402
from hloopt.pipelines import parse_pipeline  # noqa: E402

__all__ = ["BOTH", "Outcome", "compare", "kernels"]

PRIORITY = "priority-fusion"
BOTH = f"{PRIORITY},cse,dce,multi-output-fusion,cse,dce"

_NO_KERNEL = frozenset({
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "conditional", "call", "after-all",
    "opt-barrier",
})  # fmt: skip
Key = tuple[tuple[bytes, ...], tuple[bytes, ...]]


@dataclass(frozen=True)
class Outcome:
    """Kernels of both sides, as many of theirs as ours has, and seconds of our passes."""

    ours: int
    theirs: int
    common: int
    seconds: float

    @property
    def same(self) -> bool:
        """Whether both have the same kernels."""
        return self.ours == self.theirs == self.common


def kernels(module: Module) -> dict[Instruction, Key]:
    """What each kernel computes: the digests of its values, each once, and of its results."""
    digests = ValueDigests(module).kernels
    return {
        entry: (tuple(sorted({value for value, _ in found.inner})), tuple(sorted(found.outputs)))
        for entry, found in digests.items()
        if entry.opcode not in _NO_KERNEL
    }


def compare(before: str, after: str, pipeline: str) -> tuple[Outcome, list[str]]:
    """One program; with it a line for each kernel that only one side has."""
    module = hloopt.parse(before)
    passes = parse_pipeline(pipeline)
    start = time.perf_counter()
    passes.run(module)
    seconds = time.perf_counter() - start
    ours, theirs = kernels(module), kernels(hloopt.parse(after))
    mine, other = Counter(ours.values()), Counter(theirs.values())
    lines = [*_only("ours", ours, other), *_only("theirs", theirs, mine)]
    return Outcome(len(ours), len(theirs), (mine & other).total(), seconds), lines


def _only(side: str, found: dict[Instruction, Key], other: Counter[Key]) -> list[str]:
    lines = []
    left = other.copy()
    for entry, key in found.items():
        if left[key] > 0:
            left[key] -= 1
            continue
        assert entry.computation is not None
        opcodes = Counter(
            inner.opcode
            for inner in entry.attributes.get("calls", [entry])
            if inner.opcode not in ("parameter", "constant")
        )
        what = " ".join(f"{opcode}:{count}" for opcode, count in opcodes.most_common())
        lines.append(f"  {side} {entry.computation.name}/{entry.name} {entry.shape} {what}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--after", type=Path)
    parser.add_argument("--pipeline")
    options = parser.parse_args()
    folder = Path(os.environ["HLOOPT_CORPUS"]) / "jax"
    names = options.names or sorted(
        path.name.removesuffix(".fused.hlo") for path in folder.glob("*.fused.hlo")
    )
    pipeline = options.pipeline or (PRIORITY if options.after else BOTH)
    same = ours = theirs = failed = done = 0
    for name in names:
        after = folder / f"{name}.fused.hlo"
        if options.after:
            found = sorted((options.after / name / "k").glob("*after_priority-fusion*.txt"))
            if not found:
                continue
            after = found[-1]
        before = (folder / f"{name}.prefusion.hlo").read_text()
        done += 1
        try:
            outcome, lines = compare(before, after.read_text(), pipeline)
        except HlooptError as error:
            failed += 1
            print(f"{name:34} {error}", flush=True)
            continue
        same += outcome.same
        ours += outcome.ours
        theirs += outcome.theirs
        print(
            f"{name:34} ours {outcome.ours:5} theirs {outcome.theirs:5} common {outcome.common:5}"
            f" {outcome.seconds:6.2f} s{'' if outcome.same else '  differs'}",
            flush=True,
        )
        if options.names:
            print("\n".join(lines))
    print(f"same {same} of {done}, failed {failed}; kernels ours {ours}, theirs {theirs}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
