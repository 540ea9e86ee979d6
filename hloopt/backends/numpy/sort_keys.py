"""Keys of a sort as unsigned integers in the order of the comparator, and stable orders by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.interpret.comparator import SortKey
from hloopt.interpret.context import Context, array_of
from hloopt.interpret.sort import ordered_bits
from hloopt.ir import Instruction
from hloopt.types import Array, DType

__all__ = ["Column", "ordered_lanes", "stable_order"]

# Up to here NumPy's stable sorts are quicker than packing keys and indices into one number each.
_FEW = 96
_WORD = 64


@dataclass(frozen=True, slots=True)
class Column:
    """How a key is made of operand ``operand``.

    zeros  the two zeros are one
    nans   what stands for every NaN; None where each has its place, or (``partial``) none has
    """

    key: SortKey
    kind: DType
    operand: int = -1
    zeros: bool = False
    nans: Array | None = None

    @property
    def partial(self) -> bool:
        """Whether a NaN among the keys leaves the order open."""
        return self.kind.is_float and not self.key.total

    @property
    def of_operand(self) -> bool:
        """Whether the key is an operand's element, but for zeros and NaNs."""
        return self.operand >= 0

    @staticmethod
    def of(key: SortKey) -> Column | None:
        """Read from a key; None where its elements have no order."""
        root = key.function.root
        kind = root.array.dtype
        if kind.is_complex:
            return None
        found = _canonical(root) if kind.is_float else None
        if found is None:
            found = root, False, None
        number, zeros, nans = found
        operand = number.parameter_number if number.opcode == "parameter" else -1
        if operand < 0:
            zeros, nans = False, None
        return Column(key, kind, operand, zeros or (kind.is_float and not key.total), nans)

    def values(self, arrays: Sequence[Array], context: Context) -> Array:
        """The key of every element."""
        if self.operand >= 0:
            return arrays[self.operand]
        return array_of(context.apply(self.key.function, arrays))

    def _float_bits(self, values: Array) -> Array | None:
        """``bits`` of types that NumPy computes with, in few passes over them."""
        missing: Any = None
        if self.nans is not None or self.partial:
            missing = np.isnan(values)
            if not missing.any():
                missing = None
            elif self.nans is None:
                return None
        # -0 + 0 is +0.
        straight = values + values.dtype.type(0) if self.zeros else np.ascontiguousarray(values)
        if missing is not None:
            assert self.nans is not None
            straight = np.where(missing, self.nans, straight)
        bits = straight.view(f"i{straight.itemsize}")
        # Of a negative number all bits are turned, of others the sign.
        turned = bits >> (8 * straight.itemsize - 1)
        turned |= np.iinfo(bits.dtype).min
        turned ^= bits
        if self.key.descending:
            np.invert(turned, out=turned)
        unsigned: Array = turned.view(f"u{straight.itemsize}")
        return unsigned

    def bits(self, values: Array) -> Array | None:
        """Unsigned integers in the order of the keys; None where that is open."""
        if self.kind.name in ("f32", "f64"):
            return self._float_bits(values)
        found = ordered_bits(values)
        if self.kind.is_float:
            if self.zeros and found.dtype.kind == "i":
                found = found + (found == -1)  # what -0 is
            if self.nans is not None or self.partial:
                missing = np.isnan(values.astype(self.kind.compute, copy=False))
                if missing.any():
                    if self.nans is None:
                        return None
                    found = np.where(missing, ordered_bits(self.nans), found)
        unsigned = np.dtype(f"u{found.itemsize}")
        lowest = 0 if found.dtype.kind == "u" else 1 << (8 * unsigned.itemsize - 1)
        # The complement turns an order round and, unlike negation, has no overflow.
        turned = ~lowest if self.key.descending else lowest
        ordered: Array = found.view(unsigned) ^ unsigned.type(turned & np.iinfo(unsigned).max)
        return ordered


