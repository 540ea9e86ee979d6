"""Making the pieces of an instruction out of pieces of its operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from math import prod
from typing import Any

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, build
from hloopt.ops import OPS
from hloopt.ops.traits import op_table
from hloopt.passes.concat_removal.edges import is_free, operand_dim
from hloopt.passes.concat_removal.splits import Split, combiner, start
from hloopt.types import ArrayShape, Literal, PaddingDim, SliceRange, array

__all__ = ["Pieces", "cut_shape"]

Place = tuple[Instruction, int, int, int]


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
        return _make(
            node, node, "concatenate", tuple(self.made[node]),
            {"dimensions": (self.splits[node].dim,)}, node.array,
        )  # fmt: skip

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
            for piece, (begin, end) in zip(self.made[source], split.ranges, strict=True):
                if begin <= first and limit <= end:
                    return _slice(position, source, piece, dim, first - begin, limit - begin)
        if not is_free(source, dim):
            return _slice(position, source, source, dim, first, limit)
        shape = cut_shape(source.array, dim, limit - first)
        if source.opcode == "constant":
            return _constant(position, source, dim, first, limit)
        if source.opcode == "iota":
            return _iota(position, source, dim, first, shape)
        operands = self.operands(position, source, dim, first, limit)
        return _make(position, source, source.opcode, operands, source.attributes, shape)

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
        special = _SPECIAL.get(node.opcode)
        if special is not None:
            return special(self, node, dim, first, limit)
        operands = self.operands(node, node, dim, first, limit)
        shape = cut_shape(node.array, dim, limit - first)
        return _make(node, node, node.opcode, operands, node.attributes, shape)

    def reader(self, node: Instruction) -> Instruction:
        """What reads pieces of its first operand and makes one result: a slice, or a reduce."""
        source = node.operands[0]
        split = self.splits[source]
        if node.opcode == "reduce":
            return self.combined(node, split)
        if node.opcode == "slice":
            wanted: SliceRange = node.attributes["slice"][split.dim]
            first, limit = wanted.start, wanted.limit
        else:
            first = start(node, split.dim) or 0
            limit = first + node.array.dims[split.dim]
        for piece, (begin, end) in zip(self.made[source], split.ranges, strict=True):
            if begin <= first and limit <= end:
                return _reread(node, piece, split.dim, first - begin, limit - begin)
        raise AssertionError(f"{node.name} reads more than one piece of {source.name}")

    def combined(self, node: Instruction, split: Split) -> Instruction:
        """A reduce of each piece, all but the first from the neutral element, and their combination."""
        opcode = combiner(node, self.fast_math)
        neutral = _neutral(node, opcode)
        total: Instruction | None = None
        for piece in self.made[node.operands[0]]:
            first = node.operands[1] if total is None else neutral
            part = _make(node, node, "reduce", (piece, first), node.attributes, node.array)
            total = part if total is None else _make(
                node, node, opcode, (total, part), {}, node.array
            )  # fmt: skip
        assert total is not None
        return total


def _make(
    position: Instruction,
    like: Instruction,
    opcode: str,
    operands: tuple[Instruction, ...],
    attributes: Mapping[str, Any],
    shape: ArrayShape,
) -> Instruction:
    """A new instruction named like another, with its metadata and marks."""
    attributes = dict(attributes)
    if "frontend_attributes" in like.attributes:
        attributes["frontend_attributes"] = like.attributes["frontend_attributes"]
    return build.make(
        position, opcode, operands, attributes, shape=shape, name=like.name, metadata=like.metadata
    )


def _slice(
    position: Instruction, like: Instruction, source: Instruction, dim: int, first: int, limit: int
) -> Instruction:
    shape = source.array
    if (first, limit) == (0, shape.dims[dim]):
        return source
    ranges = tuple(
        SliceRange(first, limit) if d == dim else SliceRange(0, size)
        for d, size in enumerate(shape.dims)
    )
    return _make(
        position, like, "slice", (source,), {"slice": ranges}, cut_shape(shape, dim, limit - first)
    )


def _reread(node: Instruction, piece: Instruction, dim: int, first: int, limit: int) -> Instruction:
    """The slice or dynamic-slice ``node``, of a piece that holds all it wants along ``dim``."""
    if node.opcode == "slice":
        ranges: tuple[SliceRange, ...] = node.attributes["slice"]
        moved = SliceRange(first, limit, ranges[dim].stride)
        ranges = (*ranges[:dim], moved, *ranges[dim + 1 :])
        dims = piece.array.dims
        if all(entry == SliceRange(0, size) for entry, size in zip(ranges, dims, strict=True)):
            return piece
        return _make(
            node, node, "slice", (piece,), {**node.attributes, "slice": ranges}, node.array
        )
    inner = _slice(node, node, piece, dim, first, limit)
    if inner.array.dims == node.array.dims:
        return inner
    operands = (inner, *node.operands[1:])
    return _make(node, node, "dynamic-slice", operands, node.attributes, node.array)


def _constant(
    position: Instruction, source: Instruction, dim: int, first: int, limit: int
) -> Instruction:
    shape = cut_shape(source.array, dim, limit - first)
    literal = source.literal
    assert literal is not None
    if literal.array is None:
        return _slice(position, source, source, dim, first, limit)
    values = np.take(literal.array, range(first, limit), axis=dim)
    return _make(position, source, "constant", (), {"literal": Literal(shape, values)}, shape)


def _iota(
    position: Instruction, source: Instruction, dim: int, first: int, shape: ArrayShape
) -> Instruction:
    counts = _make(position, source, "iota", (), source.attributes, shape)
    if dim != source.attributes["iota_dimension"] or not first:
        return counts
    offset = build.splat(position, shape, first)
    return _make(position, source, "add", (counts, offset), {}, shape)


def _neutral(node: Instruction, opcode: str) -> Instruction:
    dtype = node.array.dtype
    identity = node.op.identity if opcode == node.opcode else _identity(opcode)
    if identity in ("lowest", "highest"):
        if dtype.is_pred:
            identity = identity == "highest"
        elif dtype.is_integer:
            identity = dtype.limits[identity == "highest"]
        else:
            identity = -np.inf if identity == "lowest" else np.inf
    if identity == -1:
        identity = (
            True if dtype.is_pred else -1 if dtype.kind == "signed" else (1 << dtype.bits) - 1
        )
    return build.splat(node, array(dtype), identity)


def _identity(opcode: str) -> object:
    return OPS[opcode].identity


def _broadcast_value(node: Instruction, value: Instruction, dim: int, size: int) -> Instruction:
    shape = cut_shape(node.array, dim, size)
    return _make(node, node, "broadcast", (value,), {"dimensions": ()}, shape)


def _concatenate(
    pieces: Pieces, node: Instruction, dim: int, first: int, limit: int
) -> Instruction:
    if node.attributes["dimensions"][0] != dim:
        operands = pieces.operands(node, node, dim, first, limit)
        shape = cut_shape(node.array, dim, limit - first)
        return _make(node, node, "concatenate", operands, node.attributes, shape)
    offset = 0
    for operand in node.operands:
        size = operand.array.dims[dim]
        if offset <= first and limit <= offset + size:
            return pieces.fetch(node, operand, dim, first - offset, limit - offset)
        offset += size
    raise AssertionError(f"a piece of {node.name} crosses its operands")


def _reshape(pieces: Pieces, node: Instruction, dim: int, first: int, limit: int) -> Instruction:
    source = node.operands[0]
    along = pieces.splits[source].dim
    block, inner = prod(node.array.dims[dim + 1 :]), prod(source.array.dims[along + 1 :])
    piece = pieces.fetch(node, source, along, first * block // inner, limit * block // inner)
    shape = cut_shape(node.array, dim, limit - first)
    return _make(node, node, "reshape", (piece,), node.attributes, shape)


def _slice_piece(
    pieces: Pieces, node: Instruction, dim: int, first: int, limit: int
) -> Instruction:
    ranges: tuple[SliceRange, ...] = node.attributes["slice"]
    begin, stride = ranges[dim].start, ranges[dim].stride
    if stride != 1:
        raise AssertionError(f"{node.name} was cut across its stride")
    piece = pieces.fetch(node, node.operands[0], dim, begin + first, begin + limit)
    return _reread_slice(node, piece, dim, limit - first)


def _reread_slice(node: Instruction, piece: Instruction, dim: int, size: int) -> Instruction:
    ranges: tuple[SliceRange, ...] = node.attributes["slice"]
    ranges = (*ranges[:dim], SliceRange(0, size), *ranges[dim + 1 :])
    dims = piece.array.dims
    if all(entry == SliceRange(0, size) for entry, size in zip(ranges, dims, strict=True)):
        return piece
    shape = cut_shape(node.array, dim, size)
    return _make(node, node, "slice", (piece,), {**node.attributes, "slice": ranges}, shape)


def _dynamic_slice(
    pieces: Pieces, node: Instruction, dim: int, first: int, limit: int
) -> Instruction:
    begin = start(node, dim) or 0
    piece = pieces.fetch(node, node.operands[0], dim, begin + first, begin + limit)
    shape = cut_shape(node.array, dim, limit - first)
    if piece.array.dims == shape.dims:
        return piece
    attributes = {**node.attributes, "dynamic_slice_sizes": shape.dims}
    return _make(node, node, "dynamic-slice", (piece, *node.operands[1:]), attributes, shape)


def _update(pieces: Pieces, node: Instruction, dim: int, first: int, limit: int) -> Instruction:
    target, update, *indices = node.operands
    begin = start(node, dim) or 0
    if limit <= begin or begin + update.array.dims[dim] <= first:
        return pieces.fetch(node, target, dim, first, limit)
    inner = pieces.fetch(node, update, dim, first - begin, limit - begin)
    shape = cut_shape(node.array, dim, limit - first)
    if inner.array.dims == shape.dims:
        return inner
    outer = pieces.fetch(node, target, dim, first, limit)
    operands = (outer, inner, *indices)
    return _make(node, node, "dynamic-update-slice", operands, node.attributes, shape)


def _pad(pieces: Pieces, node: Instruction, dim: int, first: int, limit: int) -> Instruction:
    source, value = node.operands
    padding: tuple[PaddingDim, ...] = node.attributes["padding"]
    low, size = padding[dim].low, source.array.dims[dim]
    if limit <= low or low + size <= first:
        return _broadcast_value(node, value, dim, limit - first)
    piece = pieces.fetch(node, source, dim, first - low, limit - low)
    rest = (*padding[:dim], PaddingDim(0, 0), *padding[dim + 1 :])
    if all(entry == PaddingDim(0, 0) for entry in rest):
        return piece
    shape = cut_shape(node.array, dim, limit - first)
    return _make(node, node, "pad", (piece, value), {**node.attributes, "padding": rest}, shape)


def _reverse(pieces: Pieces, node: Instruction, dim: int, first: int, limit: int) -> Instruction:
    size = node.array.dims[dim]
    begin, end = first, limit
    if dim in node.attributes["dimensions"]:
        begin, end = size - limit, size - first
    piece = pieces.fetch(node, node.operands[0], dim, begin, end)
    shape = cut_shape(node.array, dim, limit - first)
    return _make(node, node, "reverse", (piece,), node.attributes, shape)


_SPECIAL: Mapping[str, Callable[[Pieces, Instruction, int, int, int], Instruction]] = op_table({
    "concatenate": _concatenate, "reshape": _reshape, "slice": _slice_piece,
    "dynamic-slice": _dynamic_slice, "dynamic-update-slice": _update, "pad": _pad,
    "reverse": _reverse,
}, otherwise="pointwise, or not cut")  # fmt: skip
