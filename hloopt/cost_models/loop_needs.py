"""How many elements of each value of a loop's body one work item computes in an iteration.

What a work item owns it computes along all dimensions that are not axes.  What is free (numbers that any work
item may compute) it computes as far as it is needed: from the next state backwards, op by op.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

from hloopt.analysis.parallel_loop import LoopNode, ParallelLoop, local_dims
from hloopt.analysis.parallel_loop.edges import entered, leaf_count, regrouped, shape_of
from hloopt.interpret.control import branches
from hloopt.ir import Computation, Instruction
from hloopt.ops.traits import BODIES, MOVING

__all__ = ["elements_needed"]

_AS_MANY: Final = MOVING | {"bitcast-convert", "map"}
"""An element of the result takes one of each operand at most."""


def elements_needed(parallel: ParallelLoop) -> Mapping[LoopNode, float]:
    """Elements a work item computes in an iteration, of each array of body, condition and what they call."""
    needs = _Needs(parallel)
    loop = parallel.loop
    after = [
        0.0 if one.role in ("invariant", "streamed") else float(one.local_elements)
        for one in parallel.carried
    ]
    needs.visit(loop.condition, [1.0])
    needs.visit(loop.body, after)
    return needs.found


class _Needs:
    def __init__(self, parallel: ParallelLoop) -> None:
        self.parallel = parallel
        self.parts: dict[Instruction, dict[LoopNode, float]] = {}
        self.found: dict[LoopNode, float] = {}
        self.streamed = {
            one.update: one for one in parallel.carried if one.role == "streamed" and one.update
        }

    def local(self, node: LoopNode) -> float:
        """Elements a work item may have of a value at most."""
        return float(prod(local_dims(shape_of(node), self.parallel.owned.get(node))))

    def request(self, node: LoopNode, count: float) -> None:
        """Request so many elements of a value."""
        count = min(count, self.local(node))
        self.found[node] = max(self.found.get(node, 0.0), count)

    def ask_part(self, node: LoopNode, reader: Instruction, count: float) -> None:
        """Request so many elements, other ones than other readers need."""
        parts = self.parts.setdefault(reader, {})
        parts[node] = max(parts.get(node, 0.0), count)
        every = [self.parts.get(user, {}).get(node, 0.0) for user in node[0].users]
        self.request(node, sum(every))

    def visit(self, computation: Computation, results: Sequence[float]) -> None:
        """Request leaves of the root, and all that those need."""
        for leaf, count in enumerate(results):
            self.request((computation.root, leaf), count)
        for update in self.streamed:
            if update.computation is computation:
                self.request((update, 0), self.local((update.operands[1], 0)))
        for instruction in reversed(computation):
            wanted = [self.found.get((instruction, n), 0.0) for n in range(leaf_count(instruction))]
            if any(wanted):
                self.operands(instruction, wanted)

    def operands(self, instruction: Instruction, wanted: list[float]) -> None:
        """Request what an instruction needs."""
        opcode, operands = instruction.opcode, instruction.operands
        most = max(wanted)
        if opcode in ("tuple", "get-tuple-element"):
            for node, count in zip(regrouped(instruction), wanted, strict=True):
                self.request(node, count)
        elif opcode in BODIES:
            self.called(instruction, wanted)
        elif opcode in ("slice", "dynamic-slice", "gather"):
            self.ask_part((operands[0], 0), instruction, most)
            for operand in operands[1:]:
                self.request((operand, 0), self.local((operand, 0)))
        elif opcode == "dynamic-update-slice":
            if instruction not in self.streamed:
                self.request((operands[0], 0), most)
            for operand in operands[1:]:
                self.request((operand, 0), self.local((operand, 0)))
        elif opcode == "reduce":
            share = self.local((operands[0], 0)) / max(1.0, self.local((instruction, 0)))
            for operand in operands:
                self.request((operand, 0), most * share)
        elif instruction.op.is_elementwise or opcode in _AS_MANY:
            for operand in operands:
                self.request((operand, 0), most)
        else:
            for operand in operands:
                for leaf in range(leaf_count(operand)):
                    self.request((operand, leaf), self.local((operand, leaf)))

    def called(self, instruction: Instruction, wanted: list[float]) -> None:
        operands = instruction.operands
        if instruction.opcode == "while":
            state = operands[0]
            condition, body = entered(instruction)
            self.visit(condition, [1.0])
            # What the body needs of its state it needs of the state it makes.
            for _ in range(2):
                self.visit(body, wanted)
                for called in (condition, body):
                    parameter = called.parameters[0]
                    wanted = [
                        max(count, self.found.get((parameter, leaf), 0.0))
                        for leaf, count in enumerate(wanted)
                    ]
            for leaf, count in enumerate(wanted):
                self.request((state, leaf), count)
            return
        if instruction.opcode == "conditional":
            self.request((operands[0], 0), 1.0)
            pairs = list(zip(branches(instruction), operands[1:], strict=True))
            for branch, operand in pairs:
                self.visit(branch, wanted)
                self.pass_on(branch.parameters[0], operand)
            return
        (called,) = entered(instruction)
        self.visit(called, wanted)
        for parameter, operand in zip(called.parameters, operands, strict=True):
            self.pass_on(parameter, operand)

    def pass_on(self, parameter: Instruction, operand: Instruction) -> None:
        """What is needed of a parameter is needed of its argument."""
        for leaf in range(leaf_count(parameter)):
            self.request((operand, leaf), self.found.get((parameter, leaf), 0.0))
