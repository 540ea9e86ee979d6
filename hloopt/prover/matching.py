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
from hloopt.errors import EvaluationError
from hloopt.ir import Instruction
from hloopt.prover.observing import HEAD, Leaf, Place, Seen, Trace
from hloopt.runtime.comparison import Allowance, OutputComparison, compared, widen
from hloopt.runtime.tolerance import Tolerance, own_margin, sampled_margin
from hloopt.types import Array, of_numpy

__all__ = ["Matcher", "Reruns", "Sides", "Spreads", "alike", "likeness"]

_WAYS: Final = 4
_FEW: Final = 2
_LARGE: Final = 1 << 26
"""Evaluations that round otherwise; fewer of those whose values have more bytes than this."""

_PROBES: Final = 16
_LOOSE: Final = 1e-2
"""An array of which half the elements may be off by more than this part of them needs more than its data."""

_NEAR: Final = 0.02
_MOST: Final = 0.9

_Key: TypeAlias = "tuple[str, int]"


class Spreads:
    """How far the values of a trace move where all is rounded otherwise; ``again`` is such a run."""

    def __init__(self, trace: Trace, again: Callable[[int], Trace | None]) -> None:
        self._trace, self._again = trace, again

    @cached_property
    def _most(self) -> dict[Leaf, Array]:
        found: dict[Leaf, Array] = {}
        held = sum(seen.flat.nbytes for seen in self._trace.seen.values())
        for way in range(1, (_FEW if held > _LARGE else _WAYS) + 1):
            other = self._again(way)
            for leaf, seen in other.seen.items() if other is not None else ():
                own = self._trace.seen.get(leaf)
                if own is None or own.dims != seen.dims or own.flat.dtype != seen.flat.dtype:
                    continue
                left, right = _alike(own, seen)
                if left.tobytes() != right.tobytes():
                    most = found.setdefault(leaf, np.zeros(left.size))
                    if most.size == left.size:
                        widen(most, left, right)
        return found

    def of(self, leaf: Leaf, size: int) -> Array:
        """Of an array, or of that part of it that has ``size`` elements.

        Of a large array a part is known; all others may have moved as far as any of that.
        """
        found = self._most.get(leaf)
        if found is None:
            return np.zeros(size)
        return found if found.size == size else np.full(size, found.max(initial=0.0))


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
            if not (away or otherwise) or (
                not self._is_other_iteration(leaf, other) and self._holds(leaf, other)
            ):
                return other
        return None

    def _is_other_iteration(self, leaf: Leaf, other: Leaf) -> bool:
        """Whether two values are of corresponding loops, but of iterations that do not correspond."""
        loops = _innermost(leaf), _innermost(other)
        if loops[0] is None or loops[1] is None or loops[0][1] == loops[1][1]:
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
        return all(one is None or two is None or _close(one, two) for one, two in pairs)

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
        _, want = _alike(self._given.seen[leaf], self._known.seen[other])
        spread = self._spread(leaf, other, want.size)
        with np.errstate(all="ignore"):
            magnitudes = np.abs(
                want.astype(np.complex128 if want.dtype.kind == "c" else np.float64)
            )
        return float(np.mean(spread > _LOOSE * magnitudes)) <= 1 / 2

    def _spread(self, leaf: Leaf, other: Leaf, size: int) -> Array:
        return np.maximum(self._spreads[0].of(other, size), self._spreads[1].of(leaf, size))

    def compared(self, leaf: Leaf, other: Leaf) -> OutputComparison:
        """A value of ``given`` beside one of ``known`` of the same type and number of elements."""
        got, want = _alike(self._given.seen[leaf], self._known.seen[other])
        allowance = Allowance(self._spread(leaf, other, want.size))
        return compared(got, want, self._tolerance, allowance)[0]


def _key(seen: Seen) -> _Key:
    return seen.flat.dtype.name, seen.size


def _alike(one: Seen, other: Seen) -> tuple[Array, Array]:
    """The same elements of both."""
    if one.is_whole and other.is_whole:
        return one.flat, other.flat
    return one.part(), other.part()


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


def _close(one: Seen, other: Seen) -> bool:
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


class Reruns:
    """Runs that round otherwise, each made once for all participants."""

    def __init__(self, run: Callable[[int], list[Trace]]) -> None:
        self._run = run
        self._traces: dict[int, list[Trace] | None] = {}

    def trace(self, number: int, way: int) -> Trace | None:
        """Of a participant; None where the run fails, as it may where rounding decides what is run."""
        if way not in self._traces:
            try:
                self._traces[way] = self._run(way)
            except EvaluationError:
                self._traces[way] = None
        traces = self._traces[way]
        return None if traces is None else traces[number]

    def on_others(self, number: int, own: Trace) -> Trace:
        """Of a participant on other inputs; ``own`` where that run fails."""
        return self.trace(number, -1) or own


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


def alike(one: Seen, other: Seen) -> bool:
    """Whether two arrays can be compared."""
    return one.size == other.size and one.flat.dtype == other.flat.dtype
