"""Which operands of a kernel's result may lie in the bytes it writes."""

from __future__ import annotations

from hloopt.analysis.in_place import may_overwrite
from hloopt.analysis.region import Region
from hloopt.types import ArrayShape

__all__ = ["overwritable"]


def overwritable(region: Region) -> tuple[tuple[int, int], ...]:
    """``KernelSpec.overwrites`` of a kernel in which each thread reads all it needs before it writes.

    None for several results: what one result's store changed might be loaded again for the next, since
    pointers are ``__restrict__``.  Of one result, each store waits for all loads it is computed from.
    """
    if len(region.results) != 1 or not isinstance(region.instruction.shape, ArrayShape):
        return ()
    read = set(region.read)
    found: list[tuple[int, int]] = []
    leaf = 0
    for number, operand in enumerate(region.instruction.operands):
        if isinstance(operand.shape, ArrayShape):
            if leaf in read and may_overwrite(region.instruction, number):
                found.append((leaf, 0))
            leaf += 1
        else:
            leaf += len(region.arrays_of(operand))
    return tuple(found)
