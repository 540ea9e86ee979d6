"""A program for whole arrays beside the one that XLA's SPMD partitioner makes of it.

Each partition of the latter takes its part of every parameter and gives its part of every result.  Where the
parts lie is what the parameters' ``sharding`` says, and for results that of the root before it was partitioned.
Parts that do not divide a dimension are padded at its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations, product
from math import prod
from typing import Final

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.errors import UnsupportedError
from hloopt.interpret.bounds_elementwise import ErrorBound
from hloopt.interpret.shards import OUTWARD, ShardTiling, tiling_of, tiling_of_sharding, tilings
from hloopt.ir import Instruction, Module
from hloopt.types import (
    Array,
    ArrayShape,
    FrontendAttributes,
    Sharding,
    leaves,
)

__all__ = ["ArrayParts", "Partitioning", "is_partitioned", "partitioning_of", "whole_arrays"]

_MOST_TILINGS: Final = 512
_ENOUGH: Final = 4096
"""Elements of each part by which ways are compared."""
_CLOSE: Final = 1e-2
"""What is nearer to the whole than this fraction counts as a part's own place in it."""


@dataclass(frozen=True)
class ArrayParts:
    """Where the parts of an array are.

    name    ``parameter x``, ``result 1``
    dims    of the whole array, ``part`` of each part
    tiling  None where no annotation says it; ``assumed`` where the parts themselves do
    """

    name: str
    dims: tuple[int, ...]
    part: tuple[int, ...]
    tiling: ShardTiling | None
    assumed: bool = False

    def cut(self, whole: Array) -> list[Array]:
        """The part of each partition, padded with zeros where it has less than a part."""
        assert self.tiling is not None, self.name
        found = []
        for partition in range(len(self.tiling.places)):
            own = self.tiling.part(whole, partition)
            if own.shape == self.part:
                found.append(own.copy())
                continue
            padded = np.zeros(self.part, whole.dtype)
            padded[tuple(map(slice, own.shape))] = own
            found.append(padded)
        return found

    def joined(self, parts: Sequence[Array]) -> Array:
        """The whole array, of those with the same part the first partition's."""
        assert self.tiling is not None, self.name
        whole = np.empty(self.dims, parts[0].dtype)
        for partition in reversed(range(len(parts))):
            own = self.tiling.part(whole, partition)
            own[...] = parts[partition][tuple(map(slice, own.shape))]
        return whole

    def apart(self, parts: Sequence[Array]) -> tuple[int, int] | None:
        """Two partitions that ought to have the same part and do not; None where all agree."""
        assert self.tiling is not None, self.name
        first: dict[tuple[int, ...], int] = {}
        for partition, place in enumerate(self.tiling.places):
            one = first.setdefault(place, partition)
            if parts[one].tobytes() != parts[partition].tobytes():
                return one, partition
        return None


