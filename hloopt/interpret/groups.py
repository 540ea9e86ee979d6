"""Which participants a collective brings together.

The modes are those of XLA (``GetCollectiveOpGroupMode``): ids are replicas of the same partition
(``cross_replica``), partitions of the same replica (``cross_partition``), replicas with all their partitions
(``cross_replica_and_partition``), or ``replica * partitions + partition`` (``flattened_id``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from math import prod

import numpy as np

from hloopt.ir import Instruction
from hloopt.types import AxisRef, IotaList, Mesh, MeshGroups
from hloopt.verifier.devices import Groups, group_mode, replica_groups

__all__ = [
    "DeviceGroup",
    "check_groups",
    "check_pairs",
    "cut",
    "groups_of",
    "links",
    "listed_groups",
]

DeviceGroup = tuple[int, ...]


def listed_groups(groups: Groups) -> tuple[DeviceGroup, ...]:
    """The groups of ids, written out; an iota is cut into rows, a mesh into groups along its axes.

    Raises ``ValueError`` for a mesh that cannot be cut so.
    """
    if isinstance(groups, IotaList):
        return _rows(np.array(groups.numbers).reshape(-1, groups.dims[-1]))
    if isinstance(groups, MeshGroups):
        # One group for each place in the axes that are not used; its members follow the used ones.
        dims, (used,) = cut(groups.mesh, [groups.axes])
        kept = [axis for axis in range(len(dims)) if axis not in used]
        ids = np.array(groups.mesh.devices).reshape(dims).transpose([*kept, *used])
        return _rows(ids.reshape(-1, prod(dims[axis] for axis in used)))
    return groups


def cut(mesh: Mesh, uses: Sequence[Sequence[AxisRef]]) -> tuple[list[int], list[list[int]]]:
    """The dimensions of a mesh whose axes are cut into their parts, and which of them each list uses.

    Raises ``ValueError`` for axes that it does not have, and parts that do not divide them.
    """
    sizes = mesh.sizes
    spans: dict[str, list[tuple[int, int]]] = {name: [(1, size)] for name, size in mesh.axes}
    for use in chain(*uses):
        if use.name not in sizes:
            raise ValueError(f"the mesh has no axis '{use.name}'")
        spans[use.name].append(_span(use, sizes))
    dims: list[int] = []
    parts: dict[tuple[str, int], int] = {}
    for axis, size in mesh.axes:
        edges = sorted({edge for span in spans[axis] for edge in span})
        if (edges[0], edges[-1]) != (1, size) or any(
            after % before for before, after in pairwise(edges)
        ):
            raise ValueError(f"axis '{axis}' of {size} cannot be cut at {edges}")
        for before, after in pairwise(edges):
            parts[axis, before] = len(dims)
            dims.append(after // before)
    used = []
    for axes in uses:
        found = []
        for use in axes:
            first, end = _span(use, sizes)
            found += [
                parts[key] for key in sorted(parts) if key[0] == use.name and first <= key[1] < end
            ]
        used.append(found)
    return dims, used


def _span(use: AxisRef, sizes: Mapping[str, int]) -> tuple[int, int]:
    return use.before, use.before * use.size if use.size else sizes[use.name]


def _rows(ids: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> tuple[DeviceGroup, ...]:
    return tuple(tuple(row) for row in ids.tolist())


def groups_of(instruction: Instruction, replicas: int, partitions: int) -> tuple[DeviceGroup, ...]:
    """All groups of a collective among ``replicas * partitions`` participants, by their numbers.

    Raises ``ValueError`` where the groups are of no known form, or empty where they must not be.
    """
    mode = group_mode(instruction)
    written = replica_groups(instruction)
    if not mode or written is None:
        raise ValueError("the groups are of no known form")
    ids = listed_groups(written)
    if not ids:
        if mode == "flattened_id":
            raise ValueError("use_global_device_ids=true needs groups")
        ids = (tuple(range(_ids(mode, replicas, partitions))),)
    if mode == "cross_replica":
        return tuple(
            tuple(replica * partitions + partition for replica in group)
            for group in ids
            for partition in range(partitions)
        )
    if mode == "cross_partition":
        return tuple(
            tuple(replica * partitions + partition for partition in group)
            for group in ids
            for replica in range(replicas)
        )
    if mode == "cross_replica_and_partition":
        return tuple(
            tuple(
                replica * partitions + partition
                for replica in group
                for partition in range(partitions)
            )
            for group in ids
        )
    return ids


_NAMES = {"cross_partition": "partition", "flattened_id": "participant"}


def _unknown(instruction: Instruction, number: int, mode: str, count: int) -> str | None:
    """What is wrong with an id, if anything."""
    if 0 <= number < count:
        return None
    what = _NAMES.get(mode, "replica")
    runs = f"{count} {what}s are run" if count > 1 else f"only one {what} is run"
    return f"{instruction.opcode} names {what} {number}; {runs}"


def _ids(mode: str, replicas: int, partitions: int) -> int:
    """How many ids there are in a mode."""
    if mode == "flattened_id":
        return replicas * partitions
    return partitions if mode == "cross_partition" else replicas


def check_groups(
    instruction: Instruction, replicas: int, partitions: int, *, complete: bool = True
) -> str | None:
    """Why a collective's groups do not fit so many participants, or None.

    ``complete`` requires that every participant is in a group.
    """
    mode = group_mode(instruction)
    written = replica_groups(instruction)
    if not mode or written is None:
        return f"replica_groups= of {instruction.opcode} are of no known form"
    seen: set[int] = set()
    count = _ids(mode, replicas, partitions)
    try:
        ids = listed_groups(written)
    except ValueError as error:
        return f"replica_groups= of {instruction.opcode}: {error}"
    for group in ids:
        for number in group:
            message = _unknown(instruction, number, mode, count)
            if message is None and number in seen:
                message = f"{instruction.opcode} names {_NAMES.get(mode, 'replica')} {number} twice"
            if message is not None:
                return message
            seen.add(number)
    if mode == "flattened_id" and not ids:
        return f"{instruction.opcode} with use_global_device_ids=true needs groups"
    missing = next((number for number in range(count) if number not in seen), None)
    if complete and ids and missing is not None:
        return f"{instruction.opcode} has no group with {_NAMES.get(mode, 'replica')} {missing}"
    return None


def check_pairs(
    instruction: Instruction, pairs: Sequence[Sequence[int]], replicas: int, partitions: int
) -> str | None:
    """Why (source, target) pairs do not fit so many participants, or None."""
    mode = group_mode(instruction)
    count = _ids(mode, replicas, partitions)
    for pair in pairs:
        for number in pair:
            message = _unknown(instruction, number, mode, count)
            if message is not None:
                return message
    return None


def links(
    instruction: Instruction,
    pairs: Sequence[Sequence[int]],
    participant: int,
    replicas: int,
    partitions: int,
) -> tuple[DeviceGroup, tuple[tuple[int, int], ...]]:
    """Which participants one meets in a permutation, and the pairs among them, all by participants' numbers.

    Those are all that pairs connect it with, in their order; without pairs it meets no other.
    """
    replica, partition = divmod(participant, partitions)
    if group_mode(instruction) == "cross_partition":
        own, first, stride = partition, replica * partitions, 1
    else:
        own, first, stride = replica, partition, partitions
    near, pending = {own}, [own]
    neighbours: dict[int, list[int]] = {}
    for source, target in pairs:
        neighbours.setdefault(source, []).append(target)
        neighbours.setdefault(target, []).append(source)
    while pending:
        for other in neighbours.get(pending.pop(), ()):
            if other not in near:
                near.add(other)
                pending.append(other)
    group = tuple(first + stride * number for number in sorted(near))
    return group, tuple(
        (first + stride * source, first + stride * target)
        for source, target in pairs
        if source in near
    )
