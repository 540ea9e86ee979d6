"""Kernels of several results: one is computed from all others, whose tiles it needs anyway."""

from __future__ import annotations

import numpy as np

from hloopt.analysis.index import Symbol
from hloopt.cost_models.block_level.extents import Flags
from hloopt.cost_models.block_level.kernel import TiledKernel
from hloopt.cost_models.block_level.tiling import BlockTile, BlockTiles, Untiled
from hloopt.ir import Instruction
from hloopt.types import ArrayShape

__all__ = ["real_root", "tiled_roots"]


def real_root(kernel: TiledKernel) -> Instruction | Untiled:
    """The one result that no other is computed from."""
    if len(kernel.roots) == 1:
        root = kernel.roots[0]
    else:
        used: set[Instruction] = set()
        seen: set[Instruction] = set()
        pending = list(kernel.roots)
        while pending:
            node = pending.pop()
            if node not in seen and node in kernel:
                seen.add(node)
                operands = kernel.operands(node)
                used.update(operands)
                pending.extend(operands)
        last = [root for root in kernel.roots if root not in used]
        if len(set(last)) != 1:
            return Untiled(f"{len(last)} results are computed from nothing but operands")
        root = last[0]
    if not isinstance(root.shape, ArrayShape):
        return Untiled(f"{root.name} has shape {root.shape}")
    return root


def tiled_roots(kernel: TiledKernel, tiles: BlockTiles) -> tuple[BlockTile, ...] | Untiled:
    """The tile of each result; tilings in which one is not written whole, tile by tile, drop out."""
    found: list[BlockTile] = []
    for root in kernel.roots:
        if root is tiles.root.node:
            found.append(tiles.root)
            continue
        written = [(tile, _is_written(tiles, tile)) for tile in tiles.nodes if tile.node is root]
        usable = [(tile, flags) for tile, flags in written if flags.any()]
        if not usable:
            return Untiled(f"the tiles of {root.name} are not tiles of a result")
        tile, flags = usable[-1]
        np.logical_and(tiles.fits, flags, out=tiles.fits)
        found.append(tile)
    return tuple(found)


def _is_written(tiles: BlockTiles, tile: BlockTile) -> Flags:
    """Whether blocks, in their order, write the tiles of a value in its order, all of them once."""
    blocks = np.ones(tiles.count, np.int64)
    for size, dimension in zip(tile.view.sizes, tile.node.array.dims, strict=True):
        blocks = blocks * -(-dimension // np.maximum(size, 1))
    whole = tiles.whole()
    orderly = [number for number in set(whole.tolist()) if _is_orderly(tiles, tile, number)]
    flags: Flags = (blocks == tiles.blocks) & np.isin(whole, orderly)
    for stride, dimension in zip(tile.view.strides, tile.node.array.dims, strict=True):
        flags = flags & ((stride == 1) | (dimension == 1))
    return flags


def _is_orderly(tiles: BlockTiles, tile: BlockTile, whole: int) -> bool:
    moving = [symbol for axis, symbol in enumerate(tiles.symbols) if not whole >> axis & 1]
    found: list[Symbol] = []
    for index in tiles.origin(tile.view.place, whole):
        if index.constant or len(index.terms) > 1:
            return False
        for atom, factor in index.terms:
            if not isinstance(atom, Symbol) or factor != 1:
                return False
            found.append(atom)
    return found == moving
