"""Updates in place: only the elements of a dynamic-update-slice are written, into the operand's buffer.

The update is a result of the kernel, and what else in it reads the operand does so before that changes
(``analysis/in_place.py``).  All other results are computed by launches of the loop kernel's kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from hloopt.analysis.in_place import in_place_pairs
from hloopt.analysis.region import Region
from hloopt.ir import Instruction
from hloopt.kernels.families.loop import loop_launches, operands_read, own_threads
from hloopt.kernels.kernel import NO, YES, Kernel, Site, Verdict, always, elemental_problem
from hloopt.kernels.spec import Argument, KernelPart, KernelSpec, Launch, LeafPlace, Tile

__all__ = ["KERNELS", "arguments_of", "fitting", "update_of", "updated_pairs"]


def update_of(region: Region, number: int) -> Instruction | None:
    """The dynamic-update-slice that is result ``number``, seen through bitcasts."""
    instruction = region.results[number].instruction
    while instruction.opcode == "bitcast":
        operand = instruction.operands[0]
        if operand in region.inputs or operand.array.dtype is not instruction.array.dtype:
            return None
        instruction = operand
    return instruction if instruction.opcode == "dynamic-update-slice" else None


def updated_pairs(region: Region) -> dict[int, int]:
    """Result leaf -> operand leaf, for the results that are updates in place."""
    pairs = {}
    for pair in in_place_pairs(region.instruction):
        number = pair.output_index[0] if pair.output_index else 0
        update = update_of(region, number)
        if update is None or pair.operand_index or not region.results[number].shape.elements:
            continue
        operand = region.instruction.operands[pair.operand]
        inputs = region.instruction.operands[: pair.operand]
        before = sum(len(region.arrays_of(other)) for other in inputs)
        if region.inlined(before) is None and operand.array.dims:
            pairs[number] = before
    return pairs


def arguments_of(region: Region, pairs: Mapping[int, int]) -> tuple[Argument, ...]:
    """What updates read; of an operand that is updated, only what is read before it is written."""
    unread = {
        leaf
        for number, leaf in pairs.items()
        if (update := update_of(region, number)) is not None and _is_only_updated(update, region)
    }
    return tuple(part for part in operands_read(region) if part.place.number not in unread)


def _is_only_updated(update: Instruction, region: Region) -> bool:
    target = update.operands[0]
    while target.opcode == "bitcast" and target not in region.inputs:
        target = target.operands[0]
    return not region.is_fusion or sum(target.users.values()) == 1


def fitting(site: Site) -> Verdict:
    """Whether results of a region are updates in place."""
    region = site.region
    problem = elemental_problem(region)
    if problem:
        return NO(problem)
    pairs = updated_pairs(region)
    if not pairs:
        return NO("no result is a dynamic-update-slice of an operand that nothing here reads later")
    for number in pairs:
        kind = region.results[number].shape.dtype
        if kind.bits < 8:
            return NO(f"elements of {kind.name} share bytes with elements that stay")
    return YES(f"{len(pairs)} of {len(region.results)} results are updates in place")


def _tile(site: Site) -> Tile:
    return MappingProxyType({"threads": site.limits.loop_threads, "unroll": 1, "vector": 1})


def _spec(site: Site, tile: Tile) -> KernelSpec:
    region = site.region
    pairs = updated_pairs(region)
    steps: list[KernelPart] = []
    arguments = arguments_of(region, pairs)
    rest = [number for number in range(len(region.results)) if number not in pairs]
    # What is computed beside goes first: it may read what the update then overwrites.
    steps += loop_launches(site, tile, rest, arguments, "_rest")
    for at, number in enumerate(pairs):
        update = update_of(region, number)
        assert update is not None
        elements = update.operands[1].array.elements
        if not elements:
            continue
        blocks, threads = own_threads(site, elements, tile)
        steps.append(
            Launch.linear(
                f"_update{at}" if len(pairs) > 1 or rest else "",
                blocks,
                threads,
                (*arguments, Argument(LeafPlace("result", number), "update")),
            )
        )
    in_place = tuple((operand, number) for number, operand in pairs.items())
    return KernelSpec("in-place-update", tile, tuple(steps), in_place=in_place)


KERNELS = (
    Kernel(
        "in-place-update",
        "a thread writes an element of the update into the buffer it changes",
        fitting,
        always("writes only what changes"),
        _tile,
        _spec,
    ),
)
