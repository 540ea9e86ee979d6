"""The limits of fusion strategies, with XLA's values, and what kernels use of them."""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import Any, Self

from hloopt.analysis.reduction import is_unnested, reduction_dims
from hloopt.analysis.transpose import tiled_transpose
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.fusion.decision import ALLOWED, Decision, forbid
from hloopt.ir import Instruction
from hloopt.targets import Target
from hloopt.types import ArrayShape, Shape, TupleShape

__all__ = [
    "CodeLimits",
    "Footprint",
    "Footprints",
    "FusionLimits",
    "KernelLimits",
    "check_counts",
    "decide_budget",
    "decide_operands",
    "footprint_of",
    "fused_ops",
    "reduction_count",
    "shared_memory_of",
    "subshapes",
]

_UNLIMITED = sys.maxsize
_MAY_BE_OFF = frozenset({"fuel", "slice_overlap_bytes"})


def shared_memory_of(target: Target, given: int) -> int:
    """Bytes a block may use: those given, else what the device has; without limit where it has no blocks."""
    return given or target.shared_per_block or _UNLIMITED


def check_counts(options: Any) -> None:
    """Raise ``UsageError`` for a number below 0 among a pass's options, but for those that it turns off."""
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name not in _MAY_BE_OFF and isinstance(value, int | float) and value < 0:
            name = getattr(options, "name", type(options).__name__)
            raise UsageError(f"{name}: {field.name}={value}: less than 0")


@dataclass(frozen=True)
class KernelLimits:
    """What one kernel may hold.

    max_operands            operands and outputs of a fusion (up to 2023: 64)
    max_reductions          reductions with their own tiled kernel
    shared_memory           bytes a block may use
    row_bytes               of shared memory a row reduction needs for each byte of an element it reads
    column_bytes            the same for a column reduction (up to 2023: 2112)
    """

    max_operands: int = 96
    max_reductions: int = 8
    shared_memory: int = 49152
    row_bytes: int = 32
    column_bytes: int = 4128

    def __post_init__(self) -> None:
        check_counts(self)

    @classmethod
    def of(cls, options: Any, **given: int) -> Self:
        """The limits among a pass's options, but for those that are given."""
        names = [entry.name for entry in fields(cls) if entry.name not in given]
        return cls(**{name: getattr(options, name) for name in names}, **given)


@dataclass(frozen=True)
class CodeLimits(KernelLimits):
    """What one kernel may hold, and what may be written several times in a loop kernel.

    max_duplication         times the code of one instruction may be written in a loop kernel
    max_barrier_emissions   the same for concatenate, dot, dynamic-update-slice, pad, reduce and
                            reduce-window, whose index computations are not shared
    max_barrier_users       users such an instruction may have when it joins a fusion
    """

    max_duplication: int = 15
    max_barrier_emissions: int = 1
    max_barrier_users: int = 1


@dataclass(frozen=True)
class FusionLimits(CodeLimits):
    """All limits of instruction fusion.

    repeat_ratio            elements read for each result from which on a serial reduce or a window is
                            not repeated
    """

    repeat_ratio: int = 10


@dataclass(frozen=True, slots=True)
class Footprint:
    """The resources of one kernel: sums over what it computes.

    shared_memory    bytes a block needs
    reductions       with their own tiled kernel
    reduction_ratio  elements read for each result, the most of any reduce that is not variadic; 0 without
    """

    shared_memory: int = 0
    reductions: int = 0
    reduction_ratio: int = 0

    def __add__(self, other: Footprint) -> Footprint:
        return Footprint(
            self.shared_memory + other.shared_memory,
            self.reductions + other.reductions,
            max(self.reduction_ratio, other.reduction_ratio),
        )

    @classmethod
    def of(cls, op: Instruction, limits: KernelLimits) -> Footprint:
        """The footprint of an op alone."""
        if op.opcode not in _COUNTED:
            return _NOTHING
        return cls(_shared_memory(op, limits), reduction_count(op), _reduction_ratio(op))


