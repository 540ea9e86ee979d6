"""What XLA does with a dot by its sizes: a loop, or a contraction split in parts."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.targets import Target
from hloopt.types import DTYPES, DotDims, DType

__all__ = [
    "TINY",
    "DotSizes",
    "SplitWeights",
    "accumulator_type",
    "split_cost",
    "split_k",
]


@dataclass(frozen=True)
class SplitWeights:
    """What a flop, a byte, a byte of the added reduction and its launch cost, in one unit."""

    compute: float
    memory: float
    reduction: float
    launch: float


_WEIGHTS: Mapping[int, SplitWeights] = {
    10: SplitWeights(100, 0.0848863, 189.711, 1.21563e8),
    9: SplitWeights(100, 0.194136, 193.1384, 4.36e7),
    0: SplitWeights(100, 0.0666955, 467.815, 5.65307e7),
}
# Flops of a multiply-add by the algorithm that emulates it.
_ALGORITHM_FLOPS = (("X9", 28), ("X6", 20), ("X3", 12))


TINY: Final = 100
"""Below this (M + N) * K a dot is a loop kernel."""
_MAX_SPLIT: Final = 2048
"""Parts of a contraction, at most."""
_TILE: Final = 128
"""Side of the tile that the cost of parts is estimated with."""


@dataclass(frozen=True, slots=True)
class DotSizes:
    """Elements along each kind of dimension: batch, M (of the left), N (of the right), K (contracted)."""

    batch: int
    m: int
    n: int
    k: int

    @classmethod
    def of(cls, dot: Instruction, dims: DotDims | None = None) -> DotSizes:
        """Read from a dot, or from something else that has such dimensions."""
        lhs, rhs = (operand.array for operand in dot.operands[:2])
        dims = dims or DotDims.of(dot.attributes)
        batch = prod(lhs.dims[dimension] for dimension in dims.lhs_batch)
        depth = prod(lhs.dims[dimension] for dimension in dims.lhs_contracting)
        rows = prod(lhs.dims[dimension] for dimension in dims.lhs_free(lhs.rank))
        columns = prod(rhs.dims[dimension] for dimension in dims.rhs_free(rhs.rank))
        return cls(batch, rows, columns, depth)


def split_cost(
    sizes: DotSizes, split: int, bits: tuple[int, int, int, int], target: Target, flops: int = 2
) -> float:
    """The estimated cost of a dot whose contraction is cut into ``split`` parts, in XLA's unit.

    ``bits`` are the widths of left, right, accumulator and result; ``flops`` those of one multiply-add.
    """
    lhs, rhs, accumulator, result = bits
    weights = _weights(target)
    depth = -(-sizes.k // split)
    side = _TILE
    tiles = sizes.batch * split * -(-sizes.m // side) * -(-sizes.n // side)
    tile = min(sizes.m, side) * min(sizes.n, side)
    waves = max(1.0, tiles * tile / (target.cores * side * side))
    compute = flops * tile * depth * waves * weights.compute
    written = sizes.m * sizes.n * sizes.batch * split
    memory = weights.memory * (
        sizes.m * sizes.k * sizes.batch * lhs / 8
        + sizes.n * sizes.k * sizes.batch * rhs / 8
        + written * (accumulator if split > 1 else result) / 8
    )
    cost = max(compute, memory)
    if split == 1:
        return cost
    reduced = written * accumulator / 8 + sizes.batch * sizes.m * sizes.n * result / 8
    return cost + weights.launch + reduced * weights.reduction


def split_k(dot: Instruction, target: Target) -> tuple[int, int]:
    """Into how many parts XLA cuts a contraction, and the zeros it is padded with to be cut.

    Dots with one contracted dimension and no s32 operand are cut, into 1, 2, 4 .. parts, where the estimate is
    least.  Operands count as wide as what elementwise ops of one operand make them of: these are fused.  The
    padding makes each part a multiple of 128 bits.
    """
    dims = DotDims.of(dot.attributes)
    if len(dims.lhs_contracting) != 1:
        return 1, 0
    if any(operand.array.dtype.name == "s32" for operand in dot.operands[:2]):
        return 1, 0
    sizes = DotSizes.of(dot)
    if 0 in (sizes.batch, sizes.m, sizes.n, sizes.k):
        return 1, 0
    lhs, rhs = (_read_bits(operand) for operand in dot.operands[:2])
    bits = (lhs, rhs, accumulator_type(dot).bits, dot.array.dtype.bits)
    algorithm = str(dot.attributes.get("algorithm", "")).upper()
    flops = next((count for word, count in _ALGORITHM_FLOPS if algorithm.endswith(word)), 2)
    splits = [1 << power for power in range(_MAX_SPLIT.bit_length())]
    best = min(splits, key=lambda split: split_cost(sizes, split, bits, target, flops))
    if best == 1:
        return 1, 0
    step = best * max(1, 128 // min(128, lhs, rhs))
    return best, -sizes.k % step


def accumulator_type(dot: Instruction) -> DType:
    """In what the products of a dot are added: f32 for floats with fewer bits, else the result's type.

    XLA says so of bf16 and f16 alone; sums of parts in f8 would stay where a part no longer changes them.
    """
    kind = dot.array.dtype
    return DTYPES["f32"] if kind.is_narrow_float else kind


def _read_bits(operand: Instruction) -> int:
    while operand.op.is_elementwise and len(operand.operands) == 1:
        (operand,) = operand.operands
    return operand.array.dtype.bits


def _weights(target: Target) -> SplitWeights:
    major = target.capability[0] if target.kind == "cuda" else 0
    return _WEIGHTS[10] if major >= 10 else _WEIGHTS.get(major, _WEIGHTS[0])
