"""What an assignment of buffers is: allocations, the values in them, and what lives when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate
from typing import Literal, TypeAlias

from hloopt.analysis.assignment.live_ranges import FlatSchedule, LiveRange
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction

__all__ = ["AssignedValue", "BufferAllocation", "BufferAssignment", "BufferKind"]

BufferKind: TypeAlias = Literal["parameter", "constant", "result", "temporary"]
_Index: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class AssignedValue:
    """A value: where it is made, and when it lives; a table of pointers for a tuple."""

    instruction: Instruction
    index: _Index
    byte_size: int
    life: LiveRange
    is_table: bool
    positions: tuple[tuple[Instruction, _Index], ...]


@dataclass(frozen=True, slots=True)
class BufferAllocation:
    """Memory that XLA allocates in one piece, with the values that use it, each at its offset.

    A parameter that is donated is also the result that it becomes.
    """

    kind: BufferKind
    byte_size: int
    values: tuple[tuple[AssignedValue, int], ...]


@dataclass(frozen=True)
class BufferAssignment:
    """The allocations of a module; ``schedule`` numbers the instructions that lives refer to.

    The temporaries are one allocation, the heap, behind which the tables of inner tuples lie.
    """

    allocations: tuple[BufferAllocation, ...]
    schedule: FlatSchedule

    def bytes_of(self, kind: BufferKind) -> int:
        """The bytes of all allocations of one kind."""
        return sum(one.byte_size for one in self.allocations if one.kind == kind)

    @property
    def byte_size(self) -> int:
        """What a run needs: parameters, results and temporaries; constants belong to the program."""
        return sum(one.byte_size for one in self.allocations if one.kind != "constant")

    def alive(self, time: int) -> list[AssignedValue]:
        """The values that live at a time, the largest first; those in one place count once."""
        found: dict[tuple[int, int], AssignedValue] = {}
        for number, allocation in enumerate(self.allocations):
            for value, offset in allocation.values:
                if value.life.start <= time <= value.life.end:
                    place = number, offset
                    known = found.get(place)
                    if known is None or known.byte_size < value.byte_size:
                        found[place] = value
        return sorted(found.values(), key=lambda value: -value.byte_size)

    def over_time(self) -> list[int]:
        """The bytes of temporaries and results that live while each instruction of the schedule runs."""
        change: dict[int, int] = defaultdict(int)
        for allocation in self.allocations:
            if allocation.kind in ("temporary", "result"):
                for start, end, byte_size in _lives(allocation):
                    change[start] += byte_size
                    change[end + 1] -= byte_size
        return list(accumulate(change[time] for time in range(len(self.schedule.order))))

    def peak_time(self) -> int:
        """The time at which most bytes of temporaries and results live, the first one."""
        alive = self.over_time()
        return alive.index(max(alive))


def _lives(allocation: BufferAllocation) -> Iterator[tuple[int, int, int]]:
    """Times at which bytes of an allocation are used; values in one place overlap for an instant at most."""
    by_offset: dict[int, list[AssignedValue]] = defaultdict(list)
    for value, offset in allocation.values:
        by_offset[offset].append(value)
    for values in by_offset.values():
        free = -1
        for value in sorted(values, key=lambda value: value.life.start):
            start = max(value.life.start, free)
            if start <= value.life.end:
                yield start, value.life.end, value.byte_size
                free = value.life.end + 1
