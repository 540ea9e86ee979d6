"""What a user can do about a refusal: the option that set the limit, or advice where advice is heard."""

from __future__ import annotations

import dataclasses
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.fusion.decision import Decision
from hloopt.rewrite.pass_ import Pass
from hloopt.rewrite.spec import value_text

__all__ = ["HELD", "OPTIONS", "Remedy", "is_advisable", "loop_way", "remedies"]


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
    "block-splits": (Remedy("max_splits"),),
    "both-reduce": (Remedy("significant_ratio", more=1),),
    "more-bytes": (Remedy("max_bytes"),),
    "uncoalesced": (Remedy("max_transposed"),),
    "disjoint-slices": (Remedy("slice_overlap_bytes", value=-1),),
    "horizontal-size": (Remedy("elements"), Remedy("loop_elements")),
    "horizontal-instructions": (Remedy("instructions"), Remedy("loop_instructions")),
    "horizontal-parameters": (Remedy("parameter_bytes"),),
    "horizontal-outputs": (Remedy("outputs"), Remedy("loop_outputs")),
    "out-of-fuel": (Remedy("fuel", -1),),
    "loop-slower": (Remedy("always", value=True),),
}
"""By code: the options of passes that set the limit, those that a pass does not have left out."""

HELD: Final = frozenset({
    # The module or its kernel would be wrong.
    "producer-not-fusible", "producer-is-root", "producer-orders-others", "consumer-not-fusible",
    "consumer-shares-buffers", "in-place-same-operand", "in-place-several-accesses",
    "in-place-read-elsewhere", "in-place-several-updates", "in-place-other-place",
    "in-place-unrecognized", "shared-memory", "operands", "reductions", "out-of-fuel", "no-users",
    "scatter-producer", "scatter-in-place-operand", "scatter-reads-in-place-operand", "would-cycle",
    "siblings-connected", "custom-call", "loop-carried", "horizontal-shares-parameter",
    # The strategy does not make such kernels.
    "producer-is-fusion", "producer-is-multi-output", "producer-not-loop-fusible",
    "producer-not-loop-fusion", "producer-in-place", "producer-transposes", "consumer-is-custom",
    "consumer-no-fusion", "consumer-not-loop-or-input-fusible", "only-bitcast-users",
    "not-multi-output-root", "different-loops", "different-reductions", "different-transposes",
    "reduction-and-transpose", "transpose-would-become-loop", "transpose-without-tiles",
    "triton-unsupported", "triton-not-tiled", "gemm-epilogue",
    "horizontal-alone", "horizontal-layout", "horizontal-other-users",
    "horizontal-outputs", "horizontal-parameters",
    # No kernel can run the loop.
    "loop-side-effect", "loop-not-flat", "loop-mixes", "loop-gathered-condition", "loop-state-too-large",
    "loop-code-size", "loop-op", "loop-no-results",
})  # fmt: skip
"""Reasons that hold whatever a user's rule or lock file says."""


_LOOPS: Final = {
    "loop-side-effect": "a loop without it could: what the host gives or takes can be read before the loop or"
    " written after it, a row for each trip; a custom call has to be written as ops",
    "loop-not-flat": "while-loop-simplifier flattens a state where it may; --remarks missed says why not",
    "loop-mixes": "many small problems side by side (a batch) fit a block each; one as large as this runs a"
    " kernel a step",
    "loop-state-too-large": "a unit may carry less, or keep its steps as a stacked result (scan), which is"
    " written as it comes",
    "loop-code-size": "loops over the elements of larger arrays make less code than ops on each of them; a step"
    " of fewer instructions fits",
    "loop-op": "where an op is in the way, an expander may write it as others: --passes topk-expander,O3;"
    " hloopt passes lists them",
    "loop-gathered-condition": "a known number of trips lets it through, or a condition that each unit can"
    " test by itself",
}
"""What the program itself could do about a loop that is no kernel."""


def loop_way(code: str) -> str:
    """What a program could do about the refusal of a loop as one kernel; empty where there is no advice."""
    return _LOOPS.get(code, "")


def remedies(decision: Decision, instance: Pass | None) -> list[str]:
    """``priority-fusion{max_operands=97}``: the option that lets a pair through, for each way."""
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
    """Of several options that limit the same, the one that did: its value was the limit."""
    several = len(OPTIONS[decision.code]) > 1
    return not several or getattr(instance, remedy.option) == decision.limit


def is_advisable(decision: Decision) -> bool:
    """Whether a rule or lock file of the user could have it otherwise."""
    return not decision.allowed and decision.code not in HELD
