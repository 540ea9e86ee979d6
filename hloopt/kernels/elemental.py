"""Which ops can be computed one element at a time inside a kernel."""

from __future__ import annotations

from collections.abc import Collection

from hloopt.analysis.elemental import first_not_elemental
from hloopt.analysis.region import Region
from hloopt.ir import Instruction

__all__ = ["elemental_problem"]


def elemental_problem(
    region: Region, heroes: Collection[Instruction] = (), *, loops: bool = False
) -> str:
    """Why a region cannot be computed element by element: the first op that cannot; empty if it can.

    ``heroes`` are left out: the kernel computes them in its own way.  With ``loops`` it runs every ``while``
    and scatter, too.
    """
    found = first_not_elemental((one for one in region.body if one not in heroes), loops=loops)
    if found is None:
        return ""
    if found.shape.is_dynamic:
        return f"{found.name} has a bounded dynamic dimension"
    return f"{found.name} is a {found.opcode}, which no thread computes alone"
