"""Everything against the corpus: ``make corpus``.

Results are kept per file under ``.corpus/`` and reused while neither the file, its record nor the package
changed, so that a run can be stopped and resumed.  Each file is examined in a child process with a time limit: a hang
or a crash costs one file.  What we print is read by XLA where HLOOPT_XLA_PYTHON names a Python that has jaxlib, or
this one has; where there is none, the run says so, and the figures of those stages are those of the last run.
Damaged texts follow (``fuzz.py``).  Ends by writing ``tests/scoreboard.json``, whose figures may only rise.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter, defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from hloopt.workers.pool import answers
from hloopt.workers.process import Worker
from hloopt.workers.records import NoAnswer, WorkerTask
from hloopt.workers.row_file import RowFile
from hloopt.workers.serving import serve
from tests.corpus import (
    beside,
    fusion_stages,
    fuzz,
    memory,
)
from tests.corpus.compiled import compiled
from tests.corpus.parts import (
    COMPILED,
    EMULATED,
    NATIVE,
    XLA_STAGES,
    Task,
    emulated_tasks,
    native_tasks,
    tasks,
)
from tests.corpus.reread import reread, xla_worker
from tests.corpus.stages import GOLDEN_STAGES
from tests.corpus.store import digest
from tests.oracle.oracle import available

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

CACHE = ROOT / ".corpus"
SCOREBOARD = HERE.parent / "scoreboard.json"
TIME_LIMIT = 300.0  # seconds a file may take
TEST_LIMIT = 120.0  # ... and one of XLA's own tests, of which there are thousands
Board = dict[str, dict[str, dict[str, int]]]


def package_key() -> str:
    """A hash of everything a result depends on beside the file itself.

    The rules of ``known.py`` are not part of it: they are held against results, they do not make them.
    """
    sources = [
        path
        for folder in ("hloopt", "grammar")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".py", ".lark", ".toml", ".cu", ".h", ".cpp")
    ]
    own = [
        HERE / f"{name}.py"
        for name in (
            "beside", "compiled", "emulated", "explanations", "fusion_beside", "fusion_stages", "fusion_times",
            "judge", "loop_stages", "memory", "native_stages", "records", "reread", "stages",
        )
    ]  # fmt: skip
    shared = [HERE.parent / "helpers" / f"{name}.py" for name in ("graphs", "support")]
    return digest([*sources, *own, *shared, HERE.parent / "oracle" / "xla_child.py"])


def file_key(task: Task) -> str:
    """A hash of a file, of what is recorded beside it, and of what is asked."""
    stem = task.path.with_name(task.path.name.split(".")[0])
    golden = stem.parent.parent / "golden" / stem.name
    beside = [one.with_name(one.name + end) for one in (stem, golden) for end in (".npz", ".json")]
    found = [task.path, *(one for one in beside if one.exists()), *task.others]
    return digest(found, " ".join(task.stages))


def work() -> None:
    """The child: read ``{"path", "stages", "printed", "emitted"}`` lines, answer one outcome a line."""
    from tests.corpus.stages import examine

    def outcome(task: dict[str, Any]) -> dict[str, str]:
        printed = Path(task["printed"]) if task["printed"] else None
        emitted = Path(task["emitted"]) if task["emitted"] else None
        return examine(Path(task["path"]), tuple(task["stages"]), printed, emitted)

    serve(outcome)


class Examiner:
    """Puts files through their stages, in processes of their own."""

    def __init__(self, folder: Path) -> None:
        command = (sys.executable, "-m", "tests.corpus.score", "--worker")
        # Thousands of programs that nobody runs again but the next of these runs.
        cache = {"HLOOPT_CACHE_DIR": str(CACHE / "compiled")}
        self.hloopt = Worker(command, TIME_LIMIT, os.environ | cache)
        self.xla = xla_worker()
        self.printed = folder / "printed.hlo"
        self.emitted = folder / "emitted.hlo"

    def ask(self, task: Task) -> dict[str, str]:
        """The outcome, which names what went wrong: no task is without one."""
        return self.outcome(task)

    def outcome(self, task: Task) -> dict[str, str]:
        """Stage -> what came of it."""
        asks_xla = XLA_STAGES[0] in task.stages
        question = {
            "path": str(task.path),
            "stages": task.stages,
            "printed": str(self.printed) if asks_xla else "",
            "emitted": str(self.emitted) if COMPILED in task.stages else "",
        }
        is_test = task.stages == GOLDEN_STAGES or task.part.startswith(f"{NATIVE}xla-")
        self.hloopt.time_limit = TEST_LIMIT if is_test else TIME_LIMIT
        for written in (self.printed, self.emitted):
            written.unlink(missing_ok=True)
        try:
            outcome = dict(self.hloopt.ask(question))
        except NoAnswer as reason:
            return {task.stages[0]: f"failed: {reason}"}
        if self.printed.exists():
            outcome |= reread(self.xla, task.path, self.printed)
        if self.emitted.exists():
            outcome |= compiled(task.path, self.emitted)
        if "memory" in task.stages:
            outcome["memory"] = memory.outcome(task.path)
        if task.said and outcome.get("refused", "ok") != "ok":
            outcome["refused"] += f"; XLA says: {task.said}"
        return outcome

    def stop(self) -> None:
        """Let what is being examined fail."""
        self.hloopt.stop()
        self.xla.stop()

    def close(self) -> None:
        """End the processes."""
        self.hloopt.close()
        self.xla.close()


def belongs(part: str, only: str) -> bool:
    """Whether a part is the one asked for, or of its kind: ``fusion`` is all that begin with ``fusion.``."""
    return only in ("", part) or part.startswith(f"{only}.")


def examine_all(
    wanted: list[Task], workers: int, only: str = ""
) -> dict[str, dict[str, dict[str, str]]]:
    """Part -> file name -> outcome of what is wanted, from the cache where it is still true; ``only`` as ``belongs`` has it."""
    CACHE.mkdir(exist_ok=True)
    results: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
    with (
        RowFile(CACHE / f"{package_key()}.jsonl", "outcomes of files", {}) as file,
        TemporaryDirectory() as folder,
    ):
        tasks: list[WorkerTask] = []
        for task in wanted:
            if not belongs(task.part, only):
                continue
            key = file_key(task)
            if key in file.rows:
                results[task.part][task.name] = file.rows[key]
            else:
                tasks.append(WorkerTask(key, task))
        made = answers(tasks, lambda: Examiner(Path(mkdtemp(dir=folder))), workers)
        for number, answer in enumerate(made, 1):
            task = answer.task.payload
            results[task.part][task.name] = answer.value
            file.add(answer.task.key, answer.value)
            print(f"\r{number}/{len(tasks)} {task.part:<20}", end="", file=sys.stderr)
    print(file=sys.stderr)
    return results


def score(results: dict[str, dict[str, dict[str, str]]]) -> Board:
    """Part -> stage -> how many files are ok, refused, excused, failed.

    ``memory`` has the ``most`` as well: times a file's size, rounded up; what is compared with XLA's work the
    geometric mean in ``percent``.  Stages whose answers count have sums (``fusion_stages.sums``).
    """
    from tests.corpus.known import excuse

    board: Board = {}
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
        for stage, found in board[part].items():
            found |= fusion_stages.sums(outcome.get(stage, "") for outcome in files.values())
        times = [outcome["memory"] for outcome in files.values() if "memory" in outcome]
        if times:
            board[part]["memory"] |= {"most": max(map(memory.times, times))}
        for figure in beside.FIGURES:
            rows = [outcome[figure] for outcome in files.values() if figure in outcome]
            if rows:
                mean = beside.geometric_mean(float(row.split()[1]) for row in rows)
                board[part][figure] |= {"percent": round(100 * mean)}
    return board


def damaged(found: dict[str, Any]) -> dict[str, dict[str, int]]:
    """The row of the scoreboard for the damaged texts."""
    counts = found["counts"]
    failed = counts.get("failed", 0)
    answered = {"failed": failed} if failed else {}
    total = sum(counts.values())
    how = {word: {"count": number} for word, number in counts.items() if word != "failed"}
    return {"files": {"ok": total}, "answered": {"ok": total - failed, **answered}, **how}


def falls(old: Board, new: Board) -> list[str]:
    """Every figure that is lower than it was, and every one beside XLA's that is higher."""
    lines = []
    for part, stages in old.items():
        for stage, before in stages.items():
            now = new.get(part, {}).get(stage, {})
            if now.get("ok", 0) < before.get("ok", 0):
                lines.append(f"{part}.{stage}: {before.get('ok', 0)} -> {now.get('ok', 0)}")
            if fusion_stages.rises(before, now):
                lines.append(f"{part}.{stage} beside XLA's: {_figure(before)} -> {_figure(now)}")
    return lines


