"""Producers of one operand each of a wide concatenate or variadic reduce, which no price or rule tells apart.

When one of them joins the kernel of their user, the prices of all others change, and stay equal to each
other.  So one represents its twins: the one made last, which comes first among equals.  Where many have joined,
several join at once, so that a kernel is priced a number of times in the logarithm of its width.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import field
from heapq import heappop, heappush
from typing import Any, Final, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.ops.traits import PERMUTING, UPDATING
from hloopt.types import ArrayShape, Literal, SliceRange

__all__ = ["Twins"]

_WIDE: Final = 32
"""Operands of a fusion from which on twins are searched."""
_MANY: Final = 8
"""Operands that represent themselves from which on twins among them are put to sleep."""
_EACH: Final = 64
"""Twins that join a fusion one by one."""
_JOINED: Final = 4
"""Twins that have joined a fusion, for each that joins with the next one."""
_LARGEST: Final = 64
"""Instructions of a producer that is compared with others."""
_TOLD_APART: Final = PERMUTING - {"reshape", "reverse"} | {"constant", "get-tuple-element"}
"""Ops whose price or rule depends on their surroundings."""
_WIDE_OPS: Final = frozenset({"concatenate", "reduce"})
"""Ops that may read many values alike."""
_IN_PLACE: Final = UPDATING
"""Ops beside which it counts where a slice begins."""

_Key: TypeAlias = tuple[Any, ...]


@dataclass
class _Class:
    """``awake`` represents those asleep: minus the number of each, and it; some may have been removed.

    joined   how many of them the fusion has taken in
    """

    awake: Instruction
    asleep: list[tuple[int, Instruction]] = field(default_factory=list)
    joined: int = 0


class Twins:
    """The twins among the operands of each fusion.

    ``numbers`` says in which order instructions were made, ``opcodes`` what there is in a fusion.
    """

    def __init__(
        self,
        numbers: Mapping[Instruction, int],
        opcodes: Callable[[Instruction], AbstractSet[str]],
    ) -> None:
        self._numbers = numbers
        self._opcodes = opcodes
        self._classes: dict[Instruction, dict[_Key, _Class]] = {}
        self._home: dict[Instruction, _Class] = {}

    @property
    def asleep(self) -> Container[Instruction]:
        """Those that others represent."""
        return self._home

    def awake(self, fusion: Instruction) -> Iterable[Instruction]:
        """The operands of a fusion that represent themselves, each once, unordered."""
        if fusion not in self._classes:
            return dict.fromkeys(fusion.operands)
        return set(fusion.operands).difference(self._home)

    def wake(self, instruction: Instruction) -> list[Instruction]:
        """It changes, and represents itself from now on; returns it if it slept."""
        return [instruction] if self._home.pop(instruction, None) is not None else []

    def wake_operands(self, instruction: Instruction) -> list[Instruction]:
        """It is removed: its operands represent themselves; returns those that slept."""
        woken = []
        for found in self._classes.pop(instruction, {}).values():
            woken += [twin for _, twin in found.asleep if self._home.get(twin) is found]
        for twin in woken:
            del self._home[twin]
        return woken

    def wake_all(self) -> list[Instruction]:
        """All represent themselves again; returns those that slept."""
        woken = list(self._home)
        self._home.clear()
        self._classes.clear()
        return woken

    def wake_next(self, fusion: Instruction) -> list[Instruction]:
        """New representatives of twins, after the previous one joined ``fusion``."""
        woken = []
        for key, found in list(self._classes.get(fusion, {}).items()):
            if fusion in found.awake.users:
                continue
            twin = self._next(found)
            if twin is None:
                del self._classes[fusion][key]
                continue
            found.awake = twin
            found.joined += 1
            woken.append(twin)
        return woken

    def followers(
        self,
        producer: Instruction,
        fusion: Instruction,
        fit: Callable[[Instruction, int], bool],
    ) -> list[Instruction]:
        """Twins that join ``fusion`` with a producer, priced as it was: where many have, a quarter as many.

        None where so many do not ``fit``.  They represent themselves from now on.
        """
        for found in self._classes.get(fusion, {}).values():
            if found.awake is producer:
                return self._take(found, fit)
        return []

    def _take(self, found: _Class, fit: Callable[[Instruction, int], bool]) -> list[Instruction]:
        first, count = self._next(found), found.joined // _JOINED
        if first is None or found.joined < _EACH or not fit(first, count):
            if first is not None:
                heappush(found.asleep, (-self._numbers[first], first))
                self._home[first] = found
            return []
        taken = [first]
        while len(taken) < count and (twin := self._next(found)) is not None:
            taken.append(twin)
        found.joined += len(taken)
        return taken

    def _next(self, found: _Class) -> Instruction | None:
        """The twin made last of those asleep, which sleeps no longer."""
        while found.asleep:
            _, twin = heappop(found.asleep)
            if self._home.get(twin) is found:
                del self._home[twin]
                return twin
        return None

    def put_to_sleep(self, fusion: Instruction) -> list[Instruction]:
        """Choose representatives of twins among a fusion's operands; returns those that fell asleep."""
        if len(fusion.operands) <= _WIDE:
            return []
        awake = set(self.awake(fusion)) & self._numbers.keys()
        if len(awake) <= _MANY:
            return []
        opcodes = self._opcodes(fusion)
        if _WIDE_OPS.isdisjoint(opcodes) or not _IN_PLACE.isdisjoint(opcodes):
            return []
        classes = self._classes.setdefault(fusion, {})
        fallen = []
        for producer in sorted(awake, key=self._numbers.__getitem__):
            key = _key(producer, fusion)
            if key is None:
                continue
            found = classes.setdefault(key, _Class(producer))
            if found.awake not in self._numbers:
                # It joined another kernel as a consumer; those asleep are twins of this one as well.
                found.awake = producer
            elif found.awake is not producer:
                first, last = sorted((found.awake, producer), key=self._numbers.__getitem__)
                heappush(found.asleep, (-self._numbers[first], first))
                self._home[first] = found
                found.awake = last
                fallen.append(first)
        return fallen


