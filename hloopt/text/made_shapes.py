"""Shapes that XLA's parser makes itself: whatever is written, or where nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from hloopt.ir import Instruction
from hloopt.ir.normal import normal_shape
from hloopt.ops.traits import TRANSFERS, op_table
from hloopt.types import ArrayShape, Layout, Shape, TupleShape, array, descending

__all__ = ["MADE", "made_otherwise", "with_layout"]

_TOKEN = array("token")


def _started(instruction: Instruction) -> Shape:
    return TupleShape((instruction.operands[0].shape, array("u32"), _TOKEN))


def _received(instruction: Instruction) -> Shape | None:
    state = instruction.operands[0].shape
    if not isinstance(state, TupleShape) or not state.elements:
        return None
    return TupleShape((state.elements[0], _TOKEN))


def _awaited(instruction: Instruction) -> Shape | None:
    written = instruction.shape
    if not isinstance(written, TupleShape) or not written.elements:
        return None
    return TupleShape((written.elements[0], array("u32"), _TOKEN))


def _token(instruction: Instruction) -> Shape:
    return _TOKEN


MADE: Mapping[str, Callable[[Instruction], Shape | None]] = op_table(
    {
        "outfeed": _token,
        "recv": _awaited,
        "recv-done": _received,
        "send": _started,
        "send-done": _token,
    },
    TRANSFERS - {"infeed"},
)
"""How XLA's parser makes the shapes of these opcodes; None where it cannot."""


def made_otherwise(instruction: Instruction) -> Shape | None:
    """The shape that XLA's parser gives the instruction, where that is not the one it has."""
    shape = MADE[instruction.opcode](instruction)
    if shape is None or normal_shape(shape) == normal_shape(instruction.shape):
        return None
    return shape


def with_layout(instruction: Instruction, shape: Shape) -> Shape:
    """An inferred shape with the layout XLA infers, which here and there is that of an operand.

    A transpose has the operand's, permuted, so that no byte moves; a reverse the operand's; a select the
    order of the predicate's dimensions, when it has one per element.
    """
    if instruction.opcode not in _CARRIED or not isinstance(shape, ArrayShape):
        return shape
    operand = instruction.operands[0].shape
    if not isinstance(operand, ArrayShape) or operand.rank != shape.rank:
        return shape
    layout = operand.layout or descending(operand.rank)
    if instruction.opcode == "transpose":
        if layout.suffix:
            return shape
        order = instruction.attributes["dimensions"]
        layout = Layout(tuple(order.index(dim) for dim in layout.minor_to_major))
    elif instruction.opcode == "select" and shape.layout is not None:
        layout = replace(shape.layout, minor_to_major=layout.minor_to_major)
    return replace(shape, layout=layout)


_CARRIED = frozenset(("reverse", "select", "transpose"))
