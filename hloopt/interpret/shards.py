"""Programs that have not been partitioned: between whole arrays and the parts that devices work on.

A program before XLA's SPMD partitioner is about whole arrays, but for the regions that its author wrote for one
device (``shard_map``).  ``xla.sdy.GlobalToLocalShape`` and ``SPMDFullToShardShape`` lead into such a region,
``xla.sdy.LocalToGlobalShape`` and ``SPMDShardToFullShape`` out of it.  Run by several participants, each has
the whole arrays outside, takes its part on the way in, and puts the parts of all together on the way out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from types import EllipsisType

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.interpret.context import Context, Value, array_of
from hloopt.interpret.groups import cut
from hloopt.interpret.permutation import meet
from hloopt.ir import Instruction, Module
from hloopt.types import (
    Array,
    ArrayShape,
    AxisRef,
    FrontendAttributes,
    Mesh,
    Sharding,
    TupleShape,
    leaves,
)

__all__ = [
    "INWARD",
    "OUTWARD",
    "ShardTiling",
    "check_shards",
    "is_boundary",
    "meshes_of",
    "shards",
    "tiling_of",
    "tiling_of_sharding",
    "tilings",
]

INWARD = ("SPMDFullToShardShape", "xla.sdy.GlobalToLocalShape")
OUTWARD = ("SPMDShardToFullShape", "xla.sdy.LocalToGlobalShape")

_MESH = re.compile(r"(\w+)\s*=\s*#sdy\.mesh<\[([^\]]*)\](?:,\s*device_ids\s*=\s*\[([^\]]*)\])?>")
_AXIS = re.compile(r'"([^"]*)"\s*(?:=\s*|:\s*\()?(\d+)?(?:\)\s*(\d+))?')
_VALUE = re.compile(r"<@(\w+),\s*\[((?:\{[^{}]*\}[^,\[\]{}]*,?\s*)*)\]")
_DIMENSION = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class ShardTiling:
    """How an array is cut: ``counts`` of parts along its dimensions.

    Of each partition ``places`` is where its part lies, and ``rests`` distinguishes those with the same.
    """

    counts: tuple[int, ...]
    places: tuple[tuple[int, ...], ...]
    rests: tuple[tuple[int, ...], ...]

    @staticmethod
    def whole(rank: int, partitions: int) -> ShardTiling:
        """Of an array that each partition has all of."""
        own = tuple((partition,) for partition in range(partitions))
        return ShardTiling((1,) * rank, ((0,) * rank,) * partitions, own)

    def part_dims(self, whole: Sequence[int]) -> tuple[int, ...]:
        """The dimensions of each part; where they do not divide the whole, the last ones are padded."""
        return tuple(-(-size // count) for size, count in zip(whole, self.counts, strict=True))

    def part(self, whole: Array, partition: int) -> Array:
        """A view of a partition's part, without padding."""
        lengths = self.part_dims(whole.shape)
        places = self.places[partition]
        cuts = (
            slice(place * length, (place + 1) * length)
            for place, length in zip(places, lengths, strict=True)
        )
        # Without the dots the part of a scalar would be a number, and no view.
        index: tuple[slice | EllipsisType, ...] = (..., *cuts)
        return whole[index]


def is_boundary(instruction: Instruction) -> bool:
    """Whether an instruction leads into or out of a region for one device."""
    return instruction.custom_call_target in (*INWARD, *OUTWARD)


# ---- how arrays are cut -------------------------------------------------------------------------


def tilings(instruction: Instruction, partitions: int) -> list[ShardTiling]:
    """How the whole array of each operand is cut.

    Raises ``ValueError`` where the annotations do not say it.
    """
    target = instruction.custom_call_target
    if not target.startswith("xla.sdy."):
        holder = instruction.operands[0] if target in INWARD else instruction
        return [tiling_of(holder, _rank(instruction.operands[0]), partitions)]
    name = "xla.sdy.in_shardings" if target in INWARD else "xla.sdy.out_shardings"
    return _of_values(instruction, name, [_rank(operand) for operand in instruction.operands])


def tiling_of(holder: Instruction, rank: int, partitions: int) -> ShardTiling:
    """How the array of an instruction is cut, as its ``sharding`` says, or its ``xla.sdy.sharding``.

    Raises ``ValueError`` where that says nothing.
    """
    sharding = Sharding.of(holder.attributes)
    name = "xla.sdy.sharding"
    if sharding is None and FrontendAttributes.of(holder.attributes).get(name) is not None:
        return _of_values(holder, name, [rank])[0]
    try:
        return tiling_of_sharding(sharding, rank, partitions)
    except ValueError as error:
        text = f"sharding={holder.attributes.get('sharding', '{}')} of {holder.name}"
        raise ValueError(f"{text} {error}") from error


def _of_values(instruction: Instruction, name: str, ranks: Sequence[int]) -> list[ShardTiling]:
    """The shardings of an attribute of Shardy's, one for each array."""
    found = _VALUE.findall(_plain(FrontendAttributes.of(instruction.attributes).get(name)))
    if len(found) != len(ranks):
        raise ValueError(f"{name} has {len(found)} shardings for {len(ranks)} operands")
    computation = instruction.computation
    meshes = meshes_of(computation.module if computation is not None else None)
    return [
        _of_mesh(meshes.get(mesh), mesh, dims, rank)
        for (mesh, dims), rank in zip(found, ranks, strict=True)
    ]


def _rank(operand: Instruction) -> int:
    return operand.shape.rank if isinstance(operand.shape, ArrayShape) else 0


def _plain(text: str | None) -> str:
    """A value in braces has the quotes in it escaped as those of a string are."""
    return (text or "").replace("\\", "")


