"""Reductions that MPI makes itself: no process collects what all bring, and nothing is copied into messages.

They are ``all-reduce`` and ``reduce-scatter`` by one op of HLO, on arrays of a type that MPI has, over a group
of several processes.  Each such instruction and group has a communicator, made when the program is compiled: in
whatever order reductions begin, they never meet each other's arrays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from hloopt.analysis.elementwise import plain_opcode
from hloopt.dataclass import dataclass
from hloopt.interpret.context import Value, arrays_of
from hloopt.interpret.groups import groups_of
from hloopt.interpret.participant import Meeting
from hloopt.ops.traits import ASSOCIATIVE, op_table
from hloopt.types import Array

if TYPE_CHECKING:
    from hloopt.ir import Instruction, Module
    from hloopt.runtime.mpi import Processes

__all__ = ["MpiReductions", "Pending"]

MOST: Final = 500
"""Communicators of one run of the command: MPI has some thousands.  Other groups send messages of ours."""

_REDUCED: Final = frozenset({"all-reduce", "all-reduce-start", "reduce-scatter"})
_OPS: Final[Mapping[str, tuple[str, np.ufunc]]] = op_table(
    {
        "add": ("SUM", np.add),
        "multiply": ("PROD", np.multiply),
        "maximum": ("MAX", np.maximum),
        "minimum": ("MIN", np.minimum),
        "and": ("BAND", np.bitwise_and),
        "or": ("BOR", np.bitwise_or),
        "xor": ("BXOR", np.bitwise_xor),
    },
    ASSOCIATIVE,
)
_INTEGERS: Final = frozenset({"s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64"})
_TYPES: Final = {"add": _INTEGERS | {"f32", "f64"}, "multiply": _INTEGERS | {"f32", "f64"}}
"""By the op; MPI does not say what the greatest of numbers and a NaN is, so others are for integers."""

Pending: TypeAlias = "Mapping[Meeting, int]"
"""How often this process has begun each reduction."""


@dataclass(frozen=True)
class _Channel:
    """Where one instruction's reductions over one group go: processes, communicator, ops."""

    ranks: tuple[int, ...]
    communicator: Any
    operation: Any
    ufunc: np.ufunc


class MpiReductions:
    """Those of a program; all processes make it at the same time, of the same module."""

    def __init__(self, processes: Processes, module: Module, counts: tuple[int, int]) -> None:
        self._processes = processes
        self._channels: dict[Meeting, _Channel] = {}
        self._under_way: dict[Meeting, tuple[list[Any], list[Array]]] = {}
        self.started: defaultdict[Meeting, int] = defaultdict(int)
        for instruction, opcode in _reduced(module):
            for group in groups_of(instruction, *counts):
                owners = {processes.owner(one, counts[0] * counts[1]) for one in group}
                if len(owners) > 1 and processes.communicators < MOST:
                    self._add(instruction, group, tuple(sorted(owners)), opcode)

    def _add(
        self, instruction: Instruction, group: tuple[int, ...], ranks: tuple[int, ...], opcode: str
    ) -> None:
        home = instruction.computation
        key = (home.name if home is not None else "", instruction.name, group)
        name, ufunc = _OPS[opcode]
        communicator, operation = self._processes.among(ranks, name)
        self._channels[key] = _Channel(ranks, communicator, operation, ufunc)

    def __contains__(self, key: Meeting) -> bool:
        return key in self._channels

    def begin(self, key: Meeting, values: Sequence[Value]) -> None:
        """Begin to reduce what this process's members bring; nothing waits."""
        channel = self._channels[key]
        members = [arrays_of(value) for value in values if isinstance(value, tuple)]
        requests, results = [], []
        for parts in zip(*members, strict=True):
            own = np.ascontiguousarray(parts[0]).reshape(parts[0].shape)
            for part in parts[1:]:
                own = np.asarray(channel.ufunc(own, part))
            result = np.empty_like(own)
            requests.append((channel.communicator.Iallreduce(own, result, channel.operation), own))
            results.append(result)
        self._under_way[key] = requests, results
        self.started[key] += 1

    def finished(self) -> tuple[Meeting, Value] | None:
        """A reduction that has ended, with its results; None where none has."""
        for key, (requests, results) in self._under_way.items():
            if all(request.Test() for request, _ in requests):
                del self._under_way[key]
                return key, tuple(results)
        return None

    @property
    def pending(self) -> Pending:
        """What has begun here and has not ended, with how often each has begun."""
        return {key: self.started[key] for key in self._under_way}

    def will_end(self, pending: Pending, started: Sequence[Pending]) -> bool:
        """Whether one of those that wait in a process has begun in all: ``started`` by process."""
        return any(
            all(started[rank].get(key, 0) >= count for rank in self._channels[key].ranks)
            for key, count in pending.items()
        )


def _reduced(module: Module) -> Iterator[tuple[Instruction, str]]:
    """The instructions that MPI can reduce, with the op."""
    for instruction in module.instructions():
        if instruction.opcode not in _REDUCED or instruction.shape.is_dynamic:
            continue
        opcode = plain_opcode(instruction.to_apply)
        kinds = {operand.array.dtype for operand in instruction.operands}
        wide = instruction.to_apply.root.array.dtype
        if opcode in _OPS and kinds == {wide} and wide.name in _TYPES.get(opcode, _INTEGERS):
            yield instruction, opcode
