"""Moving an op, or the body of a fusion, into the body of another fusion.

A body has its parameters first, then its instructions, and what joins comes right after the
parameters: everything that uses it is there already.  Costs are those of what joins and of the operands of
both, whatever else the body holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import filterfalse
from typing import Final

from hloopt.analysis.hero import results_of, roots
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, build, edit
from hloopt.types import AliasEntry, TupleShape, record_of

__all__ = [
    "Alias",
    "arrange_operands",
    "arrange_results",
    "copy_in",
    "copy_in_all",
    "first_instruction",
    "fusion_aliases",
    "has_tuple_root",
    "needed_by",
    "new_parameter",
    "read_results",
    "set_aliases",
]

_ALIASING: Final = "output_to_operand_aliasing"


@dataclass(frozen=True, slots=True)
class Alias:
    """Part of a fusion's result that lies in the buffer of (part of) an operand.

    output, index  tuple indices in the result and in the operand
    kind           ``may-alias``, ``must-alias`` or empty
    """

    output: tuple[int, ...]
    operand: Instruction
    index: tuple[int, ...]
    kind: str = ""


def fusion_aliases(fusion: Instruction) -> list[Alias]:
    """What ``output_to_operand_aliasing`` says, by operands rather than their numbers."""
    return [
        Alias(
            entry.output_index, fusion.operands[entry.parameter], entry.parameter_index, entry.kind
        )
        for entry in record_of(fusion.attributes, _ALIASING, tuple) or ()
    ]


def set_aliases(fusion: Instruction, pairs: list[Alias]) -> None:
    """Write the pairs whose operands the fusion has; the attribute goes where none is left."""
    numbers = {operand: at for at, operand in enumerate(fusion.operands)} if pairs else {}
    entries = tuple(
        AliasEntry(pair.output, numbers[pair.operand], pair.index, pair.kind)
        for pair in pairs
        if pair.operand in numbers
    )
    edit.set_attribute(fusion, _ALIASING, AliasEntry.listed(entries) if entries else None)


def has_tuple_root(instruction: Instruction) -> bool:
    """Whether this is a fusion whose results are the operands of a ``tuple``."""
    if instruction.opcode != "fusion":
        return False
    return instruction.calls.root.opcode == "tuple"


def first_instruction(body: Computation) -> Instruction | None:
    """The first instruction after the parameters, which are moved to the front.

    None where there are parameters only: a fusion of the input may return one unchanged.
    """
    ahead = set()
    first = body._first
    while first is not None and first.opcode == "parameter":
        ahead.add(first)
        first = first._next
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


def copy_in(fusion: Instruction, source: Instruction, *, alone: bool) -> dict[int, Instruction]:
    """Copy ``source``, an op or a fusion, into the body of ``fusion``; the copies of its results by number.

    What the fusion read of the source is now computed inside.  Copied are the results that it reads
    (``alone``), or that anything reads.
    Operands of the source that the fusion has already are shared; the others become parameters at the end,
    in the order in which they are met from the source's last instruction to its first, as in XLA.
    ``source`` and its other users stay.
    """
    body = fusion.calls
    at = first_instruction(body) or body
    kept = fusion_aliases(fusion)
    made = {user for user in source.users if user.opcode == "get-tuple-element"} | {source}
    read = {
        parameter: operand
        for operand, parameter in zip(fusion.operands, body.parameters, strict=True)
        if operand in made
    }
    numbers = read_results(source, fusion if alone else None)
    inner = _copy(source, numbers, _Parameters(fusion, body, at), at)
    whole = None if has_tuple_root(source) else inner[0]
    for parameter, operand in read.items():
        if operand is not source and whole is None:
            value = inner[operand.tuple_index]
        elif operand is not source and whole is not None:
            value = build.clone(operand, at, (whole,))
        else:
            if whole is None:
                root: Instruction = source.calls.root
                whole = build.clone(root, at, tuple(inner.values()))
            value = whole
        edit.replace_uses(parameter, value)
        edit.remove(parameter)
    edit.remove_operands(fusion, set(read.values()))
    set_aliases(fusion, kept)
    for waited in (source, *read.values()):
        for before in waited.control_predecessors:
            edit.add_control_edge(before, fusion)
    return inner


def copy_in_all(fusion: Instruction, sources: Sequence[Instruction]) -> None:
    """``copy_in`` of several sources in turn, which looks at the fusion's operands once for all of them.

    Each source has one result, which the fusion alone reads, once; the fusion computes something already.
    """
    body = fusion.calls
    at = first_instruction(body)
    assert at is not None
    kept = fusion_aliases(fusion)
    parameters = _Parameters(fusion, body, at)
    gone = [parameters.of(source) for source in sources]
    for source, parameter in zip(sources, gone, strict=True):
        edit.replace_uses(parameter, _copy(source, [0], parameters, at)[0])
        while (before := at._previous) is not None and before.opcode != "parameter":
            at = before
        parameters.begin_at(at)
        for waited in source.control_predecessors:
            edit.add_control_edge(waited, fusion)
    edit.remove_parameters(body, gone)
    edit.remove_operands(fusion, set(sources))
    set_aliases(fusion, kept)


def _copy(
    source: Instruction, numbers: list[int], parameters: _Parameters, at: Instruction | Computation
) -> dict[int, Instruction]:
    if source.opcode != "fusion":
        operands = tuple(parameters.of(operand) for operand in source.operands)
        return {0: build.clone(source, at, operands)}
    body = source.calls
    outputs = {number: roots(body)[number] for number in numbers}
    outside = dict(zip(body.parameters, source.operands, strict=True))
    entries = needed_by(outputs.values())
    values: dict[Instruction, Instruction] = {}
    for entry in reversed(entries):
        for operand in entry.operands:
            if operand in outside:
                values[operand] = parameters.of(outside[operand])
    for entry in entries:
        if entry in outside:
            values[entry] = parameters.of(outside[entry])
            continue
        operands = tuple(values[operand] for operand in entry.operands)
        values[entry] = build.clone(entry, at, operands)
        for before in entry.control_predecessors:
            edit.add_control_edge(values[before], values[entry])
    if body.root in values and body.root not in outside and values[body.root].metadata is None:
        values[body.root].metadata = source.metadata
    return {number: values[output] for number, output in outputs.items()}


def needed_by(outputs: Iterable[Instruction]) -> list[Instruction]:
    """What some instructions need, each after its operands, the first operand's first."""
    done: dict[Instruction, None] = {}
    for output in outputs:
        stack = [output]
        while stack:
            top, height = stack[-1], len(stack)
            if top not in done:
                before = (*top.control_predecessors, *reversed(top.operands))
                stack.extend(filterfalse(done.__contains__, before))
            if len(stack) == height:
                done[stack.pop()] = None
    return list(done)