@dataclass(frozen=True)
class Partitioning:
    """Where the partitions of a program have the arrays of the program that it was made of."""

    partitions: int
    parameters: tuple[ArrayParts, ...]
    results: tuple[ArrayParts, ...]

    def cut(self, inputs: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """The inputs of each participant, from the whole arrays of each replica."""
        found: list[list[Array]] = []
        for arrays in inputs:
            parts = [one.cut(array) for one, array in zip(self.parameters, arrays, strict=True)]
            found += [[own[number] for own in parts] for number in range(self.partitions)]
        return found

    def joined(self, results: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """The whole results of each replica, from those of each participant."""
        return [
            [
                one.joined([arrays[at] for arrays in results[start : start + self.partitions]])
                for at, one in enumerate(self.results)
            ]
            for start in range(0, len(results), self.partitions)
        ]

    def joined_bounds(self, found: Sequence[Sequence[ErrorBound]]) -> list[list[ErrorBound]]:
        """As ``joined``, of error bounds, where None is nothing."""
        written = [
            [
                np.zeros(one.part) if bound is None else bound
                for one, bound in zip(self.results, bounds, strict=True)
            ]
            for bounds in found
        ]
        return [list(bounds) for bounds in self.joined(written)]

    def apart(self, results: Sequence[Sequence[Array]]) -> list[str]:
        """Of each result of each replica which participants ought to agree and do not; empty where all do."""
        found = []
        for start in range(0, len(results), self.partitions):
            for at, one in enumerate(self.results):
                pair = one.apart(
                    [arrays[at] for arrays in results[start : start + self.partitions]]
                )
                found.append(
                    ""
                    if pair is None
                    else f"participants {start + pair[0]} and {start + pair[1]} have to agree, and do not"
                )
        return found

    def placed(
        self, results: Sequence[Sequence[Array]], whole: Sequence[Sequence[Array]]
    ) -> Partitioning:
        """The same, each result of unknown sharding placed as the parts agree best with the ``whole`` results.

        Participants are the first replica's.  Devices are taken to be numbered along the axes of a mesh.
        Raises ``UnsupportedError`` where parts cannot lie so, or in too many ways.
        """
        found = []
        for at, one in enumerate(self.results):
            if one.tiling is None:
                parts = [arrays[at] for arrays in results[: self.partitions]]
                one = replace(one, tiling=_nearest(one, parts, whole[0][at]), assumed=True)
            found.append(one)
        return replace(self, results=tuple(found))

    @property
    def assumed(self) -> list[str]:
        """The results whose places no annotation says."""
        return [one.name for one in self.results if one.assumed]


def is_partitioned(whole: Module, parts: Module) -> bool:
    """Whether arrays of the second module can be parts of the first one's, and some have other dimensions."""
    pairs = []
    for one, other in zip(_arrays(whole), _arrays(parts), strict=True):
        if len(one) != len(other):
            return False
        pairs += list(zip(one, other, strict=True))
    return any(one.dims != other.dims for (_, one), (_, other) in pairs) and all(
        one.dtype == other.dtype
        and one.rank == other.rank
        and all(size >= own for size, own in zip(one.dims, other.dims, strict=True))
        for (_, one), (_, other) in pairs
    )


def whole_arrays(module: Module, partitions: int) -> Partitioning:
    """Of a program that has not been partitioned: every partition has all of every array."""
    parameters, results = (
        tuple(
            ArrayParts(name, shape.dims, shape.dims, ShardTiling.whole(shape.rank, partitions))
            for name, shape in arrays
        )
        for arrays in _arrays(module)
    )
    return Partitioning(partitions, parameters, results)


def partitioning_of(
    whole: Module, parts: Module, partitions: int, near: Sequence[Module] = ()
) -> Partitioning:
    """How the arrays of ``whole`` lie in the program that was made of it.

    Annotations are those of both modules, and of ``near``, other stages of the same compilation.  Raises
    ``UnsupportedError`` where nothing says how a parameter is cut, or where its parts have other dimensions.
    Of a result whose place nothing says the tiling is None (``Partitioning.placed``).
    """
    sources = (parts, whole, *near)
    found = []
    for side, (wholes, own) in enumerate(zip(_arrays(whole), _arrays(parts), strict=True)):
        holders = [_holders(module)[side] for module in sources]
        rows = []
        for at, ((name, shape), (_, part)) in enumerate(zip(wholes, own, strict=True)):
            known = [holder[at] for holder in holders if at < len(holder)]
            tiling = _tiling(known, shape, part, partitions)
            if tiling is None and side == 0:
                raise UnsupportedError(
                    f"no annotation says how {name}, {shape.dtype.name}{list(shape.dims)}, is cut into "
                    f"{part.dtype.name}{list(part.dims)} for {partitions} partitions",
                    name=parts.name,
                )
            rows.append(ArrayParts(name, shape.dims, part.dims, tiling))
        found.append(tuple(rows))
    return Partitioning(partitions, *found)


# ---- annotations -------------------------------------------------------------------------------------


_Holder = tuple[Instruction, Sharding | None]
"""An instruction that may be annotated, and its sharding of one leaf."""


def _arrays(module: Module) -> tuple[list[tuple[str, ArrayShape]], list[tuple[str, ArrayShape]]]:
    """The arrays of a module's parameters and of its results, in the order of flat lists."""
    parameters = [
        (f"parameter {parameter.name}", leaf)
        for parameter in module.entry.parameters
        for leaf in leaves(parameter.shape)
        if isinstance(leaf, ArrayShape) and leaf.dtype.is_array
    ]
    results = [
        leaf
        for leaf in leaves(module.entry.root.shape)
        if isinstance(leaf, ArrayShape) and leaf.dtype.is_array
    ]
    return parameters, [(f"result {number}", leaf) for number, leaf in enumerate(results)]


def _holders(module: Module) -> tuple[list[list[_Holder]], list[list[_Holder]]]:
    """What may be annotated for each of ``_arrays``."""
    parameters = [
        [leaf] for parameter in module.entry.parameters for leaf in _leaf_shardings(parameter)
    ]
    root = module.entry.root
    results = [[leaf] for leaf in _leaf_shardings(root)]
    if root.opcode == "get-tuple-element" and root.operands[0].opcode == "tuple":
        results[0].append(_alone(root.operands[0].operands[root.attributes["index"]]))
    if root.opcode == "tuple" and all(one.is_array for one in root.operands):
        for own, operand in zip(results, root.operands, strict=True):
            own.append(_alone(operand))
    return parameters, results


def _alone(holder: Instruction) -> _Holder:
    return holder, Sharding.of(holder.attributes)


def _leaf_shardings(holder: Instruction) -> Iterator[_Holder]:
    sharding = Sharding.of(holder.attributes)
    found = list(leaves(holder.shape))
    several = sharding.leaves if sharding is not None and sharding.elements is not None else ()
    for number, leaf in enumerate(found):
        if isinstance(leaf, ArrayShape) and leaf.dtype.is_array:
            own = several[number] if len(several) == len(found) else sharding
            yield holder, own


def _tiling(
    holders: Sequence[Sequence[_Holder]], whole: ArrayShape, part: ArrayShape, partitions: int
) -> ShardTiling | None:
    """What the first annotation says that fits; what is not cut is whole without one."""
    for holder, sharding in (one for own in holders for one in own):
        try:
            tiling = _annotated(holder, sharding, whole.rank, partitions)
        except ValueError:
            continue
        if len(tiling.places) == partitions and tiling.part_dims(whole.dims) == part.dims:
            return tiling
    return ShardTiling.whole(whole.rank, partitions) if whole.dims == part.dims else None


def _annotated(
    holder: Instruction, sharding: Sharding | None, rank: int, partitions: int
) -> ShardTiling:
    if sharding is not None:
        if _has_other_data(sharding):
            raise ValueError("partitions with the same part have other data in it")
        return tiling_of_sharding(sharding, rank, partitions)
    if FrontendAttributes.of(holder.attributes).get("xla.sdy.sharding") is not None:
        return tiling_of(holder, rank, partitions)
    if holder.custom_call_target in OUTWARD and holder.is_array:
        return tilings(holder, partitions)[0]
    raise ValueError("nothing says how it is cut")


def _has_other_data(sharding: Sharding) -> bool:
    """Whether it is manual or unreduced along an axis that cuts nothing."""
    words = set(sharding.tiles.last_dims or ()) if sharding.tiles is not None else set[str]()
    if sharding.named is not None:
        words |= {word for word, axes in sharding.named.others if axes}
    return bool(words - {"replicated"})


# ---- what no annotation says -------------------------------------------------------------------------


def _nearest(one: ArrayParts, parts: Sequence[Array], whole: Array) -> ShardTiling:
    """Of all ways in which parts may lie the one in which most elements are near those of the whole."""
    partitions = len(parts)
    best: tuple[int, ShardTiling] | None = None
    for number, tiling in enumerate(_possible(one.dims, one.part, partitions)):
        if number == _MOST_TILINGS:
            best = None
            break
        far = sum(
            _far(tiling.part(whole, partition), parts[partition]) for partition in range(partitions)
        )
        if best is None or far < best[0]:
            best = far, tiling
        if not far:
            break
    if best is None:
        raise UnsupportedError(
            f"no annotation says how {one.name}, {list(one.dims)}, lies as {list(one.part)} on "
            f"{partitions} partitions"
        )
    return best[1]


def _far(want: Array, got: Array) -> int:
    """How many elements are not near."""
    step = max(1, want.size // _ENOUGH)
    own = got[tuple(map(slice, want.shape))]
    with np.errstate(all="ignore"):
        one, other = (array.reshape(-1)[::step].astype(np.complex128) for array in (want, own))
        near = np.abs(one - other) <= _CLOSE * np.abs(one)
        near |= (one == other) | (np.isnan(one) & np.isnan(other))
    return int(near.size - np.count_nonzero(near))


def _possible(dims: Sequence[int], part: Sequence[int], partitions: int) -> Iterator[ShardTiling]:
    """Every tiling of such parts over devices in a grid with prime sides, numbered in order."""
    counts = [
        [count for count in range(1, partitions + 1) if -(-size // count) == own]
        for size, own in zip(dims, part, strict=True)
    ]
    grid = _primes(partitions)
    devices = list(np.ndindex(*grid))
    for own in product(*counts):
        if partitions % prod(own) or prod(own) == 0:
            continue
        for axes in _axes(grid, own):
            free = [axis for axis in range(len(grid)) if not any(axis in used for used in axes)]
            yield ShardTiling(
                tuple(own),
                tuple(
                    tuple(
                        int(np.ravel_multi_index([at[a] for a in used], [grid[a] for a in used]))
                        if used
                        else 0
                        for used in axes
                    )
                    for at in devices
                ),
                tuple(tuple(at[axis] for axis in free) for at in devices),
            )


def _axes(grid: Sequence[int], counts: Sequence[int]) -> Iterator[list[tuple[int, ...]]]:
    """Every choice of axes of a grid for dimensions that are cut into so many parts."""

    def choose(at: int, left: tuple[int, ...]) -> Iterator[list[tuple[int, ...]]]:
        if at == len(counts):
            yield []
            return
        count = counts[at]
        for used in permutations(left, len(_primes(count)) if count > 1 else 0):
            if prod(grid[axis] for axis in used) == count:
                rest = tuple(axis for axis in left if axis not in used)
                yield from ([used, *more] for more in choose(at + 1, rest))

    yield from choose(0, tuple(range(len(grid))))


def _primes(number: int) -> tuple[int, ...]:
    found, divisor = [], 2
    while number > 1:
        if number % divisor:
            divisor += 1
        else:
            found.append(divisor)
            number //= divisor
    return tuple(found) or (1,)
