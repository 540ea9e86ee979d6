"""How often a ``while`` runs, where the module shows it.

Three ways, in this order: ``known_trip_count`` in the instruction's backend_config; a closed form for
an induction variable that steps by a constant and is compared with a constant; evaluation of a small
scalar loop for at most 128 iterations.  Each gives the exact count or nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from operator import add, and_, ge, gt, le, lt, mul, ne, or_, sub, xor
from typing import Final

from hloopt.ir import Instruction
from hloopt.types import ArrayShape, DType

__all__ = ["MAX_EVALUATED_TRIPS", "trip_count"]

MAX_EVALUATED_TRIPS: Final = 128
_MAX_REGION: Final = 64

_KNOWN = re.compile(r'"?known_trip_count"?\s*:\s*\{\s*"?n"?\s*:\s*"?(\d+)"?\s*\}')
_MIRRORED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE"}
_COMPARE: Mapping[str, Callable[[int, int], bool]] = {
    "LT": lt, "LE": le, "GT": gt, "GE": ge, "NE": ne, "EQ": int.__eq__,
}  # fmt: skip
_ARITHMETIC: Mapping[str, Callable[[int, int], int]] = {
    "add": add, "subtract": sub, "multiply": mul, "and": and_, "or": or_, "xor": xor,
    "maximum": max, "minimum": min,
}  # fmt: skip


def trip_count(loop: Instruction) -> int | None:
    """The number of times the body of a ``while`` runs, or None where the module does not show it.

    Reads through tuple, get-tuple-element, copy, bitcast and reshape of scalars, and state elements
    that the body passes on unchanged.  A variable that would wrap around before the loop ends has no
    closed form here and gives None.
    """
    known = _annotated(loop)
    if known is not None:
        return known
    facts = _Loop(loop)
    slots = facts.condition_slots()
    if slots is None:
        return None
    varying = [slot for slot in slots if not facts.is_invariant(slot)]
    if not varying:
        value = _Scalars(facts, facts.condition_state, {}).value(facts.condition_root)
        return 0 if value == 0 else None
    if len(varying) > 1:
        return None
    start = facts.initial(varying[0])
    if start is None:
        return None
    closed = _closed_form(facts, varying[0], start)
    return closed if closed is not None else _by_evaluation(facts, varying[0], start)


def _annotated(loop: Instruction) -> int | None:
    config = loop.attributes.get("backend_config")
    found = _KNOWN.search(str(config)) if config is not None else None
    return int(found.group(1)) if found else None


class _Loop:
    """A while's parts by state element; a slot is a tuple index, or None where the state is a scalar."""

    def __init__(self, loop: Instruction) -> None:
        self.start = _through_copies(loop.operands[0])
        self.condition_state: Instruction = loop.attributes["condition"].parameters[0]
        self.condition_root: Instruction = loop.attributes["condition"].root
        self.state: Instruction = loop.attributes["body"].parameters[0]
        self.result = _through_copies(loop.attributes["body"].root)

    def condition_slots(self) -> set[int | None] | None:
        """State elements the condition depends on.

        None where the condition uses the state as a whole tuple or is too large to read.
        """
        slots: set[int | None] = set()
        pending, seen = [self.condition_root], {self.condition_root}
        while pending:
            instruction = pending.pop()
            if len(seen) > _MAX_REGION:
                return None
            if instruction is self.condition_state:
                if not isinstance(instruction.shape, ArrayShape):
                    return None
                slots.add(None)
            elif _is_element_of(instruction, self.condition_state):
                slots.add(instruction.attributes["index"])
            else:
                fresh = [operand for operand in instruction.operands if operand not in seen]
                seen.update(fresh)
                pending.extend(fresh)
        return slots

    def following(self, slot: int | None) -> Instruction | None:
        """The instruction of the body that makes the element's next value."""
        if slot is None:
            return self.result
        return self.result.operands[slot] if self.result.opcode == "tuple" else None

    def is_invariant(self, slot: int | None) -> bool:
        """Whether the body hands the element on unchanged."""
        following = self.following(slot)
        return following is not None and _is_slot(_through_copies(following), self.state, slot)

    def initial(self, slot: int | None) -> int | None:
        """The element's value before the loop, where it is a known integer."""
        if slot is None:
            return _Scalars(None, None, {}).value(self.start)
        if self.start.opcode != "tuple":
            return None
        return _Scalars(None, None, {}).value(self.start.operands[slot])


