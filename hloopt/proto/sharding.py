"""Shardings and meshes as protos, both ways."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

from hloopt.proto import ProtoProblem, within
from hloopt.proto.annotations import read_metadata, write_metadata
from hloopt.proto.entry import ProtoSource, ProtoTarget, said
from hloopt.proto.messages import decode, encoded, new, text
from hloopt.proto.rows import ProtoRow
from hloopt.proto.words import number_of, word_of
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
    Verbatim,
)

__all__ = ["DOMAIN", "SHARDING", "read_iota", "read_mesh_groups", "write_mesh_groups"]

_MAXIMAL, _TUPLE, _OTHER = 1, 2, 3
_TYPES = {0: "replicated", 1: "maximal", 4: "manual", 5: "unknown", 6: "unreduced"}
_GROUPS = ("shard_as", "shard_like")
_AXES = ("replicated", "unreduced", "manual")


def _decoded(data: bytes, warnings: list[str]) -> Sharding:
    return _read(decode("OpSharding", data, warnings), warnings, nested=False)


def _read(proto: Any, warnings: list[str], *, nested: bool) -> Sharding:
    if proto.HasField("named_sharding"):
        return _read_named(proto.named_sharding, warnings)
    if proto.type == _TUPLE:
        if nested:
            raise ProtoProblem("a tuple has one sharding for each of its leaves, no tuples of them")
        inner = (_read(part, warnings, nested=True) for part in proto.tuple_shardings)
        return Sharding(elements=tuple(inner))
    if proto.type == _MAXIMAL and len(proto.tile_assignment_devices) != 1:
        raise ProtoProblem("a maximal sharding has one device", "tile_assignment_devices")
    return Sharding(
        "" if proto.type == _OTHER else word_of(_TYPES, proto.type, "type"),
        proto.tile_assignment_devices[0] if proto.type == _MAXIMAL else None,
        _read_tiles(proto) if proto.type == _OTHER else None,
        group=(_GROUPS[bool(proto.shard_group_type)], proto.shard_group_id)
        if proto.is_shard_group
        else None,
        metadata=_read_metadata(proto.metadata, warnings),
    )


def _read_tiles(proto: Any) -> Tiles:
    dims = tuple(proto.tile_assignment_dimensions)
    ids: tuple[int, ...] | IotaList = tuple(proto.tile_assignment_devices)
    if proto.iota_reshape_dims:
        ids = read_iota(dims, proto.iota_reshape_dims, proto.iota_transpose_perm)
    last = tuple(word_of(_TYPES, kind, "last_tile_dims") for kind in proto.last_tile_dims)
    return Tiles(dims, ids, proto.replicate_on_last_tile_dim, last or None)


def read_iota(dims: Iterable[int], reshape: Iterable[int], order: Iterable[int]) -> IotaList:
    """A list of devices; an order of one dimension says nothing."""
    permutation = tuple(order)
    return IotaList(tuple(dims), tuple(reshape), permutation if len(permutation) > 1 else ())


def _read_metadata(several: Iterable[bytes], warnings: list[str]) -> tuple[Metadata, ...]:
    return tuple(read_metadata(data, warnings) or Metadata.of({}) for data in several)


def _written(sharding: Sharding) -> Any:
    proto = new("OpSharding")
    if sharding.elements is not None:
        proto.type = _TUPLE
        proto.tuple_shardings.extend(map(_written, sharding.elements))
        return proto
    if sharding.named is not None:
        _write_named(proto.named_sharding, sharding.named)
        _write_metadata(proto.named_sharding.metadata, sharding.metadata)
        return proto
    if sharding.word:
        proto.type = number_of(_TYPES, sharding.word)
    if sharding.tiles is not None:
        proto.type = _OTHER
        _write_tiles(proto, sharding.tiles)
    if sharding.device is not None:
        proto.type = _MAXIMAL
        proto.tile_assignment_dimensions.append(1)
        proto.tile_assignment_devices.append(sharding.device)
    if sharding.group is not None:
        word, number = sharding.group
        proto.is_shard_group = True
        proto.shard_group_id = number
        proto.shard_group_type = _GROUPS.index(word)
    _write_metadata(proto.metadata, sharding.metadata)
    return proto


def _write_tiles(proto: Any, tiles: Tiles) -> None:
    proto.tile_assignment_dimensions.extend(tiles.dims)
    if isinstance(tiles.ids, IotaList):
        proto.iota_reshape_dims.extend(tiles.ids.reshape)
        order = tiles.ids.permutation or range(len(tiles.ids.reshape))
        proto.iota_transpose_perm.extend(order)
    else:
        proto.tile_assignment_devices.extend(tiles.ids)
    proto.replicate_on_last_tile_dim = tiles.replicated_last
    proto.last_tile_dims.extend(number_of(_TYPES, word) for word in tiles.last_dims or ())


def _write_metadata(several: Any, metadata: Iterable[Metadata]) -> None:
    several.extend(write_metadata(one).SerializeToString() for one in metadata)


# ---- attributes -------------------------------------------------------------------------------------


def _sharding() -> ProtoRow:
    def read(entry: ProtoSource) -> Verbatim | None:
        if not entry.proto.HasField("sharding"):
            return None
        return Verbatim.of(_field(entry, "sharding"))

    def write(target: ProtoTarget, value: Verbatim) -> None:
        found = said("sharding", value, Sharding)
        target.proto.sharding = target.writing.once(_written, found)

    return ProtoRow("sharding", ("sharding",), read, write)


def _field(entry: ProtoSource, field: str) -> Sharding:
    with within(field):
        found: Sharding = entry.reading.once(_decoded, getattr(entry.proto, field))
        return found


def _domain() -> ProtoRow:
    # XLA's proto calls entry what its text calls exit.
    fields = ("domain_exit_sharding", "domain_entry_sharding")

    def read(entry: ProtoSource) -> Verbatim:
        return Verbatim.of(Domain("sharding", *(_field(entry, field) for field in fields)))

    def write(target: ProtoTarget, value: Verbatim) -> None:
        found = said("domain", value, Domain)
        for field, part in zip(fields, (found.entry, found.exit), strict=True):
            setattr(target.proto, field, target.writing.once(_written, part))

    return ProtoRow("domain", fields, read, write, always=True)


SHARDING = _sharding()
DOMAIN = _domain()

# ---- meshes -----------------------------------------------------------------------------------------


def read_mesh_groups(proto: Any) -> MeshGroups:
    """The groups of a ``MeshAxesReplicaGroupList``; raises ``ProtoProblem``."""
    mesh = _read_mesh(proto.mesh)
    return MeshGroups(mesh, _read_axes(mesh, proto.axes))


def write_mesh_groups(groups: MeshGroups) -> Any:
    """A ``MeshAxesReplicaGroupList``."""
    proto = new("MeshAxesReplicaGroupList")
    _write_mesh(proto.mesh, groups.mesh)
    _write_axes(proto.axes, groups.mesh, groups.axes)
    return proto


def _read_named(proto: Any, warnings: list[str]) -> Sharding:
    mesh = _read_mesh(proto.mesh)
    dims = tuple(
        DimSharding(_read_axes(mesh, dim.axes), not dim.is_closed) for dim in proto.dim_shardings
    )
    others: list[tuple[str, tuple[AxisRef, ...]]] = []
    for word in _AXES:
        axes = _read_axes(mesh, getattr(proto, f"{word}_axes"))
        if axes:
            others.append((word, axes))
    whole = not (dims or mesh.axes or mesh.device_ids)
    if whole:  # a mesh without axes shards nothing
        others.insert(0, ("replicated", ()))
    named = NamedSharding(mesh, None if whole else dims, tuple(others))
    return Sharding(named=named, metadata=_read_metadata(proto.metadata, warnings))


def _write_named(proto: Any, named: NamedSharding) -> None:
    proto.SetInParent()
    _write_mesh(proto.mesh, named.mesh)
    for dim in named.dims or ():
        made = proto.dim_shardings.add(is_closed=not dim.is_open)
        _write_axes(made.axes, named.mesh, dim.axes)
    if named.reduction:
        raise ProtoProblem(f"the proto has no field for unreduced={named.reduction}", "sharding")
    for word, axes in named.others:
        _write_axes(getattr(proto, f"{word}_axes"), named.mesh, axes)


def _read_mesh(proto: Any) -> Mesh:
    ids: tuple[int, ...] | IotaList | None = tuple(proto.device_ids) or None
    if proto.HasField("iota_transform"):
        iota = proto.iota_transform
        ids = read_iota((prod(iota.reshape_dims),), iota.reshape_dims, iota.transpose_perm)
    return Mesh(tuple((text(axis.name), axis.size) for axis in proto.axes), ids)


def _write_mesh(proto: Any, mesh: Mesh) -> None:
    proto.SetInParent()
    for name, size in mesh.axes:
        proto.axes.add(name=encoded(name), size=size)
    ids = mesh.device_ids
    if isinstance(ids, IotaList):
        proto.iota_transform.reshape_dims.extend(ids.reshape)
        proto.iota_transform.transpose_perm.extend(ids.permutation)
    else:
        proto.device_ids.extend(ids or ())


def _read_axes(mesh: Mesh, axes: Iterable[Any]) -> tuple[AxisRef, ...]:
    found = []
    for axis in axes:
        if not 0 <= axis.mesh_axis_index < len(mesh.axes):
            raise ProtoProblem(f"the mesh has no axis {axis.mesh_axis_index}", "mesh_axis_index")
        part = axis.sub_axis_info
        sizes = (part.pre_size, part.size) if axis.HasField("sub_axis_info") else ()
        found.append(AxisRef(mesh.axes[axis.mesh_axis_index][0], *sizes))
    return tuple(found)


def _write_axes(several: Any, mesh: Mesh, axes: Iterable[AxisRef]) -> None:
    names = [name for name, _ in mesh.axes]
    for axis in axes:
        if axis.name not in names:
            raise ProtoProblem(f"the mesh has no axis {axis.name!r}", "sharding")
        proto = several.add(mesh_axis_index=names.index(axis.name))
        if axis.size is not None:
            proto.sub_axis_info.pre_size = axis.before
            proto.sub_axis_info.size = axis.size
