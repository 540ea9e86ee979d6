"""Whether a kernel reads whole transactions: the rule of XLA's cost model, of whole kernels.

Reads are uncoalesced where the kernel is not a transpose kernel and an op in it changes which dimension is
fastest in memory (unless what it reads is a broadcast or iota), and where two reductions share one kernel.
"""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from hloopt.analysis.elementwise import is_elementwise
from hloopt.analysis.emitters.kind import EmitterKind
from hloopt.analysis.hero import find_hero, is_real_reduction_hero, roots
from hloopt.analysis.layout import major_to_minor
from hloopt.analysis.reduction import is_unnested
from hloopt.cost_models.body_usage import BodyUsage
from hloopt.cost_models.usage import UsageAnalysis
from hloopt.ir import Instruction
from hloopt.types import ArrayShape

__all__ = ["MOVING", "Coalescing", "moves_fastest_dimension"]

MOVING: Final = ("copy", "transpose")
"""Ops whose reads are coalesced or not by what they read, too."""
_SPREAD: Final = ("broadcast", "iota")


class Coalescing:
    """Facts about instructions, cached until they are invalidated; ``usage`` follows fusions that grow."""

    def __init__(self, usage: UsageAnalysis) -> None:
        self._usage = usage
        self._moved: WeakKeyDictionary[BodyUsage, _Moved] = WeakKeyDictionary()
        self._transposes: dict[Instruction, bool] = {}
        self._reduces: dict[Instruction, bool] = {}
        self._spread: dict[Instruction, bool] = {}

    def alone(self, kind: EmitterKind, instruction: Instruction) -> bool:
        """Whether all reads of a kernel are coalesced."""
        return kind == "transpose" or not self._is_bad_transpose(instruction)

    def pair(self, kind: EmitterKind, producer: Instruction, consumer: Instruction) -> bool:
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
        self._spread.clear()

    def _is_bad_transpose(self, instruction: Instruction) -> bool:
        known = self._transposes.get(instruction)
        if known is None:
            if instruction.opcode == "fusion":
                body = self._usage.body(instruction)
                known = bool(body.moving) and self._moved.setdefault(body, _Moved()).update(body)
            else:
                known = moves_fastest_dimension(instruction) and not self._is_spread(
                    instruction.operands[0]
                )
            self._transposes[instruction] = known
        return known

    def _is_reduction(self, instruction: Instruction) -> bool:
        known = self._reduces.get(instruction)
        if known is None:
            may_be = "reduce" in self._usage.opcodes(instruction)
            known = self._reduces[instruction] = may_be and _has_reduction_kernel(instruction)
        return known

    def _is_spread(self, instruction: Instruction) -> bool:
        """Whether an array is a broadcast or iota, seen through elementwise ops of one operand."""
        passed = []
        while instruction not in self._spread and _forwards(instruction):
            passed.append(instruction)
            instruction = instruction.operands[0]
        found = self._spread.get(instruction, instruction.opcode in _SPREAD)
        self._spread.update(dict.fromkeys(passed, found))
        return found


class _Moved:
    """The copies and transposes of a growing body: whether any reads other than a broadcast or iota.

    Each of them is followed up to a parameter once, and on from there when something has taken its place.
    """

    def __init__(self) -> None:
        self._seen = 0
        self._found = False
        self._last: dict[Instruction, Instruction] = {}
        self._passed: set[Instruction] = set()

    def update(self, body: BodyUsage) -> bool:
        """The current answer."""
        fresh = body.moving[self._seen :]
        self._seen = len(body.moving)
        starts = [*self._last.values(), *filter(moves_fastest_dimension, fresh)]
        self._last = {}
        for last in starts:
            source = last.operands[0]
            while source not in self._passed and _forwards(source):
                self._passed.add(source)
                last, source = source, source.operands[0]
            if source.opcode == "parameter":
                self._last[source] = last
            elif source not in self._passed and source.opcode not in _SPREAD:
                self._found = True
        return self._found or bool(self._last)


def moves_fastest_dimension(instruction: Instruction) -> bool:
    """Whether a transpose or copy changes the fastest dimension; those of size 1 do not count."""
    if instruction.opcode not in MOVING:
        return False
    before = _fastest(instruction.operands[0])
    after = _fastest(instruction)
    if before is None or after is None:
        return False
    if instruction.opcode == "transpose":
        after = instruction.dimensions[after]
    return before != after


def _fastest(instruction: Instruction) -> int | None:
    shape = instruction.shape
    if not isinstance(shape, ArrayShape):
        return None
    for dimension in reversed(major_to_minor(shape)):
        if shape.dims[dimension] != 1:
            return dimension
    return None


def _forwards(instruction: Instruction) -> bool:
    if len(instruction.operands) != 1 or instruction.opcode in _SPREAD:
        return False
    return instruction.opcode == "bitcast" or is_elementwise(instruction)


def _has_reduction_kernel(instruction: Instruction) -> bool:
    if instruction.opcode != "fusion":
        return instruction.opcode == "reduce" and is_unnested(instruction)
    body = instruction.calls
    return any(is_real_reduction_hero(root, find_hero(root)) for root in roots(body))
