"""A worker: a child process that answers one JSON line a task, replaced when it hangs or dies."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from tempfile import TemporaryFile
from threading import Lock
from time import monotonic
from typing import Any, Final

from hloopt.workers.records import (
    DEFECT,
    NOT_BEGUN,
    OUT_OF_MEMORY,
    PAUSE,
    RESUME,
    FailureKind,
    NoAnswer,
    WorkerFunction,
)

__all__ = ["Worker", "worker_of"]

_MAIN: Final = "from hloopt.workers.serving import main; main()"

_LAST_SECONDS: Final = 5.0
"""What a child that has closed its output may take until it ends."""

_MOST_SAID = 300  # characters of what a child said last


class Worker:
    """``command`` reads one task a line and answers one line.

    ``time_limit`` is in seconds, None for as long as it takes.  ``greeting`` is the first line of each new
    process.
    """

    def __init__(
        self,
        command: Sequence[str],
        time_limit: float | None,
        environment: Mapping[str, str] | None = None,
        greeting: Any = None,
    ) -> None:
        self.command = tuple(command)
        self.time_limit = time_limit
        self.environment = environment
        self.greeting = greeting
        self._child: subprocess.Popen[bytes] | None = None
        self._content = b""
        self._errors = TemporaryFile()  # noqa: SIM115 - closed with the worker
        self._changing = Lock()
        self._is_stopped = False

    @property
    def pid(self) -> int | None:
        """The number of the process, None where there is none at the moment."""
        child = self._child
        return None if child is None else child.pid

    def ask(self, payload: Any) -> Any:
        """The answer to one task.  Raises ``NoAnswer``; then the next task gets a new process."""
        end = None if self.time_limit is None else monotonic() + self.time_limit
        left: float | None = None
        child, lines = self._running()
        lines += json.dumps(payload).encode() + b"\n"
        try:
            while True:
                line, lines = self._line(child, lines, end)
                if line == PAUSE:
                    left = None if end is None else end - monotonic()
                    end = None
                elif line == RESUME:
                    end = None if left is None else monotonic() + left
                else:
                    return json.loads(line)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """End the process, and all that it has started in its group; the next task gets a new one."""
        with self._changing:
            child, self._child = self._child, None
        if child is None:
            return
        _kill(child)
        child.wait()
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.close()
        child.stdout.close()
        self._content = b""

    def close(self) -> None:
        """End the process for good."""
        self.end()
        self._errors.close()

    def stop(self) -> None:
        """Let what is being asked fail, and all that is asked later; may be called by another thread."""
        with self._changing:
            self._is_stopped = True
            if self._child is not None:
                _kill(self._child)

    def _running(self) -> tuple[subprocess.Popen[bytes], bytes]:
        """The process, and what to send before the next task: the greeting, if the process is new."""
        with self._changing:
            if self._is_stopped:
                raise NoAnswer("the run was stopped")
            self._errors.seek(0)
            self._errors.truncate()
            if self._child is not None:
                return self._child, b""
            self._child = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=self.environment,
                bufsize=0,
                process_group=0,  # Ctrl-C is for the run, not for an answer: that would be kept as a crash
            )
            assert self._child.stdin is not None
            os.set_blocking(self._child.stdin.fileno(), False)
            greeting = b"" if self.greeting is None else json.dumps(self.greeting).encode() + b"\n"
            return self._child, greeting

    def _line(
        self, child: subprocess.Popen[bytes], unsent: bytes, end: float | None
    ) -> tuple[bytes, bytes]:
        """The next line, and what is still to be sent.  Raises ``NoAnswer`` where the process has ended."""
        assert child.stdin is not None
        assert child.stdout is not None
        to, source = child.stdin.fileno(), child.stdout.fileno()
        while b"\n" not in self._content:
            left = None if end is None else max(end - monotonic(), 0.0)
            readable, writable, _ = select.select([source], [to] if unsent else [], [], left)
            if not readable and not writable:
                raise NoAnswer(f"no answer in time ({self.time_limit:g} s)", "timeout")
            if writable:
                try:
                    unsent = unsent[os.write(to, unsent) :]
                except BrokenPipeError:  # what it says, or how it ended, is read next
                    unsent = b""
            if readable:
                part = os.read(source, 1 << 16)
                if not part:
                    raise self._ended(child)
                self._content += part
        line, _, self._content = self._content.partition(b"\n")
        return line, unsent

    def _ended(self, child: subprocess.Popen[bytes]) -> NoAnswer:
        """Why a process gave no answer."""
        try:
            code = child.wait(_LAST_SECONDS)
        except subprocess.TimeoutExpired:
            return NoAnswer("the process closed its output")
        said = f": {found}" if (found := self._said_last()) else ""
        if code == NOT_BEGUN:
            return NoAnswer(self._said_last(), "setup")
        if code == OUT_OF_MEMORY:
            return NoAnswer(f"out of memory{said}", "memory")
        if code == -signal.SIGPROF:
            return NoAnswer("too much processor time", "timeout")
        kind: FailureKind = "defect" if code == DEFECT else "crash"
        died = f"of {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        return NoAnswer(f"the process died {died}{said}", kind)

    def _said_last(self) -> str:
        """The last line on the child's standard error."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        return said[-1][:_MOST_SAID] if said else ""


def worker_of(work: WorkerFunction) -> Worker:
    """A process that does it."""
    command = (sys.executable, "-P", "-c", _MAIN, work.function)
    greeting = {"setup": work.setup, "limits": asdict(work.limits)}
    return Worker(command, work.limits.seconds, greeting=greeting)


def _kill(child: subprocess.Popen[bytes]) -> None:
    if child.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.kill()
