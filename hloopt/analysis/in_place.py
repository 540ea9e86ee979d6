"""Which operands an instruction writes its result into, and which it could.

``in_place_pairs`` are updates: the result is the operand's buffer with a part of it written anew
(``dynamic-update-slice``, ``scatter``, fusions of them, custom calls that say so).  ``may_overwrite`` asks of
any other instruction whether its result could take the operand's bytes while it reads them.
"""

from __future__ import annotations

from collections.abc import Iterator

from hloopt.analysis.elementwise import is_elementwise
from hloopt.analysis.layout import is_descending
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.types import ArrayShape, Shape, TupleShape
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


def may_overwrite(instruction: Instruction, number: int, index: tuple[int, ...] = ()) -> bool:
    """Whether leaf ``index`` of the result may lie in the bytes of operand ``number``, which is read.

    So it is when each element of the results is computed from the element of the operand at the same place
    in memory: an elementwise op, or a loop fusion of such ops and of reshapes that move nothing.
    """
    operand = instruction.operands[number].shape
    result = _leaf(instruction.shape, index)
    if result is None or not isinstance(operand, ArrayShape) or not _same_places(operand, result):
        return False
    if instruction.opcode == "fusion":
        body: Computation = instruction.attributes["calls"]
        return instruction.attributes.get("kind") == "kLoop" and all(
            _is_pointwise(body.parameters[position])
            for position, other in enumerate(instruction.operands)
            if other is instruction.operands[number]
        )
    return is_elementwise(instruction) and operand.dims == result.dims


def _leaf(shape: Shape, index: tuple[int, ...]) -> ArrayShape | None:
    for number in index:
        if not isinstance(shape, TupleShape):
            return None
        shape = shape.elements[number]
    return shape if isinstance(shape, ArrayShape) else None


def _same_places(left: ArrayShape, right: ArrayShape) -> bool:
    """Whether elements in the order of memory are as many and as wide."""
    if left.elements != right.elements or left.dtype.bits != right.dtype.bits:
        return False
    if left.dims != right.dims:
        return is_descending(left) and is_descending(right)
    return left.layout == right.layout or (is_descending(left) and is_descending(right))


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
    """Whether a body computes from an element of a parameter only elements at the same place."""
    pending, seen = [parameter], {parameter}
    while pending:
        current = pending.pop()
        for user in current.users:
            if user in seen or (user.opcode == "tuple" and user.is_root):
                continue
            if not _keeps_places(user, current):
                return False
            seen.add(user)
            pending.append(user)
    return True


def _keeps_places(user: Instruction, operand: Instruction) -> bool:
    shape, result = operand.shape, user.shape
    if not isinstance(shape, ArrayShape) or not isinstance(result, ArrayShape):
        return False
    if user.opcode in ("reshape", "bitcast"):
        return shape.elements == result.elements and is_descending(shape) and is_descending(result)
    if not is_elementwise(user) or shape.dims != result.dims:
        return False
    return shape.layout == result.layout or (is_descending(shape) and is_descending(result))
