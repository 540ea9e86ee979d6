"""Moving an op, or the body of a fusion, into the body of another fusion.

A body stands with its parameters first, then its instructions, and what joins comes right behind the
parameters: everything that uses it is there already.  Costs are those of what joins and of the operands of
both, whatever else the body holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from hloopt.ir import Computation, Instruction, build, edit, walk
from hloopt.types import Verbatim

__all__ = [
    "Alias",
    "aliases",
    "copy_in",
    "first_instruction",
    "has_tuple_root",
    "new_parameter",
    "results",
    "set_aliases",
]

_ALIASING: Final = "output_to_operand_aliasing"
_ALIAS = re.compile(r"\{([\d,\s]*)\}\s*:\s*\(\s*(\d+)\s*,\s*\{([\d,\s]*)\}\s*(,[^()]*)?\)")


@dataclass(frozen=True, slots=True)
class Alias:
    """Part of a fusion's result that lies in the buffer of (part of) an operand.

    output, index  tuple indices in the result and in the operand
    rest           what the text says behind them
    """

    output: tuple[int, ...]
    operand: Instruction
    index: tuple[int, ...]
    rest: str = ""


def aliases(fusion: Instruction) -> list[Alias]:
    """What ``output_to_operand_aliasing`` says, by operands rather than their numbers."""
    value = fusion.attributes.get(_ALIASING)
    if not isinstance(value, Verbatim):
        return []
    return [
        Alias(_integers(output), fusion.operands[int(number)], _integers(index), rest or "")
        for output, number, index, rest in _ALIAS.findall(value.text)
    ]


def set_aliases(fusion: Instruction, pairs: list[Alias]) -> None:
    """Write the pairs whose operands the fusion has; the attribute goes where none is left."""
    numbers = {operand: at for at, operand in enumerate(fusion.operands)} if pairs else {}
    parts = [
        f"{_braces(pair.output)}: ({numbers[pair.operand]}, {_braces(pair.index)}{pair.rest})"
        for pair in pairs
        if pair.operand in numbers
    ]
    edit.set_attribute(fusion, _ALIASING, Verbatim(f"{{{', '.join(parts)}}}") if parts else None)


def has_tuple_root(instruction: Instruction) -> bool:
    """Whether this is a fusion whose results are the operands of a ``tuple``."""
    if instruction.opcode != "fusion":
        return False
    body: Computation = instruction.attributes["calls"]
    return body.root.opcode == "tuple"


def results(body: Computation) -> tuple[Instruction, ...]:
    """What a body computes: the operands of its ``tuple``, or its root alone."""
    return body.root.operands if body.root.opcode == "tuple" else (body.root,)


def first_instruction(body: Computation) -> Instruction | None:
    """The first instruction after the parameters, which are moved to the front.

    None where there are parameters only: a fusion of the text may hand one on as it is.
    """
    ahead = set()
    first = None
    for entry in body:
        if entry.opcode != "parameter":
            first = entry
            break
        ahead.add(entry)
    if first is not None and len(ahead) < len(body.parameters):
        for parameter in body.parameters:
            if parameter not in ahead:
                edit.move_before(first, parameter)
    return first


def new_parameter(number: int, operand: Instruction) -> Instruction:
    """A parameter for an operand, in no body yet."""
    return Instruction(
        f"param_{number}", "parameter", operand.shape, (), {"parameter_number": number}
    )


def copy_in(fusion: Instruction, source: Instruction) -> tuple[Instruction, ...]:
    """Copy ``source``, an op or a fusion, into the body of ``fusion``; the copies of its results.

    What the fusion read of the source it has inside now.  Operands of the source that the fusion has
    already are shared; the others become parameters at the end, in XLA's order: as an unfolding of the
    source from its last instruction to its first meets them.  ``source`` and its users stay.
    """
    body: Computation = fusion.attributes["calls"]
    first = first_instruction(body)
    kept = aliases(fusion)
    mine = [operand for operand in dict.fromkeys(fusion.operands) if _is_of(operand, source)]
    read = {
        parameter: operand
        for operand, parameter in zip(fusion.operands, body.parameters, strict=True)
        if operand in mine
    }
    edit_parameters = _Parameters(fusion, body, first)
    inner = _copy(source, edit_parameters, body if first is None else first)
    whole: Instruction | None = None if has_tuple_root(source) else inner[0]
    for parameter, operand in read.items():
        at = body if first is None else first
        if operand is not source and whole is None:
            value = inner[operand.attributes["index"]]
        elif operand is not source:
            assert whole is not None
            value = build.clone(operand, at, (whole,))
        else:
            if whole is None:
                root: Instruction = source.attributes["calls"].root
                whole = build.clone(root, at, inner)
            value = whole
        edit.replace_uses(parameter, value)
        edit.remove(parameter)
    edit.remove_operands(fusion, set(mine))
    set_aliases(fusion, kept)
    for before in source.control_predecessors:
        edit.add_control_edge(before, fusion)
    return inner


class _Parameters:
    """The parameters of a body that is growing, by operand."""

    def __init__(self, fusion: Instruction, body: Computation, first: Instruction | None) -> None:
        self._fusion = fusion
        self._body = body
        self._first = first
        pairs = zip(fusion.operands, body.parameters, strict=True)
        self._of: dict[Instruction, Instruction] = {}
        for operand, parameter in pairs:
            self._of.setdefault(operand, parameter)

    def of(self, operand: Instruction) -> Instruction:
        """The parameter for an operand, made where there is none."""
        known = self._of.get(operand)
        if known is None:
            known = new_parameter(len(self._body.parameters), operand)
            if self._first is None:
                edit.append(self._body, known)
            else:
                edit.insert_before(self._first, known)
            edit.add_operands(self._fusion, (operand,))
            self._of[operand] = known
        return known


def _copy(
    source: Instruction, parameters: _Parameters, at: Instruction | Computation
) -> tuple[Instruction, ...]:
    if source.opcode != "fusion":
        operands = tuple(parameters.of(operand) for operand in source.operands)
        return (build.clone(source, at, operands),)
    body: Computation = source.attributes["calls"]
    outside = dict(zip(body.parameters, source.operands, strict=True))
    entries = [entry for entry in walk.post_order(body) if entry.opcode != "parameter"]
    if body.root.opcode == "tuple":
        entries.remove(body.root)
    values: dict[Instruction, Instruction] = {}
    for read in _reads(entries, results(body)):
        if read in outside:
            values[read] = parameters.of(outside[read])
    for entry in entries:
        operands = tuple(values[operand] for operand in entry.operands)
        values[entry] = build.clone(entry, at, operands)
        for before in entry.control_predecessors:
            if before in values:
                edit.add_control_edge(values[before], values[entry])
    root = values.get(body.root)
    if root is not None and root.metadata is None and body.root not in outside:
        root.metadata = source.metadata
    return tuple(values[result] for result in results(body))


def _reads(entries: list[Instruction], last: tuple[Instruction, ...]) -> Iterator[Instruction]:
    for entry in reversed(entries):
        yield from entry.operands
    yield from last


def _is_of(operand: Instruction, source: Instruction) -> bool:
    """Whether an operand is the result of ``source`` or an element of it."""
    return operand is source or (
        operand.opcode == "get-tuple-element" and operand.operands[0] is source
    )


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.replace(",", " ").split())


def _braces(index: tuple[int, ...]) -> str:
    return f"{{{','.join(map(str, index))}}}"
