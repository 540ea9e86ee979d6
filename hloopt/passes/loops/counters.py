"""Counters of a loop: what they are behind it, and one in place of two."""

from __future__ import annotations

from collections.abc import Iterator

from hloopt.analysis.effects import Effects
from hloopt.analysis.induction import Affine, Inductions
from hloopt.analysis.loop_reader import StateSlot, WhileLoop
from hloopt.analysis.loop_values import wrapped
from hloopt.analysis.trip_count import trip_count
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, build, edit
from hloopt.passes.loops.carried import CarriedState, reads, states, uses
from hloopt.passes.loops.elements import is_plain
from hloopt.rewrite import PassLog
from hloopt.types import ArrayShape, Shape, array

__all__ = ["constant_like", "counters", "elements_in_condition", "final_values", "merge"]


def counters(loop: Instruction) -> dict[int, Affine]:
    """The integers of a loop's state that are known numbers of the iteration, by their index."""
    found = Inductions(WhileLoop(loop))
    variables = {
        index: found.variable(StateSlot(index))
        for index in range(len(loop.elements))
        if _is_integer(loop.elements[index])
    }
    return {index: variable for index, variable in variables.items() if variable is not None}


def _is_integer(shape: Shape) -> bool:
    return isinstance(shape, ArrayShape) and shape.dtype.is_integer and shape.elements > 0


def constant_like(position: Instruction, like: Instruction, value: int) -> Instruction:
    """An integer in every element of the shape of ``like``, with its metadata and frontend_attributes."""
    shape = like.shape
    assert isinstance(shape, ArrayShape)
    made = build.splat(position, shape, wrapped(value, shape.dtype))
    made.metadata = like.metadata
    if "frontend_attributes" in like.attributes:
        edit.set_attribute(made, "frontend_attributes", like.attributes["frontend_attributes"])
    return made


def final_values(loop: Instruction, effects: Effects, log: PassLog) -> bool:
    """A counter behind a loop of known count is a number."""
    name = "counter after the loop"
    read = [user for user in loop.users if user.opcode == "get-tuple-element"]
    used = [one for one in read if one.is_used]
    if not any(_is_integer(one.shape) for one in used):
        return False
    iterations = trip_count(loop)
    known = counters(loop) if iterations is not None else {}
    changed = False
    for one in used:
        variable = known.get(one.tuple_index)
        if variable is None or iterations is None or not is_plain(one):
            continue
        if not log.allows():
            break
        log.hit(name, one)
        edit.replace_instruction(one, constant_like(one, one, variable.at(iterations)))
        changed = True
    return changed


@dataclass(frozen=True)
class _Following:
    """``follower = factor * leader + offset`` in every iteration."""

    leader: int
    follower: int
    factor: int
    offset: int


def merge(loop: Instruction, effects: Effects, log: PassLog) -> bool:
    """Compute a counter from another one that takes as large steps or smaller ones."""
    name = "counter that follows another"
    read = [reads(state) for state in states(loop)]
    chosen = []
    for pair in _pairs(loop):
        if not all(is_plain(one) for group in read for one in group[pair.follower]):
            log.miss(name, loop, f"element {pair.follower} has a sharding or control edges")
        elif log.allows():
            sum_text = f"{pair.factor} * element {pair.leader} + {pair.offset}"
            log.hit(name, loop, f"element {pair.follower} = {sum_text}")
            chosen.append(pair)
    if chosen:
        carried = CarriedState(loop)
        found = uses(loop)
        for pair in chosen:
            for use in found[pair.follower]:
                edit.replace_instruction(use, _computed(use, pair))
        carried.drop([pair.follower for pair in chosen])
    return bool(chosen)


def _pairs(loop: Instruction) -> Iterator[_Following]:
    if sum(map(_is_integer, loop.elements)) < 2:
        return
    known = {
        index: variable
        for index, variable in counters(loop).items()
        if variable.step and isinstance(one := loop.elements[index], ArrayShape) and not one.dims
    }
    if len(known) < 2:
        return
    first = elements_in_condition(loop)
    order = sorted(known, key=lambda index: (index not in first, abs(known[index].step), index))
    iterations = trip_count(loop)
    leaders: list[int] = []
    for index in order:
        for leader in leaders:
            pair = _following(known, leader, index, iterations)
            if pair is not None:
                yield pair
                break
        else:
            leaders.append(index)


def elements_in_condition(loop: Instruction) -> set[int]:
    """The elements that the condition reads."""
    state = states(loop)[0]
    return {
        read.tuple_index
        for read in state.users
        if read.opcode == "get-tuple-element" and read.is_used
    }


def _following(
    known: dict[int, Affine], leader: int, follower: int, iterations: int | None
) -> _Following | None:
    one, other = known[leader], known[follower]
    factor, rest = divmod(other.step, one.step)
    if rest or (other.dtype.bits > one.dtype.bits and not _never_wraps(one, iterations)):
        return None
    offset = wrapped(other.first - factor * one.first, other.dtype)
    return _Following(leader, follower, factor, offset)


def _never_wraps(variable: Affine, iterations: int | None) -> bool:
    """Whether a counter never wraps around, so that a wider one can be computed from it."""
    low, high = variable.dtype.limits
    return iterations is not None and low <= variable.first + iterations * variable.step <= high


def _computed(use: Instruction, pair: _Following) -> Instruction:
    kind = use.array.dtype
    value = build.element(use, use.operands[0], pair.leader)
    steps: list[tuple[str, int]] = []
    if value.array.dtype is not kind:
        value = build.make(use, "convert", (value,), shape=use.shape, metadata=use.metadata)
    if pair.factor != 1:
        steps.append(("multiply", pair.factor))
    if pair.offset:
        steps.append(("add", pair.offset))
    for opcode, number in steps:
        other = build.splat(use, array(kind), wrapped(number, kind))
        value = build.make(use, opcode, (value, other), metadata=use.metadata)
    return value
