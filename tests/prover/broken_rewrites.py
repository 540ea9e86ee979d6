"""Passes that are wrong on purpose, each in a way of its own: what bisecting and reducing have to find."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import hloopt
from hloopt.ir import Instruction, build, edit, walk

Rewrite = Callable[[Instruction], bool]


def _swapped(one: Instruction, *, first: int = 0) -> bool:
    operands = list(one.operands)
    if operands[first] is operands[first + 1] or operands[first].shape != operands[first + 1].shape:
        return False
    operands[first : first + 2] = operands[first + 1], operands[first]
    edit.set_operands(one, tuple(operands))
    return True


def _becomes(one: Instruction, opcode: str) -> bool:
    new = build.make(one, opcode, one.operands, shape=one.shape)
    edit.replace_instruction(one, new)
    return True


def _dropped(one: Instruction) -> bool:
    if one.shape != one.operands[0].shape:
        return False
    edit.replace_instruction(one, one.operands[0])
    return True


def subtract(one: Instruction) -> bool:
    """Operands of a subtraction exchanged where one of them is a broadcast."""
    wanted = one.opcode == "subtract" and any(x.opcode == "broadcast" for x in one.operands)
    return wanted and _swapped(one)


def select(one: Instruction) -> bool:
    """The wrong side of a select."""
    return one.opcode == "select" and _swapped(one, first=1)


def divide(one: Instruction) -> bool:
    """A division made a multiplication."""
    return one.opcode == "divide" and one.array.dtype.is_float and _becomes(one, "multiply")


def maximum(one: Instruction) -> bool:
    """The smaller one."""
    return one.opcode == "maximum" and _becomes(one, "minimum")


def negate(one: Instruction) -> bool:
    """A negation that is lost."""
    return one.opcode == "negate" and _dropped(one)


def exponential(one: Instruction) -> bool:
    """exp(a - b) without the exponential."""
    wanted = one.opcode == "exponential" and one.operands[0].opcode == "subtract"
    return wanted and _dropped(one)


def product(one: Instruction) -> bool:
    """A product of something with itself that becomes a sum."""
    wanted = one.opcode == "multiply" and one.operands[0] is one.operands[1]
    return wanted and _becomes(one, "add")


def shifted(one: Instruction) -> bool:
    """A slice that begins one element too early."""
    if one.opcode != "slice" or not any(part.start for part in one.attributes["slice"]):
        return False
    moved = tuple(
        replace(part, start=part.start - 1, limit=part.limit - 1) if part.start else part
        for part in one.attributes["slice"]
    )
    edit.set_attribute(one, "slice", moved)
    return True


def initial(one: Instruction) -> bool:
    """A sum that begins with 1."""
    if one.opcode != "reduce" or one.to_apply.root.opcode != "add" or len(one.operands) != 2:
        return False
    if not one.array.dtype.is_float:
        return False
    edit.set_operand(one, 1, build.splat(one, one.operands[1].array, 1))
    return True


def transposed(one: Instruction) -> bool:
    """A transpose of a square that is lost."""
    moves = one.opcode == "transpose" and list(one.dimensions) != sorted(one.dimensions)
    return moves and _dropped(one)


def joined(one: Instruction) -> bool:
    """Pieces in the wrong order."""
    return one.opcode == "concatenate" and len(one.operands) > 1 and _swapped(one)


def in_loops(one: Instruction) -> bool:
    """An addition of floats that is lost, in bodies of loops only."""
    inside = any(caller.opcode == "while" for caller in one.home.callers)
    wanted = inside and one.opcode == "add" and one.array.dtype.is_float
    return wanted and _dropped(one)


def direction(one: Instruction) -> bool:
    """A comparison turned round, of arrays only: loops still end."""
    if one.opcode != "compare" or not one.array.rank or one.direction not in ("GT", "LT"):
        return False
    edit.set_attribute(one, "direction", "GT" if one.direction == "LT" else "LT")
    return True


def crash(one: Instruction) -> bool:
    """An exception at a broadcast of a reduce."""
    if one.opcode == "broadcast" and one.operands[0].opcode == "reduce":
        raise KeyError("no such dimension")
    return False


def invalid(one: Instruction) -> bool:
    """A dot whose operands are exchanged and whose dimensions are not: seldom valid."""
    return one.opcode == "dot" and _exchanged(one)


def alone(one: Instruction) -> bool:
    """A sum over participants that each computes for itself."""
    return one.opcode == "all-reduce" and _dropped(one)


def _exchanged(one: Instruction) -> bool:
    left, right = one.operands[:2]
    if left is right:
        return False
    edit.set_operands(one, (right, left, *one.operands[2:]))
    return True


KINDS: Mapping[str, Rewrite] = {
    rewrite.__name__: rewrite
    for rewrite in (
        subtract, select, divide, maximum, negate, exponential, product, shifted, initial, transposed, joined,
        in_loops, direction, crash, invalid, alone,
    )
}  # fmt: skip


@dataclass(frozen=True)
class Broken(hloopt.Pass):
    """Make one kind of wrong rewrite wherever it fits.

    kind   the name of the rewrite
    """

    name: ClassVar[str] = "broken"

    kind: str = "subtract"

    def run(self, module: hloopt.Module, log: hloopt.PassLog) -> bool:
        """In computations that are run, not in what reductions apply."""
        changed = False
        for computation in walk.top_level_computations(module):
            for instruction in list(computation):
                if instruction.is_array and log.allows() and KINDS[self.kind](instruction):
                    log.hit("break", computation.root)
                    changed = True
        return changed
