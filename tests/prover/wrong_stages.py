"""Does ``bisect`` name the stage, and the instruction, of a single wrong rewrite?

Wrong rewrites are made by a faulty pass inside ``-O2``: after the run of a pass one instruction is changed, and the
passes behind it run on what it left.  The stages are dumped as ``--dump-dir`` does, and bisected.

    python -m tests.prover.wrong_stages --count 400 --workers 2

The programs are those in ``HLOOPT_CORPUS/jax``.  Cases that are done are kept in ``--store`` and not judged again.
``--case N`` prints one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections import Counter
from functools import cache, partial
from pathlib import Path
from typing import Any

from hloopt.dumps import read_dump
from hloopt.errors import HlooptError, VerifyError
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.pipelines import make_pipeline
from hloopt.prover.bisection import Bisection
from hloopt.prover.dump_bisect import DumpBisect
from hloopt.prover.dumped_stages import stages_of
from hloopt.prover.executor import Executor
from hloopt.prover.stage_runs import same_results
from hloopt.prover.trials import Trial, made
from hloopt.report.dump_passes import DumpPasses
from hloopt.rewrite import PassRun, Watcher
from hloopt.text.parser import parse_module
from hloopt.workers.pool import answers
from hloopt.workers.process import Worker
from hloopt.workers.records import TaskAnswer, WorkerTask
from hloopt.workers.row_file import RowFile
from hloopt.workers.serving import serve
from tests.prover.single_faults import KINDS, Wrong, make_wrong

LARGEST = 50_000
"""Bytes of a program that is used."""

_SECONDS = 60


class Fault(Watcher):
    """Makes a wrong rewrite after the run of a number; keeps the module as it was."""

    def __init__(self, number: int, kind: str, chance: random.Random) -> None:
        self.number, self.kind, self.chance = number, kind, chance
        self.right: Module | None = None
        self.left: Module | None = None
        self.wrong: Wrong | None = None

    def after(self, run: PassRun, module: Module) -> None:
        if run.number == self.number and run.changed:
            self.right = clone_module(module)
            self.wrong = make_wrong(module, self.kind, self.chance)
            self.left = clone_module(module)


class Runs(Watcher):
    """The numbers of the runs that change the module."""

    def __init__(self) -> None:
        self.changed: list[int] = []

    def after(self, run: PassRun, module: Module) -> None:
        if run.changed:
            self.changed.append(run.number)


@cache
def programs() -> list[Path]:
    folder = Path(os.environ["HLOOPT_CORPUS"]) / "jax"
    return [
        path
        for path in sorted(folder.glob("*.before.hlo"))
        if path.stat().st_size <= LARGEST and not path.name.startswith(("bench_", "edge_"))
    ]


@cache
def runs(path: Path) -> list[int]:
    counted = Runs()
    _run(path, counted)
    return counted.changed


def _run(path: Path, *watchers: Watcher) -> Module:
    module = parse_module(path.read_text(), path.name)
    make_pipeline("O2").run(module, watchers=watchers)
    return module


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def judge(index: int) -> dict[str, Any]:
    """Make case ``index`` and bisect its stages; what came of it."""
    chance = random.Random(index)
    kind = list(KINDS)[index % len(KINDS)]
    for path in chance.sample(programs(), len(programs())):
        if not runs(path):
            continue
        number = chance.choice(runs(path))
        fault = Fault(number, kind, chance)
        with tempfile.TemporaryDirectory() as folder:
            dump = DumpPasses(Path(folder), "O2", Module.to_text, _write)
            try:
                _run(path, fault, dump)
            except VerifyError:  # of a rewrite that leaves no valid module
                continue
            if fault.wrong is None:
                continue
            row = {"index": index, "program": path.name, "kind": kind, "run": number}
            row |= {"instruction": fault.wrong.instruction, "computation": fault.wrong.computation}
            return row | _bisected(path, Path(folder), fault)
    return {"index": index, "kind": kind, "outcome": "no place"}


def _bisected(program: Path, folder: Path, fault: Fault) -> dict[str, Any]:
    assert fault.right is not None
    assert fault.left is not None
    executor = Executor(seconds=20)
    try:
        # What random inputs are like follows from the module: those of the first stage count.
        inputs = made(parse_module(program.read_text(), program.name), Trial())
        right = executor.run(fault.right, inputs)
        changes = not same_results(right, executor.run(fault.left, inputs))
    except HlooptError as error:
        if not isinstance(error.__cause__, TimeoutError):
            return {"outcome": "not run", "why": str(error).partition("\n")[0]}
        changes = True  # a loop that does not end
    (module,) = read_dump(folder).modules
    found = DumpBisect(module.label, str(folder), stages_of(module)).run()
    return {"outcome": _outcome(found, fault, changes=changes), "why": found.summary} | {
        "named": [one.name for culprit in found.culprits for one in culprit.rewritten][:8]
    }


def _outcome(found: Bisection, fault: Fault, *, changes: bool) -> str:
    """``right`` in all, ``stage`` only, ``wrong`` stage, ``missed``; ``within`` its class; ``equal`` results."""
    if not found.culprits:
        label = next(one for one in found.examined if one.name.startswith(f"{fault.number:04d}."))
        return ("within" if label.outcome == "within" else "missed") if changes else "equal"
    culprit = found.culprits[0]
    if not culprit.where.startswith(f"{fault.number:04d}."):
        return "wrong" if changes else "false alarm"
    assert fault.wrong is not None
    return "right" if _names(found, fault) else "stage"


def _names(found: Bisection, fault: Fault) -> bool:
    """Whether the instruction, or the one that runs its computation, is among the first that are shown."""
    wrong = fault.wrong
    assert wrong is not None
    culprit = found.culprits[0]
    shown = [one for one in culprit.rewritten if one.is_first]
    names = {one.name for one in shown}
    inside = any(f"%{wrong.computation}" in one.text for one in shown)
    return wrong.instruction in names or inside or not names.isdisjoint(_readers(fault))


def _readers(fault: Fault) -> set[str]:
    """What read an instruction that the fault removed: there values begin to differ."""
    assert fault.wrong is not None
    right, left = (
        {one.name: one for one in module.computations[fault.wrong.computation]}
        for module in (fault.right, fault.left)
        if module is not None
    )
    name = fault.wrong.instruction
    return set() if name in left else {user.name for user in right[name].users}


def main(arguments: list[str]) -> int:
    """Judge cases until there are as many as wanted; the counts of outcomes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--store", type=Path, default=Path(".corpus/wrong-stages.jsonl"))
    parser.add_argument("--case", type=int)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.worker:
        serve(judge)
        return 0
    if given.case is not None:
        print(json.dumps(judge(given.case), indent=1))
        return 0
    wanted = range(given.first, given.first + given.count)
    command = (sys.executable, "-m", "tests.prover.wrong_stages", "--worker")
    with RowFile(given.store, "wrong stages", {}) as file:
        left = [WorkerTask(str(index), index) for index in wanted if str(index) not in file.rows]
        for answer in answers(left, partial(Worker, command, _SECONDS), given.workers):
            file.add(answer.task.key, _row(answer))
        return summary([file.rows[str(index)] for index in wanted])


def _row(answer: TaskAnswer) -> dict[str, Any]:
    if answer.failure is None:
        return dict(answer.value)
    outcome = "too long" if answer.failure.kind == "timeout" else f"failed: {answer.failure}"
    return {"index": answer.task.payload, "outcome": outcome}


def summary(rows: list[dict[str, Any]]) -> int:
    """Print the counts; 1 where fewer are named than must be."""
    counts = Counter(row["outcome"] for row in rows)
    print(", ".join(f"{name}: {count}" for name, count in counts.most_common()))
    bad = [
        row
        for row in rows
        if row["outcome"] in ("wrong", "missed", "stage", "false alarm", "pipeline")
        or row["outcome"].startswith("failed")
    ]
    for row in bad:
        print(json.dumps(row))
    changed = sum(counts[name] for name in ("right", "stage", "wrong", "missed"))
    stage = (counts["right"] + counts["stage"]) / max(changed, 1)
    instruction = counts["right"] / max(changed, 1)
    print(f"{changed} change results: stage named {stage:.1%}, instruction {instruction:.1%}")
    return int(stage < 0.99 or instruction < 0.95 or counts["missed"] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
