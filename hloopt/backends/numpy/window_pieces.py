"""Windows over part of an array at a time: those along other dimensions need no more of the first ones."""

from __future__ import annotations

from math import prod
from typing import Final

from hloopt.backends.numpy.plan import Dims
from hloopt.dataclass import dataclass
from hloopt.types import Window, WindowDim

__all__ = ["WindowPieces"]

# Windows that are looked at together, so that what is made on the way stays in the cache.  Selections from 3x3
# windows of f32[32,114,114,64] and f32[32,64,56,56] on Zen 5: 2^16 to 2^18 take as long, 2^20 1.5 times, all at
# once 2.4 and 1.7 times, 2^12 1.1 and 1.9 times.
_AT_ONCE: Final = 1 << 17


@dataclass(frozen=True, slots=True)
class WindowPieces:
    """An array's dimensions with those that windows do not reach along as one, of size ``count``.

    ``operand`` and ``output`` are the dimensions of a piece and of its windows: ``step`` indices of that one.
    """

    count: int
    step: int
    operand: Dims
    output: Dims
    window: Window

    @classmethod
    def of(cls, operand: Dims, output: Dims, window: Window) -> WindowPieces:
        """Pieces of one size, for windows that are there."""
        first = 0
        while first < len(operand) and window.dims[first] == WindowDim(1):
            first += 1
        count = prod(operand[:first])
        most = max(1, min(count, _AT_ONCE // prod(output[first:])))
        step = next(step for step in range(most, 0, -1) if count % step == 0)
        inner = Window((WindowDim(1), *window.dims[first:]))
        return cls(count, step, (step, *operand[first:]), (step, *output[first:]), inner)
