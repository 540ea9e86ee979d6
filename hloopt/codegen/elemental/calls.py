"""Computations written out where they are called, and the elements of tuples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hloopt.analysis.index import Indices
from hloopt.codegen.elements import Elements
from hloopt.codegen.emission import At, Emission, EmissionFrame, Emit, each
from hloopt.codegen.scalars import literal
from hloopt.ir import Computation, Instruction
from hloopt.ops.traits import ELEMENTAL, op_table
from hloopt.types import Shape, leaves

__all__ = ["EMITTERS", "call_frame"]


def _map(e: Elements, instruction: Instruction, index: Indices, leaf: int) -> Emission:
    arguments = yield from each(At(operand, index) for operand in instruction.operands)
    results = yield from e.call(instruction.attributes["to_apply"], arguments)
    return results[leaf]


def _call(e: Elements, instruction: Instruction, index: Indices, leaf: int) -> Emission:
    key = "calls" if instruction.opcode == "fusion" else "to_apply"
    computation: Computation = instruction.attributes[key]
    frame = call_frame(e, instruction)
    root = computation.root
    if root.opcode == "tuple":
        return (yield At(root.operands[leaf], index, 0, frame))
    return (yield At(root, index, leaf, frame))


def call_frame(e: Elements, instruction: Instruction) -> EmissionFrame:
    """What a call or fusion enters: one frame for each and each place that it is called from."""
    key = (e.frame, instruction)
    found = e.frames.get(key)
    if found is None:
        called = "calls" if instruction.opcode == "fusion" else "to_apply"
        computation: Computation = instruction.attributes[called]
        found = e.frames[key] = e.enter(computation, instruction.operands)
    return found


def _element(e: Elements, instruction: Instruction, index: Indices, leaf: int) -> Emission:
    source = instruction.operands[0]
    before = source.elements[: instruction.attributes["index"]]
    return (yield At(source, index, sum(map(_leaf_count, before)) + leaf))


def _tuple(e: Elements, instruction: Instruction, index: Indices, leaf: int) -> Emission:
    for operand in instruction.operands:
        count = _leaf_count(operand.shape)
        if leaf < count:
            return (yield At(operand, index, leaf))
        leaf -= count
    raise AssertionError(f"{instruction.name} has no such leaf")


def _leaf_count(shape: Shape) -> int:
    return sum(1 for _ in leaves(shape))


def _first(e: Elements, instruction: Instruction, index: Indices, leaf: int) -> Emission:
    """A number of this participant, of which a device runs one alone."""
    yield from ()
    return literal(0, instruction.array.dtype)


def _size(e: Elements, instruction: Instruction, index: Indices, leaf: int) -> Emission:
    """The size of a dimension, which is static wherever kernels run."""
    yield from ()
    dimension = instruction.attributes["dimensions"][0]
    return literal(instruction.operands[0].array.dims[dimension], instruction.array.dtype)


EMITTERS: Final[Mapping[str, Emit]] = op_table(
    {
        "map": _map,
        "call": _call,
        "fusion": _call,
        "get-tuple-element": _element,
        "get-dimension-size": _size,
        "tuple": _tuple,
        "partition-id": _first,
        "replica-id": _first,
    },
    ELEMENTAL,
    "in another module of this folder",
)
