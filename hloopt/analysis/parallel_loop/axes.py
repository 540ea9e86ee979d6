"""Which classes of dimensions become the axes.

Sets of classes that elements of the state have in common are weighed against each other: an element of the
state lies along all of a set or along none of it, and work items share most of the work of an iteration.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from hloopt.analysis.parallel_loop.classes import Dim, DimensionClasses
from hloopt.analysis.parallel_loop.edges import shape_of
from hloopt.analysis.parallel_loop.model import Dependence, Sharing
from hloopt.analysis.parallel_loop.state import LoopState
from hloopt.analysis.parallel_loop.work import LoopWork, SharedWork
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction

__all__ = ["AxisChooser", "ChosenAxes", "ParallelAxis"]

_FEW: Final = 0.75
"""Of few work items, this share of the possible gain is enough."""


@dataclass(frozen=True, slots=True)
class ParallelAxis:
    """A class of dimensions that is a parallel axis."""

    key: Dim
    size: int


@dataclass(frozen=True, slots=True)
class ChosenAxes:
    """The axes in the order in which they lie in the state, and sets that were weighed and left."""

    axes: tuple[ParallelAxis, ...]
    left: Mapping[Dim, Dependence]


class AxisChooser:
    """Answers for one loop."""

    def __init__(
        self, state: LoopState, classes: DimensionClasses, work: LoopWork, sharing: Sharing
    ) -> None:
        self.state = state
        self.classes = classes
        self.work = work
        self.sharing = sharing
        self.changing = [
            number for number in range(state.count) if (state.parameter, number) in classes.owned
        ]

    def choose(self, mixed: Collection[Dim], after: Collection[Instruction]) -> ChosenAxes:
        """The best of the sets that are worth it."""
        left: dict[Dim, Dependence] = {}
        best: tuple[float, tuple[ParallelAxis, ...]] = (0.0, ())
        for axes in self._sets(mixed):
            shared = self.work.shared({one.key: one.size for one in axes}, after)
            words = self._refusal(axes, shared)
            if words:
                assert shared.most is not None
                left.update((one.key, Dependence(shared.most, words)) for one in axes)
            elif shared.gain > best[0]:
                best = shared.gain, axes
        return ChosenAxes(best[1], left)

    def _sets(self, mixed: Collection[Dim]) -> Iterator[tuple[ParallelAxis, ...]]:
        along = {number: self._along(number, mixed) for number in self.changing}
        # Dimensions of what is kept come first: what is streamed may lie otherwise.
        order = sorted(self.changing, key=lambda number: number in self.state.updates)
        classes: dict[Dim, int] = {}
        for number in order:
            for key, size in along[number].items():
                classes.setdefault(key, size)
        seen: set[frozenset[Dim]] = set()
        for key in classes:
            sets = [found.keys() for found in along.values() if key in found]
            common = frozenset.intersection(*map(frozenset, sets))
            if common in seen:
                continue
            seen.add(common)
            if all(common <= found.keys() or common.isdisjoint(found) for found in along.values()):
                yield tuple(
                    ParallelAxis(one, size) for one, size in classes.items() if one in common
                )

    def _along(self, number: int, mixed: Collection[Dim]) -> dict[Dim, int]:
        """The classes of an element of the state that may be axes, with their sizes."""
        node = self.state.parameter, number
        keys = ((self.classes.of(node, dim), size) for dim, size in enumerate(shape_of(node).dims))
        return {key: size for key, size in keys if size > 1 and key not in mixed}

    def _refusal(self, axes: tuple[ParallelAxis, ...], shared: SharedWork) -> str:
        """Why work items would repeat too much, in words; empty where they do not."""
        sharing = self.sharing
        number, dim = self._place(axes[0])
        only_written = number in self.state.updates
        least = min(sharing.least_gain, _FEW * shared.work_items)
        if shared.gain >= least and (
            shared.gain >= shared.work_items * sharing.least_part
            or shared.repeated <= sharing.repeated
        ):
            return ""
        if not only_written and shared.repeated <= sharing.repeated:
            return ""
        assert shared.most is not None
        return (
            f"each of {shared.work_items} work items along dimension {dim} of element {number} of the state"
            f" would repeat {shared.repeated:.0f} of its {shared.work_item:.0f} operations an iteration,"
            f" most of them in {shared.most.opcode} {shared.most.name}"
        )

    def _place(self, axis: ParallelAxis) -> tuple[int, int]:
        """An element of the state along an axis, if possible one that is read, and its dimension."""
        for number in sorted(self.changing, key=lambda number: number in self.state.updates):
            node = self.state.parameter, number
            for dim in range(shape_of(node).rank):
                if self.classes.of(node, dim) == axis.key:
                    return number, dim
        raise AssertionError("axes are dimensions of the state")
