"""Tiles of scores that change nothing, because a mask takes all of their scores away.

A tile may be left out where a predicate of places has one value throughout the tile and, given that value, the
tile adds zeros to each sum, does not raise the maximum of the scores, and adds to each context weights of zero
times values that are finite.  ``exp(low - m)`` is zero where it underflows: whether it does depends on the
maximum so far, and a product with zero is zero where the other factor is known to be finite.  What only a
kernel knows is left to it as ``Limit``: a bound that it computes, and what that may come to at most.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from hloopt.analysis.attention.axes import Along, known_along
from hloopt.analysis.attention.form import Attention
from hloopt.analysis.attention.masked_values import MaskedSweep
from hloopt.analysis.attention.places import ScoreTiles, along_operand, viewed
from hloopt.analysis.attention.tile_bounds import Limit, heroes_above, reducer_of, root_of
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.types import ArrayShape

__all__ = ["Masking", "masking_of"]

_MOST_DEEP: Final = 64
_MOST_MASKS: Final = 8
_MOST_TILES: Final = 1 << 22
_WORTH: Final = 0.9
"""Of the tiles that are computed: where more are, none is left out."""
_NOMINAL: Final = (128, 64)
"""Rows and columns of the tiles by which masks are compared; of few rows:"""
_SMALL: Final = (16, 16)


@dataclass(frozen=True)
class Masking:
    """Which tiles may be left out.

    mask, along  a predicate, and what it lies along
    masked       what it is in all of such a tile
    limits       of each sweep what must hold beside that; None of a sweep that needs all tiles
    unreadable   integers on the way to the mask of which nothing is known
    """

    form: Attention
    mask: Instruction
    along: Along
    masked: bool
    limits: tuple[tuple[Limit, ...] | None, ...]
    unreadable: frozenset[Instruction]

    def table(self, height: int, width: int) -> Any:
        """Of each tile, rows first, whether the mask takes all of it away."""
        every, some = ScoreTiles(self.form, height, width).table(
            self.mask, self.along, set(self.unreadable)
        )
        return every if self.masked else np.logical_not(some)

    def shares(self, height: int, width: int) -> list[float]:
        """The share of tiles that each sweep computes."""
        left = 1 - float(np.mean(self.table(height, width)))
        return [1.0 if own is None else left for own in self.limits]

    def is_worth_it(self, height: int, width: int) -> bool:
        """Whether it leaves so many tiles out that a kernel is to test for them."""
        shares = self.shares(height, width)
        return sum(shares) < _WORTH * len(shares)

    @property
    def sizes(self) -> tuple[Instruction, ...]:
        """Operands whose greatest element must be known."""
        bounds = (part for own in self.limits for limit in own or () for part in limit.bound.walk())
        found = dict.fromkeys(one.value for one in bounds if one.op == "size")
        return tuple(one for one in found if one is not None)

    def is_late(self, number: int) -> bool:
        """Whether a sweep's limits have the greatest scores so far, so that masked tiles come last."""
        sweep = self.form.sweeps[number]
        own = {one for one in sweep.heroes if reducer_of(one) == "maximum"}
        bounds = (part for limit in self.limits[number] or () for part in limit.bound.walk())
        return any(
            own & heroes_above(self.form, one.value) for one in bounds if one.value is not None
        )


def masking_of(form: Attention) -> Masking | None:
    """The mask that leaves the fewest tiles; None where none leaves any out."""
    rows, columns = form.count(form.rows), form.count(form.columns)
    height, width = _NOMINAL if rows > _NOMINAL[0] else _SMALL
    if rows * columns > _MOST_TILES * height * width:
        return None
    best: Masking | None = None
    least = 1.0
    for mask, along in _masks(form):
        unreadable: set[Instruction] = set()
        # What all places together do not overflow, none does.
        ScoreTiles(form, rows, columns).table(mask, along, unreadable)
        every, some = ScoreTiles(form, height, width).table(mask, along, unreadable)
        for masked, there in ((False, not np.all(some)), (True, np.any(every))):
            if not there:
                continue
            limits = tuple(
                MaskedSweep(form, sweep, number, (mask, along, masked)).limits()
                for number, sweep in enumerate(form.sweeps)
            )
            if all(own is None for own in limits):
                continue
            found = Masking(form, mask, along, masked, limits, frozenset(unreadable))
            share = sum(found.shares(height, width)) / len(limits)
            if best is None or share < least:
                best, least = found, share
    return best


def _masks(form: Attention) -> list[tuple[Instruction, Along]]:
    """Predicates of places that scores are chosen by, or that are added to them as numbers."""
    found: dict[tuple[Instruction, Along], None] = {}
    seen: set[Instruction] = set()
    pending = [(one, own, 0) for one, own in form.along.items()]
    while pending and len(found) < _MOST_MASKS:
        one, along, deep = pending.pop(0)
        if deep > _MOST_DEEP or not (one.op.is_elementwise or viewed(one)):
            continue
        for number, operand in enumerate(one.operands):
            if (
                operand in form.along
                or operand in seen
                or not isinstance(operand.shape, ArrayShape)
            ):
                continue
            own = along_operand(form, one, along, number)
            if own is None:
                continue
            seen.add(operand)
            if operand.array.dtype.is_pred:
                root = root_of(form, operand, own)
                if set(form.columns) & set(known_along(root[1])):
                    found[root] = None
            else:
                pending.append((operand, own, deep + 1))
    return list(found)
