"""Which allocation holds each value of a scheduled module; see the package's docstring."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from hloopt.analysis.aliasing import analyze_aliasing
from hloopt.analysis.assignment.heap import HeapBuffer, pack
from hloopt.analysis.assignment.live_ranges import FlatSchedule
from hloopt.analysis.assignment.records import (
    AssignedValue,
    BufferAllocation,
    BufferAssignment,
    BufferKind,
)
from hloopt.analysis.assignment.sharing import may_share
from hloopt.analysis.assignment.tables import tuple_tables
from hloopt.graphs import post_order
from hloopt.ir import Computation, Instruction, Module
from hloopt.ir.build import no_collection
from hloopt.ir.walk import top_level_computations
from hloopt.ops.traits import FREE

__all__ = ["assign_buffers"]


CPU_ALIGNMENT: Final = 64
GPU_ALIGNMENT: Final = 256
"""Bytes that places in the heap are multiples of: ``cpu_function_runtime::MinAlign()`` and
``kXlaAllocatedBufferAlignBytes`` of XLA."""


class _Buffer:
    """Values that must lie in one place."""

    def __init__(self, number: int, values: list[AssignedValue]) -> None:
        self.number = number
        self.values = values
        self.byte_size = max(value.byte_size for value in values)
        self.lives_out = False
        self.is_table = values[0].is_table


class _Place:
    """An allocation in the making; lives are kept sorted by their start."""

    def __init__(self, kind: BufferKind, buffer: _Buffer, *, reusable: bool) -> None:
        self.kind = kind
        self.byte_size = buffer.byte_size
        self.reusable = reusable
        self.buffers: list[_Buffer] = []
        self.lives: list[tuple[int, int, int]] = []
        self.values: list[AssignedValue] = []
        self.add(buffer)

    def add(self, buffer: _Buffer) -> None:
        self.buffers.append(buffer)
        for value in buffer.values:
            insort(self.lives, (value.life.start, value.life.end, len(self.values)))
            self.values.append(value)


def assign_buffers(module: Module, *, gpu: bool = False) -> BufferAssignment:
    """XLA's assignment for a module whose instructions are in the order in which they run.

    ``gpu`` decides the alignment of the heap, and which fusions write over an operand.
    """
    with no_collection():
        return _Assigner(module, gpu=gpu).result()


class _Assigner:
    def __init__(self, module: Module, *, gpu: bool) -> None:
        self.module = module
        self.gpu = gpu
        self.alignment = GPU_ALIGNMENT if gpu else CPU_ALIGNMENT
        self.schedule = FlatSchedule(module)
        self.post_order = _post_order(module)
        self.buffers = self._buffers()
        self.buffer_of = {
            (value.instruction, value.index, value.is_table): buffer
            for buffer in self.buffers
            for value in buffer.values
        }
        self.places: list[_Place] = []
        self.place_of: dict[int, _Place] = {}
        self.reusable: list[_Place] = []
        self.left: list[_Buffer] = []
        for buffer in sorted(self.buffers, key=self._order):
            self._assign(buffer)

    def _buffers(self) -> list[_Buffer]:
        groups: dict[tuple[str, int], list[AssignedValue]] = {}
        aliasing = analyze_aliasing(self.module)
        for made in aliasing.values:
            if made.byte_size == 0 or made.defined.instruction not in self.schedule.times:
                continue
            defined = made.defined.instruction, made.defined.index
            positions = tuple((one.instruction, one.index) for one in made.positions)
            life = self.schedule.live_range(defined, positions)
            value = AssignedValue(*defined, made.byte_size, life, False, positions)
            groups.setdefault(("", aliasing.alias_set(made).number), []).append(value)
        for table in tuple_tables(self.module):
            life = self.schedule.live_range((table.instruction, table.index), table.positions)
            value = AssignedValue(
                table.instruction, table.index, table.byte_size, life, True, table.positions
            )
            groups.setdefault(("table", table.group), []).append(value)
        buffers = [_Buffer(number, values) for number, values in enumerate(groups.values())]
        root = self.module.entry.root
        for buffer in buffers:
            buffer.values = _in_turn(buffer.values)
            buffer.lives_out = any(
                place[0] is root for value in buffer.values for place in value.positions
            )
        return buffers

    def _order(self, buffer: _Buffer) -> tuple[int, bool, int]:
        first = min(self.post_order[value.instruction] for value in buffer.values)
        return -buffer.byte_size, not buffer.lives_out, first

    # ---- one buffer ---------------------------------------------------------------------------------

    def _assign(self, buffer: _Buffer) -> None:
        for value in buffer.values:
            opcode, home = value.instruction.opcode, value.instruction.computation
            if opcode == "constant":
                self._new("constant", buffer, reusable=False)
                return
            if opcode == "parameter" and home is self.module.entry:
                donated = not self.schedule.is_read_only((value.instruction, value.index))
                self._new("parameter", buffer, reusable=donated)
                return
        kind: BufferKind = "result" if buffer.lives_out else "temporary"
        if buffer.is_table:
            self._new(kind, buffer, reusable=False)
            return
        size, is_exact = buffer.byte_size, buffer.lives_out
        for place in (*self._of_operands(buffer), *reversed(self.reusable)):
            room = place.byte_size
            if size > room or (is_exact and size != room) or not place.reusable:
                continue
            if self._is_free(place, buffer):
                place.add(buffer)
                self.place_of[buffer.number] = place
                return
        if buffer.lives_out:
            self._new("result", buffer, reusable=True)
        else:
            self.left.append(buffer)

    def _new(self, kind: BufferKind, buffer: _Buffer, *, reusable: bool) -> None:
        place = _Place(kind, buffer, reusable=reusable)
        self.places.append(place)
        self.place_of[buffer.number] = place
        if reusable:
            self.reusable.append(place)

    def _of_operands(self, buffer: _Buffer) -> Iterator[_Place]:
        for value in buffer.values:
            if not value.index:
                for operand in value.instruction.operands:
                    given = self.buffer_of.get((operand, (), False))
                    if given is not None and given.number in self.place_of:
                        yield self.place_of[given.number]

    def _is_free(self, place: _Place, buffer: _Buffer) -> bool:
        """Whether a place has no value that a buffer cannot share it with."""
        lives = place.lives
        for value in buffer.values:
            first, last = value.life.start, value.life.end
            at = bisect_left(lives, (last + 1, -1, -1))
            while at > 0:
                at -= 1
                start, end, number = lives[at]
                if end < first - 1 and start < first - 1:
                    break  # those of one place follow each other
                if end < first:
                    continue
                # Only where one begins as the other ends can it take the place over.
                if end != first and last != start:
                    return False
                other = place.values[number]
                if self._interfere(value, other) or self._copies(value, other):
                    return False
        return True

    def _interfere(self, value: AssignedValue, other: AssignedValue) -> bool:
        """Whether two values that live at the same time cannot share a place."""
        if other.life.end == value.life.start:
            return not self._takes_over(value, other)
        if value.life.end == other.life.start:
            return not self._takes_over(other, value)
        return True

    def _takes_over(self, user: AssignedValue, given: AssignedValue) -> bool:
        operand, index = given.life.last
        return (
            user.instruction.opcode != "copy"
            and operand in user.instruction.operands
            and may_share(operand, index, user.instruction, user.index, gpu=self.gpu)
        )

    def _copies(self, value: AssignedValue, other: AssignedValue) -> bool:
        return value.instruction.opcode == "copy" and any(
            instruction in value.instruction.operands for instruction, _ in other.positions
        )

    # ---- what is left -------------------------------------------------------------------------------

    def result(self) -> BufferAssignment:
        kept = [one for one in self.places if one.kind != "temporary"]
        found = [
            BufferAllocation(one.kind, one.byte_size, tuple((value, 0) for value in one.values))
            for one in kept
        ]
        groups, values = self._in_heap()
        heap, offsets = pack(groups, self.alignment)
        size, temporaries = 0, list[tuple[AssignedValue, int]]()
        for place in self._temporaries():
            start = -(-size // self.alignment) * self.alignment
            size = start + (heap if place is None else place.byte_size)
            if place is None:
                temporaries += [(value, start + offsets[number]) for number, value in values]
            else:
                temporaries += [(value, start) for value in place.values]
        if temporaries:
            found.append(BufferAllocation("temporary", size, tuple(temporaries)))
        return BufferAssignment(tuple(found), self.schedule)

    def _temporaries(self) -> list[_Place | None]:
        """The tables of inner tuples and the heap (None), in the order in which XLA puts them together.

        Its ``std::partition`` moves temporaries behind all else: the first of them changes places with the last
        allocation that is none, and so on.
        """
        row: list[tuple[bool, _Place | None]] = [
            (one.kind == "temporary", one) for one in self.places
        ]
        row += [(True, None)] if self.left else []
        row += [(False, None)] * _thread_local_values(self.module)
        low, high = 0, len(row) - 1
        while low < high:
            if not row[low][0]:
                low += 1
            elif row[high][0]:
                high -= 1
            else:
                row[low], row[high] = row[high], row[low]
        return [place for is_temporary, place in row if is_temporary]

    def _in_heap(self) -> tuple[list[HeapBuffer], list[tuple[int, AssignedValue]]]:
        """The buffers of the heap with the events at which they come and go, and their values by buffer."""
        left = {buffer.number: buffer for buffer in self.left}
        made: dict[int, list[tuple[int, AssignedValue]]] = defaultdict(list)
        gone: dict[int, dict[AssignedValue, int]] = defaultdict(dict)
        for number, buffer in left.items():
            for value in buffer.values:
                made[value.life.start].append((number, value))
                gone[value.life.end][value] = number
        event, group_of = 0, {number: number for number in left}
        started: dict[AssignedValue, int] = {}
        times: dict[int, list[tuple[int, int]]] = defaultdict(list)

        def free(value: AssignedValue, number: int) -> None:
            nonlocal event
            times[group_of[number]].append((started.pop(value), event))
            event += 1

        for time in sorted({*made, *gone}):
            for number, value in made.get(time, ()):
                taken = self._freed_operand(left[number], value, gone[time])
                if taken is not None:
                    owner = gone[time].pop(taken)
                    free(taken, owner)
                    group_of[number] = group_of[owner]
                started[value] = event
                event += 1
            for value, number in gone.get(time, {}).items():
                free(value, number)
        sizes: dict[int, int] = defaultdict(int)
        for number, buffer in left.items():
            group = group_of[number]
            sizes[group] = max(sizes[group], buffer.byte_size)
        groups = [HeapBuffer(group, sizes[group], tuple(found)) for group, found in times.items()]
        values = [
            (group_of[number], value) for number, buffer in left.items() for value in buffer.values
        ]
        return groups, values

    def _freed_operand(
        self, buffer: _Buffer, value: AssignedValue, gone: dict[AssignedValue, int]
    ) -> AssignedValue | None:
        """An operand whose place a value may take, because it is read for the last time to make it."""
        if len(buffer.values) > 1 or value.instruction.opcode == "copy":
            return None
        for operand in value.instruction.operands:
            given = self.buffer_of.get((operand, (), False))
            if given is None or len(given.values) > 1 or given.values[0] not in gone:
                continue
            if may_share(operand, (), value.instruction, value.index, gpu=self.gpu):
                return given.values[0]
        return None


def _post_order(module: Module) -> dict[Instruction, int]:
    """Operands before their users, starting from instructions without users: XLA breaks ties by it."""
    order: dict[Instruction, int] = {}
    for computation in top_level_computations(module):
        ends = [one for one in computation if not one.users]
        for instruction in post_order(ends, lambda one: one.operands):
            order.setdefault(instruction, len(order))
    return order


def _thread_local_values(module: Module) -> int:
    """How many values there are within reductions, sorts and the like: allocations that no run needs."""
    top = set(top_level_computations(module))
    inner = [one for one in module if one not in top and not _is_fused(one)]
    return sum(
        one.opcode not in FREE or one.opcode == "parameter" for home in inner for one in home
    )


def _is_fused(computation: Computation) -> bool:
    return any(caller.opcode == "fusion" for caller in computation.callers)


def _in_turn(values: Sequence[AssignedValue]) -> list[AssignedValue]:
    """Values of one place, each ending where the next one begins; the last one lives to the end of all."""
    turn = sorted(values, key=lambda value: (value.life.start, value.life.end))
    ends = [value.life.end for value in turn]
    for number, after in enumerate(turn[1:]):
        ends[number + 1] = max(ends[number], ends[number + 1])
        ends[number] = min(ends[number], after.life.start)
    return [
        replace(value, life=replace(value.life, end=end))
        for value, end in zip(turn, ends, strict=True)
    ]
