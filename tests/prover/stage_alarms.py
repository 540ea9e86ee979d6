"""Does ``bisect`` blame a stage of XLA's that is right?  XLA's dumps of the corpus, each stage against the one before.

    python -m tests.prover.stage_alarms --workers 2

XLA's CPU compiler (``HLOOPT_XLA_PYTHON``) dumps its stages of the programs in ``HLOOPT_CORPUS/jax`` and of the samples into
``--store``, where dumps that are there already are taken as they are; folders of other dumps may be named, such as those of XLA's GPU
compiler.  Each dump is bisected on its own inputs, all stages that change results being found, and the last stage is
compared with the first.  Prints what was found, for somebody to look at, and exits with 1 where there is anything.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from hloopt.dumps import read_dump
from hloopt.errors import HlooptError
from hloopt.prover.comparing import compare_runs
from hloopt.prover.dump_bisect import DumpBisect
from hloopt.prover.dumped_stages import read_stage, stages_of
from hloopt.prover.trials import TrialOptions
from hloopt.prover.xla_oracle import XlaOracle
from hloopt.text.parser import parse_module
from hloopt.workers.pool import answers
from hloopt.workers.process import Worker
from hloopt.workers.records import WorkerTask
from hloopt.workers.serving import serve

SAMPLES = Path(__file__).parents[2] / "samples"
LARGEST = 600_000
"""Bytes of a program that is used."""


def dumped(program: Path, store: Path) -> Path:
    """The folder of XLA's stages of a program, compiled where it is not there."""
    folder = store / program.name.removesuffix(".hlo").removesuffix(".before")
    if not folder.is_dir():
        module = parse_module(program.read_text(), program.name)
        folder.mkdir(parents=True)
        (inputs,) = TrialOptions().all(module)
        XlaOracle(inputs).dumped(module, folder)
    return folder


def examined(trials: int, dump: str) -> dict[str, Any]:
    """What bisecting a dump finds."""
    folder = Path(dump)
    row: dict[str, Any] = {"dump": dump, "found": [], "outcomes": {}, "last": ""}
    for module in read_dump(folder).modules:
        stages = stages_of(module)
        if len(stages) < 2:
            continue
        options = TrialOptions(trials=trials)
        search = DumpBisect(module.label, str(folder), stages, options, every=True)
        try:
            found = search.run()
        except HlooptError as error:
            row["last"] = str(error).partition("\n")[0]
            continue
        row["outcomes"] = dict(Counter(one.outcome for one in found.examined))
        row["skipped"] = sorted(
            {f"{one.outcome}: {one.note}" for one in found.examined if one.place}
        )
        row["found"] += [
            {"stage": one.where, "results": [result.reason for _, result in one.results]}
            for one in found.culprits
        ]
        assert search.search is not None
        last = search.search.last
        if last is None or found.culprits:
            continue
        for inputs, run in zip(search.search.trials, last.runs, strict=True):
            first = search.executor.run(read_stage(stages[0]), inputs)
            compared = compare_runs(first, run, inputs)
            row["found"] += [
                {"stage": "the first and the last", "results": [one.reason]}
                for one in compared.all()
                if not one.passed
            ]
    return row


def main(arguments: list[str]) -> int:
    """Bisect the dumps; the counts of stages by what they give."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "dumps", nargs="*", type=Path, help="folders of dumps beside those of the corpus"
    )
    parser.add_argument("--store", type=Path, default=Path(".corpus/stages"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--trials", type=int, default=1)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.worker:
        serve(partial(examined, given.trials))
        return 0
    folders = list(given.dumps)
    if not folders:
        corpus = Path(os.environ["HLOOPT_CORPUS"]) / "jax"
        programs = [*sorted(corpus.glob("*.before.hlo")), *sorted(SAMPLES.glob("*.hlo"))]
        for program in programs:
            if program.stat().st_size <= LARGEST and not program.name.startswith("bench_"):
                try:
                    folders.append(dumped(program, given.store))
                except HlooptError as error:
                    print(f"{program.name}: {str(error).partition(chr(10))[0]}")
    totals: Counter[str] = Counter()
    alarms = 0
    command = (sys.executable, "-m", "tests.prover.stage_alarms", "--worker")
    command += ("--trials", str(given.trials))
    tasks = [WorkerTask(str(folder), str(folder)) for folder in folders]
    for answer in answers(tasks, partial(Worker, command, None), given.workers):
        if answer.failure is not None:
            alarms += 1
            print(f"{answer.task.key}: {answer.failure}", flush=True)
            continue
        row = answer.value
        totals.update(row["outcomes"])
        alarms += bool(row["found"])
        if row["found"] or row["last"]:
            print(json.dumps(row), flush=True)
    print(f"{len(folders)} dumps, {alarms} with something found; stages: {dict(totals)}")
    return int(alarms > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
