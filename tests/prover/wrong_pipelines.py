"""Does a bisection name the wrong rewrite?  One is put into a pass at a random place of the pipeline O2.

    python -m tests.prover.wrong_pipelines [--count N] [--seconds N] FILE...

Each case takes a module, a place in the pipeline and a site at random: the pass there rewrites every site of
its kind, all but one of them rightly.  A case whose results do not change on the inputs is left out.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path
from typing import ClassVar, Final

import hloopt
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module, build, edit
from hloopt.ir.walk import open_computations
from hloopt.pipelines import parse_pipeline
from hloopt.prover.checks import ResultCheck
from hloopt.prover.executor import Executor
from hloopt.prover.pipeline_bisect import PipelineSearch
from hloopt.prover.trials import Trial, made
from hloopt.rewrite import Pass, PassLog, Pipeline

KINDS: Final = ("commute", "drop", "swap", "opcode")
_SECONDS: Final = 1.0
"""Modules that take the interpreter longer are left out."""
_COMMUTED = ("add", "multiply", "maximum", "minimum")


def sites(module: Module) -> list[Instruction]:
    """What the pass rewrites, in order."""
    return [
        entry
        for computation in open_computations(module)
        for entry in computation
        if (entry.opcode in _COMMUTED or entry.opcode in ("subtract", "divide"))
        and not entry.has_control_edges
    ]


@dataclass(frozen=True)
class WrongOnce(Pass):
    """Makes ``add(a, b)`` of ``add(b, a)`` and ``subtract`` anew, but for one site."""

    name: ClassVar[str] = "wrong-once"
    at: int = 0
    kind: str = "drop"

    def run(self, module: Module, log: PassLog) -> bool:
        changed = False
        for number, entry in enumerate(sites(module)):
            if not log.allows():
                break
            log.hit(f"site {number}", entry)
            first, second = entry.operands
            opcode, operands = entry.opcode, (first, second)
            if entry.opcode in _COMMUTED:
                operands = (second, first)
            if number == self.at and self.kind == "swap":
                operands, opcode = (second, first), "subtract"
            elif number == self.at and self.kind == "opcode":
                opcode = "add" if opcode == "multiply" else "multiply"
            if number == self.at and self.kind == "drop":
                made = first
            else:
                made = build.make(
                    entry, opcode, operands, shape=entry.shape, metadata=entry.metadata
                )
            edit.replace_instruction(entry, made)
            changed = True
        return changed


def main() -> int:
    """Print a line for each case and the shares; 1 where a wrong rewrite was not named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=600.0)
    given = parser.parse_args()
    until, rng = time.monotonic() + given.seconds, random.Random(0)
    named = runs = idle = 0
    files = list(given.files)
    times = []
    while runs < given.count and time.monotonic() < until:
        path = rng.choice(files)
        module = hloopt.parse(path.read_text(), path.name)
        entries = list(parse_pipeline("O2").entries)
        place = rng.randrange(len(entries) + 1)
        # The site is one that is there when the pass runs.
        before = build.clone_module(module)
        Pipeline(tuple(entries[:place])).run(before)
        count = len(sites(before))
        if not count:
            files.remove(path)
            continue
        broken = WrongOnce(rng.randrange(count), rng.choice(("drop", "swap", "opcode")))
        entry = sites(before)[broken.at]
        entries.insert(place, broken)
        try:
            start = time.perf_counter()
            check = ResultCheck(module, Executor(seconds=_SECONDS), [made(module, Trial(0))])
            found = PipelineSearch(module, Pipeline(tuple(entries)), check).run(path.name)
        except hloopt.HlooptError as error:
            print(f"{path.name} is left out: {error.message[:90]}", flush=True)
            files.remove(path)
            continue
        seconds = time.perf_counter() - start
        what = f"{path.name} place {place}, {broken.kind} at site {broken.at} of {count} (%{entry.name})"
        if not found.culprits:
            idle += 1
            print(f"no effect: {what}", flush=True)
            continue
        runs += 1
        times.append(seconds)
        (culprit,) = found.culprits
        is_named = culprit.name == f"wrong-once: site {broken.at} on %{entry.name}"
        named += is_named
        print(f"{'named' if is_named else 'NOT NAMED'}: {what}: {seconds:.1f} s", flush=True)
        if not is_named:
            print("   ", culprit.to_json(), flush=True)
    times.sort()
    print(
        f"{runs} cases ({idle} more without effect on the inputs), {named} named with pass, rewrite and "
        f"instruction; median {times[len(times) // 2]:.1f} s, longest {times[-1]:.1f} s"
    )
    return named != runs


if __name__ == "__main__":
    sys.exit(main())