def _closed_form(loop: _Loop, slot: int | None, start: int) -> int | None:
    test = _bound(loop, slot)
    step = _step(loop, slot)
    if test is None or step is None:
        return None
    direction, bound, kind = test
    return count_trips(start, bound, step, direction, kind)


def count_trips(start: int, bound: int, step: int, direction: str, kind: DType) -> int | None:
    """Iterations of ``for (i = start; i DIRECTION bound; i += step)``; None if ``i`` would wrap first.

    The value that ends the loop must be representable in ``kind``.
    """
    if not _COMPARE[direction](start, bound):
        return 0
    if direction == "NE":
        trips, remainder = divmod(bound - start, step)
        return trips if remainder == 0 and trips > 0 else None
    rising = direction in ("LT", "LE")
    if rising != (step > 0):
        return None
    distance = abs(bound - start)
    inclusive = direction in ("LE", "GE")
    trips = distance // abs(step) + 1 if inclusive else -(-distance // abs(step))
    lowest, highest = _limits(kind)
    return trips if lowest <= start + trips * step <= highest else None


def _bound(loop: _Loop, slot: int | None) -> tuple[str, int, DType] | None:
    """Direction, known bound and type of ``i DIRECTION bound``, either way round."""
    root = _through_copies(loop.condition_root)
    if root.opcode != "compare":
        return None
    direction = root.attributes["direction"]
    state = loop.condition_state
    left, right = (_through_copies(operand) for operand in root.operands)
    if _is_slot(right, state, slot):
        left, right = right, left
        direction = _MIRRORED.get(direction, "")
    bound = _Scalars(loop, state, {}).value(right)
    if direction not in _MIRRORED or bound is None or not _is_slot(left, state, slot):
        return None
    return (direction, bound, left.array.dtype) if _is_integer_scalar(left) else None


def _step(loop: _Loop, slot: int | None) -> int | None:
    """What one iteration adds to the induction variable."""
    following = loop.following(slot)
    if following is None:
        return None
    result = _through_copies(following)
    if result.opcode not in ("add", "subtract"):
        return None
    left, right = (_through_copies(operand) for operand in result.operands)
    if result.opcode == "add" and _is_slot(right, loop.state, slot):
        left, right = right, left
    amount = _Scalars(loop, loop.state, {}).value(right)
    if not amount or not _is_slot(left, loop.state, slot):
        return None
    return amount if result.opcode == "add" else -amount


def _by_evaluation(loop: _Loop, slot: int | None, start: int) -> int | None:
    """Run condition and next value on one integer; None where anything else is needed."""
    following = loop.following(slot)
    value: int | None = start
    for trips in range(MAX_EVALUATED_TRIPS + 1):
        if value is None or following is None:
            return None
        again = _Scalars(loop, loop.condition_state, {slot: value}).value(loop.condition_root)
        if again is None:
            return None
        if not again:
            return trips
        value = _Scalars(loop, loop.state, {slot: value}).value(following)
    return None


