"""Collectives: which devices talk to each other.

The rules are those of XLA's verifier.  A replica or partition count of 1 is what a module has that does not
say it, and nothing is held against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

from hloopt.ir import Instruction, Module
from hloopt.ops import OPS
from hloopt.types import ArrayShape, IotaList, MeshGroups, Shape, TupleShape, record_of
from hloopt.verifier.constraints import Fault

__all__ = ["DeviceChecks", "Groups", "group_mode", "replica_groups"]

_GLOBAL = frozenset(opcode for opcode, row in OPS.items() if row.attribute("use_global_device_ids"))
_UNEVEN = ("all-reduce", "all-reduce-start")
Groups = tuple[tuple[int, ...], ...] | IotaList | MeshGroups


class DeviceChecks:
    """The checks of collectives by opcode, for one module."""

    def __init__(self, module: Module) -> None:
        self._replicas = _count(module, "replica_count")
        self._partitions = _count(module, "num_partitions")
        self._constrained: Instruction | None = None
        # Groups are shared by many instructions; the value keeps the key's id from being used again.
        self._sound: dict[int, tuple[object, tuple[str, int]]] = {}
        self.by_opcode: dict[str, Callable[[Instruction], Iterator[Fault]]] = {
            **dict.fromkeys((*_GLOBAL, "all-to-all", "ragged-all-to-all"), self._grouped),
            "collective-permute": self._permute,
            "collective-permute-start": self._permute,
        }

    # ---- groups -------------------------------------------------------------------------------------

    def _grouped(self, instruction: Instruction) -> Iterator[Fault]:
        if instruction.opcode in _UNEVEN:
            yield from self._layouts(instruction)
        mode = group_mode(instruction)
        if not mode:
            yield Fault(
                instruction, "replica-groups", "use_global_device_ids=true needs a channel_id="
            )
            return
        channel = instruction.attributes.get("channel_id")
        if instruction.opcode == "all-reduce" and channel is not None and channel < 1:
            yield Fault(instruction, "channel", f"channel_id={channel} is not positive")
        groups = replica_groups(instruction)
        if groups is None:
            return
        message = self._groups_message(instruction, groups, mode)
        if message:
            yield Fault(instruction, "replica-groups", message)
        elif not isinstance(groups, tuple) or instruction.opcode not in _UNEVEN:
            yield from self._sized(instruction, groups, mode)

    def _groups_message(self, instruction: Instruction, groups: Groups, mode: str) -> str:
        if not groups:
            if mode == "flattened_id":
                return "replica_groups= must list the devices where use_global_device_ids=true"
            return ""
        message, count = self._listed(groups)
        if message:
            return message
        wanted = self._members(mode)
        if wanted not in (1, count):
            return f"replica_groups= name {count} devices, the module has {wanted} in mode {mode}"
        if isinstance(groups, tuple) and instruction.opcode not in _UNEVEN:
            sizes = sorted({len(group) for group in groups})
            if len(sizes) > 1:
                return f"replica_groups= have {sizes[0]} and {sizes[-1]} members, not one size"
        return ""

    def _listed(self, groups: Groups) -> tuple[str, int]:
        """What is wrong with a list of groups, and how many devices it names."""
        known = self._sound.get(id(groups))
        if known is None:
            known = groups, _listed(groups)
            self._sound[id(groups)] = known
        return known[1]

    def _members(self, mode: str) -> int:
        return {
            "cross_partition": self._partitions,
            "flattened_id": self._replicas * self._partitions,
        }.get(mode, self._replicas)

    def _sized(self, instruction: Instruction, groups: Groups, mode: str) -> Iterator[Fault]:
        """What inference cannot see: group sizes that come from the module's counts."""
        size = _group_size(groups) or self._members(mode)
        if mode == "cross_replica_and_partition":
            size *= self._partitions
        attributes, operands = instruction.attributes, instruction.operands
        if instruction.opcode == "all-to-all":
            if "dimensions" not in attributes and size not in (1, len(operands)):
                yield Fault(
                    instruction,
                    "replica-groups",
                    f"{len(operands)} operands are exchanged in groups of {size}",
                )
            return
        dims = attributes.get("dimensions")
        part = _first_part(instruction)
        if size == 1 or not dims or part is None or not isinstance(operands[0].shape, ArrayShape):
            return
        small, large = operands[0].shape.dims[dims[0]], part.dims[dims[0]]
        if instruction.opcode == "reduce-scatter":
            small, large = large, small
        if min(small, large) > 0 and -(-large // small) != size:
            yield Fault(
                instruction,
                "replica-groups",
                f"dimension {dims[0]} is {small} in a part and {large} in the whole, in groups of "
                f"{size}",
            )

    def _layouts(self, instruction: Instruction) -> Iterator[Fault]:
        first = self._constrained
        if first is None:
            self._constrained = instruction
        elif _constrains(first) != _constrains(instruction):
            here, there = (str(_constrains(one)).lower() for one in (instruction, first))
            yield Fault(
                instruction,
                "constrain-layout",
                f"constrain_layout={here}, %{first.name} has {there}; all must agree",
            )

    # ---- pairs --------------------------------------------------------------------------------------

    def _permute(self, instruction: Instruction) -> Iterator[Fault]:
        inplace = len(instruction.operands) == 4 and "slice_sizes" in instruction.attributes
        times = 1
        if inplace:
            message = _inplace_message(*(operand.shape for operand in instruction.operands))
            if message:
                yield Fault(instruction, "shape", message)
                return
            times = _transfers(instruction.operands[0].shape, instruction.operands[2].shape)
        pairs = instruction.attributes.get("source_target_pairs")
        if not isinstance(pairs, tuple):
            return
        limit = self._partitions if "channel_id" in instruction.attributes else self._replicas
        message = _pairs_message(pairs, limit, times)
        if message:
            yield Fault(instruction, "collective-pairs", f"source_target_pairs=: {message}")


def _count(module: Module, name: str) -> int:
    count = module.attributes.get(name, 1)
    return count if isinstance(count, int) and count > 0 else 1


def group_mode(instruction: Instruction) -> str:
    """How a collective means ids: as written, or by channel and flag; empty for what may not be."""
    attributes = instruction.attributes
    written = attributes.get("mode")
    if isinstance(written, str):
        return written
    channel = "channel_id" in attributes
    if instruction.opcode not in _GLOBAL:
        return "cross_partition" if channel else "cross_replica"
    if attributes.get("use_global_device_ids"):
        return "flattened_id" if channel else ""
    return "cross_replica_and_partition" if channel else "cross_replica"


def replica_groups(instruction: Instruction) -> Groups | None:
    """The groups as they are written; None for a form that is not known."""
    value = instruction.attributes.get("replica_groups", ())
    if isinstance(value, tuple | IotaList):
        return value
    return record_of(instruction.attributes, "replica_groups", MeshGroups)


def _listed(groups: Groups) -> tuple[str, int]:
    if isinstance(groups, MeshGroups):
        return "", groups.mesh.count
    if isinstance(groups, IotaList):
        count = prod(groups.dims)
        if count != prod(groups.reshape) or count < 1:
            return f"replica_groups={_shown(groups)} regroup {prod(groups.reshape)} devices", 0
        order = groups.permutation
        if order and sorted(order) != list(range(len(groups.reshape))):
            return f"replica_groups={_shown(groups)} do not permute all dimensions", 0
        return "", count
    members: set[int] = set()
    count = 0
    for group in groups:
        if not group:
            return "replica_groups= have an empty group", 0
        for device in group:
            if device in members:
                return f"replica_groups= name device {device} twice", 0
            members.add(device)
            count += 1
    for device in members:
        if not 0 <= device < count:
            missing = next(number for number in range(count) if number not in members)
            return f"replica_groups= name {count} devices, but not device {missing}", 0
    return "", count


def _shown(groups: IotaList) -> str:
    dims, reshape = (",".join(map(str, part)) for part in (groups.dims, groups.reshape))
    return f"[{dims}]<=[{reshape}]"


def _group_size(groups: Groups) -> int:
    """Devices in a group; 0 where the module's counts decide."""
    if isinstance(groups, IotaList):
        return groups.dims[-1] if groups.dims else 0
    if isinstance(groups, MeshGroups):
        return prod(axis.size or groups.mesh.sizes.get(axis.name, 1) for axis in groups.axes)
    return len(groups[0]) if groups else 0


def _first_part(instruction: Instruction) -> ArrayShape | None:
    """The shape that the first operand becomes."""
    shape: Shape = instruction.shape
    if instruction.opcode == "all-gather-start" and isinstance(shape, TupleShape):
        shape = shape.elements[1]
    if isinstance(shape, TupleShape) and shape.elements:
        shape = shape.elements[0]
    return shape if isinstance(shape, ArrayShape) else None


def _constrains(instruction: Instruction) -> bool:
    return bool(instruction.attributes.get("constrain_layout"))


# ---- pairs ------------------------------------------------------------------------------------------


def _pairs_message(pairs: tuple[tuple[int, ...], ...], limit: int, times: int) -> str:
    seen: tuple[dict[int, int], dict[int, int]] = ({}, {})
    for pair in pairs:
        if len(pair) != 2:
            return f"{{{','.join(map(str, pair))}}} is not a pair"
        for device, counts, what in zip(pair, seen, ("source", "target"), strict=True):
            if device < 0 or (limit > 1 and device >= limit):
                return f"{what} {device} is none of {limit} devices"
            counts[device] = counts.get(device, 0) + 1
            if counts[device] > times:
                return f"device {device} is a {what} {counts[device]} times"
    return ""


def _transfers(given: Shape, starts: Shape) -> int:
    """How often a device may be a source: once for each slice that an in-place permutation moves."""
    if isinstance(given, TupleShape) and isinstance(starts, TupleShape) and starts.elements:
        starts = starts.elements[0]
    return max(1, len(starts.elements)) if isinstance(starts, TupleShape) else 1


def _inplace_message(given: Shape, taken: Shape, given_at: Shape, taken_at: Shape) -> str:
    """Each buffer has starts: one index a dimension, once or for each slice that is moved."""
    if isinstance(given, TupleShape) != isinstance(taken, TupleShape):
        return f"input {given} and output {taken} must both be arrays, or both tuples"
    if not isinstance(given, TupleShape):
        return _starts_message(given, given_at) or _starts_message(taken, taken_at)
    assert isinstance(taken, TupleShape)
    if len(given.elements) != len(taken.elements):
        return f"input {given} and output {taken} must have as many parts"
    for buffers, starts in ((given, given_at), (taken, taken_at)):
        if not isinstance(starts, TupleShape) or len(starts.elements) != len(buffers.elements):
            return f"{starts} does not have starts for each part of {buffers}"
        for buffer, start in zip(buffers.elements, starts.elements, strict=True):
            message = _starts_message(buffer, start)
            if message:
                return message
    return ""


def _starts_message(buffer: Shape, starts: Shape) -> str:
    rank = buffer.rank if isinstance(buffer, ArrayShape) else 0
    if not isinstance(starts, TupleShape):
        return f"starts {starts} are not a tuple"
    tuples = [part for part in starts.elements if isinstance(part, TupleShape)]
    if tuples and len(tuples) != len(starts.elements):
        return f"starts {starts} must be arrays, or tuples of them"
    if any(len(part.elements) != rank for part in (tuples or [starts])):
        return f"starts {starts} do not have one index for each dimension of {buffer}"
    return ""
