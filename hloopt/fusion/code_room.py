"""The code size of a fusion, and its limit."""

from __future__ import annotations

from typing import Final

from hloopt.analysis.code_size import MOST_CODE, executed_instructions
from hloopt.analysis.written_code import LINE_BYTES, Written, body_size, written
from hloopt.fusion.decision import ALLOWED, Decision, forbid
from hloopt.ir import Instruction

__all__ = ["CodeRoom", "decide_code"]

_LOOKS_ON: Final = 4
"""Counting stops at this many times the limit in bytes."""


def decide_code(fusion: Instruction) -> Decision:
    """Whether a fusion of several kernels fits in one."""
    # What they have in common will be merged.
    room = MOST_CODE.of(executed_instructions(fusion) // 2)
    size = written(fusion, _LOOKS_ON * room).size
    return forbid("code-size", limit=room, actual=size) if size > room else ALLOWED


class CodeRoom:
    """Upper bounds on the code of ops and fusions, computed on demand and kept while fusions grow.

    XLA's count of emitted instructions (``ir_size``) decides whether a pair is examined at all.  The bound of
    a pair follows from the bounds of both; it may be too high, since what a producer writes twice may be the
    same.  Only a pair whose bound exceeds the limit is walked itself.  If it fits, its exact size is
    kept, and it is not walked again until later fusions fill the remaining room.
    """

    def __init__(self) -> None:
        self._known: dict[Instruction, Written] = {}
        self._pairs: dict[tuple[Instruction, Instruction], tuple[Written, Written, Written]] = {}

    def decide(
        self,
        producer: Instruction,
        consumer: Instruction,
        ir_size: int,
        *,
        is_result: bool = False,
    ) -> Decision:
        """Whether both fit in a kernel, of which the producer may be a result."""
        # What both have in common will be merged.
        least = MOST_CODE.of((body_size(producer) + body_size(consumer)) // 2)
        if ir_size * LINE_BYTES <= least:
            return ALLOWED
        both = self.of_pair(producer, consumer, is_result=is_result)
        if both.size <= max(least, MOST_CODE.of(both.instructions)):
            return ALLOWED
        enough = _LOOKS_ON * least
        both = written(consumer, enough, producer, is_result=is_result)
        room = MOST_CODE.of(both.instructions)
        if both.size > room:
            return forbid("code-size", limit=room, actual=both.size)
        self._pairs[producer, consumer] = self._of(producer), self._of(consumer), both
        return ALLOWED

    def has(self, producer: Instruction, consumer: Instruction, count: int, ir_size: int) -> bool:
        """Whether so many producers like this one surely fit in a kernel with the consumer."""
        instructions = count * body_size(producer) + body_size(consumer)
        least = MOST_CODE.of(instructions // 2)
        if ir_size * LINE_BYTES <= least:
            return True
        ours, theirs = self._of(producer), self._of(consumer)
        size = theirs.size + count * theirs.reads.get(producer, 0) * ours.size
        return size <= max(least, MOST_CODE.of(max(ours.instructions, theirs.instructions)))

    def of_pair(
        self, producer: Instruction, consumer: Instruction, *, is_result: bool = False
    ) -> Written:
        """The code size of both in one kernel."""
        ours, theirs = self._of(producer), self._of(consumer)
        known = self._pairs.get((producer, consumer))
        if known is not None and known[0] is ours and known[1] is theirs:
            return known[2]
        if producer in consumer.operands and producer not in theirs.reads:
            # It has become a fusion since the consumer was walked.
            self.forget(consumer)
            theirs = self._of(consumer)
        return theirs.joined(producer, ours, is_result=is_result)

    def of_fused(self, producer: Instruction, consumer: Instruction) -> Written | None:
        """As ``of_pair``; None where the consumer has no bound yet."""
        return self.of_pair(producer, consumer) if consumer in self._known else None

    def became(self, fusion: Instruction, code: Written | None) -> None:
        """A fusion was made or has grown to ``code``; without it the bound is computed when it is needed."""
        self.forget(fusion)
        if code is not None:
            self._known[fusion] = code

    def forget(self, instruction: Instruction) -> None:
        """An instruction was changed or removed."""
        self._known.pop(instruction, None)

    def _of(self, instruction: Instruction) -> Written:
        known = self._known.get(instruction)
        if known is None:
            known = self._known[instruction] = written(instruction, MOST_CODE.most)
        return known
