"""Which ops of a loop's initial state its kernel computes itself, so that zeros and the like need no launch.

An op of the first state goes into the kernel where that costs no more than reading what it would have written:

* nothing else needs it, and any of its elements can be computed by itself; or
* it reads no memory and is cheap (constants, ``iota``, what is broadcast and computed from these), or is a
  view, which reads its source: these are recomputed for others that need them, too.

What the body passes through unchanged (``invariant``) is computed again in every iteration.  There an op has to
be cheap, and may read no more than one array.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from hloopt.analysis.elementwise import is_elementwise
from hloopt.analysis.layout import is_effective_scalar
from hloopt.fusion.fusible import is_expensive, is_fusible
from hloopt.ir import Instruction
from hloopt.ops.traits import REARRANGING
from hloopt.types import ArrayShape

__all__ = ["sunk_into"]

_VIEWS: Final = REARRANGING | {"dynamic-slice"}
_MOVES: Final = _VIEWS | {"concatenate", "iota", "pad"}


def sunk_into(
    loop: Instruction,
    first: Sequence[Instruction],
    invariant: AbstractSet[int],
    most: int,
    only: AbstractSet[str] | None = None,
) -> tuple[Instruction, ...]:
    """The ops that go into a loop's kernel, operands first, at most ``most``.

    ``loop`` has a private tuple for operand, whose elements are ``first``; ``invariant`` are the numbers of
    those that the body passes through.  ``only`` names all that may go, where advice says so.
    """
    order = _elemental(first)
    free = _free(order)
    strict = {first[number] for number in invariant}
    entry = loop.operands[0]
    inside: set[Instruction] = set()
    wanted = set(first)
    for op in reversed(order):
        if op not in wanted or len(inside) == most or not (only is None or op.name in only):
            continue
        is_cheap = op in free or op.opcode in _VIEWS
        is_alone = not op.is_root and all(user is entry or user in inside for user in op.users)
        if not (is_cheap or is_alone) or (op in strict and not _is_repeatable(op, free)):
            continue
        inside.add(op)
        wanted.update(op.operands)
        if op in strict:
            strict.update(op.operands)
    return tuple(op for op in order if op in inside)


def _elemental(first: Iterable[Instruction]) -> list[Instruction]:
    """What ``first`` are computed from by ops of which any element can be had by itself, operands first."""
    done: dict[Instruction, None] = {}
    for start in first:
        stack = [start]
        while stack:
            top = stack[-1]
            waiting = [one for one in top.operands if one not in done and _is_elemental(one)]
            if waiting and top not in done and _is_elemental(top):
                stack.extend(waiting)
                continue
            stack.pop()
            if _is_elemental(top):
                done[top] = None
    return list(done)


def _is_elemental(op: Instruction) -> bool:
    if not isinstance(op.shape, ArrayShape) or op.shape.is_dynamic or not op.is_understood:
        return False
    if op.has_control_edges or not is_fusible(op):
        return False
    if op.opcode == "constant":
        return is_effective_scalar(op.shape)
    return op.opcode in _MOVES or (bool(op.operands) and is_elementwise(op))


def _free(order: Iterable[Instruction]) -> set[Instruction]:
    """Ops that read no memory, and cheap all the way."""
    found: set[Instruction] = set()
    for op in order:
        if all(operand in found for operand in op.operands) and not is_expensive(op):
            found.add(op)
    return found


def _is_repeatable(op: Instruction, free: AbstractSet[Instruction]) -> bool:
    """Whether an op may be computed in every iteration: cheap, and reading one array at most."""
    read = {one for one in op.operands if one not in free and not is_effective_scalar(one.shape)}
    return not is_expensive(op) and len(read) <= 1
