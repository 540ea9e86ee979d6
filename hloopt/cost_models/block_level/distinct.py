"""Which tiles are the same: a value needed under two indices is loaded once where a tiling makes them agree."""

from __future__ import annotations

import numpy as np

from hloopt.cost_models.block_level.extents import Flags, Numbers
from hloopt.cost_models.block_level.indices import Place
from hloopt.cost_models.block_level.tiling import Tile, Tiles
from hloopt.ir import Instruction

__all__ = ["distinct"]


def distinct(tiles: Tiles) -> dict[Tile, Flags | None]:
    """For each tile the tilings in which no earlier one is the same; None stands for all of them."""
    return _Comparison(tiles).found


class _Comparison:
    """Tiles by their first equal: ``first[tile]`` is a number of that one for each tiling."""

    def __init__(self, tiles: Tiles) -> None:
        self._tiles = tiles
        self._whole: Numbers | None = None
        self._origins: dict[tuple[Tile, int], Place] = {}
        self._first: dict[Tile, Numbers | int] = {}
        self.found: dict[Tile, Flags | None] = {}
        earlier: dict[Instruction, list[Tile]] = {}
        for number, tile in enumerate(tiles.nodes):
            others = earlier.setdefault(tile.node, [])
            if others:
                self._compare(tile, number, others)
            else:
                self._first[tile] = number
                self.found[tile] = None
            others.append(tile)

    def _compare(self, tile: Tile, number: int, others: list[Tile]) -> None:
        first = np.full(self._tiles.count, number, np.int64)
        for other in others:
            same = self._same(tile, other)
            if same.any():
                first = np.where(same & (first == number), self._first[other], first)
        self._first[tile] = first
        self.found[tile] = first == number

    def _same(self, one: Tile, other: Tile) -> Flags:
        same = np.ones(self._tiles.count, np.bool_)
        for left, right in zip(
            (*one.sizes, *one.strides), (*other.sizes, *other.strides), strict=True
        ):
            same &= left == right
        for mine, its in zip(one.operands, other.operands, strict=True):
            same &= np.equal(self._first[mine], self._first[its])
        if not one.operands and same.any():
            same &= self._same_origin(one, other, same)
        return same

    def _same_origin(self, one: Tile, other: Tile, wanted: Flags) -> Flags:
        if self._whole is None:
            self._whole = self._tiles.whole()
        agree = [
            whole
            for whole in set(self._whole[wanted].tolist())
            if self._origin(one, whole) == self._origin(other, whole)
        ]
        return np.isin(self._whole, agree)

    def _origin(self, tile: Tile, whole: int) -> Place:
        known = self._origins.get((tile, whole))
        if known is None:
            known = self._origins[tile, whole] = self._tiles.origin(tile.place, whole)
        return known
