"""In which iteration a condition of a loop first has a value.

A comparison of an induction variable with a number (or with a value between two numbers) gives
the ranges of the variable in which it has the wanted value; ``first_within`` says when the variable first
reaches them, wrapping around.  ``and``, ``or`` and ``not`` combine such answers; an element of the state that
holds the condition of the iteration before gives its answer one iteration late.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Final

from hloopt.analysis.induction import Affine, Inductions
from hloopt.analysis.loop_reader import CallFrame, FramedInstruction, StateSlot, WhileLoop
from hloopt.analysis.loop_values import KnownValues, is_counted
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.ops.traits import EXTREMA, INVERSE, MIRRORED
from hloopt.types import DType

__all__ = ["Conditions", "First", "first_within", "first_within_any"]

_DEEPEST: Final = 32
_Ranges = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class First:
    """The first iteration in which something holds: between ``least`` and ``most``, infinity for never."""

    least: float
    most: float

    @property
    def is_exact(self) -> bool:
        """Whether both are the same."""
        return self.least == self.most

    def later(self) -> First:
        """One iteration later."""
        return First(self.least + 1, self.most + 1)


_UNKNOWN: Final = First(0, inf)
_AT_ONCE: Final = First(0, 0)
_NEVER: Final = First(inf, inf)


class Conditions:
    """When the pred values of one loop are first true or first false."""

    def __init__(self, loop: WhileLoop) -> None:
        self.loop = loop
        self.inductions = Inductions(loop)
        self._values = KnownValues(loop.inside, {})
        self._active: set[StateSlot] = set()

    def first(
        self, wanted: bool, instruction: Instruction, frame: CallFrame | None = None, depth: int = 0
    ) -> First:
        """The first iteration (from 0) in which an instruction of the loop is ``wanted``."""
        place = self.loop.inside.find(instruction, frame)
        if isinstance(place, StateSlot):
            return self._slot(wanted, place, depth)
        if place is None or depth > _DEEPEST or not is_counted(place[0]):
            return _UNKNOWN
        value = self._values.of(*place)
        if value is not None:
            return _AT_ONCE if bool(value) is wanted else _NEVER
        instruction, frame = place
        if instruction.opcode == "not":
            return self.first(not wanted, instruction.operands[0], frame, depth + 1)
        if instruction.opcode in ("and", "or") and instruction.array.dtype.is_pred:
            return self._joined(wanted, place, depth + 1)
        if instruction.opcode == "compare":
            return self._compared(wanted, place)
        return _UNKNOWN

    def _joined(self, wanted: bool, place: FramedInstruction, depth: int) -> First:
        """Of ``and``, false as soon as either is; true once both are in the same iteration."""
        instruction, frame = place
        found = [self.first(wanted, one, frame, depth) for one in instruction.operands]
        if wanted == (instruction.opcode == "or"):
            return First(min(one.least for one in found), min(one.most for one in found))
        least = max(one.least for one in found)
        if least == inf:
            return _NEVER
        both = all(self.at(int(least), *self._operand(place, index)) is wanted for index in (0, 1))
        return First(least, least if both else inf)

    def _operand(
        self, place: FramedInstruction, index: int
    ) -> tuple[Instruction, CallFrame | None]:
        return place[0].operands[index], place[1]

    def _slot(self, wanted: bool, slot: StateSlot, depth: int) -> First:
        """An element that the body computes for the next iteration."""
        shape = self.loop.shape(slot)
        if shape is None or not shape.dtype.is_pred or slot in self._active or depth > _DEEPEST:
            return _UNKNOWN
        initial = self.inductions.initial_value(slot)
        if initial is not None and bool(initial) is wanted:
            return _AT_ONCE
        following = self.loop.following(slot)
        if following == slot:
            return _NEVER if initial is not None else _UNKNOWN
        self._active.add(slot)
        if isinstance(following, StateSlot):
            late = self._slot(wanted, following, depth + 1)
        elif following is not None:
            late = self.first(wanted, *following, depth + 1)
        else:
            late = _UNKNOWN
        self._active.discard(slot)
        return First(late.least + 1 if initial is not None else 0, late.most + 1)

    def at(self, iteration: int, instruction: Instruction, frame: CallFrame | None) -> bool | None:
        """The value of a comparison of induction variables in an iteration, or None."""
        place = self.loop.inside.find(instruction, frame)
        if place is None or isinstance(place, StateSlot):
            return None
        value = self._values.of(*place)
        if value is not None:
            return bool(value)
        instruction, frame = place
        if instruction.opcode == "not":
            below = self.at(iteration, instruction.operands[0], frame)
            return None if below is None else not below
        if instruction.opcode == "compare":
            sides = [self._affine(operand, frame) for operand in instruction.operands]
            if sides[0] is not None and sides[1] is not None:
                difference = sides[0].at(iteration) - sides[1].at(iteration)
                return _holds(instruction.direction, difference)
        return None

    def _affine(self, instruction: Instruction, frame: CallFrame | None) -> Affine | None:
        if not is_counted(instruction) or not instruction.array.dtype.is_integer:
            return None
        return self.inductions.affine(instruction, frame)

    def _compared(self, wanted: bool, place: FramedInstruction) -> First:
        instruction, frame = place
        left, right = instruction.operands
        if not is_counted(left) or not left.array.dtype.is_integer:
            return _UNKNOWN
        direction = instruction.direction
        if not wanted:
            direction = INVERSE[direction]
        sides = self._affine(left, frame), self._affine(right, frame)
        if sides[0] is not None and sides[1] is not None and sides[0].step and sides[1].step:
            return _both_vary(direction, sides[0], sides[1])
        if sides[0] is not None and (sides[0].step or sides[1] is None):
            return _against(direction, sides[0], self._range(right, frame))
        if sides[1] is not None:
            return _against(MIRRORED[direction], sides[1], self._range(left, frame))
        return _UNKNOWN

    def _range(
        self, instruction: Instruction, frame: CallFrame | None, depth: int = 0
    ) -> tuple[int, int]:
        """The least and greatest value an integer may have, in whatever iteration."""
        kind = instruction.array.dtype
        affine = self._affine(instruction, frame)
        if affine is not None and not affine.step:
            return affine.at(0), affine.at(0)
        place = self.loop.inside.find(instruction, frame)
        low, high = kind.limits
        if place is None or isinstance(place, StateSlot) or depth > _DEEPEST:
            return low, high
        instruction, frame = place
        operands = instruction.operands
        if instruction.opcode not in _BOUNDING or not all(map(is_counted, operands)):
            return low, high
        parts = [self._range(operand, frame, depth + 1) for operand in operands]
        return _bounded(instruction.opcode, kind, parts)


_BOUNDING = EXTREMA | {"clamp", "convert"}


def _bounded(opcode: str, kind: DType, parts: list[tuple[int, int]]) -> tuple[int, int]:
    if opcode == "minimum":
        return min(part[0] for part in parts), min(part[1] for part in parts)
    if opcode == "maximum":
        return max(part[0] for part in parts), max(part[1] for part in parts)
    if opcode == "clamp":
        lower, value, upper = parts
        return _bounded("minimum", kind, [_bounded("maximum", kind, [lower, value]), upper])
    low, high = kind.limits
    (part,) = parts
    return part if low <= part[0] and part[1] <= high else (low, high)


def _holds(direction: str, difference: int) -> bool:
    return {
        "LT": difference < 0, "LE": difference <= 0, "GT": difference > 0,
        "GE": difference >= 0, "EQ": difference == 0, "NE": difference != 0,
    }[direction]  # fmt: skip


def _against(direction: str, variable: Affine, other: tuple[int, int]) -> First:
    """When a variable first compares so with something between two numbers."""
    possible, certain = _ranges(direction, *other, *variable.dtype.limits)
    return First(_first(variable, possible), _first(variable, certain))


def _first(variable: Affine, ranges: _Ranges) -> float:
    """In a wider unsigned type, negative numbers of the narrower one are the greatest."""
    modulus, turn = 1 << variable.inner.bits, 1 << variable.dtype.bits
    lowest, highest = variable.inner.limits
    inner = [
        (max(lowest, low - shift), min(highest, high - shift))
        for low, high in ranges
        for shift in (0, turn)
    ]
    found = first_within_any(variable.first, variable.step, modulus, inner)
    return inf if found is None else found


def _ranges(
    direction: str, low: int, high: int, lowest: int, highest: int
) -> tuple[_Ranges, _Ranges]:
    """Values from lowest to highest that may, and that must, compare so with a number from low to high."""
    if direction == "LT":
        return [(lowest, min(highest, high - 1))], [(lowest, min(highest, low - 1))]
    if direction == "LE":
        return [(lowest, min(highest, high))], [(lowest, min(highest, low))]
    if direction == "GT":
        return [(max(lowest, low + 1), highest)], [(max(lowest, high + 1), highest)]
    if direction == "GE":
        return [(max(lowest, low), highest)], [(max(lowest, high), highest)]
    inside = (max(lowest, low), min(highest, high))
    outside = [(lowest, min(highest, low - 1)), (max(lowest, high + 1), highest)]
    if direction == "EQ":
        return [inside], [inside] if low == high else []
    return outside if low == high else [(lowest, highest)], outside


def _both_vary(direction: str, left: Affine, right: Affine) -> First:
    """Two induction variables: by their distance, unless one wraps around before."""
    if left.inner is right.inner and left.dtype is right.dtype and direction in ("EQ", "NE"):
        gap = Affine(left.inner, left.inner, left.first - right.first, left.step - right.step)
        return _against(direction, gap, (0, 0))
    start, step = left.at(0) - right.at(0), left.step - right.step
    found = _first_difference(direction, start, step)
    if found is None or not all(_never_wraps(one, found) for one in (left, right)):
        return _UNKNOWN
    return First(found, found)


def _first_difference(direction: str, start: int, step: int) -> int | None:
    """The least t >= 0 at which ``start + t * step`` compares so with 0."""
    if _holds(direction, start):
        return 0
    if direction == "NE":
        return 1 if step else None
    if direction == "EQ":
        iterations, rest = divmod(-start, step) if step else (-1, 0)
        return iterations if iterations > 0 and not rest else None
    if direction in ("GT", "GE"):
        start, step = -start, -step
    if step >= 0:
        return None
    return start // -step + 1 if direction in ("LT", "GT") else -(-start // -step)


def _never_wraps(variable: Affine, iterations: int) -> bool:
    last = variable.first + iterations * variable.step
    return all(
        low <= number <= high
        for low, high in (variable.inner.limits, variable.dtype.limits)
        for number in (variable.first, last)
    )


def first_within(start: int, step: int, modulus: int, low: int, high: int) -> int | None:
    """The least t >= 0 for which ``start + t * step`` is congruent to one of low, low + 1 ... high.

    None where no such t exists, or none from ``low`` to ``high``.  Takes a number of steps that is
    logarithmic in the modulus, as Euclid's algorithm does.
    """
    if high < low:
        return None
    if high - low + 1 >= modulus:
        return 0
    left = (low - start) % modulus
    right = left + high - low
    if left == 0 or right >= modulus:
        return 0
    return _first_multiple(step % modulus, modulus, left, right)


def first_within_any(
    start: int, step: int, modulus: int, ranges: Iterable[tuple[int, int]]
) -> int | None:
    """As ``first_within``, for several ranges (low, high)."""
    found = (first_within(start, step, modulus, low, high) for low, high in ranges)
    return min((one for one in found if one is not None), default=None)


def _first_multiple(step: int, modulus: int, low: int, high: int) -> int | None:
    """The least t >= 0 with ``low <= t * step % modulus <= high``, where 0 <= low <= high < modulus.

    Without a multiple of the step in the range, the last one below it is short by a remainder; the number
    of rounds through the modulus is the solution of the same question modulo the step.
    """
    if low == 0:
        return 0
    if step == 0:
        return None
    if 2 * step > modulus:
        return _first_multiple(modulus - step, modulus, modulus - high, modulus - low)
    direct = -(-low // step)
    if direct * step <= high:
        return direct
    rounds = _first_multiple(modulus % step, step, -high % step, -low % step)
    return None if rounds is None else -(-(low + rounds * modulus) // step)
