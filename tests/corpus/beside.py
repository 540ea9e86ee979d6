"""Work left after O2 without fusion, beside what XLA's own GPU pipeline leaves right before its fusion passes.

    python -m tests.corpus.beside [--exact] [NAME...]    a row a program, and opcodes where names are given

Both modules get the same ops expanded (``EXPANDED``), and gathers and scatters in one form (``CANONICAL``).  XLA
changes rounding as it likes: O2 may do so, too (``fast_math``, less a rule that XLA has for CPUs only), except
with --exact, where it keeps every bit.  Counted are flops with transcendental functions, bytes read and written,
and instructions, by the same analysis on both sides.  Free on both are reshapes, transposes, copies, bitcasts and
broadcasts to as many elements: XLA's module has layouts assigned, ours has not, so that they stand for each
other; and parameters, constants and tuples.  ``MOST`` is how much more than XLA's a figure may be.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, inf, log
from pathlib import Path
from typing import Any

import hloopt
from hloopt.analysis.cost import Cost, instruction_cost
from hloopt.analysis.trip_count import trip_count
from hloopt.ir import walk
from hloopt.pipelines import parse_pipeline
from hloopt.rewrite import Pipeline
from hloopt.rewrite.entries import select

ROOT = Path(__file__).resolve().parents[2]

__all__ = ["FIGURES", "MOST", "geometric_mean", "ratios"]

FIGURES = ("flops", "bytes", "count")
MOST = 1.02
EXPANDED = (
    "rng-expander,batch-norm-expander,logistic-expander,topk-expander,comparison-expander,"
    "select-and-scatter-expander,cholesky-expander,reduce-window-rewriter{fast_math=true},"
    "dot-strength-reduction{fast_math=true}"
)
CANONICAL = "gather-simplifier,scatter-simplifier"
THEIRS = f"defuse,{EXPANDED},{CANONICAL},cse,dce"
FUSION = ("priority-fusion", "multi-output-fusion", "rename-fusions")
CPU_ONLY = "A / broadcast(B) => A * broadcast(1 / B)"

MOVES = frozenset(("bitcast", "bitcast-convert", "copy", "reshape", "transpose"))
NOT_COUNTED = {"parameter", "constant", "tuple", "get-tuple-element", "after-all"}


@dataclass(frozen=True)
class Work:
    """The three figures of a module, and how often it has each opcode."""

    flops: int
    bytes: int
    count: int
    opcodes: Counter[str]


def work(module: Any) -> Work:
    """What running the entry once costs, loops as often as they are known to run."""
    total = _cost(module.entry)
    counted = [entry for entry in module.instructions() if not _moves(entry)]
    opcodes = Counter(entry.opcode for entry in counted)
    count = sum(number for opcode, number in opcodes.items() if opcode not in NOT_COUNTED)
    return Work(total.flops + total.transcendentals, total.bytes_accessed, count, opcodes)


def _moves(instruction: Any) -> bool:
    """Whether nothing is computed and no element is there twice afterwards."""
    if instruction.opcode == "broadcast":
        return bool(instruction.array.elements == instruction.operands[0].array.elements)
    return instruction.opcode in MOVES


def _cost(computation: Any) -> Cost:
    return sum(map(_instruction_cost, computation), Cost())


def _instruction_cost(instruction: Any) -> Cost:
    if _moves(instruction):
        return Cost()
    if instruction.opcode == "while":
        iterations = trip_count(instruction)
        count = 1 if iterations is None else iterations
        body, condition = (instruction.attributes[name] for name in ("body", "condition"))
        return _cost(body) * count + _cost(condition) * (count + 1)
    if instruction.opcode == "call":
        return sum(map(_cost, walk.called_computations(instruction)), Cost())
    return instruction_cost(instruction)


def ours(exact: bool = False) -> Pipeline:
    """O2 without fusion, once more where gathers and scatters have XLA's form; without ``exact`` in fast math."""
    level = "O2" if exact else f'O2{{fast_math=true,disable=["{CPU_ONLY}"]}}'
    whole = parse_pipeline(f"{EXPANDED},{level},{CANONICAL},{level}")
    return Pipeline(select(whole.entries, lambda one: None if one.name in FUSION else one))


def ratios(before: Path) -> dict[str, float]:
    """By figure, how many times XLA's ours is; ``before`` is a dump of before all optimisations."""
    mine, theirs = _both(before, ours())
    return {name: _ratio(getattr(mine, name), getattr(theirs, name)) for name in FIGURES}


def _both(before: Path, pipeline: Pipeline) -> tuple[Work, Work]:
    stem = before.name.removesuffix(".before.hlo")
    prefusion = before.with_name(f"{stem}.prefusion.hlo")
    found = []
    for path, passes in ((before, pipeline), (prefusion, parse_pipeline(THEIRS))):
        module = hloopt.parse(path.read_text(), path.name)
        passes.run(module)
        found.append(work(module))
    return found[0], found[1]


def _ratio(mine: int, theirs: int) -> float:
    return mine / theirs if theirs else (1.0 if not mine else inf)


def geometric_mean(values: Iterable[float]) -> float:
    """Of what is neither zero nor infinite."""
    logarithms = [log(value) for value in values if 0 < value < inf]
    return exp(sum(logarithms) / len(logarithms)) if logarithms else 1.0


def main() -> int:
    """Print the table; 1 when a figure of a program is above ``MOST``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--exact", action="store_true", help="keep every bit")
    options = parser.parse_args()
    folder = Path(os.environ["HLOOPT_CORPUS"]) / "jax"
    pipeline = ours(options.exact)
    rows: list[dict[str, float]] = []
    for before in sorted(folder.glob("*.before.hlo")):
        name = before.name.removesuffix(".before.hlo")
        prefusion = before.with_name(f"{name}.prefusion.hlo")
        if not prefusion.exists() or (options.names and name not in options.names):
            continue
        mine, theirs = _both(before, pipeline)
        row = {figure: _ratio(getattr(mine, figure), getattr(theirs, figure)) for figure in FIGURES}
        rows.append(row)
        mark = "*" if max(row.values()) > MOST else " "
        print(f"{mark} {name:32}", *(f"{figure} {row[figure]:7.3f}" for figure in FIGURES))
        if options.names:
            both = sorted(mine.opcodes | theirs.opcodes)
            differing = [key for key in both if mine.opcodes[key] != theirs.opcodes[key]]
            print("  ", *(f"{key} {mine.opcodes[key]}/{theirs.opcodes[key]}" for key in differing))
    for figure in FIGURES:
        mean = geometric_mean(row[figure] for row in rows)
        above = sum(row[figure] > MOST for row in rows)
        print(f"{figure}: geometric mean {mean:.3f}, {above} of {len(rows)} above {MOST}")
    return int(any(max(row.values()) > MOST for row in rows))


if __name__ == "__main__":
    sys.exit(main())
