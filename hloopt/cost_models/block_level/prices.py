"""What tilings cost: XLA's indexing performance model (gpu_indexing_performance_model.cc).

Times are rounded to a quarter of a nanosecond after each step, and bandwidths are f32, as XLA computes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from hloopt.analysis.backend_config import BlockParameters
from hloopt.analysis.layout import major_to_minor
from hloopt.cost_models.block_level.distinct import distinct
from hloopt.cost_models.block_level.extents import Flags, Numbers
from hloopt.cost_models.block_level.kernel import TiledKernel
from hloopt.cost_models.block_level.tiling import MAX_TILE, BlockTile, BlockTiles, View
from hloopt.cost_models.model import RunTime
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.targets import Target
from hloopt.types import ArrayShape

__all__ = ["Prices", "price", "register_limit"]

Reals = npt.NDArray[np.float64]

_REGISTERS: Final = 0.4
_L2_SPEEDUP: Final = np.float32(2.5)
_L1_SPEEDUP: Final = np.float32(8)
_PARALLEL: Final = 0.95


def register_limit(target: Target) -> float:
    """The most (padded) elements of a tile that lies in registers as a whole.

    Those Triton takes at all, where a device's registers are not known.
    """
    return _REGISTERS * target.registers_per_block or MAX_TILE


@dataclass(frozen=True, eq=False)
class Prices:
    """Costs of tilings, an entry each; times in ns, infinite where registers would spill."""

    flops: Numbers
    bytes_read: Numbers
    bytes_written: int
    read: Reals
    write: Reals
    compute: Reals
    exec: Reals
    blocks: Numbers
    warps: Numbers
    coalesced: Flags
    warp_size: int

    def run_time(self, tiling: int) -> RunTime:
        """Of one tiling."""
        return RunTime(
            int(self.flops[tiling]),
            int(self.bytes_read[tiling]),
            self.bytes_written,
            float(self.read[tiling]),
            float(self.write[tiling]),
            float(self.compute[tiling]),
            float(self.exec[tiling]),
            int(self.blocks[tiling]),
            int(self.warps[tiling]) * self.warp_size,
            bool(self.coalesced[tiling]),
        )


def price(
    kernel: TiledKernel,
    tiles: BlockTiles,
    roots: tuple[BlockTile, ...],
    target: Target,
    flops_of: Callable[[Instruction], int],
    parameters: BlockParameters | None = None,
) -> Prices:
    """What each tiling costs; with ``parameters``, as many warps as these say instead of XLA's choice.

    ``flops_of`` counts those of one element.
    """
    unique = distinct(tiles)
    inside = [tile for tile in tiles.nodes if tile.node in kernel]
    outside = [tile for tile in tiles.nodes if tile.node not in kernel]
    warps = _warps(tiles) if parameters is None else np.full(tiles.count, parameters.num_warps)
    flops = _flops(tiles, inside, unique, flops_of)
    compute = _compute_time(target, flops, tiles.blocks, warps)
    read, bytes_read, coalesced = _reads(tiles, outside, unique, target)
    write, bytes_written = _writes(roots, target)
    memory = read + write
    together = compute + memory - _scaled(np.minimum(compute, memory), _PARALLEL)
    fits = _fits_registers(tiles, roots, inside, outside, target)
    return Prices(
        flops,
        bytes_read,
        bytes_written,
        read,
        write,
        compute,
        np.where(fits, together, np.inf),
        tiles.blocks,
        warps,
        coalesced,
        target.warp_size,
    )


def _of_seconds(seconds: Reals) -> Reals:
    """``device_times.of_seconds`` of many."""
    rounded: Reals = np.floor(seconds * 4e9 + 0.5) / 4
    return rounded


def _scaled(nanoseconds: Reals | float, factor: Reals | float) -> Reals:
    """``device_times.scaled`` of many."""
    return _of_seconds(np.multiply(np.multiply(nanoseconds, 4), factor) / 4e9)


def _warps(tiles: BlockTiles) -> Numbers:
    views = {tile.view for tile in tiles.nodes}
    largest = np.maximum.reduce([view.elements for view in views])
    return np.select([largest <= 256, largest <= 1024, largest <= 4096], [1, 2, 4], 8)


def _flops(
    tiles: BlockTiles,
    inside: list[BlockTile],
    unique: dict[BlockTile, Flags | None],
    flops_of: Callable[[Instruction], int],
) -> Numbers:
    """Of padded tiles: masked elements are computed like all others."""
    each: dict[Instruction, int] = {}
    by_view: dict[View, Numbers | int] = {}
    for tile in inside:
        flops = each.get(tile.node)
        if flops is None:
            flops = each[tile.node] = flops_of(tile.node)
        if flops:
            once = unique[tile]
            part = flops if once is None else flops * once
            by_view[tile.view] = by_view.get(tile.view, 0) + part
    total = np.zeros(tiles.count, np.int64)
    for view, count in by_view.items():
        total += view.elements * count
    return total * tiles.blocks


def _compute_time(target: Target, flops: Numbers, blocks: Numbers, warps: Numbers) -> Reals:
    lanes = np.minimum(warps * target.warp_size, target.fpus_per_core)
    active = np.minimum(blocks, target.cores)
    clock = float(np.float32(target.clock_ghz) * np.float32(2))
    rate = (clock * (lanes * active)).astype(np.int64)
    return _scaled(1.0, (flops.astype(np.float32) / rate.astype(np.float32)).astype(np.float64))


def _reads(
    tiles: BlockTiles,
    outside: list[BlockTile],
    unique: dict[BlockTile, Flags | None],
    target: Target,
) -> tuple[Reals, Numbers, Flags]:
    """Read time, bytes, and whether only whole transactions are read."""
    read: dict[Instruction, tuple[Numbers, Reals]] = {}
    known: dict[tuple[View, ArrayShape], tuple[Numbers, Reals]] = {}
    for tile in outside:
        key = tile.view, tile.node.array
        found = known.get(key)
        if found is None:
            found = known[key] = tiles.blocks * _moved(*key), _used(*key, target)
        moved, used = found
        once = unique[tile]
        if once is not None:
            moved, used = moved * once, np.where(once, used, 1.0)
        before = read.get(tile.node)
        if before is not None:
            moved, used = moved + before[0], np.minimum(used, before[1])
        read[tile.node] = moved, used
    time = np.zeros(tiles.count)
    total = np.zeros(tiles.count, np.int64)
    coalesced = np.ones(tiles.count, np.bool_)
    for node, (moved, used) in read.items():
        time += _read_time(node, moved, used, tiles.blocks, target)
        total += moved
        coalesced &= used == 1.0
    return time, total, coalesced


def _moved(view: View, shape: ArrayShape) -> Numbers:
    """Bytes of a tile."""
    moved = np.full(len(view.elements), shape.dtype.bytes, np.int64)
    for size, dimension in zip(view.sizes, shape.dims, strict=True):
        moved = moved * np.minimum(size, dimension)
    return moved


def _used(view: View, shape: ArrayShape, target: Target) -> Reals:
    """The share of the transactions' bytes that the tile's rows need: how much lies side by side."""
    count = len(view.elements)
    together = np.ones(count, np.int64)
    going = np.ones(count, np.bool_)
    for axis in reversed(major_to_minor(shape)):
        going = going & (view.strides[axis] == 1)
        size = np.minimum(view.sizes[axis], shape.dims[axis])
        together = np.where(going, together * size, together)
        going = going & (view.sizes[axis] >= shape.dims[axis])
    row = together * shape.dtype.bytes
    step = target.dram_transaction or 64
    share: Reals = row / (step * -(-row // step))
    return share


def _read_time(
    node: Instruction, moved: Numbers, used: Reals, blocks: Numbers, target: Target
) -> Reals:
    """First from memory, by as much of its bandwidth as rows fill; again from a cache that holds it all."""
    net = np.minimum(node.shape.byte_size, moved)
    memory = (target.memory_bandwidth * used).astype(np.float32)
    bandwidth = np.float32(target.memory_bandwidth)
    cached = bandwidth * _L2_SPEEDUP
    nearest = cached * _L1_SPEEDUP
    again = np.where(
        net < target.l2_size,
        np.where(net < target.l1_per_core * target.cores, nearest, cached),
        (bandwidth.astype(np.float64) * used).astype(np.float32),
    ).astype(np.float32)
    each = (
        np.float32(target.clock_ghz) * np.float32(1e9) * np.float32(target.core_transaction or 32)
    )
    most = blocks.astype(np.float32) * each
    first = net.astype(np.float32) / np.minimum(memory, most)
    rest = (moved - net).astype(np.float32) / np.minimum(again, most)
    return _of_seconds(first.astype(np.float64)) + _of_seconds(rest.astype(np.float64))


def _writes(roots: tuple[BlockTile, ...], target: Target) -> tuple[Reals, int]:
    time = np.zeros(len(roots[0].view.elements))
    total = 0
    for root in roots:
        shape = root.node.array
        bandwidth = (_used(root.view, shape, target) * target.memory_bandwidth).astype(np.int64)
        time = time + _of_seconds(shape.byte_size / bandwidth)
        total += shape.byte_size
    return time, total


def _fits_registers(
    tiles: BlockTiles,
    roots: tuple[BlockTile, ...],
    inside: list[BlockTile],
    outside: list[BlockTile],
    target: Target,
) -> Flags:
    """Results, values read and iotas lie in registers whole."""
    most = register_limit(target)
    iotas = [tile for tile in inside if tile.node.opcode == "iota"]
    fits = np.ones(tiles.count, np.bool_)
    for view in {tile.view for tile in (*roots, *outside, *iotas)}:
        fits &= view.elements <= most
    return fits