class Footprints:
    """The footprints of ops and fusions, cached while they stay unchanged."""

    def __init__(self, limits: KernelLimits) -> None:
        self._limits = limits
        self._known: dict[Instruction, Footprint] = {}

    def of(self, instruction: Instruction) -> Footprint:
        """The footprint of an op or fusion."""
        known = self._known.get(instruction)
        if known is None:
            known = self._known[instruction] = footprint_of(instruction, self._limits)
        return known

    def became(self, fusion: Instruction, footprint: Footprint) -> None:
        """A fusion was made or has grown; its footprint is the sum of those it was made of."""
        self._known[fusion] = footprint

    def forget(self, instruction: Instruction) -> None:
        """An instruction was changed or removed."""
        self._known.pop(instruction, None)


_COUNTED = ("reduce", "transpose")
_NOTHING = Footprint()


def fused_ops(instruction: Instruction) -> list[Instruction]:
    """What a fusion computes; an op computes itself."""
    if instruction.opcode != "fusion":
        return [instruction]
    return [entry for entry in instruction.calls if entry.opcode not in ("parameter", "tuple")]


def footprint_of(instruction: Instruction, limits: KernelLimits) -> Footprint:
    """The footprint of an op or fusion."""
    total = _NOTHING
    for entry in fused_ops(instruction):
        if entry.opcode in _COUNTED:
            total += Footprint.of(entry, limits)
    return total


def _reduction_ratio(op: Instruction) -> int:
    if op.opcode != "reduce" or not isinstance(op.shape, ArrayShape):
        return 0
    return op.operands[0].array.elements // max(op.shape.elements, 1)


def decide_budget(
    both: Footprint,
    producer: Instruction,
    consumer: Instruction,
    limits: KernelLimits,
    *,
    multi_output: bool = False,
) -> Decision:
    """Whether a block has room for producer and consumer (XLA's ``FusionFitsInBudget``)."""
    if both.shared_memory > limits.shared_memory:
        return forbid("shared-memory", limit=limits.shared_memory, actual=both.shared_memory)
    if both.reductions > limits.max_reductions:
        return forbid("reductions", limit=limits.max_reductions, actual=both.reductions)
    return decide_operands(producer, consumer, limits, multi_output=multi_output)


def _shared_memory(instruction: Instruction, limits: KernelLimits) -> int:
    """Bytes of shared memory one block of a tiled kernel needs for an op (not for a fusion)."""
    if instruction.opcode == "reduce" and is_unnested(instruction):
        form = reduction_dims(instruction)
        inputs = instruction.fold_inputs
        element_bytes = sum(
            (operand.shape.dtype.bits + 7) // 8
            for operand in inputs
            if isinstance(operand.shape, ArrayShape)
        )
        is_row = form is not None and form.is_row
        per_byte = limits.row_bytes if is_row else limits.column_bytes
        return per_byte * element_bytes
    tiled = tiled_transpose(instruction)
    return tiled.shared_bytes if tiled is not None else 0


def reduction_count(instruction: Instruction) -> int:
    """1 for a reduce with its own tiled kernel, else 0."""
    return int(instruction.opcode == "reduce" and is_unnested(instruction))


def decide_operands(
    producer: Instruction,
    consumer: Instruction,
    limits: KernelLimits,
    *,
    multi_output: bool = False,
) -> Decision:
    """Whether operands and outputs of producer and consumer together stay within the limit.

    A fusion that gets no more operands than the consumer has is always accepted, unless it gets the results of
    both (``multi_output``).
    """
    outputs = subshapes(producer.shape) + subshapes(consumer.shape)
    most = len(producer.operands) + len(consumer.operands) - 1 + outputs
    if most <= limits.max_operands:
        return ALLOWED
    union = {*producer.operands, *consumer.operands} - {producer, consumer}
    if not multi_output and len(union) <= len(consumer.operands):
        return ALLOWED
    if len(union) + outputs <= limits.max_operands:
        return ALLOWED
    return forbid("operands", limit=limits.max_operands, actual=len(union) + outputs)


def subshapes(shape: Shape) -> int:
    """The number of nodes of a shape: 1 for an array, a tuple counts itself and its elements."""
    if isinstance(shape, TupleShape):
        inner = [entry for entry in shape.elements if isinstance(entry, TupleShape)]
        return 1 + len(shape.elements) - len(inner) + sum(map(subshapes, inner))
    return 1
