"""Small products on the native device, with what stands around them: all of a matrix in a task.

Factors are brought to ``[m, k]`` and ``[k, n]`` in the type of the sums, unless they lie in memory like that;
sums are made with vectors along n, in order of k; what follows the product is computed as it is stored.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from hloopt.analysis.contraction import Contraction
from hloopt.analysis.region import Region
from hloopt.kernels.families.dot_region import Product, product_of
from hloopt.kernels.families.loop import operands_read
from hloopt.kernels.kernel import NO, YES, Efficiency, Kernel, Site, Verdict
from hloopt.kernels.spec import Argument, KernelSpec, Launch, Place, Tile

__all__ = ["KERNELS", "MOST_BYTES", "along_columns", "is_quick", "small_product"]

_NAME = "native-dot"

MOST_BYTES: Final = 128 << 10
"""Of factors and sums of one product, which lie on the stack."""

# Up to here a loop beats a call of BLAS, which takes 2 us to get there (measured with f32 and AVX-512: 48^3).
_MOST_PRODUCTS: Final = 48**3
# BLAS has no products of integers; NumPy's own loops are slower than these whatever the size.
_MOST_SLOW_PRODUCTS: Final = 256**3
_FEW: Final = 4


def along_columns(contraction: Contraction) -> Contraction:
    """With n as the longer of two sides of which one is too short for a vector."""
    m, n = contraction.size("m"), contraction.size("n")
    return contraction.swapped() if n < _FEW and m > n else contraction


def small_product(region: Region) -> Product | str:
    """The product of a region if this kernel can make it, or why it cannot."""
    product = product_of(region)
    if isinstance(product, str):
        return product
    contraction = product.contraction
    hero = contraction.hero
    if hero.opcode not in ("dot", "convolution"):
        return f"{hero.name} is a {hero.opcode}"
    if contraction.accumulator.name not in ("f32", "f64", "u32", "u64"):
        return f"{hero.name} sums {contraction.accumulator}"
    m, n, k = (contraction.size(group) for group in ("m", "n", "k"))
    size = (m * k + k * n + m * n) * contraction.accumulator.bits // 8
    if size > MOST_BYTES:
        return f"a product of {hero.name} takes {size} bytes; the stack has {MOST_BYTES}"
    return product


def _fits(site: Site) -> Verdict:
    product = small_product(site.region)
    if isinstance(product, str):
        return NO(product)
    contraction = product.contraction
    m, n, k = (contraction.size(group) for group in ("m", "n", "k"))
    return YES(f"m={m}, n={n}, k={k}")


def is_quick(region: Region) -> bool:
    """Whether a region is a product that this kernel makes quicker than BLAS would."""
    product = small_product(region)
    return not isinstance(product, str) and _products(product.contraction) <= _most(product)


def _products(contraction: Contraction) -> int:
    return contraction.multiply_adds // max(contraction.size("b"), 1)


def _most(product: Product) -> int:
    return _MOST_SLOW_PRODUCTS if product.contraction.kind.is_integer else _MOST_PRODUCTS


def _wanted(site: Site) -> Verdict:
    product = small_product(site.region)
    assert isinstance(product, Product)
    products, most = _products(product.contraction), _most(product)
    if products > most:
        return NO(f"m * n * k = {products} is above {most}: BLAS is quicker")
    return YES(f"m * n * k = {products} is at most {most}")


def _spec(site: Site, tile: Tile) -> KernelSpec:
    product = small_product(site.region)
    assert isinstance(product, Product)
    results = (
        Argument(Place("result", number), "out") for number in range(len(site.region.results))
    )
    grid = (product.contraction.size("b"), 1, 1)
    launch = Launch("", grid, (1, 1, 1), (*operands_read(site.region), *results))
    return KernelSpec(_NAME, tile, (launch,))


KERNELS = (
    Kernel(
        _NAME,
        "small products with what stands around them",
        _fits,
        _wanted,
        lambda _: MappingProxyType({}),
        _spec,
        device="native",
        efficiency=lambda *_: Efficiency(),
    ),
)
