"""What a user can do about a refusal: the option that set the limit, advice where it counts, another pass."""

from __future__ import annotations

import dataclasses
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.fusion.decision import Decision
from hloopt.rewrite.pass_ import Pass
from hloopt.rewrite.spec import value_text

__all__ = [
    "HELD",
    "MERGES_ALL",
    "OPTIONS",
    "OTHER_PASSES",
    "Remedy",
    "is_advisable",
    "loop_advice",
    "remedies",
    "why_held",
]


MERGES_ALL: Final = "fusion-merger"
"""A strategy that merges a producer into all users or none: advice has to name each of them."""
_FAR = 1 << 30
"""A limit that nothing reaches."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """An option of the pass that refused, with the value that would let the pair through.

    ``value`` None means the decision's actual figure, and ``more`` so much above it.
    """

    option: str
    value: int | bool | None = None
    more: int = 0


OPTIONS: Final[dict[str, tuple[Remedy, ...]]] = {
    "operands": (Remedy("max_operands"),),
    "reductions": (Remedy("max_reductions"),),
    "shared-memory": (Remedy("shared_memory"),),
    "code-duplication": (Remedy("max_duplication"),),
    "not-emitted-twice": (Remedy("max_barrier_emissions"),),
    "barrier-users": (Remedy("max_barrier_users"),),
    "heavy-computation": (Remedy("repeat_ratio", _FAR),),
    "would-duplicate": (Remedy("may_duplicate", value=True),),
    "constant-not-scalar": (Remedy("max_constant"),),
    "ir-size": (Remedy("max_ir_size"),),
    "code-size": (Remedy("bounded_code", value=False),),
    "block-splits": (Remedy("max_splits"),),
    "both-reduce": (Remedy("significant_ratio", more=1),),
    "more-bytes": (Remedy("max_bytes"),),
    "uncoalesced": (Remedy("max_transposed", more=1),),
    "disjoint-slices": (Remedy("slice_overlap_bytes", value=-1),),
    "horizontal-size": (Remedy("elements"), Remedy("loop_elements")),
    "horizontal-instructions": (Remedy("instructions"), Remedy("loop_instructions")),
    "horizontal-parameters": (Remedy("parameter_bytes", more=1),),
    "horizontal-outputs": (
        Remedy("outputs", more=1),
        Remedy("loop_outputs", more=1),
        Remedy("loop_op_outputs", more=1),
    ),
    "out-of-fuel": (Remedy("fuel", -1),),
    "loop-slower": (Remedy("always", value=True),),
}
"""By code: the options of passes that set the limit, those that a pass does not have left out."""

_WRONG: Final = frozenset({
    "producer-is-root", "producer-orders-others", "consumer-shares-buffers", "in-place-same-operand",
    "in-place-several-accesses", "in-place-read-elsewhere", "in-place-several-updates",
    "in-place-other-place", "in-place-unrecognized", "scatter-in-place-operand",
    "scatter-reads-in-place-operand", "would-cycle", "siblings-connected", "loop-no-results",
})  # fmt: skip
_LIMITS: Final = frozenset({
    "shared-memory", "operands", "reductions", "out-of-fuel", "horizontal-outputs",
    "horizontal-parameters",
})  # fmt: skip
_NO_LOOP: Final = frozenset({
    "loop-side-effect", "loop-not-flat", "loop-mixes", "loop-gathered-condition", "loop-state-too-large",
    "loop-code-size", "loop-op",
})  # fmt: skip
_NOT_MADE: Final = frozenset({
    "producer-not-fusible", "consumer-not-fusible", "custom-call", "loop-carried", "no-users",
    "scatter-producer", "producer-is-fusion", "producer-is-multi-output", "producer-not-loop-fusible",
    "producer-not-loop-fusion", "producer-in-place", "producer-transposes", "consumer-is-custom",
    "consumer-is-tuple", "consumer-not-loop-or-input-fusible", "not-multi-output-root",
    "different-loops", "different-reductions", "different-transposes", "reduction-and-transpose",
    "transpose-would-become-loop", "transpose-without-tiles", "triton-unsupported", "triton-not-tiled",
    "gemm-epilogue", "horizontal-alone", "horizontal-other-users", "attention-unfit", "rows-unfit",
    "along-unfit", "product-unfit",
})  # fmt: skip

HELD: Final = _WRONG | _LIMITS | _NO_LOOP | _NOT_MADE
"""Reasons that hold whatever a user's rule or the pairs of a lock file say."""

