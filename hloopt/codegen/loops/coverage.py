"""Whether the trips of a loop write every element of what they stream."""

from __future__ import annotations

from hloopt.analysis.induction import Affine
from hloopt.analysis.parallel_loop import Carried
from hloopt.codegen.loops.counting import Counting
from hloopt.ir import Instruction

__all__ = ["writes_all"]


def writes_all(carried: Carried, counting: Counting) -> bool:
    """Whether nothing is left of what a streamed element is before the first trip.

    Shown where the loop runs a known number of times and each trip writes a slice next to the one before,
    from one end of a dimension to the other.
    """
    count, update = counting.loop.trips.count, carried.update
    assert update is not None
    if count is None:
        return False
    sizes, (_, part, *places) = carried.shape.dims, update.operands
    short = [
        at
        for at, (size, wide) in enumerate(zip(sizes, part.array.dims, strict=True))
        if wide < size
    ]
    if not short or not count or not part.array.elements:
        return bool(count) and part.array.dims == sizes
    if len(short) > 1 or len(places) != len(sizes) or places[0].array.rank:
        return False
    (at,) = short
    start = _number(places[at], counting)
    if start is None:
        return False
    wide, most = part.array.dims[at], sizes[at] - part.array.dims[at]
    ends = start.first, start.first + (count - 1) * start.step
    return abs(start.step) <= wide and min(ends) <= 0 and max(ends) >= most


def _number(place: Instruction, counting: Counting) -> Affine | None:
    return counting.starts.get(place)
