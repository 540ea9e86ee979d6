"""Which instruction overwrites which value, which must read it before: an order in which nothing is copied.

An instruction writes over a value where the two must lie in one buffer (``analysis/aliasing.py``): an operand
that is updated in place, what a loop or a branch continues with, the element of a loop's state that a result of
its body becomes. It needs no copy if all others that read the value come first. Which of them can is found by
going through the computation once: an instruction that would write over a value waits until it is the only
reader left; where all wait for each other, one proceeds that waits only for what depends on it,
else the one whose copy is smallest.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Final

from hloopt.analysis.aliasing import Aliasing
from hloopt.analysis.in_place import in_place_pairs, may_overwrite
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.ops.traits import ALIASES, SEQUENTIAL
from hloopt.types import ArrayShape

__all__ = ["Overwrite", "copied_bytes", "overwrites", "readers_first"]

_STEPS: Final = 16
"""Edges followed to find what blocks what, for each existing edge; after that bytes alone decide."""


@dataclass(frozen=True, slots=True)
class Overwrite:
    """``writer`` could write over ``value`` once ``readers``, itself not among them, have read it."""

    writer: Instruction
    value: int
    readers: tuple[Instruction, ...]
    byte_size: int


def overwrites(computation: Computation, aliasing: Aliasing) -> tuple[Overwrite, ...]:
    """What the instructions of a computation could overwrite, if others read it first.

    Left out is what needs a copy in any order: constants, results, what the writer reads twice.
    """
    readers: dict[int, dict[Instruction, None]] = {}
    for instruction in computation:
        if instruction.opcode not in ALIASES:
            for operand in instruction.operands:
                for number in aliasing.numbers(operand):
                    readers.setdefault(number, {})[instruction] = None
    results = set(aliasing.numbers(computation.root))
    found: dict[tuple[Instruction, int], None] = {}
    for instruction in computation:
        found |= dict.fromkeys((instruction, value) for value in _taken(instruction, aliasing))
    found |= dict.fromkeys(_carried(computation, aliasing))
    return tuple(
        Overwrite(
            writer,
            value,
            tuple(one for one in readers.get(value, ()) if one is not writer),
            aliasing.values[value].byte_size,
        )
        for writer, value in found
        if aliasing.values[value].kind != "constant" and value not in results
    )


def _taken(instruction: Instruction, aliasing: Aliasing) -> Iterable[int]:
    """The values among its operands that an instruction overwrites."""
    if instruction.opcode not in SEQUENTIAL:
        for pair in in_place_pairs(instruction):
            yield aliasing.value(instruction.operands[pair.operand], pair.operand_index).number
        return
    made = aliasing.numbers(instruction)
    sets = {aliasing.alias_set(aliasing.values[number]).number for number in made}
    for operand in instruction.operands:
        for number in aliasing.numbers(operand):
            if number not in made and aliasing.alias_set(aliasing.values[number]).number in sets:
                yield number


def _carried(computation: Computation, aliasing: Aliasing) -> Iterable[tuple[Instruction, int]]:
    """Of a loop's body: what makes the next state, and the state whose buffer that goes into."""
    if not any(
        caller.opcode == "while" and caller.body is computation for caller in computation.callers
    ):
        return
    (parameter,) = computation.parameters
    pairs = zip(aliasing.numbers(parameter), aliasing.numbers(computation.root), strict=True)
    for before, after in pairs:
        defined = aliasing.values[after].defined
        writer = defined.instruction
        if writer.computation is not computation or writer.opcode in SEQUENTIAL:
            continue
        read = [
            number
            for number, operand in enumerate(writer.operands)
            if before in aliasing.numbers(operand)
        ]
        if all(may_overwrite(writer, number, defined.index) for number in read) and isinstance(
            defined.instruction.shape, ArrayShape
        ):
            yield writer, before


