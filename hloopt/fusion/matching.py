"""Which kernels of two modules are the same, and what became of the others.

Equal kernels are paired: first those whose results are the same values, then, in the order in which
they run, those that do the same to other operands.  What is left is compared by the values both compute: two
kernels are linked where more than ``LINK`` of what either computes is computed by the other, too.  A value
computed in several kernels belongs to each of them by its share.  Kernels that share no value (something before
them has changed) are compared by what they compute, by the ``NEAR`` ops before it, and in the end by
opcodes and shapes; repeated ones are matched by their place in the program then.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import product
from typing import Final, Literal, TypeAlias

from hloopt.analysis.value_digests import KernelDigests, ValueDigests, kernel_digest
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module

__all__ = ["LINK", "NEAR", "KernelGroup", "Status", "match_kernels"]

Status: TypeAlias = Literal[
    "same", "changed", "grew", "shrank", "split", "merged", "regrouped", "repeated", "came", "went"
]

NEAR: Final = 2
"""Ops before one that are compared where nothing further up is the same."""

LINK: Final = 0.5
"""A larger share of a kernel makes it part of what became of another."""

_MOST_PAIRS = 256
"""Values shared by more pairs of kernels than this do not identify any of them."""

_EPSILON = 1e-9


@dataclass(frozen=True, slots=True)
class KernelGroup:
    """Kernels of either module that belong together.

    status  same: one does what the other did; changed: the same values in another way, or others in their
            place; grew, shrank: one that computes more, or less; split, merged: one is several now, several
            are one; regrouped: several are several others; repeated: a kernel is gone (or new), for others
            compute all it did (or it computes what others did); came, went
    before, after  top-level instructions in the order of the module
    gained, lost   opcodes of what only those after, or only those before, compute
    elsewhere  of what was repeated: the kernels in the other module
    """

    status: Status
    before: tuple[Instruction, ...]
    after: tuple[Instruction, ...]
    gained: tuple[tuple[str, int], ...] = ()
    lost: tuple[tuple[str, int], ...] = ()
    elsewhere: tuple[Instruction, ...] = ()


def match_kernels(
    before: Module,
    before_kernels: Sequence[Instruction],
    after: Module,
    after_kernels: Sequence[Instruction],
) -> list[KernelGroup]:
    """Groups in the order of the kernels before, then of those after; each kernel is in one group.

    ``before_kernels`` and ``after_kernels`` are top-level instructions of the modules, in the order in which
    they run.
    """
    sides = _Side(before, before_kernels), _Side(after, after_kernels)
    groups = _same(*sides)
    by: By
    for by in ("values", "near", "opcodes"):
        left = [side.left(groups, index) for index, side in enumerate(sides)]
        if all(left):
            groups += _linked(sides, left[0], left[1], by)
    groups += _repeated(sides, groups)
    left = [side.left(groups, index) for index, side in enumerate(sides)]
    groups += [
        KernelGroup("went", (kernel,), (), (), sides[0].opcodes(kernel)) for kernel in left[0]
    ]
    groups += [KernelGroup("came", (), (kernel,), sides[1].opcodes(kernel)) for kernel in left[1]]
    place = [{kernel: at for at, kernel in enumerate(side.kernels)} for side in sides]

    def order(group: KernelGroup) -> tuple[bool, int]:
        if group.before:
            return False, place[0][group.before[0]]
        return True, place[1][group.after[0]]

    return sorted(groups, key=order)


class _Side:
    """One module's kernels and their digests."""

    def __init__(self, module: Module, kernels: Sequence[Instruction]) -> None:
        self.module = module
        self.kernels = tuple(kernels)
        self.digests = ValueDigests(module).kernels
        self.own = {kernel: kernel_digest(kernel) for kernel in kernels}

    def left(self, groups: Iterable[KernelGroup], index: int) -> list[Instruction]:
        """Kernels that are in no group."""
        done = {kernel for group in groups for kernel in (group.after if index else group.before)}
        return [kernel for kernel in self.kernels if kernel not in done]

    @cached_property
    def _near(self) -> dict[Instruction, KernelDigests]:
        return ValueDigests(self.module, NEAR).kernels

    def inner(self, kernel: Instruction, by: By) -> list[tuple[Hashable, Instruction]]:
        """What a kernel computes, each with what it is compared by."""
        if by == "opcodes":
            rows = self.digests[kernel].inner
            return [((entry.opcode, str(entry.shape)), entry) for _, entry in rows]
        return list((self.digests if by == "values" else self._near)[kernel].inner)

    def values(self, kernel: Instruction, by: By) -> Counter[Hashable]:
        """What a kernel computes, and how often."""
        return Counter(value for value, _ in self.inner(kernel, by))

    def opcodes(self, kernel: Instruction) -> tuple[tuple[str, int], ...]:
        """Opcodes of all that a kernel computes, the most frequent first."""
        return _counted(Counter(entry.opcode for _, entry in self.digests[kernel].inner))


