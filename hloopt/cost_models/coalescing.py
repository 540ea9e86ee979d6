"""Whether a kernel reads whole transactions: the rule of XLA's cost model, of whole kernels.

Reads are uncoalesced where the kernel is no transpose kernel and an op in it changes which dimension is
fastest in memory (unless what it reads is a broadcast or iota), and where two reductions share one kernel.
"""

from __future__ import annotations

from typing import Final

from hloopt.analysis.elementwise import is_elementwise
from hloopt.analysis.emitters.kind import Kind
from hloopt.analysis.hero import find_hero, is_real_reduction_hero, roots
from hloopt.analysis.layout import major_to_minor
from hloopt.analysis.reduction import is_unnested
from hloopt.ir import Computation, Instruction
from hloopt.types import ArrayShape

__all__ = ["Coalescing", "moves_fastest_dimension"]

_MOVING: Final = ("copy", "transpose")


class Coalescing:
    """What is known of instructions, remembered until it is forgotten."""

    def __init__(self) -> None:
        self._transposes: dict[Instruction, bool] = {}
        self._reduces: dict[Instruction, bool] = {}

    def alone(self, kind: Kind, instruction: Instruction) -> bool:
        """Whether all reads of a kernel are coalesced."""
        return kind == "transpose" or not self._is_bad_transpose(instruction)

    def pair(self, kind: Kind, producer: Instruction, consumer: Instruction) -> bool:
        """The same of the kernel of both."""
        if kind != "transpose" and (
            self._is_bad_transpose(producer) or self._is_bad_transpose(consumer)
        ):
            return False
        return not (
            kind == "reduction" and self._is_reduction(producer) and self._is_reduction(consumer)
        )

    def forget(self, instruction: Instruction) -> None:
        """An instruction has changed, or is gone."""
        self._transposes.pop(instruction, None)
        self._reduces.pop(instruction, None)

    def _is_bad_transpose(self, instruction: Instruction) -> bool:
        known = self._transposes.get(instruction)
        if known is None:
            if instruction.opcode == "fusion":
                body: Computation = instruction.attributes["calls"]
                known = any(entry.opcode in _MOVING and _transposes_data(entry) for entry in body)
            else:
                known = _transposes_data(instruction)
            self._transposes[instruction] = known
        return known

    def _is_reduction(self, instruction: Instruction) -> bool:
        known = self._reduces.get(instruction)
        if known is None:
            known = self._reduces[instruction] = _has_reduction_kernel(instruction)
        return known


def moves_fastest_dimension(instruction: Instruction) -> bool:
    """Whether a transpose or copy changes the fastest dimension; those of size 1 do not count."""
    if instruction.opcode not in _MOVING:
        return False
    before = _fastest(instruction.operands[0])
    after = _fastest(instruction)
    if before is None or after is None:
        return False
    if instruction.opcode == "transpose":
        after = instruction.attributes["dimensions"][after]
    return before != after


def _fastest(instruction: Instruction) -> int | None:
    shape = instruction.shape
    if not isinstance(shape, ArrayShape):
        return None
    for dimension in reversed(major_to_minor(shape)):
        if shape.dims[dimension] != 1:
            return dimension
    return None


def _transposes_data(instruction: Instruction) -> bool:
    return moves_fastest_dimension(instruction) and not _is_spread(instruction.operands[0])


def _is_spread(instruction: Instruction) -> bool:
    """Whether an array is a broadcast or iota, seen through elementwise ops of one operand."""
    while instruction.opcode not in ("broadcast", "iota"):
        if len(instruction.operands) != 1:
            return False
        if instruction.opcode != "bitcast" and not is_elementwise(instruction):
            return False
        instruction = instruction.operands[0]
    return True


def _has_reduction_kernel(instruction: Instruction) -> bool:
    if instruction.opcode != "fusion":
        return instruction.opcode == "reduce" and is_unnested(instruction)
    body: Computation = instruction.attributes["calls"]
    return any(is_real_reduction_hero(root, find_hero(root)) for root in roots(body))
