"""The decision whether two instructions may be fused, with its reason.

``REASONS`` is the list of all reasons; the codes are stable, for people who count or filter them.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from hloopt.cost_models.model import Comparison
from hloopt.dataclass import dataclass

__all__ = ["ALLOWED", "REASONS", "Decision", "forbid"]

REASONS: Final[dict[str, str]] = {
    "producer-not-fusible": "no kernel of this pass computes the producer",
    "custom-call": "a custom call is never fused, its kernel is made elsewhere: '{words}'",
    "loop-carried": "results of the loop's body are carried to its next iteration in {words}: nothing is"
    " fused across iterations",
    "producer-is-root": "the producer is the computation's result",
    "producer-is-fusion": "the producer is a fusion already",
    "producer-is-multi-output": "the producer has several outputs",
    "producer-not-loop-fusible": "the producer cannot be computed element by element",
    "producer-orders-others": "other instructions must run after the producer",
    "consumer-not-fusible": "no kernel of this pass computes the consumer",
    "consumer-not-loop-or-input-fusible": "no loop, reduction, scatter or transpose kernel is"
    " built around the consumer",
    "producer-expensive-and-reused": "the producer is expensive and the consumer reads its elements"
    " more than once",
    "breaks-coalescing": "the producer reorders memory that the reduction would read in order",
    "consumer-shares-buffers": "the consumer writes its results into the buffers of operands",
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
    " computations at most {limit}",
    "barrier-users": "the producer has {actual} users, and its index computations serve at most {limit}",
    "out-of-fuel": "the limit of {limit} fusions is reached",
    "advised": "the user wants it so: {words}",
    "no-users": "nothing uses the producer",
    "only-bitcast-users": "bitcasts alone use the producer, and a bitcast needs no kernel",
    "consumer-is-bitcast": "the consumer is a bitcast, which needs no kernel",
    "consumer-is-tuple": "the consumer is a tuple: it forwards results and computes nothing",
    "consumer-is-custom": "the consumer's kernel is made elsewhere",
    "consumer-no-fusion": "the consumer is neither a loop fusion nor a reduction fusion",
    "holds-expensive": "the producer holds {words}, which is expensive to compute again",
    "producer-not-loop-fusion": "the producer is a fusion, but its kernel is not a plain loop",
    "scatter-producer": "nothing is fused into the results of a scatter",
    "scatter-in-place-operand": "the producer is the operand that the scatter updates in place",
    "scatter-reads-in-place-operand": "the producer reads the operand that the scatter updates in place",
    "both-reduce": "both hold a reduce that reads {actual} elements or more for each result (limit {limit})",
    "loses-reduction-kernel": "the producer has a reduction kernel, and both together would have a loop",
    "ir-size": "the kernel's code would have {actual} instructions, more than {limit}",
    "code-size": "the kernel would have {actual} bytes of code or more, {limit} at most for its instructions",
    "block-splits": "index computations would be interrupted {actual} times, more than {limit}",
    "in-place-would-break": "the results could not be updated in place any more",
    "slower": "fused it would take {fused:.3f} us, apart it takes {unfused:.3f} us",
    "more-bytes": "the kernels would move {actual} % of the bytes they move now, more than {limit} %",
    "would-cycle": "the fusion would need its own result",
    "uncoalesced": "{actual} % of what the producer reads is transposed (limit {limit} %)",
    "not-multi-output-root": "the consumer's kernel cannot have other results beside its own",
    "producer-in-place": "the producer updates an operand in place",
    "producer-transposes": "the producer reorders memory",
    "different-loops": "both would need one loop, over the same dimensions",
    "different-reductions": "their reductions have different forms",
    "different-transposes": "their transposes have different forms",
    "reduction-and-transpose": "one is a reduction kernel, the other a transpose",
    "transpose-without-tiles": "one is a kernel of tiles, the other reorders memory one element at a time",
    "transpose-would-become-loop": "the transpose would lose its kernel",
    "disjoint-slices": "both read other parts of their common operand",
    "siblings-connected": "one needs the other's result",
    "several-updates": "two dynamic-update-slices have no common kernel",
    "shared-is-scalar": "what both read is a single number",
    "not-into-all": "the producer goes into all its users or into none, and {words} cannot take it",
    "triton-unsupported": "Triton kernels have no {words}",
    "triton-not-tiled": "the kernel of both cannot be cut into tiles: {words}",
    "gemm-epilogue": "a Triton kernel of a matrix product takes {words}",
    "triton-slower": "tiled it would take {fused:.3f} us, apart it takes {unfused:.3f} us",
    "horizontal-size": "the kernel has {actual} elements, more than {limit}",
    "horizontal-instructions": "the kernel has {actual} instructions, more than {limit}",
    "horizontal-parameters": "the parameters would take {actual} bytes, more than {limit}",
    "horizontal-other-users": "others use the results, too",
    "horizontal-outputs": "the kernels beside each other would have {actual} results, more than {limit}",
    "horizontal-layout": "an array in the kernel is not row-major",
    "horizontal-shares-parameter": "another kernel beside it reads the same parameter, which could not be"
    " written in place any more",
    "horizontal-alone": "nothing of the same kind stands beside it",
    "loop-side-effect": "the loop cannot run within a kernel: {words}",
    "loop-not-flat": "the loop's state is not a flat tuple of arrays: {words}",
    "loop-mixes": "no thread or block can run its part of the loop alone: {words}",
    "loop-gathered-condition": "whether the loop goes on depends on what all work items compute: {words}",
    "loop-state-too-large": "a work item's part of the state does not fit in a kernel: {words}",
    "loop-code-size": "the loop's body makes more code than a compiler should be given: {words}",
    "loop-op": "the loop holds what loop kernels cannot compute: {words}",
    "loop-no-results": "nothing reads what the loop computes",
    "attention-unfit": "no kernel computes scores without writing them here: {words}",
    "attention-slower": "without writing scores it would take {fused:.3f} us, with it {unfused:.3f} us",
    "rows-unfit": "no kernel goes over whole rows here: {words}",
    "rows-slower": "over whole rows one kernel would take {fused:.3f} us, apart they take {unfused:.3f} us",
    "rows-short": "a thread folds rows of so few elements where they are read, which can be in several kernels",
    "along-unfit": "no kernel goes along a dimension here: {words}",
    "along-slower": "with its tables one kernel would take {fused:.3f} us, apart they take {unfused:.3f} us",
    "product-unfit": "no kernel of matrix units takes it: {words}",
    "product-slower": "with what is around it the product would take {fused:.3f} us, apart {unfused:.3f} us",
    "loop-slower": "as one kernel it would take longer: {words}",
}


@dataclass(frozen=True, slots=True)
class Decision:
    """Allowed, or forbidden for the reason ``code``; limit and actual value where there are figures.

    ``words`` are those of a user, or name what the reason is about; ``comparison`` are the times that decided.
    An answer of the user (``advised``) has words where it allows, too.
    """

    allowed: bool
    code: str = ""
    limit: int | None = None
    actual: int | None = None
    words: str = ""
    comparison: Comparison | None = None

    def __bool__(self) -> bool:
        return self.allowed

    @property
    def wanted(self) -> bool:
        """Whether the user requested it."""
        return self.allowed and bool(self.words)

    @property
    def reason(self) -> str:
        """The reason in words; empty when allowed."""
        if self.allowed:
            return self.words
        times = self.comparison or _NO_TIMES
        return REASONS[self.code].format(
            limit=self.limit,
            actual=self.actual,
            words=self.words,
            fused=times.fused_us,
            unfused=times.unfused_us,
        )

    def __str__(self) -> str:
        return "allowed" if self.allowed else f"{self.code}: {self.reason}"


_NO_TIMES: Final = Comparison(0.0, 0.0)
ALLOWED: Final = Decision(True)


def forbid(
    code: str,
    *,
    limit: int | None = None,
    actual: int | None = None,
    words: str = "",
    comparison: Comparison | None = None,
) -> Decision:
    """A refusal; raises ``KeyError`` for a code that is not in ``REASONS``."""
    if limit is None and actual is None and not words and comparison is None:
        return _plain(code)
    if code not in REASONS:
        raise KeyError(code)
    return Decision(False, code, limit, actual, words, comparison)


@cache
def _plain(code: str) -> Decision:
    if code not in REASONS:
        raise KeyError(code)
    return Decision(False, code)