def copied_bytes(found: Sequence[Overwrite], order: Iterable[Instruction]) -> int:
    """The bytes that have to be copied in an order of the instructions."""
    position = {instruction: at for at, instruction in enumerate(order)}
    return sum(
        one.byte_size
        for one in found
        if any(position[reader] > position[one.writer] for reader in one.readers)
    )


def readers_first(
    found: Sequence[Overwrite],
    instructions: Sequence[Instruction],
    before: Sequence[Sequence[int]],
    after: Sequence[Sequence[int]],
) -> list[int]:
    """An order of the instructions, by number, in which as little as possible is overwritten too early.

    ``before`` and ``after`` are the numbers of what each instruction waits for and is waited for by.  Of those
    that are ready the one that stands first in ``instructions`` comes first.
    """
    return _Search(found, instructions, before, after).order()


class _Search:
    """Instructions by number, what they write over by the number of its ``Overwrite``."""

    def __init__(
        self,
        found: Sequence[Overwrite],
        instructions: Sequence[Instruction],
        before: Sequence[Sequence[int]],
        after: Sequence[Sequence[int]],
    ) -> None:
        position = {instruction: at for at, instruction in enumerate(instructions)}
        self.after = after
        self.waiting = [len(entry) for entry in before]
        self.writer = [position[one.writer] for one in found]
        self.readers = [[position[reader] for reader in one.readers] for one in found]
        self.left = [len(readers) for readers in self.readers]
        self.bytes = [0] * len(before)
        self.unread = [0] * len(before)
        self.writes: dict[int, list[int]] = {}
        self.read: dict[int, list[int]] = {}
        for number, one in enumerate(found):
            self.writes.setdefault(self.writer[number], []).append(number)
            self.unread[self.writer[number]] += bool(one.readers)
            self.bytes[self.writer[number]] += one.byte_size
            for reader in self.readers[number]:
                self.read.setdefault(reader, []).append(number)
        self.ready = [at for at, count in enumerate(self.waiting) if not count]
        self.held: set[int] = set()
        self.new: list[int] = []
        self.blocked: list[tuple[bool, int, int]] = []
        self.done = [False] * len(before)
        self.steps = _STEPS * (len(before) + sum(map(len, after)))

    def order(self) -> list[int]:
        order: list[int] = []
        while self.ready or self.held:
            if not self.ready:
                self.release()
            at = heapq.heappop(self.ready)
            if self.unread[at] and at not in self.held:
                self.held.add(at)
                self.new.append(at)
                continue
            self.held.discard(at)
            self.done[at] = True
            order.append(at)
            self.wake(at)
        return order

    def wake(self, at: int) -> None:
        """Make ready what waited for an instruction that is done."""
        for number in self.read.get(at, ()):
            self.left[number] -= 1
            writer = self.writer[number]
            self.unread[writer] -= not self.left[number]
            if writer in self.held and not self.unread[writer]:
                self.held.remove(writer)
                heapq.heappush(self.ready, writer)
        for user in self.after[at]:
            self.waiting[user] -= 1
            if not self.waiting[user]:
                heapq.heappush(self.ready, user)

    def release(self) -> None:
        """Let one that waits proceed, and have what it overwrites copied."""
        for at in self.new:
            heapq.heappush(self.blocked, (not self.blocks_itself(at), self.bytes[at], at))
        self.new.clear()
        while self.blocked[0][-1] not in self.held:
            heapq.heappop(self.blocked)
        heapq.heappush(self.ready, heapq.heappop(self.blocked)[-1])

    def blocks_itself(self, at: int) -> bool:
        """Whether a reader that it waits for depends on it; False, too, where that takes too long to find."""
        wanted = {
            reader
            for number in self.writes[at]
            for reader in self.readers[number]
            if not self.done[reader]
        }
        pending, seen = [at], {at}
        while pending and self.steps > 0:
            for user in self.after[pending.pop()]:
                self.steps -= 1
                if user in wanted:
                    return True
                if user not in seen:
                    seen.add(user)
                    pending.append(user)
        return False
