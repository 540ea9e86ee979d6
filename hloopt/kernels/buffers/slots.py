"""Which memory each value of a program lies in, before there are offsets.

A *slot* is memory that values share because they must: one for each must-alias set, and one for each piece of
memory a step needs while it runs.  What has no bytes has no slot.
"""

from __future__ import annotations

from typing import Final

from hloopt.analysis.aliasing import Aliasing, AliasSet, BufferValue
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Instruction, Module
from hloopt.kernels.buffers.joined import Joined
from hloopt.kernels.plan import AllocationKind
from hloopt.passes.copy_insertion.tuples import indices
from hloopt.types import ArrayShape, BufferShape, Shape, leaves

__all__ = ["NOTHING", "BufferSlot", "BufferSlots", "Spot", "array_leaves"]

NOTHING: Final = -1
_NOTHING_JOINED: Final = Joined(frozenset(), {})


@dataclass(frozen=True, slots=True)
class BufferSlot:
    """Memory: ``number`` and ``value`` say which parameter leaf or which constant it is."""

    kind: AllocationKind
    byte_size: int
    number: int = 0
    value: BufferValue | None = None
    writable: bool = True


@dataclass(frozen=True, slots=True)
class Spot:
    """The slot of a leaf and its shape; ``NOTHING`` where it needs no memory.

    ``offset`` is the byte of the slot at which it begins: a part of an array that is put together there.
    """

    slot: int
    shape: ArrayShape
    offset: int = 0

    def meets(self, other: Spot) -> bool:
        """Whether two spots have a byte in common; what needs no memory meets nothing."""
        if self.slot != other.slot or self.slot == NOTHING:
            return False
        start = max(self.offset, other.offset)
        ends = (one.offset + one.shape.byte_size for one in (self, other))
        return start < min(ends)


def array_leaves(shape: Shape) -> list[ArrayShape]:
    """The leaves of a shape in flat order as arrays; tokens are among them."""
    return [leaf.element if isinstance(leaf, BufferShape) else leaf for leaf in leaves(shape)]


class BufferSlots:
    """The slots of a module's values, and those that steps request (``add``).

    ``joined`` are the concatenates that nothing runs: their operands lie in their results.
    """

    def __init__(
        self, module: Module, aliasing: Aliasing, joined: Joined = _NOTHING_JOINED
    ) -> None:
        self._aliasing = aliasing
        self._places = joined.places
        self.joined = joined.concatenates
        self._parameters = _entry_leaves(module)
        self._donated = {
            (entry.parameter, entry.parameter_index)
            for entry in module.attributes.get("input_output_alias", ())
        }
        self.all: list[BufferSlot] = []
        self._of_set: list[int] = [NOTHING] * len(aliasing.sets)
        for members in aliasing.sets:
            is_part = any(value.number in self._places for value in members.values)
            if members.byte_size and not is_part:
                self._of_set[members.number] = self.add(self._slot(members))

    def add(self, slot: BufferSlot) -> int:
        """The number of a further slot."""
        self.all.append(slot)
        return len(self.all) - 1

    def temporary(self, byte_size: int) -> int:
        """Memory of the arena that one step needs."""
        return self.add(BufferSlot("arena", byte_size)) if byte_size else NOTHING

    def spots(self, instruction: Instruction) -> tuple[Spot, ...]:
        """Where the leaves of an instruction's result lie."""
        shapes = array_leaves(instruction.shape)
        numbers = self._aliasing.numbers(instruction)
        return tuple(
            self._spot(number, shape) if shape.byte_size else Spot(NOTHING, shape)
            for number, shape in zip(numbers, shapes, strict=True)
        )

    def handed_on(self, instruction: Instruction) -> frozenset[int]:
        """The leaves of a result that are values of operands: a transfer gives its source beside its copy."""
        given = {
            number for operand in instruction.operands for number in self._aliasing.numbers(operand)
        }
        numbers = self._aliasing.numbers(instruction)
        return frozenset(leaf for leaf, number in enumerate(numbers) if number in given)

    def changed(self, loop: Instruction) -> tuple[Spot, ...]:
        """Where the elements of a loop's state lie that its body changes."""
        numbers = self._aliasing.numbers(loop)
        inner = self._aliasing.numbers(loop.attributes["body"].parameters[0])
        return tuple(
            spot
            for spot, number, other in zip(self.spots(loop), numbers, inner, strict=True)
            if number != other and spot.slot != NOTHING
        )

    def _spot(self, number: int, shape: ArrayShape) -> Spot:
        whole, offset = self._places.get(number, (number, 0))
        return Spot(self._of_value(whole), shape, offset)

    def _of_value(self, number: int) -> int:
        return self._of_set[self._aliasing.alias_set(self._aliasing.values[number]).number]

    def _slot(self, members: AliasSet) -> BufferSlot:
        given = [value for value in members.values if self._is_given(value)]
        if not given:
            return BufferSlot("arena", members.byte_size)
        first = given[0]
        if len(given) > 1:
            raise UsageError(
                f"{given[1].defined.instruction.name} and {first.defined.instruction.name} would lie in one "
                "buffer; run copy-insertion first"
            )
        if first.kind == "constant":
            return BufferSlot("constant", members.byte_size, 0, first, writable=False)
        place = (first.defined.instruction.parameter_number, first.defined.index)
        return BufferSlot(
            "parameter",
            members.byte_size,
            self._parameters[place],
            first,
            writable=place in self._donated,
        )

    def _is_given(self, value: BufferValue) -> bool:
        """Whether a value is there before the program runs."""
        if value.kind == "constant":
            return True
        instruction = value.defined.instruction
        return (
            value.kind == "parameter"
            and instruction.computation is not None
            and instruction.computation.module is not None
            and instruction.computation.module.entry is instruction.computation
        )


def _entry_leaves(module: Module) -> dict[tuple[int, tuple[int, ...]], int]:
    """Flat numbers of the leaves of the entry's parameters, by parameter and index."""
    found: dict[tuple[int, tuple[int, ...]], int] = {}
    for parameter in module.entry.parameters:
        for index in indices(parameter.shape):
            found[parameter.parameter_number, index] = len(found)
    return found
