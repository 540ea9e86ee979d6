"""Collectives: what each member of a group gets from the values of all, and which participants form a group.

The functions of arrays are plain: from the members' arrays, in the order of the group, to those of the
members.  Evaluators find the group and meet the others there (``participants``).  A participant that is alone
meets itself: it keeps what it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from hloopt.interpret.collective_checks import CHECKS
from hloopt.interpret.context import Context, Evaluator, Value, array_of, arrays_of
from hloopt.interpret.control import zeros
from hloopt.interpret.elementwise import convert
from hloopt.interpret.failures import failure
from hloopt.interpret.groups import DeviceGroup, groups_of
from hloopt.interpret.permutation import meet, permute, permute_start
from hloopt.interpret.reducer import Reducer, reducer_of
from hloopt.ir import Instruction
from hloopt.ops.traits import COLLECTIVE, DEVICE_NUMBERS, op_table
from hloopt.types import Array, DType, TupleShape

__all__ = [
    "CHECKS",
    "EVALUATORS",
    "all_gather",
    "all_to_all",
    "combined",
    "exchange",
    "ragged_all_to_all",
    "scattered",
    "summed",
]


# ---- arrays of all members ----------------------------------------------------------------------


def combined(parts: Sequence[Array], reducer: Reducer) -> Array:
    """f(... f(f(part 0, part 1), part 2) ...): the fold in the order of the group."""
    ufunc = reducer.ufunc()
    total = parts[0]
    for part in parts[1:]:
        total = np.asarray(ufunc(total, part)) if ufunc else reducer.apply([total], [part])[0]
    return total


def all_gather(parts: Sequence[Array], axis: int) -> Array:
    """The parts one after another."""
    return np.concatenate(parts, axis=axis)


def scattered(whole: Array, count: int, axis: int) -> list[Array]:
    """The whole cut into equal parts, one for each member.

    Raises ``ValueError`` when it does not divide.
    """
    if whole.shape[axis] % count:
        raise ValueError(f"dimension {axis} of {list(whole.shape)} does not divide by {count}")
    return np.split(whole, count, axis=axis)


def all_to_all(parts: Sequence[Array], axis: int) -> list[Array]:
    """Each part cut into as many slices; member i gets slice i of all, one after another.

    Raises ``ValueError`` when a part does not divide.
    """
    cut = [scattered(part, len(parts), axis) for part in parts]
    return [np.concatenate(slices, axis=axis) for slices in zip(*cut, strict=True)]


def ragged_all_to_all(members: Sequence[Sequence[Array]]) -> list[Array]:
    """Rows of run-time numbers exchanged; what each member has at the end in its output.

    A member's arrays are input, output, input offsets, send sizes, output offsets and receive sizes.  The last
    four have ``updates`` numbers for each member of the group: ``sizes[i * updates + k]`` rows of the
    input at the input offset go to member i's output at the output offset (which is said by the sender).
    Raises ``ValueError`` where rows are not there, or sender and receiver disagree on a size.
    """
    results = [member[1].copy() for member in members]
    count = len(members)
    tables = [
        [array.reshape(count, -1).astype(np.int64) for array in member[2:]] for member in members
    ]
    for sender, (arrays, (starts, sizes, targets, _)) in enumerate(
        zip(members, tables, strict=True)
    ):
        for receiver in range(count):
            for update in range(starts.shape[1]):
                size, start = int(sizes[receiver, update]), int(starts[receiver, update])
                target = int(targets[receiver, update])
                wanted = int(tables[receiver][3][sender, update])
                if size != wanted:
                    raise ValueError(
                        f"member {sender} sends {size} rows to member {receiver}, which receives {wanted}"
                    )
                _check_rows("input", arrays[0], start, size, sender)
                _check_rows("output", results[receiver], target, size, receiver)
                results[receiver][target : target + size] = arrays[0][start : start + size]
    return results


def _check_rows(what: str, array: Array, start: int, size: int, member: int) -> None:
    if size < 0 or start < 0 or start + size > array.shape[0]:
        raise ValueError(
            f"rows {start} to {start + size} of the {what} of member {member}, which has "
            f"{array.shape[0]}"
        )


# ---- meeting the others -------------------------------------------------------------------------

_Operands: TypeAlias = "tuple[Value, ...]"
_Give: TypeAlias = Callable[[Sequence[_Operands]], Sequence[Value]]
"""From all members' operands to what each of them gets; may raise ``ValueError``."""


