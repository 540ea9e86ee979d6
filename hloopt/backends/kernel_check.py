"""Comparing each kernel of a run with the interpreter, on the inputs it had.

Final results may diverge where a program is chaotic, or agree by luck; single kernels do neither.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeAlias

import numpy as np

from hloopt.analysis.region import region_of
from hloopt.dataclass import dataclass
from hloopt.interpret import EVALUATORS, Host
from hloopt.interpret.interpreter import Interpreter
from hloopt.interpret.rounding import Rounding
from hloopt.ir import Instruction
from hloopt.kernels.plan import HostStep, KernelStep, PlanBuffer
from hloopt.runtime import library_numpy
from hloopt.runtime.device_program import DeviceProgram
from hloopt.runtime.judge import Judge, OutputComparison
from hloopt.types import Array, TupleShape

__all__ = [
    "CheckedProgram",
    "CheckedStep",
    "WrongResult",
    "operands_of",
    "results_of",
    "wrong_results",
]

CheckedStep: TypeAlias = KernelStep | HostStep


@dataclass(frozen=True, slots=True, eq=False)
class WrongResult:
    """A result of an instruction that its kernel computed otherwise than the interpreter.

    ``launch`` counts kernels from 0 in the order in which they ran; ``operands`` are what it was given, ``got``
    and ``want`` the result's two values.
    """

    launch: int
    step: CheckedStep
    result: int
    comparison: OutputComparison
    operands: tuple[Array, ...]
    got: Array
    want: Array

    @property
    def kernel(self) -> str:
        """The kernel's name; ``NumPy`` where the executor of that name runs the instruction."""
        return self.step.spec.kernel if isinstance(self.step, KernelStep) else "NumPy"

    def __str__(self) -> str:
        where = f"%{self.step.instruction.name} ({self.kernel}), result {self.result}"
        return f"kernel {self.launch}, {where}: {self.comparison}"


def operands_of(step: CheckedStep, read: Callable[[PlanBuffer], Array]) -> list[Array]:
    """What a step is about to be given; ``read`` gives what a buffer holds."""
    region = region_of(step.instruction)
    operands = []
    for number, buffer in enumerate(step.operands):
        if not buffer.shape.dtype.is_array:
            continue
        value = region.inlined(number)
        first = step.operands[region.canonical(number)]
        operands.append(read(first) if value is None else np.full(buffer.shape.dims, value))
    return operands


def wrong_results(
    launch: int,
    step: CheckedStep,
    operands: Sequence[Array],
    want: Sequence[Array],
    got: Callable[[int], Array],
) -> list[WrongResult]:
    """The results of a step, by their numbers, that differ from what the interpreter made of its operands."""
    judge = _judge(step.instruction, operands, want)
    found = []
    for number, array in enumerate(want):
        if _is_read(step.instruction, number):
            mine = got(number)
            compared = judge.compare(number, mine, array)
            if not compared.passed:
                found.append(
                    WrongResult(launch, step, number, compared, tuple(operands), mine, array)
                )
    return found


def results_of(step: CheckedStep, read: Callable[[PlanBuffer], Array]) -> Callable[[int], Array]:
    """What gives the result of a number, once the step has run."""
    results = [buffer for buffer in step.results if buffer.shape.dtype.is_array]
    return lambda number: read(results[number])


class CheckedProgram(DeviceProgram):
    """Runs as its base does, and compares each kernel's results; ``findings`` are those of the last run.

    ``most`` kernel executions are checked (a loop repeats some), all of them where it is None.
    ``running`` is the step that ran last.
    """

    most: int | None = None
    running: KernelStep | None = None

    def run(self, inputs: Sequence[Array], host: Host | None = None) -> list[Array]:
        """As the base's; begins a new list of findings."""
        self.findings: list[WrongResult] = []
        self.compared = 0
        return super().run(inputs, host)

    def _may_capture(self, step: KernelStep) -> bool:
        return False

    def _kernel(self, step: KernelStep) -> None:
        self.running = step
        if self.most is not None and self.compared >= self.most:
            super()._kernel(step)
            return
        operands = operands_of(step, self._download)
        super()._kernel(step)
        self.compared += 1
        want = library_numpy.call(step.instruction, operands)
        got = results_of(step, self._download)
        self.findings += wrong_results(self.compared - 1, step, operands, want, got)


def _judge(instruction: Instruction, operands: Sequence[Array], want: Sequence[Array]) -> Judge:
    """The judge of one instruction."""
    assert instruction.computation is not None
    module = instruction.computation.module
    assert module is not None

    def sample(number: int) -> dict[Hashable, Array]:
        context = Interpreter(module, EVALUATORS)
        context.rounding = Rounding(number)
        return dict(enumerate(library_numpy.call(instruction, operands, context)))

    return Judge(dict(enumerate(want)), sample)


def _is_read(instruction: Instruction, number: int) -> bool:
    """Whether an element of a result is used: a library's workspace is not compared."""
    if not isinstance(instruction.shape, TupleShape) or instruction.is_root:
        return True
    return any(
        user.opcode != "get-tuple-element"
        or (user.attributes["index"] == number and (user.users or user.is_root))
        for user in instruction.users
    )
