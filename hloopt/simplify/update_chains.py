"""Which of many updates in a row wrote a part of an array: a search for each part, not a walk."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.simplify.predicates import scalar_value

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ElementBox", "UpdateChains", "written_box"]

ElementBox: TypeAlias = tuple[list[int], list[int]]
"""The first element in each dimension, and the one behind the last."""


def written_box(update: Instruction) -> ElementBox | None:
    """The elements a dynamic-update-slice may write: all in a dimension where its place is not known.

    None for other ops, for starts that are one array, and for sizes that are not known before the run.
    """
    if update.opcode != "dynamic-update-slice":
        return None
    operand, value, *starts = update.operands
    if len(starts) != operand.array.rank or update.shape.is_dynamic or operand.shape.is_dynamic:
        return None
    first, limit = [], []
    for start, size, total in zip(starts, value.array.dims, operand.array.dims, strict=True):
        place = 0 if size == total else scalar_value(start)
        low = 0 if place is None else max(0, min(int(place), total - size))
        first.append(low)
        limit.append(total if place is None else low + size)
    return first, limit


@dataclass
class _Chain:
    """What is updated, then its updates in their order; ``boxes`` has room for more."""

    links: list[Instruction]
    boxes: NDArray[np.int64]

    def grow(self, update: Instruction, box: ElementBox) -> None:
        if len(self.links) == len(self.boxes):
            self.boxes = np.concatenate([self.boxes, np.zeros_like(self.boxes)])
        self.boxes[len(self.links)] = box
        self.links.append(update)


@dataclass
class UpdateChains:
    """The chains met so far.  Rewrites keep values, so that what was found stays true."""

    places: dict[Instruction, tuple[_Chain, int]] = field(default_factory=dict)

    def writer(self, array: Instruction, box: ElementBox) -> Instruction:
        """The last update, up to ``array``, that writes in a box; without one, what the first updated."""
        chain, place = self._find(array)
        first, limit = np.array(box, np.int64)
        boxes = chain.boxes[1 : place + 1]
        met = ((boxes[:, 0] < limit) & (boxes[:, 1] > first)).all(1)
        found = np.flatnonzero(met)
        writer = chain.links[found[-1] + 1 if found.size else 0]
        if writer.computation is None:
            # It was replaced.
            for link in chain.links:
                self.places.pop(link, None)
            return self.writer(array, box)
        return writer

    def _find(self, array: Instruction) -> tuple[_Chain, int]:
        above: list[tuple[Instruction, ElementBox]] = []
        while array not in self.places and (box := written_box(array)) is not None:
            above.append((array, box))
            array = array.operands[0]
        chain, place = self.places.get(array) or (None, 0)
        if chain is None or place != len(chain.links) - 1:
            links = [array] if chain is None else chain.links[: place + 1]
            boxes = np.zeros((max(len(links), 8), 2, array.array.rank), np.int64)
            boxes[: len(links)] = 0 if chain is None else chain.boxes[: place + 1]
            chain = _Chain(links, boxes)
            self.places.update((link, (chain, at)) for at, link in enumerate(links))
        for update, box in reversed(above):
            chain.grow(update, box)
            self.places[update] = chain, len(chain.links) - 1
        return chain, len(chain.links) - 1
