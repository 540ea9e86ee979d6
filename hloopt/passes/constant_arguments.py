"""Constants that every caller gives to a computation, put into it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.ir.signatures import branch_operands, with_elements, with_parameters
from hloopt.ir.walk import wrapped_computations
from hloopt.rewrite import PassLog, same_layout

__all__ = ["Arguments"]

_STEP = "put a constant argument into the computation"


class Arguments:
    """The computations whose parameters, and branches whose elements, may get values of their own."""

    def __init__(self, module: Module) -> None:
        wrapped = wrapped_computations(module)
        self._called = with_parameters(module) - wrapped
        self._given = with_elements(module) - wrapped

    def hand_in(self, computation: Computation, limit: int, log: PassLog) -> bool:
        """Use a constant in place of a parameter, or of an element, that is always given it.

        The constant has no more than ``limit`` elements, or one value repeated.  The parameters stay; dce
        takes them out.
        """
        places: Iterator[tuple[Instruction, list[Instruction]]] = iter(())
        if computation in self._called:
            places = _parameters(computation)
        elif computation in self._given:
            places = _elements(computation)
        changed = False
        for place, operands in places:
            value = _same_constant(place, operands, limit)
            if value is not None and (place.users or place.is_root) and log.allows():
                log.hit(_STEP, place, "every caller gives it the same constant")
                _use(place, value)
                changed = True
        return changed


def _parameters(computation: Computation) -> Iterator[tuple[Instruction, list[Instruction]]]:
    for number, parameter in enumerate(computation.parameters):
        yield parameter, [caller.operands[number] for caller in computation.callers]


def _elements(computation: Computation) -> Iterator[tuple[Instruction, list[Instruction]]]:
    tuples = [
        caller.operands[number]
        for caller in computation.callers
        for number, branch in branch_operands(caller)
        if branch is computation
    ]
    for user in list(computation.parameters[0].users):
        yield user, [given.operands[user.tuple_index] for given in tuples]


def _same_constant(
    place: Instruction, operands: Iterable[Instruction], limit: int
) -> Instruction | None:
    """One of the operands, where all are the same constant, or broadcasts of the same scalar."""
    first: Instruction | None = None
    for operand in operands:
        if not operand.is_array or not same_layout(operand.shape, place.shape):
            return None
        if "sharding" in operand.attributes or "sharding" in place.attributes:
            return None
        if first is None:
            first = operand
        elif _key(operand) != _key(first):
            return None
    return first if first is not None and _key(first) and _is_small(first, limit) else None


def _key(operand: Instruction) -> object:
    """Equal for equal constants; None for what is none."""
    if operand.opcode == "broadcast" and operand.operands[0].array.rank == 0:
        inner = _key(operand.operands[0])
        return inner and ("broadcast", inner)
    literal = operand.literal
    return None if literal is None or literal.elided else literal.key


def _is_small(operand: Instruction, limit: int) -> bool:
    return operand.opcode == "broadcast" or operand.array.elements <= limit


def _use(place: Instruction, value: Instruction) -> None:
    """Copy the constant to where it is used."""
    home = place.home
    position = next(entry for entry in home if entry.opcode != "parameter" or entry is place)
    operands = tuple(build.clone(inner, position, ()) for inner in value.operands)
    copy = build.clone(value, position, operands)
    copy.offset = -1
    edit.replace_uses(place, copy)
