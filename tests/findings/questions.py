"""Are questions answered by one command?  ``python -m tests.findings.questions``: a line each, and the count.

``questions.toml`` beside this file has the commands and what their output has to name; the modules are in
``$HLOOPT_CORPUS/questions``.  ``yes`` is an output, within ``LIMIT`` processor seconds, that names all of it, ``partly``
one that names some of it, and what is missing is printed.  A question that ``needs`` XLA is left out where
``HLOOPT_XLA_PYTHON`` names no Python that has it.  ``--only TEXT`` chooses by the command, ``--least PERCENT`` makes a
smaller share of ``yes`` an exit code of 1.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shlex
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LIMIT = 60
GIVEN_UP = 10 * LIMIT
"""Seconds of the clock, since other work on the machine takes its part."""
TABLE = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True)
class Question:
    """What was asked, the command, and the expressions that its output has to match."""

    asked: str
    command: str
    names: tuple[str, ...]
    needs: str = ""

    def missing(self, output: str) -> list[str]:
        """What the output does not name."""
        text = " ".join(output.split())
        return [name for name in self.names if not re.search(name, text)]


@dataclass(frozen=True)
class Answer:
    """The verdict on a question's output: ``yes``, ``partly`` or ``no``, with what is missing, and the processor's seconds."""

    question: Question
    verdict: str
    missing: tuple[str, ...]
    seconds: float


def read_questions(path: Path = TABLE) -> list[Question]:
    """The table of questions."""
    rows = tomllib.loads(path.read_text())["question"]
    return [Question(**{**row, "names": tuple(row["names"])}) for row in rows]


def judged(question: Question, output: str, seconds: float, *, timed_out: bool = False) -> Answer:
    """The verdict on what a command printed; nothing is right that took longer than ``LIMIT``."""
    missing = ["an answer in time"] if timed_out else question.missing(output)
    some = not timed_out and len(missing) < len(question.names)
    verdict = "yes" if not missing else "partly" if some else "no"
    return Answer(question, verdict, tuple(missing), seconds)


def spent() -> float:
    """The processor's seconds of all processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def ask(question: Question, folder: Path) -> Answer:
    """Run the command in the folder of the modules, in a terminal of 80 columns."""
    begin = spent()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "hloopt", *shlex.split(question.command)],
            cwd=folder,
            env={**os.environ, "COLUMNS": "80"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=GIVEN_UP,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return judged(question, "", spent() - begin, timed_out=True)
    seconds = spent() - begin
    return judged(question, done.stdout, seconds, timed_out=seconds > LIMIT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask all questions; 1 where fewer than ``--least`` per cent are answered."""
    parser = argparse.ArgumentParser(description="Are questions answered by one command?")
    parser.add_argument("--only", default="", help="questions whose command contains this")
    parser.add_argument("--least", type=float, default=0.0, help="per cent that must be yes")
    options = parser.parse_args(arguments)
    corpus = os.environ.get("HLOOPT_CORPUS")
    if not corpus:
        parser.error("HLOOPT_CORPUS names no folder")
    counts: Counter[str] = Counter()
    for question in read_questions():
        if options.only not in question.command:
            continue
        if question.needs == "xla" and "HLOOPT_XLA_PYTHON" not in os.environ:
            print(f"left out, HLOOPT_XLA_PYTHON is not set: {question.command}")
            continue
        answer = ask(question, Path(corpus) / "questions")
        counts[answer.verdict] += 1
        missing = f"; missing: {', '.join(answer.missing)}" if answer.missing else ""
        print(
            f"{answer.verdict:<7}{answer.seconds:5.1f} s  {question.command}{missing}", flush=True
        )
    asked = counts.total()
    print(f"yes {counts['yes']}, partly {counts['partly']}, no {counts['no']} of {asked}")
    return int(not asked or 100 * counts["yes"] < options.least * asked)


if __name__ == "__main__":
    raise SystemExit(main())
