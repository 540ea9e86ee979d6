"""Which participants have the same data for a parameter, as its annotations say.

A parameter that is replicated over partitions (``sharding={replicated}``, or a last tile dimension that is) is
the same in all of them; ``parameter_replication={true}`` says so of replicas.  A program that has not been
partitioned, but has regions for one device, is about whole arrays: all partitions have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hloopt.interpret.shards import is_boundary
from hloopt.ir import Instruction, Module
from hloopt.types import Sharding, Tiles, leaves, record_of

__all__ = ["data_keys", "is_about_whole_arrays"]


def is_about_whole_arrays(module: Module) -> bool:
    """Whether partitions take their shards of arrays inside the program."""
    return any(is_boundary(instruction) for computation in module for instruction in computation)


def data_keys(
    parameter: Instruction, replicas: int, partitions: int, *, whole: bool = False
) -> list[tuple[int, ...]]:
    """For each leaf of a parameter a key for each participant; those with the same key share data.

    A key is the number of the first participant that has it.  ``whole`` says that partitions share all.
    """
    count = len(list(leaves(parameter.shape)))
    across_partitions = (
        [(0,) * partitions] * count if whole else _partition_keys(parameter, count, partitions)
    )
    across_replicas = _replicated(parameter, count)
    return [
        tuple(
            (0 if across_replicas[leaf] else replica) * partitions + across_partitions[leaf][own]
            for replica in range(replicas)
            for own in range(partitions)
        )
        for leaf in range(count)
    ]


def _replicated(parameter: Instruction, count: int) -> Sequence[bool]:
    """Of each leaf whether replicas share it."""
    marks = record_of(parameter.attributes, "parameter_replication", tuple)
    return marks if marks is not None and len(marks) == count else [False] * count


def _partition_keys(parameter: Instruction, count: int, partitions: int) -> list[tuple[int, ...]]:
    """Of each leaf, for each partition, the first one that has the same data."""
    own = tuple(range(partitions))
    sharding = Sharding.of(parameter.attributes)
    if sharding is None:
        return [own] * count
    if sharding.word == "replicated":
        return [(0,) * partitions] * count
    if len(sharding.leaves) != count:
        return [own] * count
    return [(leaf.tiles and _tile_keys(leaf.tiles, partitions)) or own for leaf in sharding.leaves]


def _tile_keys(tiles: Tiles, partitions: int) -> tuple[int, ...] | None:
    """The first device of each device's tile, or None where the tiles are not those of all partitions."""
    if tiles.last_dims is not None:  # among them are manual dimensions, where data differ
        return None
    devices = tiles.devices
    if sorted(devices) != list(range(partitions)) or prod(tiles.dims) != partitions:
        return None
    alike = prod(tiles.dims[len(tiles.dims) - tiles.subgroups :])
    keys = [0] * partitions
    for start in range(0, partitions, alike):
        group = devices[start : start + alike]
        for device in group:
            keys[device] = min(group)
    return tuple(keys)
