"""Sorting networks: a block sorts a row in shared memory, or many blocks sort long rows in global memory.

Both are bitonic networks for any length (Batcher's, with the first step of each size reversed, so that
all comparisons are upwards and those with places past the end are left out).  A network is not stable: where
equal elements can be distinguished, each carries its position, which decides between them.  Whatever the
comparator says, the results are the operands' elements in some order.
"""

from __future__ import annotations

from math import prod
from types import MappingProxyType

from hloopt.analysis.elementwise import plain_opcode
from hloopt.analysis.region import Region
from hloopt.errors import UsageError
from hloopt.ir import Instruction
from hloopt.kernels.families.loop import operands_read, own_threads
from hloopt.kernels.kernel import NO, YES, Kernel, Site, Verdict, always, elemental_problem
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

__all__ = ["KERNELS", "carries_positions", "rows_of", "sort_of"]


def sort_of(region: Region) -> Instruction | None:
    """The sort whose outputs are the results of a region, in order."""
    first = region.results[0].instruction if region.results else None
    if first is None or first.opcode != "sort" or len(region.results) != len(first.operands):
        return None
    return first


def rows_of(sort: Instruction) -> tuple[int, int, int]:
    """Rows, elements of a row, and how far apart these lie."""
    dims = sort.operands[0].array.dims
    axis = sort.attributes["dimensions"][0]
    length = dims[axis]
    return prod(dims) // max(length, 1), length, prod(dims[axis + 1 :])


def carries_positions(sort: Instruction) -> bool:
    """Whether equal elements can be distinguished: all but lone integers compared by the plain op."""
    kind = sort.operands[0].array.dtype
    plain = plain_opcode(sort.attributes["to_apply"]) == "compare" or _compares_both(sort)
    return not (len(sort.operands) == 1 and (kind.is_integer or kind.is_pred) and plain)


def _compares_both(sort: Instruction) -> bool:
    computation = sort.attributes["to_apply"]
    root = computation.root
    return root.opcode == "compare" and set(root.operands) == set(computation.parameters)


def _element_bytes(sort: Instruction) -> int:
    values = sum(-(-operand.array.dtype.bits // 8) for operand in sort.operands)
    return values + (4 if carries_positions(sort) else 0)


def _power(count: int) -> int:
    """The least power of two that is not below ``count``."""
    return 1 << max(0, count - 1).bit_length()


def _problem(site: Site) -> Verdict | Instruction:
    sort = sort_of(site.region)
    if sort is None:
        return NO("the results are not those of one sort")
    for operand in sort.operands:
        if operand.array.dtype.bits < 8:
            return NO(f"elements of {operand.array.dtype.name} share bytes with their neighbours")
    problem = elemental_problem(site.region, (sort,))
    return NO(problem) if problem else sort


def _fits_block(site: Site) -> Verdict:
    sort = _problem(site)
    if isinstance(sort, Verdict):
        return sort
    needed, limit = _power(rows_of(sort)[1]) * _element_bytes(sort), site.target.shared_per_block
    if needed > limit:
        return NO(f"a row needs {needed} bytes of shared memory, a block has {limit}")
    return YES(f"a row needs {needed} of {limit} bytes of shared memory")


def _fits_bitonic(site: Site) -> Verdict:
    sort = _problem(site)
    if isinstance(sort, Verdict):
        return sort
    if prod(sort.operands[0].array.dims) >= 2**31:
        return NO("positions of 2^31 elements and more need 64 bits")
    return YES("steps over global memory, the short ones in shared memory")


def _block_tile(site: Site) -> Tile:
    sort = sort_of(site.region)
    assert sort is not None
    length = _power(rows_of(sort)[1])
    threads = max(32, min(site.limits.sort_threads, length // 2))
    return MappingProxyType({"threads": threads, "vector": 1})


def _block_spec(site: Site, tile: Tile) -> KernelSpec:
    sort = sort_of(site.region)
    assert sort is not None
    rows, length, _ = rows_of(sort)
    results = written(range(len(site.region.results)))
    steps: tuple[KernelPart, ...] = ()
    if rows * length:
        launch = Launch.linear("", rows, tile["threads"], (*operands_read(site.region), *results))
        steps = (launch,)
    return KernelSpec("block-sort", tile, steps)


def _bitonic_tile(site: Site) -> Tile:
    sort = sort_of(site.region)
    assert sort is not None
    most = site.target.shared_per_block // _element_bytes(sort)
    tile = min(_power(most + 1) // 2, _power(rows_of(sort)[1]), 4 * site.limits.sort_threads)
    threads = max(32, min(site.limits.sort_threads, tile // 4))
    return MappingProxyType({"tile": max(tile, 2), "threads": threads, "vector": 1, "unroll": 1})


def _bitonic_spec(site: Site, tile: Tile) -> KernelSpec:
    """A pass over all elements, one over tiles; then for each size a launch a long step, one for all short."""
    sort = sort_of(site.region)
    assert sort is not None
    size = tile["tile"]
    if size & (size - 1) or size * _element_bytes(sort) > site.target.shared_per_block or size < 2:
        raise UsageError(
            f"bitonic-sort{{tile={size}}}: a tile is a power of two that fits "
            f"{site.target.shared_per_block} bytes of shared memory, {_element_bytes(sort)} an element"
        )
    rows, length, _ = rows_of(sort)
    if not rows * length:
        return KernelSpec("bitonic-sort", tile)
    scratch = (ScratchBuffer("s32", rows * length),) if carries_positions(sort) else ()
    results = [LeafPlace("result", number) for number in range(len(site.region.results))]
    own = [*results, *(LeafPlace("scratch", number) for number in range(len(scratch)))]
    blocks, threads = own_threads(site, rows * length, tile)
    begin = (*operands_read(site.region), *(Argument(place, "out") for place in own))
    steps: list[KernelPart] = [Launch.linear("_begin", blocks, threads, begin)]
    updated = tuple(Argument(place, "update") for place in own)
    tiles = rows * -(-length // size)
    whole_tiles = (tiles, tile["threads"], updated)
    steps.append(Launch.linear("_tile", *whole_tiles, scalars=(0,)))
    whole = _power(length)
    pairs, step_threads = own_threads(site, rows * max(whole // 2, 1), tile)
    reach = 2 * size
    while reach <= whole:
        half = reach // 2
        while half >= size:
            steps.append(
                Launch.linear("_step", pairs, step_threads, updated, scalars=(reach, half))
            )
            half //= 2
        steps.append(Launch.linear("_tile", *whole_tiles, scalars=(1,)))
        reach *= 2
    return KernelSpec("bitonic-sort", tile, tuple(steps), scratch)


KERNELS = (
    Kernel(
        "block-sort",
        "a block sorts a row in shared memory",
        _fits_block,
        always("a network of compare-and-swap steps"),
        _block_tile,
        _block_spec,
    ),
    Kernel(
        "bitonic-sort",
        "blocks sort tiles in shared memory and merge them in global memory",
        _fits_bitonic,
        always("a network of compare-and-swap steps"),
        _bitonic_tile,
        _bitonic_spec,
    ),
)