def _counted(opcodes: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(opcodes.items(), key=lambda row: (-row[1], row[0])))


def _same(before: _Side, after: _Side) -> list[KernelGroup]:
    """Kernels that do the same: to the same values first, then to any."""
    groups: list[KernelGroup] = []
    for exact in (True, False):
        waiting: dict[Hashable, list[Instruction]] = defaultdict(list)
        for kernel in reversed(before.left(groups, 0)):
            waiting[_key(before, kernel, exact=exact)].append(kernel)
        for kernel in after.left(groups, 1):
            partners = waiting.get(_key(after, kernel, exact=exact))
            if partners:
                groups.append(KernelGroup("same", (partners.pop(),), (kernel,)))
    return groups


def _key(side: _Side, kernel: Instruction, *, exact: bool) -> Hashable:
    own = side.own[kernel]
    return (own, frozenset(side.digests[kernel].outputs)) if exact else own


By: TypeAlias = Literal["values", "near", "opcodes"]
_Link: TypeAlias = tuple[Instruction, Instruction]


def _linked(
    sides: tuple[_Side, _Side],
    before: list[Instruction],
    after: list[Instruction],
    by: By,
) -> list[KernelGroup]:
    """Groups of kernels that share what they compute."""
    held = [
        {kernel: sides[index].values(kernel, by) for kernel in kernels}
        for index, kernels in enumerate((before, after))
    ]
    holders = [_holders(one) for one in held]
    weights = [
        {
            kernel: sum(count / len(where[value]) for value, count in values.items())
            for kernel, values in one.items()
        }
        for one, where in zip(held, holders, strict=True)
    ]
    overlaps = _overlaps(held, holders, by)
    links = [
        pair
        for pair, shared in overlaps.common.items()
        if shared - _EPSILON > LINK * min(weights[0][pair[0]], weights[1][pair[1]])
    ]
    if by != "values":
        links = overlaps.closest(links)
    groups = []
    for first, second in _components(links):
        lost, gained = _differences(sides, first, second, by)
        status = _status(first, second, bool(gained), bool(lost))
        groups.append(KernelGroup(status, first, second, gained, lost))
    return _in_text_order(groups, sides)


def _holders(
    held: Mapping[Instruction, Counter[Hashable]],
) -> dict[Hashable, list[Instruction]]:
    found: dict[Hashable, list[Instruction]] = defaultdict(list)
    for kernel, values in held.items():
        for value in values:
            found[value].append(kernel)
    return found


@dataclass
class _Overlaps:
    """What kernels before and after share: a value counts by its share in either.

    apart  how far from each other the kernels of a pair stand among those that hold the same values
    """

    common: Counter[_Link] = field(default_factory=Counter)
    apart: Counter[_Link] = field(default_factory=Counter)

    def closest(self, links: list[_Link]) -> list[_Link]:
        """For each kernel the one most like it; then for each that is not chosen yet.

        Of pairs that share as much the one comes first whose kernels come at the same time in both programs.
        """
        found: list[_Link] = []
        ordered = sorted(links, key=lambda pair: (-round(self.common[pair], 6), self.apart[pair]))
        for index in (0, 1):
            chosen = {kernel for pair in found for kernel in pair}
            for pair in ordered:
                if pair[index] not in chosen:
                    chosen.add(pair[index])
                    found.append(pair)
        return found


def _overlaps(
    held: Sequence[Mapping[Instruction, Counter[Hashable]]],
    holders: Sequence[Mapping[Hashable, list[Instruction]]],
    by: By,
) -> _Overlaps:
    found = _Overlaps()
    for value, first in holders[0].items():
        second = holders[1].get(value, [])
        for row, column in _pairs(len(first), len(second), by):
            pair = first[row], second[column]
            count = min(held[0][pair[0]][value], held[1][pair[1]][value])
            share = count / max(len(first), len(second))
            found.common[pair] += share  # type: ignore[assignment]
            distance = abs((row + 0.5) / len(first) - (column + 0.5) / len(second))
            found.apart[pair] += share * distance  # type: ignore[assignment]
    return found


