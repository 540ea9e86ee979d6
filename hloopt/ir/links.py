"""The links that ``edit`` keeps: neighbours, users, callers, parameters and operands, for it alone."""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection
from typing import Any, Final

from hloopt.ir.computation import Computation
from hloopt.ir.instruction import Instruction

__all__ = [
    "add_parameter",
    "attach",
    "computations_in",
    "drop_call",
    "drop_use",
    "edges_without",
    "home_of",
    "link",
    "operands_with",
    "register",
    "renumber_without",
    "unlink",
]

_MANY: Final = 32
"""Operands of an instruction from which a table says where each is."""


def home_of(instruction: Instruction) -> Computation:
    """The computation an instruction is in; raises ``ValueError`` for one that is in none."""
    if instruction.computation is None:
        raise ValueError(f"{instruction.name} is in no computation")
    return instruction.computation


def attach(
    computation: Computation,
    instruction: Instruction,
    previous: Instruction | None,
    following: Instruction | None,
) -> None:
    """Give an instruction a place and a name in a computation, and register its links."""
    if instruction.computation is not None:
        raise ValueError(f"{instruction.name} is already in {instruction.computation.name}")
    instruction.name = computation.fresh_name(instruction.name)
    computation.by_name[instruction.name] = instruction
    instruction.computation = computation
    link(computation, instruction, previous, following)
    register(computation, instruction)


def register(computation: Computation, instruction: Instruction) -> None:
    """Register an instruction with its operands and callees."""
    for operand in instruction.operands:
        operand.users[instruction] = operand.users.get(instruction, 0) + 1
    for value in instruction.attributes.values():
        if type(value) is tuple or type(value) is Computation:
            for called in computations_in(value):
                called.callers[instruction] = called.callers.get(instruction, 0) + 1
    if instruction.opcode == "parameter":
        add_parameter(computation, instruction)


def link(
    computation: Computation,
    instruction: Instruction,
    previous: Instruction | None,
    following: Instruction | None,
) -> None:
    """Put an instruction between two neighbours, of which either may be missing."""
    if computation._facts:
        computation._facts.clear()
    instruction._previous, instruction._next = previous, following
    if previous is None:
        computation._first = instruction
    else:
        previous._next = instruction
    if following is None:
        computation._last = instruction
    else:
        following._previous = instruction
    computation._count += 1


def unlink(computation: Computation, instruction: Instruction) -> None:
    """Take an instruction out from between its neighbours."""
    if computation._facts:
        computation._facts.clear()
    previous, following = instruction._previous, instruction._next
    if previous is None:
        computation._first = following
    else:
        previous._next = following
    if following is None:
        computation._last = previous
    else:
        following._previous = previous
    instruction._previous = instruction._next = None
    computation._count -= 1


def add_parameter(computation: Computation, parameter: Instruction) -> None:
    """Keep ``parameters`` in the order of their numbers; a text may define them in any order."""
    known = computation.parameters
    if known and known[-1].parameter_number > parameter.parameter_number:
        insort(known, parameter, key=_number)
    else:
        known.append(parameter)


def _number(parameter: Instruction) -> int:
    return parameter.parameter_number


def renumber_without(computation: Computation, gone: Collection[Instruction]) -> None:
    """Remove parameters; those behind them move up."""
    known, removed = computation.parameters, set(gone)
    first = min(map(known.index, gone), default=len(known))
    left = [parameter for parameter in known[first:] if parameter not in removed]
    known[first:] = left
    for number, parameter in enumerate(left, first):
        parameter.attributes["parameter_number"] = number


def operands_with(
    user: Instruction, old: Instruction, new: Instruction, count: int
) -> tuple[Instruction, ...]:
    """The operands of ``user`` with ``new`` for ``old``, which is there ``count`` times.

    Where there are many operands, a table says where each is, so that replacing them one by one does not
    scan the others.
    """
    operands = user.operands
    if count > 1 or len(operands) < _MANY:
        return tuple([new if operand is old else operand for operand in operands])
    if user._places is None or user._places[0] is not operands:
        user._places = operands, {operand: place for place, operand in enumerate(operands)}
    places = user._places[1]
    place = places.pop(old)
    operands = (*operands[:place], new, *operands[place + 1 :])
    places[new] = place
    user._places = operands, places
    return operands


def drop_use(operand: Instruction, user: Instruction) -> None:
    """``user`` has ``operand`` once less."""
    count = operand.users.get(user, 0)
    if count > 1:
        operand.users[user] = count - 1
    else:
        operand.users.pop(user, None)


def drop_call(computation: Computation, caller: Instruction) -> None:
    """``caller`` calls a computation once less."""
    count = computation.callers.get(caller, 0)
    if count > 1:
        computation.callers[caller] = count - 1
    else:
        computation.callers.pop(caller, None)


def computations_in(value: Any) -> tuple[Computation, ...]:
    """The computations that the value of an attribute is, or has."""
    if isinstance(value, Computation):
        return (value,)
    if isinstance(value, tuple) and value and isinstance(value[0], Computation):
        return value
    return ()


def edges_without(edges: tuple[Instruction, ...], gone: Instruction) -> tuple[Instruction, ...]:
    """Control edges but those to ``gone``."""
    return tuple(edge for edge in edges if edge is not gone)
