"""Which tiles are the same: a value needed under two indices is loaded once where a tiling makes them agree."""

from __future__ import annotations

import numpy as np

from hloopt.analysis.index import Indices, Symbol
from hloopt.cost_models.block_level.extents import Flags, Numbers
from hloopt.cost_models.block_level.tiling import BlockTile, BlockTiles, View
from hloopt.ir import Instruction

__all__ = ["distinct"]


def distinct(tiles: BlockTiles) -> dict[BlockTile, Flags | None]:
    """For each tile the tilings in which no earlier one is the same; None stands for all of them."""
    return _Comparison(tiles).found


class _Comparison:
    """Tiles by their first equal: ``first[tile]`` is a number of that one for each tiling."""

    def __init__(self, tiles: BlockTiles) -> None:
        self._tiles = tiles
        self._whole: Numbers | None = None
        self._sizes: dict[tuple[View, View], Flags] = {}
        self._same_origins: dict[tuple[View, View], Flags] = {}
        self._first: dict[BlockTile, Numbers | int] = {}
        self.found: dict[BlockTile, Flags | None] = {}
        earlier: dict[Instruction, list[BlockTile]] = {}
        for number, tile in enumerate(tiles.nodes):
            others = earlier.setdefault(tile.node, [])
            if others:
                self._compare(tile, number, others)
            else:
                self._first[tile] = number
                self.found[tile] = None
            others.append(tile)

    def _compare(self, tile: BlockTile, number: int, others: list[BlockTile]) -> None:
        first: Numbers | int = number
        for other in others:
            same = self._same(tile, other)
            if same is not None and same.any():
                first = np.where(same & np.equal(first, number), self._first[other], first)
        self._first[tile] = first
        self.found[tile] = None if isinstance(first, int) else first == number

    def _same(self, one: BlockTile, other: BlockTile) -> Flags | None:
        """Where both are the same; None for nowhere."""
        pairs = [
            (self._first[mine], self._first[its])
            for mine, its in zip(one.operands, other.operands, strict=True)
        ]
        if any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs):
            return None
        same = self._same_size(one.view, other.view)
        for mine, its in pairs:
            if mine is not its:
                same = same & np.equal(mine, its)
        if not one.operands and same.any():
            same = same & self._same_origin(one.view, other.view)
        return same

    def _same_size(self, one: View, other: View) -> Flags:
        known = self._sizes.get((one, other))
        if known is None:
            known = np.ones(self._tiles.count, np.bool_)
            mine, its = (*one.sizes, *one.strides), (*other.sizes, *other.strides)
            for left, right in zip(mine, its, strict=True):
                known &= left == right
            self._sizes[one, other] = known
        return known

    def _same_origin(self, one: View, other: View) -> Flags:
        known = self._same_origins.get((one, other))
        if known is None:
            known = self._same_origins[one, other] = self._compare_origins(one, other)
        return known

    def _compare_origins(self, one: View, other: View) -> Flags:
        """Where tiles of equal size begin at one index.

        That depends on which dimensions one tile covers, and on the sizes of those that are divided.
        """
        tiles = self._tiles
        if self._whole is None:
            self._whole = tiles.whole()
        divided = _divided((*one.place, *other.place))
        axes = [axis for axis, symbol in enumerate(tiles.symbols) if symbol in divided]
        columns = [self._whole, *(tiles.sizes[axis] for axis in axes)]
        same = np.zeros(tiles.count, np.bool_)
        known: dict[tuple[int, ...], bool] = {}
        for tiling in np.flatnonzero(self._same_size(one, other)):
            key = tuple(int(column[tiling]) for column in columns)
            agree = known.get(key)
            if agree is None:
                whole, *sizes = key
                steps = {tiles.symbols[axis]: size for axis, size in zip(axes, sizes, strict=True)}
                begins = (tiles.origin(view.place, whole, steps) for view in (one, other))
                agree = known[key] = next(begins) == next(begins)
            same[tiling] = agree
        return same


def _divided(place: Indices) -> set[Symbol]:
    """The symbols in quotients and remainders."""
    found: set[Symbol] = set()
    pending = [(atom, False) for index in place for atom, _ in index.terms]
    while pending:
        atom, inside = pending.pop()
        if isinstance(atom, Symbol):
            if inside:
                found.add(atom)
        else:
            pending.extend((inner, True) for inner, _ in atom.dividend.terms)
    return found
