"""One instruction compiled by itself, for executors that leave some to this one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hloopt.backends.numpy.builder import Builder
from hloopt.backends.numpy.compiler import LineCompiler
from hloopt.backends.numpy.loop_plan import Blocking
from hloopt.backends.numpy.plan import Function
from hloopt.backends.numpy.source import compile_line
from hloopt.backends.numpy.values import Slots, leaf_slots
from hloopt.interpret import EVALUATORS
from hloopt.interpret.host import Host
from hloopt.ir import Instruction, Module
from hloopt.ops.traits import BODIES

__all__ = ["SingleInstructions"]


class SingleInstructions(LineCompiler):
    """The instructions of a module, each as a function of flat arrays.

    ``host`` may be set between runs: what instructions that talk to it see.
    """

    def __init__(self, module: Module) -> None:
        super().__init__(module, [0], excess_precision=False, blocking=Blocking())
        self.host = Host()

    def compile(self, instruction: Instruction) -> Callable[..., tuple[Any, ...]]:
        """A function from the leaves of the operands to those of the result, tokens among both.

        Arrays are logical and row-major, of the storage types; results may share memory with operands, and
        must not be written into.  What operands that are constants hold is known when the function is made.
        Raises ``UnsupportedError`` for an instruction without evaluation.
        """
        if EVALUATORS.get(instruction.opcode) is None and instruction.opcode not in BODIES:
            raise self.unsupported(instruction, f"{instruction.opcode} has no evaluation")
        builder = Builder(self)
        given = [builder.slots(operand.shape) for operand in instruction.operands]
        known = [
            self._known(builder, operand, slots)
            for operand, slots in zip(instruction.operands, given, strict=True)
        ]
        made = self._add(builder, instruction, known, counted=False)
        line = builder.line
        line.inputs = [leaf for slots in given for leaf in leaf_slots(slots)]
        line.results = list(builder.all_full([(made, instruction.shape)]))
        line.drop_unused()
        function: Function = compile_line(line, self.launches)
        return function

    def _known(self, builder: Builder, operand: Instruction, slots: Slots) -> Slots:
        if operand.opcode != "constant":
            return slots
        return self._constant(builder, operand)
