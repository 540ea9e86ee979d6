"""What linear algebra gains by prediction: ``python -m tests.frameworks.algebra_board FILE|FOLDER...``.

Each module (of a folder those named ``*.before.hlo``, or else ``*.hlo``) is optimised by O2 with fast math, once with
the passes of linear algebra and once without them, for the host and for an H200 (``--strict``: without fast math).  A
line where the predicted time differs: microseconds without and with them, and the quotient.  At the end how many take
less time, as long, and longer; what cannot be priced is named on stderr.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import DEFAULT, model_for
from hloopt.errors import HlooptError
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.kernels.costs import kernel_costs, totals
from hloopt.pipelines import parse_pipeline
from hloopt.reading import read
from hloopt.rewrite import Pass, Pipeline
from hloopt.rewrite.entries import aimed, select
from hloopt.targets import find_target

ALGEBRA = frozenset(
    {
        "linear-algebra",
        "linear-systems",
        "while-chain-folding",
        "while-output-sinking",
        "while-product-hoisting",
        "while-product-sinking",
    }
)
TARGETS = ("host", "h200")
_SAME = 1.0005
"""Quotients up to this are no slower: times are sums of rounded figures."""


def seconds(module: Module, target: str) -> float:
    """Predicted; raises ``ValueError`` where a kernel's time is not known."""
    predictor = Predictor(model_for(DEFAULT, find_target(target)))
    total = totals(module, kernel_costs(module, predictor))
    if total.seconds is None:
        raise ValueError("not all kernels have a time")
    return total.seconds


def _without(instance: Pass) -> Pass | None:
    return None if instance.name in ALGEBRA else instance


def both(module: Module, target: str, *, strict: bool = False) -> tuple[float, float]:
    """Seconds without the passes and with them; what comes before them is run once."""
    entries = aimed(parse_pipeline("O2" if strict else "O2{fast_math=true}").entries, target)
    first = next(at for at, one in enumerate(entries) if getattr(one, "name", "") in ALGEBRA)
    simple = clone_module(module)
    Pipeline(entries[:first]).run(simple)
    found = []
    for rest in (select(entries[first:], _without), entries[first:]):
        made = clone_module(simple)
        Pipeline(rest).run(made)
        found.append(seconds(made, target))
    return found[0], found[1]


def files(paths: Sequence[Path]) -> Iterator[Path]:
    """The modules of files and folders."""
    for path in paths:
        if path.is_dir():
            yield from sorted(path.glob("*.before.hlo")) or sorted(path.glob("*.hlo"))
        else:
            yield path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--targets", nargs="*", default=TARGETS)
    parser.add_argument("--strict", action="store_true")
    given = parser.parse_args()
    counts: dict[str, Counter[str]] = {target: Counter() for target in given.targets}
    for path in files(given.paths):
        name = path.name.removesuffix(".hlo").removesuffix(".before")
        for target in given.targets:
            try:
                before, after = both(read(path), target, strict=given.strict)
            except (HlooptError, ValueError) as problem:
                print(f"{name} on {target}: {problem}", file=sys.stderr)
                counts[target]["not priced"] += 1
                continue
            verdict = "same"
            if after > before * _SAME:
                verdict = "slower"
            elif before > after * _SAME:
                verdict = "faster"
            counts[target][verdict] += 1
            if verdict != "same":
                figures = f"{before * 1e6:12.2f} {after * 1e6:12.2f} {after / before:7.3f}"
                print(f"{name:32} {target:5} {figures} {verdict}", flush=True)
    for target, count in counts.items():
        print(f"{target}: {dict(count)}")


if __name__ == "__main__":
    main()
