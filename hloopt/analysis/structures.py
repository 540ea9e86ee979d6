"""Numbers for what has the same structure: equal ops and fusions of equal shapes cost the same.

Deep networks repeat their layers, and to price a change is to plan two modules that are nearly equal.  What
depends on the structure alone is computed once for each number.
"""

from __future__ import annotations

from collections.abc import Hashable, MutableMapping
from itertools import count
from typing import Any, Final, TypeAlias, TypeVar

from hloopt.ir import Computation, Instruction
from hloopt.ir.normal import DEBUGGING
from hloopt.ops import OPS
from hloopt.ops.traits import CONTROL_FLOW, DEVICE_NUMBERS
from hloopt.types import Literal, TupleShape

__all__ = ["PairKey", "Structures", "keep"]

PairKey: TypeAlias = tuple[Hashable, ...]
"""What a producer, its user and all that is between them look like."""

_MOST: Final = 200_000
"""Entries of a table, which begins anew then."""
_LONGEST: Final = 64
"""Instructions of a fusion that has grown in an unknown way and is read again."""
_TOLD_APART: Final = CONTROL_FLOW | DEVICE_NUMBERS
"""Ops whose price depends on more than themselves: on computations that run, and on the module."""

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def keep(table: MutableMapping[_Key, _Value], key: _Key, value: _Value) -> None:
    """Add an entry to a table that lives as long as the process, and must not grow for ever."""
    if len(table) >= _MOST:
        table.clear()
    table[key] = value


_numbers: dict[Hashable, int] = {}
_fresh = count()


def _number(key: Hashable) -> int:
    known = _numbers.get(key)
    if known is None:
        known = next(_fresh)
        keep(_numbers, key, known)
    return known


def _repeated(operands: tuple[Instruction, ...]) -> tuple[int, ...]:
    """Where each operand occurs first; nothing where all are different."""
    if len(set(operands)) == len(operands):
        return ()
    first: dict[Instruction, int] = {}
    return tuple([first.setdefault(one, place) for place, one in enumerate(operands)])


class Structures:
    """The numbers of ops and fusions, cached until they are invalidated; None where there is none.

    Ops have the same number where opcode, attributes, and shapes of operands and result are equal, and
    the same operands occur several times; fusions where their bodies are, too, or where they were made in the
    same way of such.  Names and metadata do not count.
    """

    def __init__(self) -> None:
        self._known: dict[Instruction, int | None] = {}
        self._computations: dict[Computation, int | None] = {}

    def of(self, instruction: Instruction) -> int | None:
        """The number of an op or fusion."""
        if instruction in self._known:
            return self._known[instruction]
        number = None
        if instruction.opcode in OPS and instruction.opcode not in _TOLD_APART:
            attributes = self._attributes(instruction)
            if attributes is not None:
                operands = instruction.operands
                number = _number(
                    (
                        instruction.opcode,
                        instruction.shape,
                        tuple([operand.shape for operand in operands]),
                        _repeated(operands),
                        attributes,
                    )
                )
        self._known[instruction] = number
        return number

    def pair(self, producer: Instruction, consumer: Instruction) -> PairKey | None:
        """The same for a producer and a user: equal pairs are fused into equal kernels."""
        first, second = self.of(producer), self.of(consumer)
        if first is None or second is None:
            return None
        read = consumer.operands
        places = tuple([read.index(one) if one in read else -1 for one in producer.operands])
        if isinstance(producer.shape, TupleShape):
            taken: Hashable = tuple(
                (slot, one.tuple_index if one is not producer else -1)
                for slot, one in enumerate(read)
                if one is producer or one.is_element_of(producer)
            )
        else:
            taken = read.index(producer) if producer in read else -1
        return first, second, places, taken

    def became(self, fusion: Instruction, pair: PairKey | None) -> None:
        """A fusion was made of a pair, as it was before."""
        self._known[fusion] = None if pair is None else _number(pair)

    def grown(self, fusion: Instruction) -> None:
        """A fusion has grown, it is not known how."""
        if len(fusion.calls) > _LONGEST:
            self._known[fusion] = None
        else:
            self.forget(fusion)

    def forget(self, instruction: Instruction) -> None:
        """An instruction has changed, or is gone."""
        self._known.pop(instruction, None)
        for value in instruction.attributes.values():
            if type(value) is Computation:
                self._computations.pop(value, None)

    def _attributes(self, instruction: Instruction) -> Hashable | None:
        """All but what serves debugging; None where the instruction has no number."""
        found = []
        for name, value in instruction.attributes.items():
            if name in DEBUGGING:
                continue
            kept = self._value(value)
            if kept is None:
                return None
            found.append((name, kept))
        return tuple(found)

    def _value(self, value: Any) -> Hashable | None:
        kind = type(value)
        if kind is Computation:
            return self._computation(value)
        if kind is tuple and value and type(value[0]) is Computation:
            numbers = tuple(map(self._computation, value))
            return None if None in numbers else numbers
        if kind is Literal:
            return value.shape, value.key
        hashable: Hashable = value
        return hashable

    def _computation(self, computation: Computation) -> int | None:
        """The number of what an op applies, or of a fusion's body."""
        if computation in self._computations:
            return self._computations[computation]
        rows: list[Hashable] = []
        places: dict[Instruction, int] = {}
        number: int | None = None
        for entry in computation:
            attributes = self._attributes(entry) if entry.attributes else ()
            if attributes is None or entry.opcode in _TOLD_APART or entry.opcode not in OPS:
                break
            operands = tuple([places[operand] for operand in entry.operands])
            rows.append((entry.opcode, entry.shape, operands, attributes))
            places[entry] = len(places)
        else:
            number = _number((tuple(rows), places[computation.root]))
        self._computations[computation] = number
        return number
