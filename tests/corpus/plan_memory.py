"""Plans of real programs: is each read right, and how near is memory to what lives at once?

    python -m tests.corpus.plan_memory [--pipeline O2]... [FILE...]

Without files: the samples, and where HLOOPT_CORPUS names it the corpus (JAX's programs before optimisation, and the
large models).  Kernels are chosen by the rules for an H200; what has none is planned for the host.  Reads are
held against the graph (``symbolic_plan``) for programs of at most 4,000 steps.  Fails where a read is wrong, or
memory is more than 1.2 times the bound.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import hloopt
from hloopt.errors import HlooptError, UnsupportedError
from hloopt.ir import Module
from hloopt.kernels.plan import KernelStep, walk_steps
from hloopt.kernels.planning import plan_program
from hloopt.kernels.selection import KernelSelection, choose
from hloopt.numbers import byte_size
from hloopt.rewrite import Pipeline
from hloopt.targets import find_target
from tests.helpers.symbolic_plan import WrongReadError, check_plan

ROOT = Path(__file__).resolve().parents[2]

__all__ = ["LIMIT", "Row", "examine"]

LIMIT = 1.2
_MOST_STEPS = 4000


@dataclass(frozen=True)
class Row:
    """A plan: ``peak`` and ``bound`` in bytes, of the arena alone beside; ``moves`` are copies it added.

    ``wrong`` says which read is, ``refused`` why there is no plan; both are empty otherwise.
    """

    name: str
    steps: int = 0
    moves: int = 0
    peak: int = 0
    bound: int = 0
    arena: int = 0
    arena_bound: int = 0
    seconds: float = 0.0
    wrong: str = ""
    refused: str = ""

    @property
    def ratio(self) -> float:
        """All memory over its bound; 1 where there is none."""
        return self.peak / self.bound if self.bound else 1.0

    @property
    def arena_ratio(self) -> float:
        """The arena over its bound."""
        return self.arena / self.arena_bound if self.arena_bound else 1.0


def examine(name: str, module: Module) -> Row:
    """Plan a module and hold the plan against it."""
    selection = KernelSelection()
    target, limits = find_target(selection.target), selection.limits()
    start = time.perf_counter()
    try:
        ready = hloopt.optimize(module, "device")
        Pipeline((selection,)).run(ready)
        plan = plan_program(ready, lambda one: choose(one, target, limits), allow_host=True)
    except UnsupportedError as error:
        return Row(name, refused=error.message)
    seconds = time.perf_counter() - start
    steps = list(walk_steps(plan.steps))
    moves = sum(len(one.before) + len(one.after) for one in steps if isinstance(one, KernelStep))
    arena = sum(one.byte_size for one in plan.allocations if one.kind == "arena")
    wrong = ""
    try:
        if len(steps) <= _MOST_STEPS:
            check_plan(ready, plan)
    except WrongReadError as error:
        wrong = str(error)
    return Row(
        name,
        len(steps),
        moves,
        plan.peak,
        plan.live_bound,
        arena,
        plan.live_bound - (plan.peak - arena),
        seconds,
        wrong,
    )


def _files(given: Sequence[Path]) -> Iterator[Path]:
    if given:
        yield from given
        return
    yield from sorted((ROOT / "samples").glob("*.hlo"))
    if corpus := os.environ.get("HLOOPT_CORPUS"):
        yield from sorted((Path(corpus) / "jax").glob("*.before.hlo"))
        yield from sorted((Path(corpus) / "models").glob("*.hlo"))


def _print(row: Row) -> None:
    if row.refused:
        print(f"{row.name:44} refused: {row.refused[:100]}", flush=True)
        return
    print(
        f"{row.name:44} {row.steps:6} {row.moves:5} {byte_size(row.peak):>9} {row.ratio:6.3f} "
        f"{row.arena_ratio:6.3f} {row.seconds:7.2f}  {row.wrong}",
        flush=True,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--pipeline", action="append", help="default: O0 and O2")
    options = parser.parse_args(arguments)
    print(f"{'program':44} {'steps':>6} moves {'peak':>9}  ratio  arena seconds")
    rows: list[Row] = []
    for path in _files(options.files):
        module = hloopt.parse(path.read_text(), path.name)
        for pipeline in options.pipeline or ("O0", "O2"):
            name = f"{path.name.removesuffix('.hlo')} {pipeline}"
            try:
                rows.append(examine(name, hloopt.optimize(module, pipeline)))
            except HlooptError as error:
                print(f"{name}: {error}", file=sys.stderr)
                return error.exit_code
            _print(rows[-1])
    made = [row for row in rows if not row.refused]
    bad = [row for row in made if row.wrong or row.ratio > LIMIT or row.arena_ratio > LIMIT]
    for what, ratios in (
        ("memory", [row.ratio for row in made]),
        ("arena", [row.arena_ratio for row in made]),
    ):
        if ratios:
            exact = sum(ratio == 1 for ratio in ratios)
            print(
                f"{what} over its bound: {exact} of {len(ratios)} at 1, "
                f"mean {statistics.fmean(ratios):.4f}, most {max(ratios):.3f}"
            )
    print(f"{len(rows)} plans, {len(rows) - len(made)} refused, {len(bad)} wrong or above {LIMIT}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
