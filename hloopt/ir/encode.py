"""Graphs and values as text that is the same on every machine and in every version of Python.

It is what hashes are made of.  Two values have the same text only if they are the same: strings carry their
length, records their name.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np

from hloopt.ir.computation import Computation
from hloopt.ir.instruction import Instruction
from hloopt.ir.normal import normal_attributes, normal_shape
from hloopt.types import (
    Array,
    ArrayShape,
    BufferShape,
    ConvDims,
    Literal,
    Text,
    TupleShape,
    Verbatim,
)

__all__ = ["encoded", "row", "rows"]

_BLOCK = 1 << 24  # bytes of a literal that are brought into one form at a time


def rows(
    computation: Computation, order: Sequence[Instruction], computations: Mapping[Computation, str]
) -> Iterator[str]:
    """A line per instruction, which names others by their place in ``order``, and one for the root."""
    places = {instruction: index for index, instruction in enumerate(order)}
    for instruction in order:
        yield row(instruction, places.__getitem__, computations)
    yield f"root {places[computation.root]}\n"


def row(
    instruction: Instruction,
    name: Callable[[Instruction], int],
    computations: Mapping[Computation, str],
) -> str:
    """An instruction in normal form, without metadata: opcode, shape, operands, attributes."""
    operands = ",".join([str(name(operand)) for operand in instruction.operands])
    before = ",".join(map(str, sorted(map(name, instruction.control_predecessors))))
    attributes = " ".join(
        [
            f"{key}={_literal_shape(instruction, value)}{encoded(value, computations)}"
            for key, value in normal_attributes(instruction).items()
        ]
    )
    shape = normal_shape(instruction.shape)
    return f"{instruction.opcode} {shape} ({operands}) ({before}) {attributes}\n"


def _literal_shape(instruction: Instruction, value: Any) -> str:
    """The shape of a literal among the attributes; a constant's is that of the instruction."""
    if type(value) is not Literal or instruction.opcode == "constant":
        return ""
    return f"{value.shape} "


def encoded(value: Any, computations: Mapping[Computation, str]) -> str:
    """The text of an attribute's value, a shape or a literal; computations by their names in a mapping."""
    kind = type(value)
    if kind is Computation:
        return f"#{computations[value]}"
    if kind is tuple and value and type(value[0]) is Computation:
        return f"[{','.join(computations[entry] for entry in value)}]"
    if kind is Literal:
        return _literal(value)
    return _frozen(value)


@lru_cache(maxsize=10_000, typed=True)
def _frozen(value: Any) -> str:
    kind = type(value)
    if kind is bool or kind is int or value is None:
        return str(value)
    if kind is float:
        return float(value).hex()
    if kind is str or kind is Text:
        return f"{kind.__name__}{len(value)}:{value}"
    if kind is tuple:
        return f"({','.join(map(_frozen, value))})"
    if kind is ArrayShape or kind is TupleShape or kind is BufferShape:
        return str(value)
    if kind is Verbatim or kind is ConvDims:
        return f"{kind.__name__}{len(value.text)}:{value.text}"
    if dataclasses.is_dataclass(value):
        fields = [getattr(value, field.name) for field in dataclasses.fields(value)]
        return f"{kind.__name__}({','.join(map(_frozen, fields))})"
    raise TypeError(f"no encoding for a value of type {kind.__name__}")


def _literal(literal: Literal) -> str:
    # The values of elided literals are not known: they count as equal where their shapes are.
    if literal.elided:
        return "..."
    if literal.array is None:
        return f"({','.join(map(_literal, literal.elements))})"
    shape = literal.shape
    assert isinstance(shape, ArrayShape), "an array has an array shape"
    digest = blake2b(f"{shape.dtype.name} {shape.dims} ".encode(), digest_size=16)
    flat = np.ascontiguousarray(literal.array).reshape(-1)
    step = max(1, _BLOCK // flat.dtype.itemsize)
    for start in range(0, len(flat), step):
        digest.update(_bytes(flat[start : start + step], shape.dtype.bits))
    return digest.hexdigest()


def _bytes(values: Array, bits: int) -> bytes:
    """Little-endian bytes; of elements narrower than a byte the bits that count."""
    if sys.byteorder == "big":
        values = values.byteswap()
    raw = values.view(np.uint8)
    return (raw & ((1 << bits) - 1)).tobytes() if bits < 8 else raw.tobytes()
