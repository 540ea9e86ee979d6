"""From which sizes work by blocks pays; imports little: modules without large arrays load nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from hloopt.dataclass import dataclass

__all__ = ["DEFAULT", "BlockLimits"]


@dataclass(frozen=True, slots=True)
class BlockLimits:
    """From which sizes, and up to which, work by blocks pays.

    least    elements of a space: a region costs some 30 us more in calls than whole arrays in the cache do
             (measured on Zen 5), which below it is more than two threads save
    row      elements of the folded dimensions that may be in one block
    members  of one region: it is compiled, and each has a part of the scratch memory
    """

    least: int = 1 << 17
    row: int = 1 << 18
    members: int = 256

    def any_large(self, dims: Iterable[tuple[int, ...]]) -> bool:
        """Whether one of these arrays may be the space of a region."""
        return any(prod(sizes) >= self.least for sizes in dims)


DEFAULT = BlockLimits()