class _Scalars:
    """Integer values of scalar instructions, given values of state elements."""

    def __init__(
        self, loop: _Loop | None, state: Instruction | None, known: Mapping[int | None, int]
    ) -> None:
        self.loop = loop
        self.state = state
        self.known = known
        self.values: dict[Instruction, int | None] = {}

    def value(self, instruction: Instruction, depth: int = 0) -> int | None:
        """The value, or None where it is not an integer scalar this class can compute."""
        instruction = _through_copies(instruction)
        if instruction not in self.values:
            self.values[instruction] = None
            if depth <= _MAX_REGION:
                self.values[instruction] = self._compute(instruction, depth + 1)
        return self.values[instruction]

    def _compute(self, instruction: Instruction, depth: int) -> int | None:
        if self.loop is not None and self.state is not None:
            whole = instruction is self.state
            if whole or _is_element_of(instruction, self.state):
                slot = None if whole else instruction.attributes["index"]
                if slot not in self.known and self.loop.is_invariant(slot):
                    return self.loop.initial(slot)
                return self.known.get(slot)
        if not _is_integer_scalar(instruction):
            return None
        if instruction.opcode == "constant":
            literal = instruction.literal
            if literal is None or literal.array is None:
                return None
            return int(literal.array.reshape(-1)[0])
        operands = [self.value(operand, depth) for operand in instruction.operands]
        known = [operand for operand in operands if operand is not None]
        if not known or len(known) != len(operands):
            return None
        return self._apply(instruction, known)

    def _apply(self, instruction: Instruction, operands: list[int]) -> int | None:
        opcode, kind = instruction.opcode, instruction.array.dtype
        if opcode == "compare":
            return int(_COMPARE[instruction.attributes["direction"]](operands[0], operands[1]))
        if opcode == "select":
            return operands[1] if operands[0] else operands[2]
        if opcode == "convert" and not kind.is_pred:
            return _wrapped(operands[0], kind)
        if opcode == "negate":
            return _wrapped(-operands[0], kind)
        if opcode == "not":
            return int(not operands[0]) if kind.is_pred else _wrapped(~operands[0], kind)
        operation = _ARITHMETIC.get(opcode)
        if operation is None or (kind.is_pred and opcode not in ("and", "or", "xor")):
            return None
        return _wrapped(operation(*operands), kind)


def _through_copies(instruction: Instruction) -> Instruction:
    while True:
        if instruction.opcode == "copy" or _is_scalar_bitcast(instruction):
            instruction = instruction.operands[0]
        elif instruction.opcode == "get-tuple-element" and (
            instruction.operands[0].opcode == "tuple"
        ):
            instruction = instruction.operands[0].operands[instruction.attributes["index"]]
        else:
            return instruction


def _is_scalar_bitcast(instruction: Instruction) -> bool:
    if instruction.opcode not in ("bitcast", "reshape"):
        return False
    source, result = instruction.operands[0].shape, instruction.shape
    return (
        isinstance(source, ArrayShape)
        and isinstance(result, ArrayShape)
        and source.elements == result.elements == 1
        and source.dtype is result.dtype
    )


def _is_element_of(instruction: Instruction, state: Instruction) -> bool:
    return instruction.opcode == "get-tuple-element" and instruction.operands[0] is state


def _is_slot(instruction: Instruction, state: Instruction, slot: int | None) -> bool:
    if slot is None:
        return instruction is state
    return _is_element_of(instruction, state) and instruction.attributes["index"] == slot


def _is_integer_scalar(instruction: Instruction) -> bool:
    shape = instruction.shape
    return (
        isinstance(shape, ArrayShape)
        and shape.elements == 1
        and (shape.dtype.is_integer or shape.dtype.is_pred)
    )


def _limits(kind: DType) -> tuple[int, int]:
    if kind.is_pred:
        return 0, 1
    if kind.kind == "signed":
        return -(1 << (kind.bits - 1)), (1 << (kind.bits - 1)) - 1
    return 0, (1 << kind.bits) - 1


def _wrapped(value: int, kind: DType) -> int:
    if kind.is_pred:
        return value & 1
    value &= (1 << kind.bits) - 1
    if kind.kind == "signed" and value >> (kind.bits - 1):
        value -= 1 << kind.bits
    return value
