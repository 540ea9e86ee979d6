"""The branches of a conditional as expressions of what is outside of it.

Every instruction of a branch gets a key: equal keys in two branches are equal values, whichever branch is
taken.  What is given to the branches has the key of the outer instruction it is.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.ir.walk import called_computations, has_side_effect
from hloopt.ops.traits import CONSTRAINTS, REARRANGING, SEQUENTIAL, SOURCES, TUPLES
from hloopt.types import ArrayShape, Literal, TupleShape

__all__ = ["Branch", "branches_of", "is_movable", "is_trivial"]

Key = Hashable

_TRIVIAL = SOURCES | TUPLES | REARRANGING - {"reverse", "slice", "transpose"}
_FIXED = CONSTRAINTS | SEQUENTIAL | {"custom-call"}


@dataclass
class Branch:
    """One branch: its computation, its operand, and the keys of its instructions."""

    number: int
    computation: Computation
    operand: Instruction
    keys: Mapping[Instruction, Key]

    @property
    def parameter(self) -> Instruction:
        """What the branch is given."""
        return self.computation.parameters[0]

    @property
    def is_own(self) -> bool:
        """Whether the branch may change: it is called once, and takes apart a tuple made for it."""
        return (
            sum(self.computation.callers.values()) == 1
            and self.parameter.is_tuple
            and self.operand.opcode == "tuple"
            and not self.parameter.is_root
            and "sharding" not in self.parameter.attributes
            and all(user.opcode == "get-tuple-element" for user in self.parameter.users)
        )


def branches_of(conditional: Instruction) -> list[Branch]:
    """All branches, in the order of their operands."""
    numbers: dict[Hashable, int] = {}
    return [
        Branch(number, computation, operand, _keys(computation, operand, numbers))
        for number, (computation, operand) in enumerate(
            zip(called_computations(conditional), conditional.operands[1:], strict=True), 1
        )
    ]


def is_movable(instruction: Instruction) -> bool:
    """Whether an instruction of a branch may be computed outside of it."""
    return (
        instruction.is_understood
        and instruction.opcode not in _FIXED
        and instruction.op.family not in ("collective", "async", "host", "random")
        and not instruction.is_tied
        and not instruction.shape.is_dynamic
        and not has_side_effect(instruction)
    )


def is_trivial(instruction: Instruction) -> bool:
    """Whether an instruction computes nothing worth a place among the operands."""
    return instruction.opcode in _TRIVIAL


def _keys(
    computation: Computation, operand: Instruction, numbers: dict[Hashable, int]
) -> dict[Instruction, Key]:
    """Keys by value; small numbers stand for what is nested."""
    found: dict[Instruction, Key] = {}
    for instruction in computation:
        key: Hashable
        if instruction.opcode == "parameter":
            key = ("outer", operand)
        elif _is_element(instruction, computation, operand):
            key = ("outer", operand.operands[instruction.tuple_index])
        elif is_movable(instruction):
            inner = [numbers[found[entry]] for entry in instruction.operands]
            if len(inner) == 2 and instruction.op.commutative:
                inner.sort()
            key = (instruction.opcode, instruction.shape, *inner, *_attributes(instruction))
        else:
            key = ("own", instruction)
        found[instruction] = key
        numbers.setdefault(key, len(numbers))
    return found


def _is_element(instruction: Instruction, computation: Computation, operand: Instruction) -> bool:
    return (
        instruction.opcode == "get-tuple-element"
        and instruction.operands[0] is computation.parameters[0]
        and operand.opcode == "tuple"
        and isinstance(instruction.shape, (ArrayShape, TupleShape))
    )


def _attributes(instruction: Instruction) -> list[Hashable]:
    return [
        (name, value.key if isinstance(value, Literal) else value)
        for name, value in sorted(instruction.attributes.items())
        if name not in ("origin", "statistics")
    ]
