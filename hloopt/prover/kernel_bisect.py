"""Which kernel of a program gives other values than the interpreter on what it was given.

Each kernel is compared on the operands it had in the run itself, so that errors of those before it do not
count; the plan, its buffers and its code are those of any run.  On ``cpu``, whose programs have no kernels, it
is each instruction by itself, on the interpreter's operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import field, replace
from typing import Any

from hloopt.backends import compile_module, options_for
from hloopt.backends.device_compile import Prepared, choices_of, open_device, prepare
from hloopt.backends.kernel_check import CheckedProgram, WrongResult
from hloopt.backends.native.checked import CheckedNative
from hloopt.backends.native.compile import prepare_native
from hloopt.dataclass import dataclass
from hloopt.errors import DeviceError, EvaluationError, HlooptError, UsageError
from hloopt.ir import Instruction, Module
from hloopt.ir.build import clone_module
from hloopt.kernels.plan import KernelStep
from hloopt.kernels.selection import KernelSelection
from hloopt.passes.defuse import Defuse
from hloopt.prover.bisection import (
    Bisection,
    Culprit,
    Examined,
    NamedComparison,
    different_results,
    instruction_line,
    instruction_place,
)
from hloopt.prover.comparing import compare_runs
from hloopt.prover.executor import Executor, Run
from hloopt.prover.numpy_check import wrong_instructions
from hloopt.prover.trials import TrialInputs
from hloopt.rewrite import PassLog
from hloopt.rewrite.source_lines import kernel_lines
from hloopt.runtime.program import DeviceOptions, NumpyOptions
from hloopt.runtime.tolerance import FREE, Tolerance
from hloopt.types import Array

__all__ = ["KernelSearch"]

_MOST_TRIED = 4
"""Other kernels that are tried in the place of the wrong one."""


@dataclass
class KernelSearch:
    """A search over the kernels of a program.

    given      what is right: the interpreter's results of it
    optimised  the module whose program runs on ``device``, which passes have left right
    trials     on which inputs
    selection  the user's choice of kernels
    passes     the text of the pipeline that made ``optimised``, for messages
    stage      what the search is at; another thread may read it
    """

    given: Module
    optimised: Module
    device: str
    trials: Sequence[TrialInputs]
    selection: KernelSelection | None = None
    tolerance: Tolerance = FREE
    passes: str = ""
    stage: str = ""
    examined: list[Examined] = field(default_factory=list)

    def run(self, file: str) -> Bisection:
        """Search; ``file`` is for the record.

        Raises ``UnsupportedError`` for what the device cannot run, ``DeviceError`` where it is not there,
        ``UsageError`` for several participants where it takes one.
        """
        origins = tuple(inputs.origin for inputs in self.trials)
        record = Bisection("kernels", self.given.name, file, origins)
        if any(inputs.counts != (1, 1) for inputs in self.trials):
            raise UsageError(
                f"{self.given.name}: kernels are examined with one participant; --participants 1"
            )
        notes: list[str] = []
        for inputs in self.trials:
            culprit = self._tried(inputs, notes)
            if culprit is not None:
                summary = f"{culprit.name} is wrong on {self.device}: {culprit.reason}"
                return replace(
                    record, examined=tuple(self.examined), culprits=(culprit,), summary=summary
                )
        summary = f"passes and {self.device} give the same results as the interpreter"
        return replace(record, examined=tuple(self.examined), summary=summary, notes=tuple(notes))

    def _tried(self, inputs: TrialInputs, notes: list[str]) -> Culprit | None:
        """What is wrong on the inputs of one trial."""
        self.stage = f"the interpreter, {inputs.origin}"
        want = Executor().run(self.given, inputs)
        self.stage = f"kernels on {self.device}, {inputs.origin}"
        if self.device == "cpu":
            got, findings, prepared = self._on_cpu(inputs)
        else:
            prepared = self._prepared()
            try:
                got, findings = self._watched(prepared, inputs)
            except _StoppedError as stopped:
                return self._stopped(stopped)
        differing = different_results(
            want, compare_runs(want, got, inputs, tolerance=self.tolerance)
        )
        outcome: Any = "differs" if differing else "equal"
        self.examined.append(Examined(f"{self.device}, {inputs.origin}", outcome))
        if not differing:
            if findings:
                one = findings[0]
                notes.append(
                    f"the results are right, but {_called(one)} is off: {one.comparison.reason}"
                )
            return None
        if not findings:
            return Culprit(
                f"no kernel on {self.device}",
                inputs.origin,
                "results are wrong, though each kernel is right for what it was given: errors add up, or a "
                "buffer is overwritten before it is read",
                differing,
            )
        return self._culprit(findings[0], differing, inputs, want, prepared)

    # ---- running ------------------------------------------------------------------------------------

    def _prepared(self, selection: KernelSelection | None = None) -> Prepared:
        selection = selection or self.selection
        if self.device == "native":
            return prepare_native(self.optimised, selection)
        return prepare(self.optimised, DeviceOptions(selection, allow_host=True))

    def _watched(self, prepared: Prepared, inputs: TrialInputs) -> tuple[Run, list[WrongResult]]:
        """A run in which each kernel is compared.  Raises ``_StoppedError`` where one does not end well."""
        host = inputs.host.restarted()
        program: CheckedNative | CheckedProgram
        if self.device == "native":
            program = CheckedNative(prepared.module, prepared.plan)
            results = program.run(inputs.arrays[0], host)
            return Run(prepared.module, [results], host.written), program.findings
        device = open_device(self.device, DeviceOptions())
        program = CheckedProgram(prepared.module, prepared.plan, device, prepared.program)
        with closing(program):
            try:
                results = program.run(inputs.arrays[0], host)
            except (EvaluationError, DeviceError) as error:
                if program.running is None:
                    raise
                raise _StoppedError(program.running, error) from error
        return Run(prepared.module, [results], host.written), program.findings

    def _on_cpu(self, inputs: TrialInputs) -> tuple[Run, list[WrongResult], None]:
        got = Executor("cpu").run(self.optimised, inputs)
        return got, wrong_instructions(self.optimised, inputs.arrays[0], inputs.host), None

    # ---- telling ------------------------------------------------------------------------------------

    def _stopped(self, stopped: _StoppedError) -> Culprit:
        step, error = stopped.step, stopped.error
        reason = error.reason if isinstance(error, EvaluationError) else error.message
        name = f"{step.spec.kernel} of %{step.instruction.name}"
        return Culprit(name, self.device, reason, first=_lines(step.instruction))

    def _culprit(
        self,
        finding: WrongResult,
        differing: tuple[NamedComparison, ...],
        inputs: TrialInputs,
        want: Run,
        prepared: Prepared | None,
    ) -> Culprit:
        own: NamedComparison = (f"result {finding.result} of it", finding.comparison)
        remedy, note = self._remedy(finding, inputs, want, prepared)
        return Culprit(
            _called(finding),
            f"kernel {finding.launch + 1} of the run on {self.device}",
            f"other values than the interpreter's on the same operands: {_element(finding)}",
            (own, *differing),
            _lines(finding.step.instruction),
            remedy=remedy,
            remedy_note=note,
        )

    def _remedy(
        self, finding: WrongResult, inputs: TrialInputs, want: Run, prepared: Prepared | None
    ) -> tuple[str, str]:
        """Another kernel for the instruction, or none of its fusions; and what came of trying it."""
        instruction = finding.step.instruction
        able = []
        if prepared is not None and isinstance(finding.step, KernelStep):
            choices = choices_of(prepared.report)
            chosen = [one for one in choices if one.alternatives.instruction is instruction]
            able = [one.name for choice in chosen for one in choice.alternatives.able]
        tried = []
        for name in [name for name in able if name != finding.kernel][:_MOST_TRIED]:
            request = f"{instruction.name}={name}"
            self.stage = f"--kernel {request}"
            tried.append(name)
            chosen_now = self._selecting(request)
            if self._mends(self.optimised, chosen_now, inputs, want):
                return f"--kernel '{request}'", "tried: the results are right then"
        if instruction.opcode == "fusion":
            self.stage = "the module without fusions"
            module = clone_module(self.optimised)
            Defuse().run(module, PassLog())
            if self._mends(module, self.selection, inputs, want):
                passes = f"--passes '{self.passes},defuse'"
                return passes, "tried: without fusions the results are right"
            tried.append("without fusions")
        return "", f"tried without success: {', '.join(tried)}" if tried else ""

    def _selecting(self, request: str) -> KernelSelection:
        """The selection with a request in the place of those for the same name."""
        selection, name = self.selection or KernelSelection(), request.partition("=")[0]
        others = [one for one in selection.kernel if one.partition("=")[0] != name]
        return replace(selection, kernel=(*others, request))

    def _mends(
        self, module: Module, selection: KernelSelection | None, inputs: TrialInputs, want: Run
    ) -> bool:
        """Whether results are right with other kernels."""
        options = options_for(self.device, NumpyOptions(), selection)
        if isinstance(options, DeviceOptions):
            options = replace(options, allow_host=True)
        try:
            program: Any = compile_module(module, self.device, options)
            host = inputs.host.restarted()
            results = program.run_participants(inputs.arrays, host)
        except HlooptError:  # a kernel that cannot be had mends nothing
            return False
        getattr(program, "close", lambda: None)()
        got = Run(program.module, results, host.written)
        return compare_runs(want, got, inputs, tolerance=self.tolerance).equal


class _StoppedError(Exception):
    """A kernel did not end well."""

    def __init__(self, step: KernelStep, error: EvaluationError | DeviceError) -> None:
        super().__init__(error.message)
        self.step, self.error = step, error


def _called(finding: WrongResult) -> str:
    return f"{finding.kernel} of %{finding.step.instruction.name}"


def _element(finding: WrongResult) -> str:
    place = ",".join(map(str, finding.comparison.where))
    got, want = (_at(array, finding) for array in (finding.got, finding.want))
    return f"[{place}] is {got} instead of {want}"


def _at(array: Array, finding: WrongResult) -> str:
    where = finding.comparison.where
    return str(array[where]) if len(where) == array.ndim else "of another shape"


def _lines(instruction: Instruction) -> tuple[str, ...]:
    """The instruction as text, and where it is from."""
    module = instruction.computation.module if instruction.computation is not None else None
    places = [place for place in (instruction_place(instruction),) if place]
    if module is not None:
        places += kernel_lines(module, instruction)
    line, _, _ = instruction_line(instruction).partition(", backend_config=")
    return (line, *([", ".join(places)] if places else []))
