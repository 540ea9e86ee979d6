"""Every kernel that fits, forced on its instruction on the emulator, beside the interpreter.

    python -m tests.corpus.force_kernels [--flops N] [--seconds N] [--kernel NAME]... [FILE...]

Without files: the samples, and the corpus where HLOOPT_CORPUS names it (its programs before optimisation).  A
program is optimised by -O2 and made ready for a device.  Instructions that are alike are tried once, those of more
than --flops flops and bytes together not at all.  Fails where a kernel computes something else, reads or writes
outside its buffers, or races.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import hloopt
from hloopt.analysis.cost import instruction_cost
from hloopt.analysis.region import region_of
from hloopt.backends.trial import try_kernel
from hloopt.errors import HlooptError
from hloopt.ir import Instruction
from hloopt.kernels import selectable
from hloopt.kernels.kernel import Kernel, Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.registry import kernels
from hloopt.kernels.selection.candidate import candidates
from hloopt.kernels.standalone import signature
from hloopt.targets import find_target

ROOT = Path(__file__).resolve().parents[2]

__all__ = ["Outcome", "force", "main"]

_FLOPS = 2_000_000


@dataclass
class Outcome:
    """What came of forcing kernels.

    tried     how often each kernel was tried
    beside    for each kernel those that fitted the same instruction
    wrong     program, instruction, kernel and what is wrong
    left_out  instructions that are too large
    """

    tried: Counter[str] = field(default_factory=Counter)
    beside: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    wrong: list[tuple[str, str, str, str]] = field(default_factory=list)
    left_out: int = 0
    seen: set[tuple[str, str]] = field(default_factory=set)


def force(
    name: str,
    module: hloopt.Module,
    outcome: Outcome,
    *,
    flops: int = _FLOPS,
    only: Sequence[str] = (),
    deadline: float = float("inf"),
) -> None:
    """Try every kernel that fits on every instruction of a module that is optimised."""
    target, known = find_target("h200"), kernels()
    for _, instruction in selectable(hloopt.optimize(module, "device")):
        site = Site(region_of(instruction), target, Limits())
        fitting = [found.kernel for found in candidates(site, known) if found.ok]
        names = {kernel.name for kernel in fitting}
        for kernel in fitting:
            outcome.beside[kernel.name] |= names - {kernel.name}
        if _size(instruction) > flops:
            outcome.left_out += 1
            continue
        digest = signature(instruction)
        for kernel in fitting:
            if time.monotonic() > deadline:
                return
            if (digest, kernel.name) not in outcome.seen and (not only or kernel.name in only):
                outcome.seen.add((digest, kernel.name))
                problem = _tried(site, kernel)
                outcome.tried[kernel.name] += 1
                if problem:
                    outcome.wrong.append((name, instruction.name, kernel.name, problem))
                    print(f"{name}: %{instruction.name}: {kernel.name}: {problem}", flush=True)


def _tried(site: Site, kernel: Kernel) -> str:
    try:
        return try_kernel(site, kernel, kernel.spec(site, kernel.tile(site)))
    except HlooptError as error:
        return f"{type(error).__name__}: {error.message}"


def _size(instruction: Instruction) -> int:
    cost = instruction_cost(instruction)
    return cost.flops + cost.transcendentals + cost.bytes_accessed


def _programs(files: Sequence[str]) -> Iterator[Path]:
    if files:
        yield from map(Path, files)
        return
    yield from sorted((ROOT / "samples").glob("*.hlo"))
    corpus = os.environ.get("HLOOPT_CORPUS")
    if corpus:
        yield from sorted(Path(corpus, "jax").glob("*.before.hlo"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Force kernels in files; 1 where one of them is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--flops", type=int, default=_FLOPS)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--kernel", action="append", default=[])
    given = parser.parse_args(arguments)
    outcome = Outcome()
    deadline = time.monotonic() + given.seconds
    for path in _programs(given.files):
        if time.monotonic() > deadline:
            print(
                f"{path.name} and what comes after it: not tried, {given.seconds:g} seconds are over"
            )
            break
        try:
            module = hloopt.optimize(hloopt.parse(path.read_text(), name=path.name))
        except HlooptError as error:
            print(f"{path.name}: not tried: {error.message}")
            continue
        force(path.name, module, outcome, flops=given.flops, only=given.kernel, deadline=deadline)
    for name, count in outcome.tried.most_common():
        others = ", ".join(sorted(outcome.beside[name])) or "none"
        print(f"{name}: {count} tried; beside it fitted: {others}")
    print(
        f"{sum(outcome.tried.values())} tried, {len(outcome.wrong)} wrong, {outcome.left_out} too large"
    )
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
