"""The buffers of a computation as numbers: what each instruction allocates, touches and frees.

A buffer belongs to an instruction and a tuple index.  Tuples, get-tuple-element, bitcasts and the like own
none: they pass on the buffers of their operands.  A ``while`` works in the buffers of its initial state, as
XLA's buffer assignment does, and what updates an operand in place (``analysis/in_place.py``) takes over the
operand's buffer if it is the last to use it.

All but the last is the same in any order of the instructions, so that a scheduler can call ``peak_of`` for
many orders of one model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeAlias

from hloopt.analysis.in_place import in_place_pairs, may_overwrite
from hloopt.analysis.trees import STARTED, Tree, fits, kept_operands, leaves, part, passed_on
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.ops.traits import ALIASES, DONES, TRANSFERS, TUPLES
from hloopt.types import AliasEntry, Shape, TupleShape

__all__ = ["MemoryModel", "Moment", "memory_model"]

_THROUGH = ALIASES - TUPLES | DONES - TRANSFERS | {"async-update", "while"}
_VIEWS = ("tuple", "get-tuple-element", "bitcast")

_Value: TypeAlias = "Tree[int]"


@dataclass(frozen=True, slots=True)
class Moment:
    """The bytes alive at one instruction: ``peak`` while it runs, ``after`` once it has."""

    peak: int
    after: int


@dataclass(frozen=True)
class MemoryModel:
    """Buffers numbered from 0 in the order of definition, instructions in the computation's order.

    owners      instruction number and tuple index of each buffer
    sizes       bytes of each buffer
    defined     the buffers each instruction allocates
    touched     the buffers each instruction reads or writes, each once
    taken       pairs (buffer of an operand or of a donated parameter, buffer of the result): written in place
                if nothing else needs the first one any more
    results     buffers returned to the caller: they live to the end
    parameters  buffers that are there from the start and live to the end
    writable    parameters that may be written: a loop's state, donated ones
    """

    instructions: tuple[Instruction, ...]
    owners: tuple[tuple[int, tuple[int, ...]], ...]
    sizes: tuple[int, ...]
    defined: tuple[tuple[int, ...], ...]
    touched: tuple[tuple[int, ...], ...]
    taken: tuple[tuple[tuple[int, int], ...], ...]
    results: frozenset[int]
    parameters: frozenset[int]
    writable: frozenset[int]

    def uses(self) -> list[int]:
        """How many instructions touch each buffer, and one more for a result's caller."""
        counts = [0] * len(self.sizes)
        for touched in self.touched:
            for buffer in touched:
                counts[buffer] += 1
        for buffer in self.results:
            counts[buffer] += 1
        return counts

    def moments(self, order: Sequence[int], called: Sequence[int]) -> Iterator[Moment]:
        """Step through an order of the instructions; ``called`` is what each one's callees need.

        A buffer counts from the instruction that defines it to the last one that touches it, both
        included; a buffer that is never touched counts at its definition.
        """
        sizes, left = self.sizes, self.uses()
        alive = sum(sizes[buffer] for buffer in self.parameters)
        heir: dict[int, int] = {}
        for number in order:
            defined = self.defined[number]
            inherited: set[int] = set()
            for source, target in self.taken[number]:
                if self.is_free(number, source, left):
                    inherited.add(target)
                    heir[target] = heir.get(source, source)
            alive += sum(sizes[buffer] for buffer in defined if buffer not in inherited)
            peak = alive + called[number]
            given = {source for source, target in self.taken[number] if target in inherited}
            for buffer in self.touched[number]:
                left[buffer] -= 1
                if left[buffer] == 0 and buffer not in given:
                    alive -= self._freed(buffer, heir)
            for buffer in defined:
                if left[buffer] == 0:
                    alive -= self._freed(buffer, heir)
            yield Moment(peak, alive)

    def is_free(self, number: int, source: int, left: Sequence[int]) -> bool:
        """Whether an instruction may write its result into a buffer, ``left`` being the uses still to come."""
        return left[source] == (source in self.touched[number]) and self.may_take(source)

    def may_take(self, buffer: int) -> bool:
        """Whether a buffer may be written by its last user."""
        owner = self.instructions[self.owners[buffer][0]]
        return owner.opcode != "constant" and (
            buffer not in self.parameters or buffer in self.writable
        )

    def _freed(self, buffer: int, heir: dict[int, int]) -> int:
        first = heir.get(buffer, buffer)
        return 0 if first in self.parameters else self.sizes[first]

    def peak_of(self, order: Sequence[int], called: Sequence[int]) -> int:
        """The most bytes alive at once in an order; 0 for an empty one."""
        return max((moment.peak for moment in self.moments(order, called)), default=0)


