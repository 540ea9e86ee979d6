"""Layouts of gathers, and of what is computed from them, that save moving their elements afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hloopt.analysis.elementwise import is_elementwise
from hloopt.analysis.layout import carried, major_to_minor
from hloopt.analysis.reduction import is_fast_row
from hloopt.ir import Computation, Instruction
from hloopt.types import ArrayShape, Dims

__all__ = ["free_layouts"]


_ANYHOW: Final = frozenset(("broadcast", "constant", "iota"))
_VIEWS: Final = frozenset(("reshape", "transpose"))


def free_layouts(computation: Computation) -> dict[Instruction, Dims]:
    """The orders, other than row-major, in which instructions best keep their results.

    Nothing says how a gather lays out its result: those who read it do.  Backwards from them, through
    transposes, reshapes and elementwise ops of nothing but such values, an order spreads as it does when XLA
    assigns layouts; where readers want several, the result is row-major.  A reduce wants what it adds up
    side by side where that is fast enough.
    """
    free = _free(computation)
    orders: dict[Instruction, Dims] = {}
    for instruction in reversed(list(computation)):
        if instruction not in free or instruction.is_root:
            continue
        if not free[instruction] and instruction.opcode not in _ANYHOW:
            continue  # a parameter decides, or nothing has to be moved
        wanted = set(_wanted(instruction, free, orders))
        if len(wanted) == 1:
            (order,) = wanted
            if order != _plain(instruction):
                orders[instruction] = order
    return orders


def _free(computation: Computation) -> dict[Instruction, bool]:
    """Instructions whose layouts nothing decides before them, and whether a gather is among their sources."""
    free: dict[Instruction, bool] = {}
    for instruction in computation:
        shape = instruction.shape
        if not isinstance(shape, ArrayShape) or shape.is_dynamic or not instruction.is_understood:
            continue
        if instruction.opcode in _ANYHOW or instruction.opcode == "gather":
            free[instruction] = instruction.opcode == "gather"
        elif instruction.opcode in _VIEWS or is_elementwise(instruction):
            arrays = [operand for operand in instruction.operands if operand.array.dims]
            if all(operand in free for operand in arrays):
                free[instruction] = any(free[operand] for operand in arrays)
    return free


def _plain(instruction: Instruction) -> Dims:
    return tuple(range(instruction.array.rank))


def _wanted(
    instruction: Instruction, free: dict[Instruction, bool], orders: dict[Instruction, Dims]
) -> Iterator[Dims]:
    for user in instruction.users:
        order = None
        if user in free and user.opcode != "gather" and user.opcode not in _ANYHOW:
            order = _before(user, orders.get(user, _plain(user)))
        elif user.opcode == "reduce" and user.operands[0] is instruction and free[instruction]:
            order = _reduced_last(user)
        elif user.opcode in _VIEWS and user.is_array:
            order = _before(user, major_to_minor(user.array))
        yield order or _plain(instruction)


def _before(user: Instruction, order: Dims) -> Dims | None:
    """The order of an operand such that its bytes stay where they are; None where there is none."""
    if user.opcode == "transpose":
        turned = user.dimensions
        return tuple(turned[dimension] for dimension in order)
    if user.opcode == "reshape":
        return _reshaped(user.array.dims, user.operands[0].array.dims, order)
    return order


def _reshaped(source: Dims, target: Dims, order: Dims) -> Dims | None:
    """The order of ``target`` such that a reshape of a ``source`` in its order moves nothing."""
    if 0 in source:
        return None
    found = carried(source, target, order)
    return None if found is None else tuple(_with_ones(found, target))


def _with_ones(found: list[int], sizes: Dims) -> Iterator[int]:
    """Each dimension of size 1 right before the next of another size, as XLA aligns layouts."""
    ones: dict[int, list[int]] = {}
    pending: list[int] = []
    for dimension, size in enumerate(sizes):
        pending.append(dimension)
        if size != 1:
            ones[dimension], pending = pending, []
    for dimension in found:
        yield from ones[dimension]
    yield from pending


def _reduced_last(reduce: Instruction) -> Dims | None:
    """Kept dimensions as in the result, then the reduced ones; None where a row is too short for that."""
    reduced = reduce.dimensions
    if not reduce.is_array:
        return None
    source = reduce.operands[0].array
    if not is_fast_row([source.dims[dimension] for dimension in reduced]):
        return None
    kept = [dimension for dimension in range(source.rank) if dimension not in reduced]
    result = major_to_minor(reduce.array)
    return (*(kept[dimension] for dimension in result), *sorted(reduced))
