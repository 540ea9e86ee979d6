"""The first value that differs, in words and figures: both instructions, an element, its operands, why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.ir import Module
from hloopt.prover.causes import Ancestor, Cause, Evidence, cause_of
from hloopt.prover.elements import ElementRead, reads
from hloopt.prover.localizing import Located, locate
from hloopt.prover.observing import Leaf, Place, Seen, Trace, observe
from hloopt.prover.trials import TrialInputs
from hloopt.runtime.tolerance import FREE, Tolerance
from hloopt.types import Array, of_numpy

__all__ = ["FirstDifference", "OperandPair", "Site", "described", "first_difference"]

_SUMS: Final = frozenset({"add", "multiply"})
_MOST_TERMS: Final = 64
_ABOVE: Final = 3
"""Steps in which what is computed and undone again is looked for."""

_MOST_LOST = 4


@dataclass(frozen=True)
class Site:
    """An instruction that was executed.

    place   ``file:line:col`` of the text, the module's name where it was not read
    user    the line of the user's program, empty where the metadata has none
    inside  the calls it was executed in, from the entry: ``while.3, iteration 7``
    """

    name: str
    opcode: str
    shape: str
    place: str
    user: str = ""
    op_name: str = ""
    inside: str = ""

    @staticmethod
    def of(module: Module, place: Place) -> Site:
        """Of one execution."""
        path, one = place
        fields = {} if one.metadata is None else one.metadata.fields
        calls = [
            f"{caller.name}, iteration {number}" if caller.opcode == "while" else caller.name
            for caller, number in path
        ]
        return Site(
            one.name,
            one.opcode,
            str(one.shape),
            module.place(one),
            next(iter(module.user_lines(one.metadata)), ""),
            str(fields.get("op_name", "")),
            " > ".join(calls),
        )


@dataclass(frozen=True)
class OperandPair:
    """What both modules read for one operand: its name, the element (None: several), what is there in short.

    ``index`` is the second module's element, or the first's where only that reads one; ``index_before`` is the
    first's.
    """

    number: int
    before: str
    after: str
    index: tuple[int, ...] | None
    want: str
    got: str
    agree: bool | None
    index_before: tuple[int, ...] | None = None


@dataclass(frozen=True)
class FirstDifference:
    """The first value that differs on the way to the results that differ.

    before      None where nothing in the first module corresponds to it
    index       the worst element; None where it is not known
    want, got   its value in either module
    mismatches  how many of ``elements`` are not right
    missing     operands that the first module reads there and the second does not
    lost        what only the first module computes, of operands that both have
    alone       what only the second module computes, where that is the first that differs
    trips       iterations of a loop in either module, where that is what differs
    cause       the rule that explains it; None where none that is known does
    """

    participant: int
    before: Site | None
    after: Site
    index: tuple[int, ...] | None
    want: str
    got: str
    elements: int
    mismatches: int
    operands: tuple[OperandPair, ...]
    missing: tuple[Site, ...]
    lost: tuple[Site, ...]
    alone: tuple[Site, ...]
    trips: tuple[int, int] | None
    cause: Cause | None

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {**asdict(self), "cause": None if self.cause is None else self.cause.to_json()}


def first_difference(
    before: Module,
    after: Module,
    inputs: TrialInputs,
    wrong: Sequence[tuple[int, int]],
    *,
    tolerance: Tolerance = FREE,
    excess_precision: bool = False,
) -> FirstDifference | None:
    """Where two modules begin to differ; None where the interpreter gives equal results for both.

    ``wrong`` are the results that differ, by participant and place in the flat list.  Raises as
    ``observing.observe``.
    """
    found = locate(
        before, after, inputs, wrong, tolerance=tolerance, excess_precision=excess_precision
    )
    if found is None:
        return None
    return described(found, before, after, partial(observe, before, inputs, excess_precision=True))


def described(
    found: Located, before: Module, after: Module, excess: Callable[[], list[Trace]]
) -> FirstDifference:
    """A value that differs, in words and figures.

    ``excess`` runs the first module where bf16 and f16 keep f32, for what that explains.
    """
    partner = found.before
    index, want, got, elements, mismatches = _element(found)
    operands = _operands(found, index) if partner is not None else _single(found, index)
    return FirstDifference(
        found.participant,
        None if partner is None else Site.of(before, partner.place),
        Site.of(after, found.after.place),
        index,
        want,
        got,
        elements,
        mismatches,
        operands,
        tuple(Site.of(before, leaf.place) for leaf in found.missing),
        tuple(Site.of(before, leaf.place) for leaf in found.lost if leaf != partner)[:_MOST_LOST],
        tuple(Site.of(after, leaf.place) for leaf in found.alone),
        found.trips,
        None if partner is None else _cause(found, partner, lambda: excess()[found.participant]),
    )


def _element(found: Located) -> tuple[tuple[int, ...] | None, str, str, int, int]:
    """The worst element: its index and both values; how many there are, and how many differ."""
    sides = found.sides
    got = sides.after.seen.get(found.after)
    want = None if found.before is None else sides.before.seen.get(found.before)
    if got is None:
        return None, "", "", 0, 0
    if want is None or found.before is None or want.size != got.size:
        return None, "", "", got.size, got.size
    compared = sides.counterparts.compared(found.after, found.before)
    index: tuple[int, ...] | None = None
    if compared.where and got.is_whole:
        index = tuple(int(i) for i in np.unravel_index(compared.where[0], got.dims))
    return index, compared.want, compared.got, got.size, compared.mismatches


def _arrays(trace: Trace, place: Place) -> list[tuple[int, Leaf, Array]]:
    """The operands that are arrays and were kept whole, in their dimensions."""
    found = []
    for number, leaf in trace.operands(place):
        seen = trace.seen.get(leaf)
        if seen is not None and place.instruction.operands[number].is_array:
            dims = place.instruction.operands[number].array.dims
            shape = dims if int(np.prod(dims)) == seen.flat.size else seen.flat.shape
            found.append((number, leaf, seen.flat.reshape(shape)))
    return found


def _reads(
    trace: Trace, leaf: Leaf, index: tuple[int, ...] | None
) -> dict[int, tuple[Leaf, ElementRead]]:
    """What an element read of each operand, by number."""
    arrays = _arrays(trace, leaf.place)
    one = leaf.place.instruction
    whole = len(arrays) == len(one.operands)
    found = reads(one, index if whole else None, [array for _, _, array in arrays])
    return {number: (own, read) for (number, own, _), read in zip(arrays, found, strict=True)}


def _operands(found: Located, index: tuple[int, ...] | None) -> tuple[OperandPair, ...]:
    assert found.before is not None
    sides = found.sides
    theirs = _reads(sides.before, found.before, index)
    ours = _reads(sides.after, found.after, index)
    pairs = []
    for number in sorted({*theirs, *ours}):
        left, right = theirs.get(number), ours.get(number)
        agree = None
        if left is not None and right is not None:
            agree = sides.counterparts.compared(right[0], left[0]).passed
        shown = right or left
        assert shown is not None
        pairs.append(
            OperandPair(
                number,
                _name(left),
                _name(right),
                shown[1].index,
                left[1].text if left is not None else "",
                right[1].text if right is not None else "",
                agree,
                left[1].index if left is not None else None,
            )
        )
    return tuple(pairs)


def _single(found: Located, index: tuple[int, ...] | None) -> tuple[OperandPair, ...]:
    """The operands of a value that nothing in the first module corresponds to."""
    return tuple(
        OperandPair(number, "", _name(entry), entry[1].index, "", entry[1].text, None)
        for number, entry in _reads(found.sides.after, found.after, index).items()
    )


def _name(entry: tuple[Leaf, ElementRead] | None) -> str:
    return "" if entry is None else entry[0].place.instruction.name


def _cause(found: Located, partner: Leaf, excess: Callable[[], Trace]) -> Cause | None:
    trace, other = found.sides.before, found.sides.after
    want, got = trace.seen.get(partner), other.seen.get(found.after)
    if want is None or got is None or not (want.is_whole and got.is_whole):
        return None
    one = partner.place.instruction
    kept = None
    if any(of_numpy(seen.flat.dtype).bits == 16 for seen in _near(trace, partner)):
        again = excess().seen.get(partner)
        if again is not None and again.flat.shape == want.flat.shape:
            kept = again.flat.astype(want.flat.dtype)
    return cause_of(
        Evidence(
            one,
            found.after.place.instruction,
            want.flat,
            got.flat,
            [array.reshape(-1) for _, _, array in _arrays(trace, partner.place)],
            _above(trace, partner),
            [array.reshape(-1) for _, _, array in _arrays(other, found.after.place)],
            (_terms(trace, partner), _terms(other, found.after)),
            kept,
        )
    )


def _terms(trace: Trace, leaf: Leaf) -> list[Array]:
    """What a value is the sum or the product of, through all ops of its kind; none where one was not kept."""
    opcode = leaf.place.instruction.opcode
    if opcode not in _SUMS:
        return []
    found: list[Array] = []
    pending = [leaf]
    while pending and len(found) + len(pending) <= _MOST_TERMS:
        one = pending.pop()
        if one.place.instruction.opcode == opcode:
            pending += [own for _, own in trace.operands(one.place)]
        elif (seen := trace.seen.get(one)) is not None and seen.is_whole:
            found.append(seen.flat)
        else:
            return []
    return [] if pending else found


def _near(trace: Trace, leaf: Leaf) -> list[Seen]:
    """A value, what it was made of and what that was made of, as far as it was kept."""
    leaves = [leaf]
    for _ in range(_ABOVE):
        leaves += [one for entry in leaves for _, one in trace.operands(entry.place)]
        leaves = list(dict.fromkeys(leaves))[:64]
    return [trace.seen[one] for one in leaves if one in trace.seen]


def _above(trace: Trace, leaf: Leaf) -> list[Ancestor]:
    """What an instruction was made of in two steps or more: what it may undo, and the factors of a product."""
    found: list[Ancestor] = []
    one = leaf.place.instruction
    level = [(f"{one.opcode}(", 1, own, number) for number, own in trace.operands(leaf.place)]
    for _ in range(_ABOVE - 1):
        below = []
        for text, depth, entry, number in level[:16]:
            path = f"{text}{entry.place.instruction.opcode}("
            for _, own in trace.operands(entry.place):
                below.append((path, depth + 1, own, number))
                seen = trace.seen.get(own)
                if seen is not None and seen.is_whole:
                    rule = f"{path}x{')' * (depth + 1)} => x"
                    found.append(
                        Ancestor(own.place.instruction.name, rule, number, depth + 1, seen.flat)
                    )
        level = below
    return found
