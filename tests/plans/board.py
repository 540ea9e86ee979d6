"""Our plans beside XLA's, priced by one model: ``python -m tests.plans.board FOLDER...``.

A folder has ``NAME.before.hlo``, what JAX lowers, and ``NAME.h200.hlo``, XLA's final module for an H200: ``jax`` of the
corpus, or what ``lower.py`` writes of ``programs.py``.  A line a program: launches and microseconds of what O3 makes of
the first, then of O2's plan and of XLA's, and the quotient of O3 and XLA.  At the end geometric means, of all and of
programs whose plan by XLA has no loop, and every program where ours takes longer than XLA's or than O2's.

XLA rounds factors of f32 to TF32 and lets its simplifier change roundings: both levels have the same leave (``--precision
tf32 --fast-math`` of the command line), unless ``--strict`` is given.

All times are predicted by xla-2026 on the h200, loops weighted by their trip counts; XLA's copies and library calls
count as ours do.  Programs that either side has a kernel for which no time is known are left out, with the reason.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import exp, log
from pathlib import Path

from hloopt import optimize
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import DEFAULT, model_for
from hloopt.errors import HlooptError
from hloopt.ir import Module, walk
from hloopt.kernels.costs import kernel_costs, totals
from hloopt.passes.dots.precision import DotPrecision
from hloopt.pipelines import Given
from hloopt.reading import read
from hloopt.targets import find_gpu

__all__ = ["Row", "compare", "priced"]

_SAME = 1.0005
"""Quotients up to this are no slower: times are sums of rounded figures."""


@dataclass(frozen=True)
class Row:
    """A program: launches and seconds of each plan, and the CPU seconds that O3 took to plan."""

    name: str
    ours: tuple[int, float]
    quick: tuple[int, float]
    theirs: tuple[int, float]
    loops: bool
    planning: float

    @property
    def ratio(self) -> float:
        """Our time by XLA's."""
        return self.ours[1] / self.theirs[1]

    def text(self) -> str:
        """The line of the table."""
        figures = "  ".join(
            f"{launches:6} {seconds * 1e6:9.2f}"
            for launches, seconds in (self.ours, self.quick, self.theirs)
        )
        mark = " slower" if self.ratio > _SAME else ""
        mark += " than O2" if self.ours[1] > _SAME * self.quick[1] else ""
        return f"{self.name:28} {figures}  {self.ratio:6.3f}{mark}"


def priced(module: Module) -> tuple[int, float]:
    """Launches and seconds of a plan; raises ``ValueError`` where a kernel's time is not known."""
    predictor = Predictor(model_for(DEFAULT, find_gpu("h200")))
    total = totals(module, kernel_costs(module, predictor))
    if total.seconds is None:
        raise ValueError("not all kernels have a time")
    return total.launches, total.seconds


def compare(name: str, before: Path, final: Path, *, strict: bool = False) -> Row:
    """The row of one program; raises as reading and ``priced`` do."""
    module, theirs = read(before), read(final)
    start = time.process_time()
    ours = optimize(module, _level("O3", strict), target="h200")
    spent = time.process_time() - start
    quick = optimize(module, _level("O2", strict), target="h200")
    loops = any(
        one.opcode == "while" for body in walk.top_level_computations(theirs) for one in body
    )
    return Row(name, priced(ours), priced(quick), priced(theirs), loops, spent)


def _level(name: str, strict: bool) -> Given:
    return name if strict else [DotPrecision("tf32"), f"{name}{{fast_math=true}}"]


def rows(folders: Sequence[Path], names: Sequence[str], *, strict: bool) -> Iterator[Row]:
    """The rows of all programs in some folders; what cannot be compared is named on stderr."""
    for folder in folders:
        for final in sorted(folder.glob("*.h200.hlo")):
            name = final.name.removesuffix(".h200.hlo")
            if names and name not in names:
                continue
            try:
                yield compare(name, final.with_name(f"{name}.before.hlo"), final, strict=strict)
            except (HlooptError, ValueError) as error:
                print(f"{name}: {error}", file=sys.stderr)


def mean(values: Sequence[float]) -> float:
    """The geometric mean; raises ``ZeroDivisionError`` of none."""
    return exp(sum(map(log, values)) / len(values))


def main() -> int:
    """Print the table; 1 where a plan of ours takes longer than XLA's or O2's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--strict", action="store_true", help="keep every bit")
    parser.add_argument("--json", type=Path, help="write the rows there as well")
    given = parser.parse_args()
    print(f"{'':28} {'O3 us':>16}  {'O2 us':>16}  {'XLA us':>16}  quotient")
    found = []
    for row in rows(given.folders, given.only, strict=given.strict):
        found.append(row)
        print(row.text(), flush=True)
    if given.json:
        given.json.write_text(json.dumps([asdict(row) for row in found], indent=1) + "\n")
    if not found:
        return 2
    straight = [row.ratio for row in found if not row.loops]
    print(f"geometric mean of {len(found)}: {mean([row.ratio for row in found]):.3f}")
    if straight:
        print(f"without loops, {len(straight)}: {mean(straight):.3f}")
    slower = [row for row in found if row.ratio > _SAME]
    behind = [row for row in found if row.ours[1] > _SAME * row.quick[1]]
    print(f"slower than XLA's: {len(slower)}; than O2's: {len(behind)}")
    print(f"planning by O3: {sum(row.planning for row in found):.1f} s of CPU")
    return int(bool(slower or behind))


if __name__ == "__main__":
    raise SystemExit(main())