def told(stages: dict[str, dict[str, int]]) -> str:
    """The line of a part, its stages in their order."""
    return "  ".join(
        f"{stage} {_figure(found)}" for stage, found in stages.items() if "ok" in found
    )


def _figure(found: dict[str, int]) -> str:
    """``7``, ``7/9`` of those counted, and ``7 (80 to 81)`` with ours and theirs."""
    text = str(found.get("ok", 0))
    if "of" in found:
        text += f"/{found['of']}"
    return f"{text} ({found['ours']} to {found['theirs']})" if "ours" in found else text


def _examined(part: str, options: argparse.Namespace) -> bool:
    """Whether this command examines a part: the other commands' figures, and other parts', stay as they are."""
    if options.part and not belongs(part, options.part):
        return False
    kind = next((one for one in (EMULATED, NATIVE) if part.startswith(one)), "")
    return kind == options.kind


def _excused(failure: str) -> str:
    """The reason for which a line of the failures is let off."""
    from tests.corpus.known import excuse

    place, _, answer = failure.partition(": ")
    return excuse(place.rpartition(" ")[2], answer)


def not_asked(old: Board, new: Board) -> Board:
    """``new`` with the figures that only XLA can give, as they were."""
    kept = {
        part: {stage: found for stage, found in stages.items() if stage in XLA_STAGES}
        for part, stages in old.items()
    }
    return {part: {**kept.get(part, {}), **stages} for part, stages in new.items()}


