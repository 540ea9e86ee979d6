"""How small failing programs become: passes broken on purpose, after real programs of 200 to 5,000 instructions.

    python -m tests.prover.reductions [--cases 50] [--workers N] [--only TEXT] [--from N] [--json FILE]

``HLOOPT_CORPUS`` names the folder of the programs; where ``HLOOPT_XLA_PYTHON`` has JAX it writes those of
``large_programs.py`` as well.  Each kind of ``broken_rewrites`` takes its turn with the programs in which it changes a
result, and each of them is reduced by up to three kinds that do, so that kinds and programs are as mixed as can be.
Every result is read again from its text, verified, and has to fail in the same way.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

import hloopt
from hloopt.driver.options import KernelOptions, PassOptions
from hloopt.driver.passes import choose_passes
from hloopt.driver.reducing import ReduceOptions, Reducing
from hloopt.errors import HlooptError, UsageError
from hloopt.ir import Module, build
from hloopt.prover.reduction.search import SearchLimits
from tests.prover.broken_rewrites import KINDS

LARGE_PROGRAMS = Path(__file__).with_name("large_programs.py")
BROKEN = Path(__file__).with_name("broken_rewrites.py")
FEWEST, LARGE, MOST = 200, 2000, 5000
LARGEST = (
    1 << 28
)  # bytes of inputs: more are the weights of a model that the interpreter does not run in seconds
SECONDS = 180.0
_SLOWEST = 20.0  # seconds that a program's first run may take: it is a measurement of reducing, not of programs


def programs(corpus: str | None, made: Path) -> list[Path]:
    """Programs before optimisation, in an order that mixes their subjects."""
    found = (
        []
        if corpus is None
        else [*Path(corpus).glob("jax/*.before.hlo"), *Path(corpus).glob("models/*.hlo")]
    )
    if jax := os.environ.get("HLOOPT_XLA_PYTHON"):
        subprocess.run([jax, str(LARGE_PROGRAMS), str(made)], check=True)
        found += made.glob("*.hlo")
    return sorted(found, key=lambda path: (hash_of(path.name), path.name))


def hash_of(name: str) -> int:
    """The same in each run, and in no order."""
    return sum(ord(letter) * 31**at for at, letter in enumerate(name)) % 9973


def options(kind: str, jobs: int) -> ReduceOptions:
    """After the usual cleaning up, one wrong pass."""
    passes = PassOptions(passes=f"simplify,cse,dce,broken{{kind={kind}}}", pass_file=(str(BROKEN),))
    return ReduceOptions(passes, workers=jobs, limits=SearchLimits(seconds=SECONDS))


def read(path: Path) -> Module | None:
    """A program of the sizes that are wanted, which can be read."""
    try:
        module = hloopt.parse(path.read_text(), str(path))
        hloopt.verify(module)
    except (HlooptError, UnicodeDecodeError):
        return None
    given = sum(one.shape.byte_size for one in module.entry.parameters)
    return module if FEWEST <= module.instruction_count() <= MOST and given <= LARGEST else None


def reduced(
    path: Path, module: Module, kind: str, jobs: int, slow: set[Path]
) -> dict[str, Any] | None:
    """One row; None where the program does not fail, or is too ``slow`` to be of use here."""
    running = Reducing(module, path.name, options(kind, jobs))
    try:
        first = running.begin(_SLOWEST)
        if first.kind == "timeout":
            slow.add(path)
        if not first.is_failure or path in slow:
            return None
        begin, used = monotonic(), processor_seconds()
        found = running.run()
    except (UsageError, HlooptError):
        return None
    seconds, cpu = monotonic() - begin, processor_seconds() - used
    again = hloopt.parse(found.text, path.name)
    hloopt.verify(again)
    outcome = Reducing(again, path.name, options(kind, 1), inputs=found.inputs).begin()
    return {
        "program": path.name,
        "kind": kind,
        "what": found.outcome.kind,
        "before": found.first.module.instruction_count(),
        "after": found.module.instruction_count(),
        "tests": found.tests,
        "seconds": round(seconds, 1),
        "cpu": round(cpu, 1),
        "complete": found.complete,
        "fails": outcome.alike(found.outcome),
    }


def processor_seconds() -> float:
    """What this process and those that it has waited for have used."""
    return sum(os.times()[:4])


def fits(module: Module, kind: str) -> bool:
    """Whether the kind finds anything to break, as far as its pass tells."""
    passes = choose_passes(options(kind, 1).pipeline, KernelOptions())
    try:
        return bool(passes.run(build.clone_module(module)).hits()["broken"])
    except (HlooptError, KeyError):
        return True


def pairs(paths: list[Path], fewest: int) -> Iterator[tuple[Path, Module, str]]:
    """Programs and kinds: each program once, again, a third time; the kind that has had the fewest turns first."""
    turns: Counter[str] = Counter()
    tried: dict[Path, set[str]] = {path: set() for path in paths}
    for path in [*paths] * 3:
        module = read(path)
        if module is None or module.instruction_count() < fewest:
            continue
        for kind in sorted(KINDS.keys() - tried[path], key=lambda name: (turns[name], name)):
            tried[path].add(kind)
            if fits(module, kind):
                turns[kind] += 1
                yield path, module, kind
                break


def main() -> None:
    """Measure, print the table, fail where a figure is not met."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--from", dest="fewest", type=int, default=FEWEST)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        paths = programs(os.environ.get("HLOOPT_CORPUS"), Path(made))
        rows = measured([path for path in paths if given.only in path.name], given)
    if not rows:
        raise SystemExit(
            "no program fails: HLOOPT_CORPUS names a folder of programs, HLOOPT_XLA_PYTHON a Python with JAX"
        )
    summed_up(rows)


def measured(paths: list[Path], given: argparse.Namespace) -> list[dict[str, Any]]:
    """Reduce as many as are wanted, and print a line of each."""
    rows: list[dict[str, Any]] = []
    slow: set[Path] = set()
    for path, module, kind in pairs(paths, given.fewest):
        row = None if path in slow else reduced(path, module, kind, given.workers, slow)
        if row is None:
            continue
        rows.append(row)
        print(
            f"{row['program'][:36]:36} {kind:11} {row['what']:10} {row['before']:5} -> {row['after']:3} "
            f"{row['tests']:5} tests {row['seconds']:6.1f} s, cpu {row['cpu']:6.1f} s{'' if row['fails'] else '  NO LONGER FAILS'}",
            flush=True,
        )
        if given.json:
            given.json.write_text(json.dumps(rows, indent=1))
        if len(rows) == given.cases:
            break
    return rows


def summed_up(rows: list[dict[str, Any]]) -> None:
    """Print the figures, and fail where one is not met."""
    after = [row["after"] for row in rows]
    slowest = max(row["seconds"] for row in rows)
    kinds, names = (len({row[key] for row in rows}) for key in ("kind", "program"))
    large = sum(row["before"] >= LARGE for row in rows)
    print(
        f"{len(rows)} cases of {names} programs, {large} of {LARGE:,} instructions or more, {kinds} kinds: median {median(after):g} instructions, at most {max(after)}; "
        f"slowest {slowest:.0f} s, cpu {max(row['cpu'] for row in rows):.0f} s; complete {sum(row['complete'] for row in rows)}"
    )
    if median(after) > 12 or slowest > SECONDS + 30 or not all(row["fails"] for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
