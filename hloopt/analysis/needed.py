"""What a module needs, across calls: instructions, parameters, elements of results and arguments."""

from __future__ import annotations

from hloopt.analysis.effects import Effects
from hloopt.ir import Computation, Instruction, Module
from hloopt.ir.signatures import (
    branch_operands,
    is_open_barrier,
    with_elements,
    with_parameters,
    with_results,
)
from hloopt.ir.walk import called_computations

__all__ = ["Needed"]


class Needed:
    """Everything that the entry's result, side effects and control edges need.

    ``instructions`` are the needed ones.  A parameter of a computation whose signature may change is
    needed when something needed reads it; an operand of a call when its parameter is.  ``results``,
    ``elements`` and ``barriers`` hold which elements of a tuple that a computation returns, a branch is
    given, or an optimization barrier forwards, are.

    The signatures that may change are found at once; the rest is one walk from the roots to operands, so
    that all of it is linear in the module.
    """

    def __init__(self, module: Module, effects: Effects, *, signatures: bool = True) -> None:
        self.instructions: set[Instruction] = set()
        self.parameters = with_parameters(module) if signatures else set()
        results = with_results(module) if signatures else ()
        self.results: dict[Computation, set[int]] = {entry: set() for entry in results}
        elements = with_elements(module) if signatures else ()
        self.elements: dict[Computation, set[int]] = {entry: set() for entry in elements}
        self.barriers: dict[Instruction, set[int]] = {}
        self._pending: list[Instruction] = []
        for computation in module:
            if not computation.callers:
                self._mark(computation.root)
            for instruction in computation:
                if signatures and is_open_barrier(instruction):
                    self.barriers[instruction] = set()
                if self._is_root(instruction, computation, effects):
                    self._mark(instruction)
        while self._pending:
            self._visit(self._pending.pop())

    def _is_root(
        self, instruction: Instruction, computation: Computation, effects: Effects
    ) -> bool:
        if instruction.opcode == "parameter" and computation not in self.parameters:
            return True
        return (
            bool(instruction.control_predecessors)
            or bool(instruction.control_successors)
            or effects.has(instruction)
        )

    def _mark(self, instruction: Instruction) -> None:
        if instruction not in self.instructions:
            self.instructions.add(instruction)
            self._pending.append(instruction)

    def _visit(self, instruction: Instruction) -> None:
        computation = instruction.home
        for before in instruction.control_predecessors:
            self._mark(before)
        if instruction.opcode == "parameter":
            if computation in self.parameters:
                for caller in computation.callers:
                    if caller in self.instructions:
                        self._mark(caller.operands[instruction.parameter_number])
        elif instruction.opcode == "get-tuple-element":
            self._take(instruction)
        elif instruction in self.barriers:
            for index in self.barriers[instruction]:
                self._mark(instruction.operands[0].operands[index])
        elif instruction is computation.root and computation in self.results:
            for index in self.results[computation]:
                self._mark(instruction.operands[index])
        else:
            self._call(instruction)

    def _take(self, element: Instruction) -> None:
        """An element: of a result that may lose others, of a branch's argument, or of any tuple."""
        source, index = element.operands[0], element.attributes["index"]
        self._mark(source)
        if source in self.barriers:
            self.barriers[source].add(index)
            self._mark(source.operands[0].operands[index])
        for called in called_computations(source):
            if called in self.results:
                self._need_result(called, index)
        if source.opcode == "parameter" and source.computation in self.elements:
            self._need_element(source.computation, index)

    def _need_result(self, computation: Computation, index: int) -> None:
        pending = [computation]
        while pending:
            current = pending.pop()
            if index in self.results[current]:
                continue
            self.results[current].add(index)
            if current.root in self.instructions:
                self._mark(current.root.operands[index])
            for caller in current.callers:
                pending += called_computations(caller)

    def _need_element(self, computation: Computation, index: int) -> None:
        if index in self.elements[computation]:
            return
        self.elements[computation].add(index)
        for caller in computation.callers:
            if caller in self.instructions:
                for number, branch in branch_operands(caller):
                    if branch is computation:
                        self._mark(caller.operands[number].operands[index])

    def _call(self, instruction: Instruction) -> None:
        """What an instruction needs of its operands, and the results of what it calls."""
        called = called_computations(instruction)
        if not called:
            for operand in instruction.operands:
                self._mark(operand)
            return
        for computation in called:
            self._mark(computation.root)
        for number, operand in enumerate(instruction.operands):
            if instruction.opcode == "conditional" and number:
                self._argument(called[number - 1], operand)
            elif (
                called[0] not in self.parameters
                or called[0].parameters[number] in self.instructions
            ):
                self._mark(operand)

    def _argument(self, branch: Computation, operand: Instruction) -> None:
        if branch not in self.elements:
            self._mark(operand)
            return
        for index in self.elements[branch]:
            self._mark(operand.operands[index])
