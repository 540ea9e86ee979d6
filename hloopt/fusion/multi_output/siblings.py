"""The readers of one value: which of them are still to be asked about, at a cost near their number."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final

import numpy as np

from hloopt.analysis.reachability import Reachability
from hloopt.fusion.multi_output.rules import MultiOutputRules
from hloopt.ir import Instruction

__all__ = ["Siblings"]

_FEW: Final = 8
"""Up to this many, a walk of the graph for each pair costs less than one that serves all pairs."""


class Siblings:
    """The readers of a value, in the order in which they are asked to take in those after them.

    Sets of readers are the bits of an integer, from the first reader's up: a step with 4,096 of them is that of
    one.  Where not every pair is to have a reason (``each``), those are left out that a rule refuses for what
    both are, and one of many equal readers stands for all.
    """

    def __init__(
        self,
        users: Sequence[Instruction],
        shared: Instruction,
        rules: MultiOutputRules,
        reachability: Reachability,
        *,
        each: bool,
    ) -> None:
        self.users = users
        self.shared = shared
        self.rules = rules
        self.reachability = reachability
        self.each = each
        self._place = {user: at for at, user in enumerate(users)}
        self._left = (1 << len(users)) - 1
        self._open = 0
        known = None if each and len(users) <= _FEW else reachability.dependence(users)
        self._before, self._after = known or ([], [])
        if each:
            return
        self._sized = self._classes([rules.loop_size(user) for user in users])
        self._alike = self._classes([rules.likeness(user) for user in users])
        self._read_slices()

    def _classes(self, keys: Sequence[Hashable]) -> list[int]:
        """For each reader those of its key."""
        sets: dict[Hashable, int] = {}
        for at, key in enumerate(keys):
            sets[key] = sets.get(key, 0) | 1 << at
        return [sets[key] for key in keys]

    def _read_slices(self) -> None:
        """Where each reader's only slice begins and ends; it has none where both are 0."""
        rank = self.shared.array.rank if self.rules.may_read_apart(self.shared) else 0
        self._starts = np.zeros((len(self.users), rank), np.int64)
        self._limits = np.zeros((len(self.users), rank), np.int64)
        if rank:
            for at in range(len(self.users)):
                self._read_slice(at)

    def _read_slice(self, at: int) -> None:
        ranges = self.rules.slice_of(self.shared, self.users[at])
        self._starts[at] = [each.start for each in ranges] if ranges else 0
        self._limits[at] = [each.limit for each in ranges] if ranges else 0

    def after(self, first: Instruction) -> Iterator[Instruction]:
        """The later readers that ``first`` is to be paired with, while it takes in some of them."""
        at = self._place[first]
        self._reopen(at)
        later = -1 << (at + 1)
        while rest := self._open & self._left & later:
            second = (rest & -rest).bit_length() - 1
            later = -1 << (second + 1)
            yield self.users[second]

    def is_left(self, user: Instruction) -> bool:
        """Whether no other has taken it in."""
        return bool(self._left >> self._place[user] & 1)

    def connected(self, first: Instruction, second: Instruction) -> bool:
        """Whether one of the two depends on the other."""
        if not self._before:
            return self.reachability.connected(first, second)
        at = self._place[first]
        return bool((self._before[at] | self._after[at]) >> self._place[second] & 1)

    def refuse(self, second: Instruction) -> None:
        """``second`` was refused, and so would be all that a rule takes for the same."""
        if not self.each:
            self._open &= ~self._alike[self._place[second]]

    def merge(self, first: Instruction, second: Instruction) -> None:
        """``first`` has taken in ``second``."""
        at, gone = self._place[first], self._place[second]
        self._left &= ~(1 << gone)
        if self._before:
            self._connect(at, gone)
        if not self.each and self._limits.size:
            self._read_slice(at)
        self._reopen(at)

    def _connect(self, at: int, gone: int) -> None:
        """What either of two depended on, or led to, is what the reader they became does."""
        before = self._before[at] | self._before[gone]
        after = self._after[at] | self._after[gone]
        self._before[at], self._after[at] = before, after
        for one in _bits(after & self._left):
            self._before[one] |= before | 1 << at
        for one in _bits(before & self._left):
            self._after[one] |= after | 1 << at

    def _reopen(self, at: int) -> None:
        if self.each:
            self._open = -1
            return
        self._open = self._sized[at] & ~(self._before[at] | self._after[at])
        if self._limits[at].any():
            apart = (self._starts >= self._limits[at]) | (self._starts[at] >= self._limits)
            far = apart.any(1) & self._limits.any(1)
            self._open &= ~int.from_bytes(np.packbits(far, bitorder="little").tobytes(), "little")


def _bits(found: int) -> Iterator[int]:
    while found:
        low = found & -found
        yield low.bit_length() - 1
        found ^= low
