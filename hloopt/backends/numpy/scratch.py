"""Memory that a step needs while it runs: a thread's own, used again by the next that needs some."""

from __future__ import annotations

from math import prod
from threading import local
from typing import Any, Final

import numpy as np

from hloopt.backends.numpy.plan import Dims

__all__ = ["ScratchMemory", "scratch"]

# More than that is not kept: few steps need it.
_KEPT: Final = 1 << 26


class ScratchMemory(local):
    """Pieces by number: those of one number are the same memory."""

    def __init__(self) -> None:
        self._pieces: dict[int, Any] = {}

    def of(self, number: int, dims: Dims, kind: np.dtype[Any]) -> Any:
        """An array in row-major order, with whatever the piece had in it."""
        size = prod(dims) * kind.itemsize
        piece = self._pieces.get(number)
        if piece is None or piece.size < size:
            piece = np.empty(max(size, 1), np.uint8)
            if size <= _KEPT:
                self._pieces[number] = piece
        return piece[:size].view(kind).reshape(dims)


scratch = ScratchMemory()
