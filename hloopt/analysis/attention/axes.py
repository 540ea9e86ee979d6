"""Which axis each dimension of a value lies along, for values computed from products element by element.

An *axis* is a dimension of a product.  A dimension of a value lies along one, or along several of which the
last one counts quickest, as behind a reshape; one of size 1 lies along none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final, TypeAlias

from hloopt.analysis.layout import is_row_major
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction

__all__ = ["Along", "AxisNumber", "ProductAxes", "known_along"]

AxisNumber: TypeAlias = int
Along: TypeAlias = tuple[tuple[AxisNumber, ...] | None, ...]
"""For each dimension the axes it lies along; None where a broadcast value is the same along it."""

_SHAPED: Final = frozenset({"reshape", "bitcast"})


def known_along(along: Along) -> tuple[AxisNumber, ...]:
    """All axes, in order."""
    return tuple(axis for part in along if part is not None for axis in part)


@dataclass
class ProductAxes:
    """The axes that were found, with their sizes; two may turn out to be one."""

    sizes: list[int] = field(default_factory=list)
    _same: list[int] = field(default_factory=list)

    def new(self, size: int) -> tuple[AxisNumber, ...]:
        """A further axis; none where it has one place."""
        if size == 1:
            return ()
        self.sizes.append(size)
        self._same.append(len(self._same))
        return (len(self._same) - 1,)

    def find(self, axis: AxisNumber) -> AxisNumber:
        """The number under which an axis goes."""
        while self._same[axis] != axis:
            self._same[axis] = axis = self._same[self._same[axis]]
        return axis

    def resolved(self, along: Along) -> Along:
        """The same with the numbers under which axes go."""
        return tuple(None if one is None else tuple(map(self.find, one)) for one in along)

    def joined(self, left: Along, right: Along) -> Along | None:
        """What both lie along, where one element of one meets one of the other; None where they do not fit."""
        found: list[tuple[AxisNumber, ...] | None] = []
        for one, other in zip(left, right, strict=True):
            if one is None or other is None:
                found.append(other if one is None else one)
                continue
            if len(one) != len(other):
                return None
            for first, second in zip(map(self.find, one), map(self.find, other), strict=True):
                if self.sizes[first] != self.sizes[second]:
                    return None
                self._same[second] = first
            found.append(one)
        return tuple(found)

    def behind(self, op: Instruction, along: Along) -> Along | None:
        """What an op that moves the elements of its one operand makes of it; None where it takes them apart."""
        source, shape = op.operands[0].array, op.array
        if op.opcode == "transpose":
            return tuple(along[dimension] for dimension in op.attributes["dimensions"])
        if op.opcode == "broadcast":
            where = op.attributes.get("dimensions", ())
            if any(shape.dims[at] != size for at, size in zip(where, source.dims, strict=True)):
                return None
            places: Mapping[int, tuple[AxisNumber, ...] | None] = dict(
                zip(where, along, strict=True)
            )
            return tuple(places.get(at) if shape.dims[at] > 1 else () for at in range(shape.rank))
        if op.opcode in _SHAPED and source.elements == shape.elements:
            return self._reshaped(op, along)
        return None

    def _reshaped(self, op: Instruction, along: Along) -> Along | None:
        source, shape = op.operands[0].array, op.array
        if source.dtype is not shape.dtype:
            return None
        if op.opcode == "bitcast" and not (is_row_major(source) and is_row_major(shape)):
            return None
        # What is unknown must stay a dimension of its own.
        parts: list[tuple[int, tuple[AxisNumber, ...] | None]] = []
        for size, one in zip(source.dims, along, strict=True):
            if one is None:
                parts.append((size, None))
            else:
                parts += [(self.sizes[axis], (axis,)) for axis in one]
        found: list[tuple[AxisNumber, ...] | None] = []
        for size in shape.dims:
            if size == 1:
                found.append(())
                continue
            taken = self._taken(parts, size)
            if taken is None:
                return None
            found.append(taken or None)
        return tuple(found)

    def _taken(
        self, parts: list[tuple[int, tuple[AxisNumber, ...] | None]], size: int
    ) -> tuple[AxisNumber, ...] | None:
        """The axes that a dimension of some size lies along, from the front; () where they are unknown."""
        axes: list[AxisNumber] = []
        while size > 1 and parts:
            count, one = parts.pop(0)
            if size % count or (one is None and (count != size or axes)):
                return None
            size //= count
            axes += one or ()
        return tuple(axes) if size == 1 else None
