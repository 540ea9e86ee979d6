"""The rules of ``attributes.lark`` that make shardings, meshes and lists of devices: one method a rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

from hloopt.text.problem import Problem
from hloopt.text.records import Token, integer, integers
from hloopt.types import (
    AxisRef,
    DimSharding,
    Domain,
    IotaList,
    Mesh,
    MeshGroups,
    Metadata,
    NamedSharding,
    Sharding,
    Tiles,
)
from hloopt.types.strings import unquote

__all__ = ["ShardingRules"]

_WORDS = ("replicated", "maximal", "manual", "unknown", "unreduced")
_GROUPS = ("shard_as", "shard_like")
_PUNCTUATION = ("=", ",", "{", "}", "[", "]")


class ShardingRules:
    """Shardings, and groups of devices that are not lists."""

    def iota(self, parts: list[Any]) -> IotaList:
        return IotaList(*parts)

    def iota_groups(self, parts: list[IotaList]) -> IotaList:
        _check_iota(parts[0])
        return parts[0]

    def mesh_groups(self, parts: list[Any]) -> MeshGroups:
        (mesh, last), *order, axes = parts
        if order:  # mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)) {'x'}, as XLA prints it
            mesh = replace(mesh, device_ids=order[0])
        names = [name for name, _ in mesh.axes]
        used = []
        for axis, token in filter(None, axes):
            name = axis.name
            if name not in names and name.isdecimal() and int(name[:9]) < len(names):
                axis = replace(axis, name=names[int(name)])
            elif name not in names:
                raise Problem(token.begin, f"the mesh has no axis {name!r}", token)
            used.append(axis)
        if isinstance(mesh.device_ids, IotaList):
            _check_iota(mesh.device_ids)
        if mesh.listed != mesh.count:
            message = (
                f"the mesh has {mesh.count} positions, device_ids= lists {mesh.listed} devices"
            )
            raise Problem(last.begin, message, last)
        return MeshGroups(mesh, tuple(used))

    def mesh(self, parts: list[Any]) -> tuple[Mesh, Token | None]:
        """The mesh, and its last axis as it is written."""
        axes = [part for part in parts if isinstance(part, _Axis)]
        ids = parts[-1] if len(axes) < len(parts) else None
        mesh = Mesh(tuple((axis.name, axis.size) for axis in axes), ids)
        return mesh, axes[-1].token if axes else None

    def mesh_axis(self, parts: list[Token]) -> _Axis:
        return _Axis(unquote(parts[0]), integer(parts[1]), parts[0])

    def device_ids(self, parts: list[Any]) -> tuple[int, ...] | IotaList:
        return parts[0] if isinstance(parts[0], IotaList) else integers(parts)

    def device_order(self, parts: list[tuple[int, ...]]) -> IotaList:
        dims, *order = parts
        usual = tuple(range(len(dims))) if len(dims) > 1 else ()
        return IotaList((prod(dims),), dims, *order or [usual])

    def axis(self, parts: list[Token]) -> tuple[AxisRef, Token] | None:
        return (AxisRef(unquote(parts[0]), *integers(parts[1:])), parts[0]) if parts else None

    def tuple_sharding(self, parts: list[Sharding]) -> Sharding:
        if any(part.elements is not None for part in parts):
            raise Problem(0, "a tuple has one sharding for each of its leaves, no tuples of them")
        return Sharding(elements=tuple(parts))

    def sharding(self, parts: list[tuple[str, list[Any]]]) -> Sharding:
        given = dict(parts)
        tiles: Tiles | None = None
        if "devices" in given:
            first, *ids = given["devices"]
            iota = isinstance(first, IotaList)
            tiles = Tiles(
                first.dims if iota else first,
                first if iota else integers(ids),
                "last_tile_dim_replicate" in given,
                tuple(given["last_tile_dims"]) if "last_tile_dims" in given else None,
            )
        return Sharding(
            next((key for key, _ in reversed(parts) if key in _WORDS), ""),
            integer(given["device"][0]) if "device" in given else None,
            tiles,
            group=next(((key, integer(ids[0])) for key, ids in parts if key in _GROUPS), None),
            metadata=_metadata(given),
        )

    def named_sharding(self, parts: list[Any]) -> Sharding:
        first, *rest = parts
        mesh = Mesh((), first) if isinstance(first, IotaList) else first[0]
        if isinstance(mesh, int):  # maximal_mesh[device_ids=3]
            mesh = Mesh((), first)
        given = dict(rest)
        if "device_ids" in given:
            mesh = replace(mesh, device_ids=given["device_ids"][0])
        dims: tuple[DimSharding, ...] | None = None
        if "[" in given:
            dims = tuple(DimSharding(_refs(axes), None in axes) for axes in given["["])
        others = {key: values for key, values in rest if key in _WORDS}
        unreduced = given.get("unreduced", ())
        named = NamedSharding(
            mesh,
            dims,
            tuple((key, _refs(values[-1]) if values else ()) for key, values in others.items()),
            str(unreduced[0]) if len(unreduced) > 1 else "",
        )
        return Sharding(named=named, metadata=_metadata(given))

    def sharding_part(self, parts: list[Any]) -> tuple[str, list[Any]]:
        """What a part begins with, and the values in it."""
        return str(parts[0]), [part for part in parts[1:] if part not in _PUNCTUATION]

    mesh_part = sharding_part

    def subgroup(self, parts: list[Token]) -> str:
        return str(parts[0])

    def domain(self, parts: list[Any]) -> Domain:
        return Domain(unquote(parts[0]), parts[1], parts[2])

    def dims(self, parts: list[Token]) -> tuple[int, ...]:
        return integers(parts)

    transposed = dims


class _Axis(NamedTuple):
    """An axis of a mesh, and how it is written."""

    name: str
    size: int
    token: Token


def _metadata(given: Mapping[str, list[Any]]) -> tuple[Metadata, ...]:
    found = given["metadata"][0] if "metadata" in given else []
    return tuple(map(Metadata.of, found if isinstance(found, list) else [found]))


def _refs(axes: list[tuple[AxisRef, Token] | None]) -> tuple[AxisRef, ...]:
    return tuple(axis for axis, _ in filter(None, axes))


def _check_iota(iota: IotaList) -> None:
    dims, reshape, order = iota.dims, iota.reshape, iota.permutation
    if not dims or not reshape:
        raise Problem(0, "a list of devices needs the sizes of its dimensions: [2,4]<=[8]")
    if (least := min(*dims, *reshape)) < 0:
        raise Problem(0, f"a list of devices has no dimension of {least}")
    if len(reshape) > 1 and not order:
        raise Problem(0, f"[{_listed(reshape)}] needs an order of its dimensions, T(...)")
    if order and (len(reshape) == 1 or sorted(order) != list(range(len(reshape)))):
        message = f"T({_listed(order)}) is not an order of the dimensions of [{_listed(reshape)}]"
        raise Problem(0, message)


def _listed(sizes: tuple[int, ...]) -> str:
    return ",".join(map(str, sizes))
