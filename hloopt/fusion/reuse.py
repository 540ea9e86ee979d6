"""Which operands an instruction reads more than once an element."""

from __future__ import annotations

from typing import Final

from hloopt.analysis.elementwise import is_elementwise
from hloopt.ir import Computation, Instruction
from hloopt.ops.traits import REARRANGING

__all__ = ["reused_operands", "reused_parameters", "reuses"]

_USE: Final = REARRANGING - {"broadcast"} | {"concatenate", "gather"}


def reuses(instruction: Instruction, index: int) -> bool:
    """Whether an op may read an element of operand ``index`` for several result elements."""
    opcode = instruction.opcode
    if opcode in _USE or is_elementwise(instruction):
        return False
    if opcode == "pad":
        return index > 0
    if opcode == "reduce":
        return index >= len(instruction.operands) // 2
    if opcode == "dynamic-update-slice":
        return index > 1
    return True


def reused_operands(instruction: Instruction) -> set[Instruction]:
    """The operands of one op or fusion of which it may read elements several times."""
    operands = instruction.operands
    if instruction.opcode == "fusion":
        reused = reused_parameters(instruction.attributes["calls"])
        return {operands[parameter.parameter_number] for parameter in reused}
    return {operand for index, operand in enumerate(operands) if reuses(instruction, index)}


def reused_parameters(body: Computation) -> set[Instruction]:
    """Parameters with a path to the root on which some op reads elements several times."""
    reused: set[Instruction] = set()
    for instruction in reversed(body):
        if instruction.opcode == "tuple":
            continue
        for index, operand in enumerate(instruction.operands):
            if instruction in reused or reuses(instruction, index):
                reused.add(operand)
    return {parameter for parameter in body.parameters if parameter in reused}
