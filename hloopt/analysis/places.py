"""Instructions by their places in the user's program, as ``op_name`` and stack frames have them.

What JAX calls an op in a function that it calls is a part of a name, without a line, until XLA inlines the
call: then the call's name and ``/`` stand before it, and the line is the call's.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, Module, walk
from hloopt.ir.normal import normal_shape
from hloopt.ops.traits import CONTROL_FLOW, FORWARDING, FREE, MOVING

__all__ = ["Places", "ProgramPlace", "may_be_one", "place_of"]

_MOVING: Final = MOVING | FORWARDING
_MOST: Final = 8
"""How many calls of one function get names of their own."""

_LONGEST: Final = 2000
"""Characters of the name of a call: those of very deep chains are not put together."""

_LEVELS: Final = 4
_Key: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProgramPlace:
    """Where an instruction is from; what is not known is empty.

    line    ``file:line``
    column  in that line
    """

    name: str = ""
    line: str = ""
    column: int = 0

    def inside(self, outer: ProgramPlace) -> ProgramPlace:
        """The place, in a function that is called there."""
        if len(outer.name) > _LONGEST:
            return self
        name = "/".join(part for part in (outer.name, self.name) if part)
        return ProgramPlace(
            name, *((self.line, self.column) if self.line else (outer.line, outer.column))
        )

    @property
    def keys(self) -> list[_Key]:
        """What places must have in common to be one, the surest first."""
        if not self.name:
            return []
        if not self.line:
            return [(self.name,)]
        last = self.name.rpartition("/")[2]
        return [
            (self.name, self.line, str(self.column)),
            (self.name, self.line),
            (self.name,),
            (last, self.line),
        ]


class Places:
    """The instructions of a module by place, without those that compute nothing."""

    def __init__(self, module: Module) -> None:
        self._found: defaultdict[_Key, list[Instruction]] = defaultdict(list)
        self._taken: Counter[_Key] = Counter()
        calls = _calls(module)
        for computation in module.computations.values():
            for entry in computation:
                if entry.opcode not in FREE and entry.opcode != "call":
                    self._add(module, entry, calls[computation])

    def _add(self, module: Module, entry: Instruction, calls: Iterable[ProgramPlace]) -> None:
        own = place_of(module, entry)
        keys = dict.fromkeys(key for call in calls for key in own.inside(call).keys)
        for key in keys:
            self._found[(*key, *_kind(entry))].append(entry)
            self._found[(*key, entry.opcode)].append(entry)
            if entry.opcode not in CONTROL_FLOW:
                self._found[key].append(entry)

    def take(self, module: Module, there: Instruction) -> Instruction | None:
        """What an instruction of another module was made of: the same op at the same place, else another one.

        A fusion may be from where any of its instructions is, the last that computes first; a call is the loop
        that it runs.
        Of several at one place, as layers have them, each call of this gives the next.
        """
        parts = [(one, place_of(module, one).keys) for one in _parts(there)]
        for level in range(_LEVELS):
            for one, keys in parts:
                for key in keys[level : level + 1]:
                    for kind in (_kind(one), (one.opcode,)):
                        if found := self._next((*key, *kind)):
                            return found
        return next(filter(None, map(self._next, place_of(module, there).keys)), None)

    def _next(self, key: _Key) -> Instruction | None:
        found = self._found.get(key)
        if found is None:
            return None
        self._taken[key] += 1
        return found[(self._taken[key] - 1) % len(found)]


def _kind(entry: Instruction) -> tuple[str, str]:
    return entry.opcode, str(normal_shape(entry.shape))


def _parts(there: Instruction) -> list[Instruction]:
    if there.opcode == "fusion":
        found = [one for one in reversed(there.calls) if one.opcode not in FREE]
        return sorted(found, key=lambda one: one.opcode in _MOVING) or [there]
    if there.opcode == "call" and there.to_apply.root.opcode in CONTROL_FLOW:
        return [there.to_apply.root]
    return [there]


def place_of(module: Module, entry: Instruction) -> ProgramPlace:
    """Where an instruction says that it is from."""
    metadata = entry.metadata
    if metadata is None:
        return ProgramPlace()
    fields = metadata.fields
    column = module.stack_tables.column(int(fields.get("stack_frame_id", 0)))
    return ProgramPlace(str(fields.get("op_name", "")), module.user_line(metadata), column)


def may_be_one(here: ProgramPlace, there: ProgramPlace) -> bool:
    """Whether nothing that both say is against one place; a name may be that within a function."""
    names = there.name.endswith(here.name) or here.name.endswith(there.name)
    lines = not (here.line and there.line) or here.line == there.line
    columns = not (here.column and there.column) or here.column == there.column
    return names and lines and columns


def _calls(module: Module) -> Mapping[Computation, Sequence[ProgramPlace]]:
    """By which calls each computation is reached; loops, branches and fusions are part of what they are in."""
    found: defaultdict[Computation, dict[ProgramPlace, None]] = defaultdict(dict)
    for computation in reversed(walk.callees_first(module)):
        outer = found[computation] = found[computation] or {ProgramPlace(): None}
        for entry in computation:
            own = place_of(module, entry) if entry.opcode == "call" else ProgramPlace()
            for called in walk.called_computations(entry):
                for call in outer:
                    if len(found[called]) < _MOST:
                        found[called][own.inside(call)] = None
    return {computation: tuple(calls) for computation, calls in found.items()}
