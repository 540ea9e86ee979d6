"""Where values come from: use-def chains from an instruction back to the entry's parameters.

Tuples, calls, fusions, loops, conditionals and markers are followed here; which other ops are, and through
which of their operands, is for the caller to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from hloopt.interpret.control import branches
from hloopt.ir import Instruction, Module
from hloopt.ops.custom import MARKERS
from hloopt.ops.traits import op_table

__all__ = ["MOVES", "ArrayPlace", "Through", "by_table", "entry_places", "moved_from"]

ArrayPlace: TypeAlias = "tuple[Instruction, tuple[int, ...]]"
"""An instruction and the position of an array in its shape, empty for an array."""

Through: TypeAlias = "Callable[[Instruction], Sequence[Instruction] | None]"
"""The operands an op is followed through; None ends the search: the op computes new values."""

MOVES: Mapping[str, tuple[int, ...]] = op_table(
    {
        "all-gather": (0,),
        "all-to-all": (0,),
        "bitcast": (0,),
        "broadcast": (0,),
        "collective-permute": (0,),
        "constant": (),
        "convert": (0,),
        "copy": (0,),
        "dynamic-slice": (0,),
        "gather": (0,),
        "iota": (),
        "negate": (0,),
        "opt-barrier": (0,),
        "pad": (0,),
        "reduce-precision": (0,),
        "reshape": (0,),
        "reverse": (0,),
        "select": (1, 2),
        "slice": (0,),
        "transpose": (0,),
    },
    otherwise="it computes new values",
)
"""Ops whose elements are, but for sign and rounding, elements of these operands."""

# The search gives up after this many steps.
_FAR = 64
# Followed wherever they are met, whatever ``through`` says.
_CALLS = ("call", "fusion", "conditional")


def by_table(table: Mapping[str, tuple[int, ...]]) -> Through:
    """Follows the ops of a table through the operands of these numbers."""

    def through(instruction: Instruction) -> Sequence[Instruction] | None:
        numbers = table.get(instruction.opcode)
        return None if numbers is None else [instruction.operands[number] for number in numbers]

    return through


def entry_places(
    module: Module, starts: Iterable[ArrayPlace], through: Through, seen: set[ArrayPlace]
) -> Iterator[ArrayPlace]:
    """The arrays of the entry's parameters from which ``starts`` are reached.

    Places in ``seen`` are skipped, visited ones are added to it.
    """
    pending = list(starts)
    while pending:
        place = pending.pop()
        if place in seen:
            continue
        seen.add(place)
        if _is_entry_parameter(place, module):
            yield place
        else:
            pending.extend(_sources(place, through) or ())


def moved_from(module: Module, start: Instruction) -> list[ArrayPlace]:
    """The arrays of the entry's parameters whose elements an array consists of.

    Empty where some of its elements are computed, or come from very far away.
    """
    found: list[ArrayPlace] = []
    through = by_table(MOVES)
    seen: set[ArrayPlace] = set()
    pending: list[ArrayPlace] = [(start, ())]
    while pending:
        place = pending.pop()
        if place in seen:
            continue
        seen.add(place)
        if _is_entry_parameter(place, module):
            found.append(place)
            continue
        sources = _sources(place, through)
        if sources is None or len(seen) > _FAR:
            return []
        pending.extend(sources)
    return found


def _is_entry_parameter(place: ArrayPlace, module: Module) -> bool:
    return place[0].opcode == "parameter" and place[0].computation is module.entry


def _sources(place: ArrayPlace, through: Through) -> list[ArrayPlace] | None:
    """One step back; None where the search ends."""
    instruction, index = place
    opcode, operands = instruction.opcode, instruction.operands
    if opcode == "parameter":
        return list(_arguments(instruction, index))
    if opcode == "get-tuple-element":
        return [(operands[0], (instruction.attributes["index"], *index))]
    if opcode == "tuple":
        return [(operands[index[0]], index[1:])] if index else []
    if opcode == "concatenate":
        return [(operand, index) for operand in operands]
    if opcode == "while":
        return [(operands[0], index), (instruction.attributes["body"].root, index)]
    if opcode in _CALLS:
        return [(root, index) for root in _called_roots(instruction)]
    if opcode == "custom-call" and len(operands) == 1 and _is_marker(instruction):
        return [(operands[0], index)]
    followed = through(instruction)
    return None if followed is None else [(operand, index) for operand in followed]


def _is_marker(instruction: Instruction) -> bool:
    return instruction.custom_call_target in MARKERS


def _called_roots(caller: Instruction) -> list[Instruction]:
    if caller.opcode == "conditional":
        return [branch.root for branch in branches(caller)]
    return [caller.attributes["calls" if caller.opcode == "fusion" else "to_apply"].root]


def _arguments(parameter: Instruction, index: tuple[int, ...]) -> Iterator[ArrayPlace]:
    """What callers give for a parameter."""
    computation = parameter.computation
    assert computation is not None
    number = parameter.parameter_number
    for caller in computation.callers:
        if caller.opcode in ("call", "fusion"):
            yield caller.operands[number], index
        elif caller.opcode == "while":
            yield caller, index
        elif caller.opcode == "conditional":
            for at, branch in enumerate(branches(caller)):
                if branch is computation:
                    yield caller.operands[at + 1], index
