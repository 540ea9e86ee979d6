"""Which value of one run is which of another: by the data itself, then by names and places in the program.

Two arrays of one type and as many elements that agree element by element, within what rounding allows, are the
same value, however each was computed.  Where several agree, the one that is paired with the instruction
(``analysis.pairing``) goes first, then one of the same op.  Small integers and masks agree by chance: what is
not paired must agree on other inputs, too, and in earlier iterations of a loop.

What rounding allows an intermediate value is what the judge allows a result: how far it moves in evaluations
that round otherwise, of either module.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from hloopt.analysis.pairing import Pairing
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.prover.observing import HEAD, Leaf, Place, Seen, Trace, same_part
from hloopt.prover.roundings import Spreads
from hloopt.runtime.comparison import Allowance, OutputComparison, compared
from hloopt.runtime.movement import Movement
from hloopt.runtime.tolerance import Tolerance, own_margin, sampled_margin
from hloopt.types import Array, dtype, of_numpy

__all__ = ["Matcher", "Sides", "alike", "corresponding", "is_telling", "likeness"]

_PROBES: Final = 16
_FARTHER: Final = 8
_LOOSE: Final = 1e-2
"""An array of which half the elements may be off by more than this part of them needs more than its data."""

_SMALL: Final = 1 << 20
_BITS: Final = 2
_MANY: Final = 8
"""Integers from here on, so many different ones, are random bits; so many different floats of few bits tell."""

_NEAR: Final = 0.02
_MOST: Final = 0.9

_MADE: Final = frozenset({"constant", "iota"})
"""Ops that give the same in each iteration."""

_Key: TypeAlias = "tuple[str, int]"


@dataclass(slots=True)
class _Group:
    """The values of one type and number of elements: probes of all of them, a row each."""

    leaves: list[Leaf]
    by_digest: dict[bytes, list[Leaf]]
    probes: Array
    allowed: Array | None = None


class Matcher:
    """Finds the values of ``known`` that agree with those of ``given``.

    partners  the instruction that corresponds to one of ``given``, where the modules' pairing has one
    others    both runs on other inputs
    """

    def __init__(
        self,
        known: Trace,
        given: Trace,
        spreads: tuple[Spreads, Spreads],
        partners: Mapping[Instruction, Instruction],
        tolerance: Tolerance,
        others: tuple[Callable[[], Trace], Callable[[], Trace]],
    ) -> None:
        self._others = others
        self._known, self._given = known, given
        self._spreads = spreads
        self._partners = partners
        self._tolerance = tolerance
        self._found: dict[Leaf, Leaf | None] = {}

    @cached_property
    def _groups(self) -> dict[_Key, _Group]:
        members: dict[_Key, list[Leaf]] = defaultdict(list)
        for leaf, seen in self._known.seen.items():
            if seen.size:
                members[_key(seen)].append(leaf)
        return {key: self._group(leaves) for key, leaves in members.items()}

    def _group(self, leaves: list[Leaf]) -> _Group:
        digests: dict[bytes, list[Leaf]] = defaultdict(list)
        rows = []
        for leaf in leaves:
            seen = self._known.seen[leaf]
            digests[self._digest(seen)].append(leaf)
            rows.append(_probe(seen.part()))
        return _Group(leaves, digests, np.stack(rows))

    def _digest(self, seen: Seen) -> bytes:
        flat = seen.flat
        kind = of_numpy(flat.dtype)
        if not self._tolerance.bitwise and (kind.is_float or kind.is_complex):
            zero, nan = flat.dtype.type(0), flat.dtype.type(np.nan)
            flat = np.where(np.isnan(flat), nan, flat + zero)
        return blake2b(np.ascontiguousarray(flat).tobytes(), digest_size=16).digest()

    def counterpart(self, leaf: Leaf) -> Leaf | None:
        """The value that agrees with one of ``given``; None where none does, or it was not kept."""
        if leaf not in self._found:
            self._found[leaf] = self._search(leaf)
        return self._found[leaf]

    def _search(self, leaf: Leaf) -> Leaf | None:
        seen = self._given.seen.get(leaf)
        if seen is None or not seen.size:
            return None
        group = self._groups.get(_key(seen))
        if group is None:
            return None
        exact = group.by_digest.get(self._digest(seen), [])
        found = self._best(leaf, exact)
        if found is None:
            near = [group.leaves[row] for row in self._near(group, seen, leaf)]
            found = self._best(leaf, [other for other in near if self._agrees(leaf, other)])
        return found

    def _best(self, leaf: Leaf, found: Sequence[Leaf]) -> Leaf | None:
        """The first of values that agree which does so elsewhere, too."""
        path, one = leaf.place
        partner, at = self._partners.get(one), [number for _, number in path]

        def rank(other: Leaf) -> tuple[bool, bool, bool, bool]:
            apart, two = other.place
            return (
                two is not partner,
                two.opcode != one.opcode,
                [number for _, number in apart] != at,
                two.name != one.name,
            )

        for other in sorted(found, key=rank):
            away, _, otherwise, _ = rank(other)
            if not (away or otherwise):
                return other
            if self._is_other_iteration(leaf, other) or not self._holds(leaf, other):
                continue
            if self._reads_alike(leaf.place, other.place) or not self._is_refuted(leaf):
                return other
        return None

    def _is_refuted(self, leaf: Leaf) -> bool:
        """Whether the corresponding instruction gives something else, made of the same.

        Then a value that many others have, such as a small integer, agrees with one of those by chance.
        """
        place = corresponding(leaf.place, self._partners)
        if place is None or is_telling(self._given.seen[leaf]):
            return False
        other = self._known.seen.get(Leaf(place, leaf.at))
        if other is None or close(self._given.seen[leaf], other):
            return False
        return self._reads_alike(leaf.place, place, in_order=False)

    def _reads_alike(self, place: Place, other: Place, *, in_order: bool = True) -> bool:
        """Whether two executions of one op read the same arrays."""
        if place.instruction.opcode != other.instruction.opcode:
            return False
        sides = []
        for trace, own in ((self._given, place), (self._known, other)):
            seen = [trace.seen.get(leaf) for _, leaf in trace.operands(own)]
            read = [(_key(one), self._digest(one)) for one in seen if one is not None]
            if not read or len(read) < len(seen):
                return False
            sides.append(read if in_order else sorted(read))
        return sides[0] == sides[1]

    def _is_other_iteration(self, leaf: Leaf, other: Leaf) -> bool:
        """Whether two values are of corresponding loops, but of iterations that do not correspond."""
        loops = _innermost(leaf), _innermost(other)
        if loops[0] is None or loops[1] is None or loops[0][1] == loops[1][1]:
            return False
        if leaf.place.instruction.opcode in _MADE:
            return False
        one, two = leaf.place.path[loops[0][0]][0], other.place.path[loops[1][0]][0]
        return self._partners.get(one) is two

    def _holds(self, leaf: Leaf, other: Leaf) -> bool:
        """Whether two values that agree do so on other inputs, and did in earlier iterations of a loop."""
        known, given = (run() for run in self._others)
        pairs = [(given.seen.get(leaf), known.seen.get(other))]
        loops = _innermost(leaf), _innermost(other)
        if loops[0] is not None and loops[1] is not None:
            apart = loops[1][1] - loops[0][1]
            pairs += [
                (
                    self._given.seen.get(_moved(leaf, loops[0][0], iteration)),
                    self._known.seen.get(_moved(other, loops[1][0], iteration + apart)),
                )
                for iteration in range(min(loops[0][1], HEAD))
            ]
        return all(one is None or two is None or close(one, two) for one, two in pairs)

    def _near(self, group: _Group, seen: Seen, leaf: Leaf) -> list[int]:
        """The rows of a group whose probes may agree."""
        if self._tolerance.bitwise:
            return []
        kind = of_numpy(seen.flat.dtype)
        part = seen.part()
        if group.allowed is None:
            rows = []
            for other in group.leaves:
                theirs = self._known.seen[other].part()
                rows.append(_probe(self._spreads[0].of(other, theirs.size)))
            group.allowed = np.stack(rows)
        own = np.maximum(_probe(self._spreads[1].of(leaf, part.size)), group.allowed)
        probe = _probe(part)
        with np.errstate(all="ignore"):
            allowed = sampled_margin(own, kind)
            if kind.is_float or kind.is_complex:
                allowed = np.maximum(allowed, own_margin(np.abs(group.probes), kind))
            off = np.abs(group.probes - probe)
            same = (group.probes == probe) | (np.isnan(group.probes) & np.isnan(probe))
            fits = (same | (off <= allowed)).all(1)
        return [int(row) for row in np.flatnonzero(fits)]

    def _agrees(self, leaf: Leaf, other: Leaf) -> bool:
        one, two = leaf.place.instruction, other.place.instruction
        if self.compared(leaf, other).mismatches:
            return False
        if self._partners.get(one) is two or one.opcode == two.opcode:
            return True
        _, want = same_part(self._given.seen[leaf], self._known.seen[other])
        spread = self._spread(leaf, other, want.size)
        with np.errstate(all="ignore"):
            magnitudes = np.abs(
                want.astype(np.complex128 if want.dtype.kind == "c" else np.float64)
            )
        return float(np.mean(spread > _LOOSE * magnitudes)) <= 1 / 2

    def _spread(self, leaf: Leaf, other: Leaf, size: int) -> Array:
        return np.maximum(self._spreads[0].of(other, size), self._spreads[1].of(leaf, size))

    def compared(
        self, leaf: Leaf, other: Leaf, tolerance: Tolerance | None = None
    ) -> OutputComparison:
        """A value of ``given`` beside one of ``known`` of the same type and number of elements."""
        got, want = same_part(self._given.seen[leaf], self._known.seen[other])
        spread = self._spread(leaf, other, want.size)
        # Of integers no more is known than how far a few evaluations moved them.
        beyond = spread if of_numpy(want.dtype).is_float else _FARTHER * spread
        allowance = Allowance(Movement(spread, beyond))
        return compared(got, want, tolerance or self._tolerance, allowance)[0]


def _key(seen: Seen) -> _Key:
    return seen.flat.dtype.name, seen.size


def _probe(flat: Array) -> Array:
    """A few elements, the same places in all arrays of one size."""
    wide = np.complex128 if flat.dtype.kind == "c" else np.float64
    if flat.size > _PROBES:
        flat = flat[np.random.default_rng(flat.size).integers(0, flat.size, _PROBES)]
    return flat.astype(wide)


def _innermost(leaf: Leaf) -> tuple[int, int] | None:
    """The innermost loop on a path and its iteration."""
    path = leaf.place.path
    for at in reversed(range(len(path))):
        if path[at][0].opcode == "while":
            return at, path[at][1]
    return None


def _moved(leaf: Leaf, at: int, iteration: int) -> Leaf:
    """The value of another iteration."""
    path, one = leaf.place
    return Leaf(Place((*path[:at], (path[at][0], iteration), *path[at + 1 :]), one), leaf.at)


def close(one: Seen, other: Seen) -> bool:
    """Whether two arrays are nearly equal in most elements; integers are equal."""
    left, right = one.part(), other.part()
    if left.tobytes() == right.tobytes():
        return True
    kind = of_numpy(left.dtype)
    if left.shape != right.shape or kind.is_integer or kind.is_pred:
        return bool(np.array_equal(left, right))
    wide = np.complex128 if kind.is_complex else np.float64
    left, right = left.astype(wide), right.astype(wide)
    with np.errstate(all="ignore"):
        near = np.abs(left - right) <= _NEAR * np.maximum(np.abs(left), np.abs(right))
        same = near | (left == right) | (np.isnan(left) & np.isnan(right))
    return bool(np.mean(same) >= _MOST)


class Sides(NamedTuple):
    """What one participant computed in either module, and which values agree.

    counterparts  finds the value of ``before`` that agrees with one of ``after``
    reverse       the other way round
    """

    before: Trace
    after: Trace
    counterparts: Matcher
    reverse: Matcher

    def trace(self, side: int) -> Trace:
        """Of the first module (0) or the second (1)."""
        return self.after if side else self.before

    def agrees(self, side: int, leaf: Leaf) -> bool:
        """Whether a value of a side agrees with one of the other; also where a loop was entered unseen."""
        seen = self.trace(side).seen.get(leaf)
        if seen is None:
            return leaf.place.instruction.opcode == "parameter"
        matcher = self.counterparts if side else self.reverse
        return not seen.size or matcher.counterpart(leaf) is not None


def likeness(one: Instruction, other: Instruction, pairing: Pairing) -> float:
    """How much speaks for two instructions being the same one."""
    names = [
        "" if entry.metadata is None else entry.metadata.fields.get("op_name", "")
        for entry in (one, other)
    ]
    return (
        3.0 * (pairing.before.get(one) is other)
        + 2.0 * (one.opcode == other.opcode)
        + 2.0 * (names[0] == names[1] != "")
        + 1.0 * (one.name == other.name)
    )


def corresponding(place: Place, partners: Mapping[Instruction, Instruction]) -> Place | None:
    """The same execution in the other module, where the pairing has all that leads to it."""
    path = [(partners.get(caller), number) for caller, number in place.path]
    callers = [(caller, number) for caller, number in path if caller is not None]
    one = partners.get(place.instruction)
    return None if one is None or len(callers) < len(path) else Place(tuple(callers), one)


def is_telling(seen: Seen) -> bool:
    """Whether other values are hardly the same by chance: floats that need more than 8 bits, or random bits."""
    part = seen.part()
    kind = of_numpy(part.dtype)
    if kind.is_pred:
        return False
    if kind.is_integer or kind.bits <= 16:
        large = part[np.abs(part.astype(np.float64)) >= _SMALL] if kind.is_integer else part
        return bool(np.unique(large).size >= (_BITS if kind.is_integer else _MANY))
    with np.errstate(all="ignore"):
        parts = part.view(f"f{part.dtype.itemsize // 2}") if kind.is_complex else part
        rounded = parts.astype(dtype("bf16").numpy).astype(parts.dtype)
        return bool((np.isfinite(parts) & (parts != rounded)).any())


def alike(one: Seen, other: Seen) -> bool:
    """Whether two arrays can be compared."""
    return one.size == other.size and one.flat.dtype == other.flat.dtype
