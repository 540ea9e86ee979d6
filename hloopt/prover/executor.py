"""Running modules on the inputs of a trial: by the interpreter, on a device, by XLA."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from math import prod
from time import monotonic
from typing import Any, Final

from hloopt.backends import DEVICES, check_device, compile_module, options_for
from hloopt.dataclass import dataclass
from hloopt.errors import EvaluationError, UnsupportedError, UsageError
from hloopt.interpret import evaluate_participants, supported
from hloopt.interpret.partitioning import Partitioning
from hloopt.interpret.progress import Progress
from hloopt.ir import Module
from hloopt.prover.trials import Arrays, TrialInputs, check_fits
from hloopt.runtime.program import DeviceOptions, NumpyOptions
from hloopt.runtime.xla import XLA_SECONDS, run_xla, xla_python
from hloopt.spelling import nearest

__all__ = ["EXECUTORS", "INTERRUPTED", "Executor", "Run"]

EXECUTORS: Final = ("interpreter", *DEVICES, "xla-cpu")

INTERRUPTED: Final = frozenset({"interpreter", "xla-cpu"})
"""Executors that give up a run after ``Executor.seconds``."""


@dataclass(frozen=True)
class Run:
    """What a module gave: the results of each participant, and what it wrote to the host by name.

    ``interpreted`` says that it is what the interpreter gave.  ``taken`` are the inputs, where they are not the
    trial's: ``parts`` of these, of which the results were put together then; ``apart`` says of each result why
    participants that have to agree about it do not, empty where they do.
    """

    module: Module
    results: Arrays
    written: Mapping[str, Any] = field(default_factory=dict)
    interpreted: bool = False
    taken: TrialInputs | None = None
    parts: Partitioning | None = None
    apart: tuple[str, ...] = ()


@dataclass(frozen=True)
class Executor:
    """How modules are run.

    device            one of ``EXECUTORS``
    excess_precision  of the interpreter and ``cpu``: bf16 and f16 chains keep f32
    exact             of ``cpu``: functions as the interpreter computes them
    seconds           how long one run of the interpreter or XLA may take; None for as long as it needs
    """

    device: str = "interpreter"
    excess_precision: bool = False
    exact: bool = False
    seconds: float | None = None

    def check(self) -> None:
        """Raise ``UsageError`` for an unknown executor, ``DeviceError`` for one that this machine lacks."""
        if self.device == "xla-cpu":
            xla_python()
        elif self.device in DEVICES:
            check_device(self.device)
        elif self.device != "interpreter":
            close = nearest(self.device, EXECUTORS)
            meant = f"; did you mean '{close[0]}'?" if close else ""
            raise UsageError(
                f"unknown executor '{self.device}' (known: {', '.join(EXECUTORS)}){meant}"
            )

    def run(self, module: Module, inputs: TrialInputs, name: str = "") -> Run:
        """Run a module; ``name`` is what messages call it.

        Raises ``UsageError`` where the inputs do not fit, ``UnsupportedError`` before anything runs for what
        cannot be run, ``EvaluationError`` where a run fails or takes longer than ``seconds``.
        """
        check_fits(module, inputs, name or module.name)
        if self.device == "interpreter":
            return self._interpreted(module, inputs)
        if self.device == "xla-cpu":
            return self._by_xla(module, inputs)
        return self._on_device(module, inputs)

    def _interpreted(self, module: Module, inputs: TrialInputs) -> Run:
        supported(module, *inputs.counts)
        host = inputs.host.restarted()
        progress = Progress(None if self.seconds is None else monotonic() + self.seconds)
        try:
            results = evaluate_participants(
                module,
                inputs.arrays,
                *inputs.counts,
                excess_precision=self.excess_precision,
                host=host,
                progress=progress,
            )
        except TimeoutError as error:
            raise EvaluationError(
                f"{module.name}: the interpreter was at {progress} after {self.seconds:g} seconds"
            ) from error
        return Run(module, results, host.written, interpreted=True)

    def _on_device(self, module: Module, inputs: TrialInputs) -> Run:
        given = NumpyOptions(self.excess_precision, *inputs.counts, self.exact)
        options = options_for(self.device, given)
        if isinstance(options, DeviceOptions):
            options = DeviceOptions(allow_host=True)
        program = compile_module(module, self.device, options)
        host = inputs.host.restarted()
        try:
            return Run(module, program.run_participants(inputs.arrays, host), host.written)
        finally:
            close = getattr(program, "close", None)
            if close is not None:
                close()

    def _by_xla(self, module: Module, inputs: TrialInputs) -> Run:
        if prod(inputs.counts) != 1:
            raise UnsupportedError("XLA is run with one participant only", name=module.name)
        seconds = XLA_SECONDS if self.seconds is None else self.seconds
        return Run(module, [run_xla(module, inputs.arrays[0], seconds=seconds).results])
