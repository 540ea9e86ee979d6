"""Questions about the elements that a while carries: needed, passed through, constant or duplicate."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from hloopt.analysis.effects import Effects
from hloopt.ir import Computation, Instruction
from hloopt.ops.traits import NOT_MERGEABLE
from hloopt.passes.loops.carried import states, whole_uses
from hloopt.rewrite.driver import same_layout
from hloopt.types import ArrayShape, Literal, descending

__all__ = [
    "duplicates",
    "following",
    "is_passed_through",
    "is_plain",
    "may_merge",
    "may_replace",
    "may_replace_result",
    "needed",
    "needed_for",
    "same_constant",
]

_MOST_ROUNDS = 16


def following(body: Computation, index: int) -> Instruction | None:
    """The instruction that makes an element's next value, where the body returns a tuple."""
    return body.root.operands[index] if body.root.opcode == "tuple" else None


def is_passed_through(body: Computation, index: int) -> bool:
    """Whether the body returns an element of its state as it is."""
    state = body.parameters[0]
    result = following(body, index)
    if result is None:
        return body.root is state
    return result.is_element_of(state) and result.tuple_index == index


def may_replace_result(
    loop: Instruction, index: int, state: Instruction, reads_after: list[Instruction]
) -> bool:
    """Whether an element of a loop's result may be that of ``state``, the tuple before the loop."""
    value = state.operands[index] if state.opcode == "tuple" else None
    sharding = value.attributes.get("sharding") if value is not None else None
    return same_layout(loop.elements[index], state.elements[index]) and all(
        is_plain(read, sharding) for read in reads_after
    )


def may_replace(read: Instruction, value: Instruction) -> bool:
    """Whether ``value`` may stand for ``read``."""
    return is_plain(read, value.attributes.get("sharding")) and same_layout(read.shape, value.shape)


def may_merge(
    loop: Instruction, index: int, first: int, found: dict[int, list[Instruction]]
) -> bool:
    """Whether layouts and shardings let one element stand for another; ``found`` are its uses."""
    for state in states(loop):
        if not same_layout(state.elements[index], state.elements[first]):
            return False
    return all(map(is_plain, found[index]))


def is_plain(read: Instruction, sharding: object = None) -> bool:
    """Whether a read has no control edges, and no sharding but this."""
    return not read.has_control_edges and read.attributes.get("sharding") in (None, sharding)


def needed(loop: Instruction, effects: Effects) -> set[int]:
    """Elements that the result, the condition or an effect needs, and those their next values need."""
    if whole_uses(loop) or loop.is_root:
        return set(range(len(loop.elements)))
    return needed_for(
        loop,
        {user.tuple_index for user in loop.users if user.is_used or user.has_control_edges},
        effects,
    )


def needed_for(loop: Instruction, results: set[int], effects: Effects) -> set[int]:
    """Elements that these elements of the result, the condition or an effect need, directly or not."""
    everything = set(range(len(loop.elements)))
    body, condition = loop.body, loop.condition
    search = _Backwards(body)
    found = set(results)
    found |= _Backwards(condition).slots([condition.root, *_acting(condition, effects)], everything)
    found |= search.slots(_acting(body, effects), everything)
    pending = list(found)
    while pending:
        result = following(body, pending.pop())
        more = search.slots([result if result is not None else body.root], everything) - found
        found |= more
        pending.extend(more)
    return found


def _acting(computation: Computation, effects: Effects) -> list[Instruction]:
    return [one for one in computation if effects.has(one) or one.has_control_edges]


class _Backwards:
    """What instructions need of the state; each instruction is visited once."""

    def __init__(self, computation: Computation) -> None:
        self._state = computation.parameters[0]
        self._seen: set[Instruction] = set()

    def slots(self, starts: list[Instruction], everything: set[int]) -> set[int]:
        found: set[int] = set()
        pending = [one for one in starts if one not in self._seen]
        self._seen.update(pending)
        while pending:
            instruction = pending.pop()
            if instruction is self._state:
                return set(everything)
            if instruction.is_element_of(self._state):
                found.add(instruction.tuple_index)
                continue
            for before in (*instruction.operands, *instruction.control_predecessors):
                if before not in self._seen:
                    self._seen.add(before)
                    pending.append(before)
        return found


def same_constant(left: Instruction, right: Instruction) -> bool:
    """Whether both are constants of the same bits and shape."""
    return (
        left.literal is not None
        and left.literal == right.literal
        and same_layout(left.shape, right.shape)
    )


def duplicates(loop: Instruction, effects: Effects) -> dict[int, int]:
    """Elements that always equal an earlier one, with it.

    All with the same value before the loop are taken for equal at first; those whose next values differ,
    as long as the others are equal, are separated, until a fixpoint.
    """
    init, body = loop.operands[0], loop.body
    if init.opcode != "tuple" or body.root.opcode != "tuple":
        return {}
    keys = list(map(_init_key, init.operands))
    if len(set(keys)) == len(keys):
        return {}
    classes = _numbered(keys)
    for _ in range(_MOST_ROUNDS):
        numbers = _Numbers(classes, effects)
        refined = _numbered(list(zip(classes, numbers.of_results(body), strict=True)))
        if refined == classes:
            break
        classes = refined
    else:
        return {}
    first: dict[int, int] = {}
    found = {}
    for index, number in enumerate(classes):
        if first.setdefault(number, index) != index:
            found[index] = first[number]
    return found


def _numbered(keys: list[Any]) -> list[int]:
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def _init_key(value: Instruction) -> Hashable:
    if value.literal is not None:
        return value.literal, _shape_key(value)
    if value.opcode == "broadcast" and value.operands[0].literal is not None:
        return value.operands[0].literal, _shape_key(value), value.attributes.get("dimensions")
    return value


def _shape_key(instruction: Instruction) -> Hashable:
    shape = instruction.shape
    if isinstance(shape, ArrayShape) and shape.layout is None:
        return ArrayShape(shape.dtype, shape.dims, descending(shape.rank), shape.dynamic)
    return shape


class _Numbers:
    """Numbers of values: equal where elements of the same class are."""

    def __init__(self, classes: list[int], effects: Effects) -> None:
        self._classes = classes
        self._effects = effects
        self._known: dict[Hashable, int] = {}

    def of_results(self, body: Computation) -> Iterator[int]:
        found: dict[Instruction, int] = {}
        state = body.parameters[0]
        for instruction in body:
            found[instruction] = self._known.setdefault(
                self._key(instruction, state, found), len(self._known)
            )
        return (found[one] for one in body.root.operands)

    def _key(
        self, instruction: Instruction, state: Instruction, found: dict[Instruction, int]
    ) -> Hashable:
        if instruction.is_element_of(state):
            index = instruction.tuple_index
            return "element", self._classes[index], _shape_key(instruction)
        if instruction.opcode in NOT_MERGEABLE or self._effects.has(instruction):
            return instruction
        operands = tuple(found[operand] for operand in instruction.operands)
        if len(operands) == 2 and operands[0] > operands[1] and instruction.op.commutative:
            operands = operands[::-1]
        attributes = tuple(
            (name, _value_key(value))
            for name, value in sorted(instruction.attributes.items())
            if name not in ("origin", "statistics")
        )
        return instruction.opcode, _shape_key(instruction), operands, attributes


def _value_key(value: object) -> Hashable:
    """Called computations are equal when they are the same one."""
    return value.key if isinstance(value, Literal) else value
