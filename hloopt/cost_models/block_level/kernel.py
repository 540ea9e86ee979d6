"""One or two instructions as one kernel: their bodies seen as one graph, without building it."""

from __future__ import annotations

from hloopt.ir import Computation, Instruction

__all__ = ["TiledKernel"]


class TiledKernel:
    """The kernel of an op or fusion, or of a producer fused into a consumer.

    A node is an instruction: one of a body (never a parameter), or one outside whose value is read from memory.
    """

    def __init__(self, consumer: Instruction, producer: Instruction | None = None) -> None:
        self._producer = producer
        self._outer = {
            instruction for instruction in (producer, consumer) if instruction is not None
        }
        self._fusions: dict[Computation, Instruction] = {
            instruction.calls: instruction
            for instruction in self._outer
            if instruction.opcode == "fusion"
        }
        self._operands: dict[Instruction, tuple[Instruction, ...]] = {}
        root = self._inside(consumer)
        self.roots: tuple[Instruction, ...] = (
            tuple(map(self._resolve, root.operands))
            if consumer.opcode == "fusion" and root.opcode == "tuple"
            else (root,)
        )

    def __contains__(self, node: Instruction) -> bool:
        """Whether the kernel computes a node; else it reads it."""
        if node.computation is not None and node.computation in self._fusions:
            return True
        return node in self._outer

    def operands(self, node: Instruction) -> tuple[Instruction, ...]:
        """The nodes that a node of the kernel is computed from."""
        known = self._operands.get(node)
        if known is None:
            known = self._operands[node] = tuple(map(self._resolve, node.operands))
        return known

    def _resolve(self, instruction: Instruction) -> Instruction:
        while True:
            if instruction is self._producer:
                return self._inside(instruction)
            fusion = (
                self._fusions.get(instruction.computation)
                if instruction.opcode == "parameter" and instruction.computation is not None
                else None
            )
            if fusion is None:
                return instruction
            instruction = fusion.operands[instruction.parameter_number]

    def _inside(self, instruction: Instruction) -> Instruction:
        """What computes an op's or fusion's value."""
        if instruction.opcode != "fusion":
            return instruction
        body = instruction.calls
        return self._resolve(body.root) if body.root.opcode == "parameter" else body.root
