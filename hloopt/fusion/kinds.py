"""The ``kind`` of a fusion: ``kLoop``, ``kInput``, ``kCustom``.

``kInput`` means that the kernel is built around what it reads.
"""

from __future__ import annotations

from typing import Final

from hloopt.analysis.emitters.kind import EmitterKind, emission
from hloopt.analysis.hero import find_hero, is_real_reduction_hero, results_of
from hloopt.analysis.reduction import is_unnested
from hloopt.analysis.region import region_of
from hloopt.analysis.transpose import tiled_transpose
from hloopt.ir import Instruction

__all__ = ["choose_kind", "fusion_kind", "hlo_kind", "is_input_fusible", "is_input_reduction"]

_INPUT: Final = frozenset({"concatenate", "reduction", "scatter", "transpose"})
_CUSTOM: Final = frozenset({"cudnn", "custom", "sort", "triton"})


def is_input_reduction(instruction: Instruction) -> bool:
    """Whether a reduction kernel is built around an op or a fusion."""
    if instruction.opcode != "fusion":
        return instruction.opcode == "reduce" and is_unnested(instruction)
    return any(is_real_reduction_hero(root, find_hero(root)) for root in _roots(instruction))


def is_input_fusible(instruction: Instruction) -> bool:
    """Whether a reduction, transpose or scatter kernel is built around an op or a fusion.

    Bitcasts and fusions with a kernel generated elsewhere (kCustom) are not.
    """
    if is_input_reduction(instruction):
        return True
    if instruction.opcode != "fusion":
        return instruction.opcode == "scatter" or tiled_transpose(instruction) is not None
    heroes = [find_hero(root) for root in _roots(instruction)]
    if any(tiled_transpose(hero) is not None for hero in heroes):
        return True
    return instruction.calls.root.opcode == "scatter" and instruction.attributes["kind"] == "kInput"


def choose_kind(producer: Instruction, consumer: Instruction) -> str:
    """The kind of the fusion that two instructions make (the same one twice: of it alone)."""
    return "kInput" if is_input_fusible(consumer) or is_input_fusible(producer) else "kLoop"


def hlo_kind(kind: EmitterKind) -> str:
    """The kind XLA writes for a kernel of one of its emitters; later passes may refine it."""
    if kind in _INPUT:
        return "kInput"
    return "kCustom" if kind in _CUSTOM else "kLoop"


def fusion_kind(fusion: Instruction) -> str:
    """The kind of a fusion as it is now."""
    return hlo_kind(emission(region_of(fusion)).kind)


def _roots(fusion: Instruction) -> tuple[Instruction, ...]:
    return () if fusion.attributes["kind"] == "kCustom" else results_of(fusion)