def _group(instruction: Instruction, context: Context) -> DeviceGroup:
    """The participants of this one's group, in order; empty where it is in no group."""
    participant = context.participant
    if participant.count == 1:
        return (0,)
    known = participant.groups.get(instruction)
    if known is None:
        groups = groups_of(instruction, participant.replicas, participant.partitions)
        known = next((group for group in groups if participant.number in group), ())
        participant.groups[instruction] = known
    return known


def exchange(instruction: Instruction, operands: _Operands, context: Context, give: _Give) -> Value:
    group = _group(instruction, context)
    if not group:
        raise failure(instruction, f"no group has participant {context.participant.number}")
    return meet(instruction, operands, context, group, give)


def _listed(instruction: Instruction, results: Sequence[Value]) -> Value:
    """One result for each operand, in a tuple where there are several or the shape is one."""
    several = isinstance(instruction.shape, TupleShape) or len(results) > 1
    return tuple(results) if several else results[0]


def _reduced(instruction: Instruction, operands: _Operands, context: Context) -> Value:
    """``all-reduce`` and ``reduce-scatter``: what members bring may be reduced on its way to them."""

    def parts(totals: Sequence[Array], count: int) -> Sequence[Value]:
        return [_listed(instruction, part) for part in _cut(instruction, totals, count)]

    def give(members: Sequence[_Operands]) -> Sequence[Value]:
        return parts(_totals(instruction, members, context), len(members))

    group, participant = _group(instruction, context), context.participant
    totals = participant.reduce(instruction, group, tuple(arrays_of(operands))) if group else None
    if totals is None:
        return exchange(instruction, operands, context, give)
    return parts(totals, len(group))[group.index(participant.number)]


def _cut(
    instruction: Instruction, totals: Sequence[Array], count: int
) -> Sequence[tuple[Array, ...]]:
    """What each member gets of what was reduced: its part of a ``reduce-scatter``, else all."""
    if instruction.opcode != "reduce-scatter":
        return [tuple(totals)] * count
    (axis,) = instruction.attributes["dimensions"]
    return list(zip(*(scattered(total, count, axis) for total in totals), strict=True))


def summed(instruction: Instruction, arrays: Sequence[Array], context: Context) -> list[Array]:
    """Arrays like operands of ``all-reduce`` or ``reduce-scatter``, added over the members in f64.

    All members have to call it, each with as many arrays.
    """

    def give(members: Sequence[_Operands]) -> Sequence[Value]:
        totals = [np.add.reduce(arrays_of(parts)) for parts in zip(*members, strict=True)]
        return _cut(instruction, totals, len(members))

    found = exchange(instruction, tuple(arrays), context, give)
    assert isinstance(found, tuple)
    return arrays_of(found)


def _totals(
    instruction: Instruction, members: Sequence[_Operands], context: Context
) -> list[Array]:
    """Each operand combined over the members; a reducer of a wider type than theirs rounds once."""
    reducer = reducer_of(instruction.attributes["to_apply"], context)
    wide = reducer.dtypes[0]
    totals = []
    for operand, parts in zip(instruction.operands, zip(*members, strict=True), strict=True):
        kind = operand.array.dtype
        given = [_as_type(part, kind, wide, context) for part in arrays_of(parts)]
        totals.append(_as_type(combined(given, reducer), wide, kind, context))
    return totals


def _as_type(array: Array, source: DType, target: DType, context: Context) -> Array:
    """The array in another type, as ``convert`` gives it; rounded to its own where that is the same."""
    if source is target:
        return context.round(array, target)
    return convert(array, source, target, context)


