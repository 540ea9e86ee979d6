"""How often a block's iteration would contain the code of a value, and which values to store for that.

A value that is not stored is written out wherever it is needed: once for all readers that need it at the index
they are computed for themselves, once more for each that needs it elsewhere, and so for each place where these
are written.  Counted that way it can double from reader to reader.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, TypeAlias

from hloopt.analysis.code_size import WRITTEN_ANEW
from hloopt.analysis.parallel_loop.edges import LoopValue
from hloopt.analysis.parallel_loop.flow import Flow
from hloopt.ops.traits import SOURCES, VIEWS

__all__ = ["written_often"]

_LINE_BYTES: Final = 50

_STORED_BYTES: Final = 200
"""Of an array, the loop or test around what fills it, and a barrier."""

_MOST_PLACES: Final = 4
"""Places where a value is written before it is stored, in a body whose code would be too long."""

_MOST_ELEMENTS: Final = 256
"""Of a value that is stored for its code alone."""

_FREE: Final = VIEWS | SOURCES | {"while"}

_Place: TypeAlias = "LoopValue | tuple[LoopValue, int]"


def written_often(
    flow: Flow,
    order: Sequence[LoopValue],
    stored: Collection[LoopValue],
    sinks: Iterable[LoopValue],
) -> tuple[frozenset[LoopValue], int]:
    """Values to store so that an iteration's code stays linear in its values; none where it is short.

    ``order`` has operands first; ``sinks`` are the results of the iteration.  Linear in both.  The number
    is about the bytes of the code then.
    """
    ends = list(sinks)
    found: frozenset[LoopValue] = frozenset()
    lines, _ = _written(flow, order, stored, ends, ())
    if lines * _LINE_BYTES > WRITTEN_ANEW.of(len(order)):
        lines, found = _written(flow, order, stored, ends, frozenset(order))
    return found, lines * _LINE_BYTES + (len(stored) + len(found)) * _STORED_BYTES


def _written(
    flow: Flow,
    order: Sequence[LoopValue],
    stored: Collection[LoopValue],
    sinks: Iterable[LoopValue],
    storable: Collection[LoopValue],
) -> tuple[int, frozenset[LoopValue]]:
    """How many values are written, one counted as often as it is, where those found are stored, too."""
    places: dict[LoopValue, set[_Place]] = {sink: {sink} for sink in sinks}
    counts: dict[_Place, int] = dict.fromkeys(places, 1)
    total = 0
    found = set()
    for value in reversed(order):
        here = places.pop(value, set())
        count = sum(counts[place] for place in here)
        if value in stored:
            count, here = 1, {value}
        elif count > _MOST_PLACES and value in storable and _may_be_stored(flow, value):
            found.add(value)
            count, here = 1, {value}
        counts[value] = count
        total += count
        for number, read in enumerate(flow.reads(value)):
            if not read.same:
                counts[value, number] = count
            wanted = here if read.same else {(value, number)}
            known = places.setdefault(read.value, set())
            known |= wanted
            if len(known) > _MOST_SETS:
                # Above this many, places are not distinguished: one entry holds their total count.
                counts[read.value] = sum(counts[place] for place in known)
                places[read.value] = {read.value}
    return total, frozenset(found)


_MOST_SETS: Final = 64


def _may_be_stored(flow: Flow, value: LoopValue) -> bool:
    opcode = value.instruction.opcode
    return bool(value.path) and opcode not in _FREE and flow.elements(value) <= _MOST_ELEMENTS
