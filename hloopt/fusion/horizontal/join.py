"""Merges several independent kernels into one.

Side by side, with a ``tuple`` of all results:

    tuple(add, multiply)

or concatenated, where they have different sizes: the results of all as one long array, of which each
reads its part:

    all = concatenate(reshape(add), reshape(multiply))
    tuple(slice(all), slice(all))

Costs are those of the bodies.  Readers of the results may precede the fusion afterwards:
``apply.restore_order`` repairs that, once for many fusions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hloopt.analysis.hero import results_of
from hloopt.analysis.layout import is_descending, physical_dims
from hloopt.fusion.horizontal.member import is_laid_out_like
from hloopt.fusion.merge import has_tuple_root
from hloopt.fusion.outputs import remove_dead_elements, remove_source
from hloopt.ir import Computation, Instruction, build, edit
from hloopt.types import ArrayShape, Layout, SliceRange, descending

__all__ = ["join_members", "replace_members"]


def join_members(
    members: Sequence[Instruction], consumer: Instruction, *, sliced: bool, prefix: str = ""
) -> Instruction:
    """One fusion, before ``consumer``, of ops and fusions that do not need each other.

    Nothing reads it yet: ``replace_members`` lets it take their place.  ``sliced`` fusions are kInput and
    made of one long array for each result; all members have as many.  The others are kLoop.  ``prefix`` begins
    the names of fusion and computation.
    """
    home = consumer.computation
    if home is None or home.module is None:
        raise ValueError(f"{consumer.name} is in no module")
    body = Computation(f"{prefix}horizontally_fused_computation")
    body.execution_thread = home.execution_thread
    edit.add_computation(home.module, body)
    operands, results = _side_by_side(members, body)
    if sliced:
        results = _sliced(results, body)
    body.root = build.make(body, "tuple", tuple(one for row in results for one in row))
    last = members[-1]
    fusion = Instruction(
        f"{prefix}fusion",
        "fusion",
        body.root.shape,
        operands,
        {"kind": "kInput" if sliced else "kLoop", "calls": body},
        last.metadata,
    )
    return edit.insert_before(consumer, fusion)


def replace_members(
    members: Sequence[Instruction], fusion: Instruction, consumer: Instruction
) -> None:
    """Let the readers of all members read the fusion that was made of them; the members go."""
    number = 0
    replaced: dict[Instruction, Instruction] = {}
    for member in members:
        remove_dead_elements(member)
        outputs = [result.array for result in results_of(member)]
        replaced |= _replacements(member, outputs, fusion, number, consumer)
        number += len(outputs)
    edit.replace_many(replaced)
    for old in replaced:
        if old.opcode == "get-tuple-element":
            edit.remove(old)
    for member in members:
        remove_source(member)


def _side_by_side(
    members: Sequence[Instruction], body: Computation
) -> tuple[tuple[Instruction, ...], list[tuple[Instruction, ...]]]:
    """Fill a body with copies of all members; return its operands, and each member's results."""
    parameters: dict[Instruction, Instruction] = {}
    for at, member in enumerate(members):
        for index, operand in enumerate(member.operands):
            if operand not in parameters:
                parameters[operand] = edit.append(
                    body,
                    Instruction(
                        f"param_{at}_{index}",
                        "parameter",
                        operand.shape,
                        (),
                        {"parameter_number": len(parameters)},
                    ),
                )
    results = [_copy(member, parameters, body) for member in members]
    return tuple(parameters), results


def _copy(
    member: Instruction, parameters: dict[Instruction, Instruction], body: Computation
) -> tuple[Instruction, ...]:
    values = [parameters[operand] for operand in member.operands]
    if member.opcode != "fusion":
        return (build.clone(member, body, tuple(values)),)
    inner = member.calls
    copies = dict(zip(inner.parameters, values, strict=True))
    results = results_of(member)
    for entry in inner:
        if entry.opcode == "parameter" or (entry is inner.root and entry.opcode == "tuple"):
            continue
        copies[entry] = build.clone(entry, body, tuple(copies[one] for one in entry.operands))
        for before in entry.control_predecessors:
            edit.add_control_edge(copies[before], copies[entry])
    return tuple(copies[result] for result in results)


def _sliced(
    results: list[tuple[Instruction, ...]], body: Computation
) -> list[tuple[Instruction, ...]]:
    """Concatenate the results of each number over all members, and slice them out again."""
    slices: list[list[Instruction]] = [[] for _ in results]
    for row in zip(*results, strict=True):
        whole = build.make(
            body, "concatenate", tuple(_flat(one, body) for one in row), {"dimensions": (0,)}
        )
        start = 0
        for at, one in enumerate(row):
            limit = start + one.array.elements
            found = build.make(body, "slice", (whole,), {"slice": (SliceRange(start, limit),)})
            slices[at].append(found)
            start = limit
    return [tuple(row) for row in slices]


def _flat(result: Instruction, body: Computation) -> Instruction:
    """All elements of a result in the order in which they lie in memory."""
    shape = result.array
    if shape.rank == 1:
        return result
    if not is_descending(shape):
        dims = physical_dims(shape)
        shape = replace(shape, dims=dims, layout=_row_major(shape, len(dims)))
        result = build.make(body, "bitcast", (result,), {}, shape=shape)
    line = replace(shape, dims=(shape.elements,), layout=_row_major(shape, 1))
    return build.make(body, "reshape", (result,), {}, shape=line)


def _row_major(shape: ArrayShape, rank: int) -> Layout | None:
    """A layout of another rank, elements packed as in ``shape``."""
    return None if shape.layout is None else replace(shape.layout, minor_to_major=_order(rank))


def _order(rank: int) -> tuple[int, ...]:
    return descending(rank).minor_to_major


def _replacements(
    member: Instruction,
    outputs: Sequence[ArrayShape],
    fusion: Instruction,
    first: int,
    consumer: Instruction,
) -> dict[Instruction, Instruction]:
    """What replaces a member, or its elements: the fusion's results from number ``first`` on."""
    values: dict[int, Instruction] = {}

    def value(index: int) -> Instruction:
        if index not in values:
            values[index] = _element(member, fusion, first + index, outputs[index], consumer)
        return values[index]

    if not has_tuple_root(member):
        return {member: value(0)}
    elements = [user for user in member.users if user.opcode == "get-tuple-element"]
    found = {element: value(element.tuple_index) for element in elements}
    if len(elements) < len(member.users):
        whole = tuple(value(index) for index in range(len(outputs)))
        found[member] = build.make(
            consumer, "tuple", whole, shape=member.shape, metadata=member.metadata
        )
    return found


def _element(
    member: Instruction, fusion: Instruction, number: int, shape: ArrayShape, at: Instruction
) -> Instruction:
    """The fusion's result in the shape that the member had for it."""
    element = build.make(
        at,
        "get-tuple-element",
        (fusion,),
        {"index": number},
        shape=fusion.elements[number],
        metadata=member.metadata,
    )
    if not is_laid_out_like(element.array, shape):
        element = build.make(at, "bitcast", (element,), {}, shape=shape, metadata=member.metadata)
    return element
