"""Comparing each instruction that the NumPy executor runs with the interpreter, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hloopt.backends.kernel_check import WrongResult, wrong_results
from hloopt.backends.numpy.program import NumpyProgram
from hloopt.errors import HlooptError
from hloopt.interpret import EVALUATORS, Host
from hloopt.interpret.interpreter import Interpreter
from hloopt.interpret.values import flatten_results, parameter_values
from hloopt.ir import Computation, Instruction, Module
from hloopt.ir.walk import execution_order
from hloopt.kernels.plan import HostStep
from hloopt.kernels.standalone import standalone
from hloopt.ops.traits import COLLECTIVE, DEVICE_NUMBERS, FREE, PLUMBING, RANDOM, TRANSFERS
from hloopt.runtime import library_numpy
from hloopt.types import Array, Literal

__all__ = ["wrong_instructions"]

_NOT_ALONE: Final = FREE | PLUMBING | RANDOM | TRANSFERS | COLLECTIVE | DEVICE_NUMBERS
"""What computes nothing, or cannot be done again by itself."""
_MOST_ITERATIONS: Final = 16


def wrong_instructions(module: Module, inputs: Sequence[Array], host: Host) -> list[WrongResult]:
    """The first instruction that NumPy computes otherwise than the interpreter, on the interpreter's operands.

    One inside of a call or a loop (of its first iterations) stands for that.  Empty where all are right.
    """
    context = Interpreter(module, EVALUATORS)
    context.host = host.restarted()
    values = parameter_values(module.entry, inputs, context)
    arguments = [
        flatten_results(value, one.shape, context)
        for value, one in zip(values, module.entry.parameters, strict=True)
    ]
    walk = _Walk(context)
    walk.through(module.entry, arguments)
    return walk.found


class _Walk:
    """``found`` are the wrong results of one instruction; ``count`` is how many were compared."""

    def __init__(self, context: Interpreter) -> None:
        self.context = context
        self.found: list[WrongResult] = []
        self.count = 0

    def through(
        self, computation: Computation, arguments: Sequence[Sequence[Array]]
    ) -> Sequence[Array]:
        """Evaluate a computation until something is wrong; the leaves of its root, none once it is."""
        values: dict[Instruction, Sequence[Array]] = dict(
            zip(computation.parameters, arguments, strict=True)
        )
        for instruction in execution_order(computation):
            if instruction.opcode == "parameter":
                continue
            operands = [values[operand] for operand in instruction.operands]
            flat = [array for arrays in operands for array in arrays]
            want = values[instruction] = self._evaluated(instruction, flat)
            if instruction.opcode not in _NOT_ALONE:
                self._compare(instruction, operands, flat, want)
            if self.found:
                return ()
        return values[computation.root]

    def _evaluated(self, instruction: Instruction, operands: Sequence[Array]) -> Sequence[Array]:
        if instruction.literal is not None:
            return _leaves(instruction.literal)
        return library_numpy.call(instruction, operands, self.context)

    def _compare(
        self,
        instruction: Instruction,
        operands: Sequence[Sequence[Array]],
        flat: Sequence[Array],
        want: Sequence[Array],
    ) -> None:
        distinct = dict(zip(instruction.operands, operands, strict=True))
        given = [array for arrays in distinct.values() for array in arrays]
        try:
            got = NumpyProgram(standalone(instruction)).run(given)
        except HlooptError:  # by itself it is no program: what it exchanges is missing
            return
        step = HostStep(instruction, (), ())
        found = wrong_results(self.count, step, flat, want, got.__getitem__)
        self.count += 1
        if found:
            self._enter(instruction, operands)
            self.found = self.found or found

    def _enter(self, instruction: Instruction, operands: Sequence[Sequence[Array]]) -> None:
        """Look inside of what calls computations."""
        if instruction.opcode == "call":
            self.through(instruction.to_apply, operands)
        elif instruction.opcode == "while":
            state = operands[0]
            for _ in range(_MOST_ITERATIONS):
                (goes_on,) = self.through(instruction.condition, [state]) or (False,)
                if self.found or not goes_on:
                    return
                state = self.through(instruction.body, [state])
                if self.found:
                    return


def _leaves(literal: Literal) -> list[Array]:
    if literal.array is not None:
        return [literal.array]
    return [leaf for element in literal.elements for leaf in _leaves(element)]