def tiling_of_sharding(sharding: Sharding | None, rank: int, partitions: int) -> ShardTiling:
    """``{devices=[2,4]<=[8]}``, ``{mesh['x'=2,'y'=4], [{'x'}, {}]}``; what is replicated is one part.

    Raises ``ValueError``, without a subject, where it does not say how an array of this rank is cut.
    """
    if sharding is not None and sharding.word == "replicated":
        return ShardTiling.whole(rank, partitions)
    tiles = sharding.tiles if sharding is not None else None
    named = sharding.named if sharding is not None else None
    if named is not None and named.dims is not None:
        if len(named.dims) != rank:
            raise ValueError(f"is not one of {rank} dimensions")
        sizes, used = cut(named.mesh, [dim.axes for dim in named.dims])
        return _tiling(named.mesh.devices, sizes, used)
    if tiles is None:
        raise ValueError("does not say how it is cut")
    if len(tiles.dims) - tiles.subgroups != rank:
        raise ValueError(f"is not one of {rank} dimensions")
    return _tiling(tiles.devices, tiles.dims, [[at] for at in range(rank)])


def _of_mesh(mesh: Mesh | None, name: str, dims: str, rank: int) -> ShardTiling:
    r"""``[{"x"}, {"y":(1)2}]``: the axes that cut each dimension, the slow ones first."""
    if mesh is None:
        raise ValueError(f"the module has no mesh '{name}'")
    cuts = [
        [
            AxisRef(axis, int(before or 1), int(own) if own else None)
            for axis, before, own in _AXIS.findall(text)
        ]
        for text in _DIMENSION.findall(dims)
    ]
    if len(cuts) != rank:
        raise ValueError(f"a sharding of {len(cuts)} dimensions for an array of {rank}")
    sizes, used = cut(mesh, cuts)
    return _tiling(mesh.devices, sizes, used)


def _tiling(devices: Sequence[int], dims: Sequence[int], used: list[list[int]]) -> ShardTiling:
    """Devices in a grid, of whose dimensions each dimension of the array uses some."""
    if prod(dims) != len(devices) or sorted(devices) != list(range(len(devices))):
        raise ValueError("the devices are not numbered from 0")
    at = dict(zip(devices, np.ndindex(*dims), strict=True))
    free = [number for number in range(len(dims)) if not any(number in axes for axes in used)]
    counts = tuple(prod(dims[number] for number in axes) for axes in used)
    places, rests = [], []
    for device in range(len(devices)):
        index = at[device]
        place = []
        for axes in used:
            number = 0
            for axis in axes:
                number = number * dims[axis] + index[axis]
            place.append(number)
        places.append(tuple(place))
        rests.append(tuple(index[number] for number in free))
    return ShardTiling(counts, tuple(places), tuple(rests))


def meshes_of(module: Module | None) -> dict[str, Mesh]:
    """The meshes of ``frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["x"=2, "y"=4]>}}``."""
    attributes = module.attributes if module is not None else {}
    text = _plain(FrontendAttributes.of(attributes).get("xla.sdy.meshes"))
    return {
        name: Mesh(
            tuple((axis, int(size or 1)) for axis, size, _ in _AXIS.findall(axes)),
            tuple(map(int, ids.split(","))) if ids.strip() else None,
        )
        for name, axes, ids in _MESH.findall(text)
    }


# ---- in and out ---------------------------------------------------------------------------------


def check_shards(instruction: Instruction, partitions: int) -> str | None:
    """Why so many partitions cannot cross this boundary, or None."""
    target = instruction.custom_call_target
    try:
        found = tilings(instruction, partitions)
    except ValueError as error:
        return f"{target}: {error}"
    results = [leaf for leaf in leaves(instruction.shape) if isinstance(leaf, ArrayShape)]
    for operand, result, tiling in zip(instruction.operands, results, found, strict=False):
        if len(tiling.places) != partitions:
            return f"{target} among {len(tiling.places)} partitions; {partitions} are run"
        whole, part = (operand.array, result) if target in INWARD else (result, operand.array)
        wanted = tuple(n * count for n, count in zip(part.dims, tiling.counts, strict=True))
        if whole.dims != wanted:
            return f"{target} of {operand.shape} to {result}, in {list(tiling.counts)} parts"
    return None


def shards(instruction: Instruction, operands: tuple[Value, ...], context: Context) -> Value:
    """A participant's part of each operand, or the whole of which each operand is its part."""
    inward = instruction.custom_call_target in INWARD
    participant = context.participant
    results: list[Value] = []
    for operand, tiling in zip(operands, tilings(instruction, participant.partitions), strict=True):
        array = array_of(operand)
        if inward:
            results.append(tiling.part(array, participant.partition).copy())
        else:
            results.append(_whole(instruction, array, tiling, context))
    several = isinstance(instruction.shape, TupleShape)
    return tuple(results) if several else results[0]


def _whole(instruction: Instruction, array: Array, tiling: ShardTiling, context: Context) -> Value:
    """The parts of those that have the other parts."""
    participant = context.participant
    rest = tiling.rests[participant.partition]
    members = [number for number, other in enumerate(tiling.rests) if other == rest]
    first = participant.replica * participant.partitions

    def give(values: Sequence[tuple[Value, ...]]) -> Sequence[Value]:
        dims = [n * count for n, count in zip(array.shape, tiling.counts, strict=True)]
        whole = np.empty(dims, array.dtype)
        for member, value in zip(members, values, strict=True):
            tiling.part(whole, member)[...] = array_of(value[0])
        return [whole] * len(members)

    group = tuple(first + member for member in members)
    return meet(instruction, (array,), context, group, give)
