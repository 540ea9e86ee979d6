"""Scatter: a thread for each update element, or for each result element.

``scatter``          every place is written once at most: read, combine, write
``scatter-atomic``   places may be written several times: native atomics, else compare-and-swap
``scatter-ordered``  each result element goes through all scatter indices in their order: whatever the combiner,
                     the same bits as one update after the other
"""

from __future__ import annotations

from math import prod
from types import MappingProxyType

from hloopt.analysis.elementwise import plain_opcode
from hloopt.analysis.in_place import in_place_pairs
from hloopt.analysis.region import Region
from hloopt.ir import Instruction
from hloopt.kernels.families.loop import operands_read, own_threads
from hloopt.kernels.kernel import NO, YES, Kernel, Site, Verdict, always, elemental_problem
from hloopt.kernels.spec import Argument, KernelPart, KernelSpec, Launch, LeafPlace, Tile, written
from hloopt.ops.traits import EXACT
from hloopt.types import DType, ScatterDims

__all__ = [
    "KERNELS",
    "combiner",
    "pairs_in_place",
    "scatter_count",
    "scatter_of",
    "scatter_problem",
]


def scatter_of(region: Region) -> Instruction | None:
    """The scatter whose outputs are all the results of a region, in order."""
    first = region.results[0].instruction if region.results else None
    if first is None:
        return None
    scatter = first.operands[0] if first.opcode == "get-tuple-element" else first
    if scatter.opcode != "scatter" or len(region.results) != (len(scatter.operands) - 1) // 2:
        return None
    for number, result in enumerate(region.results):
        if result.instruction is scatter:
            if result.leaf != number:
                return None
        elif (
            result.instruction.opcode != "get-tuple-element"
            or result.instruction.operands[0] is not scatter
            or result.instruction.attributes["index"] != number
        ):
            return None
    return scatter


def scatter_count(scatter: Instruction) -> int:
    """How many windows are scattered."""
    updates = scatter.operands[-1].array.dims
    batch = ScatterDims.of(scatter.attributes).batch_dims(len(updates))
    return prod(updates[at] for at in batch)


def combiner(scatter: Instruction) -> str:
    """The opcode of a combiner that is one op of both parameters, else empty."""
    return plain_opcode(scatter.attributes["to_apply"])


def scatter_problem(site: Site) -> Verdict | Instruction:
    """The scatter that a region is, or why no kernel computes it."""
    scatter = scatter_of(site.region)
    if scatter is None:
        return NO("the results are not those of one scatter")
    for result in site.region.results:
        if result.shape.dtype.bits < 8:
            return NO(f"elements of {result.shape.dtype.name} share bytes with their neighbours")
    problem = elemental_problem(site.region, (scatter,))
    return NO(problem) if problem else scatter


def _is_unique(scatter: Instruction) -> bool:
    return bool(scatter.attributes.get("unique_indices")) or scatter_count(scatter) <= 1


def _fits_unique(site: Site) -> Verdict:
    scatter = scatter_problem(site)
    if isinstance(scatter, Verdict):
        return scatter
    if not _is_unique(scatter):
        return NO("unique_indices is not set, and there are several indices")
    return YES("no place is written twice")


def _fits_atomic(site: Site) -> Verdict:
    scatter = scatter_problem(site)
    if isinstance(scatter, Verdict):
        return scatter
    if len(site.region.results) > 1:
        return NO("an atomic operation is on one array, here are several")
    kind = site.region.results[0].shape.dtype
    if kind.bits > 64:
        return NO(f"an element of {kind.name} has {kind.bits} bits, an atomic operation at most 64")
    return YES("each update is one atomic operation")


def _fits_ordered(site: Site) -> Verdict:
    scatter = scatter_problem(site)
    return (
        scatter if isinstance(scatter, Verdict) else YES("each result takes its updates in order")
    )


def _wanted_ordered(site: Site) -> Verdict:
    scatter = scatter_of(site.region)
    assert scatter is not None
    if _is_unique(scatter) and len(pairs_in_place(site.region)) == len(site.region.results):
        return NO("no place is written twice, so that the operand's buffer can be updated")
    count, limit = scatter_count(scatter), site.limits.scatter_ordered_indices
    option = "scatter_ordered_indices"
    if count <= limit:
        return YES(f"{count} indices, up to {limit} are gone through by each result", option)
    return NO(f"{count} indices for each result to go through, more than {limit}", option)


def _tile(site: Site) -> Tile:
    return MappingProxyType({"threads": site.limits.loop_threads, "unroll": 1, "vector": 1})


def _spec(name: str, site: Site, tile: Tile) -> KernelSpec:
    region = site.region
    scatter = scatter_of(region)
    assert scatter is not None
    pairs = pairs_in_place(region)
    arguments = tuple(
        part for part in operands_read(region) if part.place.number not in pairs.values()
    )
    results = [LeafPlace("result", number) for number in range(len(region.results))]
    steps: list[KernelPart] = []
    elements = region.results[0].shape.elements
    if elements and len(pairs) < len(results):
        blocks, threads = own_threads(site, elements, tile)
        begun = (Argument(place, "out") for place in results if place.number not in pairs)
        steps.append(Launch.linear("_begin", blocks, threads, (*arguments, *begun)))
    updates = scatter.operands[-1].array.elements
    if updates and elements:
        blocks, threads = own_threads(site, updates, tile)
        updated = (Argument(place, "update") for place in results)
        steps.append(Launch.linear("_scatter", blocks, threads, (*arguments, *updated)))
    is_atomic = name == "scatter-atomic" and not _is_any_order_the_same(scatter)
    in_place = tuple((operand, number) for number, operand in pairs.items())
    return KernelSpec(name, tile, tuple(steps), in_place=in_place, is_atomic=is_atomic)


def _is_any_order_the_same(scatter: Instruction) -> bool:
    kind: DType = scatter.operands[0].array.dtype
    opcode = combiner(scatter)
    return opcode in EXACT or (opcode in ("add", "multiply") and (kind.is_integer or kind.is_pred))


def pairs_in_place(region: Region) -> dict[int, int]:
    """Result leaf -> operand leaf, where the operand is updated in its own buffer."""
    pairs = {}
    for pair in in_place_pairs(region.instruction):
        before = region.instruction.operands[: pair.operand]
        operand = sum(len(region.arrays_of(other)) for other in before)
        if region.inlined(operand) is None and not pair.operand_index:
            pairs[pair.output_index[0] if pair.output_index else 0] = operand
    return pairs


def _spec_ordered(site: Site, tile: Tile) -> KernelSpec:
    region = site.region
    elements = region.results[0].shape.elements
    blocks, threads = own_threads(site, elements, tile)
    results = written(range(len(region.results)))
    arguments = (*operands_read(region), *results)
    steps = (Launch.linear("", blocks, threads, arguments),) if elements else ()
    return KernelSpec("scatter-ordered", tile, steps)


KERNELS = (
    Kernel(
        "scatter-ordered",
        "a thread takes all updates of a result element in their order",
        _fits_ordered,
        _wanted_ordered,
        _tile,
        _spec_ordered,
    ),
    Kernel(
        "scatter",
        "a thread combines an update element into a place that no other thread writes",
        _fits_unique,
        always("a thread for each update element"),
        _tile,
        lambda site, tile: _spec("scatter", site, tile),
    ),
    Kernel(
        "scatter-atomic",
        "a thread combines an update element by an atomic operation",
        _fits_atomic,
        always("a thread for each update element"),
        _tile,
        lambda site, tile: _spec("scatter-atomic", site, tile),
    ),
)
