"""Would the judge notice?  Modules changed wrongly, a value at a time, and how many of them each rule catches.

    python -m tests.prover.tolerance [FILE ...] [--each N] [--random N] [--seconds S] [--json FILE] [--missed]
    python -m tests.prover.tolerance --alarms [--devices cpu,native] [--special CLASS]

Without files: the samples, the corpus where HLOOPT_CORPUS names it, and modules of ``campaign-random``.  Each is
evaluated on its inputs, and so is each change of it; changes that leave every bit of the results as it was, but for
those of a NaN, are not counted.  Caught by: the judge; the judge without bounds (its magnitude and other roundings alone, the rule
before); ``numpy.allclose`` with its defaults.  What is not caught is in no element further off than another
right evaluation was (no rule can catch it without false alarms), or within the margin over those.
``--alarms`` runs each module after passes on devices instead, with fast-math too: whatever the judge finds
there is a false alarm.  ``--special`` changes the inputs into those of a class (``runtime.trial_inputs``).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import hloopt
from hloopt.errors import HlooptError
from hloopt.interpret import evaluate_bounds, evaluate_participants
from hloopt.interpret.perturbation import unit_roundoff
from hloopt.ir import Module
from hloopt.prover.trials import special_class
from hloopt.rewrite import Pipeline
from hloopt.rewrite.entries import with_options
from hloopt.runtime.inputs import generate_all, load_all_inputs
from hloopt.runtime.judge import Judge, named
from hloopt.runtime.trial_inputs import spread_inputs
from hloopt.types import of_numpy
from tests.campaigns.campaign_checks import case, in_time
from tests.prover.tolerance_mutations import KINDS, wrong_rewrites

SAMPLES = Path(__file__).parents[2] / "samples"
PIPELINES = ("O0", "O1", "O2", "O3", "xla-gpu-2022", "xla-gpu-2026", "O2 fast-math", "O3 fast-math")
RULES = ("judge", "before", "allclose")
_CASE_SECONDS = 20.0
_RUN_SECONDS = 1.0

Subject = tuple[str, Module, list[Any]]


def subjects(files: Sequence[str], drawn: int) -> Iterator[Subject]:
    """Names, modules and inputs: recorded ones where they lie beside the file."""
    paths = [Path(file) for file in files]
    if not files:
        paths = sorted(SAMPLES.glob("*.hlo"))
        if corpus := os.environ.get("HLOOPT_CORPUS"):
            paths += sorted(
                (Path(corpus) / "jax").glob("*.before.hlo"), key=lambda path: path.stat().st_size
            )
    for path in paths:
        try:
            module = hloopt.parse(path.read_text(), str(path))
            beside = path.with_name(path.name.removesuffix(".hlo").removesuffix(".before") + ".npz")
            inputs = (
                load_all_inputs(beside, module, 1)
                if beside.exists()
                else generate_all(module, 0, 1, 1)
            )
        except HlooptError as error:
            print(f"{path.name}: left out: {error.message}", file=sys.stderr)
            continue
        yield path.name, module, inputs[0]
    for index in range(drawn):
        module = case(index)[0]
        try:
            yield f"random {index}", module, generate_all(module, index, 1, 1)[0]
        except HlooptError as error:
            print(f"random {index}: left out: {error.message}", file=sys.stderr)


class Rules:
    """A module's results, and what each rule says of others: other roundings are evaluated once for all."""

    def __init__(self, module: Module, inputs: list[Any]) -> None:
        self.module, self.inputs = module, [inputs]
        self.want = evaluate_participants(module, self.inputs, 1, 1)
        self._samples: dict[int, Any] = {}
        own = named(self.want, {})
        self._judges = {
            "judge": Judge(own, self._sample, bounds=self._bounds),
            "before": Judge(own, self._sample),
        }

    def _sample(self, number: int) -> Any:
        if number not in self._samples:
            try:
                arrays = evaluate_participants(self.module, self.inputs, 1, 1, rounding=number)
                self._samples[number] = named(arrays, {})
            except HlooptError:
                self._samples[number] = None
        return self._samples[number]

    def _bounds(self) -> Any:
        (bounds,) = evaluate_bounds(self.module, self.inputs, 1, 1)
        return {(0, output): bound for output, bound in enumerate(bounds)}

    def equal(self, got: list[list[Any]]) -> bool:
        """Whether every bit is the same, but for those of a NaN."""
        return all(
            _nan_alike(a).tobytes() == _nan_alike(b).tobytes()
            for a, b in zip(got[0], self.want[0], strict=True)
        )

    def caught(self, got: list[list[Any]]) -> dict[str, bool]:
        """Which rules find that something is wrong."""
        found = {
            name: any(not one.passed for one in judge.compare_all(got, self.want))
            for name, judge in self._judges.items()
        }
        found["allclose"] = not all(
            np.allclose(_plain(one), _plain(other), equal_nan=True)
            for one, other in zip(got[0], self.want[0], strict=True)
        )
        return found

    def why(self, got: list[list[Any]]) -> str:
        """Why the judge finds nothing: the largest error in units of the last place of its element."""
        compared = self._judges["judge"].compare_all(got, self.want)
        changed = [one for one in compared if one.share]
        if not changed:
            return "the sign of a zero"
        (side,) = self._judges["judge"]._sides
        for output, (one, want) in enumerate(zip(got[0], self.want[0], strict=True)):
            if one.dtype.kind in "biu" or not np.isfinite(want.astype(np.complex128)).all():
                continue
            error = np.abs(one.astype(np.complex128) - want).reshape(-1)
            unit = (
                2
                * unit_roundoff(of_numpy(want.dtype))
                * np.abs(want).astype(np.float64).reshape(-1)
            )
            if (error > np.maximum(side.moved((0, output), 16).spread, unit)).any():
                worst = max(changed, key=lambda one: one.share)
                return f"within {worst.bound or 'what rounding decides'}, and beyond any evaluation seen"
        return "no element is further off than another right evaluation's, or than one unit"


