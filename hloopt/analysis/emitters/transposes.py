"""Transposes through a tile of shared memory: classic, with the minor dimension kept, and packed.

All dimensions are those of ``tiled_transpose``'s normal form, in the operand's order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Literal, TypeAlias

from hloopt.analysis.emitters.launch import LaunchDimensions, tiled_launch
from hloopt.analysis.transpose import PackedTile, TiledTranspose, packed_tile
from hloopt.dataclass import dataclass
from hloopt.targets import Target

__all__ = [
    "TransposeForm",
    "TransposeOptions",
    "TransposeTiling",
    "classic_tiling",
    "transpose_tiling",
]

TransposeForm: TypeAlias = Literal["classic", "minor-kept", "packed"]


@dataclass(frozen=True)
class TransposeOptions:
    """XLA's figures.

    tile            side of a tile in elements (times the vector): the banks of shared memory
    rows            groups of ``tile`` threads in a block
    vector_bytes    bytes a thread of a classic kernel moves at once, at most
    """

    tile: int = 32
    rows: int = 4
    vector_bytes: int = 4


@dataclass(frozen=True, slots=True)
class TransposeTiling:
    """How blocks and threads share a transpose.

    dims         the operand's dimensions
    permutation  result dimension k is operand dimension ``permutation[k]``
    tile         elements of a block along each operand dimension
    row, column  the operand dimensions that change places: ``column`` is the operand's (second) minor one,
                 ``row`` becomes the result's
    vector       classic: elements a thread moves at once; minor-kept: the minor dimension's size, moved as one;
                 packed: elements in a bank of 32 bits
    threads      of a block
    outer        packed only: the dimension before the minor one that is part of a tile's columns, or -1

    Blocks count tiles in the operand's order (the last dimension fastest).  With ``t`` the thread's number:

    classic, minor-kept  in step ``s`` a thread moves elements ``(s * threads + t) * vector + v`` of the tile,
                         counted in the operand's order while reading, in the result's while writing
    packed               a tile has ``rows`` rows and ``columns`` columns; group ``g = t // 32``, lane
                         ``l = t % 32``.  Filling shared memory, a thread has row ``s * groups + g`` and columns
                         ``l * vector + v``; emptying it, rows ``l * vector + i`` and columns
                         ``(s * groups + g) * vector + j``.  ``swizzle`` says where a column lies
    """

    form: TransposeForm
    dims: tuple[int, ...]
    permutation: tuple[int, ...]
    tile: tuple[int, ...]
    row: int
    column: int
    vector: int
    threads: int
    outer: int = -1

    @property
    def counts(self) -> tuple[int, ...]:
        """Tiles along each operand dimension."""
        return tuple(-(-size // side) for size, side in zip(self.dims, self.tile, strict=True))

    @property
    def block_count(self) -> int:
        """Blocks: one a tile."""
        return prod(self.counts)

    @property
    def rows(self) -> int:
        """Elements of a tile along ``row``."""
        return self.tile[self.row]

    @property
    def columns(self) -> int:
        """Elements of a tile along ``column``, times those along ``outer``."""
        return self.tile[self.column] * (self.tile[self.outer] if self.outer >= 0 else 1)

    @property
    def steps(self) -> int:
        """Times a thread reads, and (but for packed tiles) writes."""
        if self.form == "packed":
            return -(-self.rows // (self.threads // 32))
        return -(-prod(self.tile) // (self.threads * self.vector))

    @property
    def write_steps(self) -> int:
        """Times a thread writes; a packed one ``vector`` vectors each time."""
        if self.form == "packed":
            return -(-self.columns // (self.threads // 32 * self.vector))
        return self.steps

    @property
    def shared(self) -> tuple[int, ...]:
        """The tile in shared memory: a column of padding keeps threads on different banks.

        Classic: (rows, columns + 1); minor-kept: (rows, columns + 1, minor); packed: a square of 32 banks.
        """
        if self.form == "packed":
            return (32 * self.vector, 32 * self.vector)
        if self.form == "minor-kept":
            return (self.rows, self.columns + 1, self.vector)
        return (self.rows, self.columns + 1)

    def swizzle(self, row: int, column: int) -> int:
        """Where a packed tile keeps a column of a row: vectors shift with the row, so that banks differ."""
        return (column + row // self.vector * self.vector) % (32 * self.vector)

    def shared_bytes(self, bits: Sequence[int]) -> int:
        """Bytes of shared memory for transposes with elements of these widths in bits."""
        return sum(-(-prod(self.shared) * width // 8) for width in bits)

    def launch(self, target: Target) -> LaunchDimensions:
        """Grid and block."""
        return tiled_launch(self.block_count, self.threads, target)


def transpose_tiling(
    form: TiledTranspose,
    bits: Sequence[int],
    target: Target | None,
    options: TransposeOptions | None = None,
) -> TransposeTiling:
    """The tiling of a kernel with transposes of one normal form; ``bits`` are the widths of their elements.

    Packed where the first one's elements allow it.  Otherwise classic, in vectors where there are enough
    blocks and shared memory for them and both dimensions divide; never without a target.
    """
    options = options or TransposeOptions()
    packed = packed_tile(form, bits[0])
    if packed is not None and all(width == bits[0] for width in bits):
        return _packed(form, packed, options)
    if form.permutation[-1] == len(form.dims) - 1:
        return _minor_kept(form, options)
    plain = _classic(form, 1, options)
    widest = max(-(-width // 8) for width in bits)
    vector = options.vector_bytes // widest
    while vector > 1:
        if target is not None and _vectors_pay(plain, vector, plain.shared_bytes(bits), target):
            return _classic(form, vector, options)
        vector //= 2
    return plain


def classic_tiling(
    form: TiledTranspose, vector: int, options: TransposeOptions | None = None
) -> TransposeTiling:
    """The tiling that packs nothing: classic with ``vector`` elements at once, or with the minor kept."""
    options = options or TransposeOptions()
    if form.permutation[-1] == len(form.dims) - 1:
        return _minor_kept(form, options)
    return _classic(form, vector, options)


def _classic(form: TiledTranspose, vector: int, options: TransposeOptions) -> TransposeTiling:
    column, row = len(form.dims) - 1, form.permutation[-1]
    side = options.tile * vector
    return _tiling(form, options, "classic", {row: side, column: side}, row, column, vector)


def _minor_kept(form: TiledTranspose, options: TransposeOptions) -> TransposeTiling:
    column, row = len(form.dims) - 2, form.permutation[-2]
    minor = form.dims[-1]
    sides = {row: options.tile, column: options.tile, len(form.dims) - 1: minor}
    return _tiling(form, options, "minor-kept", sides, row, column, minor)


def _packed(form: TiledTranspose, packed: PackedTile, options: TransposeOptions) -> TransposeTiling:
    column, row = len(form.dims) - 1, form.permutation[-1]
    outer = column - 1 if packed.outer > 1 else -1
    sides = {row: packed.rows, column: packed.columns}
    if outer >= 0:
        sides[outer] = packed.outer
    made = _tiling(form, options, "packed", sides, row, column, packed.vector)
    return replace(made, outer=outer)


def _tiling(
    form: TiledTranspose,
    options: TransposeOptions,
    name: TransposeForm,
    sides: dict[int, int],
    row: int,
    column: int,
    vector: int,
) -> TransposeTiling:
    tile = tuple(sides.get(dimension, 1) for dimension in range(len(form.dims)))
    threads = options.rows * options.tile
    return TransposeTiling(
        name, form.operand_dims, form.permutation, tile, row, column, vector, threads
    )


def _vectors_pay(plain: TransposeTiling, vector: int, shared: int, target: Target) -> bool:
    each = vector * vector
    enough = plain.block_count * plain.threads >= each * target.cores * target.threads_per_core
    fits = shared * each <= target.shared_per_block
    row, column = plain.dims[plain.row], plain.dims[plain.column]
    return enough and fits and row % vector == 0 and column % vector == 0
