"""Asking cases in processes of their own: what crashes or does not end is an outcome."""

from __future__ import annotations

import os
import pickle
import select
import signal
from collections.abc import Generator, Sequence
from contextlib import suppress
from time import monotonic
from typing import Final, NoReturn

from hloopt.errors import HlooptError
from hloopt.prover.reduction.case import Case
from hloopt.prover.reduction.questions import CaseOutcome, Question
from hloopt.text.parser import parse_module
from hloopt.verifier import verify_module

__all__ = ["asked"]

_GRACE: Final = 5.0
"""Seconds beyond the limit before a process is ended: one that can stops by itself."""
_CAN_FORK: Final = hasattr(os, "fork")


def asked(
    question: Question,
    cases: Sequence[Case],
    seconds: float | None,
    altogether: float | None = None,
) -> Generator[CaseOutcome, None, None]:
    """The outcomes of cases, in their order, all asked at once; the rest is ended when no more are taken.

    ``seconds`` is how long a run may take, of which a question may need several, and ``altogether`` how long
    they all may; without it, twice as long, and what a process needs to stop by itself.
    """
    if altogether is None and seconds is not None:
        altogether = 2 * seconds + _GRACE
    if not (question.apart and _CAN_FORK):
        for case in cases:
            yield question.ask(read_again(case), seconds)
        return
    question.prepare()
    children: list[_Child] = []
    try:
        children.extend(_Child(question, case, seconds, altogether) for case in cases)
        for child in children:
            outcome = child.outcome()
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


class _Child:
    """A process that asks one case.  It has all that this one has, so that the question is written nowhere."""

    def __init__(
        self, question: Question, case: Case, seconds: float | None, altogether: float | None
    ) -> None:
        self._end = None if altogether is None else monotonic() + altogether
        self._seconds = altogether
        self._content = b""
        self._read, write = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._read)
            _answer(write, question, case, seconds)
        os.close(write)

    def outcome(self) -> CaseOutcome:
        """Wait for the outcome."""
        while True:
            left = None if self._end is None else max(self._end - monotonic(), 0.0)
            if not select.select([self._read], [], [], left)[0]:
                return CaseOutcome("timeout", f"more than {self._seconds:g} seconds")
            part = os.read(self._read, 1 << 16)
            if not part:
                break
            self._content += part
        if self._content:
            found: CaseOutcome = pickle.loads(self._content)  # noqa: S301 - our own process wrote it
            return found
        status = self._wait()
        return CaseOutcome("crash", _how(status), code=1)

    def _wait(self) -> int:
        pid, self._pid = self._pid, 0
        return os.waitpid(pid, 0)[1]

    def end(self) -> None:
        """End the process, and all that it has started."""
        if self._pid:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            self._wait()
        if self._read >= 0:
            os.close(self._read)
            self._read = -1


def _how(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"ended with exit code {os.WEXITSTATUS(status)}"


def _answer(write: int, question: Question, case: Case, seconds: float | None) -> NoReturn:
    """What the new process does; it never returns to what the old one was doing."""
    code = 0
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        try:
            outcome = question.ask(read_again(case), seconds)
        except HlooptError as error:
            outcome = CaseOutcome("refused", str(error), code=error.exit_code)
        except MemoryError:
            outcome = CaseOutcome("refused", "out of memory", code=4)
        content = pickle.dumps(outcome)
        while content:
            content = content[os.write(write, content) :]
    except BaseException:  # noqa: BLE001 - the old process is told by the missing answer
        code = 70
    finally:
        os._exit(code)
