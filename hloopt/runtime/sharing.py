"""Which participants have the same data for a parameter, as its annotations say.

A parameter that is replicated over partitions (``sharding={replicated}``, or a last tile dimension that is) is
the same in all of them; ``parameter_replication={true}`` says so of replicas.  A program that has not been
partitioned, but has regions for one device, is about whole arrays: all partitions have them.
"""

from __future__ import annotations

import re
from math import prod

import numpy as np

from hloopt.interpret.shards import is_boundary
from hloopt.ir import Instruction, Module
from hloopt.types import Verbatim, leaves
from hloopt.verify.sharding_text import Tiles, read_sharding

__all__ = ["data_keys", "is_about_whole_arrays"]

_REPLICATED = re.compile(r"\{\s*replicated\b")


def is_about_whole_arrays(module: Module) -> bool:
    """Whether partitions take their parts of arrays inside the program."""
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


def _text(parameter: Instruction, name: str) -> str:
    value = parameter.attributes.get(name)
    return value.text if isinstance(value, Verbatim) else str(value or "")


def _replicated(parameter: Instruction, count: int) -> list[bool]:
    """Of each leaf whether replicas share it."""
    marks = re.findall(r"true|false", _text(parameter, "parameter_replication"))
    if len(marks) != count:
        return [False] * count
    return [mark == "true" for mark in marks]


def _partition_keys(parameter: Instruction, count: int, partitions: int) -> list[tuple[int, ...]]:
    """Of each leaf, for each partition, the first one that has the same data."""
    text = _text(parameter, "sharding").strip()
    own = tuple(range(partitions))
    if _REPLICATED.match(text):
        return [(0,) * partitions] * count
    sharding = read_sharding(text) if text else None
    if sharding is None:
        return [own] * count
    elements = sharding.elements if sharding.elements is not None else (sharding,)
    if len(elements) != count:
        return [own] * count
    known = "last_tile_dims" not in text  # among those are manual dimensions, where data differ
    return [
        _tile_keys(element.tiles, partitions) or own if known and element.tiles is not None else own
        for element in elements
    ]


def _tile_keys(tiles: Tiles, partitions: int) -> tuple[int, ...] | None:
    """The first device of each device's tile, or None where the tiles are not those of all partitions."""
    if tiles.devices is None:
        ids = np.arange(prod(tiles.iota)).reshape(tiles.iota)
        if tiles.permutation:
            ids = ids.transpose(tiles.permutation)
        devices = ids.ravel().tolist()
    else:
        devices = list(tiles.devices)
    if sorted(devices) != list(range(partitions)) or prod(tiles.dims) != partitions:
        return None
    alike = prod(tiles.dims[len(tiles.dims) - tiles.subgroups :])
    keys = [0] * partitions
    for start in range(0, partitions, alike):
        group = devices[start : start + alike]
        for device in group:
            keys[device] = min(group)
    return tuple(keys)
