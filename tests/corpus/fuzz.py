"""Damaged texts against the parser, the printer, the verifier and O2: part of ``make corpus``.

    python -m tests.corpus.fuzz                  100,000 texts, resumable; the broken ones are listed
    python -m tests.corpus.fuzz --index N        print the text of one number
    python -m tests.corpus.fuzz --judge N        judge it in this process, with a traceback

The texts are made of the samples, and of the corpus where HLOOPT_CORPUS names it, by the seed and their number
alone.  They are judged in a child process (``judge.py``) that may take five seconds of processor time a step
and 4 GiB of memory; a text with which it hangs or dies is found and named.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hloopt.workers.pool import answers
from hloopt.workers.process import Worker
from hloopt.workers.records import WorkerLimits, WorkerTask
from hloopt.workers.row_file import RowFile
from hloopt.workers.serving import serve
from tests.corpus.mutate import Mutator
from tests.corpus.store import digest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

CACHE = ROOT / ".corpus"
SEED = 2026
COUNT = 100_000
BLOCK = 500  # texts whose results are kept together
LARGEST = 8_000  # characters of a text to damage: the small ones have all forms, too
SECONDS = 5  # of processor time
WAIT = 120.0  # seconds, for a child that does not even use the processor
MEMORY = 4 << 30


def sources(corpus: str | None = os.environ.get("HLOOPT_CORPUS")) -> list[str]:
    """The texts to damage: small ones of the corpus, and our samples."""
    folders = [(ROOT / "samples", 60_000)]
    if corpus:
        folders += [(Path(corpus) / "jax", LARGEST), (Path(corpus) / "xla-tests", LARGEST)]
    return [
        path.read_text()
        for folder, limit in folders
        for path in sorted(folder.rglob("*.hlo"))
        if path.stat().st_size <= limit
    ]


def judged(mutator: Mutator, index: int, tick: Callable[[], object] = lambda: None) -> str:
    """The outcome of one text; every second one is read strictly, every second one optimised."""
    from tests.corpus.judge import judge

    return judge(mutator.text(index), index % 4 >= 2, index % 2 == 1, tick)


def work(seed: int) -> None:
    """The child: a number a line in, an outcome a line out."""
    mutator = Mutator(sources(), seed)

    def tick() -> None:
        # A step has its own time; the signal ends the process.
        signal.setitimer(signal.ITIMER_PROF, SECONDS)

    def outcome(index: int) -> str:
        try:
            return judged(mutator, index, tick)
        except Exception as error:  # noqa: BLE001 - a crash is what this looks for
            return f"failed: {_place(error)}{type(error).__name__}: {str(error)[:300]}"

    serve(outcome, WorkerLimits(memory=MEMORY, processor=SECONDS))


def _place(error: Exception) -> str:
    """The innermost line of hloopt that an exception came through."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        path = Path(trace.tb_frame.f_code.co_filename)
        if path.is_relative_to(ROOT / "hloopt"):
            place = f"{path.relative_to(ROOT)}:{trace.tb_lineno}: "
        trace = trace.tb_next
    return place


def key(package: str, seed: int) -> str:
    """A hash of everything the outcomes depend on."""
    own = [HERE / name for name in ("fuzz.py", "judge.py", "mutate.py")]
    return digest(own, "\0".join([package, str(seed), *sources()]))


def fuzz(package: str, total: int = COUNT, seed: int = SEED, workers: int = 1) -> dict[str, Any]:
    """``{"counts": outcome -> number, "broken": number -> what happened}``; kept block by block."""
    CACHE.mkdir(exist_ok=True)
    command = (sys.executable, "-m", "tests.corpus.fuzz", "--worker", "--seed", str(seed))
    with RowFile(CACHE / f"fuzz-{key(package, seed)}.jsonl", "damaged texts", {}) as file:
        found = [row for row in file.rows.values() if row["block"] + BLOCK <= total]
        known = {row["block"] for row in found}
        wanted = [index for index in range(total) if index // BLOCK * BLOCK not in known]
        tasks = [WorkerTask(str(index), index, str(index // BLOCK)) for index in wanted]
        outcomes: dict[int, dict[int, str]] = defaultdict(dict)
        for answer in answers(tasks, partial(Worker, command, WAIT), workers):
            index = answer.task.payload
            start = index // BLOCK * BLOCK
            outcomes[start][index] = (
                str(answer.value) if answer.failure is None else f"failed: {answer.failure}"
            )
            if len(outcomes[start]) == min(BLOCK, total - start):
                row = _block(start, outcomes.pop(start))
                file.add(str(start), row)
                found.append(row)
                print(f"\r{len(found) * BLOCK}/{total} damaged", end="", file=sys.stderr)
    print(file=sys.stderr)
    counts: Counter[str] = Counter()
    broken: dict[str, str] = {}
    for row in found:
        counts.update(row["counts"])
        broken |= row["broken"]
    return {"counts": dict(counts), "broken": broken}


def _block(start: int, outcomes: dict[int, str]) -> dict[str, Any]:
    words = {index: outcome.split(":")[0] for index, outcome in outcomes.items()}
    broken = {str(index): outcomes[index] for index in sorted(outcomes) if words[index] == "failed"}
    return {"block": start, "counts": dict(Counter(words.values())), "broken": broken}


def main() -> int:
    """Print, judge, or run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--index", type=int, metavar="N")
    parser.add_argument("--judge", type=int, metavar="N")
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.seed)
        return 0
    if options.index is not None or options.judge is not None:
        mutator = Mutator(sources(), options.seed)
        if options.index is not None:
            text = mutator.text(options.index)
            sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass"))
        else:
            print(judged(mutator, options.judge))
        return 0
    from tests.corpus.score import package_key

    results = fuzz(package_key(), options.count, options.seed, options.workers)
    for index, what in sorted(results["broken"].items(), key=lambda item: int(item[0])):
        print(f"{index}: {what}")
    print(json.dumps(results["counts"]))
    return 1 if results["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
