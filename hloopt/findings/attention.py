"""Attention whose scores go through memory, between the kernels of two products and of a softmax."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hloopt.findings.finding import FindingRemedy
from hloopt.findings.planning import is_planned
from hloopt.findings.trials import FindingCandidate, ModuleChange, Subject
from hloopt.ir import Instruction, Module
from hloopt.ir.walk import open_computations
from hloopt.kernels.attention_growth import AttentionGroup, attention_groups
from hloopt.numbers import byte_size
from hloopt.pipelines import parse_pipeline
from hloopt.rewrite import Pipeline
from hloopt.rewrite.entries import aimed

__all__ = ["kernels_of_passes", "unfused"]

_MODEL: Final = FindingRemedy(
    "model",
    "jax.nn.dot_product_attention(q, k, v, implementation='cudnn'), or a flash attention in Pallas: one kernel "
    "that keeps a tile of the scores at a time",
)
_HLOOPT: Final = FindingRemedy(
    "hloopt",
    "attention-recognition makes one kernel of it, gradients too (hloopt optimize -O3; hloopt.jax runs it "
    "within JAX)",
)


def kernels_of_passes(passes: str, target: str) -> ModuleChange:
    """The change that these passes make for a target, of all that they find; False where they find nothing."""

    def change(module: Module, places: Sequence[Instruction]) -> bool:
        entries = aimed(parse_pipeline(f"{passes},dce").entries, target)
        return bool(Pipeline(entries).run(module).changed)

    return change


def unfused(subject: Subject) -> Iterator[FindingCandidate]:
    """Products on a GPU whose results are reduced and multiplied again, and the gradients of such."""
    target = subject.planner.predictor.target
    if is_planned(subject.module) or not target.has_threads:
        return
    for computation in open_computations(subject.module):
        groups = [
            one
            for one in attention_groups(computation)
            if isinstance(one, AttentionGroup) and _has_exponentials(one)
        ]
        if not groups:
            continue
        scores = max((one for group in groups for one in group.scores), key=_size)
        last = next(iter(groups[0].contexts))
        several = f" (and {len(groups) - 1} more)" if len(groups) > 1 else ""
        yield FindingCandidate(
            (scores, last),
            f"%{scores.name}{several} are the scores of attention, {byte_size(_size(scores))} that the "
            "kernel of "
            f"a product writes, a softmax or its like reads and writes again, and the product %{last.name} "
            "reads: they grow with the square of the length, and nothing else needs them.",
            (_MODEL, _HLOOPT),
            kernels_of_passes("attention-recognition", target.name),
            (last,),
        )


def _has_exponentials(group: AttentionGroup) -> bool:
    """Whether the scores are weighted as by a softmax: chains of products are groups, too."""
    return any(one.opcode == "exponential" for one in group.members)


def _size(scores: Instruction) -> int:
    return scores.shape.byte_size
