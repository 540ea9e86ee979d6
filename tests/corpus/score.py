"""Everything against the corpus: ``make corpus``.

Results are kept per file under ``.corpus/`` and reused while neither the file, its record nor the package
changed, so that a run can be stopped and resumed.  Each file is examined in a child process with a time limit: a hang
or a crash costs one file.  Ends by writing ``tests/scoreboard.json``, whose figures may only rise.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import blake2b
from itertools import count
from pathlib import Path
from queue import Empty, Queue
from typing import TextIO

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(ROOT)]

CACHE = ROOT / ".corpus"
SCOREBOARD = HERE.parent / "scoreboard.json"
TIME_LIMIT = 300.0  # seconds a file may take


def parts(corpus: Path) -> dict[str, list[Path]]:
    """The corpus by part; of the texts out of XLA's own tests those that XLA's parser accepts."""
    found = {
        f"jax.{stage}": sorted((corpus / "jax").glob(f"*.{stage}.hlo"))
        for stage in ("before", "after", "h200", "prefusion", "fused")
    }
    found["models"] = sorted((corpus / "models").glob("*.hlo"))
    index = corpus / "xla-tests" / "index.jsonl"
    accepted = [row["id"] for row in map(json.loads, index.open()) if row["accepted"] is True]
    texts = {path.stem: path for path in (corpus / "xla-tests").rglob("*.hlo")}
    found["xla-tests"] = [texts[name] for name in sorted(accepted) if name in texts]
    return found


def stages_of(part: str) -> tuple[str, ...]:
    """Text stages for all; results where they are recorded; XLA's tests are not optimised."""
    from stages import RESULT_STAGES, TEXT_STAGES

    if part in ("jax.before", "jax.after", "jax.h200"):
        return TEXT_STAGES + RESULT_STAGES
    return TEXT_STAGES[:3] if part == "xla-tests" else TEXT_STAGES


def package_key() -> str:
    """A hash of everything a result depends on beside the file itself.

    The rules of ``known.py`` are not part of it: they are held against results, they do not make them.
    """
    sources = [
        path
        for folder in ("hloopt", "grammar")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".py", ".lark", ".toml")
    ]
    return _digest(
        [*sources, HERE / "stages.py", HERE.parent / "graphs.py", HERE.parent / "support.py"]
    )


def file_key(path: Path, stages: tuple[str, ...]) -> str:
    """A hash of a file, of what is recorded beside it, and of what is asked."""
    stem = path.with_name(path.name.split(".")[0])
    beside = [stem.with_name(stem.name + suffix) for suffix in (".npz", ".json")]
    return _digest([path, *(one for one in beside if one.exists())], " ".join(stages))


def _digest(paths: list[Path], asked: str = "") -> str:
    digest = blake2b(asked.encode(), digest_size=12)
    for path in paths:
        # The length keeps two files apart from one that holds both.
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def work() -> None:
    """The child: read ``{"path", "stages"}`` lines, answer one outcome a line."""
    from stages import examine

    for line in sys.stdin:
        task = json.loads(line)
        outcome = examine(Path(task["path"]), tuple(task["stages"]))
        print(json.dumps(outcome), flush=True)


class Worker:
    """A child process that is replaced when it hangs or dies.

    ``command`` reads one task a line and answers one outcome a line; ``time_limit`` is in seconds.
    """

    def __init__(
        self,
        command: tuple[str, ...] = (sys.executable, str(Path(__file__).resolve()), "--worker"),
        time_limit: float = TIME_LIMIT,
    ) -> None:
        self.command = command
        self.time_limit = time_limit
        self.child: subprocess.Popen[str] | None = None

    def ask(self, path: Path, stages: tuple[str, ...]) -> dict[str, str]:
        """The outcome of one file."""
        child = self.child or subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.child = child
        assert child.stdin is not None
        assert child.stdout is not None
        hung = threading.Event()

        def end() -> None:
            hung.set()
            child.kill()

        alarm = threading.Timer(self.time_limit, end)
        alarm.start()
        try:
            child.stdin.write(json.dumps({"path": str(path), "stages": stages}) + "\n")
            child.stdin.flush()
            answer = child.stdout.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            alarm.cancel()
        if answer.endswith("\n"):  # half a line is what a child leaves that dies while it answers
            return dict(json.loads(answer))
        self.close()
        reason = "no answer in time" if hung.is_set() else "the process died"
        return {stages[0]: f"failed: {reason}"}

    def close(self) -> None:
        """End the child."""
        if self.child is not None:
            self.child.kill()
            self.child.wait()
            assert self.child.stdin is not None
            assert self.child.stdout is not None
            with suppress(BrokenPipeError):  # what it never read is still in the buffer
                self.child.stdin.close()
            self.child.stdout.close()
            self.child = None


