"""How long products by ``mma.sync`` take, by the tile of a block and those of its warps.

::

    time = fill + max(waves * 2 * m * n * k / rate, bytes / bandwidth)

``waves`` are the tiles over the cores, rounded up; ``rate`` the flops a second of a core: what its matrix units
sustain by such instructions, what its shared memory feeds to the registers of warps, and the second-level cache
to shared memory.  A warp of ``rows`` by ``columns`` results reads ``rows + columns`` elements for
``2 * rows * columns`` flops, and rounds them, or cuts them into terms, where they are wider than what units
take.  No step takes less than memory takes to answer, over the stages on their way.  The shares of the peak are
assumed after public benchmarks of such kernels, until they are measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from typing import Final

from hloopt.analysis.backend_config import custom_name
from hloopt.analysis.cost import instruction_cost
from hloopt.analysis.matrix_factors import MatrixFactors, matrix_factors
from hloopt.cost_models.device_times import L2_SPEEDUP, LAUNCH_NS
from hloopt.cost_models.gemm import product_shape
from hloopt.cost_models.instructions import latencies_of
from hloopt.cost_models.model import RunTime
from hloopt.cost_models.roofline import product_of
from hloopt.dataclass import dataclass
from hloopt.interpret.linear import sum_type
from hloopt.ir import Instruction
from hloopt.targets import Target
from hloopt.types import elements_of

__all__ = [
    "MATRIX_UNITS",
    "NAME",
    "SPLITS",
    "SPLIT_UNITS",
    "TileSizes",
    "matrix_unit_run_time",
    "matrix_unit_time",
    "tiles_of",
]

NAME: Final = "matrix-units"
"""The name of this model in reports."""

MATRIX_UNITS: Final = "dot-mma"
SPLIT_UNITS: Final = "dot-mma-split-k"
"""The names of the kernels, in the configuration of a fusion: of a whole contracted axis, and of its parts."""

SPLITS: Final = (2, 4, 8, 16, 32, 64)
"""Into how many parts it may be cut."""

_FILL_S: Final = 1e-6
"""First loads and last stores."""
_SHARED_CLOCK_BYTES: Final = 128
_L2_CLOCK_BYTES: Final = 64
_SUSTAINED: Final = {7: 0.6, 9: 0.6, 10: 0.6}
"""Share of the peak by the major number of the compute capability: where larger instructions, or copies beside
the arithmetic, would reach the rest."""
_SUSTAINED_ELSEWHERE: Final = 0.85
_FIRST_COPIES: Final = (8, 0)
"""Devices before it wait for each copy."""
_ADDRESSES: Final = 80
"""Registers of a thread beside sums and fragments."""
_MOST_RESULTS: Final = 64 * 64
_TERMS_MOST_RESULTS: Final = 64 * 32
_TRANSCENDENTAL: Final = 16
"""Multiply-adds in whose time the special function units compute one."""


@dataclass(frozen=True, slots=True)
class TileSizes:
    """A tile: results of a block and of a warp, bytes along the contracted axis, stages in shared memory."""

    rows: int
    columns: int
    depth_bytes: int
    warp_rows: int
    warp_columns: int
    stages: int

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * (self.rows // self.warp_rows) * (self.columns // self.warp_columns)

    def times(self, rights: int) -> TileSizes:
        """With as many tiles of right operands side by side, for each block and warp."""
        columns, warp_columns = self.columns * rights, self.warp_columns * rights
        return replace(self, columns=columns, warp_columns=warp_columns)


_TILES: Final = tuple(TileSizes(*sizes) for sizes in (
    (128, 256, 64, 64, 64, 3), (256, 128, 64, 64, 64, 3), (128, 128, 64, 64, 64, 3), (128, 128, 64, 64, 32, 3),
    (128, 64, 64, 64, 32, 3), (64, 128, 64, 32, 64, 3), (64, 64, 128, 32, 32, 3), (64, 64, 64, 32, 32, 3),
    (64, 32, 128, 32, 16, 3), (32, 64, 128, 16, 32, 3), (32, 32, 128, 16, 16, 3), (16, 128, 128, 16, 32, 4),
    (16, 64, 128, 16, 16, 4), (128, 16, 128, 32, 16, 4),
))  # fmt: skip


def tiles_of(target: Target, factors: MatrixFactors, rights: int = 1) -> list[TileSizes]:
    """The tiles that a block of a device has room for, those with most results first.

    Factors of several terms take a register for each: there is none left beside a warp's 64 by 64 sums.  Each
    of ``rights`` operands on the right has sums of its own.
    """
    most = target.shared_per_block_optin
    results = _TERMS_MOST_RESULTS if factors.products > 1 else _MOST_RESULTS
    return [
        tile
        for tile in _TILES
        if tile.stages * (tile.rows + tile.columns * rights) * tile.depth_bytes <= most
        and tile.warp_rows * tile.warp_columns * rights <= results
    ]


def matrix_unit_time(
    sizes: tuple[int, int, int, int],
    tile: TileSizes,
    factors: MatrixFactors,
    moved_bytes: int,
    target: Target,
    *,
    copied: bool = True,
    split: int = 1,
) -> float:
    """Seconds, without the launch, of b products of m by k and k by n elements; ``sizes`` are b, m, n, k.

    ``moved_bytes`` is what comes from memory and goes there.  ``copied`` says that both operands are copied, so
    that all stages but one are on their way at once; else one is.  Of ``split`` parts of k each is a block's,
    and a second launch adds them up.  Infinite on devices without such units.
    """
    batch, rows, columns, depth = sizes
    if split > 1:
        parts = (batch * split, rows, columns, ceil(depth / split))
        sums = 4 * batch * rows * columns * split
        making = matrix_unit_time(parts, tile, factors, moved_bytes + sums, target, copied=copied)
        return making + LAUNCH_NS * 1e-9 + sums / target.memory_bandwidth
    peak, element_bytes = target.peak_flops(factors.unit, "matrix"), factors.bytes
    if not peak or target.capability < factors.capability:
        return float("inf")
    blocks = batch * ceil(rows / tile.rows) * ceil(columns / tile.columns)
    clock = target.clock_ghz * 1e9
    share = _SUSTAINED.get(target.capability[0], _SUSTAINED_ELSEWHERE)
    sustained = peak / target.cores * share / factors.products
    read, flops = tile.warp_rows + tile.warp_columns, 2 * tile.warp_rows * tile.warp_columns
    fed = clock * _SHARED_CLOCK_BYTES * flops / (read * element_bytes)
    if factors.read_ops:
        fed = min(fed, clock * target.fpus_per_core * flops / (read * factors.read_ops))
    from_l2 = min(
        target.memory_bandwidth * L2_SPEEDUP / min(blocks, target.cores), clock * _L2_CLOCK_BYTES
    )
    cached = 2 * tile.rows * tile.columns / ((tile.rows + tile.columns) * element_bytes)
    rate = min(sustained, fed, from_l2 * cached)
    waves = ceil(blocks / target.cores)
    computing = waves * 2 * tile.rows * tile.columns * depth / rate
    steps = ceil(depth * element_bytes / tile.depth_bytes)
    ahead = tile.stages - 1 if copied and target.capability >= _FIRST_COPIES else 1
    waiting = latencies_of(target).memory / clock / ahead
    turns = ceil(blocks / (target.cores * _resident(tile, target)))
    computing = max(computing, turns * steps * waiting)
    return _FILL_S + max(computing, moved_bytes / target.memory_bandwidth)


def _resident(tile: TileSizes, target: Target) -> int:
    """Blocks that a core has at once."""
    shared = tile.stages * (tile.rows + tile.columns) * tile.depth_bytes
    sums = tile.warp_rows * tile.warp_columns // 32
    registers = sums + (tile.warp_rows + tile.warp_columns) // 4 + _ADDRESSES
    return max(
        1,
        min(
            target.shared_per_core // (shared + target.reserved_shared_per_block),
            target.threads_per_core // tile.threads,
            target.registers_per_core // (tile.threads * min(255, registers)),
        ),
    )


def matrix_unit_run_time(fusion: Instruction, target: Target) -> RunTime | None:
    """Of a fusion that says that the kernel computes it; None for every other instruction.

    The prologue is computed again for each tile that reads it, the epilogue once.  Both run on the plain units,
    and their time is added to that of the matrix units.
    """
    name = custom_name(fusion) if fusion.opcode == "fusion" else ""
    if name not in (MATRIX_UNITS, SPLIT_UNITS) or not target.has_threads:
        return None
    product = product_of(fusion)
    shape = product_shape(product) if product is not None else None
    if product is None or shape is None:
        return None
    kind = sum_type([one.array.dtype for one in product.operands[:2]], product.array.dtype)
    factors = matrix_factors(product, kind, lambda _: True)
    if isinstance(factors, str):
        return None
    cost = instruction_cost(fusion)
    rights = sum(one.opcode == "dot" for one in fusion.calls)
    sizes = (shape.batch, shape.rows, shape.columns * rights, shape.depth)
    around = _around(fusion)
    copied = not (around["lhs"] or around["rhs"])
    lanes = target.clock_ghz * 2e9 * target.cores * target.fpus_per_core

    def seconds(made: tuple[TileSizes, int]) -> float:
        """Of the products and of what stands around them, by a tile and in so many parts."""
        tile, split = made
        across, down = ceil(shape.columns / tile.columns), ceil(shape.rows / tile.rows)
        work = around["lhs"] * across + around["rhs"] * down + around["behind"]
        both = tile.times(rights)
        units = matrix_unit_time(sizes, both, factors, 0, target, copied=copied, split=split)
        return units + work / lanes

    splits = SPLITS if name == SPLIT_UNITS else (1,)
    made = [(tile, split) for tile in tiles_of(target, factors, rights) for split in splits]
    if not made:
        return None
    best, split = min(made, key=seconds)
    computing = seconds((best, split)) * 1e9
    bandwidth = target.memory_bandwidth * 1e-9
    reading, writing = cost.bytes_read / bandwidth, cost.bytes_written / bandwidth
    blocks = split * shape.batch * ceil(shape.rows / best.rows) * ceil(shape.columns / best.columns)
    return RunTime(
        cost.flops + cost.transcendentals,
        cost.bytes_read,
        cost.bytes_written,
        reading,
        writing,
        computing,
        max(computing, _FILL_S * 1e9 + reading + writing),
        blocks,
        best.threads,
    )


def _around(fusion: Instruction) -> Mapping[str, float]:
    """Flops of what is computed of each operand of the products, and behind them."""
    found = {"lhs": 0.0, "rhs": 0.0, "behind": 0.0}
    places: dict[Instruction, str] = {}
    for one in reversed(list(fusion.calls)):
        if one.opcode == "dot":
            places.update(zip(one.operands[:2], ("lhs", "rhs"), strict=True))
            continue
        place = places.get(one, "behind")
        if place != "behind":
            places.update(dict.fromkeys(one.operands, place))
        if one.opcode != "parameter" and one.op.is_elementwise:
            cost = instruction_cost(one)
            size = max(cost.flops, elements_of(one.shape))
            found[place] += size + _TRANSCENDENTAL * cost.transcendentals
    return found
