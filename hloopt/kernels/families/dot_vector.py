"""Products of matrices with vectors: every element of the matrix is read once."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from types import MappingProxyType

from hloopt.analysis.contraction import Contraction
from hloopt.errors import UsageError
from hloopt.kernels.families.dot_region import dot_of, product_of
from hloopt.kernels.families.dot_tiled import described, result_numbers
from hloopt.kernels.families.loop import operands_read
from hloopt.kernels.kernel import NO, YES, Efficiency, Kernel, Site, Verdict, overwritable
from hloopt.kernels.spec import KernelSpec, Launch, Tile, written

__all__ = ["KERNELS", "along_rows", "with_vector"]

_NAME = "dot-matrix-vector"
_VECTOR_BITS = 128
_WARP = 32


def with_vector(contraction: Contraction) -> Contraction:
    """The contraction with the vector as its right operand."""
    return contraction if contraction.size("n") == 1 else contraction.swapped()


def along_rows(contraction: Contraction) -> bool:
    """Whether the contracted axis moves through neighbours of the matrix, so that a warp adds up a row."""
    return contraction.quickest(contraction.lhs) in ("k", "b")


def _fits(site: Site) -> Verdict:
    if problem := dot_of.problem(site.region):
        return NO(problem)
    contraction = dot_of(site.region).contraction
    m, n = contraction.size("m"), contraction.size("n")
    if min(m, n) != 1:
        return NO(f"neither m={m} nor n={n} is 1")
    return YES(described(contraction))


def _contraction(site: Site) -> Contraction:
    return with_vector(product_of(site.region).contraction)


def _wanted(site: Site) -> Verdict:
    contraction = _contraction(site)
    work = (contraction.size("m") + 1) * contraction.size("k")
    least = site.limits.dot_loop_work
    if work < least:
        return NO(f"(m + n) * k = {work} is below {least}", "dot_loop_work")
    return YES(
        f"a vector is multiplied, and (m + n) * k = {work} is {least} or more", "dot_loop_work"
    )


def _tile(site: Site) -> Tile:
    contraction = _contraction(site)
    rows, k = contraction.size("m"), contraction.size("k")
    every = contraction.size("b") * rows
    bits = max(8, contraction.lhs.instruction.array.dtype.bits)
    widest = max(1, _VECTOR_BITS // bits)
    if along_rows(contraction):
        vector = _run(k, widest)
        sharing = _WARP
        # Few rows are shared by more threads, as long as each has four vectors.
        while (
            sharing < 512
            and every * sharing < 512 * site.target.cores
            and (sharing * 8 * vector <= k)
        ):
            sharing *= 2
        return MappingProxyType(
            {"rows": max(1, 128 // sharing), "threads_k": sharing, "vector": vector}
        )
    vector = _run(rows, widest)
    while vector > 1 and every < 2 * _WARP * vector * site.target.cores:
        vector //= 2
    sharing = 1
    while sharing < 32 and sharing * 8 <= k:
        sharing *= 2
    return MappingProxyType({"rows": _WARP * vector, "threads_k": sharing, "vector": vector})


def _run(extent: int, widest: int) -> int:
    run = gcd(extent, widest)
    return run & -run


def _spec(site: Site, tile: Mapping[str, int]) -> KernelSpec:
    contraction = _contraction(site)
    rows, sharing, vector = tile["rows"], tile["threads_k"], tile["vector"]
    for key, value in tile.items():
        if value < 1:
            raise UsageError(f"{_NAME}: {key}={value}; it must be at least 1")
    is_row = along_rows(contraction)
    axis, extent = ("k", contraction.size("k")) if is_row else ("m", contraction.size("m"))
    if vector not in (1, 2, 4, 8, 16) or extent % vector:
        raise UsageError(f"{_NAME}: vector={vector}; {_run(extent, 16)} divides {axis}={extent}")
    if is_row:
        threads = rows * sharing
        if sharing % _WARP:
            raise UsageError(f"{_NAME}: threads_k={sharing}; it is a multiple of {_WARP}")
    else:
        threads = rows // vector * sharing
        if rows % (_WARP * vector):
            raise UsageError(
                f"{_NAME}: rows={rows}; it is a multiple of {_WARP} * vector = {_WARP * vector}"
            )
        shared = rows * sharing * contraction.accumulator.bytes
        if shared > site.target.shared_per_block:
            raise UsageError(
                f"{_NAME}: partial sums of {shared} bytes; make rows or threads_k smaller"
            )
    if threads > site.target.threads_per_block:
        raise UsageError(
            f"{_NAME}: {threads} threads; a block has at most {site.target.threads_per_block}"
        )
    blocks = contraction.size("b") * -(-contraction.size("m") // rows)
    arguments = (
        *operands_read(site.region),
        *written(result_numbers(site)),
    )
    launch = Launch.linear("", blocks, threads, arguments)
    return KernelSpec(_NAME, tile, (launch,), overwrites=overwritable(site.region))


def _efficiency(_: Site, __: KernelSpec) -> Efficiency:
    return Efficiency(0.9, reason="every element is read once, side by side")


KERNELS = (
    Kernel(
        _NAME,
        "a row of the matrix to a warp or more, or its columns to neighbouring threads",
        _fits,
        _wanted,
        _tile,
        _spec,
        efficiency=_efficiency,
    ),
)
