"""Collectives among one participant: device 0 talks to itself.

A module for several devices, or a group of more than one of them, is refused before anything runs.
"""

from __future__ import annotations

import numpy as np

from hloopt.interpret.context import Check, Context, Evaluator, Value
from hloopt.interpret.control import zeros
from hloopt.ir import Instruction
from hloopt.types import IotaList, TupleShape, compatible, leaves

__all__ = ["CHECKS", "EVALUATORS"]

_DEVICE_COUNTS = ("replica_count", "num_partitions")


def _identity(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    """The operand, or all operands where the shape is a tuple: what one participant has it keeps."""
    return operands if isinstance(instruction.shape, TupleShape) else operands[0]


def _start(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    """(operand, result, context words); an older form has the shape of the result."""
    shape = instruction.shape
    if not isinstance(shape, TupleShape):
        return _collect(instruction, operands, context)
    sent = operands if len(operands) > 1 else operands[0]
    words = (zeros(word, context) for word in shape.elements[2:])
    return (sent, _collect(instruction, operands, context), *words)


def _collect(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    if instruction.opcode.startswith("collective-permute"):
        return _permute(instruction, operands, context)
    return operands if len(operands) > 1 else operands[0]


def _permute(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    """The operand where device 0 sends to itself; a device nobody sends to has zeros."""
    pairs = instruction.attributes["source_target_pairs"]
    return operands[0] if (0, 0) in pairs else zeros(instruction.operands[0].shape, context)


def _broadcast(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    groups = instruction.attributes.get("replica_groups", ())
    if isinstance(groups, IotaList) or not groups or any(0 in group for group in groups):
        return _identity(instruction, operands, context)
    return zeros(instruction.shape, context)


def _done(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    started = operands[0]
    return started[1] if isinstance(started, tuple) else started


def _all_reduce_done(
    instruction: Instruction, operands: tuple[Value, ...], context: Context
) -> Value:
    return operands[0]


def _device_id(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    return np.zeros((), instruction.array.dtype.numpy)


def _check_devices(instruction: Instruction) -> str | None:
    computation = instruction.computation
    module = computation.module if computation is not None else None
    for name in _DEVICE_COUNTS if module is not None else ():
        count = int(module.attributes.get(name, 1)) if module is not None else 1
        if count > 1:
            return f"{instruction.opcode} in a module with {name}={count}; only one device is run"
    return None


def _check_groups(instruction: Instruction) -> str | None:
    groups = instruction.attributes.get("replica_groups", ())
    if isinstance(groups, IotaList):
        largest = groups.dims[-1]
    elif isinstance(groups, tuple):
        largest = max((len(group) for group in groups), default=1)
    else:
        return f"replica_groups={groups} of {instruction.opcode} are not known here"
    if largest > 1:
        return f"{instruction.opcode} among {largest} participants; only one is run"
    shape = instruction.shape
    pairs_allowed = instruction.opcode == "all-gather-start"
    results = len(shape.elements) if isinstance(shape, TupleShape) else 1
    if not pairs_allowed and results != len(instruction.operands):
        return f"{len(instruction.operands)} operands of {instruction.opcode} for {shape}"
    return _check_result(instruction) or _check_devices(instruction)


def _check_result(instruction: Instruction) -> str | None:
    """One participant's parts are the whole: a result of another size is shared among several."""
    given = [leaf for operand in instruction.operands for leaf in leaves(operand.shape)]
    results = list(leaves(instruction.shape))[-len(given) :]
    for operand, result in zip(given, results, strict=True):
        if not compatible(operand, result):
            return f"{instruction.opcode} of {operand} to {result}; only one participant is run"
    return None


def _check_pairs(instruction: Instruction) -> str | None:
    if len(instruction.operands) != 1 or instruction.attributes.get("slice_sizes"):
        return f"{instruction.opcode} of slices into a given buffer"
    pairs = instruction.attributes["source_target_pairs"]
    others = [device for pair in pairs for device in pair if device != 0]
    if others:
        return f"{instruction.opcode} with device {others[0]}; only device 0 is run"
    return _check_devices(instruction)


EVALUATORS: dict[str, Evaluator] = {
    "all-gather": _identity,
    "all-gather-done": _done,
    "all-gather-start": _start,
    "all-reduce": _identity,
    "all-reduce-done": _all_reduce_done,
    "all-reduce-start": _identity,
    "all-to-all": _identity,
    "collective-broadcast": _broadcast,
    "collective-permute": _permute,
    "collective-permute-done": _done,
    "collective-permute-start": _start,
    "partition-id": _device_id,
    "reduce-scatter": _identity,
    "replica-id": _device_id,
}

CHECKS: dict[str, Check] = {
    "all-gather": _check_groups,
    "all-gather-start": _check_groups,
    "all-reduce": _check_groups,
    "all-reduce-start": _check_groups,
    "all-to-all": _check_groups,
    "collective-broadcast": _check_groups,
    "collective-permute": _check_pairs,
    "collective-permute-start": _check_pairs,
    "partition-id": _check_devices,
    "reduce-scatter": _check_groups,
    "replica-id": _check_devices,
}
