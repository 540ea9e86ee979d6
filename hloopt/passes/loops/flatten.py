"""What a loop carries becomes one flat tuple: an array that is the whole state, tuples within it."""

from __future__ import annotations

from hloopt.analysis.effects import Effects
from hloopt.ir import Instruction, build, edit
from hloopt.ir.signatures import own_computation
from hloopt.passes.loops.carried import (
    CarriedState,
    growth_obstacle,
    reads,
    set_state_shape,
    states,
    tuple_of,
)
from hloopt.passes.loops.elements import is_plain
from hloopt.passes.loops.inline import elements_of
from hloopt.rewrite import PassLog
from hloopt.types import TupleShape, parts_of

__all__ = ["flatten", "wrap"]

NAME = "tuple within the state"
WRAPPED = "array that is the state"


def wrap(loop: Instruction, log: PassLog) -> bool:
    """Carry an array that is the whole state as the element of a tuple, as all analyses of loops expect it."""
    if not loop.is_array:
        return False
    parts = (*states(loop), loop.body.root)
    reason = ""
    if loop.shape.is_dynamic:
        reason = "its state has dynamic dimensions"
    elif not all(part.is_understood for part in parts):
        reason = "it has unknown attributes"
    elif not all(map(is_plain, parts)):
        reason = "its state has a sharding or control edges"
    if reason:
        log.miss(WRAPPED, loop, reason)
        return False
    if not log.allows():
        return False
    log.hit(WRAPPED, loop)
    shape = TupleShape((loop.shape,))
    for name in ("condition", "body"):
        own_computation(loop, name)
    body = loop.body
    for state in states(loop):
        _carry_in_tuple(state, shape)
    edit.set_operands(loop, (tuple_of(loop, loop.operands, shape),))
    edit.set_root(body, tuple_of(body, (body.root,), shape))
    return True


def _carry_in_tuple(state: Instruction, shape: TupleShape) -> None:
    """Let an array be the element of a tuple, and its users read that."""
    computation, users, is_root = state.home, list(state.users), state.is_root
    set_state_shape(state, shape)
    if not users and not is_root:
        return
    # Made before the state, then behind it: the graph has no other handle.
    read = build.element(state, state, 0)
    edit.move_before(read, state)
    for user in users:
        edit.replace_operand(user, state, read)
    if is_root:
        edit.set_root(computation, read)


def flatten(loop: Instruction, effects: Effects, log: PassLog) -> bool:
    """Open tuples within the state, level by level."""
    changed = False
    while any(isinstance(shape, TupleShape) for shape in loop.elements):
        reason = growth_obstacle(loop) or _obstacle(loop)
        if reason:
            log.miss(NAME, loop, reason)
            break
        if not log.allows():
            break
        log.hit(NAME, loop)
        _open(CarriedState(loop))
        changed = True
    return changed


def _obstacle(loop: Instruction) -> str:
    body = loop.body
    found = list(map(reads, states(loop)))
    for index, shape in enumerate(loop.elements):
        if isinstance(shape, TupleShape):
            for made in (loop.operands[0], body.root):
                if made.opcode == "tuple" and _is_under_way(made.operands[index]):
                    return f"{made.operands[index].name} is an operation under way"
            for group in found:
                for read in group[index]:
                    if any(map(_is_under_way, (read, *read.users))):
                        return f"{read.name} is an operation under way"
                    if not is_plain(read):
                        return f"{read.name} has a sharding or control edges"
    return ""


def _is_under_way(instruction: Instruction) -> bool:
    """Whether a tuple is what an asynchronous op, or a transfer, passes to the op that ends it."""
    return instruction.op.family in ("async", "collective", "host", "unknown")


def _open(carried: CarriedState) -> None:
    """Replace each tuple within the state by its elements."""
    sizes = [len(parts_of(shape)) for shape in carried.shapes]
    offsets = [sum(sizes[:index]) for index in range(len(sizes))]
    nested = [isinstance(shape, TupleShape) for shape in carried.shapes]
    for part in (carried.init, carried.root):
        opened = [
            element
            for operand, is_tuple in zip(part.operands, nested, strict=True)
            for element in (elements_of(operand, part) if is_tuple else [operand])
        ]
        edit.set_operands(part, tuple(opened))
    found = {
        state: list(map(reads(state).__getitem__, range(len(sizes))))
        for state in (*carried.states, carried.loop)
    }
    carried.reshape(lambda shapes: [one for shape in shapes for one in parts_of(shape)])
    for state, lists in found.items():
        for index, group in enumerate(lists):
            for read in group:
                if nested[index]:
                    _reread(
                        carried, state, read, range(offsets[index], offsets[index] + sizes[index])
                    )
                else:
                    edit.set_attribute(read, "index", offsets[index])
    carried.renumber_config(
        {index: offset for index, offset in enumerate(offsets) if not nested[index]}
    )


def _reread(carried: CarriedState, state: Instruction, read: Instruction, indices: range) -> None:
    """Let users of a tuple that was an element have the new elements."""
    fresh = [build.element(read, state, index) for index in indices]
    for user in list(read.users):
        if user.opcode == "get-tuple-element":
            edit.replace_instruction(user, fresh[user.tuple_index])
    if read.is_used:
        edit.replace_uses(read, tuple_of(read, fresh, read.shape))
    edit.remove(read)
