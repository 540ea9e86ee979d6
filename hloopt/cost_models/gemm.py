"""How long matrix products and convolutions take in a library: the best of its usual tiles.

::

    time = fill + max(waves * 2 * m * n * k / rate, bytes / bandwidth) + sum of the parts of k, if it is split

``m`` and ``n`` are a tile's rows and columns, ``waves`` the tiles over the cores, rounded up, and ``rate`` the
flops a second of one core: no more than its units for matrices sustain, its shared memory feeds to them, and
the second-level cache feeds to that.  The launch comes on top.  Squares of 6,144 and 8,192 in bf16 on an H100
SXM are 691 and 693 TFLOP/s so, where cuBLAS was measured at 741 and 798 (public benchmark fast.cu).

An aligned row begins at a multiple of 16 bytes, and is copied to shared memory past the registers.  No load is
wider than what the start of every row is a multiple of, and none of less than 4 bytes is copied (``cp.async``,
PTX ISA): each lane then loads and stores that many bytes.  Both take their turn with the reads of the units
that multiply, since the memory of a core serves the 32 lanes of one access a clock (CUDA C++ Programming
Guide, shared memory).  That is a lower bound: index arithmetic and the missing overlap come on top.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, gcd
from typing import Final

from hloopt.analysis.cost import Cost, instruction_cost
from hloopt.analysis.emitters.dots import TINY, DotSizes
from hloopt.analysis.library_calls import (
    convolution_arrays,
    is_convolution_call,
    is_product_call,
    product_activation,
    product_dims,
)
from hloopt.cost_models.device_times import L2_SPEEDUP, LAUNCH_NS
from hloopt.cost_models.model import RunTime
from hloopt.cost_models.roofline import product_of, product_rate
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.targets import Target
from hloopt.types import ArrayShape, DotDims, elements_of, leaves

__all__ = [
    "ALIGNED",
    "COPIED",
    "NAME",
    "GemmSizes",
    "best_time",
    "gemm_run_time",
    "product_shape",
    "row_alignment",
]

NAME: Final = "gemm"
"""The name of this model in reports."""

_FILL_NS: Final = 1000.0
"""First loads and last stores: a small product of a library takes 2 to 3 us with its launch."""
_SUSTAINED: Final = 0.8  # of the peak: wgmma on sm_90a, mma.sync elsewhere 0.6 to 0.95
_SHARED_CLOCK_BYTES: Final = 128  # of one core
_L2_CLOCK_BYTES: Final = 64  # that one core gets at most
ALIGNED: Final = 16  # bytes of the widest load
COPIED: Final = 4  # bytes from which on a load goes to shared memory by itself
_LANES: Final = 32  # of one access
_WARPS: Final = (2, 2)  # of a tile, in rows and columns
_TILES: Final = (
    (256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (64, 32), (32, 64), (32, 32), (16, 16),
)  # fmt: skip
_SPLITS: Final = (1, 2, 4, 8, 16, 32)
_ACTIVATION_OPS: Final = {"RELU": 1, "GELU": 24, "SILU": 20}
"""Of an element: a transcendental function counts 16."""
_SOUGHT: Final = {"__cudnn$convBackwardInput": 0, "__cudnn$convBackwardFilter": 1}


@dataclass(frozen=True, slots=True)
class GemmSizes:
    """``batch`` products of ``rows`` x ``depth`` and ``depth`` x ``columns`` of one element type."""

    batch: int
    rows: int
    columns: int
    depth: int
    dtype: str
    element_bytes: float


def gemm_run_time(kernel: Instruction, target: Target) -> RunTime | None:
    """Of a kernel made for a product; None for others, and on devices whose rates or cores are not known."""
    product = product_of(kernel)
    if product is None or not target.has_threads:
        return None
    shape = product_shape(product)
    rate = product_rate(kernel, product, target)
    if shape is None or not rate:
        return None
    loads = _loads(product) if product.opcode == "dot" else (ALIGNED, ALIGNED)
    found = best_time(shape, instruction_cost(kernel), target, rate, loads)
    return replace(found, exec_ns=found.exec_ns + _activation_ns(product, target))


def _activation_ns(product: Instruction, target: Target) -> float:
    """Of the activation in a call's epilogue, which the plain units compute of each result."""
    if not is_product_call(product):
        return 0.0
    ops = _ACTIVATION_OPS.get(product_activation(product), 0)
    lanes = target.clock_ghz * 2 * target.cores * target.fpus_per_core
    return ops * elements_of(next(iter(leaves(product.shape)))) / lanes


