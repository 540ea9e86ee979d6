"""A loop with a block for each work item: state in shared memory, as few barriers in an iteration as can be."""

from __future__ import annotations

from types import MappingProxyType

from hloopt.analysis.parallel_loop import FusedLoop, fused_loop
from hloopt.analysis.parallel_loop.block_mapping import block_loop, block_mapping, shared_limit
from hloopt.analysis.parallel_loop.block_plan import block_plan
from hloopt.analysis.parallel_loop.block_stages import BlockPlan
from hloopt.analysis.reduction import WARP_SIZE
from hloopt.analysis.region import Region
from hloopt.errors import UsageError
from hloopt.kernels.families.loop import operands_read
from hloopt.kernels.kernel import NO, YES, Kernel, Site, Verdict, always
from hloopt.kernels.spec import Argument, KernelSpec, Launch, LeafPlace, Tile

__all__ = ["KERNELS", "block_kernel"]

_NAME = "while-per-block"


def block_kernel(region: Region, threads: int) -> tuple[FusedLoop, BlockPlan]:
    """The loop that a region is, and its plan for blocks of so many threads."""
    fused = fused_loop(region.instruction)
    assert fused is not None, "a fusion of one loop"
    return fused, block_plan(block_loop(fused.loop), threads)


def _fits(site: Site) -> Verdict:
    fused = fused_loop(site.region.instruction)
    if fused is None:
        return NO("it is not the fusion of one loop")
    mapping = block_mapping(fused.loop, site.target)
    if mapping.problem:
        return NO(mapping.problem)
    work_items, most = mapping.parallel.work_items, site.target.grid_limit[0]
    if work_items > most:
        return NO(f"{work_items} work items, a grid has at most {most} blocks")
    return YES(
        f"the state of a work item takes {mapping.shared_bytes} bytes of {shared_limit(site.target)}"
    )


def _tile(site: Site) -> Tile:
    fused = fused_loop(site.region.instruction)
    assert fused is not None
    return MappingProxyType({"threads": block_mapping(fused.loop, site.target).threads})


def _spec(site: Site, tile: Tile) -> KernelSpec:
    threads, most = tile["threads"], site.target.threads_per_block
    is_even = threads % WARP_SIZE == 0 and (threads <= 256 or threads & (threads - 1) == 0)
    if not is_even or not WARP_SIZE <= threads <= most:
        raise UsageError(
            f"{_NAME}: threads={threads}; a block has a multiple of {WARP_SIZE}, {WARP_SIZE} to {most},"
            " above 256 a power of two"
        )
    _, plan = block_kernel(site.region, threads)
    limit = shared_limit(site.target)
    if plan.shared_bytes > limit:
        raise UsageError(
            f"{_NAME}: threads={threads}; a block would hold {plan.shared_bytes} bytes, it has {limit}"
        )
    work_items = plan.parallel.work_items
    if not work_items:
        return KernelSpec(_NAME, tile)
    results = (
        Argument(LeafPlace("result", number), "out")
        for number, result in enumerate(site.region.results)
        if result.shape.elements
    )
    arguments = (*operands_read(site.region), *results)
    # More than a function may declare is given by the launch.
    given = plan.shared_bytes if plan.shared_bytes > site.target.shared_per_block else 0
    launch = Launch.linear("", work_items, threads, arguments, shared=given)
    return KernelSpec(_NAME, tile, (launch,))


KERNELS = (
    Kernel(
        _NAME,
        "the threads of a block run a loop together, its state in shared memory",
        _fits,
        always("what threads read of each other is in shared memory"),
        _tile,
        _spec,
    ),
)
