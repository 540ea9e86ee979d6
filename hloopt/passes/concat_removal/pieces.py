"""Making the pieces of an instruction out of pieces of its operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from math import prod
from typing import Any, TypeVar

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, build
from hloopt.ops.traits import op_table
from hloopt.passes.concat_removal.edges import is_free, operand_dim
from hloopt.passes.concat_removal.splits import Split, combiner, start
from hloopt.rewrite.regions import identity
from hloopt.types import ArrayShape, Literal, PaddingDim, SliceRange, array

__all__ = ["Pieces", "cut_shape"]

Place = tuple[Instruction, int, int, int]
_Entry = TypeVar("_Entry")


def cut_shape(shape: ArrayShape, dim: int, size: int) -> ArrayShape:
    """The shape with another size of one dimension, layout kept."""
    return replace(shape, dims=(*shape.dims[:dim], size, *shape.dims[dim + 1 :]))


@dataclass
class Pieces:
    """The pieces of cut instructions, in the order of their ranges, and slices made on the way."""

    splits: Mapping[Instruction, Split]
    fast_math: bool
    made: dict[Instruction, list[Instruction]] = field(default_factory=dict)
    known: dict[Place, Instruction] = field(default_factory=dict)

    def make(self, node: Instruction) -> None:
        """All pieces of a node, right before it."""
        split = self.splits[node]
        self.made[node] = [self.piece(node, split.dim, *entry) for entry in split.ranges]

    def join(self, node: Instruction) -> Instruction:
        """The whole again, right before the node."""
        dims = (self.splits[node].dim,)
        return _make(node, "concatenate", *self.made[node], shape=node.array, dimensions=dims)

    def fetch(
        self, position: Instruction, source: Instruction, dim: int, first: int, limit: int
    ) -> Instruction:
        """Elements ``first`` to ``limit`` of any instruction along a dimension, before ``position``."""
        if (first, limit) == (0, source.array.dims[dim]):
            return source
        place = (source, dim, first, limit)
        if place not in self.known:
            self.known[place] = self.cut(position, *place)
        return self.known[place]

    def cut(
        self, position: Instruction, source: Instruction, dim: int, first: int, limit: int
    ) -> Instruction:
        split = self.splits.get(source)
        if split is not None and split.dim == dim and source in self.made:
            found = self.within(source, first, limit)
            if found is not None:
                return _slice(position, source, found[0], dim, first - found[1], limit - found[1])
        literal = source.literal
        if not is_free(source, dim) or (literal is not None and literal.array is None):
            return _slice(position, source, source, dim, first, limit)
        shape = cut_shape(source.array, dim, limit - first)
        if literal is not None:
            values = np.take(literal.array, range(first, limit), axis=dim)  # type: ignore[arg-type]
            value = Literal(shape, values)
            return _make(source, "constant", shape=shape, position=position, literal=value)
        operands = self.operands(position, source, dim, first, limit)
        piece = _again(source, *operands, shape=shape, position=position)
        if source.opcode != "iota" or dim != source.iota_dimension or not first:
            return piece
        offset = build.splat(position, shape, first)
        return _make(source, "add", piece, offset, shape=shape, position=position)

    def within(self, source: Instruction, first: int, limit: int) -> tuple[Instruction, int] | None:
        """The one piece of a cut instruction that has these elements, and where it begins."""
        for piece, (begin, end) in zip(self.made[source], self.splits[source].ranges, strict=True):
            if begin <= first and limit <= end:
                return piece, begin
        return None

    def operands(
        self, position: Instruction, node: Instruction, dim: int, first: int, limit: int
    ) -> tuple[Instruction, ...]:
        """The same elements of all operands that have the dimension."""
        found = []
        for number, operand in enumerate(node.operands):
            along = operand_dim(node, number, dim)
            if along is not None:
                operand = self.fetch(position, operand, along, first, limit)
            found.append(operand)
        return tuple(found)

    def piece(self, node: Instruction, dim: int, first: int, limit: int) -> Instruction:
        """Elements ``first`` to ``limit`` of the result of a node."""
        return _SPECIAL.get(node.opcode, _plain)(_Piece(self, node, dim, first, limit))

    def reader(self, node: Instruction) -> Instruction:
        """What reads pieces of its first operand and makes one result: a slice, or a reduce."""
        source = node.operands[0]
        dim = self.splits[source].dim
        if node.opcode == "reduce":
            return self.combined(node)
        if node.opcode == "slice":
            wanted: SliceRange = node.attributes["slice"][dim]
            first, limit = wanted.start, wanted.limit
        else:
            first = start(node, dim) or 0
            limit = first + node.array.dims[dim]
        found = self.within(source, first, limit)
        if found is None:
            raise AssertionError(f"{node.name} reads more than one piece of {source.name}")
        return _reread(node, found[0], dim, first - found[1], limit - found[1])

    def combined(self, node: Instruction) -> Instruction:
        """A reduce of each piece, all but the first from the neutral element, and their combination."""
        opcode = combiner(node, self.fast_math)
        dtype = node.array.dtype
        neutral = build.splat(node, array(dtype), identity(opcode, dtype))
        first, *others = self.made[node.operands[0]]
        total = _again(node, first, node.operands[1], shape=node.array)
        for piece in others:
            part = _again(node, piece, neutral, shape=node.array)
            total = _make(node, opcode, total, part, shape=node.array)
        return total


def _make(
    like: Instruction,
    opcode: str,
    *operands: Instruction,
    shape: ArrayShape,
    position: Instruction | None = None,
    **attributes: Any,
) -> Instruction:
    """A new instruction named like another, with its metadata and marks; before it by default."""
    if "frontend_attributes" in like.attributes:
        attributes["frontend_attributes"] = like.attributes["frontend_attributes"]
    return build.make(
        position or like, opcode, operands, attributes,
        shape=shape, name=like.name, metadata=like.metadata,
    )  # fmt: skip


def _again(
    like: Instruction,
    *operands: Instruction,
    shape: ArrayShape,
    position: Instruction | None = None,
    **changed: Any,
) -> Instruction:
    """The op of ``like`` on other operands, with some attributes changed."""
    attributes = like.attributes | changed
    return _make(like, like.opcode, *operands, shape=shape, position=position, **attributes)


def _slice(
    position: Instruction, like: Instruction, source: Instruction, dim: int, first: int, limit: int
) -> Instruction:
    shape = source.array
    if (first, limit) == (0, shape.dims[dim]):
        return source
    ranges = _changed(
        tuple(SliceRange(0, size) for size in shape.dims), dim, SliceRange(first, limit)
    )
    target = cut_shape(shape, dim, limit - first)
    return _make(like, "slice", source, shape=target, position=position, slice=ranges)


def _changed(entries: tuple[_Entry, ...], dim: int, entry: _Entry) -> tuple[_Entry, ...]:
    return (*entries[:dim], entry, *entries[dim + 1 :])


def _is_whole(ranges: tuple[SliceRange, ...], piece: Instruction) -> bool:
    sizes = zip(ranges, piece.array.dims, strict=True)
    return all(entry == SliceRange(0, size) for entry, size in sizes)


def _reread(node: Instruction, piece: Instruction, dim: int, first: int, limit: int) -> Instruction:
    """The slice or dynamic-slice ``node``, of a piece that holds all it wants along ``dim``."""
    if node.opcode == "slice":
        ranges: tuple[SliceRange, ...] = node.attributes["slice"]
        ranges = _changed(ranges, dim, SliceRange(first, limit, ranges[dim].stride))
        if _is_whole(ranges, piece):
            return piece
        return _again(node, piece, shape=node.array, slice=ranges)
    inner = _slice(node, node, piece, dim, first, limit)
    if inner.array.dims == node.array.dims:
        return inner
    return _again(node, inner, *node.operands[1:], shape=node.array)


@dataclass(frozen=True)
class _Piece:
    """Elements ``first`` to ``limit`` of a node, which are made of pieces of its operands."""

    pieces: Pieces
    node: Instruction
    dim: int
    first: int
    limit: int

    @property
    def shape(self) -> ArrayShape:
        return cut_shape(self.node.array, self.dim, self.limit - self.first)

    def fetch(self, operand: Instruction, shift: int = 0) -> Instruction:
        """The same elements of an operand, or those ``shift`` further on."""
        first, limit = self.first + shift, self.limit + shift
        return self.pieces.fetch(self.node, operand, self.dim, first, limit)

    def again(self, *operands: Instruction, **changed: Any) -> Instruction:
        return _again(self.node, *operands, shape=self.shape, **changed)


def _plain(piece: _Piece) -> Instruction:
    node = piece.node
    return piece.again(*piece.pieces.operands(node, node, piece.dim, piece.first, piece.limit))


def _concatenate(piece: _Piece) -> Instruction:
    node, offset = piece.node, 0
    if node.dimensions[0] != piece.dim:
        return _plain(piece)
    for operand in node.operands:
        size = operand.array.dims[piece.dim]
        if offset <= piece.first and piece.limit <= offset + size:
            return piece.fetch(operand, -offset)
        offset += size
    raise AssertionError(f"a piece of {node.name} crosses its operands")


def _reshape(piece: _Piece) -> Instruction:
    node, source = piece.node, piece.node.operands[0]
    along = piece.pieces.splits[source].dim
    block, inner = prod(node.array.dims[piece.dim + 1 :]), prod(source.array.dims[along + 1 :])
    first, limit = piece.first * block // inner, piece.limit * block // inner
    return piece.again(piece.pieces.fetch(node, source, along, first, limit))


def _slice_piece(piece: _Piece) -> Instruction:
    ranges: tuple[SliceRange, ...] = piece.node.attributes["slice"]
    wanted = ranges[piece.dim]
    if wanted.stride != 1:
        raise AssertionError(f"{piece.node.name} was cut across its stride")
    source = piece.fetch(piece.node.operands[0], wanted.start)
    ranges = _changed(ranges, piece.dim, SliceRange(0, piece.limit - piece.first))
    return source if _is_whole(ranges, source) else piece.again(source, slice=ranges)


def _dynamic_slice(piece: _Piece) -> Instruction:
    operand, *indices = piece.node.operands
    source, sizes = piece.fetch(operand, start(piece.node, piece.dim) or 0), piece.shape.dims
    if source.array.dims == sizes:
        return source
    return piece.again(source, *indices, dynamic_slice_sizes=sizes)


def _update(piece: _Piece) -> Instruction:
    target, update, *indices = piece.node.operands
    begin = start(piece.node, piece.dim) or 0
    if piece.limit <= begin or begin + update.array.dims[piece.dim] <= piece.first:
        return piece.fetch(target)
    inner = piece.fetch(update, -begin)
    if inner.array.dims == piece.shape.dims:
        return inner
    return piece.again(piece.fetch(target), inner, *indices)


def _pad(piece: _Piece) -> Instruction:
    source, value = piece.node.operands
    padding: tuple[PaddingDim, ...] = piece.node.attributes["padding"]
    low, size = padding[piece.dim].low, source.array.dims[piece.dim]
    if piece.limit <= low or low + size <= piece.first:
        return _make(piece.node, "broadcast", value, shape=piece.shape, dimensions=())
    inner = piece.fetch(source, -low)
    rest = _changed(padding, piece.dim, PaddingDim(0, 0))
    if all(entry == PaddingDim(0, 0) for entry in rest):
        return inner
    return piece.again(inner, value, padding=rest)


def _reverse(piece: _Piece) -> Instruction:
    node = piece.node
    turned = piece.dim in node.dimensions
    shift = node.array.dims[piece.dim] - piece.limit - piece.first if turned else 0
    return piece.again(piece.fetch(node.operands[0], shift))


_SPECIAL: Mapping[str, Callable[[_Piece], Instruction]] = op_table({
    "concatenate": _concatenate, "reshape": _reshape, "slice": _slice_piece,
    "dynamic-slice": _dynamic_slice, "dynamic-update-slice": _update, "pad": _pad,
    "reverse": _reverse,
}, otherwise="pointwise, or not cut")  # fmt: skip
