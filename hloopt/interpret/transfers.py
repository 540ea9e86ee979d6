"""Transfers between devices: send, recv and their ends.

Sources and targets are what ``frontend_attributes={_xla_send_recv_source_target_pairs=...}`` say: partitions
where the op has a positive channel, else replicas.  Without pairs, what one participant sends over a
channel is received by the one that receives from it.

A send does not wait: what it sends is kept until it is received, in order.  A ``recv`` does not wait
either; its context word is the number of the request, and ``recv-done`` waits for the data.  A participant
that no pair sends to receives zeros.
"""

from __future__ import annotations

import re
from collections.abc import Hashable

import numpy as np

from hloopt.interpret.context import Context, Value, array_of, token
from hloopt.interpret.control import zeros
from hloopt.interpret.failures import failure
from hloopt.interpret.participant import Participant
from hloopt.ir import Instruction
from hloopt.types import ArrayShape, FrontendAttributes, Shape, TupleShape

__all__ = ["channel", "check_transfer", "pairs_of", "recv", "recv_done", "send", "send_done"]

_PAIRS = "_xla_send_recv_source_target_pairs"
_PAIR = re.compile(r"\{\s*(\d+)\s*,\s*(\d+)\s*\}")


def pairs_of(instruction: Instruction) -> tuple[tuple[int, int], ...] | None:
    """The (source, target) pairs of a send or recv; None where it has none."""
    found = FrontendAttributes.of(instruction.attributes).get(_PAIRS)
    if found is None or "{" not in found:
        return None
    return tuple((int(source), int(target)) for source, target in _PAIR.findall(found))


def _own_id(instruction: Instruction, participant: Participant) -> tuple[int, int]:
    """What the pairs call this participant, and what distinguishes its group from others."""
    if channel(instruction) > 0:
        return participant.partition, participant.replica
    return participant.replica, participant.partition


def channel(instruction: Instruction) -> int:
    """The number of the channel, 0 where there is none."""
    return int(instruction.attributes.get("channel_id") or 0)


def send(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    """Keep the operand until it is received."""
    participant = context.participant
    data = operands[0]
    pairs, number = pairs_of(instruction), channel(instruction)
    if pairs is None:
        participant.claim(instruction, ("sends", number))
        participant.post(number, data, None)
    else:
        own, other = _own_id(instruction, participant)
        for source, target in pairs:
            if source == own:
                key = (number, other, source, target)
                participant.post(key, data, _number(number, other, target, participant))
    return (data, np.zeros((), np.uint32), token())


def send_done(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    """A token: nothing waits for a send."""
    return token()


def recv(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    """Post a request for data; the context word is its number."""
    participant = context.participant
    shape = instruction.shape
    assert isinstance(shape, TupleShape)
    pairs, number = pairs_of(instruction), channel(instruction)
    key: Hashable | None = None
    if pairs is None:
        participant.claim(instruction, ("receives", number))
        key = number
    else:
        own, other = _own_id(instruction, participant)
        source = next((source for source, target in pairs if target == own), None)
        if source is not None:
            key = (number, other, source, own)
    request = participant.request(key)
    return (
        zeros(shape.elements[0], context),
        np.array(request, np.uint32),
        token(),
    )


def recv_done(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    """The data, and a token; waits for a sender."""
    state = operands[0]
    assert isinstance(state, tuple)
    shape = instruction.shape
    assert isinstance(shape, TupleShape)
    participant = context.participant
    key = participant.close(instruction, int(array_of(state[1])))
    if key is None:
        return (zeros(shape.elements[0], context), token())
    data = participant.take(instruction, key, _sender(key, participant))
    if not _fits(data, shape.elements[0], context):
        raise failure(instruction, f"is sent {_said(data)}, not {shape.elements[0]}")
    return (data, token())


def _sender(key: Hashable, participant: Participant) -> int | None:
    """The sender of the data under a key; None where only the channel is known."""
    if not isinstance(key, tuple):
        return None
    number, other, source, _ = key
    return _number(number, other, source, participant)


def _number(channel: int, other: int, own: int, participant: Participant) -> int:
    """The participant that pairs call ``own`` within the group that ``other`` distinguishes."""
    if channel > 0:
        return int(other * participant.partitions + own)
    return int(own * participant.partitions + other)


def check_transfer(instruction: Instruction, replicas: int, partitions: int) -> str | None:
    """Why a send or recv between devices cannot be run among so many, or None."""
    if instruction.opcode not in ("send", "recv") or instruction.attributes.get("is_host_transfer"):
        return None
    pairs, number = pairs_of(instruction), channel(instruction)
    if pairs is None:
        if number > 0:
            return None
        return f"{instruction.opcode} has neither source-target pairs nor a channel_id"
    count, what = (partitions, "partitions") if number > 0 else (replicas, "replicas")
    for pair in pairs:
        for device in pair:
            if device >= count:
                return f"{instruction.opcode} with device {device}; only {count} {what} are run"
    return None


def _fits(value: Value, shape: Shape, context: Context) -> bool:
    if isinstance(shape, TupleShape):
        return (
            isinstance(value, tuple)
            and len(value) == len(shape.elements)
            and all(
                _fits(part, element, context)
                for part, element in zip(value, shape.elements, strict=True)
            )
        )
    if isinstance(value, tuple) or not isinstance(shape, ArrayShape):
        return False
    return value.dtype == context.carrier(shape.dtype) and shape.holds(value.shape)


def _said(value: Value) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_said, value))})"
    return f"{value.dtype.name}{list(value.shape)}"