def _pairs(rows: int, columns: int, by: By) -> Iterator[tuple[int, int]]:
    """Pairs of numbers; of too many those that are near each other, none where values suffice."""
    if rows * columns <= _MOST_PAIRS:
        yield from product(range(rows), range(columns))
    elif by != "values":
        for longer in range(max(rows, columns)):
            shorter = longer * min(rows, columns) // max(rows, columns)
            yield (longer, shorter) if rows >= columns else (shorter, longer)


_Side2: TypeAlias = tuple[Instruction, ...]


def _components(links: Iterable[_Link]) -> list[tuple[_Side2, _Side2]]:
    """Connected components of kernels before and after, by links."""
    near: dict[tuple[int, Instruction], list[tuple[int, Instruction]]] = defaultdict(list)
    for one, other in links:
        near[0, one].append((1, other))
        near[1, other].append((0, one))
    seen: set[tuple[int, Instruction]] = set()
    found = []
    for start in near:
        if start in seen:
            continue
        seen.add(start)
        pending, members = [start], []
        while pending:
            member = pending.pop()
            members.append(member)
            fresh = [other for other in near[member] if other not in seen]
            seen.update(fresh)
            pending += fresh
        sides = (
            tuple(kernel for side, kernel in members if side == 0),
            tuple(kernel for side, kernel in members if side == 1),
        )
        found.append(sides)
    return found


def _in_text_order(groups: list[KernelGroup], sides: tuple[_Side, _Side]) -> list[KernelGroup]:
    places = [{kernel: at for at, kernel in enumerate(side.kernels)} for side in sides]
    return [
        replace(
            group,
            before=tuple(sorted(group.before, key=places[0].__getitem__)),
            after=tuple(sorted(group.after, key=places[1].__getitem__)),
        )
        for group in groups
    ]


def _differences(
    sides: tuple[_Side, _Side],
    before: Iterable[Instruction],
    after: Iterable[Instruction],
    by: By,
) -> tuple[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]:
    """Opcodes of what only the kernels before, and only those after, compute.

    What several kernels of one side compute counts once: a repetition is not another computation.
    """
    found: list[dict[Hashable, tuple[str, int]]] = []
    for side, kernels in zip(sides, (before, after), strict=True):
        rows: dict[Hashable, tuple[str, int]] = {}
        for kernel in kernels:
            values = side.values(kernel, by)
            for key, entry in side.inner(kernel, by):
                count = max(values[key], rows.get(key, ("", 0))[1])
                rows[key] = entry.opcode, count
        found.append(rows)
    first, second = found
    return _only(first, second), _only(second, first)


def _only(
    first: Mapping[Hashable, tuple[str, int]], second: Mapping[Hashable, tuple[str, int]]
) -> tuple[tuple[str, int], ...]:
    opcodes: Counter[str] = Counter()
    for key, (opcode, count) in first.items():
        opcodes[opcode] += max(0, count - second.get(key, ("", 0))[1])
    return _counted(+opcodes)


def _status(before: _Side2, after: _Side2, gained: bool, lost: bool) -> Status:
    if len(before) > 1:
        return "regrouped" if len(after) > 1 else "merged"
    if len(after) > 1:
        return "split"
    if gained and not lost:
        return "grew"
    return "shrank" if lost and not gained else "changed"


def _repeated(sides: tuple[_Side, _Side], groups: Iterable[KernelGroup]) -> list[KernelGroup]:
    """Kernels left alone of which everything is computed in kernels of the other module, too."""
    found = []
    groups = list(groups)
    for index in (0, 1):
        here, there = sides[index], sides[1 - index]
        holders = _holders({kernel: there.values(kernel, "values") for kernel in there.kernels})
        for kernel in here.left(groups, index):
            values = here.values(kernel, "values")
            if not values or not all(value in holders for value in values):
                continue
            last = here.digests[kernel].outputs
            wanted: list[Hashable] = [value for value in last if value in holders]
            wanted = wanted or list(values)
            elsewhere = tuple(dict.fromkeys(one for value in wanted for one in holders[value]))
            before, after = ((), (kernel,)) if index else ((kernel,), ())
            found.append(KernelGroup("repeated", before, after, (), (), elsewhere))
    return found
