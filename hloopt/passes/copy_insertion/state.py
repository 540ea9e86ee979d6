"""What is known of one computation while it is looked through: buffers, their writers, and when they end."""

from __future__ import annotations

from dataclasses import field

from hloopt.analysis.aliasing import Aliasing
from hloopt.analysis.in_place import in_place_pairs
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.ops.traits import ALIASES, SEQUENTIAL
from hloopt.passes.copy_insertion.tuples import LeafIndex, indices
from hloopt.types import ArrayShape, Shape, TupleShape

__all__ = ["BufferState", "Key", "SharedBuffer"]

Key = tuple[int, int]
"""Number of a parameter and of a leaf of it."""


@dataclass(eq=False)
class SharedBuffer:
    """Values of a computation that follow each other in one buffer.

    ``start`` is the position that writes it first (-1: it is there before), ``end`` that of its last reader
    (the number of instructions: it is forwarded).  ``parameters`` are the parameters it came in by.
    """

    writable: bool
    start: int
    end: int
    parameters: set[Key] = field(default_factory=set)


class BufferState:
    """Groups of a computation's values; ``owned`` are parameters whose buffers it may write."""

    def __init__(self, computation: Computation, aliasing: Aliasing, owned: set[Key]) -> None:
        self.computation = computation
        self.aliasing = aliasing
        self.order = list(computation)
        self.position = {instruction: at for at, instruction in enumerate(self.order)}
        self.groups: dict[int, SharedBuffer] = {}
        self.of_parameter: dict[Key, SharedBuffer] = {}
        self.last_use = self._last_uses()
        self.owned = owned

    def leaves(self, instruction: Instruction) -> list[tuple[LeafIndex, int]]:
        """Index and value of each leaf that has a buffer to write.

        What a transfer gives stays together until it is done: its leaves are not among them.
        """
        if instruction.op.family in ("async", "host"):
            return []
        pairs = zip(indices(instruction.shape), self.aliasing.numbers(instruction), strict=True)
        return [(index, number) for index, number in pairs if _is_array(instruction.shape, index)]

    def is_known(self, instruction: Instruction) -> bool:
        """Whether an instruction was there before copies were made."""
        return instruction in self.position

    def end(self, number: int) -> int:
        """The position of the last reader of a value; -1 where it is never read."""
        return self.last_use.get(number, -1)

    def open(self, number: int, position: int, *, writable: bool = True) -> SharedBuffer:
        """A new buffer for a value."""
        group = SharedBuffer(writable, position, max(position, self.end(number)))
        self.groups[number] = group
        return group

    def join(self, number: int, group: SharedBuffer) -> None:
        """A value that follows others in their buffer."""
        self.groups[number] = group
        group.end = max(group.end, self.end(number))

    def take_parameter(self, parameter: Instruction) -> None:
        """Groups of a parameter's leaves."""
        number = parameter.parameter_number
        for at, value in enumerate(self.aliasing.numbers(parameter)):
            key = (number, at)
            group = self.groups.get(value)
            if group is None:
                group = self.open(value, -1, writable=key in self.owned)
            group.parameters.add(key)
            self.of_parameter[key] = group

    def may_give_up(self, number: int, position: int) -> bool:
        """Whether the instruction at ``position`` may write into a value's buffer after reading it."""
        group = self.groups[number]
        return group.writable and self.end(number) <= position

    def readers_after(self, number: int, position: int) -> dict[Instruction, Instruction] | None:
        """Who reads a value after ``position``, with the operand; None where a copy cannot replace it."""
        found: dict[Instruction, Instruction] = {}
        shapes: set[Shape] = set()
        for place in self.aliasing.values[number].positions:
            for reader in place.instruction.users:
                at = self.position.get(reader, -1)
                if at <= position or reader.opcode in ALIASES:
                    continue
                if place.index or reader in found or not _only_reads(reader, place.instruction):
                    return None
                if self.position[place.instruction] >= position:  # the writer's own result
                    return None
                found[reader] = place.instruction
                shapes.add(place.instruction.shape)
        return found if len(shapes) == 1 and self.end(number) < len(self.order) else None

    def end_at(self, number: int, position: int) -> None:
        """A value that is dead after ``position``."""
        self.last_use[number] = position
        self.groups[number].end = position

    def _last_uses(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for position, instruction in enumerate(self.order):
            if instruction.opcode not in ALIASES:
                for operand in instruction.operands:
                    for number in self.aliasing.numbers(operand):
                        found[number] = position
        for number in self.aliasing.numbers(self.computation.root):
            found[number] = len(self.order)
        return found


def _only_reads(reader: Instruction, operand: Instruction) -> bool:
    """Whether an instruction writes nothing over an operand, and is done with it when it has run."""
    if reader.opcode in SEQUENTIAL or reader.op.family in ("async", "host"):
        return False
    return all(reader.operands[pair.operand] is not operand for pair in in_place_pairs(reader))


def _is_array(shape: Shape, index: LeafIndex) -> bool:
    for depth, number in enumerate(index):
        assert isinstance(shape, TupleShape)
        if depth and any(map(_is_token, shape.elements)):
            return False
        shape = shape.elements[number]
    return isinstance(shape, ArrayShape) and shape.dtype.is_array


def _is_token(shape: Shape) -> bool:
    return isinstance(shape, ArrayShape) and shape.dtype.name == "token"
