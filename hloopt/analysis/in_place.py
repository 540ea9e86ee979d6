"""Which operands an instruction writes its result into, and which ones it could.

``in_place_pairs`` are updates: the result is the operand's buffer with a part of it written anew
(``dynamic-update-slice``, ``scatter``, fusions of them, custom calls that say so).  ``may_overwrite`` decides
for any other instruction whether its result could take the operand's bytes while it reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from hloopt.analysis.elementwise import is_elementwise, is_same_place
from hloopt.analysis.layout import is_descending
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, walk
from hloopt.ops.traits import UPDATING
from hloopt.types import ArrayShape, Shape, TupleShape
from hloopt.verifier.readings import aliases

__all__ = ["InPlace", "in_place_pairs", "may_overwrite"]


_MOST_LOOKS: Final = 16
"""Updates of a fusion whose other readers are examined: each takes a walk over the body."""


@dataclass(frozen=True, slots=True)
class InPlace:
    """Leaf ``operand_index`` of operand number ``operand`` shares its buffer with result ``output_index``."""

    operand: int
    operand_index: tuple[int, ...]
    output_index: tuple[int, ...]


def in_place_pairs(instruction: Instruction) -> tuple[InPlace, ...]:
    """The operands an op, fusion or custom call updates in place, in the order of the results.

    A fusion does so where an update is its root or an element of it, and nothing that the update writes is read
    from the parameter afterwards: what else reads it is another result, which is computed first, or the update
    itself, at the place of the element it writes (anywhere, if it writes a single one).  An operand that the
    instruction has twice is none: it would be read while it changes.
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
    in memory: an elementwise op, or a fusion of such ops and of reshapes that move nothing, which is a loop or
    comes behind a dot.
    """
    operand = instruction.operands[number].shape
    result = _leaf(instruction.shape, index)
    if result is None or not isinstance(operand, ArrayShape) or not _same_places(operand, result):
        return False
    if instruction.opcode == "fusion":
        body = instruction.calls
        return _computes_in_place(instruction) and all(
            _is_pointwise(body.parameters[position])
            for position, other in enumerate(instruction.operands)
            if other is instruction.operands[number]
        )
    return is_elementwise(instruction) and operand.dims == result.dims


def _computes_in_place(fusion: Instruction) -> bool:
    """Whether each element of a fusion's results is read, computed and written by one thread or tile."""
    kind = fusion.attributes.get("kind")
    return kind == "kLoop" or (
        kind in ("kCustom", "kOutput") and any(one.opcode == "dot" for one in fusion.calls)
    )


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
        yield from _fusion_pairs(instruction.calls)
    else:
        for entry in aliases(instruction):
            yield InPlace(entry.parameter, entry.parameter_index, entry.output_index)


def _fusion_pairs(body: Computation) -> Iterator[InPlace]:
    several = body.root.opcode == "tuple"
    outputs = body.root.operands if several else (body.root,)
    updates = [_through_bitcasts(output) for output in outputs]
    writers = [one for one in updates if one.opcode in UPDATING]
    taken: set[int] = set()
    looks = _MOST_LOOKS
    for number, update in enumerate(updates):
        if update.opcode not in UPDATING:
            continue
        if update.opcode == "scatter" and len(update.operands) != 3:
            continue
        target = update.operands[0]
        while target.opcode == "bitcast" and len(target.users) == 1:
            target = target.operands[0]
        if target.opcode != "parameter" or target.parameter_number in taken:
            continue
        if sum(target.users.values()) != 1:
            looks -= 1
            if looks < 0 or not _is_read_in_time(update, target, writers):
                continue
        taken.add(target.parameter_number)
        yield InPlace(target.parameter_number, (), (number,) if several else ())


_ARRAY, _PART, _MIXED = "array", "part", "mixed"


def _is_read_in_time(
    update: Instruction, parameter: Instruction, writers: Sequence[Instruction]
) -> bool:
    """Whether all that a body reads of a parameter is read before the update writes there.

    Each value that comes from the parameter is ``_ARRAY``: an element is computed from the parameter's at the
    same place; ``_PART``: from that in whose place the update writes it; or ``_MIXED``.
    """
    body = parameter.computation
    if body is None or update.opcode != "dynamic-update-slice":
        return False
    source = update.operands[1]
    single = source.array.elements == 1
    places: dict[Instruction, str] = {parameter: _ARRAY}
    for instruction in walk.post_order(body):
        if instruction is not parameter and not places.keys().isdisjoint(instruction.operands):
            if instruction in writers and instruction is not update:
                return False
            places[instruction] = _place(instruction, update, places)
    target = update.operands[0]
    beside = {places[operand] for operand in update.operands[2:] if operand in places}
    return target is not source and (single or (places.get(source, _PART) == _PART and not beside))


def _place(instruction: Instruction, update: Instruction, places: Mapping[Instruction, str]) -> str:
    read = [operand for operand in dict.fromkeys(instruction.operands) if operand in places]
    found = {places[operand] for operand in read}
    if len(found) == 1 and all(_keeps_places(instruction, operand) for operand in read):
        return found.pop()
    if found == {_ARRAY} and is_same_place(instruction, update):
        return _PART
    return _MIXED


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


def _only_adds_ones(user: Instruction) -> bool:
    """Whether a broadcast repeats nothing."""
    if user.opcode != "broadcast":
        return False
    dimensions = user.dimensions
    return list(dimensions) == sorted(dimensions)


def _keeps_places(user: Instruction, operand: Instruction) -> bool:
    shape, result = operand.shape, user.shape
    if not isinstance(shape, ArrayShape) or not isinstance(result, ArrayShape):
        return False
    if user.opcode in ("reshape", "bitcast") or _only_adds_ones(user):
        return shape.elements == result.elements and is_descending(shape) and is_descending(result)
    if not is_elementwise(user) or shape.dims != result.dims:
        return False
    return shape.layout == result.layout or (is_descending(shape) and is_descending(result))
