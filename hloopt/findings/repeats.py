"""Copies of one piece of a computation that follow one another: what a traced loop of Python leaves.

Instructions are read as a sequence of tokens: op, shape, attributes and line, without names, constants and
slices of arguments.  The period is the distance at which most windows of tokens come again; a run is where each
token is that of one period before.  All of it takes time in proportion to the instructions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Final

from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.ops.traits import PLUMBING, VIEWS
from hloopt.rewrite.site import is_replaceable
from hloopt.types import Literal

__all__ = ["CopySource", "Repeats", "repeats"]

_WINDOW: Final = 4
_PERIODS: Final = 3
"""Periods that are looked at, the most frequent first."""
_FEWEST: Final = 8
"""Copies from which on they are a loop."""
_GIVEN: Final = VIEWS | {"iota", "convert"}
"""Ops that do not belong to a copy if they read arguments and constants only: each copy may have others."""
_LAYERS: Final = 8
"""How many ops one behind the other a copy may have of its own, before what it has from the one before it."""
_SKIPPED: Final = 2
"""First copies that may differ: they read what is there before the loop."""


@dataclass(frozen=True, slots=True)
class CopySource:
    """Where an operand of a copy comes from: another of its instructions, or the copy before, or outside.

    slot      of the instruction in a copy; None for what is from ``outside``
    previous  whether it is that of the copy before; ``outside`` has what the first copy reads then
    outside   one instruction for each copy
    """

    slot: int | None
    previous: bool
    outside: tuple[Instruction, ...]


@dataclass(frozen=True)
class Repeats:
    """``copies`` of the same instructions, and where the operands of each of them come from."""

    copies: tuple[tuple[Instruction, ...], ...]
    sources: tuple[tuple[CopySource, ...], ...]

    @property
    def period(self) -> int:
        """The instructions of a copy."""
        return len(self.copies[0])

    @property
    def members(self) -> tuple[Instruction, ...]:
        """All instructions of all copies."""
        return tuple(one for copy in self.copies for one in copy)


def repeats(computation: Computation) -> Repeats | None:
    """The longest run of copies whose operands are related alike, if there is one."""
    row = list(_sequence(computation))
    numbers: dict[Hashable, int] = {}
    called: dict[Computation, Hashable] = {}
    tokens = [numbers.setdefault(_token(one, called), len(numbers)) for one in row]
    best: tuple[int, int, int] | None = None
    for period in _periods(tokens):
        for start, end in _runs(tokens, period):
            if end - start >= _FEWEST * period and (
                best is None or end - start > 1.1 * (best[1] - best[0])
            ):
                best = start, end, period
    if best is None:
        return None
    start, end, period = best
    for skipped in range(_SKIPPED + 1):
        first = start + skipped * period
        count = (end - first) // period
        if count < _FEWEST:
            break
        copies = tuple(
            tuple(row[first + number * period : first + (number + 1) * period])
            for number in range(count)
        )
        sources = _sources(copies)
        if sources is not None:
            return _with_own(Repeats(copies, sources), called)
    return None


def _with_own(found: Repeats, called: dict[Computation, Hashable]) -> Repeats:
    """The copies with what each has of its own before it, computed alike from what is given."""
    for _ in range(_LAYERS):
        members = [set(copy) for copy in found.copies]
        columns = dict.fromkeys(
            source.outside for row in found.sources for source in row if source.slot is None
        )
        taken = [column for column in columns if _is_own(column, members, called)]
        if not taken:
            break
        copies = tuple(
            (*(column[number] for column in taken), *copy)
            for number, copy in enumerate(found.copies)
        )
        sources = _sources(copies)
        if sources is None:
            break
        found = Repeats(copies, sources)
    return found


def _is_own(
    column: Sequence[Instruction],
    members: Sequence[set[Instruction]],
    called: dict[Computation, Hashable],
) -> bool:
    """Whether each of these is the same op as the others, for its copy alone."""
    first = column[0]
    if first.opcode in PLUMBING or first.opcode in _GIVEN or len(set(column)) < len(column):
        return False
    token = _token(first, called)
    return all(
        _token(one, called) == token
        and not one.is_root
        and all(user in members[number] for user in one.users)
        for number, one in enumerate(column)
    )


def _sequence(computation: Computation) -> Iterator[Instruction]:
    """What is computed, without what is of arguments and constants alone."""
    given: set[Instruction] = set()
    for one in computation:
        if one.opcode in PLUMBING or (
            one.opcode in _GIVEN and all(operand in given for operand in one.operands)
        ):
            given.add(one)
        else:
            yield one


def _token(one: Instruction, called: dict[Computation, Hashable]) -> Hashable:
    if not (one.is_array and is_replaceable(one)):
        return id(one)  # equal to no other
    line = one.module.user_line(one.metadata)
    return one.opcode, str(one.shape), line, _attributes(one, called)


def _attributes(one: Instruction, called: dict[Computation, Hashable]) -> Hashable:
    return tuple((name, _key(value, called)) for name, value in sorted(one.attributes.items()))


def _key(value: Any, called: dict[Computation, Hashable]) -> Hashable:
    """A key that equal values share; for a computation it is what it computes, not its name."""
    if isinstance(value, Literal):
        return str(value)
    if not isinstance(value, Computation):
        return value if isinstance(value, Hashable) else str(value)
    if value not in called:
        at = {one: number for number, one in enumerate(value)}
        does = [
            (
                one.opcode,
                str(one.shape),
                [at[operand] for operand in one.operands],
                one.is_root,
                _attributes(one, called),
            )
            for one in value
        ]
        called[value] = hash(str(does))
    return called[value]


def _periods(tokens: Sequence[int]) -> list[int]:
    """The distances at which most windows come again."""
    last: dict[tuple[int, ...], int] = {}
    votes: Counter[int] = Counter()
    for at in range(_WINDOW, len(tokens) + 1):
        window = tuple(tokens[at - _WINDOW : at])
        if window in last:
            votes[at - last[window]] += 1
        last[window] = at
    return [period for period, _ in votes.most_common(_PERIODS)]


def _runs(tokens: Sequence[int], period: int) -> Iterator[tuple[int, int]]:
    """Where each token is that of one period before, from the first of them on."""
    start = None
    for at in range(period, len(tokens) + 1):
        if at < len(tokens) and tokens[at] == tokens[at - period]:
            start = at if start is None else start
        elif start is not None:
            yield start - period, at
            start = None


def _sources(copies: Sequence[Sequence[Instruction]]) -> tuple[tuple[CopySource, ...], ...] | None:
    """Where operands come from, if that is the same in all copies but the first."""
    place = {
        one: (number, slot) for number, copy in enumerate(copies) for slot, one in enumerate(copy)
    }
    found = []
    for slot, first in enumerate(copies[0]):
        row = []
        for position in range(len(first.operands)):
            given = [copy[slot].operands[position] for copy in copies]
            source = _source(given, place)
            if source is None:
                return None
            row.append(source)
        found.append(tuple(row))
    return tuple(found)


def _source(
    given: Sequence[Instruction], place: dict[Instruction, tuple[int, int]]
) -> CopySource | None:
    places = [place.get(one) for one in given]
    second = places[1]
    if second is None:
        return None if any(places) else CopySource(None, False, tuple(given))
    slot, back = second[1], 1 - second[0]
    if back not in (0, 1) or any(
        one != (number - back, slot) for number, one in enumerate(places) if number
    ):
        return None
    if back == 0:
        return CopySource(slot, False, ()) if places[0] == (0, slot) else None
    return None if places[0] is not None else CopySource(slot, True, (given[0],))
