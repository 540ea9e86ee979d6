"""How often the first value that differs is the one that was made wrong.

Each module of a folder is broken by one wrong rewrite, and then optimised, so that little looks as it did.  The
value that is named is right where it is the one that was made wrong, or where the first module's value is the one
that is no longer computed: the same instruction, or one that computes the same elements.

    python -m tests.prover.measure_first_difference FOLDER --count 200
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from pathlib import Path

import numpy as np

import hloopt
from hloopt.errors import HlooptError
from hloopt.ir import build
from hloopt.prover.comparing import compare_runs
from hloopt.prover.executor import Executor
from hloopt.prover.localizing import Located, locate
from hloopt.prover.observing import Trace, observe
from hloopt.prover.trials import Trial, TrialInputs, made
from hloopt.runtime.inputs import load_inputs
from tests.prover.wrong_rewrites import KINDS, break_once

Values = list[np.ndarray]


def _values(trace: Trace, name: str, computation: str) -> Values:
    """All that an instruction gave."""
    return [
        seen.flat
        for leaf, seen in trace.seen.items()
        if leaf.place.instruction.name == name and leaf.place.instruction.home.name == computation
    ]


def _among(flat: np.ndarray, values: Values) -> bool:
    for one in values:
        if one.dtype == flat.dtype and one.size == flat.size:
            wide = np.complex128 if one.dtype.kind == "c" else np.float64
            with np.errstate(all="ignore"):
                if np.allclose(one.astype(wide), flat.astype(wide), 1e-4, 1e-6, equal_nan=True):
                    return True
    return False


def judge(found: Located, gone: tuple[str, str], wrong: Values, right: Values) -> bool:
    """Whether the pair of values that was named is the pair that was made."""
    sides = found.sides
    named = [
        leaf.place.instruction
        for leaf in (found.before, *found.missing, *found.lost[:2])
        if leaf is not None
    ]
    if any((one.name, one.home.name) == gone for one in named):
        return True
    after = sides.after.seen.get(found.after)
    if after is not None and _among(after.flat, wrong):
        return True
    if any(_among(sides.after.seen[leaf].flat, wrong) for leaf in found.alone):
        return True
    leaves = [found.before] if found.before is not None else []
    leaves += [*found.missing, *found.lost[:2]]
    return any(
        leaf in sides.before.seen and _among(sides.before.seen[leaf].flat, right) for leaf in leaves
    )


def reads(found: Located, gone: tuple[str, str], wrong: Values) -> bool:
    """Whether a named instruction reads the value that was made wrong, or the one it should be."""
    sides = found.sides
    named = [leaf for leaf in (found.before, *found.missing, *found.lost[:2]) if leaf is not None]
    theirs = [
        one.place.instruction for leaf in named for _, one in sides.before.operands(leaf.place)
    ]
    if any((one.name, one.home.name) == gone for one in theirs):
        return True
    ours = [
        one for leaf in (found.after, *found.alone) for _, one in sides.after.operands(leaf.place)
    ]
    return any(
        one in sides.after.seen and _among(sides.after.seen[one].flat, wrong) for one in ours
    )


def once(path: Path, kind: str, seed: int, level: str) -> str:
    chooser = random.Random(f"{path.name} {kind} {seed}")
    before = hloopt.parse(path.read_text(), path.name)
    broken = build.clone_module(before)
    change = break_once(broken, chooser, kind)
    if change is None:
        return "no place"
    old, added = change
    new = added[0]
    npz = path.with_name(path.name.replace(".before.hlo", ".npz"))
    inputs = (
        TrialInputs([load_inputs(npz, before)]) if npz.exists() else made(before, Trial(), 1, 1)
    )
    gone = (old.name, new.home.name)
    hloopt.verify(broken)
    after = hloopt.optimize(broken, level) if level != "O0" else broken
    runs = [Executor(seconds=20).run(module, inputs) for module in (before, after)]
    compared = compare_runs(*runs, inputs)
    if compared.equal:
        return "equal"
    outputs = [(0, n) for n, one in enumerate(compared.results) if not one.passed]
    found = locate(before, after, inputs, outputs)
    if found is None:
        return "nothing found"
    trace = observe(broken, inputs)[0]
    wrong = [value for one in added for value in _values(trace, one.name, new.home.name)]
    right = _values(observe(before, inputs)[0], *gone)
    if judge(found, gone, wrong, right):
        return "right"
    if reads(found, gone, wrong):
        return "beside it: an instruction that reads it is named"
    names = [
        None if leaf is None else leaf.place.instruction for leaf in (found.before, found.after)
    ]
    return f"WRONG {old!r} by {new!r} in {new.home.name}: named {names}, missing {[leaf.place.instruction.name for leaf in found.missing][:4]}, lost {[leaf.place.instruction.name for leaf in found.lost][:4]}, paths {[len(leaf.place.path) and leaf.place.path[-1][1] for leaf in (found.after, found.before) if leaf]}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--most", type=int, default=1200, help="instructions of a module")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of cases")
    parser.add_argument("--level", default="O2")
    parser.add_argument("--without", default="bench_", help="leave out names with this")
    options = parser.parse_args()
    paths = sorted(options.folder.glob("*.before.hlo"))
    counts: Counter[str] = Counter()
    index, kinds = options.first, list(KINDS)
    while (
        sum(counts[name] for name in ("right", "beside", "WRONG", "nothing found")) < options.count
    ):
        chooser = random.Random(index)
        path, kind = chooser.choice(paths), kinds[index % len(kinds)]
        start = time.perf_counter()
        index += 1
        if options.only and index not in options.only:
            if index > max(options.only):
                break
            continue
        if path.read_text().count(" = ") > options.most or options.without in path.name:
            continue
        try:
            said = once(path, kind, index, options.level)
        except HlooptError as error:
            said = f"error {str(error)[:200]}"
        counts[said.split()[0] if not said.startswith(("no", "nothing")) else said] += 1
        if said != "no place":
            print(
                f"{index} {path.name} {kind} {time.perf_counter() - start:.1f} s: {said}",
                flush=True,
            )
    print(dict(counts))


if __name__ == "__main__":
    main()
