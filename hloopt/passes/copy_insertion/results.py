"""Getting a computation's results into the buffers in which its caller expects them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hloopt.analysis.in_place import may_overwrite
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, edit
from hloopt.ops.traits import CONTROL_FLOW
from hloopt.passes.copy_insertion.state import BufferState, Key, SharedBuffer
from hloopt.passes.copy_insertion.tuples import LeafIndex, leaf_of, with_leaves

__all__ = ["FRESH", "ResultBuffer", "settle"]

ResultBuffer = Key | str
FRESH = "fresh"
"""A private buffer; a ``Key`` stands for the buffer of that parameter."""

_Copy = Callable[[Instruction | None, Instruction, Instruction, str], Instruction | None]


@dataclass
class _Move:
    """A result that is copied at the end: what it is, where from, and into which parameter's buffer."""

    index: LeafIndex
    source: SharedBuffer | None
    target: SharedBuffer | None
    value: Instruction | None = None


def settle(state: BufferState, slots: Mapping[LeafIndex, ResultBuffer], copy: _Copy) -> None:
    """Copy the results that cannot lie where they must; those without a slot stay where they are.

    ``copy(position, leaf, about, reason)`` makes a copy, or None where the pass may not.
    """
    moves = _moves(state, slots)
    if not moves:
        return
    root = state.computation.root
    made: dict[LeafIndex, Instruction] = {}
    pending = list(moves)
    while pending:
        ready = next((move for move in pending if not _is_source(move, pending)), None)
        if ready is None:
            # A cycle: one of the values waits in another buffer.
            first = pending[0]
            first.value = copy(
                None, leaf_of(None, root, first.index), root, "results change places"
            )
            first.source = None
            if first.value is None:
                return
            continue
        pending.remove(ready)
        value = ready.value if ready.value is not None else leaf_of(None, root, ready.index)
        copied = copy(None, value, root, "the result lies in another buffer")
        if copied is None:
            return
        made[ready.index] = copied
    _set_results(state, made)


def _moves(state: BufferState, slots: Mapping[LeafIndex, ResultBuffer]) -> list[_Move]:
    taken: set[SharedBuffer] = set()
    moves: list[_Move] = []
    results = [
        (index, number, slots[index])
        for index, number in state.leaves(state.computation.root)
        if index in slots
    ]
    rest = []
    for index, number, slot in results:
        group = state.groups[number]
        if slot in group.parameters and group.writable and group not in taken:
            taken.add(group)
        else:
            rest.append((index, number, slot))
    for index, number, slot in rest:
        group = state.groups[number]
        target = None if isinstance(slot, str) else state.of_parameter[slot]
        own = group.writable and not group.parameters and group not in taken
        if own and (target is None or _follows(state, target, group)):
            taken.add(group)
        else:
            moves.append(_Move(index, group, target))
    return moves


def _follows(state: BufferState, before: SharedBuffer, after: SharedBuffer) -> bool:
    """Whether ``after`` can be written into the buffer of ``before``: the latter is dead."""
    if before.end != after.start:
        return before.end < after.start
    writer = state.order[after.start]
    if writer.opcode in CONTROL_FLOW or not all(map(state.is_known, writer.operands)):
        # Calls write before they have read everything, and so does what a copy was made for.
        return False
    written = [index for index, value in state.leaves(writer) if state.groups[value] is after]
    return all(
        may_overwrite(writer, number, index)
        for number, operand in enumerate(writer.operands)
        if any(state.groups.get(value) is before for value in state.aliasing.numbers(operand))
        for index in written
    )


def _is_source(move: _Move, pending: list[_Move]) -> bool:
    """Whether another move has still to read the buffer that this one writes."""
    return move.target is not None and any(
        other.source is move.target for other in pending if other is not move
    )


def _set_results(state: BufferState, made: Mapping[LeafIndex, Instruction]) -> None:
    computation = state.computation
    root = computation.root
    if root.opcode == "tuple" and not root.users and all(len(index) == 1 for index in made):
        elements = tuple(
            made.get((number,), operand) for number, operand in enumerate(root.operands)
        )
        edit.set_operands(root, elements)
        last = next(reversed(computation))
        if last is not root:
            edit.move_before(last, root)
            edit.move_before(root, last)
        return
    edit.set_root(computation, with_leaves(None, root, made))
