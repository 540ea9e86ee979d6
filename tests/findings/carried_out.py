"""Are findings true?  Their advice carried out in JAX, planned again by XLA: ``python -m tests.findings.carried_out``.

A line a pair of ``programs_*.py`` and target: the gain that ``hloopt why`` promises of the function as written, and
what was found with the advice carried out; where nothing is found, whether the advice would have gained.

For a GPU XLA plans both functions (it need not be there; the folder with the plug-in of JAX for CUDA is ``--plugin``,
the folder of descriptions ``--specs``): times are those of the one cost model on XLA's plans, bytes those that XLA
assigns.  For ``host`` both run on one core by ``native``, in turn, with results in the memory of donated arguments;
what counts is the share of the time that is saved, since the promise is of a usual core and not of this one.  Where the
runs of one side still differ by more than both do after the most rounds, the row is undecided.  The loads of the
machine before and after are printed.

Elements are counted in the new module; of wrong results it is their share that counts, since their number depends on
the inputs: those of JAX, and of XLA's plan for the GPU.

Programs over several devices are planned with and without asynchronous collectives (``lower_sharded.py``).

``--only NAME`` and ``--kind KIND`` choose pairs; files of ``--store`` are taken as they are unless ``--lower`` is given.
``HLOOPT_XLA_PYTHON`` names the Python with JAX.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import hloopt
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import DEFAULT, model_for
from hloopt.errors import UnsupportedError
from hloopt.findings import KINDS, Findings, Planner, pipeline_for
from hloopt.findings.captured import constant_bytes
from hloopt.findings.finding import Measure
from hloopt.findings.folding import elements_read
from hloopt.findings.measuring import called_in_place
from hloopt.findings.overlaps import exposed_seconds
from hloopt.findings.trials import Subject
from hloopt.ir.build import clone_module
from hloopt.pipelines import parse_pipeline
from hloopt.rewrite import Pipeline
from hloopt.runtime.timing import Timing
from hloopt.targets import find_target

LIMIT = 600
NEAR = 0.3
"""By how much of the promise the gain that is found may miss it."""
ROUNDS = 9
MOST_ROUNDS = 27
"""How many rounds are run at least, and at most until both sides are apart."""


@dataclass(frozen=True)
class Row:
    """A pair on a target: the measure before and after as promised and as found; ``why`` where one is missing.

    ``apart`` says whether both sides differ by more than the runs of one do.
    """

    pair: str
    kind: str
    target: str
    promised: tuple[float, float] | None = None
    found: tuple[float, float] | None = None
    why: str = ""
    measure: Measure = "time"
    apart: bool = True

    @property
    def ratio(self) -> float:
        """What was gained, by what was promised."""
        assert self.promised, "it is known"
        assert self.found, "it is known"
        if self.measure == "accuracy" or (self.target == "host" and self.measure == "time"):
            return self._share(*self.found) / self._share(*self.promised)
        return (self.found[0] - self.found[1]) / (self.promised[0] - self.promised[1])

    @staticmethod
    def _share(before: float, after: float) -> float:
        return (before - after) / before if before else 0.0

    def text(self) -> str:
        """The line of the row."""
        head = f"{self.pair:30} {self.kind:16} {self.target:5}"
        if not self.promised and self.found:
            before, after = self.found
            word = "missed" if before - after > 0.05 * before else "rightly not found"
            return f"{head} {'':22} {f'{before:.3g} -> {after:.3g}':>22} {'':6} {word}"
        if not self.promised or not self.found:
            return f"{head} {self.why}"
        figures = [f"{a:.3g} -> {b:.3g}" for a, b in (self.promised, self.found)]
        word = "near" if abs(self.ratio - 1) <= NEAR else "no gain" if self.ratio < 0.05 else "off"
        word = word if self.apart else "undecided: less than the runs differ among themselves"
        return f"{head} {figures[0]:>22} {figures[1]:>22} {self.ratio:6.2f} {word} {self.why}"


def promise(found: Findings, kind: str) -> tuple[float, float] | None:
    """The measure before and after all findings of a kind: gains of time add up, those of memory do not."""
    rows = [row for row in found.rows if row.kind == kind]
    if not rows:
        return None
    first = rows[0].gain
    saved = [row.gain.saved for row in rows]
    return first.before, first.before - (max(saved) if first.measure == "memory" else sum(saved))


def judged(name: str, kind: str, target: str, folder: Path) -> Row:
    """The row of a pair, from its files."""
    facts = json.loads((folder / f"{name}.json").read_text())
    if facts["difference"]:
        return Row(name, kind, target, why=f"results differ: {facts['difference']}")
    sides = [hloopt.read(folder / f"{name}.{side}.hlo") for side in ("before", "after")]
    (measure,) = (row.measure for row in KINDS if row.name == kind)
    looked = hloopt.why(sides[0], target, kinds=[kind], most=20)
    promised = promise(looked, kind)
    apart = True
    if target == "host" and measure == "time":
        found, apart = runs(name, folder, sides)
    else:
        found = measured(name, target, kind, measure, folder, facts, sides)
    tried = f"{len(looked.useless)} tried" if looked.useless else "no candidate"
    why = "" if promised else f"not found ({tried})"
    return Row(name, kind, target, promised, found, why, measure, apart)


def measured(
    name: str, target: str, kind: str, measure: Measure, folder: Path, facts: Any, sides: list[Any]
) -> tuple[float, float]:
    """The measure before and after, found on the target."""
    if kind == "inexact-rewrite":
        before, after = (moved(name, side, target, folder, facts) for side in ("before", "after"))
        return before, after
    if measure == "accuracy":
        return facts["before not finite"], facts["after not finite"]
    if kind == "captured-constant":
        before, after = (constant_bytes(opened(side)) for side in sides)
        return before, after
    if measure == "compile time":
        before, after = (elements_read(opened(side)) for side in sides)
        return before, after
    place = "host" if target == "host" else "gpu"
    if measure == "memory":
        return facts[f"before {place} bytes"], facts[f"after {place} bytes"]
    predictor = Predictor(model_for(DEFAULT, find_target(target)))
    planner = Planner(Pipeline(()), predictor)
    plans = [hloopt.read(folder / f"{name}.{side}.gpu.hlo") for side in ("before", "after")]
    before, after = (planner.plan(plan).seconds for plan in plans)
    return before, after


def moved(name: str, side: str, target: str, folder: Path, facts: Any) -> float:
    """Elements that XLA's plan gives otherwise than the module as written, on the pair's arguments."""
    written = hloopt.read(folder / f"{name}.{side}.hlo")
    planned = hloopt.read(folder / f"{name}.{side}.gpu.hlo")
    given = [
        array * array.dtype.type(facts["scale"]) if array.dtype.kind == "f" else array
        for array in arrays(written, folder / f"{name}.{side}.npz")
    ]
    pairs = zip(hloopt.evaluate(planned, given), hloopt.evaluate(written, given), strict=True)
    return float(
        sum(
            (~np.isclose(one, other, rtol=1e-5, atol=0, equal_nan=True)).sum()
            for one, other in pairs
        )
    )


def opened(module: Any) -> Any:
    """A copy without calls."""
    copy = clone_module(module)
    parse_pipeline("call-inliner").run(copy)
    return copy


def runs(name: str, folder: Path, sides: list[Any]) -> tuple[tuple[float, float], bool]:
    """Processor seconds of a run of both on ``native``, the least of rounds in turn, and whether they are apart.

    As the promise has it: after the same passes, on one core.  Other work on the machine does not count.
    """
    pipeline, _ = pipeline_for(find_target("host"), "host")
    planned = [clone_module(side) for side in sides]
    for plan in planned:
        pipeline.run(plan)
    given = [
        arrays(side, folder / f"{name}.{at}.npz")
        for side, at in zip(sides, ("before", "after"), strict=True)
    ]
    try:
        steps: list[Any] = [called_in_place(*one) for one in zip(planned, given, strict=True)]
    except (
        UnsupportedError
    ):  # results in another order than rows: arrays are made for them in each run
        programs = [hloopt.compile(plan, device="native", threads=1) for plan in planned]
        steps = [partial(one.run, values) for one, values in zip(programs, given, strict=True)]
    spent: list[list[float]] = [[], []]
    for round_number in range(MOST_ROUNDS):
        for number, step in enumerate(steps):
            step()
            start, count = time.process_time(), 0
            while (seconds := time.process_time() - start) < 0.05 or not count:
                step()
                count += 1
            spent[number].append(seconds / count)
        before, after = (Timing(tuple(one)) for one in spent)
        if round_number + 1 >= ROUNDS and before.is_apart(after):
            break
    return (before.least, after.least), before.is_apart(after)


def arrays(module: Any, path: Path) -> list[Any]:
    """The arguments of a file, in the types of the parameters."""
    with np.load(path) as file:
        return [
            file[f"in_{n}"].view(parameter.array.dtype.numpy)
            for n, parameter in enumerate(module.entry.parameters)
        ]


def ask(*arguments: str, plugin: str, child: str = "lower_pair.py") -> str:
    """What such a file prints under JAX; raises ``RuntimeError`` with its last words where it fails."""
    python = os.environ.get("HLOOPT_XLA_PYTHON") or sys.executable
    child = str(Path(__file__).with_name(child))
    environment = {**os.environ, "PYTHONPATH": plugin, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [python, "-W", "ignore", child, *arguments],
        capture_output=True, text=True, timeout=LIMIT, env=environment, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: {done.stderr.strip()[-600:]}")
    return done.stdout


def overlapped(name: str, folder: Path) -> Row:
    """The row of a program over several devices: collectives that nothing runs beside, and as XLA orders them.

    Both times are those of the plans' kernels and of the table of links, where kernels hide collectives.
    """
    kind, target = "exposed-collective", "h200"
    planner = Planner(Pipeline(()), Predictor(model_for(DEFAULT, find_target(target))))
    sides = [hloopt.read(folder / f"{name}.{side}.hlo") for side in ("before", "after")]
    before, after = (exposed_seconds(Subject(one, planner), one) for one in sides)
    looked = hloopt.why(sides[0], target, kinds=[kind])
    return Row(name, kind, target, promise(looked, kind), (before, after))


def main() -> None:
    """Print the board and its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--kind", nargs="*")
    parser.add_argument("--target", nargs="*", default=["h200", "host"])
    parser.add_argument("--store", type=Path, default=Path(".corpus/carried_out"))
    parser.add_argument("--lower", action="store_true")
    parser.add_argument("--plugin", default="")
    parser.add_argument("--specs", type=Path, default=Path(os.environ.get("HLOOPT_CORPUS", ".")) / "gpu_specs")  # fmt: skip
    given = parser.parse_args()
    known = json.loads(ask(str(given.store), plugin=given.plugin).splitlines()[-1])
    rows, load = [], os.getloadavg()[0]
    for name, (kind, targets) in known.items():
        if (given.only and name not in given.only) or (given.kind and kind not in given.kind):
            continue
        last = "after.gpu.hlo" if "h200" in given.target else "json"
        if given.lower or not (given.store / f"{name}.{last}").exists():
            spec = ("--gpu", str(given.specs / "h200.txtpb")) if "h200" in given.target else ()
            try:
                ask(str(given.store), *spec, name, plugin=given.plugin)
            except subprocess.TimeoutExpired:
                print(
                    f"{name:30} {kind:16}       left out: XLA compiles longer than {LIMIT} s",
                    flush=True,
                )
                continue
        for target in targets:
            if target in given.target:
                rows.append(judged(name, kind, target, given.store))
                print(rows[-1].text(), flush=True)
    if "h200" in given.target and not given.only and (not given.kind or "exposed-collective" in given.kind):  # fmt: skip
        folder = given.store / "sharded"
        spec = str(given.specs / "h200.txtpb")
        for name in ask(
            str(folder), "--gpu", spec, plugin=given.plugin, child="lower_sharded.py"
        ).split():
            rows.append(overlapped(name, folder))
            print(rows[-1].text(), flush=True)
    both = [row for row in rows if row.found and row.promised]
    known_rows = [row for row in both if row.apart]
    near = sum(abs(row.ratio - 1) <= NEAR for row in known_rows)
    without = sum(row.ratio < 0.05 for row in known_rows)
    print(f"{len(rows)} rows, {len(known_rows)} findings: {near} gain as promised within {NEAR:.0%}, {without} gain nothing")  # fmt: skip
    print(f"{len(both) - len(known_rows)} that the runs do not decide")
    others = Counter(row.text().split(" ", 1)[-1][-20:].strip() for row in rows if row not in both)
    print(f"not found: {dict(others)}")
    print(f"load: {load:.1f} before, {os.getloadavg()[0]:.1f} after, {os.cpu_count()} processors")


if __name__ == "__main__":
    main()
