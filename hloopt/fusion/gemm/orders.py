"""Which dimensions of a dot the memory of a value runs through, followed through ops that move dimensions.

A Triton kernel of a dot reads tiles: each dimension of the dot's operand must run through memory in its
order, in one piece.  Source of the rules: OpenXLA, xla/service/gpu/triton_tiling_propagation.cc (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Final, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.ops.traits import MOVING
from hloopt.types import ArrayShape, descending

__all__ = ["DimensionOrder", "Fragment", "OrderError", "inputs", "major_part", "order_of", "output"]

_CONCATENATED: Final = 64
"""Pieces of a concatenate are multiples of this."""


class OrderError(Exception):
    """Why tiles of a value cannot be followed through an op; never leaves ``fusion/gemm``."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """A part of a dimension of the dot.

    label   the dimension
    size    elements
    place   among the parts of its dimension, the minor ones first
    sliced  whether a slice took a part of it
    """

    label: int
    size: int
    place: tuple[int, ...] = (0,)
    sliced: bool = False

    def part(self, number: int, size: int) -> Fragment:
        """A part of this part, the minor ones first."""
        return replace(self, size=size, place=(*self.place, number))


DimensionOrder: TypeAlias = tuple[Fragment, ...]
"""Fragments by their stride in memory, the smallest first."""


def order_of(operand: Instruction) -> DimensionOrder:
    """An operand or the result of a dot: each dimension is one fragment."""
    return tuple(Fragment(dim, operand.array.dims[dim]) for dim in _minor_to_major(operand.array))


def _minor_to_major(shape: ArrayShape) -> Sequence[int]:
    layout = shape.layout or descending(len(shape.dims))
    return layout.minor_to_major


def major_part(order: DimensionOrder, splittable: int | None) -> int:
    """The size of the major part of the dimension that is cut in two, 0 where none is.

    Only ``splittable`` may be, once, and no dimension may run through memory in another order.  Raises
    ``OrderError``.
    """
    found = 0
    by_label = sorted(range(len(order)), key=lambda at: (order[at].label, order[at].place))
    for label, places in groupby(by_label, key=lambda at: order[at].label):
        at = list(places)
        if any(order[place].sliced for place in at[:-1]):
            raise OrderError("a slice of the minor part of a dimension")
        runs = [run for run in _runs(at) if _size(order, run) > 1]
        if any(first[-1] > second[-1] for first, second in pairwise(runs)):
            raise OrderError("a transpose within a dimension")
        if len(runs) > 2 or (len(runs) == 2 and label != splittable):
            raise OrderError("a dimension in several pieces")
        if len(runs) == 2:
            found = _size(order, runs[1])
    return found


def _runs(places: Sequence[int]) -> list[list[int]]:
    """Consecutive places together."""
    found: list[list[int]] = []
    for place in places:
        if found and place == found[-1][-1] + 1:
            found[-1].append(place)
        else:
            found.append([place])
    return found


def _size(order: DimensionOrder, places: Iterable[int]) -> int:
    size = 1
    for place in places:
        size *= order[place].size
    return size


def output(user: Instruction, order: DimensionOrder) -> DimensionOrder:
    """The order of the result of an op, of which one operand has ``order``.  Raises ``OrderError``."""
    if user.op.is_elementwise and user.opcode != "copy":
        return order
    source = user.operands[0].array
    if user.opcode in ("bitcast", "reshape"):
        return _reshaped(order, user.array)
    groups = _grouped(order, source)
    if user.opcode == "transpose":
        return _laid_out([groups[dim] for dim in user.dimensions], user.array)
    if user.opcode == "copy":
        return _laid_out(groups, user.array)
    raise OrderError(f"{user.opcode} behind the dot")


def inputs(node: Instruction, order: DimensionOrder, free: int | None) -> list[DimensionOrder]:
    """The order of each operand of an op whose result has ``order``.

    ``free`` is the dimension that is neither contracted nor of the batch.  Raises ``OrderError``.
    """
    opcode = node.opcode
    if any(user.opcode in ("concatenate", "dynamic-slice") for user in node.users):
        raise OrderError("a concatenate or dynamic-slice as another user")
    if opcode == "constant" and not node.array.dims:
        return []
    if node.op.is_elementwise and opcode != "copy" and node.operands:
        return [order] * len(node.operands)
    if opcode in ("bitcast", "reshape"):
        return [_reshaped(order, node.operands[0].array)]
    if opcode not in MOVING - {"pad", "reverse"}:
        raise OrderError(opcode)
    groups = _grouped(order, node.array)
    if opcode == "transpose":
        back: list[DimensionOrder] = [()] * len(groups)
        for at, dim in enumerate(node.dimensions):
            back[dim] = groups[at]
        return [_laid_out(back, node.operands[0].array)]
    if opcode == "copy":
        return [_laid_out(groups, node.operands[0].array)]
    if opcode == "broadcast":
        return [_narrowed(node, order, groups)]
    if opcode == "slice":
        return [_unsliced(node, groups)]
    return _pieces(node, groups, free)


def _narrowed(
    node: Instruction, order: DimensionOrder, groups: Sequence[DimensionOrder]
) -> DimensionOrder:
    kept = [groups[dim] for dim in node.dimensions]
    found = _laid_out(kept, node.operands[0].array)
    present = {one.label for one in found if one.size > 1}
    if any(one.size > 1 and one not in found and one.label in present for one in order):
        raise OrderError("a broadcast along a part of a dimension")
    return found


def _unsliced(node: Instruction, groups: Sequence[DimensionOrder]) -> DimensionOrder:
    source = node.operands[0].array
    if node.array.elements == 1:
        raise OrderError("a slice of one element")
    found = []
    for group, size, whole in zip(groups, node.array.dims, source.dims, strict=True):
        if size == whole:
            found.append(group)
        elif len(group) > 1:
            raise OrderError("a slice of a dimension in parts")
        else:
            found.append((replace(group[0], size=whole, sliced=True),))
    return _laid_out(found, source)


def _pieces(
    node: Instruction, groups: Sequence[DimensionOrder], free: int | None
) -> list[DimensionOrder]:
    """Pieces of the dimension that comes back, which tiles cut evenly."""
    (along,) = node.dimensions
    group = groups[along]
    if len(group) != 1 or group[0].sliced or group[0].label != free:
        raise OrderError("a concatenate along another dimension")
    sizes = [operand.array.dims[along] for operand in node.operands]
    if any(size % _CONCATENATED for size in sizes):
        raise OrderError(f"pieces of a concatenate that are no multiples of {_CONCATENATED}")
    found = []
    for operand, size in zip(node.operands, sizes, strict=True):
        own = list(groups)
        own[along] = (replace(group[0], size=size, sliced=True),)
        found.append(_laid_out(own, operand.array))
    return found


def _grouped(order: DimensionOrder, shape: ArrayShape) -> list[DimensionOrder]:
    """The fragments of each logical dimension."""
    if len(order) < len(shape.dims):
        raise OrderError("a tensor of one element")
    left = list(order)
    found: list[DimensionOrder] = [()] * len(shape.dims)
    for dim in _minor_to_major(shape):
        group, size = [left.pop(0)], shape.dims[dim]
        while _size(tuple(group), range(len(group))) < size:
            group.append(left.pop(0))
        found[dim] = tuple(group)
    return found


def _laid_out(groups: Sequence[DimensionOrder], shape: ArrayShape) -> DimensionOrder:
    return tuple(one for dim in _minor_to_major(shape) for one in groups[dim])


def _reshaped(order: DimensionOrder, shape: ArrayShape) -> DimensionOrder:
    """The same bytes as dimensions of other sizes."""
    sizes = [shape.dims[dim] for dim in _minor_to_major(shape)]
    found: list[Fragment] = []
    room = 1  # of the dimension that was begun
    for one in order:
        left, parts = one.size, 0
        if room >= left:
            if room % left:
                raise OrderError("a reshape that regroups dimensions")
            found.append(one)
            room //= left
            continue
        while left > 1:
            size = room if room > 1 else sizes.pop(0)
            room = 1
            taken = min(size, left)
            if size % taken or left % taken or one.sliced:
                raise OrderError("a reshape that regroups dimensions")
            room = size // taken
            found.append(one if taken == one.size else one.part(parts, taken))
            left, parts = left // taken, parts + 1
    if any(size != 1 for size in sizes):
        raise OrderError("a reshape that regroups dimensions")
    if found:
        last = found[-1]
        found += [last.part(1 + at, 1) for at in range(len(sizes))]
    return tuple(found)
