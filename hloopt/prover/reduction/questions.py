"""What came of a case: results that differ, a failure, or what a command says of it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from math import inf, isinf
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.errors import EvaluationError, HlooptError, UsageError
from hloopt.ir import Module, build
from hloopt.prover.comparing import check_alike
from hloopt.prover.executor import Executor, Run
from hloopt.prover.reduction.case import Case
from hloopt.prover.trials import TrialInputs
from hloopt.runtime.inputs import npz
from hloopt.runtime.judge import Judge, named
from hloopt.runtime.tolerance import FREE, Tolerance
from hloopt.runtime.xla import XlaServer
from hloopt.types import Array

__all__ = ["Asked", "CaseOutcome", "CommandQuestion", "Differs", "Question", "arrays_by_name"]

MARGIN: Final = 8.0
"""So many times what rounding allows is the worst element of a smaller case off, or as that of the first."""

Change: TypeAlias = Callable[[Module], object]
"""Changes a module in place: a pipeline."""

_VARYING: Final = re.compile(r"'[^']*'|%\S+|\S*[\d\[\]{}]\S*")


@dataclass(frozen=True)
class CaseOutcome:
    """What came of running a case.

    kind     ``equal``, ``differs``, ``not finite`` (one side has NaN or infinity where the other has a number),
             ``pass fails``, ``run fails``, ``crash``, ``timeout``, ``refused`` (the module as given does not
             run), ``yes`` and ``no``
    text     what exactly: a message, the verdict on an output
    share    of results that differ: how many times what rounding allows the worst element is off
    error    why the module as given does not run
    """

    kind: str
    text: str = ""
    share: float = 0.0
    error: HlooptError | None = None

    @property
    def is_failure(self) -> bool:
        """Whether there is something to reduce."""
        return self.kind not in ("equal", "refused", "no")

    def alike(self, first: CaseOutcome) -> bool:
        """Whether this is the failure that ``first`` was: another one is of no interest, however small."""
        if self.kind != first.kind or not self.is_failure:
            return False
        if self.kind == "differs":
            return self.share >= min(first.share, MARGIN)
        if self.kind == "not finite":
            return True
        return _pattern(self.text) == _pattern(first.text)


def _pattern(text: str) -> str:
    """A message without names, numbers and shapes."""
    return _VARYING.sub("#", text.partition("\n")[0])


class Question(ABC):
    """What a case is asked; ``apart``: in a process of its own, since it may crash or not end."""

    apart: bool = True

    @property
    def most_jobs(self) -> int:
        """How many cases may be asked at once."""
        return 64

    @abstractmethod
    def ask(self, case: Case, seconds: float | None) -> CaseOutcome:
        """The outcome.  What takes longer than ``seconds`` is stopped by the caller at the latest."""

    def quickly(self) -> Question:
        """The same with less certain answers, if that takes less time."""
        return self

    def prepare(self) -> None:  # noqa: B027 - most have nothing to do
        """Called in this process before a case is asked in another one."""

    def close(self) -> None:  # noqa: B027 - most have nothing to do
        """Give back what ``prepare`` made."""


@dataclass(frozen=True)
class Asked(Question):
    """A Python function of a module and its inputs: true where the case is still interesting."""

    function: Callable[[Module, list[Array]], bool]
    apart: bool = False

    def ask(self, case: Case, seconds: float | None) -> CaseOutcome:
        """Call it with copies, which it may change."""
        arrays = [array.copy() for array in case.inputs.arrays[0]]
        return CaseOutcome(
            "yes" if self.function(build.clone_module(case.module), arrays) else "no"
        )


@dataclass(frozen=True)
class Differs(Question):
    """Whether two ways of running a module on the same inputs give other results than rounding explains.

    before    what is done to the module before the run that results are compared with; None for nothing
    after     what is done to it before the other run
    executor  of the other run; the first one is the interpreter's
    server    XLA, which makes the other run where it is given
    quick     whether the judge evaluates a few times only where rounding may explain a difference
    """

    before: Change | None = None
    after: Change | None = None
    executor: Executor = field(default_factory=Executor)
    server: XlaServer | None = None
    tolerance: Tolerance = FREE
    quick: bool = False

    def quickly(self) -> Differs:
        """With a quick judge."""
        return replace(self, quick=True)

    @property
    def most_jobs(self) -> int:
        """XLA serves one after the other."""
        return 1 if self.server is not None else super().most_jobs

    def prepare(self) -> None:
        """Start XLA, again where it has crashed."""
        if self.server is not None:
            self.server.start()

    def close(self) -> None:
        """End it."""
        if self.server is not None:
            self.server.close()

    def ask(self, case: Case, seconds: float | None) -> CaseOutcome:
        """Run both and compare."""
        inputs, given = case.inputs, case.module
        rounds = self.executor.excess_precision
        reference = Executor("interpreter", rounds, seconds=seconds)
        try:
            left = _changed(given, self.before)
        except Exception as error:  # noqa: BLE001 - whatever a pass raises is what is looked for
            return _failure("pass fails", error)
        try:
            first = reference.run(left, inputs)
        except HlooptError as error:
            return CaseOutcome("refused", error.message, error=error)
        try:
            right = _changed(given, self.after)
            check_alike(given, right, ("the module", "the changed one"))
        except Exception as error:  # noqa: BLE001 - as above
            return _failure("pass fails", error)
        try:
            second = self._second(right, inputs, seconds)
        except Exception as error:  # noqa: BLE001 - as above, of an executor
            return _failure("run fails", error)
        return self._verdict(first, second, inputs)

    def _second(self, module: Module, inputs: TrialInputs, seconds: float | None) -> Run:
        if self.server is None:
            return replace(self.executor, seconds=seconds).run(module, inputs)
        return Run(module, [self.server.run(module, inputs.arrays[0], seconds)])

    def _verdict(self, first: Run, second: Run, inputs: TrialInputs) -> CaseOutcome:
        """What the judge says of the first result that is wrong; those furthest off are judged first.

        Integers and NaN come behind: the judge evaluates more often before it knows that rounding decides none.
        """
        known = [named(run.results, run.written) for run in (first, second)]
        judge = Judge.between(
            first.module,
            second.module,
            inputs.arrays,
            *(
                own if run.interpreted else None
                for own, run in zip(known, (first, second), strict=True)
            ),
            counts=inputs.counts,
            host=inputs.host,
            excess_precision=self.executor.excess_precision,
            tolerance=self.tolerance,
            quick=self.quick,
        )
        want, got = known
        if want.keys() != got.keys():
            names = ", ".join(str(name) for name in want.keys() ^ got.keys())
            return CaseOutcome("differs", f"one of the two alone gives {names}", inf)
        plain = Judge(tolerance=self.tolerance)
        far = {key: plain.compare(key, got[key], want[key]) for key in want}
        for key in sorted(far, key=lambda name: (isinf(far[name].share), -far[name].share)):
            found = far[key] if far[key].passed else judge.compare(key, got[key], want[key])
            if not found.passed and not found.undecided:
                values = [array[found.where] for array in (got[key], want[key]) if found.where]
                kind = "differs" if all(map(_finite, values)) else "not finite"
                return CaseOutcome(kind, found.reason, found.share)
        return CaseOutcome("equal")


def _changed(module: Module, change: Change | None) -> Module:
    copy = build.clone_module(module)
    if change is not None:
        change(copy)
    return copy


def _failure(kind: str, error: Exception) -> CaseOutcome:
    if isinstance(error, EvaluationError) and "seconds" in error.message:
        return CaseOutcome("timeout", error.message)
    message = error.message if isinstance(error, HlooptError) else str(error)
    return CaseOutcome(kind, f"{type(error).__name__}: {message}")


def _finite(value: Any) -> bool:
    return bool(np.isfinite(value if value.dtype.kind == "c" else value.astype(np.float64)))


@dataclass(frozen=True)
class CommandQuestion(Question):
    """A command that exits with 0 where a case is still interesting, as for ``llvm-reduce`` and C-Reduce.

    ``{}`` in it is the file of the module, ``{inputs}`` the ``.npz`` file of its inputs; where the command
    names neither, the file of the module is added at its end.  Inputs are written only for a command that names
    their file, as ``{inputs}`` or by the variable ``HLOOPT_REDUCE_INPUTS``: they may be the weights of a model.
    """

    command: str

    def ask(self, case: Case, seconds: float | None) -> CaseOutcome:
        """Run the command."""
        with tempfile.TemporaryDirectory(prefix="hloopt-reduce-") as folder:
            module, inputs = Path(folder) / "module.hlo", Path(folder) / "inputs.npz"
            module.write_text(case.text)
            if "{inputs}" in self.command or "HLOOPT_REDUCE_INPUTS" in self.command:
                inputs.write_bytes(npz(arrays_by_name(case)))
            done = subprocess.run(  # noqa: S602 - it is a line of a shell, by definition
                self.filled(str(module), str(inputs)),
                shell=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "HLOOPT_REDUCE_INPUTS": str(inputs)},
                check=False,
            )
        if done.returncode in (126, 127):
            message = f"the command cannot be run (exit code {done.returncode})"
            return CaseOutcome("refused", message, error=UsageError(message))
        return CaseOutcome("no" if done.returncode else "yes")

    def filled(self, module: str, inputs: str) -> str:
        """The command with the names of files in it, quoted for the shell."""
        text = self.command
        if "{}" not in text and "{inputs}" not in text:
            text += " {}"
        return text.replace("{}", shlex.quote(module)).replace("{inputs}", shlex.quote(inputs))

    def check(self) -> None:
        """Raise ``UsageError`` for an empty command."""
        if not self.command.strip():
            raise UsageError("--check needs a command")


def arrays_by_name(case: Case) -> Mapping[str, Array]:
    """The inputs as ``--inputs`` reads them: ``in_0``, or ``in_0.1`` of participant 1 of several."""
    given = case.inputs.arrays
    several = len(given) > 1
    return {
        f"in_{number}" + (f".{participant}" if several else ""): array
        for participant, arrays in enumerate(given)
        for number, array in enumerate(arrays)
    }
