"""Contracting dimensions of dots in ascending order."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, edit
from hloopt.rewrite import PassLog
from hloopt.rewrite.dimension_numbers import dot_attributes
from hloopt.rewrite.site import SitePass
from hloopt.types import DotDims

__all__ = ["DotDimensionSorter"]


@dataclass(frozen=True)
class DotDimensionSorter(SitePass):
    """Sort pairs of contracting dimensions of a dot where more sides come out consecutive and ascending.

    Such a side is contracted as it lies in memory, without a transpose.  The products of an element
    are added in another order, so that dots of floats and complex numbers need ``fast_math``.

    fast_math   whether to sort in dots of floats and complex numbers as well
    """

    opcode: ClassVar[str] = "dot"
    example: ClassVar[str] = """HloModule unsorted

ENTRY main {
  a = s32[3,4,5]{2,1,0} parameter(0)
  b = s32[4,5,2]{2,1,0} parameter(1)
  ROOT r = s32[3,2]{1,0} dot(a, b), lhs_contracting_dims={2,1}, rhs_contracting_dims={1,0}
}
"""

    fast_math: bool = False

    def rewrite(self, instruction: Instruction, log: PassLog) -> bool:
        """Sort by the left side, or by the right one where only that comes out consecutive."""
        dims = DotDims.of(instruction.attributes)
        pairs = list(zip(dims.lhs_contracting, dims.rhs_contracting, strict=True))
        if not pairs:
            return False
        for side in (0, 1):
            by_side = sorted(pairs, key=lambda pair, side=side: pair[side])  # type: ignore[misc]
            if _runs(by_side) <= _runs(pairs):
                continue
            if not self.fast_math and instruction.array.dtype.kind in ("float", "complex"):
                log.miss(
                    "sort contracting dimensions",
                    instruction,
                    "floats would be added in another order",
                )
                return False
            log.hit("sort contracting dimensions", instruction)
            lhs, rhs = (tuple(entry) for entry in zip(*by_side, strict=True))
            dims = replace(dims, lhs_contracting=lhs, rhs_contracting=rhs)
            for name, value in dot_attributes(instruction, dims).items():
                edit.set_attribute(instruction, name, value)
            return True
        return False


def _runs(pairs: list[tuple[int, int]]) -> int:
    """On how many sides the dimensions are consecutive and ascending."""
    sides = [list(side) for side in zip(*pairs, strict=True)]
    return sum(dims == list(range(dims[0], dims[0] + len(dims))) for dims in sides)
