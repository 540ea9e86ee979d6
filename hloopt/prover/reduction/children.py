"""Asking cases in processes of their own: what crashes or does not end is an outcome."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from typing import Final

from hloopt.errors import EvaluationError, HlooptError
from hloopt.prover.processes import CAN_FORK, ChildProcess, StoppedWork
from hloopt.prover.reduction.case import Case
from hloopt.prover.reduction.questions import CaseOutcome, Question
from hloopt.text.parser import parse_module
from hloopt.verifier import verify_module

__all__ = ["asked"]

_GRACE: Final = 5.0
"""Seconds beyond the limit before a process is ended: one that can stops by itself."""


def asked(
    question: Question,
    cases: Sequence[Case],
    seconds: float | None,
    altogether: float | None = None,
    *,
    as_read: bool = False,
) -> Generator[CaseOutcome, None, None]:
    """The outcomes of cases, in their order, all asked at once; the rest is ended when no more are taken.

    ``seconds`` is how long a run may take, of which a question may need several, and ``altogether`` how long
    they all may; without it, twice as long, and what a process needs to stop by itself.  Cases are read again
    from their texts, but those that are ``as_read``: errors name the lines of the user's file then.
    """
    if altogether is None and seconds is not None:
        altogether = 2 * seconds + _GRACE
    if not (question.apart and CAN_FORK):
        for case in cases:
            yield question.ask(case if as_read else read_again(case), seconds)
        return
    question.prepare()
    children: list[ChildProcess[CaseOutcome]] = []
    try:
        children.extend(
            ChildProcess(partial(_outcome, question, case, seconds, as_read), altogether)
            for case in cases
        )
        for child in children:
            outcome = child.answer()
            if isinstance(outcome, StoppedWork):
                outcome = CaseOutcome(outcome.kind, outcome.reason)
            if outcome.kind == "timeout":
                # What the process had asked of another one is still being worked on.
                question.close()
            yield outcome
    finally:
        for child in children:
            child.end()


def read_again(case: Case) -> Case:
    """The case as its text says it, which is what will be written.

    Raises ``ParseError`` or ``VerifyError`` where that is not valid.
    """
    module = parse_module(case.text, case.module.name)
    verify_module(module)
    return Case(module, case.inputs, case.kept)


def _outcome(question: Question, case: Case, seconds: float | None, as_read: bool) -> CaseOutcome:
    """What a new process answers; what else it raises is a crash."""
    try:
        return question.ask(case if as_read else read_again(case), seconds)
    except HlooptError as error:
        return CaseOutcome("refused", error.message, error=error)
    except MemoryError:
        return CaseOutcome("refused", "out of memory", error=EvaluationError("out of memory"))
