"""Fewer participants: replicas, partitions, and the groups, pairs and shardings that name them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Final, TypeAlias

import numpy as np

from hloopt.errors import ShapeError
from hloopt.interpret.groups import groups_of, listed_groups
from hloopt.ir import Instruction, edit
from hloopt.ops.traits import COLLECTIVE
from hloopt.prover.reduction.case import Case, CaseDraft
from hloopt.prover.reduction.deltas.agreeing import AgreeingDimensions, LeafDimension
from hloopt.prover.reduction.deltas.dimensions import resize
from hloopt.prover.reduction.recording import Delta, Site, ValueRecorder
from hloopt.types import ArrayShape, Mesh, Sharding, TupleShape, Verbatim
from hloopt.verifier.devices import group_mode, replica_groups

__all__ = ["PARTICIPANTS"]

_Renumber: TypeAlias = Callable[[int], int | None]
"""The new number of a replica, a partition or a participant; None where it is gone."""


def _sites(case: Case) -> list[Site]:
    """Ranges of replicas and of partitions that stay, fewest participants first."""
    replicas, partitions = case.inputs.counts
    found: list[Site] = list(product(_ranges(replicas), _ranges(partitions)))
    found.sort(key=lambda site: len(site[0]) * len(site[1]))
    return found[:-1]


def _ranges(count: int) -> list[range]:
    """One, a pair, each half, every other one, and all: halving leads to any grid of a grid of powers of 2."""
    half, every = -(-count // 2), range(count)
    chosen = [
        every[:1],
        every[-1:],
        every[:2],
        every[::half],
        every[:half],
        every[-half:],
        every[::2],
        every,
    ]
    return list(dict.fromkeys(chosen))


def _apply(draft: CaseDraft, sites: Sequence[Site], _: ValueRecorder) -> None:
    for replicas, partitions in sites[:1]:
        kept = _Kept(draft, replicas, partitions)
        sizes: dict[LeafDimension, int] = {}
        classes = AgreeingDimensions(draft.module)
        for one in list(draft.module.instructions()):
            kept.shrink_sharding(one)
            if one.opcode in COLLECTIVE:
                kept.shrink(one, classes, sizes)
        kept.count()
        resize(draft, classes, sizes)


class _Kept:
    """The participants that stay: some replicas and some partitions."""

    def __init__(self, draft: CaseDraft, replicas: range, partitions: range) -> None:
        self._draft = draft
        self._before = draft.counts
        self._replicas, self._partitions = replicas, partitions

    def _replica(self, number: int) -> int | None:
        return self._replicas.index(number) if number in self._replicas else None

    def _partition(self, number: int) -> int | None:
        return self._partitions.index(number) if number in self._partitions else None

    def _participant(self, number: int) -> int | None:
        row, column = divmod(number, self._before[1])
        replica, partition = self._replica(row), self._partition(column)
        if replica is None or partition is None:
            return None
        return replica * len(self._partitions) + partition

    def count(self) -> None:
        """Let the header and the inputs be those of as many participants."""
        draft, counts = self._draft, (len(self._replicas), len(self._partitions))
        for name, number in zip(("replica_count", "num_partitions"), counts, strict=True):
            draft.module.attributes.pop(name, None)
            if number > 1:
                draft.module.attributes[name] = number
        staying = [
            number
            for number in range(self._before[0] * self._before[1])
            if self._participant(number) is not None
        ]
        draft.counts = counts
        for parameter, arrays in draft.arrays.items():
            draft.arrays[parameter] = [arrays[number] for number in staying]

    # ---- collectives -------------------------------------------------------------------------------

    def shrink(
        self, one: Instruction, classes: AgreeingDimensions, sizes: dict[LeafDimension, int]
    ) -> None:
        """Take those that are gone out of groups and pairs."""
        mode = group_mode(one)
        pairs = one.attributes.get("source_target_pairs")
        if isinstance(pairs, tuple):
            renumber = self._partition if mode == "cross_partition" else self._replica
            edit.set_attribute(one, "source_target_pairs", _renumbered(pairs, renumber, whole=True))
            return
        written = replica_groups(one)
        try:
            members = groups_of(one, *self._before)
            ids = () if written is None else listed_groups(written)
        except ValueError as error:
            raise ShapeError(f"{one.name}: {error}") from error
        places = self._places(one, members)
        if one.opcode == "all-to-all" and "dimensions" not in one.attributes:
            self._exchange(one, places)
        elif one.opcode == "reduce-scatter":
            (dim,) = one.dimensions
            for number, operand in enumerate(one.operands):
                part = (
                    one.shape.elements[number] if isinstance(one.shape, TupleShape) else one.shape
                )
                assert isinstance(part, ArrayShape)
                sizes[classes.of((operand, 0, dim))] = part.dims[dim] * len(places)
        renumber = {"cross_partition": self._partition, "flattened_id": self._participant}.get(
            mode, self._replica
        )
        if ids:
            edit.set_attribute(one, "replica_groups", _renumbered(ids, renumber))

    def _places(self, one: Instruction, members: Sequence[Sequence[int]]) -> list[int]:
        """The places in its group of those that stay, which have to be the same in every group."""
        found = {
            tuple(place for place, each in enumerate(group) if self._participant(each) is not None)
            for group in members
        } - {()}
        if len(found) > 1 and (
            one.opcode != "all-reduce" or len({len(each) for each in found}) > 1
        ):
            raise ShapeError(f"{one.name}: others of each group would stay")
        return list(next(iter(found), ()))

    def _exchange(self, one: Instruction, places: list[int]) -> None:
        """An operand and a result for each that stays; other results become what was sent."""
        operands = one.operands
        for user in list(one.users):
            if not user.is_element_of(one):
                raise ShapeError(f"{one.name}: its results are not taken one by one")
            if user.tuple_index in places:
                edit.set_attribute(user, "index", places.index(user.tuple_index))
            else:
                self._draft.replace(user, operands[user.tuple_index])
        edit.set_operands(one, tuple(operands[place] for place in places))
        edit.set_shape(one, TupleShape(tuple(one.elements[place] for place in places)))

    # ---- shardings ----------------------------------------------------------------------------------

    def shrink_sharding(self, one: Instruction) -> None:
        """Let a sharding speak of the partitions that stay."""
        sharding = Sharding.of(one.attributes)
        if sharding is not None:
            edit.set_attribute(one, "sharding", Verbatim.of(self._sharding(sharding)))

    def _sharding(self, sharding: Sharding) -> Sharding:
        """Replicated where those that stay are no part of the grid, or one alone."""
        if sharding.elements is not None:
            elements = tuple(self._sharding(one) for one in sharding.elements)
            return replace(sharding, elements=elements)
        tiles, named = sharding.tiles, sharding.named
        if tiles is not None:
            grid = self._grid(tiles.dims, tiles.devices)
            if grid is not None:
                return replace(sharding, tiles=replace(tiles, dims=grid[0], ids=grid[1]))
        elif named is not None:
            grid = self._grid(tuple(named.mesh.sizes.values()), named.mesh.devices)
            if grid is not None and all(use.size is None for use in named.uses):
                axes = zip(named.mesh.sizes, grid[0], strict=True)
                return replace(sharding, named=replace(named, mesh=Mesh(tuple(axes), grid[1])))
        elif sharding.device is not None:
            return replace(sharding, device=self._partition(sharding.device) or 0)
        else:
            return sharding
        return Sharding("replicated", metadata=sharding.metadata)

    def _grid(
        self, dims: tuple[int, ...], devices: Sequence[int]
    ) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """The part of a grid of devices with those that stay: its dimensions, and their new numbers."""
        if not dims or len(self._partitions) == 1:
            return None
        grid = np.array(devices).reshape(dims)
        stays = np.isin(grid, self._partitions)
        places = [
            np.flatnonzero(np.moveaxis(stays, axis, 0).reshape(size, -1).any(axis=1))
            for axis, size in enumerate(dims)
        ]
        part, inside = grid[np.ix_(*places)], stays[np.ix_(*places)]
        if part.size != len(self._partitions) or not inside.all():
            return None
        return part.shape, tuple(map(self._partitions.index, part.reshape(-1).tolist()))


def _renumbered(
    groups: Sequence[Sequence[int]], renumber: _Renumber, *, whole: bool = False
) -> tuple[tuple[int, ...], ...]:
    """Groups of those that stay; with ``whole`` only those of which all do."""
    found = []
    for group in groups:
        new = tuple(number for each in group if (number := renumber(each)) is not None)
        if new and (len(new) == len(group) or not whole):
            found.append(new)
    return tuple(found)


PARTICIPANTS: Final = Delta("participants", _sites, _apply, "each", quicker=True)
