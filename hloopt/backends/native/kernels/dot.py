"""Small products on the native device, with their prologues and epilogues: a whole matrix per task.

Factors are brought to ``[m, k]`` and ``[k, n]`` in the type of the sums, unless they lie in memory like that;
sums are made with vectors along n, in order of k; what follows the product is computed as it is stored.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from hloopt.analysis.contraction import Contraction
from hloopt.analysis.region import Region
from hloopt.backends.native.kernels.gemm import is_regular
from hloopt.cost_models.host_products import MOST_PRODUCTS
from hloopt.errors import UsageError
from hloopt.kernels.families.dot_region import ProductRegion, product_of
from hloopt.kernels.families.loop import operands_read
from hloopt.kernels.kernel import NO, YES, Kernel, Recognizer, Site, Verdict
from hloopt.kernels.spec import KernelSpec, Launch, Tile, written

__all__ = [
    "KERNELS",
    "MOST_BYTES",
    "along_columns",
    "is_brief",
    "is_quick",
    "rows_of_a_task",
    "small_product",
]

_NAME = "native-dot"

MOST_BYTES: Final = 128 << 10
"""Of factors and sums of a task, which lie on the stack."""

# BLAS has no integer products; NumPy's loops are slower than these at any size.
_MOST_SLOW_PRODUCTS: Final = 256**3
# Convolution kernels are read again for every task's rows: they have to stay in the second-level cache.
_MOST_KERNEL: Final = 512 << 10
# With fewer results side by side vectors are mostly empty.
_LEAST_FEATURES: Final = 4
_LEAST_ROWS: Final = 8
_SHARED_ROWS: Final = 256
_FEW: Final = 4
# Fewer products are made before another thread has begun with some of them.
_SHARED_PRODUCTS: Final = 1 << 14


def along_columns(contraction: Contraction) -> Contraction:
    """With n as the longer of two sides of which one is too short for a vector."""
    m, n = contraction.size("m"), contraction.size("n")
    return contraction.swapped() if n < _FEW and m > n else contraction


@Recognizer
def small_product(region: Region) -> ProductRegion | str:
    """The product of a region if this kernel can make it, or why it cannot."""
    product = product_of.find(region)
    if isinstance(product, str):
        return product
    contraction = product.contraction
    hero = contraction.hero
    if hero.opcode not in ("dot", "convolution"):
        return f"{hero.name} is a {hero.opcode}"
    if contraction.accumulator.name not in ("f32", "f64", "u32", "u64"):
        return f"{hero.name} sums {contraction.accumulator}"
    if not rows_of_a_task(contraction):
        return f"a product of {hero.name} takes more than {MOST_BYTES} bytes of the stack"
    return product


def rows_of_a_task(contraction: Contraction) -> int:
    """How many rows of a product are made at once: all of a dot's, as many as fit of a convolution's; or 0."""
    contraction = along_columns(contraction)
    m, n, k = (contraction.size(group) for group in ("m", "n", "k"))
    width = contraction.accumulator.bits // 8
    rest = MOST_BYTES // width - (0 if _lies_by_columns(contraction) else k * n)
    if contraction.is_dot:
        return m if m * (k + n) <= rest else 0
    rows = min(m, rest // (k + n))
    # Tasks of about as many rows each, so that threads have some to share.
    parts = max(1, -(-m // max(rows, 1)), min(8, m // _SHARED_ROWS))
    return -(-m // parts) if rows >= min(m, _LEAST_ROWS) else 0


def _lies_by_columns(contraction: Contraction) -> bool:
    """Whether the right side lies in memory with neighbours along n: it is read where it is."""
    side = contraction.rhs
    last = side.positions[-1] if side.positions else None
    return (
        side.instruction.array.dtype is contraction.accumulator
        and side.instruction.opcode in ("parameter", "constant", "get-tuple-element")
        and last is not None
        and [axis for axis, _ in last.terms][-1:] == [("n", len(contraction.axes["n"]) - 1)]
        and is_regular(contraction, side, "kn")
    )


def _fits(site: Site) -> Verdict:
    product = small_product.find(site.region)
    if isinstance(product, str):
        return NO(product)
    contraction = product.contraction
    m, n, k = (contraction.size(group) for group in ("m", "n", "k"))
    return YES(f"m={m}, n={n}, k={k}")


def is_quick(region: Region) -> bool:
    """Whether a region is a product that this kernel makes quicker than BLAS would."""
    product = small_product.find(region)
    return not isinstance(product, str) and not _slowness(product.contraction)


def is_brief(region: Region) -> bool:
    """Whether one thread has made all products of a region before another one could help."""
    product = small_product.find(region)
    return not isinstance(product, str) and product.contraction.multiply_adds < _SHARED_PRODUCTS


def _slowness(contraction: Contraction) -> str:
    """Why BLAS is quicker, empty where it is not."""
    products = contraction.multiply_adds // max(contraction.size("b"), 1)
    most = _MOST_SLOW_PRODUCTS if contraction.kind.is_integer else MOST_PRODUCTS
    if not contraction.is_dot and products > most:
        n, kernel = contraction.size("n"), contraction.size("k") * contraction.size("n")
        size = kernel * contraction.accumulator.bits // 8
        if n < _LEAST_FEATURES:
            return f"n={n} is below {_LEAST_FEATURES}"
        return f"a kernel of {size} bytes is above {_MOST_KERNEL}" if size > _MOST_KERNEL else ""
    return f"m * n * k = {products} is above {most}: BLAS is quicker" if products > most else ""


def _wanted(site: Site) -> Verdict:
    product = small_product(site.region)
    slowness = _slowness(product.contraction)
    return NO(slowness) if slowness else YES("a call takes longer to get to BLAS")


def _tile(site: Site) -> Tile:
    product = small_product(site.region)
    return MappingProxyType({"rows": rows_of_a_task(product.contraction)})


def _spec(site: Site, tile: Tile) -> KernelSpec:
    product = small_product(site.region)
    results = written(range(len(site.region.results)))
    contraction = along_columns(product.contraction)
    most, rows = rows_of_a_task(contraction), tile["rows"]
    if rows > most:
        raise UsageError(f"{_NAME}: rows={rows}; a task has room for {most}")
    blocks = contraction.size("b") * -(-contraction.size("m") // rows)
    launch = Launch.linear("", blocks, 1, (*operands_read(site.region), *results))
    return KernelSpec(_NAME, tile, (launch,))


KERNELS = (
    Kernel(
        _NAME,
        "small products with the elementwise ops around them",
        _fits,
        _wanted,
        _tile,
        _spec,
        device="native",
    ),
)
