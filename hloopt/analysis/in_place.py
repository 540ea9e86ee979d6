"""Which operands an instruction writes its result into, and which it could.

``in_place_pairs`` are updates: the result is the operand's buffer with a part of it written anew
(``dynamic-update-slice``, ``scatter``, fusions of them, custom calls that say so).  ``may_overwrite`` asks of
any other instruction whether its result could take the operand's bytes while it reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hloopt.analysis.elementwise import is_elementwise
from hloopt.ir import Computation, Instruction
from hloopt.types import ArrayShape
from hloopt.verify.readings import aliases

__all__ = ["InPlace", "in_place_pairs", "may_overwrite"]


@dataclass(frozen=True, slots=True)
class InPlace:
    """Leaf ``operand_index`` of operand number ``operand`` shares its buffer with result ``output_index``."""

    operand: int
    operand_index: tuple[int, ...]
    output_index: tuple[int, ...]


def in_place_pairs(instruction: Instruction) -> tuple[InPlace, ...]:
    """The operands an op, fusion or custom call updates in place, in the order of the results.

    A fusion does so where an update is its root or an element of it, and its body reads the parameter
    nowhere else.  An operand that the instruction has twice is none: it would be read while it changes.
    """
    pairs = tuple(_pairs(instruction))
    return tuple(
        pair
        for pair in pairs
        if instruction.operands.count(instruction.operands[pair.operand]) == 1 or pair.operand_index
    )


def may_overwrite(instruction: Instruction, number: int) -> bool:
    """Whether the result may lie in the bytes of operand ``number`` although that is read.

    So it is when each element of the result is computed from the element of the operand at the same place:
    an elementwise op, or a loop fusion of such ops, of as many bytes and the same order of dimensions.
    """
    operand, result = instruction.operands[number].shape, instruction.shape
    if not isinstance(operand, ArrayShape) or not isinstance(result, ArrayShape):
        return False
    if operand.dims != result.dims or operand.dtype.bits != result.dtype.bits:
        return False
    if operand.layout != result.layout:
        return False
    if instruction.opcode == "fusion":
        body: Computation = instruction.attributes["calls"]
        return all(
            _is_pointwise(body.parameters[position])
            for position, other in enumerate(instruction.operands)
            if other is instruction.operands[number]
        )
    return is_elementwise(instruction)


def _pairs(instruction: Instruction) -> Iterator[InPlace]:
    opcode = instruction.opcode
    if opcode == "dynamic-update-slice":
        yield InPlace(0, (), ())
    elif opcode == "scatter":
        count = (len(instruction.operands) - 1) // 2
        for number in range(count):
            yield InPlace(number, (), (number,) if count > 1 else ())
    elif opcode == "fusion" and "output_to_operand_aliasing" not in instruction.attributes:
        yield from _fusion_pairs(instruction.attributes["calls"])
    elif "output_to_operand_aliasing" in instruction.attributes:
        for entry in aliases(instruction) or ():
            yield InPlace(entry.operand, entry.operand_index, entry.output_index)


def _fusion_pairs(body: Computation) -> Iterator[InPlace]:
    several = body.root.opcode == "tuple"
    taken: set[int] = set()
    for number, output in enumerate(body.root.operands if several else (body.root,)):
        update = _through_bitcasts(output)
        if update.opcode not in ("dynamic-update-slice", "scatter"):
            continue
        if update.opcode == "scatter" and len(update.operands) != 3:
            continue
        target = update.operands[0]
        while target.opcode == "bitcast" and len(target.users) == 1:
            target = target.operands[0]
        if target.opcode != "parameter" or sum(target.users.values()) != 1:
            continue
        if target.parameter_number not in taken:
            taken.add(target.parameter_number)
            yield InPlace(target.parameter_number, (), (number,) if several else ())


def _through_bitcasts(instruction: Instruction) -> Instruction:
    while instruction.opcode == "bitcast":
        instruction = instruction.operands[0]
    return instruction


def _is_pointwise(parameter: Instruction) -> bool:
    """Whether all that a body makes of a parameter keeps each element in its place."""
    pending, seen = [parameter], {parameter}
    while pending:
        for user in pending.pop().users:
            if user in seen:
                continue
            if not is_elementwise(user) or user.array.dims != parameter.array.dims:
                return False
            if user.array.layout != parameter.array.layout:
                return False
            seen.add(user)
            pending.append(user)
    return True
