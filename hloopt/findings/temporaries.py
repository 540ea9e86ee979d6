"""Large arrays that one kernel writes and another reads: which refusal keeps them in memory, at what price."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from hloopt.findings.finding import FindingRemedy, RefusedArray
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.fusion.between import ArrayBetween, kept_arrays
from hloopt.fusion.explained import Edge, ExplainedRefusal
from hloopt.fusion.provenance import FusionNode
from hloopt.ir import Instruction, Module
from hloopt.numbers import byte_size

__all__ = ["between", "largest_kept"]

_SHARE: Final = 0.05
"""The least part of the peak that an array is to be worth a trial."""
_MOST: Final = 12
_SHOWN: Final = 3
_MORE_RESULTS: Final = frozenset({"multi-output-fusion"})
_SLICES: Final = FindingRemedy(
    "model",
    "map over slices of the batch (jax.lax.map(f, xs, batch_size=...)): the array is as large as a slice",
)
_LARGE: Final = 1 << 20
"""The least bytes of an array that is named without a gain."""


def between(subject: Subject) -> Iterator[FindingCandidate]:
    """Arrays between kernels that take a part of the peak, the largest first.

    None on the host: what XLA and ``native`` fuse there, and so what is in memory, follows other rules.
    """
    if subject.planner.predictor.target.kind == "cpu":
        return
    if not subject.plan.provenance.history.plans:
        return  # nothing was to be fused: no decision to explain
    if not subject.is_small:
        return  # its fusion would have to be decided anew for each of them
    least = subject.plan.peak_bytes * _SHARE
    for row in kept_arrays(subject.plan.explanation, least)[:_MOST]:
        site = _given(subject, row.node)
        if site is None or not row.readers:
            continue
        edges = [edge for _, edge in row.readers]
        words = [edge.words[-1] for edge in edges if edge.words]
        yield FindingCandidate(
            (site,),
            _why(row, edges, words),
            _remedies(words),
            _unchanged,
            _blocking(subject, edges),
            wanted=tuple((edge.producer.name, edge.consumer.name) for edge in edges),
        )


def largest_kept(subject: Subject) -> tuple[RefusedArray, ...]:
    """The largest arrays between kernels, with the refusal that keeps each, whether it is right or not."""
    if not subject.plan.provenance.history.plans:
        return ()
    least = max(_LARGE, subject.plan.peak_bytes * _SHARE)
    rows = kept_arrays(subject.plan.explanation, least)
    found = map(_kept, rows)
    return tuple(islice((one for one in found if one is not None), _SHOWN))


def _kept(row: ArrayBetween) -> RefusedArray | None:
    """None where no pair has a price or could be fused: the pass makes no such kernel."""
    refusals = [
        (word, edge)
        for _, edge in row.readers
        for word in reversed(edge.words)
        if word.advisable or word.comparison is not None
    ]
    if not refusals:
        return None
    # A kernel of several results would still write the array for its other readers.
    last, edge = min(
        refusals, key=lambda found: (found[0].pass_name in _MORE_RESULTS, not found[0].comparison)
    )
    known = last.comparison
    lock = (f"a lock row or fusion rule that wants %{edge.producer.name} in %{edge.consumer.name}",)
    return RefusedArray(
        row.node.name,
        next(iter(row.node.sources), ""),
        row.node.byte_size,
        row.kernel.now or row.kernel.name,
        tuple(dict.fromkeys(reader.now or reader.name for reader, _ in row.readers)),
        edge.consumer.name,
        last.pass_name,
        last.decision.code,
        last.decision.reason,
        last.decision.limit,
        last.decision.actual,
        None if known is None else known.fused_us,
        None if known is None else known.unfused_us,
        last.options or (lock if last.advisable else ()),
    )


def _why(row: ArrayBetween, edges: Sequence[Edge], words: Sequence[ExplainedRefusal]) -> str:
    readers = ", ".join(f"%{edge.consumer.name} ({edge.consumer.opcode})" for edge in edges[:3])
    more = f" and {len(edges) - 3} more" if len(edges) > 3 else ""
    text = (
        f"%{row.node.name} is written to memory, {byte_size(row.node.byte_size)}, and read by "
        f"{readers}{more}"
    )
    if not words:
        return f"{text}; no strategy looked at the pair."
    last = words[0]
    text += f": {last.pass_name} keeps them apart, since {last.decision.reason}"
    known = last.comparison
    if known is not None and last.decision.code not in ("slower", "triton-slower"):
        text += f" (fused {known.fused_us:.3g} us, apart {known.unfused_us:.3g} us)"
    return f"{text} [{last.decision.code}]."


def _remedies(words: Sequence[ExplainedRefusal]) -> tuple[FindingRemedy, ...]:
    found = [
        FindingRemedy("hloopt", f"{option}")
        for option in dict.fromkeys(one for row in words for one in row.options)
    ]
    if any(row.advisable for row in words):
        row = words[0]
        names = " and ".join(f"'{name}'" for name in (row.producer, row.consumer))
        found.append(
            FindingRemedy(
                "hloopt",
                f"a row of a lock file or a fusion rule that wants {names} fused, where memory "
                "is scarcer than time",
            )
        )
    found.append(_SLICES)
    return tuple(found)


def _blocking(subject: Subject, edges: Sequence[Edge]) -> tuple[Instruction, ...]:
    found = (_given(subject, edge.consumer) for edge in edges)
    return tuple(one for one in found if one is not None)


def _given(subject: Subject, node: FusionNode) -> Instruction | None:
    """The instruction of the subject that a node was, or the largest of the same line and op_name."""
    home = subject.module.computations.get(node.computation)
    if home is None or node.name in home.by_name:
        return None if home is None else home.by_name[node.name]
    same = (
        one
        for one in home
        if one.metadata is not None
        and str(one.metadata.fields.get("op_name", "")) == node.op_name
        and subject.module.user_lines(one.metadata) == node.sources
    )
    return max(same, key=lambda one: one.shape.byte_size, default=None)


def _unchanged(module: Module, places: Sequence[Instruction]) -> bool:
    """The module stays as it is: fusion alone decides otherwise."""
    return True
