"""May these two be fused: an answer with its reason.

``REASONS`` is the list of all reasons; the codes are stable, for people who count or filter them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

__all__ = ["ALLOWED", "REASONS", "Decision", "forbid"]

REASONS: Final[dict[str, str]] = {
    "producer-not-fusible": "the producer cannot be part of any fusion",
    "producer-is-root": "the producer is the computation's result",
    "producer-is-fusion": "the producer is a fusion already",
    "producer-is-multi-output": "the producer has several outputs",
    "producer-not-loop-fusible": "the producer cannot be computed element by element",
    "producer-orders-others": "other instructions must run after the producer",
    "consumer-not-fusible": "the consumer cannot be part of any fusion",
    "consumer-not-loop-or-input-fusible": "no loop, reduction, scatter or transpose kernel is"
    " built around the consumer",
    "producer-expensive-and-reused": "the producer is expensive and the consumer reads its elements"
    " more than once",
    "breaks-coalescing": "the producer reorders memory that the reduction would read in order",
    "consumer-shares-buffers": "the consumer names operands by number whose buffers it writes over",
    "reduce-epilogue": "only conversions and bitcasts follow a reduction in its kernel",
    "reduce-has-other-users": "a reduction is computed once and has other users",
    "constant-not-scalar": "the constant has more than one element",
    "constant-alone": "a constant goes into fusions only",
    "heavy-computation": "the producer computes much for each element and the consumer reads elements"
    " again and again",
    "would-duplicate": "other users keep the producer, and duplication is off",
    "expensive-to-duplicate": "other users keep the producer, and it is expensive to compute again",
    "would-read-more": "the producer cannot be fused into all its users, and the kernel would read"
    " more bytes",
    "in-place-same-operand": "the value updated in place is also read through another operand",
    "in-place-several-accesses": "the producer reads the updated value in more than one way",
    "in-place-read-elsewhere": "the updated value is read at other places than those written",
    "in-place-several-updates": "several updates in place",
    "in-place-other-place": "the slice read is not the slice written",
    "in-place-unrecognized": "the producer's access to the updated value is not understood",
    "shared-memory": "the kernel would need {actual} bytes of shared memory, a block has {limit}",
    "reductions": "the kernel would hold {actual} reductions, more than {limit}",
    "operands": "the kernel would have {actual} operands and outputs, more than {limit}",
    "code-duplication": "the producer's code would be written {actual} times, more than {limit}",
    "not-emitted-twice": "the producer's code would be written {actual} times, and its index"
    " computations bear {limit}",
    "barrier-users": "the producer has {actual} users, and its index computations bear {limit}",
    "out-of-fuel": "the limit of {limit} fusions is reached",
}


@dataclass(frozen=True, slots=True)
class Decision:
    """Allowed, or forbidden for the reason ``code``; limit and actual value where there are figures."""

    allowed: bool
    code: str = ""
    limit: int | None = None
    actual: int | None = None

    def __bool__(self) -> bool:
        return self.allowed

    @property
    def reason(self) -> str:
        """The reason in words; empty when allowed."""
        if self.allowed:
            return ""
        return REASONS[self.code].format(limit=self.limit, actual=self.actual)

    def __str__(self) -> str:
        return "allowed" if self.allowed else f"{self.code}: {self.reason}"


ALLOWED: Final = Decision(True)


def forbid(code: str, *, limit: int | None = None, actual: int | None = None) -> Decision:
    """A refusal; raises ``KeyError`` for a code that is not in ``REASONS``."""
    if limit is None and actual is None:
        return _plain(code)
    if code not in REASONS:
        raise KeyError(code)
    return Decision(False, code, limit, actual)


@cache
def _plain(code: str) -> Decision:
    if code not in REASONS:
        raise KeyError(code)
    return Decision(False, code)
