"""Whether instructions that forward buffers agree on the layouts of what lies in them.

A text may give ``get-tuple-element`` another layout than its element has, or leave it out on one side only.
No data is moved there, so that one of the two would read them in the wrong order.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from hloopt.analysis.layout import same_layout
from hloopt.interpret.control import branches
from hloopt.ir import Computation, Instruction
from hloopt.types import ArrayShape, BufferShape, Shape, TupleShape

__all__ = ["layout_problem"]

_SAME = frozenset({"add-dependency", "domain", "opt-barrier"})


def layout_problem(instruction: Instruction) -> str:
    """What is forwarded with two layouts, or nothing."""
    for what, one, other in _pairs(instruction):
        if not _agree(one, other):
            return f"{what} is {other}, but the layout of what it takes over is that of {one}"
    return ""


def _pairs(instruction: Instruction) -> Iterator[tuple[str, Shape, Shape]]:
    """What is forwarded, with its shape at the source and at the destination."""
    opcode, operands, shape = instruction.opcode, instruction.operands, instruction.shape
    attributes = instruction.attributes
    if opcode == "get-tuple-element":
        whole = operands[0].shape
        assert isinstance(whole, TupleShape)
        yield "it", whole.elements[attributes["index"]], shape
    elif opcode == "tuple":
        assert isinstance(shape, TupleShape)
        for number, (operand, element) in enumerate(zip(operands, shape.elements, strict=True)):
            yield f"element {number}", operand.shape, element
    elif opcode in ("copy-start", "copy-done"):
        # Bytes are passed as they lie.
        begins = opcode == "copy-start"
        pair = shape if begins else operands[0].shape
        assert isinstance(pair, TupleShape)
        yield (
            "its copy",
            *((operands[0].shape, pair.elements[0]) if begins else (pair.elements[0], shape)),
        )
    elif opcode in _SAME:
        yield "it", operands[0].shape, shape
    elif opcode == "while":
        yield from _calls(attributes["condition"], operands, None)
        yield from _calls(attributes["body"], operands, operands[0].shape)
        yield "it", operands[0].shape, shape
    elif opcode == "conditional":
        pairs = zip(branches(instruction), operands[1:], strict=True)
        yield from chain.from_iterable(_calls(one, (given,), shape) for one, given in pairs)
    elif opcode in ("fusion", "call"):
        called: Computation = attributes["calls" if opcode == "fusion" else "to_apply"]
        yield from _calls(called, operands, shape)


def _calls(
    called: Computation, operands: tuple[Instruction, ...], result: Shape | None
) -> Iterator[tuple[str, Shape, Shape]]:
    for operand, parameter in zip(operands, called.parameters, strict=True):
        yield parameter.name, operand.shape, parameter.shape
    if result is not None:
        yield f"the result of {called.name}", called.root.shape, result


def _agree(left: Shape, right: Shape) -> bool:
    if left is right:
        return True
    if isinstance(left, TupleShape) and isinstance(right, TupleShape):
        return len(left.elements) == len(right.elements) and all(
            map(_agree, left.elements, right.elements)
        )
    if isinstance(left, BufferShape) and isinstance(right, BufferShape):
        return same_layout(left.element, right.element)
    if isinstance(left, ArrayShape) and isinstance(right, ArrayShape):
        return not left.dtype.is_array or same_layout(left, right)
    return False