def memory_model(computation: Computation) -> MemoryModel:
    """The model of a computation; each instruction is visited once."""
    return _Builder(computation).build()


class _Builder:
    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        self.instructions = tuple(computation)
        self.owners: list[tuple[int, tuple[int, ...]]] = []
        self.sizes: list[int] = []
        self.values: dict[Instruction, _Value] = {}

    def build(self) -> MemoryModel:
        instructions = self.instructions
        defined: list[tuple[int, ...]] = []
        touched: list[tuple[int, ...]] = []
        taken: list[tuple[tuple[int, int], ...]] = []
        parameters: list[int] = []
        for number, instruction in enumerate(instructions):
            first = len(self.sizes)
            if instruction.opcode in STARTED:
                value = self.started(instruction)
            else:
                value = passed_on(instruction, self.values, _THROUGH)
            if value is None:
                value = self.define(instruction.shape, number, ())
            self.values[instruction] = value
            made = tuple(range(first, len(self.sizes)))
            if instruction.opcode == "parameter":
                parameters += made
                made = ()
            defined.append(made)
            touched.append(() if instruction.opcode in _VIEWS else self.touched(instruction))
            taken.append(self.taken(instruction) if made else ())
        for number, pair in self.donated():
            taken[number] = (*taken[number], pair)
        return MemoryModel(
            instructions,
            tuple(self.owners),
            tuple(self.sizes),
            tuple(defined),
            tuple(touched),
            tuple(taken),
            frozenset(leaves(self.values[self.computation.root])),
            frozenset(parameters),
            frozenset(self.writable(parameters)),
        )

    def define(self, shape: Shape, number: int, index: tuple[int, ...]) -> _Value:
        if isinstance(shape, TupleShape):
            return tuple(
                self.define(element, number, (*index, position))
                for position, element in enumerate(shape.elements)
            )
        self.owners.append((number, index))
        self.sizes.append(shape.byte_size)
        return len(self.sizes) - 1

    def touched(self, instruction: Instruction) -> tuple[int, ...]:
        read = (leaves(self.values[operand]) for operand in instruction.operands)
        return tuple(dict.fromkeys(chain.from_iterable(read)))

    def taken(self, instruction: Instruction) -> tuple[tuple[int, int], ...]:
        found = []
        for pair in in_place_pairs(instruction):
            source = part(self.values[instruction.operands[pair.operand]], pair.operand_index)
            target = part(self.values[instruction], pair.output_index)
            if (
                isinstance(source, int)
                and isinstance(target, int)
                and self.sizes[source] == self.sizes[target]
            ):
                found.append((source, target))
        return tuple(found)

    def started(self, instruction: Instruction) -> _Value | None:
        """What an op starts: its operands stay where they were, the rest has new buffers."""
        place, shape = STARTED[instruction.opcode], instruction.shape
        value, number = kept_operands(instruction, self.values), len(self.values)
        if not isinstance(shape, TupleShape) or not fits(value, shape.elements[place]):
            return None
        return tuple(
            value if position == place else self.define(element, number, (position,))
            for position, element in enumerate(shape.elements)
        )

    def donated(self) -> Iterator[tuple[int, tuple[int, int]]]:
        """Results that the header wants in a parameter's buffer, with the instructions that make them.

        Not those made while the parameter is read in another order: they are copied there in the end.
        """
        for entry in self.aliases():
            source = part(
                self.values[self.computation.parameters[entry.parameter]], entry.parameter_index
            )
            target = part(self.values[self.computation.root], entry.output_index)
            if not isinstance(source, int) or not isinstance(target, int) or source == target:
                continue
            number, index = self.owners[target]
            maker = self.instructions[number]
            read = [
                place
                for place, operand in enumerate(maker.operands)
                if source in leaves(self.values[operand])
            ]
            if self.sizes[source] == self.sizes[target] and all(
                may_overwrite(maker, place, index) for place in read
            ):
                yield number, (source, target)

    def aliases(self) -> tuple[AliasEntry, ...]:
        """Of the entry, what the header says of results in parameters' buffers."""
        module = self.computation.module
        if module is None or module.entry is not self.computation:
            return ()
        found: tuple[AliasEntry, ...] = module.attributes.get("input_output_alias", ())
        return found

    def writable(self, parameters: Iterable[int]) -> Iterator[int]:
        computation = self.computation
        if any(
            caller.opcode == "while" and caller.body is computation
            for caller in computation.callers
        ):
            yield from parameters
        for entry in self.aliases():
            value = self.values[computation.parameters[entry.parameter]]
            donated = part(value, entry.parameter_index)
            if donated is not None:
                yield from leaves(donated)
