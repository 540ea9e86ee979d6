"""Large products on the native device: blocks of both factors copied into the order in which they are read.

Every task makes some rows of one product.  Factors have to lie in memory with one distance between rows and one
between columns; BLAS makes the others, whose operands NumPy copies first.
"""

from __future__ import annotations

from itertools import pairwise
from types import MappingProxyType
from typing import Final

from hloopt.analysis.contraction import Contraction, Side
from hloopt.analysis.region import Region
from hloopt.cost_models.host_products import LEAST_SIDE
from hloopt.errors import UsageError
from hloopt.kernels.families.dot_region import product_of
from hloopt.kernels.families.loop import operands_read
from hloopt.kernels.kernel import NO, YES, Kernel, Recognizer, Site, Verdict
from hloopt.kernels.spec import Argument, KernelSpec, Launch, LeafPlace, Tile

__all__ = ["KERNELS", "is_regular", "large_product"]

_NAME = "native-gemm"

# Elements of a matrix that a task reads once: some 100 us.
_READ_ONCE: Final = 1 << 18
# So many rows copy the other factor once more, which is a hundredth of their work.
_ROWS: Final = 256
_LEAST_ROWS: Final = 48


@Recognizer
def large_product(region: Region) -> Contraction | str:
    """The product of a region if this kernel can make it, or why it cannot."""
    product = product_of.find(region)
    if isinstance(product, str):
        return product
    contraction = product.contraction
    if contraction.size("m") == 1:
        contraction = contraction.swapped()
    hero = contraction.hero
    if region.is_fusion or hero.opcode != "dot":
        return f"{region.instruction.name} is not a dot by itself"
    kind = contraction.accumulator
    kinds = {operand.array.dtype for operand in hero.operands} | {hero.array.dtype}
    if kinds != {kind} or kind.name not in ("f32", "f64"):
        return f"{hero.name} is not of f32 or f64 alone"
    for side, groups in ((contraction.lhs, "mk"), (contraction.rhs, "kn")):
        if not is_regular(contraction, side, groups):
            return f"rows or columns of {side.instruction.name} are not equally far apart"
    return contraction


def is_regular(contraction: Contraction, side: Side, groups: str) -> bool:
    """Whether the axes of each group lie like one: each as far apart as the next inner one is long."""
    strides: dict[tuple[str, int], int] = {}
    step = 1
    dims = side.instruction.array.dims
    for position, size in zip(reversed(side.positions), reversed(dims), strict=True):
        for axis, count in position.terms:
            strides[axis] = strides.get(axis, 0) + count * step
        step *= size
    for group in groups:
        sizes = contraction.axes[group]  # type: ignore[index]
        axes = [(at, size) for at, size in enumerate(sizes) if size > 1]
        for (outer, _), (inner, size) in pairwise(axes):
            if strides[group, outer] != strides[group, inner] * size:
                return False
    return True


def _fits(site: Site) -> Verdict:
    contraction = large_product.find(site.region)
    if isinstance(contraction, str):
        return NO(contraction)
    m, n, k = (contraction.size(group) for group in ("m", "n", "k"))
    return YES(f"m={m}, n={n}, k={k}")


def _wanted(site: Site) -> Verdict:
    contraction = large_product(site.region)
    m, n = contraction.size("m"), contraction.size("n")
    # With fewer rows or columns tiles are mostly empty; a matrix times a vector is read once.
    if 1 < n < LEAST_SIDE or m < min(n, LEAST_SIDE):
        return NO(f"m={m} or n={n} is below {LEAST_SIDE}: BLAS has loops for that")
    if n == 1:
        return YES("a matrix times a vector")
    return YES(f"m={m} and n={n} are at least {LEAST_SIDE}")


def _tile(site: Site) -> Tile:
    contraction = large_product(site.region)
    m, b = contraction.size("m"), contraction.size("b")
    if contraction.size("n") == 1:
        parts = max(1, min(m // _LEAST_ROWS, m * contraction.size("k") // _READ_ONCE))
    else:
        parts = max(1, round(m / _ROWS), min(4 // b, m // _LEAST_ROWS))
    return MappingProxyType({"rows": -(-m // parts)})


def _spec(site: Site, tile: Tile) -> KernelSpec:
    contraction = large_product(site.region)
    m, rows = contraction.size("m"), tile["rows"]
    if rows > m:
        raise UsageError(f"{_NAME}: rows={rows}; the product has {m}")
    blocks = contraction.size("b") * -(-m // rows)
    arguments = (*operands_read(site.region), Argument(LeafPlace("result", 0), "out"))
    return KernelSpec(_NAME, tile, (Launch.linear("", blocks, 1, arguments),))


KERNELS = (
    Kernel(
        _NAME,
        "large products by blocks that stay in the caches",
        _fits,
        _wanted,
        _tile,
        _spec,
        device="native",
    ),
)
