"""Comparing each kernel of a native run with the interpreter, on the inputs it had.

The plan is run as it is, but for callbacks before and after each step: buffers lie where they lay, and the
kernels' code is the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from hloopt.backends.kernel_check import (
    CheckedStep,
    WrongResult,
    operands_of,
    results_of,
    wrong_results,
)
from hloopt.backends.native.calls import NumpyCall
from hloopt.backends.native.memory import Placed
from hloopt.backends.native.program import NativeProgram
from hloopt.interpret import Host
from hloopt.ir import Module
from hloopt.kernels.plan import (
    ConditionalStep,
    HostStep,
    KernelStep,
    Plan,
    PlanBuffer,
    PlanStep,
    WhileStep,
)
from hloopt.ops.traits import CONTROL_FLOW, RANDOM, TRANSFERS
from hloopt.runtime import library_numpy
from hloopt.types import Array

__all__ = ["CheckedNative"]

_FIRST = 4
"""Executions of a step in a loop that are all checked; after them, those whose number is a power of two."""
_UNCHECKED = CONTROL_FLOW | RANDOM | TRANSFERS | {"custom-call"}


class CheckedNative(NativeProgram):
    """Runs as its base does, and compares each kernel's results; ``findings`` are those of the last run.

    What draws random numbers or exchanges data with the host is not compared, since it cannot be done twice.
    """

    def __init__(self, module: Module, plan: Plan, *, threads: int | None = None) -> None:
        self.findings: list[WrongResult] = []
        self.compared = 0
        self._probes: dict[int, Callable[[Placed], None]] = {}
        self._times: Counter[int] = Counter()
        self._given: list[Array] = []
        steps = tuple(self._probed(plan.steps))
        super().__init__(module, replace(plan, steps=steps), threads=threads)

    def run(self, inputs: Sequence[Array], host: Host | None = None) -> list[Array]:
        """As the base's; begins a new list of findings."""
        self.findings, self.compared = [], 0
        self._times.clear()
        return super().run(inputs, host)

    def _probed(self, steps: Iterable[PlanStep]) -> Iterator[PlanStep]:
        for step in steps:
            if isinstance(step, WhileStep):
                yield replace(
                    step,
                    condition=tuple(self._probed(step.condition)),
                    body=tuple(self._probed(step.body)),
                )
            elif isinstance(step, ConditionalStep):
                branches = tuple(tuple(self._probed(branch)) for branch in step.branches)
                yield replace(step, branches=branches)
            elif isinstance(step, KernelStep) or step.instruction.opcode not in _UNCHECKED:
                yield self._probe(step, self._before)
                yield step
                yield self._probe(step, self._after)
            else:
                yield step

    def _probe(self, step: CheckedStep, look: Callable[[CheckedStep, Placed], None]) -> HostStep:
        probe = HostStep(step.instruction, (), ())
        self._probes[id(probe)] = lambda placed: look(step, placed)
        return probe

    def _call_of(self, step: CheckedStep) -> NumpyCall:
        return self._probes.get(id(step)) or super()._call_of(step)

    def _read(self, placed: Placed) -> Callable[[PlanBuffer], Array]:
        return lambda buffer: np.array(self._memory.view(buffer)(placed))

    def _is_checked(self, step: CheckedStep) -> bool:
        times = self._times[id(step)]
        return times <= _FIRST or times & (times - 1) == 0

    def _before(self, step: CheckedStep, placed: Placed) -> None:
        self._times[id(step)] += 1
        if self._is_checked(step):
            self._given = operands_of(step, self._read(placed))

    def _after(self, step: CheckedStep, placed: Placed) -> None:
        if self._is_checked(step):
            self.compared += 1
            want = library_numpy.call(step.instruction, self._given)
            got = results_of(step, self._read(placed))
            self.findings += wrong_results(self.compared - 1, step, self._given, want, got)
