"""Loops that carry a value along an array: the cumulative results they write, one by one.

A loop of n iterations, with a counter from 0 in steps of 1, reads ``x[k]``, carries ``c = op(c, x[k])`` and
writes ``c`` (or the ``c`` before) to ``y[k]``; ``k`` is the counter, or ``n - 1`` less the counter.
"""

from __future__ import annotations

from typing import Literal

from hloopt.analysis.trip_count import trip_count
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.ops.traits import ASSOCIATIVE
from hloopt.passes.loops.carried import used_reads, whole_uses
from hloopt.rewrite.pattern import splat_literal
from hloopt.rewrite.regions import identity
from hloopt.types import ArrayShape

__all__ = ["LoopScan", "loop_scans"]

Form = Literal["inclusive", "exclusive", "reverse"]


@dataclass(frozen=True)
class LoopScan:
    """``result`` is the element of the loop's state that a scan of ``source`` gives; ``last`` the carry's."""

    result: Instruction
    source: Instruction
    opcode: str
    form: Form
    last: tuple[Instruction, ...]


def loop_scans(loop: Instruction) -> list[LoopScan]:
    """All cumulative results of a ``while`` whose state is a tuple made for it."""
    state, start = loop.body.parameters[0], loop.operands[0]
    root = loop.body.root
    if root.opcode != "tuple" or start.opcode != "tuple" or not loop.is_tuple:
        return []
    if whole_uses(loop) or whole_uses(state):
        return []
    iterations = trip_count(loop)
    body = _Body(state, root, start)
    counter = body.counter() if iterations is not None and iterations > 1 else None
    if counter is None:
        return []
    assert iterations is not None
    elements = used_reads(loop)
    scans = (
        body.scan(at, counter, iterations, elements) for at in sorted(elements) if elements[at]
    )
    return [scan for scan in scans if scan is not None]


@dataclass(frozen=True)
class _Body:
    state: Instruction
    root: Instruction
    start: Instruction

    def slot(self, instruction: Instruction) -> int | None:
        """The element of the state that an instruction is."""
        return instruction.tuple_index if instruction.is_element_of(self.state) else None

    def counter(self) -> int | None:
        """The element that counts 0, 1, 2 ..."""
        for index, following in enumerate(self.root.operands):
            if following.opcode != "add" or not following.is_array:
                continue
            left, right = following.operands
            if left.constant_integer == 1:
                left, right = right, left
            begins = self.start.operands[index].constant_integer == 0
            if begins and self.slot(left) == index and right.constant_integer == 1:
                return index
        return None

    def direction(self, place: Instruction, counter: int, iterations: int) -> str:
        """Whether a place along an array goes up or down with the counter, or neither."""
        if self.slot(place) == counter:
            return "up"
        operands = place.operands
        if place.opcode == "subtract" and operands[0].constant_integer == iterations - 1:
            return "down" if self.slot(operands[1]) == counter else ""
        if place.opcode == "add":
            for one, other in (operands, operands[::-1]):
                negated = one.opcode == "negate" and self.slot(one.operands[0]) == counter
                if negated and other.constant_integer == iterations - 1:
                    return "down"
        return ""

    def scan(
        self,
        index: int,
        counter: int,
        iterations: int,
        elements: dict[int, list[Instruction]],
    ) -> LoopScan | None:
        """The scan that an element of the state becomes, where it is one."""
        update, user = self.root.operands[index], elements[index][0]
        if update.opcode != "dynamic-update-slice" or self.slot(update.operands[0]) != index:
            return None
        written = _row(update.operands[1], update.array, iterations)
        way = self.direction(update.operands[2], counter, iterations)
        if written is None or not way or not _are_zero(update.operands[3:]):
            return None
        carry, before = self.carry(written)
        if carry is None:
            return None
        step = self.root.operands[carry]
        source = self.source(step, carry, counter, iterations, way)
        if source is None or source.array.dims != user.array.dims:
            return None
        if not _is_neutral(self.start.operands[carry], step.opcode):
            return None
        if before and way == "down":
            return None
        form: Form = "exclusive" if before else "inclusive" if way == "up" else "reverse"
        last = () if before else tuple(elements.get(carry, ()))
        return LoopScan(user, source, step.opcode, form, last)

    def carry(self, written: Instruction) -> tuple[int | None, bool]:
        """The element whose new (or, True, old) value is written."""
        old = self.slot(written)
        if old is not None:
            return (old if self.root.operands[old].opcode in ASSOCIATIVE else None), True
        for index, following in enumerate(self.root.operands):
            if following is written and following.opcode in ASSOCIATIVE:
                return index, False
        return None, False

    def source(
        self, step: Instruction, carry: int, counter: int, iterations: int, way: str
    ) -> Instruction | None:
        """The array outside that is read row by row."""
        left, right = step.operands
        if self.slot(right) == carry:
            left, right = right, left
        if self.slot(left) != carry:
            return None
        piece = right.operands[0] if right.opcode == "reshape" else right
        if (
            piece.opcode != "dynamic-slice"
            or _row(right, piece.operands[0].array, iterations) is None
        ):
            return None
        array = self.slot(piece.operands[0])
        if array is None or self.root.operands[array] is not piece.operands[0]:
            return None
        if self.direction(piece.operands[1], counter, iterations) != way:
            return None
        if not _are_zero(piece.operands[2:]):
            return None
        return self.start.operands[array]


def _row(part: Instruction, whole: ArrayShape, iterations: int) -> Instruction | None:
    """What a row of ``whole`` is, where it has ``trips`` of them; a reshape of it is seen through."""
    rows = (1, *whole.dims[1:])
    if not whole.dims or whole.dims[0] != iterations:
        return None
    inner = part.operands[0] if part.opcode in ("reshape", "broadcast") else part
    if part.array.elements != ArrayShape(whole.dtype, rows).elements:
        return None
    if not inner.is_array or inner.array.elements != part.array.elements:
        return None
    sizes = [size for size in inner.array.dims if size != 1]
    return inner if sizes == [size for size in rows if size != 1] else None


def _are_zero(places: tuple[Instruction, ...]) -> bool:
    return all(place.constant_integer == 0 for place in places)


def _is_neutral(start: Instruction, opcode: str) -> bool:
    literal = splat_literal(start)
    if literal is None or literal.array is None:
        return False
    neutral = identity(opcode, start.array.dtype)
    return bool(literal.array == neutral) and str(literal.array) == str(neutral)
