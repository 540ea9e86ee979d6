"""The tiles of a kernel: from one of the result back to all it is computed from, for many tilings at once.

A value may be needed under several indices; each is a tile of its own, unless the tiling makes them equal.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from hloopt.analysis.index import Index, Quotient, Symbol
from hloopt.cost_models.block_level.extents import Extent, Flags, Numbers, Sizes, extent
from hloopt.cost_models.block_level.indices import Place, is_followed, own_place, read_places
from hloopt.cost_models.block_level.kernel import Kernel
from hloopt.ir import Instruction
from hloopt.types import ArrayShape

__all__ = ["MAX_TILE", "Tile", "Tiles", "Untiled", "candidates", "padded", "tile"]

MAX_TILE: Final = 1048576
_Key: TypeAlias = tuple[Instruction, Place]
_RESHAPES: Final = frozenset({"bitcast", "reshape"})


@dataclass(frozen=True, slots=True)
class Untiled:
    """Why a kernel has no tiles, in words."""

    words: str


@dataclass(frozen=True, eq=False, slots=True)
class Tile:
    """What one block needs of a value, for each tiling.

    place     the index under which the value is read, in terms of the result's
    operands  the tiles it is computed from; empty for what is read, and for constants and iotas
    sizes, strides   by dimension
    elements  with every size rounded up to a power of two, as Triton pads
    """

    node: Instruction
    place: Place
    operands: tuple[Tile, ...]
    sizes: tuple[Numbers, ...]
    strides: tuple[Numbers, ...]
    elements: Numbers


@dataclass(frozen=True, eq=False)
class Tiles:
    """All tiles of a kernel, operands first.

    sizes  of the result's tile, by dimension
    fits   which tilings are ones of the kernel
    fine   which of these Triton takes: tiles are not too large, and padding them does no harm
    """

    nodes: tuple[Tile, ...]
    root: Tile
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

    def origin(self, place: Place, whole: int) -> Place:
        """Where a tile begins: ranges begin at 0, and so do dimensions that one tile covers."""
        moving = {symbol for axis, symbol in enumerate(self.symbols) if not whole >> axis & 1}
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


@dataclass
class _Walk:
    """The tiles found so far."""

    kernel: Kernel
    sizes: Sizes
    count: int
    fits: Flags
    fine: Flags
    found: dict[_Key, Tile] = field(default_factory=dict)
    order: list[Tile] = field(default_factory=list)
    needed: dict[_Key, list[_Key]] = field(default_factory=dict)

    def tile(self, node: Instruction, place: Place) -> Untiled | None:
        """Add the tile of a node and those of all it is computed from; why there is none, if so."""
        pending = [(node, place)]
        while pending:
            key = pending[-1]
            if key in self.found:
                pending.pop()
                continue
            needed = self.needed.get(key)
            if needed is None:
                found = self._operands(*key)
                if isinstance(found, Untiled):
                    return found
                needed = self.needed[key] = found
            missing = [entry for entry in needed if entry not in self.found]
            if missing:
                pending.extend(reversed(missing))
                continue
            pending.pop()
            refusal = self._add(*key, tuple(self.found[entry] for entry in needed))
            if refusal is not None:
                return refusal
        return None

    def _operands(self, node: Instruction, place: Place) -> list[_Key] | Untiled:
        if node not in self.kernel:
            return []
        refusal = _refusal(node)
        if refusal is not None:
            return refusal
        operands = self.kernel.operands(node)
        return list(zip(operands, read_places(node, place), strict=True)) if operands else []

    def _add(self, node: Instruction, place: Place, operands: tuple[Tile, ...]) -> Untiled | None:
        extents = self._extents(place, self.sizes)
        if extents is None:
            shown = ", ".join(map(str, place))
            return Untiled(f"no tile for {node.name}, which is read at ({shown})")
        sizes = tuple(size for size, _, _ in extents)
        strides = tuple(stride for _, stride, _ in extents)
        elements = np.ones(self.count, np.int64)
        for size, _, fits in extents:
            elements = elements * padded(size)
            if fits is not None:
                self.fits &= fits
        self.fine &= elements <= MAX_TILE
        if node in self.kernel and node.opcode in _RESHAPES:
            refusal = self._reshaped(node, sizes)
            if refusal is not None:
                return refusal
        made = Tile(node, place, operands, sizes, strides, elements)
        self.found[node, place] = made
        self.order.append(made)
        return None

    def _extents(self, place: Place, sizes: Sizes) -> list[Extent] | None:
        found: list[Extent] = []
        for index in place:
            one = extent(index, sizes, self.count)
            if one is None:
                return None
            found.append(one)
        return found

    def _reshaped(self, node: Instruction, sizes: tuple[Numbers, ...]) -> Untiled | None:
        """A reshape must be tiled by itself, too, and the padded tile be one of its tilings."""
        place, symbols = own_place(node.array.dims)
        (source,) = read_places(node, place)
        own = {symbol: padded(size) for symbol, size in zip(symbols, sizes, strict=True)}
        extents = self._extents(source, own)
        if extents is None:
            shown = ", ".join(map(str, source))
            return Untiled(f"no tile for {node.opcode} {node.name}, which reads at ({shown})")
        for _, _, fits in extents:
            if fits is not None:
                self.fine &= fits
        return None


def _refusal(node: Instruction) -> Untiled | None:
    if not is_followed(node):
        return Untiled(f"no tiles are known of {node.opcode} {node.name}")
    shapes = [node.shape, *(operand.shape for operand in node.operands)]
    if not all(isinstance(shape, ArrayShape) for shape in shapes):
        return Untiled(f"{node.opcode} {node.name} has tuples")
    if node.opcode in _RESHAPES and node.array.elements != node.operands[0].array.elements:
        return Untiled(f"{node.opcode} {node.name} changes the width of elements")
    return None


def tile(kernel: Kernel, root: Instruction, rows: Numbers) -> Tiles | Untiled:
    """The tiles of a kernel for tilings of ``root``, the result all others are computed for.

    ``rows`` is [tilings, rank]: sizes of the result's tile.  Raises ``TypeError`` where the root is no array.
    """
    dims = root.array.dims
    place, symbols = own_place(dims)
    columns = tuple(np.ascontiguousarray(rows[:, axis]) for axis in range(len(dims)))
    count = len(rows)
    sizes = dict(zip(symbols, columns, strict=True))
    walk = _Walk(kernel, sizes, count, np.ones(count, np.bool_), np.ones(count, np.bool_))
    refusal = walk.tile(root, place)
    if refusal is not None:
        return refusal
    blocks = np.ones(count, np.int64)
    for size, column in zip(dims, columns, strict=True):
        blocks = blocks * -(-size // np.maximum(column, 1))
    nodes = tuple(walk.order)
    return Tiles(nodes, nodes[-1], symbols, columns, walk.fits, walk.fine, blocks)


def _moving(index: Index, moving: AbstractSet[Symbol]) -> Index:
    """An index with every symbol but those that move at 0."""
    total = Index(index.constant)
    for atom, factor in index.terms:
        if isinstance(atom, Symbol):
            if atom in moving:
                total += Index(0, ((atom, factor),))
            continue
        inner = _moving(atom.dividend, moving)
        part = inner // atom.divisor if isinstance(atom, Quotient) else inner % atom.divisor
        total += part * factor
    return total
