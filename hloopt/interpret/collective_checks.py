"""Which collectives can run among how many participants: checked before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hloopt.interpret.context import Check
from hloopt.interpret.groups import check_groups, check_pairs, groups_of, listed_groups
from hloopt.interpret.transfers import check_transfer
from hloopt.ir import Instruction
from hloopt.ops.traits import COLLECTIVE, DEVICE_NUMBERS, DONES, op_table
from hloopt.types import UNBOUNDED, ArrayShape, IotaList, TupleShape, compatible, leaves
from hloopt.verifier.devices import replica_groups

__all__ = ["CHECKS", "check_among"]

_DEVICE_COUNTS = ("replica_count", "num_partitions")
_HINT = "(--participants runs several)"
_PERMUTES = ("collective-permute", "collective-permute-start")


# ---- one participant ----------------------------------------------------------------------------


def _check_devices(instruction: Instruction) -> str | None:
    computation = instruction.computation
    module = computation.module if computation is not None else None
    for name in _DEVICE_COUNTS if module is not None else ():
        count = int(module.attributes.get(name, 1)) if module is not None else 1
        if count > 1:
            return (
                f"{instruction.opcode} in a module with {name}={count}; only one participant is run "
                f"{_HINT}"
            )
    return None


def _check_groups(instruction: Instruction) -> str | None:
    groups = replica_groups(instruction)
    if groups is None:
        return f"replica_groups= of {instruction.opcode} are of no known form"
    if isinstance(groups, IotaList):
        largest = groups.dims[-1]
    else:
        try:
            largest = max(map(len, listed_groups(groups)), default=1)
        except ValueError as error:
            return f"replica_groups= of {instruction.opcode}: {error}"
    if largest > 1:
        return f"{instruction.opcode} among {largest} participants; only one is run {_HINT}"
    if instruction.opcode == "ragged-all-to-all":
        return _check_devices(instruction)
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
            return f"{instruction.opcode} of {operand} to {result}; only one participant is run {_HINT}"
    return None


def _check_pairs(instruction: Instruction) -> str | None:
    pairs = instruction.attributes["source_target_pairs"]
    others = [device for pair in pairs for device in pair if device != 0]
    if others:
        return f"{instruction.opcode} with participant {others[0]}; only number 0 is run {_HINT}"
    return _check_devices(instruction)


CHECKS: Mapping[str, Check] = op_table(
    {
        "all-gather": _check_groups,
        "all-gather-start": _check_groups,
        "all-reduce": _check_groups,
        "all-reduce-start": _check_groups,
        "all-to-all": _check_groups,
        "collective-broadcast": _check_groups,
        "collective-permute": _check_pairs,
        "collective-permute-start": _check_pairs,
        "partition-id": _check_devices,
        "ragged-all-to-all": _check_groups,
        "recv": lambda instruction: check_transfer(instruction, 1, 1),
        "reduce-scatter": _check_groups,
        "replica-id": _check_devices,
        "send": lambda instruction: check_transfer(instruction, 1, 1),
    },
    COLLECTIVE - DONES | DEVICE_NUMBERS | {"recv", "send"},
)
"""Why an instruction cannot be run by the only participant, or None."""


# ---- several ------------------------------------------------------------------------------------


def check_among(instruction: Instruction, replicas: int, partitions: int) -> str | None:
    """Why an instruction whose opcode is in ``CHECKS`` cannot be run by so many, or None."""
    opcode = instruction.opcode
    if opcode in DEVICE_NUMBERS:
        return None
    if opcode in ("send", "recv"):
        return check_transfer(instruction, replicas, partitions)
    if opcode in _PERMUTES:
        pairs = instruction.attributes["source_target_pairs"]
        return check_pairs(instruction, pairs, replicas, partitions)
    broadcast = opcode == "collective-broadcast"
    message = check_groups(instruction, replicas, partitions, complete=not broadcast)
    if message is not None or broadcast:
        return message
    for size in {len(group) for group in groups_of(instruction, replicas, partitions)}:
        message = _check_size(instruction, size)
        if message is not None:
            return message
    return None


def _check_size(instruction: Instruction, size: int) -> str | None:
    """Why a collective does not go with groups of a size."""
    opcode = instruction.opcode
    what = f"{opcode} among {size} participants"
    operands = instruction.operands
    if opcode == "ragged-all-to-all":
        updates = operands[2].array.elements
        return None if updates % size == 0 else f"{what} with {updates} offsets"
    dimensions = instruction.attributes.get("dimensions")
    if opcode == "all-to-all":
        if not dimensions:
            return None if len(operands) == size else f"{what} of {len(operands)} operands"
        whole = operands[0].array.dims[dimensions[0]]
        return None if whole % size == 0 else f"{what} of {operands[0].shape}"
    if not dimensions or opcode not in ("all-gather", "all-gather-start", "reduce-scatter"):
        return None
    for operand, result in _resized(instruction):
        small, large = operand.dims[dimensions[0]], result.dims[dimensions[0]]
        if opcode == "reduce-scatter":
            small, large = large, small
        if UNBOUNDED not in (small, large) and small * size != large:
            return f"{what} of {operand} to {result}"
    return None


def _resized(instruction: Instruction) -> Iterator[tuple[ArrayShape, ArrayShape]]:
    """The shapes of operands and of what they become."""
    given = [operand.array for operand in instruction.operands]
    results = [leaf for leaf in leaves(instruction.shape) if isinstance(leaf, ArrayShape)]
    if instruction.opcode == "all-gather-start" and isinstance(instruction.shape, TupleShape):
        results = [
            leaf for leaf in leaves(instruction.shape.elements[1]) if isinstance(leaf, ArrayShape)
        ]
    return zip(given, results, strict=False)