def _all_gather(instruction: Instruction, operands: _Operands, context: Context) -> Value:
    return _listed(instruction, _gathered(instruction, operands, context))


def _gathered(instruction: Instruction, operands: _Operands, context: Context) -> Sequence[Value]:
    (axis,) = instruction.attributes["dimensions"]

    def give(members: Sequence[_Operands]) -> Sequence[Value]:
        whole = tuple(all_gather(arrays_of(parts), axis) for parts in zip(*members, strict=True))
        return [whole] * len(members)

    found = exchange(instruction, operands, context, give)
    assert isinstance(found, tuple)
    return found


def _all_gather_start(instruction: Instruction, operands: _Operands, context: Context) -> Value:
    """(operand, result, context words ...); an older form has the shape of the result."""
    results = _gathered(instruction, operands, context)
    shape = instruction.shape
    if not isinstance(shape, TupleShape):
        return results[0]
    if len(operands) > 1 or isinstance(shape.elements[1], TupleShape):
        whole: Value = tuple(results)
    else:
        whole = results[0]
    sent = operands if isinstance(shape.elements[0], TupleShape) else operands[0]
    return (sent, whole, *(zeros(word, context) for word in shape.elements[2:]))


def _all_to_all(instruction: Instruction, operands: _Operands, context: Context) -> Value:
    dimensions = instruction.attributes.get("dimensions")

    def give(members: Sequence[_Operands]) -> Sequence[Value]:
        if not dimensions:
            if len(members) != len(operands):
                raise ValueError(f"{len(operands)} operands in a group of {len(members)}")
            return [tuple(parts) for parts in zip(*members, strict=True)]
        parts = all_to_all([array_of(member[0]) for member in members], dimensions[0])
        return [_listed(instruction, [part]) for part in parts]

    return exchange(instruction, operands, context, give)


def _ragged_all_to_all(instruction: Instruction, operands: _Operands, context: Context) -> Value:
    return exchange(
        instruction,
        operands,
        context,
        lambda members: ragged_all_to_all([arrays_of(member) for member in members]),
    )


def _broadcast(instruction: Instruction, operands: _Operands, context: Context) -> Value:
    """What the first of the group has; zeros where no group names this one."""
    participant = context.participant
    alone = participant.count == 1
    if not (_names_first(instruction) if alone else _group(instruction, context)):
        return zeros(instruction.shape, context)
    return exchange(
        instruction,
        operands,
        context,
        lambda members: [_listed(instruction, members[0])] * len(members),
    )


def _names_first(instruction: Instruction) -> bool:
    """Whether a group has device 0, the only one there is."""
    groups = instruction.attributes.get("replica_groups", ())
    return not isinstance(groups, tuple) or not groups or any(0 in group for group in groups)


def _partition_id(instruction: Instruction, operands: _Operands, context: Context) -> Value:
    return np.array(context.participant.partition, instruction.array.dtype.numpy)


def _replica_id(instruction: Instruction, operands: _Operands, context: Context) -> Value:
    return np.array(context.participant.replica, instruction.array.dtype.numpy)


def _done(instruction: Instruction, operands: _Operands, context: Context) -> Value:
    started = operands[0]
    return started[1] if isinstance(started, tuple) else started


def _all_reduce_done(instruction: Instruction, operands: _Operands, context: Context) -> Value:
    return operands[0]


EVALUATORS: Mapping[str, Evaluator] = op_table(
    {
        "all-gather": _all_gather,
        "all-gather-done": _done,
        "all-gather-start": _all_gather_start,
        "all-reduce": _reduced,
        "all-reduce-done": _all_reduce_done,
        "all-reduce-start": _reduced,
        "all-to-all": _all_to_all,
        "collective-broadcast": _broadcast,
        "collective-permute": permute,
        "collective-permute-done": _done,
        "collective-permute-start": permute_start,
        "partition-id": _partition_id,
        "ragged-all-to-all": _ragged_all_to_all,
        "reduce-scatter": _reduced,
        "replica-id": _replica_id,
    },
    COLLECTIVE | DEVICE_NUMBERS,
)
