"""The words in which XLA's GPU compiler says why it does not fuse, and hloopt's codes for the same reasons.

The words are those of XLA's logs (``priority_fusion_dump.txt``, verbose logs, its visualisation) of 2023
to 2026.  Most carry names or figures: they are recognised by a part that stays the same.
"""

from __future__ import annotations

from typing import Final

__all__ = ["XLA_REASONS", "code_of"]

XLA_REASONS: Final[tuple[tuple[str, str], ...]] = (
    # Requirements on a producer and a consumer, each by itself.
    ("not fusing into the output of the root instruction", "producer-is-root"),
    ("the producer is not fusible", "producer-not-fusible"),
    ("the consumer is not fusible", "consumer-not-fusible"),
    ("user is not fusible", "consumer-not-fusible"),
    ("producer is not loop-fusible", "producer-not-loop-fusible"),
    ("consumer is not input-fusible and not loop-fusible", "consumer-not-loop-or-input-fusible"),
    ("no users to fuse", "no-users"),
    ("user count is zero", "no-users"),
    ("there are only bitcast users", "only-bitcast-users"),
    ("not fusing into a single bitcast", "consumer-is-bitcast"),
    ("not fusing bitcast ops", "consumer-is-bitcast"),
    ("the producer is a fusion", "producer-is-fusion"),
    ("producer is a multi-output fusion", "producer-is-multi-output"),
    ("producer is not a loop fusion", "producer-not-loop-fusion"),
    ("not fusing constant", "constant-alone"),
    # What is computed again, and read again.
    ("fusion pass cannot duplicate", "would-duplicate"),
    ("expensive producer would be duplicated", "expensive-to-duplicate"),
    ("the producer is expensive, and the consumer reuses inputs", "producer-expensive-and-reused"),
    ("fusion would create a heavy computation", "heavy-computation"),
    ("overly large code duplication", "ir-size"),
    ("will generate huge ir", "ir-size"),
    ("will generate too large ir", "ir-size"),
    ("fusing the producer would break read coalescing", "breaks-coalescing"),
    ("uncoalesced read", "uncoalesced"),
    # Forms of kernels.
    ("both the producer and the consumer contain a reduce", "both-reduce"),
    ("would create a loop fusion", "loses-reduction-kernel"),
    ("reduction epilogue fusion only works for single user", "reduce-has-other-users"),
    ("reduction epilogue fusion", "reduce-epilogue"),
    ("do not fuse into the output of scatter", "scatter-producer"),
    ("do not fuse into the in-place operand of scatter", "scatter-in-place-operand"),
    ("uses the in-place operand of a scatter", "scatter-reads-in-place-operand"),
    ("shared memory usage would be over the budget", "shared-memory"),
    ("unnested reductions in fusion", "reductions"),
    ("number of operands and output buffers is larger", "operands"),
    ("number of operands and outputs exceeds", "operands"),
    # Updates in place.
    ("additional operand that has the same value as the in-place buffer", "in-place-same-operand"),
    ("multiple non-elementwise ops", "in-place-several-accesses"),
    ("will also fuse another non-elementwise op", "in-place-several-accesses"),
    ("lead to inplace conflict after fusion", "in-place-read-elsewhere"),
    ("multiple dus ops", "in-place-several-updates"),
    ("different shape than the update shape", "in-place-other-place"),
    ("dus and slice index mismatch", "in-place-other-place"),
    ("dus and ds index mismatch", "in-place-other-place"),
    ("unrecognized inplace update non-elementwise output pair", "in-place-unrecognized"),
    ("in-place operations are present", "producer-in-place"),
    # Several results.
    ("introduce a cycle", "would-cycle"),
    ("are connected", "siblings-connected"),
    ("not eligible as multi-output fusion root", "not-multi-output-root"),
    ("not fusible as mof root", "not-multi-output-root"),
    ("merging with variadic reductions", "not-multi-output-root"),
    ("there exists a non-gte user", "not-multi-output-root"),
    ("producer is physically transposing", "producer-transposes"),
    ("can't fuse multiple duss", "several-updates"),
    ("slices are non-overlapping", "disjoint-slices"),
    ("tiled reductions with different shapes", "different-reductions"),
    ("tiled transposes with different shapes", "different-transposes"),
    ("fusion of a transpose and a reduction", "reduction-and-transpose"),
    ("tiled transpose would become untiled", "transpose-would-become-loop"),
    ("nested transpose", "transpose-without-tiles"),
    ("different loop shapes", "different-loops"),
    # Times.
    ("slower if fused", "slower"),
    ("negative benefit", "slower"),
    ("not profitable", "shared-is-scalar"),
    # Triton's kernels.
    ("fusion can not be tiled", "triton-not-tiled"),
    ("tiledruntimedataorerror return status", "triton-not-tiled"),
    ("triton heroless fusion is not enabled", "triton-unsupported"),
    ("epilogue fusion for scan is not supported", "triton-unsupported"),
    ("unsupported", "triton-unsupported"),
    # Limits of a run.
    ("not fusing producer", "out-of-fuel"),
)
"""Parts of XLA's words, in small letters, with the code of the reason; the first that occurs counts."""


def code_of(words: str) -> str | None:
    """The code of a reason in XLA's words; None for unknown words."""
    small = words.lower()
    return next((code for part, code in XLA_REASONS if part in small), None)
