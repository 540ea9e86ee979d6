"""Sorts of less, and sorts of what is sorted."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.interpret.comparator import SortKey
from hloopt.interpret.sort import key_order
from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.passes.indexing.known import KnownArrays
from hloopt.rewrite import Pass, PassLog
from hloopt.rewrite.site import Site, sites
from hloopt.types import TupleShape

__all__ = ["PlainOrder", "SortSimplifier", "plain_order"]


@dataclass(frozen=True)
class SortSimplifier(Pass):
    """Sort fewer operands, not at all where the order is known, and unstably where that is the same.

    1. A sort whose key comes out of iotas and constants alone, compared by one ``<`` or ``>``, has a known
       order: where that is the order there is, or the one from the last to the first, the operands stay or
       are reversed.  So does a sort of the result of a sort with the same order.
    2. An operand whose sorted form is unused, and whose elements the comparator does not read, is removed.
    3. Of one operand whose equal elements have the same bits, is_stable=true is redundant and removed.

    limit   the most elements of a key that is computed
    """

    example: ClassVar[str] = """HloModule unused

less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ROOT l = pred[] compare(a, b), direction=LT
}

ENTRY main {
  x = f32[6]{0} parameter(0)
  y = s32[6]{0} parameter(1)
  s = (f32[6]{0}, s32[6]{0}) sort(x, y), dimensions={0}, to_apply=less
  ROOT r = f32[6]{0} get-tuple-element(s), index=0
}
"""

    limit: int = 1 << 16

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise UsageError(f"{self.name}: limit must be at least 1, got {self.limit}")

    def run(self, module: Module, log: PassLog) -> bool:
        """Look at each sort once."""
        arrays = KnownArrays(module, self.limit)
        changed = False
        for instruction in sites(module, "sort"):
            if not log.allows():
                return changed
            if _sorted_already(instruction, arrays, log):
                changed = True
                continue
            sort, fewer = _without_unread(instruction, module, log)
            changed |= fewer
            changed |= log.allows() and _without_promise(sort, log)
        return changed


def _sorted_already(sort: Instruction, arrays: KnownArrays, log: PassLog) -> bool:
    order, axis = plain_order(sort.to_apply), sort.dimensions[0]
    if order is None:
        return False
    key = sort.operands[order.operand]
    if _is_sort_of(key, sort) and order.decides and len(sort.operands) == 1:
        log.hit("sort(sort(A)) => sort(A)", sort)
        Site(sort).replace(key)
        return True
    known = arrays.of(key)
    if known is None:
        return False
    comparator = sort.to_apply
    total = comparator.root.attributes.get("type") == "TOTALORDER"
    # The key is compared as it is: its function, which key_order does not ask for, is the identity.
    keys = [(known, SortKey(comparator, order.descending, total))]
    places = key_order(keys, axis)
    if places is None:
        return False
    shape = [1] * known.ndim
    shape[axis] = known.shape[axis]
    line = np.arange(known.shape[axis]).reshape(shape)
    site = Site(sort)
    results = sort.operands
    if np.array_equal(places, np.broadcast_to(line, places.shape)):
        log.hit("sort of a sorted key => operands", sort)
    elif np.array_equal(places, np.broadcast_to(np.flip(line, axis), places.shape)):
        log.hit("sort of a key sorted the other way => reverse", sort)
        results = tuple(
            site.make("reverse", operand, shape=operand.shape, dimensions=(axis,))
            for operand in sort.operands
        )
    else:
        return False
    site.replace(site.results(results))
    return True


def _is_sort_of(key: Instruction, sort: Instruction) -> bool:
    """Whether the key is one sorted operand in the same order."""
    if key.opcode != "sort" or key.is_tuple or not key.is_understood:
        return False
    inner, outer = plain_order(key.to_apply), plain_order(sort.to_apply)
    return inner == outer and key.dimensions[0] == sort.dimensions[0]


def _without_unread(sort: Instruction, module: Module, log: PassLog) -> tuple[Instruction, bool]:
    """The sort without operands that neither users nor the comparator look at."""
    comparator = sort.to_apply
    if not isinstance(sort.shape, TupleShape) or sort.is_root:
        return sort, False
    if any(user.opcode != "get-tuple-element" for user in sort.users):
        return sort, False
    if any(mark in sort.attributes for mark in ("sharding", "frontend_attributes")):
        log.miss("drop unread operands", sort, "it has a sharding or attributes of a front end")
        return sort, False
    read = {user.tuple_index for user in sort.users}
    kept = [
        number
        for number in range(len(sort.operands))
        if number in read or any(map(_is_used, comparator.parameters[2 * number : 2 * number + 2]))
    ]
    if len(kept) == len(sort.operands) or not kept:
        return sort, False
    log.hit(
        "drop unread operands", sort, f"{len(sort.operands) - len(kept)} of {len(sort.operands)}"
    )
    smaller = build.clone_computation(comparator)
    for number in reversed(range(len(sort.operands))):
        if number not in kept:
            edit.remove(smaller.parameters[2 * number + 1])
            edit.remove(smaller.parameters[2 * number])
    edit.add_computation(module, smaller)
    operands = tuple(sort.operands[number] for number in kept)
    attributes = {**sort.attributes, "to_apply": smaller}
    whole = sort.shape
    parts = tuple(whole.elements[number] for number in kept)
    shape = parts[0] if len(parts) == 1 else TupleShape(parts)
    name, offset = sort.name, sort.offset
    result = Site(sort).make("sort", *operands, shape=shape, **attributes)
    for user in list(sort.users):
        if len(kept) == 1:
            Site(user).replace(result)
        else:
            edit.set_attribute(user, "index", kept.index(user.tuple_index))
            edit.set_operand(user, 0, result)
    edit.remove(sort)
    if result.offset < 0 and len(kept) > 1:
        edit.rename(result, name)
        result.offset = offset
    if not comparator.callers:
        edit.remove_computation(comparator)
    return result, True


def _is_used(parameter: Instruction) -> bool:
    return bool(parameter.users) or parameter.is_root


def _without_promise(sort: Instruction, log: PassLog) -> bool:
    if not sort.attributes.get("is_stable") or len(sort.operands) != 1:
        return False
    order = plain_order(sort.to_apply)
    if order is None or not order.decides:
        return False
    log.hit("drop is_stable", sort)
    edit.set_attribute(sort, "is_stable", None)
    return True


@dataclass(frozen=True, slots=True)
class PlainOrder:
    """``compare(a, b)`` of the elements of operand ``operand``.

    decides   whether elements that compare equal have the same bits: integers, and floats in total order
    """

    operand: int
    descending: bool
    decides: bool


def plain_order(comparator: Computation) -> PlainOrder | None:
    """What a comparator compares that is a single ``<`` or ``>``, else None."""
    root = comparator.root
    direction = root.attributes.get("direction")
    if root.opcode != "compare" or direction not in ("LT", "GT"):
        return None
    left, right = root.operands
    if left.opcode != "parameter" or right.opcode != "parameter":
        return None
    first, second = left.parameter_number, right.parameter_number
    if first // 2 != second // 2 or first == second:
        return None
    dtype = left.array.dtype
    total = root.attributes.get("type") == "TOTALORDER"
    decides = dtype.is_integer or dtype.is_pred or (dtype.is_float and total)
    return PlainOrder(first // 2, (direction == "GT") == (first < second), decides)
