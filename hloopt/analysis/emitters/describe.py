"""Everything about a kernel's layout in one record: emitter, heroes, tiling, launch, memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from hloopt.analysis.emitters.in_place import updates_in_place
from hloopt.analysis.emitters.kind import Emission, EmitterKind, emission
from hloopt.analysis.emitters.launch import (
    LaunchDimensions,
    index_bits,
    loop_launch,
    register_estimate,
    tiled_launch,
)
from hloopt.analysis.emitters.reductions import (
    ReductionTiling,
    reduction_groups,
    reduction_tiling,
    reduction_widths,
)
from hloopt.analysis.emitters.scatter import (
    ScatterTiling,
    is_simplified_scatter,
    scatter_tiling,
)
from hloopt.analysis.emitters.sort import THREAD_ELEMENTS, SortPass, sort_passes
from hloopt.analysis.emitters.transposes import TransposeTiling, transpose_tiling
from hloopt.analysis.emitters.unroll import (
    ConcatenateTiling,
    Unroll,
    concatenate_tiling,
    loop_elements,
    unroll_factor,
)
from hloopt.analysis.hero import is_real_reduction_hero
from hloopt.analysis.reduction import reduction_dims
from hloopt.analysis.region import Region
from hloopt.analysis.transpose import tiled_transpose
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.targets import Target

__all__ = ["EmitterDescription", "EmitterTiling", "ThreadLayout", "describe", "lay_out"]

EmitterTiling: TypeAlias = (
    ReductionTiling | TransposeTiling | ConcatenateTiling | ScatterTiling | tuple[SortPass, ...]
)


@dataclass(frozen=True)
class EmitterDescription:
    """How XLA would run a region.

    kind          the emitter
    reason        why that one
    roots         the instructions whose values are the results
    heroes        for each root the instruction that decides about the layout
    elements      that threads are spread over (of the update, for an update in place); 0 without a launch
    unroll        elements a thread computes; of 1 in tiled kernels, whose tiling says it
    launch        grid and block; the first one of a sort; None where no kernel of hloopt runs (memory copies,
                  libraries, Triton)
    tiling        of a tiled kernel, else None
    groups        numbers of the roots that blocks of one z compute
    index_bits    32 or 64
    shared_bytes  of shared memory a block has
    registers     of a thread, estimated
    """

    kind: EmitterKind
    reason: str
    roots: tuple[Instruction, ...]
    heroes: tuple[Instruction, ...]
    elements: int
    unroll: Unroll
    launch: LaunchDimensions | None
    tiling: EmitterTiling | None
    groups: tuple[tuple[int, ...], ...]
    index_bits: int
    shared_bytes: int
    registers: int


_SINGLE = Unroll(1)


@dataclass(frozen=True, slots=True)
class ThreadLayout:
    """An emitter's part of the record: ``copies`` of its code are in a thread's."""

    elements: int = 0
    unroll: Unroll = _SINGLE
    launch: LaunchDimensions | None = None
    tiling: EmitterTiling | None = None
    groups: tuple[tuple[int, ...], ...] | None = None
    shared_bytes: int = 0
    copies: int = 1


def describe(region: Region, target: Target) -> EmitterDescription:
    """How XLA would run a region on a GPU.

    Raises ``ValueError`` for an instruction that no kernel runs (tuples, control flow), and for a device that
    has no blocks and threads.
    """
    found = emission(region)
    layout = lay_out(region, found, target)
    launch = layout.launch
    size = launch.threads * layout.unroll.factor if launch is not None else 0
    bits = index_bits(region, size)
    return EmitterDescription(
        found.kind,
        found.reason,
        found.roots,
        found.heroes,
        layout.elements,
        layout.unroll,
        launch,
        layout.tiling,
        layout.groups if layout.groups is not None else (tuple(range(len(found.roots))),),
        bits,
        layout.shared_bytes,
        register_estimate(region, layout.copies, bits) if launch is not None else 0,
    )


def lay_out(region: Region, found: Emission, target: Target) -> ThreadLayout:
    """How the emitter that was found spreads a region over threads.

    Raises ``ValueError`` for a device that has no blocks and threads.
    """
    if not (target.warp_size and target.cores and target.grid_limit[0]):
        raise ValueError(f"{target.name} runs no kernels: it has no blocks and threads")
    return _LAYOUTS[found.kind](region, found, target)


def _nothing(_: Region, __: Emission, ___: Target) -> ThreadLayout:
    return ThreadLayout()


def _loop(region: Region, _: Emission, target: Target) -> ThreadLayout:
    """Results of other numbers of elements have blocks of their own beside those of the first."""
    found = _over(region, loop_elements(region), target, "loop")
    numbers = {result.shape.elements for result in region.results}
    if len(numbers) < 2:
        return found
    launch = loop_launch(sum(numbers), found.unroll.factor, target)
    return replace(found, launch=launch)


def _over(region: Region, elements: int, target: Target, kind: str) -> ThreadLayout:
    unroll = unroll_factor(region, target, elements, kind=kind)
    launch = loop_launch(elements, unroll.factor, target)
    return ThreadLayout(elements, unroll, launch, copies=unroll.factor)


def _in_place(region: Region, _: Emission, target: Target) -> ThreadLayout:
    updates = updates_in_place(region)
    assert isinstance(updates, tuple)
    elements = updates[0].instruction.operands[1].array.elements
    return _over(region, elements, target, "in-place")


def _reduction(region: Region, found: Emission, target: Target) -> ThreadLayout:
    form = reduction_dims(found.hero)
    assert form is not None
    pairs = zip(found.roots, found.heroes, strict=True)
    heroes = list(dict.fromkeys(hero for root, hero in pairs if is_real_reduction_hero(root, hero)))
    widths = reduction_widths(region, heroes)
    tiling = reduction_tiling(form, widths, target)
    groups = reduction_groups(region, found.roots, found.heroes)
    shared = sum(tiling.shared_bytes(_input_bits(hero)) for hero in heroes)
    elements = found.hero.operands[0].array.elements
    launch = tiling.launch(target, len(groups))
    return ThreadLayout(elements, _SINGLE, launch, tiling, groups, shared, tiling.vector)


def _input_bits(reduce: Instruction) -> list[int]:
    return [operand.array.dtype.bits for operand in reduce.fold_inputs]


def _transpose(region: Region, found: Emission, target: Target) -> ThreadLayout:
    heroes = list(dict.fromkeys(hero for hero in found.heroes if tiled_transpose(hero) is not None))
    form = tiled_transpose(heroes[0])
    assert form is not None
    bits = [hero.array.dtype.bits for hero in heroes]
    tiling = transpose_tiling(form, bits, target)
    elements = heroes[0].array.elements
    launch, shared = tiling.launch(target), tiling.shared_bytes(bits)
    return ThreadLayout(elements, _SINGLE, launch, tiling, None, shared, tiling.vector)


def _concatenate(region: Region, found: Emission, target: Target) -> ThreadLayout:
    tiling = concatenate_tiling(found.hero, region, target)
    unroll = Unroll(tiling.unroll)
    return ThreadLayout(tiling.elements, unroll, tiling.launch, tiling, copies=tiling.unroll)


def _scatter(region: Region, found: Emission, target: Target) -> ThreadLayout:
    scatter = found.hero
    count = (len(scatter.operands) - 1) // 2
    elements = scatter.operands[count + 1].array.elements
    if not is_simplified_scatter(scatter):
        return _over(region, elements, target, "scatter")
    tiling = scatter_tiling(scatter, region, target)
    return ThreadLayout(
        elements, Unroll(tiling.vector), tiling.launch, tiling, copies=tiling.vector
    )


def _sort(region: Region, found: Emission, target: Target) -> ThreadLayout:
    sort = found.hero
    shape = sort.operands[0].array
    (dimension,) = sort.attributes.get("dimensions", (shape.rank - 1,))
    size = shape.dims[dimension] if shape.rank else 1
    bits = [operand.array.dtype.bits for operand in sort.operands]
    passes = sort_passes(size, bits, target)
    if not passes or not shape.elements:
        return ThreadLayout(shape.elements, tiling=passes)
    lines = shape.elements // size
    first = passes[0]
    launch = (
        tiled_launch(first.blocks * lines, first.threads, target)
        if first.tile
        else loop_launch(first.blocks * lines, 1, target)
    )
    shared = max(entry.tile for entry in passes) * sum(-(-width // 8) for width in bits)
    return ThreadLayout(shape.elements, _SINGLE, launch, passes, None, shared, THREAD_ELEMENTS)


_LAYOUTS = {
    "loop": _loop,
    "in-place": _in_place,
    "reduction": _reduction,
    "transpose": _transpose,
    "concatenate": _concatenate,
    "scatter": _scatter,
    "sort": _sort,
    "memcpy": _nothing,
    "custom": _nothing,
    "triton": _nothing,
    "cudnn": _nothing,
}
