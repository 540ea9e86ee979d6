"""A child process that answers one JSON line a task, replaced when it hangs or dies."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from contextlib import suppress
from typing import Any

__all__ = ["NoAnswer", "Worker"]


class NoAnswer(Exception):  # noqa: N818 - an outcome of the thing examined, no error of this script
    """The child hung, or died before it answered."""


class Worker:
    """``command`` reads one task a line and answers one line; ``time_limit`` is in seconds."""

    def __init__(
        self, command: tuple[str, ...], time_limit: float, environment: dict[str, str] | None = None
    ) -> None:
        self.command = command
        self.time_limit = time_limit
        self.environment = environment
        self.child: subprocess.Popen[str] | None = None

    def ask(self, task: Any) -> Any:
        """The answer to one task; raises ``NoAnswer``, and the next task gets a new process."""
        child = (
            self.child
            or subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=self.environment,
                process_group=0,  # Ctrl-C is for the run, not for an answer: that would be kept as a crash
            )
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
            child.stdin.write(json.dumps(task) + "\n")
            child.stdin.flush()
            answer = child.stdout.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            alarm.cancel()
        if answer.endswith("\n"):  # half a line is what a child leaves that dies while it answers
            return json.loads(answer)
        if not hung.is_set():
            child.wait()
        code = child.returncode
        self.close()
        if hung.is_set():
            raise NoAnswer("no answer in time")
        if code == -signal.SIGPROF:  # what a child sets to end itself, see fuzz.py
            raise NoAnswer("too much processor time")
        died = f" of {signal.Signals(-code).name}" if code < 0 else f" with exit code {code}"
        raise NoAnswer(f"the process died{died}")

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