_UNHEARD: Final = frozenset({
    ("constant-not-scalar", "priority-fusion"), ("consumer-is-bitcast", MERGES_ALL),
    ("not-into-all", MERGES_ALL),
})  # fmt: skip
"""Codes, each with a pass that checks it before it consults advice; others consult first."""

OTHER_PASSES: Final = {
    "dot": "gemm-fusion",
    "reduce": "triton-softmax-rewriter",
    "while": "loop-fusion",
}
"""By opcode: a pass that makes kernels of it which other strategies do not make."""


_LOOPS: Final = {
    "loop-carried": "where its work items are independent, loop-fusion makes one kernel of the whole loop",
    "loop-side-effect": "a loop without it could: what the host gives or takes can be read before the loop or"
    " written after it, a row for each iteration; a custom call has to be written as ops",
    "loop-not-flat": "while-loop-simplifier flattens a state where it may; --remarks missed says why not",
    "loop-mixes": "many small problems side by side (a batch) fit a block each; one as large as this runs a"
    " kernel a step",
    "loop-state-too-large": "a work item may carry less, or keep its steps as a stacked result (scan), which is"
    " written as it comes",
    "loop-code-size": "loops over the elements of larger arrays make less code than ops on each of them; a step"
    " of fewer instructions fits",
    "loop-op": "where an op is in the way, an expander may write it as others: --passes topk-expander,O3;"
    " hloopt passes lists them",
    "loop-gathered-condition": "a known trip count lets it through, or a condition that each work item can"
    " test by itself",
}
"""What the program itself could change about a loop that is not a kernel."""


def loop_advice(code: str) -> str:
    """What a program could do about the refusal of a loop as one kernel; empty where there is no advice."""
    return _LOOPS.get(code, "")


def remedies(decision: Decision, instance: Pass | None) -> list[str]:
    """``priority-fusion{max_operands=97}``: the options that let a pair through."""
    if instance is None or not dataclasses.is_dataclass(instance):
        return []
    had = {field.name for field in dataclasses.fields(instance)}
    found = []
    for remedy in OPTIONS.get(decision.code, ()):
        value = _value(remedy, decision)
        if remedy.option in had and value is not None and _is_limit(instance, remedy, decision):
            found.append(f"{instance.name}{{{remedy.option}={value_text(value)}}}")
    return found


def _value(remedy: Remedy, decision: Decision) -> int | bool | None:
    if remedy.value is not None:
        return remedy.value
    return decision.actual + remedy.more if decision.actual is not None else None


def _is_limit(instance: Pass, remedy: Remedy, decision: Decision) -> bool:
    """Whether an option set the limit: of several the one that did, and fuel may be that of the whole run."""
    is_sure = len(OPTIONS[decision.code]) == 1 and remedy.option != "fuel"
    return is_sure or getattr(instance, remedy.option) == decision.limit


def is_advisable(decision: Decision, pass_name: str = "") -> bool:
    """Whether a rule of the user, or a pair of a lock file, could change it in a pass."""
    code = decision.code
    return not decision.allowed and code not in HELD and (code, pass_name) not in _UNHEARD


def why_held(code: str) -> str:
    """Why advice does not count, in words."""
    if code in _WRONG:
        return "such a kernel would be wrong"
    if code in _NO_LOOP:
        return "no kernel can run such a loop"
    return "they lift no limit" if code in _LIMITS else "the pass makes no such kernel"
