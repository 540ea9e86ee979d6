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
import resource
import signal
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

from tests.corpus.mutate import Mutator
from tests.corpus.store import digest, rows
from tests.corpus.worker import NoAnswer, Worker

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
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    mutator = Mutator(sources(), seed)

    def tick() -> None:
        # The signal ends the process: a loop inside of a library would never come to a handler.
        signal.setitimer(signal.ITIMER_PROF, SECONDS)

    for line in sys.stdin:
        tick()
        try:
            outcome = judged(mutator, int(line), tick)
        except Exception as error:  # noqa: BLE001 - a crash is what this looks for
            outcome = f"failed: {_place(error)}{type(error).__name__}: {str(error)[:300]}"
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(outcome), flush=True)


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


def fuzz(package: str, total: int = COUNT, seed: int = SEED, jobs: int = 1) -> dict[str, Any]:
    """``{"counts": outcome -> number, "broken": number -> what happened}``; kept block by block."""
    CACHE.mkdir(exist_ok=True)
    store = CACHE / f"fuzz-{key(package, seed)}.jsonl"
    found = {row["block"]: row for row in rows(store) if row["block"] + BLOCK <= total}
    blocks = [start for start in range(0, total, BLOCK) if start not in found]
    lock, finished, pending = Lock(), count(len(found) + 1), iter(blocks)

    def run() -> None:
        command = (sys.executable, "-m", "tests.corpus.fuzz", "--worker", "--seed", str(seed))
        worker = Worker(command, WAIT)
        while True:
            with lock:
                start = next(pending, None)
            if start is None:
                break
            row = _block(worker, start, min(start + BLOCK, total))
            with lock, store.open("a") as out:
                found[start] = row
                out.write(json.dumps(row) + "\n")
                print(f"\r{next(finished) * BLOCK}/{total} damaged", end="", file=sys.stderr)
        worker.close()

    with ThreadPoolExecutor(jobs) as pool:
        for one in [pool.submit(run) for _ in range(jobs)]:
            one.result()
    print(file=sys.stderr)
    counts: Counter[str] = Counter()
    broken: dict[str, str] = {}
    for row in found.values():
        counts.update(row["counts"])
        broken |= row["broken"]
    return {"counts": dict(counts), "broken": broken}


def _block(worker: Worker, start: int, stop: int) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    broken = {}
    for index in range(start, stop):
        try:
            outcome = str(worker.ask(index))
        except NoAnswer as reason:
            outcome = f"failed: {reason}"
        word = outcome.split(":")[0]
        counts[word] += 1
        if word == "failed":
            broken[str(index)] = outcome
    return {"block": start, "counts": dict(counts), "broken": broken}


def main() -> int:
    """Print, judge, or run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--index", type=int, metavar="N")
    parser.add_argument("--judge", type=int, metavar="N")
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--jobs", type=int, default=1)
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

    results = fuzz(package_key(), options.count, options.seed, options.jobs)
    for index, what in sorted(results["broken"].items(), key=lambda item: int(item[0])):
        print(f"{index}: {what}")
    print(json.dumps(results["counts"]))
    return 1 if results["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