def main() -> int:
    """Examine, list failures, compare with the scoreboard, write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--part", default="", help="examine one part, or all that begin with PART and a dot"
    )
    parser.add_argument("--write", action="store_true", help="with --part: write its figures")
    kinds = parser.add_mutually_exclusive_group()
    for word, kind, told_of in (
        ("--emulated", EMULATED, "kernels on the emulator"),
        ("--native", NATIVE, "what is compiled for this processor"),
    ):
        what = f"examine {told_of}, nothing else"
        kinds.add_argument(
            word, dest="kind", action="store_const", const=kind, default="", help=what
        )
    parser.add_argument(
        "--allow-fall", metavar="REASON", help="write lower figures; say why in the commit"
    )
    options = parser.parse_args()
    if options.write and not options.part:
        parser.error("--write is for --part: without it everything is written")
    if options.worker:
        work()
        return 0
    corpus = os.environ.get("HLOOPT_CORPUS")
    if not corpus:
        print("HLOOPT_CORPUS is not set: nothing to examine", file=sys.stderr)
        return 2
    xla = available() and not options.kind
    if not xla and not options.kind:
        print(
            "no jaxlib (HLOOPT_XLA_PYTHON): XLA is not asked to read what we print", file=sys.stderr
        )
    of_kind = {EMULATED: emulated_tasks, NATIVE: native_tasks}
    wanted = of_kind[options.kind](Path(corpus)) if options.kind else tasks(Path(corpus), xla)
    results = examine_all(wanted, options.workers, options.part)
    damaged_count = 0 if options.part or options.kind else fuzz.COUNT
    broken = fuzz.fuzz(package_key(), damaged_count, workers=options.workers)
    failures = [
        f"{part}/{name} {stage}: {answer}"
        for part, files in sorted(results.items())
        for name, outcome in sorted(files.items())
        for stage, answer in outcome.items()
        if answer.split(":")[0] not in ("ok", "told")
    ]
    failures += [f"damaged text {index}: {what}" for index, what in broken["broken"].items()]
    failures.sort(key=lambda line: bool(_excused(line)))
    (CACHE / "failures.txt").write_text("\n".join(failures) + "\n")
    board = score(results)
    if damaged_count:
        board["damaged"] = damaged(broken)
    for part, stages in board.items():
        print(f"{part:<18} {told(stages)}")
    if options.part:
        print("\n".join(line for line in failures if not _excused(line)))
        if not options.write:
            return 0
    old = json.loads(SCOREBOARD.read_text()) if SCOREBOARD.exists() else {}
    board |= {part: row for part, row in old.items() if not _examined(part, options)}
    if not xla:
        board = not_asked(old, board)
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
