"""Snapshots: a module with the inputs and the results of one run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.errors import EvaluationError
from hloopt.ir import Module
from hloopt.proto import ProtoProblem, within
from hloopt.proto.literals import logical, read_literal, write_literal
from hloopt.proto.messages import decode, new
from hloopt.proto.reader import parse_errors, read_module
from hloopt.proto.shapes import ShapeReader, ShapeWriter
from hloopt.proto.wire import entries, varint
from hloopt.proto.writer import module_proto
from hloopt.types import Array, ArrayShape, Literal, Shape, TupleShape

__all__ = ["Snapshot", "read_snapshot_of", "write_snapshot"]


@dataclass(frozen=True)
class Snapshot:
    """A module and one run of it.

    ``inputs`` are the arrays of the entry's parameters in order (the elements of a tuple in its place),
    ``results`` those of the result; both are empty where the snapshot has none.
    """

    module: Module
    inputs: list[Array]
    results: list[Array]


def read_snapshot_of(kind: str, data: bytes, name: str) -> Snapshot:
    """A ``HloSnapshot``, or a ``HloUnoptimizedSnapshot``, which has inputs for each partition and no results.

    Inputs of several partitions are left out: no single run has them.  As XLA dumps one since 2025
    (``DelimitedSnapshot``) the message follows its length and the arrays follow it.  Each array is
    eight bytes with the length of its shape, the shape, and the elements in the order of its layout; the
    message has the length of each.  Raises ``ParseError`` naming the field that is wrong.
    """
    warnings: list[str] = []
    with parse_errors(name):
        if kind == "Snapshot":
            proto = decode("Snapshot", data, warnings)
            module = read_module(decode("Hlo", proto.hlo, warnings).hlo_module, name)
            inputs = _arrays(proto.arguments, "arguments", warnings)
            results = _arrays([proto.result] if proto.result else [], "result", warnings)
        else:
            is_delimited = kind == "DelimitedSnapshot"
            length, start = varint(data, 0) if is_delimited else (len(data), 0)
            end = start + length
            proto = decode("UnoptimizedSnapshot", data[start:end], warnings)
            module = read_module(proto.hlo_module, name)
            inputs, results = [], []
            count = len(proto.partitions)
            if count == 1:
                field, part = "partitions[0].arguments", proto.partitions[0]
                if is_delimited:
                    inputs = _following(data[end:], part.arguments_descriptors, field, warnings)
                else:
                    inputs = _arrays(part.arguments, field, warnings)
            elif count:
                warnings.append(f"the snapshot has inputs of {count} partitions; they are left out")
    module.warnings += [(-1, warning) for warning in warnings]
    return Snapshot(module, inputs, results)


def _following(
    data: bytes, descriptors: Sequence[bytes], field: str, warnings: list[str]
) -> list[Array]:
    found, at, shapes = [], 0, ShapeReader(warnings)
    for index, size in enumerate(list(map(_size, descriptors))):
        with within(f"{field}[{index}]"):
            found.append(_raw_array(data[at : at + size], size, shapes))
        at += size
    return found


def _size(descriptor: bytes) -> int:
    """The bytes of an array, from the second field of its descriptor."""
    for number, kind, (start, _) in entries(descriptor):
        if number == 2 and kind == 0:
            return varint(descriptor, start)[0]
    raise ProtoProblem("an array has no size", "arguments_descriptors")


def _raw_array(data: bytes, size: int, shapes: ShapeReader) -> Array:
    if len(data) != size or size < 8:
        raise ProtoProblem(f"needs {size} bytes, {len(data)} are left")
    begin = 8 + int.from_bytes(data[:8], "little")
    shape = shapes.read(data[8:begin])
    if not isinstance(shape, ArrayShape) or not shape.dtype.is_array:
        raise ProtoProblem(f"{shape} is not an array")
    if shape.dtype.bits < 8:
        raise ProtoProblem(f"elements of {shape.dtype.name} are packed, which is not read")
    raw = data[begin:]
    if len(raw) != shape.elements * shape.dtype.numpy.itemsize:
        raise ProtoProblem(f"has {len(raw)} bytes of elements, which are not those of {shape}")
    return logical(np.frombuffer(bytearray(raw), shape.dtype.numpy), shape)


def _arrays(literals: Sequence[bytes], field: str, warnings: list[str]) -> list[Array]:
    shapes = ShapeReader(warnings)
    found: list[Array] = []
    for index, data in enumerate(literals):
        with within(f"{field}[{index}]"):
            found += _leaves(read_literal(data, shapes, warnings))
    return found


def _leaves(literal: Literal) -> Iterator[Array]:
    if literal.array is not None:
        yield literal.array
    for part in literal.elements:
        yield from _leaves(part)


def write_snapshot(module: Module, inputs: Sequence[Array], results: Sequence[Array]) -> bytes:
    """A ``HloSnapshot`` of one run.

    Raises ``EvaluationError`` where the arrays are not those of the parameters and the result,
    ``UnsupportedError`` for what has no form in a proto.
    """
    shapes = ShapeWriter()
    proto, hlo = new("Snapshot"), new("Hlo")
    hlo.hlo_module = module_proto(module).SerializeToString()
    proto.hlo = hlo.SerializeToString()
    rest = iter(inputs)
    for parameter in module.entry.parameters:
        literal = _literal(parameter.shape, rest, f"parameter {parameter.name}")
        proto.arguments.append(write_literal(literal, shapes).SerializeToString())
    outputs = iter(results)
    result = _literal(module.entry.result_shape, outputs, "the result")
    proto.result = write_literal(result, shapes).SerializeToString()
    for left, what in ((rest, "inputs"), (outputs, "results")):
        if next(left, None) is not None:
            raise EvaluationError(f"there are more {what} than the module has")
    proto.execution_platform = b"hloopt"
    data: bytes = proto.SerializeToString()
    return data


def _literal(shape: Shape, arrays: Iterator[Array], what: str) -> Literal:
    if isinstance(shape, TupleShape):
        parts = tuple(_literal(part, arrays, what) for part in shape.elements)
        return Literal(shape, elements=parts)
    if not isinstance(shape, ArrayShape) or not shape.dtype.is_array:
        raise EvaluationError(f"{what} has the shape {shape}, which has no arrays")
    array = next(arrays, None)
    if array is None:
        raise EvaluationError(f"there is no array for {what}")
    values = np.asarray(array)
    if values.shape != shape.dims or values.dtype != shape.dtype.numpy:
        raise EvaluationError(
            f"{what} has the shape {shape}, the array is {values.dtype}{list(values.shape)}"
        )
    return Literal(shape, values.copy())
