"""Products of small matrices: all of a product, or of several, in one block."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from hloopt.analysis.contraction import Contraction
from hloopt.errors import UsageError
from hloopt.kernels.families.dot_region import dot_of
from hloopt.kernels.families.dot_tiled import described, result_numbers, splits_that_fit
from hloopt.kernels.families.dot_tiling import SHARED_BYTES, contraction_of, element_bytes
from hloopt.kernels.families.loop import operands_read
from hloopt.kernels.kernel import NO, YES, Kernel, Site, Verdict, overwritable
from hloopt.kernels.spec import KernelSpec, Launch, Tile, written

__all__ = ["KERNELS", "block_threads"]

_NAME = "dot-small"
_MOST_RESULTS = 1024
_THREADS = 128
_DEPTH = 64


def block_threads(contraction: Contraction, tile: Mapping[str, int]) -> int:
    """Threads that have work: one for each product of the block, result and slice of k."""
    results = contraction.size("m") * contraction.size("n")
    return tile["batches"] * results * tile["slices"]


def _fits(site: Site) -> Verdict:
    if problem := dot_of.problem(site.region):
        return NO(problem)
    contraction = dot_of(site.region).contraction
    results = contraction.size("m") * contraction.size("n")
    if results > _MOST_RESULTS:
        return NO(f"m * n = {results}; a block has a thread for each of at most {_MOST_RESULTS}")
    if _shared(contraction, 1, 1, 1) > SHARED_BYTES:
        return NO(f"rows and columns of one k need more than {SHARED_BYTES} bytes")
    return YES(described(contraction))


def _shared(contraction: Contraction, batches: int, k: int, slices: int) -> int:
    m, n = contraction.size("m"), contraction.size("n")
    sums = batches * m * n * slices if slices > 1 else 0
    return (batches * (m * (k + 1) + k * n) + sums) * element_bytes(contraction)


def _wanted(site: Site) -> Verdict:
    contraction = contraction_of(site)
    m, n, k = (contraction.size(group) for group in ("m", "n", "k"))
    most, least = site.limits.dot_small_size, site.limits.dot_loop_work
    if (m + n) * k < least:
        return NO(f"(m + n) * k = {(m + n) * k} is below {least}", "dot_loop_work")
    if max(m, n) > most:
        return NO(f"m={m} or n={n} is above {most}", "dot_small_size")
    split = splits_that_fit(site, contraction)
    if k > site.limits.dot_small_depth and split > 1:
        return NO(f"k={k} is above {site.limits.dot_small_depth}: {split} parts", "dot_small_depth")
    return YES(f"m={m} and n={n} are at most {most}", "dot_small_size")


def _tile(site: Site) -> Tile:
    contraction = contraction_of(site)
    b, k = contraction.size("b"), contraction.size("k")
    results = contraction.size("m") * contraction.size("n")
    slices = 1
    while slices * 2 * results <= 2 * _THREADS and slices * 32 <= k:
        slices *= 2
    batches = max(1, min(b, _THREADS // (results * slices), b // (2 * site.target.cores)))
    depth = min(k, max(_DEPTH, slices * 8))
    while depth > slices and _shared(contraction, batches, depth, slices) > SHARED_BYTES:
        depth //= 2
    while batches > 1 and _shared(contraction, batches, depth, slices) > SHARED_BYTES:
        batches //= 2
    while slices > 1 and _shared(contraction, batches, depth, slices) > SHARED_BYTES:
        slices //= 2
        depth = min(depth, slices)
    return MappingProxyType({"batches": batches, "k": depth, "slices": slices})


def _spec(site: Site, tile: Mapping[str, int]) -> KernelSpec:
    contraction = contraction_of(site)
    for key, value in tile.items():
        if value < 1:
            raise UsageError(f"{_NAME}: {key}={value}; it must be at least 1")
    threads = block_threads(contraction, tile)
    if threads > _MOST_RESULTS:
        raise UsageError(
            f"{_NAME}: batches * m * n * slices = {threads} threads; a block has at most {_MOST_RESULTS}"
        )
    shared = _shared(contraction, tile["batches"], tile["k"], tile["slices"])
    if shared > SHARED_BYTES:
        raise UsageError(
            f"{_NAME}: {shared} bytes of shared memory; there are {SHARED_BYTES}: make k or batches smaller"
        )
    blocks = -(-contraction.size("b") // tile["batches"])
    arguments = (
        *operands_read(site.region),
        *written(result_numbers(site)),
    )
    whole_warps = -(-threads // 32) * 32
    launch = Launch.linear("", blocks, whole_warps, arguments)
    return KernelSpec(_NAME, tile, (launch,), overwrites=overwritable(site.region))


KERNELS = (
    Kernel(
        _NAME,
        "one product or several to a block, operands in shared memory, a thread for each result",
        _fits,
        _wanted,
        _tile,
        _spec,
    ),
)
