"""What an instruction computes and reads: XLA's GPU cost analysis with its utilisations.

A fusion is walked from its root to its parameters.  Every instruction of the body has a set of *element-wise
use roots*: the indices under which it is computed.  Users that keep indices hand their sets on, every other use
makes a new root.
"""

from __future__ import annotations

from dataclasses import dataclass

from hloopt.ir import Instruction

__all__ = ["OperandUse", "Usage", "UsageAnalysis"]


@dataclass(frozen=True, slots=True)
class OperandUse:
    """How one operand is read.

    bytes         read of it in all, repeated reads counted each time
    utilization   how often each of its elements is used on average; 0.5 where only half of it is
    emitted       how often the code of a producer fused in its place would be written
    """

    bytes: int
    utilization: float
    emitted: int = 1


@dataclass(frozen=True, slots=True)
class Usage:
    """Of one op or fusion.

    flops          as the model counts them (clock cycles an element, for XLA's profiles)
    bytes_written  of the results; of an update in place only what changes
    ir_size        instructions that code is written for, repetitions included
    splits         the same for ops that break the cache of index computations (concatenate, pad, reduce ...)
    operands       one for each operand, in order
    """

    flops: int
    bytes_written: int
    ir_size: int
    splits: int
    operands: tuple[OperandUse, ...]


class UsageAnalysis:
    """Usages by instruction, remembered until they are forgotten."""

    def of(self, instruction: Instruction) -> Usage:
        """The usage of an op or fusion."""
        raise NotImplementedError

    def forget(self, instruction: Instruction) -> None:
        """An instruction has changed, or is gone; its body is forgotten with it."""
        raise NotImplementedError

    def common_utilization(
        self, producer: Instruction, consumer: Instruction, operand: Instruction
    ) -> float:
        """The share of ``operand``, read by both, that a kernel of both would read only once."""
        raise NotImplementedError
