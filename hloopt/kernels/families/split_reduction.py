"""Reductions too long for a block: several blocks share the elements of a result.

``split-reduction``   blocks leave partial results in scratch memory; a second launch folds them, always in the
                      same order
``atomic-reduction``  a launch sets the results to the init values, then blocks fold in what they have, by
                      atomics
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import MappingProxyType

from hloopt.analysis.emitters.reductions import vector_size
from hloopt.analysis.emitters.tree_split import split_parts
from hloopt.errors import UsageError
from hloopt.ir import Instruction
from hloopt.kernels.families.column_reduction import column_sweep, small_column_sweep
from hloopt.kernels.families.reduction_groups import ReductionGroup
from hloopt.kernels.families.reductions import (
    Reductions,
    accumulator_types,
    operands_of,
    plain_reducer,
    reductions_of,
    wanted_by_rule,
)
from hloopt.kernels.families.row_reduction import idle_cores, row_sweep, unfit_sweep
from hloopt.kernels.families.sweeps import WARP, Sweep, SweepForm, fitted, sweep_of, widths_of
from hloopt.kernels.kernel import NO, YES, Kernel, Site, Verdict
from hloopt.kernels.spec import (
    Argument,
    KernelPart,
    KernelSpec,
    Launch,
    LeafPlace,
    ScratchBuffer,
    Tile,
    written,
)

__all__ = ["KERNELS", "combine_sweep", "form_of", "scratch_numbers"]

_BLOCK = 256
_ATOMIC_BITS = 64


def form_of(reductions: Reductions) -> SweepForm:
    """The form in which blocks read their part."""
    if reductions.form.is_row:
        return "row"
    return "column" if WARP % reductions.form.dims[2] else "small-column"


def scratch_numbers(reductions: Reductions) -> dict[tuple[int, int, int], int]:
    """(group, hero, output) -> the scratch buffer of its partial results."""
    keys = (
        (group_number, number, leaf)
        for group_number, group in enumerate(reductions.groups)
        for number, hero in enumerate(group.heroes)
        for leaf, _ in enumerate(accumulator_types(hero))
    )
    return {key: number for number, key in enumerate(keys)}


def combine_sweep(kept: int, parts: int) -> Sweep:
    """How a second launch reads ``kept`` rows of ``parts`` partial results each."""
    threads = min(WARP, 1 << (parts - 1).bit_length())
    rows = min(_BLOCK // threads, -(-kept * threads // WARP) * WARP // threads)
    return Sweep("row", (1, kept, parts), rows, threads, 1)


def _sweep(site: Site) -> Sweep:
    reductions = reductions_of(site.region)
    form = form_of(reductions)
    if form == "row":
        sweep = _row(site, reductions)
    else:
        sweep = column_sweep(site) if form == "column" else small_column_sweep(site)
    return replace(sweep, parts=_parts(site, sweep))


def _row(site: Site, reductions: Reductions) -> Sweep:
    dims = reductions.form.dims
    _, kept, minor = dims
    threads = min(
        _BLOCK, 1 << (minor - 1).bit_length() if minor < WARP else -(-minor // WARP) * WARP
    )
    rows = 1
    if 2 * threads <= _BLOCK:
        rows = min(_BLOCK // threads, -(-kept * threads // WARP) * WARP // threads)
    vector = vector_size(minor, threads, widths_of(site, reductions))
    sweep = Sweep("row", dims, rows, threads, vector)
    return fitted(sweep, reductions.groups, site.target.shared_per_block)


def _parts(site: Site, sweep: Sweep) -> int:
    """Enough blocks to keep all cores busy, each with some steps."""
    return split_parts(site.target, sweep.blocks, sweep.block, sweep.steps)


def _fits(site: Site) -> Verdict:
    problem = reductions_of.problem(site.region)
    if problem:
        return NO(problem)
    reductions = reductions_of(site.region)
    for hero in reductions.heroes:
        for kind in accumulator_types(hero):
            if kind.bits < 8:
                return NO(f"{hero.name} leaves partial results of {kind.name}, which share bytes")
    sweep = _sweep(site)
    problem = unfit_sweep(site, reductions, sweep)
    return NO(problem) if problem else YES(f"{sweep.parts} blocks share a result")


def _wanted(site: Site) -> Verdict:
    rule = wanted_by_rule(site)
    if rule:
        alone = {"row": row_sweep, "column": column_sweep, "small-column": small_column_sweep}
        idle = idle_cores(site, alone[form_of(reductions_of(site.region))](site))
        return (
            YES(idle, "reduction_split_steps") if idle else NO("a block finishes each result alone")
        )
    # One of the rule's reasons is that results are too long for a block.
    return YES(rule.reason, rule.option) if rule.option else rule


def _tile(site: Site) -> Tile:
    sweep = _sweep(site)
    tile = {"threads": sweep.threads, "rows": sweep.rows, "warps": sweep.rows}
    keys = {"row": ("rows", "threads"), "column": ("warps",), "small-column": ("threads",)}
    chosen = {key: tile[key] for key in keys[sweep.form]}
    return MappingProxyType({**chosen, "vector": sweep.vector, "parts": sweep.parts})


def _checked(name: str, site: Site, tile: Tile) -> tuple[Reductions, Sweep]:
    reductions = reductions_of(site.region)
    sweep = sweep_of(form_of(reductions), reductions.form.dims, tile, name)
    problem = unfit_sweep(site, reductions, sweep)
    limit = site.target.grid_limit[1]
    if not problem and sweep.parts > limit:
        problem = f"parts={sweep.parts}; the device's grid has {limit} at most"
    if problem:
        raise UsageError(f"{name}: {problem}")
    return reductions, sweep


def _folding(
    site: Site,
    sweep: Sweep,
    group: ReductionGroup,
    folded: Iterable[Argument],
    function: str,
    at: int,
) -> Launch:
    """The launch in which every block folds its part of a group, and writes the results beside it."""
    sides = [site.region.results[leaf].instruction for leaf in group.sides]
    read = operands_of(site.region, [*group.inputs, *sides])
    return Launch(
        function,
        (sweep.blocks, sweep.parts, 1),
        (sweep.block, 1, 1),
        (*read, *written(group.sides), *folded),
        part=at,
    )


def _spec(site: Site, tile: Tile) -> KernelSpec:
    reductions, sweep = _checked("split-reduction", site, tile)
    region = site.region
    numbers = scratch_numbers(reductions)
    scratch: list[ScratchBuffer] = []
    steps: list[KernelPart] = []
    for at, group in enumerate(reductions.groups):
        suffix = f"_{at}" if len(reductions.groups) > 1 else ""
        places = [
            LeafPlace("scratch", numbers[at, number, leaf])
            for number, hero in enumerate(group.heroes)
            for leaf, _ in enumerate(accumulator_types(hero))
        ]
        scratch.extend(
            ScratchBuffer(kind.name, reductions.kept * sweep.parts)
            for hero in group.heroes
            for kind in accumulator_types(hero)
        )
        partial = [Argument(place, "out") for place in places]
        steps.append(_folding(site, sweep, group, partial, f"_parts{suffix}", at))
        if not group.heroes:
            continue
        second = combine_sweep(reductions.kept, sweep.parts)
        roots = [region.results[leaf].instruction for leaf in group.roots]
        steps.append(
            Launch.linear(
                f"_combine{suffix}",
                second.blocks,
                second.block,
                (
                    *(Argument(place, "in") for place in places),
                    *operands_of(region, [*group.inits, *roots], group.heroes),
                    *written(group.roots),
                ),
                part=at,
            )
        )
    return KernelSpec("split-reduction", tile, tuple(steps), tuple(scratch))


def _atomic_fits(site: Site) -> Verdict:
    found = _fits(site)
    if not found:
        return found
    reductions = reductions_of(site.region)
    for hero in reductions.heroes:
        kind = hero.operands[0].array.dtype
        if len(hero.operands) > 2:
            return NO(f"{hero.name} has several outputs, an atomic operation is on one")
        if kind.bits > _ATOMIC_BITS:
            return NO(
                f"an element of {kind.name} has {kind.bits} bits, an atomic operation at most {_ATOMIC_BITS}"
            )
        if accumulator_types(hero) != (kind,):
            return NO(f"{hero.name} would be rounded to {kind.name} by each block")
    for group in reductions.groups:
        for leaf in group.roots:
            root = site.region.results[leaf].instruction
            if root not in group.heroes:
                return NO(f"{root.name} is computed after its reduction, which no block finishes")
    return found


def _atomic_wanted(site: Site) -> Verdict:
    return NO("split-reduction folds the same blocks in the same order each time")


def _atomic_spec(site: Site, tile: Tile) -> KernelSpec:
    reductions, sweep = _checked("atomic-reduction", site, tile)
    region = site.region
    steps: list[KernelPart] = []
    for at, group in enumerate(reductions.groups):
        suffix = f"_{at}" if len(reductions.groups) > 1 else ""
        if group.heroes:
            threads = min(_BLOCK, -(-reductions.kept // WARP) * WARP)
            begun = written(group.roots)
            steps.append(
                Launch.linear(
                    f"_begin{suffix}",
                    -(-reductions.kept // threads),
                    threads,
                    (*operands_of(region, group.inits), *begun),
                    part=at,
                )
            )
        updated = written(group.roots, "update")
        steps.append(_folding(site, sweep, group, updated, f"_parts{suffix}", at))
    is_atomic = not all(_is_exact(hero) for hero in reductions.heroes)
    return KernelSpec("atomic-reduction", tile, tuple(steps), is_atomic=is_atomic)


def _is_exact(hero: Instruction) -> bool:
    """Whether blocks may fold in any order without changing a bit."""
    opcode, kind = plain_reducer(hero), hero.operands[0].array.dtype
    if opcode in ("add", "multiply"):
        return kind.is_integer or kind.is_pred
    return bool(opcode)


KERNELS = (
    Kernel(
        "split-reduction",
        "blocks leave partial results in scratch memory, a second launch folds them",
        _fits,
        _wanted,
        _tile,
        _spec,
    ),
    Kernel(
        "atomic-reduction",
        "blocks fold what they have into the results by atomics",
        _atomic_fits,
        _atomic_wanted,
        _tile,
        _atomic_spec,
    ),
)
