"""The form a kernel with several results would have: its hero's, of all roots, and the loop it runs over.

Rules of XLA's ``GetRealHeroForMultiOutputFusion`` and ``FusionHeroesAreCompatible`` (gpu_fusible.cc).
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final, Literal, TypeAlias

from hloopt.analysis.hero import (
    find_hero,
    is_intermediate,
    is_real_reduction_hero,
    results_of,
)
from hloopt.analysis.layout import is_descending, physical_dims
from hloopt.analysis.reduction import ReductionDims, is_unnested, reduction_dims
from hloopt.analysis.transpose import TiledTranspose, tiled_transpose
from hloopt.dataclass import dataclass
from hloopt.fusion.decision import ALLOWED, Decision, forbid
from hloopt.ir import Instruction
from hloopt.types import ArrayShape, Shape, TupleShape

__all__ = ["Era", "KernelForm", "decide_forms", "kernel_form_of"]

Era: TypeAlias = Literal["2023", "2026"]

_TILED: Final = frozenset({"reduce", "transpose"})
"""Heroes of tiled kernels."""


@dataclass(frozen=True)
class KernelForm:
    """What the hero of an op or fusion requires of a kernel.

    hero       the reduce or transpose that makes the kernel one of tiles; otherwise a root
    loop       the shape with one thread per element: the hero's operand if there are tiles, else its result
    reduction  of a reduction kernel
    transpose  of a tiled transpose
    """

    hero: Instruction
    loop: Shape
    reduction: ReductionDims | None = None
    transpose: TiledTranspose | None = None

    @property
    def is_tiled(self) -> bool:
        """Whether the kernel is tiled."""
        return self.reduction is not None or self.transpose is not None

    @property
    def is_plain_transpose(self) -> bool:
        """Whether a loop kernel reorders memory at its root."""
        return self.hero.opcode == "transpose" and self.transpose is None


def kernel_form_of(instruction: Instruction, opcodes: AbstractSet[str]) -> KernelForm:
    """The form of an op or fusion, which contains ``opcodes``.

    Of several roots the first one whose hero has tiles decides; they have one form.
    """
    if instruction.opcode != "fusion":
        return _form(instruction, instruction)
    found = results_of(instruction)
    if opcodes.isdisjoint(_TILED):
        return _form(found[0], found[0])
    for root in found:
        hero = find_hero(root)
        if is_real_reduction_hero(root, hero) or tiled_transpose(hero) is not None:
            return _form(hero, hero)
    return _form(found[0], find_hero(found[0]))


def _form(element: Instruction, hero: Instruction) -> KernelForm:
    reduction = None
    if element.opcode == "reduce" and is_unnested(element):
        reduction = reduction_dims(element)
    transpose = tiled_transpose(element)
    if reduction is not None or tiled_transpose(hero) is not None:
        return KernelForm(element, hero.operands[0].shape, reduction, transpose)
    return KernelForm(element, element.shape, reduction, transpose)


def decide_forms(
    left: Instruction, mine: KernelForm, right: Instruction, other: KernelForm, era: Era
) -> Decision:
    """Whether ops or fusions of two forms can share one kernel, in either order."""
    if mine.reduction is not None and other.reduction is not None:
        if not _reduce_alike(mine, other, era):
            return forbid("different-reductions")
    elif mine.transpose is not None and other.transpose is not None:
        if not _move_alike(mine.transpose, other.transpose):
            return forbid("different-transposes")
    elif era != "2023" and (
        (mine.is_tiled and other.is_plain_transpose) or (mine.is_plain_transpose and other.is_tiled)
    ):
        return forbid("transpose-without-tiles")
    elif mine.is_tiled and other.is_tiled:
        return forbid("reduction-and-transpose")
    if _loses_tiles(left, mine, right) or _loses_tiles(right, other, left):
        return forbid("transpose-would-become-loop")
    if not _one_loop(mine.loop, other.loop):
        return forbid("different-loops")
    return ALLOWED


def _reduce_alike(mine: KernelForm, other: KernelForm, era: Era) -> bool:
    """Up to 2023 shapes and dimensions are the same, later the form after merging neighbours."""
    if era != "2023":
        return mine.reduction == other.reduction
    shapes = [
        (hero.shape, hero.operands[0].shape, hero.fold_inits[0].shape)
        for hero in (mine.hero, other.hero)
    ]
    same = mine.hero.attributes["dimensions"] == other.hero.dimensions
    return same and all(_same_but_type(*pair) for pair in zip(*shapes, strict=True))


def _move_alike(mine: TiledTranspose, other: TiledTranspose) -> bool:
    return (mine.dims, mine.permutation) == (other.dims, other.permutation)


def _loses_tiles(tiled: Instruction, form: KernelForm, reader: Instruction) -> bool:
    """Whether ``reader`` has more after the result of a tiled transpose than its kernel supports."""
    if form.transpose is None or tiled.opcode != "fusion" or reader.opcode != "fusion":
        return False
    if tiled not in reader.operands:
        return False
    entry = reader.calls.parameters[reader.operands.index(tiled)]
    if len(entry.users) != 1:
        return True
    entry = next(iter(entry.users))
    while entry.users:
        if len(entry.users) > 1 or not is_intermediate(entry):
            return True
        entry = next(iter(entry.users))
    return False


def _one_loop(left: Shape, right: Shape) -> bool:
    """Whether elements correspond one to one in memory: the same shape, or a bitcast of it."""
    if _same_but_type(left, right):
        return True
    if not isinstance(left, ArrayShape) or not isinstance(right, ArrayShape):
        return False
    if left.elements != right.elements:
        return False
    if is_descending(left) and is_descending(right):
        return True
    sizes = ([size for size in physical_dims(shape) if size != 1] for shape in (left, right))
    return next(sizes) == next(sizes)


def _same_but_type(left: Shape, right: Shape) -> bool:
    if isinstance(left, TupleShape) and isinstance(right, TupleShape):
        return len(left.elements) == len(right.elements) and all(
            map(_same_but_type, left.elements, right.elements)
        )
    if not isinstance(left, ArrayShape) or not isinstance(right, ArrayShape):
        return left == right
    return left.dims == right.dims and physical_dims(left) == physical_dims(right)
