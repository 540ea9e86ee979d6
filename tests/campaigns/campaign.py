"""Campaigns: random modules, mutated texts and random pipelines, until many in a row break nothing.

    campaign.py NAME                 go on until 10,000 cases were executed and the last 2,000 of them found nothing
    campaign.py NAME --count N       judge N cases more
    campaign.py NAME --index N       print a case
    campaign.py NAME --judge N       judge one here, with the traceback of what it breaks

NAME is random, mutations or pipelines.  A case follows from its number, so that a run goes on where the last one
ended: ``tests/campaigns.json`` has the number of the next case, counts by outcome, and what was found and is not mended
(a run begins by asking those again).  What breaks is written to ``.corpus/findings/NAME-N/``.  Cases are judged in child
processes: one that hangs or dies costs one case.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Generator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from hloopt.workers.pool import answers
from hloopt.workers.process import Worker
from hloopt.workers.records import TaskAnswer, WorkerLimits, WorkerTask
from hloopt.workers.serving import serve

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

BOARD = HERE.parent / "campaigns.json"
FINDINGS = ROOT / ".corpus" / "findings"
NAMES = ("random", "mutations", "pipelines")
EXECUTED, IN_A_ROW = 10_000, 2_000
BLOCK = 50  # cases between two writings of the scoreboard
SECONDS = 60  # of processor time that a case may take
WAIT = 300.0
MEMORY = 8 << 30
Row = dict[str, Any]


def empty() -> Row:
    """The row of a campaign that nobody ran."""
    return {"next": 0, "executed": 0, "in_a_row": 0, "outcomes": {}, "opcodes": {}, "findings": {}}


def add(row: Row, index: int, answer: Row) -> None:
    """Count an answer."""
    outcomes, word = row["outcomes"], answer["outcome"].split(":")[0]
    outcomes[word] = outcomes.get(word, 0) + 1
    row["next"] = max(row["next"], index + 1)
    if word == "failed":
        row["findings"][str(index)] = answer["outcome"]
        row["in_a_row"] = 0
    elif answer["opcodes"]:
        row["executed"] += 1
        row["in_a_row"] += 1
        for opcode in answer["opcodes"]:
            row["opcodes"][opcode] = row["opcodes"].get(opcode, 0) + 1


def asked_again(row: Row, index: int, answer: Row) -> None:
    """A finding that was asked again: it stays, or is mended."""
    if answer["outcome"].startswith("failed"):
        row["findings"][str(index)] = answer["outcome"]
    else:
        del row["findings"][str(index)]


def is_done(row: Row) -> bool:
    """Whether enough was executed, and enough of it in a row without a finding."""
    return bool(row["executed"] >= EXECUTED and row["in_a_row"] >= IN_A_ROW)


def summary(name: str, row: Row) -> str:
    """A line for people."""
    from hloopt.ops import OPS

    missing = sorted(OPS.keys() - row["opcodes"].keys())
    covered = f"{len(OPS) - len(missing)} of {len(OPS)} opcodes"
    return (
        f"{name}: {row['next']} cases, {row['executed']} executed, {row['in_a_row']} in a row without a finding, "
        f"{covered}{' (not ' + ', '.join(missing[:5]) + ')' if missing else ''}, {len(row['findings'])} findings"
    )


# ---- the child ----------------------------------------------------------------------------------------------


def judged(name: str, index: int) -> Row:
    """The answer to a case; what it raises is ``failed``, with the innermost place in hloopt."""
    from tests.campaigns.campaign_checks import CAMPAIGNS

    try:
        answer = CAMPAIGNS[name].judge(index)
    except Exception as error:  # noqa: BLE001 - a crash is what this looks for
        what = f"failed: {_place(error)}{type(error).__name__}: {str(error)[:500]}"
        return {"outcome": what, "opcodes": []}
    return {"outcome": answer.outcome, "opcodes": sorted(answer.opcodes)}


def _place(error: BaseException) -> str:
    places = [
        f"{Path(frame.filename).relative_to(ROOT)}:{frame.lineno}: "
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(ROOT / "hloopt")
    ]
    return places[-1] if places else ""


def work(name: str) -> None:
    """The child: a number a line in, an answer a line out."""
    serve(partial(judged, name), WorkerLimits(memory=MEMORY, processor=SECONDS))


# ---- the run ------------------------------------------------------------------------------------------------


def worker(name: str) -> Worker:
    """A child."""
    command = (sys.executable, "-m", "tests.campaigns.campaign", name, "--worker")
    cache = {"HLOOPT_CACHE_DIR": str(ROOT / ".corpus" / "compiled")}
    return Worker(command, WAIT, os.environ | cache)


def answered(
    name: str, indices: Sequence[int], workers: int
) -> Generator[tuple[int, Row], None, None]:
    """The answers to cases, in their order, whoever answers first."""
    tasks = [WorkerTask(str(index), index) for index in indices]
    early: dict[int, TaskAnswer] = {}
    wanted = iter(indices)
    next_index = next(wanted, None)
    with closing(answers(tasks, partial(worker, name), workers)) as found:
        for answer in found:
            early[answer.task.payload] = answer
            while next_index in early:
                yield next_index, _row(early.pop(next_index))
                next_index = next(wanted, None)


def _row(answer: TaskAnswer) -> Row:
    if answer.failure is not None:
        return {"outcome": f"failed: {answer.failure}", "opcodes": []}
    return dict(answer.value)


def keep_finding(name: str, index: int, what: str) -> None:
    """Write down the case and what it breaks."""
    from tests.campaigns.campaign_checks import CAMPAIGNS

    folder = FINDINGS / f"{name}-{index}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "what.txt").write_text(what + "\n", errors="backslashreplace")
    text = CAMPAIGNS[name].text(index)
    (folder / "case.hlo").write_bytes(text.encode("utf-8", "surrogatepass"))


def run(name: str, count: int | None, workers: int, board: Path = BOARD) -> Row:
    """Ask findings again, then go on; the scoreboard is written after each block."""
    whole = json.loads(board.read_text()) if board.exists() else {}
    row: Row = empty() | whole.get(name, {})
    for index, answer in answered(name, list(map(int, row["findings"])), workers):
        asked_again(row, index, answer)
    last = None if count is None else row["next"] + count
    while (not is_done(row)) if last is None else row["next"] < last:
        stop = row["next"] + IN_A_ROW if last is None else last
        with closing(answered(name, range(row["next"], stop), workers)) as found:
            for index, answer in found:
                add(row, index, answer)
                if answer["outcome"].startswith("failed"):
                    keep_finding(name, index, answer["outcome"])
                    print(f"\n{name} {index}: {answer['outcome']!a}", file=sys.stderr)
                if row["next"] % BLOCK == 0:
                    write(board, name, row)
                    print(f"\r{summary(name, row)}", end="", file=sys.stderr)
                    if last is None and is_done(row):
                        break
    write(board, name, row)
    print(file=sys.stderr)
    return row


def write(board: Path, name: str, row: Row) -> None:
    """The scoreboard with this row in it, written at once."""
    whole = json.loads(board.read_text()) if board.exists() else {}
    whole[name] = row | {key: dict(sorted(row[key].items())) for key in ("outcomes", "opcodes")}
    made = board.with_suffix(".new")
    made.write_text(json.dumps(whole, indent=1, sort_keys=True) + "\n")
    made.replace(board)


def main() -> int:
    """Print, judge, or run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--index", type=int, metavar="N")
    parser.add_argument("--judge", type=int, metavar="N")
    parser.add_argument("--count", type=int, metavar="N")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.name)
        return 0
    from tests.campaigns.campaign_checks import CAMPAIGNS

    campaign = CAMPAIGNS[options.name]
    if options.index is not None:
        sys.stdout.buffer.write(campaign.text(options.index).encode("utf-8", "surrogatepass"))
        return 0
    if options.judge is not None:
        print(campaign.judge(options.judge).outcome)
        return 0
    row = run(options.name, options.count, options.workers)
    print(summary(options.name, row))
    for index, what in row["findings"].items():
        print(f"{index}: {what}")
    return 1 if row["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
