"""What a search asks of a module: are its results still right, or does a command of the user's accept it?"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import field
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.errors import HlooptError, UnsupportedError, UsageError, VerifyError
from hloopt.ir import Module
from hloopt.ir.canonical import fingerprint
from hloopt.prover.bisection import NamedComparison, SearchOutcome, different_results
from hloopt.prover.comparing import check_alike, compare_runs
from hloopt.prover.executor import Executor, Run
from hloopt.prover.explained import Explained, explained
from hloopt.prover.trials import TrialInputs
from hloopt.runtime.tolerance import FREE, Tolerance
from hloopt.verifier import verify_module

__all__ = ["OUTCOMES", "CheckedModule", "CommandCheck", "ModuleCheck", "ResultCheck", "verified"]

CheckOutcome: TypeAlias = Literal["good", "bad", "skipped"]


OUTCOMES: Final[dict[str, SearchOutcome]] = {"good": "passes", "bad": "fails", "skipped": "skipped"}
"""How records call what a check found."""


@dataclass(frozen=True)
class CheckedModule:
    """What was found out about a module: it is good, bad, or cannot be told; ``reason`` is a sentence.

    ``results`` are those that differ, the worst element of each.
    """

    outcome: CheckOutcome = "good"
    reason: str = ""
    results: tuple[NamedComparison, ...] = ()


class ModuleCheck(Protocol):
    """A question that has one answer for a module, however often it is asked."""

    def __call__(self, module: Module) -> CheckedModule:
        """Ask it of a module, which stays as it is."""


def verified(module: Module) -> CheckedModule:
    """Bad where a module is not valid."""
    try:
        verify_module(module)
    except VerifyError as error:
        return CheckedModule("bad", f"the module is not valid any more: {error.message}")
    return CheckedModule()


@dataclass
class ResultCheck:
    """Whether a module computes what ``given`` does, on the inputs of each trial.

    A module that is not valid, takes or gives something else, or fails to run is bad; one that the executor
    does not support is skipped.  Equal modules are run once.

    Raises what ``Executor.run`` raises for the given module.
    """

    given: Module
    executor: Executor
    trials: Sequence[TrialInputs]
    tolerance: Tolerance = FREE
    wanted: list[Run] = field(init=False)
    known: dict[str, CheckedModule] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.wanted = [self.executor.run(self.given, inputs) for inputs in self.trials]
        self.known[fingerprint(self.given)] = CheckedModule()

    def __call__(self, module: Module) -> CheckedModule:
        """Run a module and compare, unless an equal one was."""
        found = verified(module)
        if found.outcome == "bad":
            return found
        mark = fingerprint(module)
        if mark not in self.known:
            self.known[mark] = self._compared(module)
        return self.known[mark]

    def explained(self, before: Module, after: Module) -> Explained:
        """Where a module begins to differ from the one that a rewrite made it of.

        An error of running them is the note.
        """
        for inputs in self.trials:
            try:
                one, other = (self.executor.run(module, inputs) for module in (before, after))
            except HlooptError as error:
                return Explained(note=f"the first value was not found: {error.message}")
            excess = self.executor.excess_precision
            found = compare_runs(
                one, other, inputs, tolerance=self.tolerance, excess_precision=excess
            )
            if not found.equal:
                return explained(
                    one, other, inputs, found, tolerance=self.tolerance, excess_precision=excess
                )
        return Explained()

    def _compared(self, module: Module) -> CheckedModule:
        try:
            check_alike(self.given, module, ("the module as given", "the module now"))
        except UsageError as error:
            return CheckedModule("bad", error.message)
        for want, inputs in zip(self.wanted, self.trials, strict=True):
            try:
                got = self.executor.run(module, inputs)
            except UnsupportedError as error:
                return CheckedModule("skipped", f"cannot be run: {error.message}")
            except HlooptError as error:
                return CheckedModule("bad", f"fails when it is run: {error.message}")
            found = compare_runs(
                want,
                got,
                inputs,
                tolerance=self.tolerance,
                excess_precision=self.executor.excess_precision,
            )
            if not found.equal:
                results = different_results(want, found)
                return CheckedModule("bad", f"other results ({inputs.origin})", results)
        return CheckedModule()


_SKIP: Final = 125
_MOST_BAD: Final = 127
_TAIL: Final = 2048  # bytes of a command's output in which its last line is looked for


@dataclass
class CommandCheck:
    """Whether a command accepts a module, as ``git bisect run`` asks one.

    command  a line for the shell; ``{}`` in it is the path of the module's text, which otherwise follows it
    seconds  how long it may take; one that takes longer is stopped with all it started, and means bad

    The exit code 0 means good, 125 that it cannot be told, any other up to 127 bad; those above, a signal
    among them, end the search with ``UsageError``.  The command runs once for equal texts.
    """

    command: str
    seconds: float | None = None
    runs: int = 0
    known: dict[str, CheckedModule] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.command.strip():
            raise UsageError("--check needs a command")

    def __call__(self, module: Module) -> CheckedModule:
        """Write a module's text to a file and run the command on it."""
        text = module.to_text()
        digest = sha256(text.encode()).hexdigest()
        if digest not in self.known:
            self.known[digest] = self.ask(text, module.name)
        return self.known[digest]

    def ask(self, text: str, name: str) -> CheckedModule:
        """Run the command on a text, whatever it said before."""
        with tempfile.TemporaryDirectory(prefix="hloopt-check-") as folder:
            path = Path(folder, re.sub(r"[^\w.-]", "_", name)[:64] + ".hlo")
            path.write_text(text)
            return self.ask_about(path)

    def ask_about(self, path: Path) -> CheckedModule:
        """Run the command on a file that is there."""
        self.runs += 1
        quoted = shlex.quote(str(path))
        line = self.command
        line = line.replace("{}", quoted) if "{}" in line else f"{line} {quoted}"
        with tempfile.TemporaryFile() as output:
            code = self._run(line, output.fileno())
            size = output.seek(0, os.SEEK_END)
            output.seek(max(0, size - _TAIL))
            lines = output.read().decode(errors="replace").strip().splitlines()
        said = f": {lines[-1].strip()}" if lines else ""
        if code is None:
            return CheckedModule("bad", f"the check took longer than {self.seconds:g} seconds")
        if code == 0:
            return CheckedModule()
        if code == _SKIP:
            return CheckedModule("skipped", f"the check exits with {_SKIP}{said}")
        if 0 < code <= _MOST_BAD:
            return CheckedModule("bad", f"the check exits with {code}{said}")
        raise UsageError(
            f"the check {_ended(code)}{said}; that stops the search: end the command with '|| exit 1' where it "
            "means that the module is bad"
        )

    def _run(self, line: str, output: int) -> int | None:
        """The exit code of a command, None where it took too long."""
        with subprocess.Popen(
            ["/bin/sh", "-c", line],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        ) as child:
            try:
                return child.wait(self.seconds)
            except BaseException as error:
                # Its own children as well: it leads a process group.
                os.killpg(child.pid, signal.SIGKILL)
                if isinstance(error, subprocess.TimeoutExpired):
                    return None
                raise


def _ended(code: int) -> str:
    number = -code if code < 0 else code - 128
    names = {one.value: one.name for one in signal.Signals}
    if number in names:
        return f"was ended by {names[number]}"
    return f"exits with {code}"
