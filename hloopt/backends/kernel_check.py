"""Comparing each kernel of a run with the interpreter, on the inputs it had.

Final results may diverge where a program is chaotic, or agree by luck; single kernels do neither.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from hloopt.analysis.region import region_of
from hloopt.dataclass import dataclass
from hloopt.interpret import EVALUATORS, Host
from hloopt.interpret.interpreter import Interpreter
from hloopt.interpret.rounding import Rounding
from hloopt.ir import Instruction
from hloopt.kernels.plan import KernelStep
from hloopt.runtime import library_numpy
from hloopt.runtime.device_program import DeviceProgram
from hloopt.runtime.judge import Judge, OutputComparison
from hloopt.types import Array, TupleShape

__all__ = ["CheckedProgram", "WrongResult"]


@dataclass(frozen=True, slots=True, eq=False)
class WrongResult:
    """A result of an instruction that its kernel computed otherwise than the interpreter.

    ``launch`` counts kernels from 0 in the order in which they ran; ``operands`` are what it was given, ``got``
    and ``want`` the result's two values.
    """

    launch: int
    step: KernelStep
    result: int
    comparison: OutputComparison
    operands: tuple[Array, ...]
    got: Array
    want: Array

    def __str__(self) -> str:
        where = f"%{self.step.instruction.name} ({self.step.spec.kernel}), result {self.result}"
        return f"kernel {self.launch}, {where}: {self.comparison}"


class CheckedProgram(DeviceProgram):
    """Runs as its base does, and compares each kernel's results; ``findings`` are those of the last run.

    ``most`` kernel executions are checked (a loop repeats some), all of them where it is None.
    """

    most: int | None = None

    def run(self, inputs: Sequence[Array], host: Host | None = None) -> list[Array]:
        """As the base's; begins a new list of findings."""
        self.findings: list[WrongResult] = []
        self.compared = 0
        return super().run(inputs, host)

    def _may_capture(self, step: KernelStep) -> bool:
        return False

    def _kernel(self, step: KernelStep) -> None:
        if self.most is not None and self.compared >= self.most:
            super()._kernel(step)
            return
        region = region_of(step.instruction)
        operands = []
        for number, buffer in enumerate(step.operands):
            if not buffer.shape.dtype.is_array:
                continue
            value = region.inlined(number)
            first = step.operands[region.canonical(number)]
            operands.append(
                self._download(first) if value is None else np.full(buffer.shape.dims, value)
            )
        super()._kernel(step)
        self.compared += 1
        want = library_numpy.call(step.instruction, operands)
        judge = _judge(step.instruction, operands, want)
        results = [b for b in step.results if b.shape.dtype.is_array]
        for number, (buffer, array) in enumerate(zip(results, want, strict=True)):
            if not _is_read(step.instruction, number):
                continue
            got = self._download(buffer)
            found = judge.compare(number, got, array)
            if not found.passed:
                self.findings.append(
                    WrongResult(self.compared - 1, step, number, found, tuple(operands), got, array)
                )


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
