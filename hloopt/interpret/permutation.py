"""collective-permute: values that go from sources to targets, whole or as slices into buffers that are there.

The form in place has four operands: input, output, and the starts in each of the slices to be moved.  A pair
that names a source for the k-th time moves its k-th slice.  Where the output's starts differ between source
and target HLO does not say whose count, and the evaluation stops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from hloopt.interpret.context import Context, Value, array_of, leaf_arrays
from hloopt.interpret.control import zeros
from hloopt.interpret.failures import failure
from hloopt.interpret.groups import links
from hloopt.interpret.indexing import box
from hloopt.ir import Instruction
from hloopt.types import Array, TupleShape

__all__ = ["meet", "moved", "permute", "permute_start"]

_Operands: TypeAlias = "tuple[Value, ...]"
_Pairs: TypeAlias = "tuple[tuple[int, int], ...]"


def meet(
    instruction: Instruction,
    operands: _Operands,
    context: Context,
    group: tuple[int, ...],
    give: Callable[[Sequence[_Operands]], Sequence[Value]],
) -> Value:
    """Meet the others of a group; what ``give`` makes of all members' operands for this one.

    Raises ``EvaluationError`` where members bring arrays of different sizes, and for a ``ValueError`` of
    ``give``.
    """

    def combine(values: Sequence[Value]) -> Sequence[Value]:
        members = [value for value in values if isinstance(value, tuple)]
        first = _sizes(members[0])
        for number, member in zip(group, members, strict=True):
            if _sizes(member) != first:
                raise failure(
                    instruction,
                    f"participant {number} brings arrays of {_sizes(member)}, participant {group[0]} "
                    f"of {first}",
                )
        try:
            return give(members)
        except ValueError as error:
            raise failure(instruction, str(error)) from error

    return context.participant.exchange(instruction, group, operands, combine)


def _sizes(member: _Operands) -> list[list[int]]:
    return [list(array.shape) for array in leaf_arrays(member)]


def permute(instruction: Instruction, operands: _Operands, context: Context) -> Value:
    """Evaluate ``collective-permute``; a participant that is sent nothing has zeros, or its output."""
    participant = context.participant
    group, pairs = links(
        instruction,
        instruction.attributes["source_target_pairs"],
        participant.number,
        participant.replicas,
        participant.partitions,
    )
    sizes = instruction.attributes.get("slice_sizes")
    one = not isinstance(instruction.shape, TupleShape) and len(operands) == 1

    def give(members: Sequence[_Operands]) -> Sequence[Value]:
        sent = dict(zip(group, members, strict=True))
        if sizes is not None:
            return [moved(sent, pairs, number, sizes) for number in group]
        source_of = {target: source for source, target in pairs}
        results: list[Value] = []
        for number in group:
            source = source_of.get(number)
            if source is None:
                given = tuple(zeros(operand.shape, context) for operand in instruction.operands)
            else:
                given = sent[source]
            results.append(given[0] if one else given)
        return results

    return meet(instruction, operands, context, group, give)


def permute_start(instruction: Instruction, operands: _Operands, context: Context) -> Value:
    """(operand, result, context words ...); an older form has the shape of the result."""
    shape = instruction.shape
    result = permute(instruction, operands, context)
    if not isinstance(shape, TupleShape):
        return result
    nested = isinstance(shape.elements[0], TupleShape)
    if "slice_sizes" in instruction.attributes:
        sent: Value = operands[0]
    elif len(operands) == 1 and not nested:
        assert isinstance(result, tuple)
        sent, result = operands[0], result[0]
    else:
        sent = operands
    return (sent, result, *(zeros(word, context) for word in shape.elements[2:]))


def moved(
    members: dict[int, _Operands], pairs: _Pairs, number: int, sizes: Sequence[Sequence[int]]
) -> Value:
    """The output of participant ``number`` after the slices that pairs send it have been written.

    ``members`` has the four operands of all; ``sizes`` those of the slices of each buffer, one buffer
    after another.  Raises ``ValueError`` for slices that are not inside, and where it is not said where
    they go.
    """
    output = members[number][1]
    several = isinstance(output, tuple)
    targets = [array.copy() for array in leaf_arrays(output)]
    count = len(sizes) // len(targets)
    if count * len(targets) != len(sizes):
        raise ValueError(f"{len(sizes)} slice sizes for {len(targets)} buffers")
    sent, received = dict.fromkeys(members, 0), dict.fromkeys(members, 0)
    for source, target in pairs:
        at = sent[source]
        if at != received[target]:
            raise ValueError(
                f"transfer {at} of participant {source} is number {received[target]} of {target}"
            )
        sent[source] += 1
        received[target] += 1
        if target != number:
            continue
        if at >= count:
            raise ValueError(f"participant {source} sends {at + 1} times, {count} slices are given")
        for place, buffer in enumerate(targets):
            _move(members[source], members[target], buffer, (place, len(targets), at, count), sizes)
    return tuple(targets) if several else targets[0]


def _move(
    source: _Operands,
    target: _Operands,
    buffer: Array,
    where: tuple[int, int, int, int],
    sizes: Sequence[Sequence[int]],
) -> None:
    place, buffers, at, count = where
    given = list(leaf_arrays(source[0]))[place]
    starts, ends, own = (
        _starts(value, place, buffers, at, count) for value in (source[2], source[3], target[3])
    )
    if ends != own:
        raise ValueError(
            f"the source writes at {list(ends)}, the target expects it at {list(own)}; "
            "HLO does not say whose starts count"
        )
    slices = sizes[place * count + at]
    if len(slices) != buffer.ndim:
        raise ValueError(f"a slice of {list(slices)} is taken of {list(buffer.shape)}")
    for array, first, what in ((given, starts, "input"), (buffer, ends, "output")):
        if any(
            start < 0 or size < 0 or start + size > bound
            for start, size, bound in zip(first, slices, array.shape, strict=True)
        ):
            raise ValueError(
                f"a slice of {list(slices)} at {list(first)} is not inside the {what} of "
                f"{list(array.shape)}"
            )
    buffer[box(ends, slices)] = given[box(starts, slices)]


def _starts(value: Value, place: int, buffers: int, at: int, count: int) -> tuple[int, ...]:
    """The start of slice ``at`` of a buffer: each may have its own tuple, and so may each of its slices."""
    flat = [int(np.asarray(array_of(one))) for one in leaf_arrays(value)]
    rank = len(flat) // (buffers * count)
    if rank * buffers * count != len(flat):
        raise ValueError(f"{len(flat)} starts for {buffers * count} slices")
    first = (place * count + at) * rank
    return tuple(flat[first : first + rank])