def _key(producer: Instruction, fusion: Instruction) -> _Key | None:
    """What prices and rules see of a producer with its only user; None where they may see more."""
    if producer.opcode in _TOLD_APART or producer.users != {fusion: 1} or producer.is_root:
        return None
    if producer.has_control_edges:
        return None
    way = _way(fusion.calls.parameters[fusion.operands.index(producer)], fusion)
    structure = _structure(producer) if way is not None else None
    if way is None or structure is None:
        return None
    read = (
        entry.shape if entry.users.keys() == {producer} else entry for entry in producer.operands
    )
    return way, structure, *read


def _way(parameter: Instruction, fusion: Instruction) -> _Key | None:
    """What is computed of a parameter alone, and of what others compute their parts of as well, up to the
    concatenate or reduce that takes it in; None where it goes elsewhere.
    """
    numbers = {parameter: 0}
    pending = [parameter]
    ends: dict[Instruction, int] = {}
    while pending:
        for user, count in pending.pop().users.items():
            if user.opcode in _WIDE_OPS:
                ends[user] = ends.get(user, 0) + count
            elif user not in numbers:
                numbers[user] = len(numbers)
                pending.append(user)
        if len(numbers) > _LARGEST:
            return None
    if len(ends) != 1 or sum(ends.values()) != 1 or any(entry.is_root for entry in numbers):
        return None
    found = []
    for entry in list(numbers)[1:]:
        others = [operand for operand in entry.operands if operand not in numbers]
        if any(_is_private(other, fusion) for other in others):
            return None
        marks = tuple(id(other) if len(other.users) > 1 else other.opcode for other in others)
        found.append((_entry(entry, numbers), marks))
    return *ends, *found


def _is_private(entry: Instruction, fusion: Instruction) -> bool:
    """Whether only one of the twins reads a value that may change while others stay as they are."""
    while entry.opcode == "broadcast":
        if len(entry.users) > 1:
            return False
        entry = entry.operands[0]
    if len(entry.users) > 1 or entry.opcode == "constant":
        return False
    if entry.opcode != "parameter":
        return True
    return fusion.operands[entry.parameter_number].opcode != "constant"


def _structure(producer: Instruction) -> _Key | None:
    """What a producer computes, wherever its slices begin."""
    if producer.opcode != "fusion":
        return _entry(producer, {})
    body = producer.calls
    if len(body) > _LARGEST:
        return None
    numbers: dict[Instruction, int] = {}
    found = []
    for number, entry in enumerate(body):
        if entry.opcode in _IN_PLACE:
            return None
        found.append(_entry(entry, numbers))
        numbers[entry] = number
    rest = [(name, value) for name, value in producer.attributes.items() if name != "calls"]
    return producer.shape, numbers[body.root], tuple(rest), *found


def _entry(entry: Instruction, numbers: Mapping[Instruction, int]) -> _Key:
    attributes = tuple((name, _value(value)) for name, value in entry.attributes.items())
    operands = tuple(numbers.get(operand, -1) for operand in entry.operands)
    return entry.opcode, entry.shape, operands, attributes


def _value(value: Any) -> Any:
    if isinstance(value, tuple) and value and isinstance(value[0], SliceRange):
        return tuple((part.size, part.stride) for part in value)
    if isinstance(value, Literal) and isinstance(value.shape, ArrayShape) and not value.shape.dims:
        return None if value.shape.dtype.is_float else str(value)
    return value
