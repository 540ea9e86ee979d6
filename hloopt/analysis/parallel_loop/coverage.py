"""Whether the trips of a loop write every element of what they stream."""

from __future__ import annotations

from hloopt.analysis.induction import Inductions
from hloopt.analysis.loop_reader import Loop
from hloopt.analysis.parallel_loop.model import ParallelLoop
from hloopt.ir import Instruction

__all__ = ["writes_all"]


def writes_all(loop: ParallelLoop, update: Instruction) -> bool:
    """Whether an update leaves nothing of what it writes into is after the last trip.

    Shown where the loop runs a known number of times and the slices, each as its start is clamped, lie side
    by side or overlap, from one end of a dimension to the other.
    """
    count = loop.trips.count
    whole, part, *places = (operand.array for operand in update.operands)
    if not count or not part.elements:
        return False
    short = [at for at, size in enumerate(whole.dims) if part.dims[at] < size]
    if not short:
        return True
    if len(short) > 1 or len(places) != whole.rank or places[0].rank:
        return False
    (at,) = short
    start = Inductions(Loop(loop.loop)).affine(update.operands[2 + at])
    if start is None:
        return False
    ends = start.first, start.first + (count - 1) * start.step
    if (start.at(0), start.at(count - 1)) != ends:
        return False
    wide = part.dims[at]
    return abs(start.step) <= wide and min(ends) <= 0 and max(ends) >= whole.dims[at] - wide