def row_alignment(shape: ArrayShape) -> int:
    """The bytes, 16 at most, that the start of each row in memory is a multiple of; less than one is one."""
    if not shape.rank:
        return ALIGNED
    minor = shape.layout.minor_to_major[0] if shape.layout else shape.rank - 1
    if shape.elements == shape.dims[minor]:
        return ALIGNED
    return max(1, gcd(shape.dims[minor] * shape.dtype.bits // 8, ALIGNED))


def _loads(product: Instruction) -> tuple[int, int]:
    """The bytes of the widest load of each factor, from the arrays in memory that it is computed of."""
    left, right = (row_alignment(_in_memory(one).array) for one in product.operands[:2])
    return left, right


def _in_memory(factor: Instruction) -> Instruction:
    """What a kernel reads for a factor: of several arrays the largest."""
    while factor.operands and any(one.opcode == "fusion" for one in factor.home.callers):
        arrays = [one for one in factor.operands if one.is_array]
        if not arrays:
            break
        factor = max(arrays, key=lambda one: one.shape.byte_size)
    return factor


def product_shape(product: Instruction) -> GemmSizes | None:
    """The matrices of a dot, a convolution or a library's product; None where the text does not show them."""
    if product.opcode == "dot":
        return _dot(product, DotDims.of(product.attributes))
    if product.opcode == "convolution":
        shapes = [*(operand.shape for operand in product.operands[:2]), product.shape]
        arrays = [shape for shape in shapes if isinstance(shape, ArrayShape)]
        return _convolution(product, arrays) if len(arrays) == len(shapes) else None
    if is_convolution_call(product):
        sought = _SOUGHT.get(product.custom_call_target, 2)
        return _convolution(product, convolution_arrays(product), sought)
    if is_product_call(product):
        return _dot(product, product_dims(product))
    return None


def _dot(product: Instruction, dims: DotDims) -> GemmSizes | None:
    shapes = [operand.shape for operand in product.operands[:2]]
    if not all(isinstance(shape, ArrayShape) for shape in shapes):
        return None
    sizes = DotSizes.of(product, dims)
    if 0 in (sizes.batch, sizes.m, sizes.n, sizes.k):
        return None
    return _made(product, sizes.batch, sizes.m, sizes.n, sizes.k)


def _convolution(
    product: Instruction, arrays: Sequence[ArrayShape], sought: int = 2
) -> GemmSizes | None:
    """As an implicit product of which ``sought`` is computed: the input, the kernel or the result.

    Positions of the result, its features, and the inputs of a window are the three sides: of the forward
    convolution the last one is the depth, of the gradients one of the others (with the input's own positions).
    """
    source, kernel, result = arrays
    labels = product.attributes["dim_labels"]
    groups = product.attributes.get("feature_group_count", 1)
    if not source.elements or not kernel.elements or not result.elements:
        return None
    taps = product.window.size
    inputs = kernel.dims[labels.kernel_input_feature]
    features = max(1, kernel.dims[labels.kernel_output_feature] // groups)
    positions = result.elements // kernel.dims[labels.kernel_output_feature]
    if sought == 0:
        rows = max(1, source.elements // (inputs * groups))
        return _made(product, groups, rows, inputs, taps * features)
    if sought == 1:
        return _made(product, groups, taps * inputs, features, positions)
    return _made(product, groups, positions, features, taps * inputs)


def _made(product: Instruction, batch: int, rows: int, columns: int, depth: int) -> GemmSizes:
    dtype = product.operands[0].array.dtype
    return GemmSizes(batch, rows, columns, depth, dtype.name, dtype.bits / 8)


def best_time(
    product: GemmSizes,
    cost: Cost,
    target: Target,
    peak: float,
    loads: tuple[int, int] = (ALIGNED, ALIGNED),
) -> RunTime:
    """Of the tile and the split of the depth that take least; ``cost`` has the bytes of the whole kernel.

    ``peak`` is the flops a second of the units that multiply, ``loads`` the bytes of the widest load of each
    factor.
    """
    bandwidth = target.memory_bandwidth * 1e-9
    reading, writing = cost.bytes_read / bandwidth, cost.bytes_written / bandwidth
    best = min(
        (_parts(product, tile, split, target, peak, loads) for tile in _TILES for split in _SPLITS),
        key=lambda found: max(found[0], reading + writing) + found[1],
    )
    computing, summing, blocks = best
    is_loop = (product.rows + product.columns) * product.depth < TINY
    filling = 0.0 if is_loop else _FILL_NS
    return RunTime(
        cost.flops + cost.transcendentals,
        cost.bytes_read,
        cost.bytes_written,
        reading,
        writing,
        computing,
        filling + max(computing, reading + writing) + summing,
        blocks,
        32 * _WARPS[0] * _WARPS[1],
    )


def _parts(
    product: GemmSizes,
    tile: tuple[int, int],
    split: int,
    target: Target,
    peak: float,
    loads: tuple[int, int],
) -> tuple[float, float, int]:
    """Nanoseconds of all waves, and of adding up parts of the depth; blocks."""
    rows, columns = tile
    depth = ceil(product.depth / split)
    blocks = product.batch * ceil(product.rows / rows) * ceil(product.columns / columns) * split
    rate = _rate(product, tile, min(blocks, target.cores), target, peak, loads)
    computing = ceil(blocks / target.cores) * 2 * rows * columns * depth / rate * 1e9
    if split == 1:
        return computing, 0.0, blocks
    results = product.batch * product.rows * product.columns
    moved = 4 * results * (2 * split + 1)
    return computing, LAUNCH_NS + moved / target.memory_bandwidth * 1e9, blocks


def _rate(
    product: GemmSizes,
    tile: tuple[int, int],
    cores: int,
    target: Target,
    peak: float,
    loads: tuple[int, int],
) -> float:
    """Flops a second of one of so many cores that work."""
    rows, columns = tile
    clock = target.clock_ghz * 1e9
    warp_rows, warp_columns = rows / _WARPS[0], columns / _WARPS[1]
    bytes_ = product.element_bytes
    fed = 2 * warp_rows * warp_columns / ((warp_rows + warp_columns) * bytes_)
    shared = clock * _SHARED_CLOCK_BYTES * fed
    if min(loads) < COPIED:
        accesses = sum(  # of loads and stores, for 1 of the depth
            2 * side * bytes_ / (_LANES * load)
            for side, load in zip(tile, loads, strict=True)
            if load < COPIED
        )
        shared = 1 / (1 / shared + accesses / (2 * rows * columns * clock))
    cached = 2 * rows * columns / ((rows + columns) * bytes_)
    from_l2 = target.memory_bandwidth * L2_SPEEDUP / cores
    l2 = min(from_l2, clock * _L2_CLOCK_BYTES) * cached
    return min(peak / target.cores * _SUSTAINED, shared, l2)
