"""The order in which XLA's GPU compiler runs its passes, and what hloopt has of each.

Presets are data: ``xla-gpu-2022`` is the order of XLA up to early 2023, ``xla-gpu-2026`` that of 2026.  A row
names a pass of XLA and the entry of a pipeline that does its work, or says why there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

__all__ = ["XLA_PRESETS", "Row", "Rows", "Step", "preset_rows", "preset_text"]


@dataclass(frozen=True, slots=True)
class Step:
    """A pass of XLA, the entry that stands for it, and why there is none or it does less."""

    xla: str
    entry: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Rows:
    """Passes that XLA repeats until nothing changes."""

    xla: str
    steps: tuple[Step, ...]


Row: TypeAlias = Step | Rows

_PARTITIONING = "shardings are kept as they are: partitioning is not part of hloopt"
_LIBRARIES = "calls of cuBLAS and cuDNN are made by XLA itself from the text it gets back"
_PLANS = "a decision about kernels, made after the text"
_ASYNC = "a schedule with asynchronous pairs is made by XLA from the text it gets back"

_BEGINNING: tuple[Row, ...] = (
    Step("FlattenCallGraph", "", "every caller has its copy only where XLA assigns layouts"),
    Step("CallInliner", "call-inliner"),
    Step("SpmdPartitioner", "", _PARTITIONING),
    Step("RngBitGeneratorExpander", "rng-expander"),
)

_SIMPLIFICATION = Rows(
    "simplification",
    (
        Step("AlgebraicSimplifier", "simplify"),
        Step("TupleSimplifier", "tuple-simplifier"),
        Step("HloConstantFolding", "constant-folding"),
        Step("HloCSE", "cse"),
        Step("HloDCE", "dce"),
    ),
)

XLA_PRESETS: Final[Mapping[str, tuple[Row, ...]]] = {
    "xla-gpu-2022": (
        *_BEGINNING,
        _SIMPLIFICATION,
        Step("GemmRewriter", "", _LIBRARIES),
        Rows(
            "fusion",
            (
                Step("InstructionFusion", "instruction-fusion{may_duplicate=false}"),
                Step("InstructionFusion", "instruction-fusion"),
                Step("HloCSE", "cse"),
                Step("HloDCE", "dce"),
            ),
        ),
    ),
    "xla-gpu-2026": (
        *_BEGINNING,
        _SIMPLIFICATION,
        Step("GemmRewriter", "", _LIBRARIES),
        Step("GemmFusionAutotuner", "", _PLANS),
        Step("LatencyHidingScheduler", "", _ASYNC),
    ),
}


def preset_text(rows: tuple[Row, ...]) -> str:
    """The pipeline text of a preset."""
    return ",".join(filter(None, map(_text, rows)))


def _text(row: Row) -> str:
    if isinstance(row, Step):
        return row.entry
    inner = ",".join(step.entry for step in row.steps if step.entry)
    return f"fix({inner})" if inner else ""


def preset_rows(rows: tuple[Row, ...]) -> Iterator[tuple[str, Step]]:
    """Every step with the name of the group it is in, empty outside of one."""
    for row in rows:
        if isinstance(row, Step):
            yield "", row
        else:
            for step in row.steps:
                yield row.xla, step
