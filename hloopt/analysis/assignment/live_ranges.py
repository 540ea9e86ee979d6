"""When values live: from their definition to the last instruction that holds or reads them.

Times number the instructions of ENTRY and of all it runs through control flow, called computations in the
place of their callers, as XLA's ``HloLiveRange`` does over a whole module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, Module
from hloopt.ir.walk import called_computations
from hloopt.ops.traits import CONTROL_FLOW

__all__ = ["FlatSchedule", "LiveRange"]

_Index: TypeAlias = tuple[int, ...]
_Place: TypeAlias = tuple[Instruction, _Index]


@dataclass(frozen=True, slots=True)
class LiveRange:
    """From ``start`` to ``end``, both included; ``last`` holds the value at the end."""

    start: int
    end: int
    last: _Place


class FlatSchedule:
    """The times of all instructions; ``end`` is behind the last one."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.times: dict[Instruction, int] = {}
        self.spans: dict[Computation, tuple[int, int]] = {}
        self.order: list[Instruction] = []
        self._flatten(module.entry)
        self.end = len(self.order)
        self._donated = {
            (module.entry.parameters[one.parameter], tuple(one.parameter_index))
            for one in module.attributes.get("input_output_alias", ())
        }

    def _flatten(self, computation: Computation) -> None:
        if computation in self.spans:
            return
        start = len(self.order)
        self.spans[computation] = (start, start)
        for instruction in computation:
            if instruction.opcode == "while":  # its condition runs first
                self._flatten(instruction.condition)
                self._flatten(instruction.body)
            elif instruction.opcode in CONTROL_FLOW:
                for called in called_computations(instruction):
                    self._flatten(called)
            self.times[instruction] = len(self.order)
            self.order.append(instruction)
        self.spans[computation] = (start, len(self.order))

    def is_read_only(self, place: _Place) -> bool:
        """Whether a value is a parameter of ENTRY that is not donated."""
        instruction, index = place
        return (
            instruction.opcode == "parameter"
            and instruction.computation is self.module.entry
            and (instruction, index) not in self._donated
        )

    def live_range(self, defined: _Place, positions: Iterable[_Place]) -> LiveRange:
        """The life of the value made at a place and held at ``positions``."""
        instruction = defined[0]
        home = instruction.computation
        assert home is not None
        is_parameter = instruction.opcode == "parameter"
        start = self.spans[home][0] if is_parameter else self.times[instruction]
        end, last = self._held(defined), defined
        places = [place for place in positions if place != defined]
        for place in places:
            if (time := self._held(place)) > end:
                end, last = time, place
        if self.is_read_only(defined):
            return LiveRange(start, self.end, last)
        reads = (self._read(place) for place in (defined, *places))
        return LiveRange(start, max(end, *reads), last)

    def _held(self, place: _Place) -> int:
        """Until when a position holds its value: a root to the end of its computation."""
        instruction, home = place[0], place[0].computation
        assert home is not None
        return self.spans[home][1] if instruction.is_root else self.times[instruction]

    def _read(self, place: _Place) -> int:
        """When a position is read last; -1 where it never is."""
        return max((self.times[user] for user in self._readers(place)), default=-1)

    def _readers(self, place: _Place) -> Iterator[Instruction]:
        instruction, index = place
        for user in instruction.users:
            opcode = user.opcode
            if opcode in ("tuple", "domain", "call"):
                continue
            if opcode in ("get-tuple-element", "copy") and index:
                continue
            # What a loop starts with is dead once the state of its first iteration is there.
            yield user.body.parameters[0] if opcode == "while" else user
