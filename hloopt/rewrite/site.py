"""The place of an instruction that is about to be replaced."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import ClassVar

from hloopt.ir import Instruction, Module, edit
from hloopt.ir.walk import of_opcode, open_computations
from hloopt.rewrite import Maker, Pass, PassLog, same_layout
from hloopt.types import ArrayShape, Dims, descending

__all__ = ["Site", "SitePass", "is_replaceable", "row_major", "sites"]

_MARKS = ("sharding", "frontend_attributes")


def is_replaceable(instruction: Instruction) -> bool:
    """Whether a pass may put others in its place: it is understood, static and without control edges."""
    return (
        instruction.is_understood
        and not instruction.has_control_edges
        and not instruction.shape.is_dynamic
        and not any(operand.shape.is_dynamic for operand in instruction.operands)
    )


def sites(module: Module, opcode: str) -> Iterator[Instruction]:
    """The instructions of an opcode that a pass may replace, outside of fusions and asynchronous calls."""
    for computation in open_computations(module):
        for instruction in of_opcode(computation, opcode):
            if is_replaceable(instruction):
                yield instruction


class SitePass(Pass):
    """Base of passes that look once at each op of one kind that they may replace.

    Bodies of fusions and asynchronous calls are left alone.
    """

    opcode: ClassVar[str]

    def sites(self, module: Module) -> Iterable[Instruction]:
        """The instructions to look at, as they are when the pass comes to them."""
        return sites(module, self.opcode)

    @abstractmethod
    def rewrite(self, instruction: Instruction, log: PassLog) -> bool:
        """Replace one instruction, if it can be, and log that; whether it was replaced."""

    def run(self, module: Module, log: PassLog) -> bool:
        """Look at each instruction once, as long as rewrites are allowed."""
        changed = False
        for instruction in self.sites(module):
            if not log.allows():
                break
            changed |= self.rewrite(instruction, log)
        return changed


def row_major(shape: ArrayShape, dims: Dims) -> ArrayShape:
    """The element type with other dimensions, row-major; without a layout where ``shape`` has none."""
    # A scalar's layout is known where nothing is said of layouts, too: readers give it one.
    known = shape.layout is not None or not dims
    return ArrayShape(shape.dtype, dims, descending(len(dims)) if known else None)


class Site(Maker):
    """Makes what takes the place of ``root``, and puts it there."""

    def __init__(self, root: Instruction) -> None:
        self.root = root
        self.created: list[Instruction] = []

    def reshape(self, operand: Instruction, shape: ArrayShape) -> Instruction:
        """The operand itself where it has the dimensions already."""
        if operand.array.dims == shape.dims:
            return operand
        return self.make("reshape", operand, shape=shape)

    def transpose(self, operand: Instruction, order: Dims) -> Instruction:
        """Dimension ``order[k]`` of the operand is dimension ``k`` of the result."""
        if order == tuple(range(len(order))):
            return operand
        dims = tuple(operand.array.dims[dim] for dim in order)
        shape = row_major(operand.array, dims)
        return self.make("transpose", operand, shape=shape, dimensions=order)

    def discard(self, made: Instruction) -> None:
        """Take back something that turned out not to be needed."""
        self.created.remove(made)
        edit.remove(made)

    def replace(self, result: Instruction) -> Instruction:
        """Let ``result`` take the place, the layout and the marks of the instruction; what stands there now.

        A result that was there before is copied where it would lose a mark or change the layout.
        """
        old = self.root
        marks = {name: old.attributes[name] for name in _MARKS if name in old.attributes}
        if result not in self.created and (marks or not same_layout(old.shape, result.shape)):
            result = self.make("copy", result, shape=old.shape)
        if result in self.created:
            edit.set_shape(result, old.shape)
            for name, value in marks.items():
                edit.set_attribute(result, name, value)
        edit.replace_instruction(old, result)
        return result