def read_results(source: Instruction, reader: Instruction | None = None) -> list[int]:
    """The results of an instruction that ``reader`` (or anything) reads, by number.

    All of them where a tuple is read whole.
    """
    if not has_tuple_root(source):
        return [0] if source.users or source.is_root else []
    everything = source.is_root and reader is None
    wanted: set[int] = set()
    for user in source.users:
        if user.opcode == "get-tuple-element":
            if reader is None or reader in user.users:
                wanted.add(user.tuple_index)
        elif reader is None or user is reader:
            everything = True
    return list(range(len(results_of(source)))) if everything else sorted(wanted)


class _Parameters:
    """The parameters of a body that is growing, by operand; new ones come before ``at``."""

    def __init__(
        self, fusion: Instruction, body: Computation, at: Instruction | Computation
    ) -> None:
        self._fusion = fusion
        self._body = body
        self._at = at
        self._of: dict[Instruction, Instruction] = {}
        for operand, parameter in zip(fusion.operands, body.parameters, strict=True):
            self._of.setdefault(operand, parameter)

    def begin_at(self, at: Instruction) -> None:
        """New parameters come before another instruction from now on."""
        self._at = at

    def of(self, operand: Instruction) -> Instruction:
        """The parameter for an operand, made where there is none."""
        known = self._of.get(operand)
        if known is None:
            known = self._of[operand] = new_parameter(len(self._body.parameters), operand)
            if isinstance(self._at, Instruction):
                edit.insert_before(self._at, known)
            else:
                edit.append(self._body, known)
            edit.add_operands(self._fusion, (operand,))
        return known


def arrange_operands(fusion: Instruction, order: Sequence[int]) -> None:
    """Put operands, and the parameters of the body, into an order of the numbers they have."""
    body = fusion.calls
    kept = fusion_aliases(fusion)
    edit.set_operands(fusion, tuple(fusion.operands[number] for number in order))
    edit.permute_parameters(body, order)
    for parameter in reversed(body.parameters):
        edit.move_before(next(iter(body)), parameter)
    set_aliases(fusion, kept)


def arrange_results(fusion: Instruction, order: Sequence[int]) -> bool:
    """Put results into an order of the numbers they have; say whether that could be done.

    It cannot where they are read otherwise than one by one, or where they share buffers with operands.
    """
    readers = list(fusion.users)
    if not has_tuple_root(fusion) or fusion.is_root or fusion_aliases(fusion):
        return False
    if any(reader.opcode != "get-tuple-element" for reader in readers):
        return False
    root: Instruction = fusion.calls.root
    edit.set_operands(root, tuple(root.operands[number] for number in order))
    shape = TupleShape(tuple(operand.shape for operand in root.operands))
    edit.set_shape(root, shape)
    edit.set_shape(fusion, shape)
    places = {old: new for new, old in enumerate(order)}
    for reader in readers:
        edit.set_attribute(reader, "index", places[reader.tuple_index])
    return True
