"""Literals, from protos and to protos.

A literal's elements stand in the order of its layout, the fastest dimension first; one narrower than a
byte takes a byte.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hloopt.proto import ProtoProblem, within
from hloopt.proto.messages import decode, new
from hloopt.proto.shapes import ShapeReader, ShapeWriter
from hloopt.types import Array, ArrayShape, DType, Literal, Shape, TupleShape

__all__ = ["logical", "read_literal", "write_literal"]

_INTEGERS = {
    "s32": ("s32s", "<i4"),
    "s64": ("s64s", "<i8"),
    "u32": ("u32s", "<u4"),
    "u64": ("u64s", "<u8"),
}
_PACKED = {
    "pred": ("preds", "?"),
    "f32": ("f32s", "<f4"),
    "f64": ("f64s", "<f8"),
    "c64": ("c64s", "<c8"),
    "c128": ("c128s", "<c16"),
}
_DEEPEST = 64


def read_literal(data: bytes, shapes: ShapeReader, warnings: list[str]) -> Literal:
    """The literal in the bytes of a ``LiteralProto``; raises ``ProtoProblem``."""
    return _literal(decode("Literal", data, warnings), shapes, warnings, 0)


def _literal(proto: Any, shapes: ShapeReader, warnings: list[str], depth: int) -> Literal:
    if depth > _DEEPEST:
        raise ProtoProblem(f"a literal is nested more than {_DEEPEST} levels deep")
    if not proto.HasField("shape"):
        raise ProtoProblem("a literal needs a shape", "shape")
    with within("shape"):
        shape = shapes.read(proto.shape)
    if isinstance(shape, TupleShape):
        return _tuple(proto, shape, shapes, warnings, depth)
    if not isinstance(shape, ArrayShape) or not shape.dtype.is_array:
        raise ProtoProblem(f"{shape} has no literals", "shape")
    if any(size != bound for size, bound in zip(proto.dynamic_sizes, shape.dims, strict=False)):
        raise ProtoProblem(
            f"a literal of shape {shape} of which only {list(proto.dynamic_sizes)} elements count "
            "has no text form",
            "dynamic_sizes",
        )
    return Literal(shape, _array(proto, shape))


def _tuple(
    proto: Any, shape: TupleShape, shapes: ShapeReader, warnings: list[str], depth: int
) -> Literal:
    if len(proto.tuple_literals) != len(shape.elements):
        raise ProtoProblem(
            f"has {len(proto.tuple_literals)} parts, the shape {shape} has {len(shape.elements)}",
            "tuple_literals",
        )
    parts = []
    for index, part in enumerate(proto.tuple_literals):
        with within(f"tuple_literals[{index}]"):
            parts.append(_literal(part, shapes, warnings, depth + 1))
    return Literal(shape, elements=tuple(parts))


def _array(proto: Any, shape: ArrayShape) -> Array:
    name, count = shape.dtype.name, shape.elements
    if name in _INTEGERS:
        field, storage = _INTEGERS[name]
        numbers = getattr(proto, field)
        _check_count(field, len(numbers), count, shape)
        flat: Array = np.fromiter(numbers, storage, count)
    elif name in _PACKED:
        field, storage = _PACKED[name]
        data = b"".join(getattr(proto, field))
        _check_count(field, len(data) / np.dtype(storage).itemsize, count, shape)
        flat = np.frombuffer(bytearray(data), storage)
        if name == "pred":
            flat = flat.view(np.uint8) != 0
    else:
        field = f"{name}s"
        data = getattr(proto, field)
        _check_count(field, len(data), count * shape.dtype.numpy.itemsize, shape, "bytes")
        flat = _from_bytes(shape.dtype, data)
    return logical(flat.astype(shape.dtype.numpy, copy=False), shape)


def _check_count(
    field: str, found: float, wanted: int, shape: Shape, unit: str = "elements"
) -> None:
    if found != wanted:
        raise ProtoProblem(f"has {found:g} {unit}, the shape {shape} needs {wanted}", field)


def _physical(shape: ArrayShape) -> tuple[int, ...]:
    """The dimensions from the slowest to the fastest."""
    if shape.layout is None:
        return tuple(range(shape.rank))
    return tuple(reversed(shape.layout.minor_to_major))


def logical(flat: Array, shape: ArrayShape) -> Array:
    """Elements in the order of a shape's layout as an array of its dimensions."""
    order = _physical(shape)
    stored = flat.reshape([shape.dims[dim] for dim in order])
    return np.ascontiguousarray(stored.transpose(np.argsort(order))).reshape(shape.dims)


def _from_bytes(dtype: DType, data: bytes) -> Array:
    """One element a byte or two; integers narrower than a byte come without their sign's copies."""
    raw: Array = np.frombuffer(bytearray(data), np.uint8)
    spare = 8 - dtype.bits
    if dtype.is_integer and spare > 0:
        raw = raw << spare
        raw = (raw.view(np.int8) >> spare if dtype.kind == "signed" else raw >> spare).view(
            np.uint8
        )
    return raw.view(dtype.numpy)


def _to_bytes(dtype: DType, flat: Array) -> bytes:
    raw: Array = flat.view(np.uint8)
    return (raw & ((1 << dtype.bits) - 1) if dtype.bits < 8 else raw).tobytes()


def write_literal(literal: Literal, shapes: ShapeWriter) -> Any:
    """A ``Literal`` message; raises ``ProtoProblem`` for an elided one."""
    proto = new("Literal")
    _fill(proto, literal, shapes)
    return proto


def _fill(proto: Any, literal: Literal, shapes: ShapeWriter) -> None:
    if literal.elided:
        raise ProtoProblem("a part of the literal is elided; its values are not in the text")
    proto.shape = shapes.write(literal.shape)
    if literal.array is None:
        for part in literal.elements:
            _fill(proto.tuple_literals.add(), part, shapes)
        return
    assert isinstance(literal.shape, ArrayShape), "an array has an array shape"
    name = literal.shape.dtype.name
    order = _physical(literal.shape)
    flat = np.ascontiguousarray(literal.array.transpose(order)).reshape(-1)
    if name in _INTEGERS:
        getattr(proto, _INTEGERS[name][0]).extend(flat.tolist())
    elif name in _PACKED:
        field, storage = _PACKED[name]
        if flat.size:
            getattr(proto, field).append(flat.astype(storage, copy=False).tobytes())
    else:
        setattr(proto, f"{name}s", _to_bytes(literal.shape.dtype, flat))