def _nan_alike(array: Any) -> Any:
    if array.dtype.kind in "biuc":
        return array
    return np.where(np.isnan(array.astype(np.float64)), array.dtype.type(np.nan), array)


def _plain(array: Any) -> Any:
    kind = array.dtype.kind
    return array if kind in "biufc" else array.astype(np.float64)


def examined(subject: Subject, each: int, seed: int) -> Iterator[dict[str, Any]]:
    """A row for each wrong change whose results differ in a bit."""
    name, module, inputs = subject
    start = time.process_time()
    with in_time(_RUN_SECONDS):
        rules = Rules(module, inputs)
    for kind, changed, wrong in wrong_rewrites(module, seed, each):
        if time.process_time() - start > _CASE_SECONDS:
            return
        row = {"case": name, "kind": kind, "changed": changed}
        try:
            hloopt.verify(wrong)
            with in_time(_RUN_SECONDS):
                got = evaluate_participants(wrong, rules.inputs, 1, 1)
        except (HlooptError, TimeoutError) as error:
            yield {**row, "outcome": "not executed", "why": str(error)}
            continue
        if rules.equal(got):
            yield {**row, "outcome": "equal"}
            continue
        try:
            with in_time(2 * _CASE_SECONDS):
                caught = rules.caught(got)
                why = "" if caught["judge"] else rules.why(got)
        except TimeoutError:
            return
        yield {**row, "outcome": "differs", **caught, "why": why}


def alarms(subject: Subject, devices: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Runs after passes on devices, and what the judge says of them: nothing where they are right."""
    name, module, inputs = subject
    with in_time(_RUN_SECONDS):
        rules = Rules(module, inputs)
    for pipeline in PIPELINES:
        for device in devices:
            what = f"{name} {pipeline} {device}"
            try:
                with in_time(_CASE_SECONDS):
                    program = hloopt.compile(
                        hloopt.optimize(module, _entries(pipeline)), device=device
                    )
                    got = [program.run(inputs)]
            except (HlooptError, TimeoutError):
                continue
            found = rules._judges["judge"].compare_all(got, rules.want)
            yield what, "; ".join(one.reason for one in found if not one.passed)


def _entries(name: str) -> Pipeline:
    """The passes of a pipeline, all of them with ``fast_math`` where the name says so."""
    level, *fast = name.split()
    pipeline = hloopt.parse_pipeline(level)
    if not fast:
        return pipeline
    return Pipeline(with_options(pipeline.entries, level, (("fast_math", "true"),)))


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Each kind: changes whose results differ, and the part of them that each rule catches."""
    lines = [
        f"{'kind of change':34s} {'equal':>6s} {'differ':>6s} "
        + " ".join(f"{rule:>9s}" for rule in RULES)
    ]
    for kind in [*KINDS, "all"]:
        own = [row for row in rows if kind in ("all", row["kind"])]
        differ = [row for row in own if row["outcome"] == "differs"]
        shares = [
            sum(row[rule] for row in differ) / len(differ) if differ else 0.0 for rule in RULES
        ]
        equal = sum(row["outcome"] == "equal" for row in own)
        lines.append(
            f"{kind:34s} {equal:6d} {len(differ):6d} "
            + " ".join(f"{share:9.1%}" for share in shares)
        )
    missed = Counter(row["why"] for row in rows if row["outcome"] == "differs" and not row["judge"])
    lines += [f"not caught: {count:5d}  {why}" for why, count in missed.most_common()]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*")
    parser.add_argument("--each", type=int, default=2, help="changes of each kind of each module")
    parser.add_argument(
        "--random", type=int, help="random modules: 200 where no files are given, else none"
    )
    parser.add_argument("--seconds", type=float, default=600.0, help="of this process, for all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", metavar="FILE", help="write every row")
    parser.add_argument("--missed", action="store_true", help="print what the judge does not catch")
    parser.add_argument("--alarms", action="store_true")
    parser.add_argument("--devices", default="cpu")
    parser.add_argument("--special", metavar="CLASS", help="of inputs, as of hloopt compare")
    given = parser.parse_args()
    drawn = given.random if given.random is not None else 0 if given.files else 200
    rows: list[dict[str, Any]] = []
    runs: dict[str, str] = {}
    left_out: defaultdict[str, int] = defaultdict(int)
    for name, module, inputs in subjects(given.files, drawn):
        if given.special:
            inputs = spread_inputs(module, inputs, given.seed, special_class(given.special))
        subject = name, module, inputs
        if time.process_time() > given.seconds:
            left_out["no time left"] += 1
            continue
        try:
            if given.alarms:
                for what, wrong in alarms(subject, given.devices.split(",")):
                    runs[what] = wrong
                    if wrong:
                        print(f"ALARM {what}: {wrong}", flush=True)
            else:
                for row in examined(subject, given.each, given.seed):
                    rows.append(row)
                    if given.missed and row["outcome"] == "differs" and not row["judge"]:
                        print(json.dumps(row), flush=True)
        except TimeoutError:
            left_out["the interpreter takes too long"] += 1
        except HlooptError as error:
            left_out[error.message] += 1
    if given.alarms:
        print(f"{len(runs)} runs, {sum(map(bool, runs.values()))} false alarms")
    else:
        print(table(rows))
    for why, count in left_out.items():
        print(f"left out: {count} modules: {why}", file=sys.stderr)
    if given.json:
        Path(given.json).write_text(json.dumps(rows or runs, indent=1))
    return int(any(runs.values()))


if __name__ == "__main__":
    sys.exit(main())