def examine_all(corpus: Path, jobs: int) -> dict[str, dict[str, dict[str, str]]]:
    """Part -> file name -> outcome, from the cache where it is still true."""
    CACHE.mkdir(exist_ok=True)
    store = CACHE / f"{package_key()}.jsonl"
    known = {row["key"]: row["outcome"] for row in _rows(store)}
    tasks: Queue[tuple[str, Path, str]] = Queue()
    results: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
    for part, paths in parts(corpus).items():
        for path in paths:
            key = file_key(path, stages_of(part))
            if key in known:
                results[part][path.name] = known[key]
            else:
                tasks.put((part, path, key))
    total, finished_count, lock = tasks.qsize(), count(1), threading.Lock()

    def run(out: TextIO) -> None:
        worker = Worker()
        while True:
            try:
                part, path, key = tasks.get_nowait()
            except Empty:
                break
            outcome = worker.ask(path, stages_of(part))
            with lock:
                results[part][path.name] = outcome
                out.write(json.dumps({"key": key, "outcome": outcome}) + "\n")
                out.flush()
                print(f"\r{next(finished_count)}/{total} {part:<15}", end="", file=sys.stderr)
        worker.close()

    with store.open("a") as out, ThreadPoolExecutor(jobs) as pool:
        for finished in [pool.submit(run, out) for _ in range(jobs)]:
            finished.result()  # a defect of this script must not pass for a result
    print(file=sys.stderr)
    return results


def _rows(store: Path) -> Iterator[dict[str, object]]:
    if store.exists():
        for line in store.read_text().splitlines():
            try:
                yield json.loads(line)
            except json.JSONDecodeError:  # the run was stopped in the middle of this line
                continue


def score(results: dict[str, dict[str, dict[str, str]]]) -> dict[str, dict[str, dict[str, int]]]:
    """Part -> stage -> how many files are ok, refused, excused, failed."""
    from known import excuse

    board: dict[str, dict[str, dict[str, int]]] = {}
    for part, files in sorted(results.items()):
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for outcome in files.values():
            for stage, answer in outcome.items():
                word = answer.split(":")[0]
                if word != "ok" and excuse(stage, answer):
                    word = "excused"
                counts[stage][word] += 1
        board[part] = {stage: dict(sorted(found.items())) for stage, found in counts.items()}
        board[part]["files"] = {"ok": len(files)}
    return board


def falls(
    old: dict[str, dict[str, dict[str, int]]], new: dict[str, dict[str, dict[str, int]]]
) -> list[str]:
    """Every figure that is lower than it was."""
    return [
        f"{part}.{stage}: {found.get('ok', 0)} -> {new.get(part, {}).get(stage, {}).get('ok', 0)}"
        for part, stages in old.items()
        for stage, found in stages.items()
        if new.get(part, {}).get(stage, {}).get("ok", 0) < found.get("ok", 0)
    ]


def main() -> int:
    """Examine, list failures, compare with the scoreboard, write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--allow-fall", metavar="REASON", help="write lower figures; say why in the commit"
    )
    options = parser.parse_args()
    if options.worker:
        work()
        return 0
    corpus = os.environ.get("HLOOPT_CORPUS")
    if not corpus:
        print("HLOOPT_CORPUS is not set: nothing to examine", file=sys.stderr)
        return 2
    results = examine_all(Path(corpus), options.jobs)
    failures = [
        f"{part}/{name} {stage}: {answer}"
        for part, files in sorted(results.items())
        for name, outcome in sorted(files.items())
        for stage, answer in outcome.items()
        if answer != "ok"
    ]
    (CACHE / "failures.txt").write_text("\n".join(failures) + "\n")
    board = score(results)
    for part, stages in board.items():
        row = "  ".join(f"{stage} {found.get('ok', 0)}" for stage, found in stages.items())
        print(f"{part:<14} {row}")
    old = json.loads(SCOREBOARD.read_text()) if SCOREBOARD.exists() else {}
    lower = falls(old, board)
    if lower and not options.allow_fall:
        print("lower than before, not written:\n  " + "\n  ".join(lower), file=sys.stderr)
        return 1
    temporary = SCOREBOARD.with_suffix(".new")
    temporary.write_text(json.dumps(board, indent=1, sort_keys=True) + "\n")
    temporary.replace(SCOREBOARD)
    print(f"{len(failures)} stages not ok: see .corpus/failures.txt", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
