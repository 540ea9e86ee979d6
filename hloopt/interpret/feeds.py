"""Ops that exchange data with the host: infeed, outfeed, and send and recv with ``is_host_transfer=true``.

An instruction takes from its stream, or adds to it, when it is executed, in the order of its computation:
which is the order that the passes keep and that tokens require.  ``recv`` takes, ``recv-done`` passes through;
``send`` gives, ``send-done`` waits for nothing.  ``transfers`` has those between devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from hloopt.errors import EvaluationError
from hloopt.interpret import transfers
from hloopt.interpret.context import Context, Evaluator, Value, token
from hloopt.interpret.failures import failure
from hloopt.interpret.values import array_leaves, flatten_results, from_storage
from hloopt.ir import Instruction
from hloopt.ops.traits import TRANSFERS, op_table
from hloopt.types import Array, ArrayShape, Shape, TupleShape

__all__ = ["EVALUATORS"]

_Take: TypeAlias = "Callable[[ArrayShape], tuple[str, Array]]"


def _infeed(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    """(data, token)."""
    return (_read(instruction, context.host.infeed, context), token())


def _outfeed(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    for array in _written(instruction, operands, context):
        context.host.outfeed(array)
    return token()


def _send(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    """(data, context word, token)."""
    if not _is_host_transfer(instruction):
        return transfers.send(instruction, operands, context)
    channel = transfers.channel(instruction)
    for array in _written(instruction, operands, context):
        context.host.send(channel, array)
    return (operands[0], np.zeros((), np.uint32), token())


def _written(
    instruction: Instruction, operands: tuple[Value, ...], context: Context
) -> list[Array]:
    """The arrays of the first operand as the host keeps them, as far off as they are."""
    shape = instruction.operands[0].shape
    arrays = flatten_results(operands[0], shape, context)
    if context.bounds is not None:
        for array, (own, _) in zip(arrays, array_leaves(operands[0], shape), strict=True):
            context.bounds.record(array, context.bounds.of(own))
    return arrays


def _send_done(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    if not _is_host_transfer(instruction):
        return transfers.send_done(instruction, operands, context)
    return token()


def _recv(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    """(data, context word, token)."""
    if not _is_host_transfer(instruction):
        return transfers.recv(instruction, operands, context)
    channel = transfers.channel(instruction)
    data = _read(instruction, lambda shape: context.host.receive(channel, shape), context)
    return (data, np.zeros((), np.uint32), token())


def _recv_done(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    """(data, token)."""
    if not _is_host_transfer(instruction):
        return transfers.recv_done(instruction, operands, context)
    started = operands[0]
    assert isinstance(started, tuple)
    return (started[0], token())


def _read(instruction: Instruction, take: _Take, context: Context) -> Value:
    """A value for the first element of the instruction's shape; errors name the instruction."""
    shape = instruction.shape
    assert isinstance(shape, TupleShape)
    try:
        return _value(shape.elements[0], take, context)
    except EvaluationError as error:
        raise failure(instruction, error.message) from error


def _value(shape: Shape, take: _Take, context: Context) -> Value:
    if isinstance(shape, TupleShape):
        return tuple(_value(element, take, context) for element in shape.elements)
    assert isinstance(shape, ArrayShape)
    if not shape.dtype.is_array:
        return token()
    name, array = take(shape)
    if not shape.holds(array.shape):
        raise EvaluationError(
            f"{name} has dimensions {list(array.shape)}, but {shape} is to be read"
        )
    return context.round(from_storage(array, shape.dtype, name), shape.dtype)


def _is_host_transfer(instruction: Instruction) -> bool:
    return bool(instruction.attributes.get("is_host_transfer"))


EVALUATORS: Mapping[str, Evaluator] = op_table(
    {
        "infeed": _infeed,
        "outfeed": _outfeed,
        "recv": _recv,
        "recv-done": _recv_done,
        "send": _send,
        "send-done": _send_done,
    },
    TRANSFERS,
)
