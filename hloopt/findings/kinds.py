"""The kinds of findings: a row each, with what looks for it, and modules in which it fires and in which not."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.findings import (
    attention,
    captured,
    collectives,
    contention,
    dense_experts,
    distances,
    donation,
    duplicates,
    epilogues,
    folding,
    full_sorts,
    grown_arguments,
    hazards,
    index_ranges,
    inverses,
    launches,
    layouts,
    loop_copies,
    loop_invariants,
    loop_products,
    loops,
    masked_updates,
    materialised,
    narrow_sums,
    numerics,
    one_hot_sums,
    overlaps,
    pieces,
    precision,
    products,
    recomputing,
    recurrences,
    repeated_factors,
    row_scatters,
    running,
    scaled_factors,
    shifted_histories,
    stacked_outputs,
    summed_products,
    temporaries,
    unaligned,
    unrolled,
)
from hloopt.findings.finding import Measure
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.spelling import nearest

__all__ = ["KINDS", "FindingKind", "KindExample", "chosen_kinds", "kind_examples"]

Detector: TypeAlias = Callable[[Subject], Iterable[FindingCandidate]]


@dataclass(frozen=True, slots=True)
class FindingKind:
    """A kind of finding.

    name     as ``--kind`` takes it
    title    what is found, in a few words
    measure  what the change makes less of
    find     gives the candidates of a subject; those whose change gains are findings
    """

    name: str
    title: str
    measure: Measure
    find: Detector


@dataclass(frozen=True, slots=True)
class KindExample:
    """Two modules: in ``example`` the kind is found, in ``counterexample``, much like it, it is not."""

    example: str
    counterexample: str
    target: str = "h200"


KINDS: Final = tuple(
    FindingKind(*row)
    for row in (
        ("one-hot-product", "product with a one-hot matrix", "time", products.one_hot),
        ("one-hot-sum", "sum that a one-hot matrix picks from", "time", one_hot_sums.picking),
        (
            "dense-experts",
            "experts computed for all tokens",
            "time",
            dense_experts.for_all_tokens,
        ),
        ("thin-product", "product too thin for matrix units or a BLAS", "time", products.thin),
        ("unaligned-product", "product of rows at odd addresses", "time", unaligned.products),
        (
            "unfused-epilogue",
            "activation or bias in a kernel after its product",
            "time",
            epilogues.unfused,
        ),
        ("unfused-attention", "attention whose scores are written", "time", attention.unfused),
        ("pairwise-distance", "distances of all pairs as differences", "time", distances.pairwise),
        (
            "repeated-factor",
            "product with a repeated factor",
            "time",
            repeated_factors.products,
        ),
        (
            "scaled-factor",
            "factor scaled before its product",
            "time",
            scaled_factors.before_products,
        ),
        ("summed-product", "product written as multiply and sum", "time", summed_products.summed),
        (
            "product-order",
            "products in an expensive order",
            "time",
            products.orders,
        ),
        ("inverse", "inverse that is only multiplied", "time", inverses.multiplied),
        (
            "loop-product",
            "product that could be outside of its loop",
            "time",
            loop_products.products,
        ),
        (
            "loop-invariant",
            "work that is the same in every iteration",
            "time",
            loop_invariants.invariants,
        ),
        (
            "loop-collective",
            "collective that could be outside of its loop",
            "time",
            collectives.in_loops,
        ),
        ("collectives-in-a-row", "all-reduces one after the other", "time", collectives.in_a_row),
        ("exposed-collective", "collective that nothing runs beside", "time", overlaps.exposed),
        ("loop-kernels", "loop of small kernels", "time", loops.kernels),
        ("loop-copy", "copy in each iteration of a loop", "time", loop_copies.in_loops),
        (
            "carried-mask",
            "mask, one-hot or outer product that a loop carries",
            "time",
            materialised.carried,
        ),
        (
            "shifted-history",
            "history that each iteration moves",
            "time",
            shifted_histories.in_loops,
        ),
        (
            "stacked-output",
            "outputs of a scan stacked for the last",
            "time",
            stacked_outputs.last_read,
        ),
        ("masked-update", "array rewritten to change a part", "time", masked_updates.selects),
        ("parallel-scan", "scan that could be parallel", "time", recurrences.parallel_scans),
        ("indexed-range", "indices that count up", "time", index_ranges.ranges),
        ("running-reduction", "running sum written as a window", "time", running.reductions),
        ("full-sort", "sort of which a few elements are read", "time", full_sorts.few_read),
        ("row-scatter", "scatter of one element a row", "time", row_scatters.selections),
        ("contention", "updates that meet in few places", "time", contention.scatters),
        ("written-in-pieces", "array written piece by piece", "time", pieces.chains),
        ("recomputed", "value computed several times", "time", duplicates.values),
        ("small-kernels", "small kernels side by side", "time", launches.side_by_side),
        ("copy", "copy in memory", "time", donation.copies),
        (
            "grown-argument",
            "argument copied to make it longer",
            "time",
            grown_arguments.by_concatenates,
        ),
        ("argument-layout", "argument transposed before it is read", "time", layouts.arguments),
        ("not-donated", "argument that could hold a result", "memory", donation.arguments),
        ("f64", "f64 where f32 goes in and out", "time", precision.doubles),
        ("folded", "constants that XLA computes while it compiles", "compile time", folding.folded),
        (
            "captured-constant",
            "array that the program holds as a constant",
            "compile time",
            captured.constants,
        ),
        ("unrolled", "Python loop traced as copies", "compile time", unrolled.copies),
        (
            "inexact-rewrite",
            "rewrite of XLA that moves results",
            "accuracy",
            numerics.inexact_rewrites,
        ),
        ("narrow-sum", "sum rounded to few digits at each step", "accuracy", narrow_sums.narrow),
        ("not-finite", "NaN or infinity from a finite value", "accuracy", hazards.not_finite),
        ("cancellation", "difference of nearly equal numbers", "accuracy", hazards.few_digits),
        ("log-sum-exp", "log(sum(exp(x))) that overflows", "accuracy", numerics.log_sums),
        ("temporary", "large array between kernels", "memory", temporaries.between),
        ("kept", "values kept that are cheap to compute again", "memory", recomputing.kept_values),
        ("order", "order that keeps much in memory", "memory", recomputing.orders),
    )
)
"""All kinds, those of time first."""


def chosen_kinds(names: Iterable[str]) -> tuple[FindingKind, ...]:
    """The kinds of these names, all where there is none.  Raises ``UsageError`` for an unknown name."""
    wanted = tuple(names)
    known = {kind.name: kind for kind in KINDS}
    for name in wanted:
        if name not in known:
            close = nearest(name, list(known))
            meant = f"; did you mean '{close[0]}'?" if close else ""
            raise UsageError(
                f"no kind of finding is called '{name}' (known: {', '.join(known)}){meant}"
            )
    return tuple(known[name] for name in dict.fromkeys(wanted)) or KINDS


@cache
def kind_examples() -> Mapping[str, KindExample]:
    """The example and the counterexample of each kind, by its name."""
    text = Path(__file__).with_name("examples.toml").read_text(encoding="utf-8")
    return {name: KindExample(**row) for name, row in tomllib.loads(text).items()}