def _canonical(root: Instruction) -> tuple[Instruction, bool, Array | None] | None:
    """``select(x != x, nan, select(x == 0, 0, x))`` in either order, as x, whether zeros are one, the NaN."""
    zeros, nans = False, None
    while root.opcode == "select":
        condition, on_true, root = root.operands
        if condition.opcode != "compare" or on_true.opcode != "constant" or on_true.literal is None:
            return None
        left, right = condition.operands
        value = on_true.literal.splat
        direction = condition.attributes["direction"]
        if value is None or condition.attributes.get("type") == "TOTALORDER":
            return None
        x = _innermost(root)
        number = value.astype(root.array.dtype.compute)
        if direction == "NE" and left is right and left is x and np.isnan(number) and nans is None:
            nans = value.reshape(())
        elif direction == "EQ" and _is_zero(right) and left is x and _is_positive_zero(number):
            zeros = True
        else:
            return None
    return (root, zeros, nans) if root.opcode == "parameter" else None


def _innermost(root: Instruction) -> Instruction:
    while root.opcode == "select":
        root = root.operands[2]
    return root


def _is_zero(instruction: Instruction) -> bool:
    literal = instruction.literal if instruction.opcode == "constant" else None
    splat = literal.splat if literal is not None else None
    return splat is not None and bool(splat.astype(instruction.array.dtype.compute) == 0)


def _is_positive_zero(number: Any) -> bool:
    return bool(number == 0 and not np.signbit(number))


def ordered_lanes(column: Array, axis: int) -> Array:
    """A key with the sorted dimension as the last of two."""
    if axis != column.ndim - 1:
        column = np.moveaxis(column, axis, -1)
    return np.ascontiguousarray(column).reshape(-1, column.shape[-1])


def stable_order(columns: Sequence[Array], *, later_first: bool) -> Array:
    """The stable permutation of each lane by unsigned keys [lanes, n], most significant first.

    ``later_first``: of elements whose keys are equal the later one comes first.
    """
    count = columns[0].shape[1]
    if count <= _FEW:
        if later_first:
            late = np.broadcast_to(np.arange(count)[::-1], columns[0].shape)
            columns = [*columns, late]
        if len(columns) == 1:
            return np.argsort(columns[0], axis=1, kind="stable")
        return np.lexsort(columns[::-1], axis=1)
    place = (count - 1).bit_length()
    order: Array | None = None
    for group in reversed(_groups(columns, _WORD - place)):
        keys = group if order is None else [np.take_along_axis(key, order, 1) for key in group]
        found = _by_words(keys, place, later_first=later_first and order is None)
        order = found if order is None else np.take_along_axis(order, found, 1)
    assert order is not None
    return order


def _groups(columns: Sequence[Array], room: int) -> list[list[Array]]:
    """Neighbouring keys that fit into ``room`` bits together; wider ones alone."""
    groups: list[list[Array]] = []
    left = 0
    for column in columns:
        bits = 8 * column.itemsize
        if bits > left:
            groups.append([])
            left = room
        groups[-1].append(column)
        left -= bits
    return groups


def _by_words(keys: Sequence[Array], place: int, *, later_first: bool) -> Array:
    """Keys and index in one number: no two are equal, so that any sort of theirs is stable."""
    count = keys[0].shape[1]
    index = np.arange(count, dtype=np.uint64)
    if later_first:
        index = index[::-1]
    if 8 * sum(key.itemsize for key in keys) + place > _WORD:
        return _by_one_word(keys[0], place, later_first=later_first)
    words = keys[0].astype(np.uint64)
    for key in keys[1:]:
        words <<= np.uint64(8 * key.itemsize)
        words |= key
    words <<= np.uint64(place)
    words |= index
    words.sort(axis=1)
    words &= np.uint64((1 << place) - 1)
    found = words.view(np.int64)
    return count - 1 - found if later_first else found


def _by_one_word(key: Array, place: int, *, later_first: bool) -> Array:
    """A key as wide as a word: sorted in any order, then runs of equal ones put in theirs."""
    order = np.argsort(key, axis=1)
    ordered = np.take_along_axis(key, order, 1)
    fresh = ordered[:, 1:] != ordered[:, :-1]
    if fresh.all() or key.shape[1] < 2:
        return order
    runs = np.zeros(key.shape, np.uint64)
    np.cumsum(fresh, axis=1, out=runs[:, 1:])
    index = order.astype(np.uint64)
    if later_first:
        index = np.uint64(key.shape[1] - 1) - index
    words = (runs << np.uint64(place)) | index
    words.sort(axis=1)
    found = (words & np.uint64((1 << place) - 1)).view(np.int64)
    return key.shape[1] - 1 - found if later_first else found
