"""The tiles of a kernel: from one of the result back to all it is computed from, for many tilings at once.

A value may be needed under several indices; each is a separate tile, unless the tiling makes them equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np

from hloopt.analysis.index import Index, Indices, Quotient, Symbol
from hloopt.cost_models.block_level.extents import Extent, Flags, Numbers, Sizes, extent
from hloopt.cost_models.block_level.indices import (
    is_followed,
    own_place,
    read_places,
    without_ones,
)
from hloopt.cost_models.block_level.kernel import TiledKernel
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.types import ArrayShape

__all__ = ["MAX_TILE", "BlockTile", "BlockTiles", "Untiled", "View", "candidates", "padded", "tile"]

MAX_TILE: Final = 1048576
_RESHAPES: Final = frozenset({"bitcast", "reshape"})


@dataclass(frozen=True, slots=True)
class Untiled:
    """Why a kernel has no tiles, in words."""

    words: str


@dataclass(frozen=True, eq=False, slots=True)
class View:
    """What one block needs of any value that is read under one index, for each tiling.

    place     the index, in terms of the result's
    sizes, strides   by dimension
    elements  with every size rounded up to a power of two, as Triton pads
    """

    place: Indices
    sizes: tuple[Numbers, ...]
    strides: tuple[Numbers, ...]
    elements: Numbers


@dataclass(frozen=True, eq=False, slots=True)
class BlockTile:
    """A value under one index, and the tiles it is computed from; none for what is read or has no operands."""

    node: Instruction
    view: View
    operands: tuple[BlockTile, ...]


@dataclass(frozen=True, eq=False)
class BlockTiles:
    """All tiles of a kernel, operands first.

    sizes  of the result's tile, by dimension
    fits   which tilings are ones of the kernel
    fine   which of these Triton takes: tiles are not too large, and padding does not break them
    """

    nodes: tuple[BlockTile, ...]
    root: BlockTile
    symbols: tuple[Symbol, ...]
    sizes: tuple[Numbers, ...]
    fits: Flags
    fine: Flags
    blocks: Numbers

    @property
    def count(self) -> int:
        """The number of tilings."""
        return len(self.fits)

    def whole(self) -> Numbers:
        """For each tiling the set of the result's dimensions that one tile covers, as bits."""
        found = np.zeros(self.count, np.int64)
        for axis, (symbol, size) in enumerate(zip(self.symbols, self.sizes, strict=True)):
            found |= (size > symbol.high).astype(np.int64) << axis
        return found

    def origin(
        self, place: Indices, whole: int, steps: Mapping[Symbol, int] = MappingProxyType({})
    ) -> Indices:
        """Where a tile begins: ranges begin at 0, and so do dimensions that one tile covers.

        Of dimensions in ``steps``, which have tiles of that size, it is known that they begin at multiples.
        """
        moving: dict[Symbol, Index] = {}
        for axis, symbol in enumerate(self.symbols):
            if whole >> axis & 1:
                continue
            step = steps.get(symbol)
            moving[symbol] = (
                symbol.index
                if step is None
                else Symbol(symbol.name, 0, symbol.high // step).index * step
            )
        return tuple(_moving(index, moving) for index in place)


def candidates(dims: tuple[int, ...], most: float) -> Numbers:
    """Tilings to try, a row each: 1, 2, 4 ... and the whole, in every dimension; the last one varies fastest.

    Tiles that have, padded, more than ``most`` elements are left out.
    """
    rows = np.ones((1, 0), np.int64)
    elements = np.ones(1, np.int64)
    for size in dims:
        steps = np.array(_steps(size), np.int64)
        rows = np.hstack([np.repeat(rows, len(steps), axis=0), np.tile(steps, len(rows))[:, None]])
        elements = np.repeat(elements, len(steps)) * np.tile(padded(steps), len(elements))
        kept = elements <= most
        rows, elements = rows[kept], elements[kept]
    return rows


def _steps(size: int) -> list[int]:
    return [1 << power for power in range((size - 1).bit_length())] + [size] if size else [0]


def padded(sizes: Numbers) -> Numbers:
    """The next power of two of each number; 1 of 0."""
    return np.left_shift(np.int64(1), np.frexp(np.maximum(sizes - 1, 0))[1].astype(np.int64))


_Key: TypeAlias = tuple[Instruction, View]


class _Walk:
    """The tiles found so far; there is one view for each place."""

    def __init__(self, kernel: TiledKernel, sizes: Sizes, count: int) -> None:
        self.fits: Flags = np.ones(count, np.bool_)
        self.fine: Flags = np.ones(count, np.bool_)
        self.order: list[BlockTile] = []
        self._kernel = kernel
        self._sizes = sizes
        self._count = count
        self._found: dict[_Key, BlockTile] = {}
        self._needed: dict[_Key, list[_Key]] = {}
        self._views: dict[Indices, View] = {}
        # Of one kernel's instructions, which keep their shapes and attributes: these are known by their ids.
        self._read: dict[tuple[object, ...], tuple[View, ...]] = {}

    def tile(self, node: Instruction, view: View, operand_view: View) -> Untiled | None:
        """Add the tile of a result and those of all it is computed from; why there is none, if so.

        ``operand_view`` is the view its operands are read from.
        """
        start = node, view
        pending = [start]
        while pending:
            key = pending[-1]
            if key in self._found:
                pending.pop()
                continue
            needed = self._needed.get(key)
            if needed is None:
                read = self._operands(key[0], operand_view if key == start else key[1])
                if isinstance(read, Untiled):
                    return read
                needed = self._needed[key] = read
            missing = [entry for entry in needed if entry not in self._found]
            if missing:
                pending.extend(reversed(missing))
                continue
            pending.pop()
            made = BlockTile(*key, tuple([self._found[entry] for entry in needed]))
            self._found[key] = made
            self.order.append(made)
        return None

    def view(self, place: Indices, reader: Instruction) -> View | Untiled:
        """The view of a place, which ``reader`` reads."""
        known = self._views.get(place)
        if known is not None:
            return known
        extents = self._extents(place, self._sizes)
        if extents is None:
            return Untiled(f"{reader.name} reads no tile, at ({_shown(place)})")
        sizes = tuple(size for size, _, _ in extents)
        strides = tuple(stride for _, stride, _ in extents)
        elements = np.ones(self._count, np.int64)
        for size, _, fits in extents:
            elements = elements * padded(size)
            if fits is not None:
                self.fits &= fits
        self.fine &= elements <= MAX_TILE
        made = self._views[place] = View(place, sizes, strides, elements)
        return made

    def _operands(self, node: Instruction, view: View) -> list[_Key] | Untiled:
        if node not in self._kernel:
            return []
        operands = self._kernel.operands(node)
        if not operands:
            return _refusal(node) or []
        attributes = node.attributes
        key = (
            node.opcode,
            view,
            id(node.shape),
            attributes.get("dimensions"),
            attributes.get("slice"),
            *[id(operand.shape) for operand in operands],
        )
        views = self._read.get(key)
        if views is None:
            made = self._views_read(node, view)
            if isinstance(made, Untiled):
                return made
            views = self._read[key] = made
        return list(zip(operands, views, strict=True))

    def _views_read(self, node: Instruction, view: View) -> tuple[View, ...] | Untiled:
        refusal = _refusal(node)
        if refusal is None and node.opcode in _RESHAPES:
            refusal = self._reshaped(node, view.sizes)
        if refusal is not None:
            return refusal
        views: list[View] = []
        for place in read_places(node, view.place):
            read = self.view(place, node)
            if isinstance(read, Untiled):
                return read
            views.append(read)
        return tuple(views)

    def _extents(self, place: Indices, sizes: Sizes) -> list[Extent] | None:
        found: list[Extent] = []
        for index in place:
            one = extent(index, sizes, self._count)
            if one is None:
                return None
            found.append(one)
        return found

    def _reshaped(self, node: Instruction, sizes: tuple[Numbers, ...]) -> Untiled | None:
        """A reshape must be tiled by itself, too, and the padded tile be one of its tilings."""
        place, symbols = own_place(node.array.dims)
        (source,) = read_places(node, without_ones(place, node.array.dims))
        own = {symbol: padded(size) for symbol, size in zip(symbols, sizes, strict=True)}
        extents = self._extents(source, own)
        if extents is None:
            return Untiled(f"no tile of {node.opcode} {node.name} is one at ({_shown(source)})")
        for _, _, fits in extents:
            if fits is not None:
                self.fine &= fits
        return None


def _shown(place: Indices) -> str:
    return ", ".join(map(str, place))


def _refusal(node: Instruction) -> Untiled | None:
    if not is_followed(node):
        return Untiled(f"no tiles are known of {node.opcode} {node.name}")
    shapes = [node.shape, *(operand.shape for operand in node.operands)]
    if not all(isinstance(shape, ArrayShape) for shape in shapes):
        return Untiled(f"{node.opcode} {node.name} has tuples")
    if node.opcode in _RESHAPES and node.array.elements != node.operands[0].array.elements:
        return Untiled(f"{node.opcode} {node.name} changes the width of elements")
    return None


def tile(kernel: TiledKernel, root: Instruction, rows: Numbers) -> BlockTiles | Untiled:
    """The tiles of a kernel for tilings of ``root``, the result all others are computed for.

    ``rows`` is [tilings, rank]: sizes of the result's tile.  Raises ``TypeError`` for a root
    that is not an array.
    """
    dims = root.array.dims
    place, symbols = own_place(dims)
    columns = tuple(np.ascontiguousarray(rows[:, axis]) for axis in range(len(dims)))
    count = len(rows)
    sizes = dict(zip(symbols, columns, strict=True))
    walk = _Walk(kernel, sizes, count)
    view = walk.view(place, root)
    # In the operands of the result a dimension of one element has the index 0.
    operand_view = walk.view(without_ones(place, dims), root)
    if isinstance(view, Untiled):
        return view
    if isinstance(operand_view, Untiled):
        return operand_view
    refusal = walk.tile(root, view, operand_view)
    if refusal is not None:
        return refusal
    blocks = np.ones(count, np.int64)
    for size, column in zip(dims, columns, strict=True):
        blocks = blocks * -(-size // np.maximum(column, 1))
    nodes = tuple(walk.order)
    return BlockTiles(nodes, nodes[-1], symbols, columns, walk.fits, walk.fine, blocks)


def _moving(index: Index, moving: Mapping[Symbol, Index]) -> Index:
    """An index with its symbols replaced; all others are 0."""
    total = Index(index.constant)
    for atom, factor in index.terms:
        if isinstance(atom, Symbol):
            part = moving.get(atom)
            if part is None:
                continue
        else:
            inner = _moving(atom.dividend, moving)
            part = inner // atom.divisor if isinstance(atom, Quotient) else inner % atom.divisor
        total += part * factor
    return total
