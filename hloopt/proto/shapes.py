"""Shapes and layouts, from protos and to protos."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from hloopt.proto import ProtoProblem, within
from hloopt.proto.messages import decode, new
from hloopt.proto.words import BUFFER, DIM_LEVELS, ELEMENT_TYPES, TUPLE, number_of, word_of
from hloopt.types import UNBOUNDED, ArrayShape, BufferShape, Layout, Shape, TupleShape, dtype

__all__ = ["ShapeReader", "ShapeWriter"]

_LEAST = -(1 << 63)  # an unbounded dimension; in a tile: combined with the next one
_DEEPEST = 64
_SCALAR = Layout(())


class ShapeReader:
    """Reads shapes; each distinct one once."""

    def __init__(self, warnings: list[str]) -> None:
        self._warnings = warnings
        self._known: dict[bytes, Shape] = {}

    def read(self, data: bytes, depth: int = 0) -> Shape:
        """The shape in the bytes of a ``ShapeProto``; raises ``ProtoProblem``."""
        shape = self._known.get(data)
        if shape is None:
            if depth > _DEEPEST:
                raise ProtoProblem(f"a shape is nested more than {_DEEPEST} levels deep")
            shape = self._known[data] = self._shape(decode("Shape", data, self._warnings), depth)
        return shape

    def _shape(self, proto: Any, depth: int) -> Shape:
        kind = proto.element_type
        if kind in (TUPLE, BUFFER):
            parts = []
            for index, part in enumerate(proto.tuple_shapes):
                with within(f"tuple_shapes[{index}]"):
                    parts.append(self.read(part, depth + 1))
            return TupleShape(tuple(parts)) if kind == TUPLE else _buffer(parts)
        element = dtype(word_of(ELEMENT_TYPES, kind, "element_type"))
        sizes = tuple(proto.dimensions)
        if sizes and not element.is_array:
            raise ProtoProblem(f"{element.name} has no dimensions", "dimensions")
        marks = tuple(proto.is_dynamic_dimension)
        if marks and len(marks) != len(sizes):
            raise ProtoProblem(
                f"has {len(marks)} entries for rank {len(sizes)}", "is_dynamic_dimension"
            )
        dims, dynamic = sizes, marks if any(marks) else ()
        if sizes and min(sizes) < 0:
            for size in sizes:
                if size < 0 and size != _LEAST:
                    raise ProtoProblem(f"{size} is not a dimension size", "dimensions")
            dynamic = tuple(
                size == _LEAST or bool(marks and marks[axis]) for axis, size in enumerate(sizes)
            )
            dims = tuple(UNBOUNDED if size == _LEAST else size for size in sizes)
        layout = None if dims else _SCALAR
        if proto.HasField("layout"):
            with within("layout"):
                layout = self._layout(proto.layout, len(dims), depth)
        return ArrayShape(element, dims, layout, dynamic)

    def _layout(self, proto: Any, rank: int, depth: int) -> Layout:
        order = tuple(proto.minor_to_major)
        if sorted(order) != list(range(rank)):
            raise ProtoProblem(
                f"{order} is not a permutation of {rank} dimensions", "minor_to_major"
            )
        bits, space = proto.element_size_in_bits, proto.memory_space
        if not (bits or space or proto.tiles or len(proto.ListFields()) > 2):
            return Layout(order) if order else _SCALAR
        return Layout(order, "".join(self._suffix(proto, depth)), space, bits)

    def _suffix(self, proto: Any, depth: int) -> Iterator[str]:
        """The parts behind the colon, in the order of the text."""
        # Dense levels are the default and have no text; XLA drops the others when it reads one.
        if any(proto.dim_level_types):
            yield f"D({','.join(_levels(proto))})"
        if proto.tiles:
            yield "T" + "".join(
                f"({','.join(map(_extent, tile.dimensions))})" for tile in proto.tiles
            )
        yield from _numbers(proto, "L#*ES")
        for split in proto.split_configs:
            yield f"SC({split.dimension}:{','.join(map(str, split.split_indices))})"
        if proto.HasField("physical_shape"):
            yield f"P({self.read(proto.physical_shape, depth + 1)})"
        yield from _numbers(proto, "M")


def _numbers(proto: Any, letters: str) -> Iterator[str]:
    for letter in letters:
        field = _NUMBERS[letter]
        value = getattr(proto, field)
        if value and not (letter == "L" and value == 1):
            yield f"{letter}({word_of(ELEMENT_TYPES, value, field) if letter in _TYPES else value})"


def _buffer(parts: list[Shape]) -> BufferShape:
    if len(parts) != 1 or not isinstance(parts[0], ArrayShape):
        raise ProtoProblem("a buffer holds one array", "tuple_shapes")
    return BufferShape(parts[0])


def _extent(size: int) -> str:
    return "*" if size == _LEAST else str(size)


def _levels(proto: Any) -> Iterator[str]:
    for axis, level in enumerate(proto.dim_level_types):
        unique = "" if axis >= len(proto.dim_unique) or proto.dim_unique[axis] else "+"
        ordered = "" if axis >= len(proto.dim_ordered) or proto.dim_ordered[axis] else "~"
        yield word_of(DIM_LEVELS, level, "dim_level_types") + unique + ordered


class ShapeWriter:
    """Writes shapes; each distinct one once."""

    def __init__(self) -> None:
        self._known: dict[Shape, bytes] = {}

    def write(self, shape: Shape) -> bytes:
        """The bytes of the shape's ``ShapeProto``; raises ``ProtoProblem`` for what has no field."""
        data = self._known.get(shape)
        if data is None:
            data = self._known[shape] = self._proto(shape).SerializeToString()
        return data

    def _proto(self, shape: Shape) -> Any:
        proto = new("Shape")
        if isinstance(shape, (TupleShape, BufferShape)):
            is_tuple = isinstance(shape, TupleShape)
            proto.element_type = TUPLE if is_tuple else BUFFER
            parts = shape.elements if isinstance(shape, TupleShape) else (shape.element,)
            proto.tuple_shapes.extend([self.write(part) for part in parts])
            return proto
        proto.element_type = number_of(ELEMENT_TYPES, shape.dtype.name)
        proto.dimensions.extend([_LEAST if size == UNBOUNDED else size for size in shape.dims])
        proto.is_dynamic_dimension.extend(shape.dynamic or [False] * shape.rank)
        if shape.dtype.is_array:
            # XLA takes a text's shape without a layout to have this one, a proto's to have none at all.
            usual = Layout(tuple(reversed(range(shape.rank))))
            self._layout(proto.layout, shape.layout or usual)
        return proto

    def _layout(self, proto: Any, layout: Layout) -> None:
        proto.SetInParent()
        proto.minor_to_major.extend(layout.minor_to_major)
        proto.tail_padding_alignment_in_elements = 1
        rest = layout.suffix
        while rest:
            match = _PART.match(rest)
            if match is None:
                raise ProtoProblem(
                    f"the layout {layout} has a part {rest!r} without a field in the proto"
                )
            self._part(proto, match[1], match[2])
            rest = rest[match.end() :]

    def _part(self, proto: Any, letter: str, value: str) -> None:
        if letter == "T":
            for tile in value[1:-1].split(")("):
                sizes = [_LEAST if size == "*" else int(size) for size in tile.split(",")]
                proto.tiles.add().dimensions.extend(sizes)
        elif letter in _NUMBERS:
            word = value[1:-1]
            number = number_of(ELEMENT_TYPES, word) if letter in _TYPES else int(word)
            setattr(proto, _NUMBERS[letter], number)
        elif letter == "SC":
            dimension, _, indices = value[1:-1].partition(":")
            split = proto.split_configs.add(dimension=int(dimension))
            split.split_indices.extend(map(int, indices.split(",")))
        else:
            for level in value[1:-1].split(","):
                proto.dim_level_types.append(number_of(DIM_LEVELS, level.rstrip("+~")))
                proto.dim_unique.append("+" not in level)
                proto.dim_ordered.append("~" not in level)


# The parts of a layout that are one number, or the element type that has the number.
_NUMBERS = {
    "L": "tail_padding_alignment_in_elements",
    "#": "index_primitive_type",
    "*": "pointer_primitive_type",
    "E": "element_size_in_bits",
    "S": "memory_space",
    "M": "dynamic_shape_metadata_prefix_bytes",
}
_TYPES = "#*"
# A tile list is one part; a physical shape (P) has parentheses within it and is left to the error.
_PART = re.compile(r"(SC|[DTL#*ESM])((?:\([^()]*\))+)")
