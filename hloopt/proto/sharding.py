"""Shardings, from protos to the text HLO has for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from hloopt.proto.annotations import read_metadata
from hloopt.proto.messages import decode, text
from hloopt.proto.problem import Problem
from hloopt.proto.words import word_of

__all__ = ["MAXIMAL", "OTHER", "TUPLE", "TYPES", "mesh_axes_text", "read"]

MAXIMAL, TUPLE, OTHER = 1, 2, 3
TYPES = {0: "replicated", 1: "maximal", 4: "manual", 5: "unknown", 6: "unreduced"}
_DEEPEST = 64


def read(data: bytes, warnings: list[str]) -> str:
    """The text of the sharding in the bytes of an ``OpSharding``; raises ``Problem``."""
    return _text(decode("OpSharding", data, warnings), warnings, 0)


def _text(proto: Any, warnings: list[str], depth: int) -> str:
    if proto.HasField("named_sharding"):
        return _named(proto.named_sharding, warnings)
    if proto.type == TUPLE:
        if depth >= _DEEPEST:
            raise Problem(f"a sharding is nested more than {_DEEPEST} levels deep")
        inner = (_text(part, warnings, depth + 1) for part in proto.tuple_shardings)
        return f"{{{', '.join(inner)}}}"
    parts = [*_tiles(proto)] if proto.type == OTHER else [word_of(TYPES, proto.type, "type")]
    if proto.type == MAXIMAL:
        if len(proto.tile_assignment_devices) != 1:
            raise Problem("a maximal sharding has one device", "tile_assignment_devices")
        parts.append(f"device={proto.tile_assignment_devices[0]}")
    if proto.is_shard_group:
        word = "shard_like" if proto.shard_group_type else "shard_as"
        parts.append(f"{word} {proto.shard_group_id}")
    parts += _metadata(proto.metadata, warnings)
    return f"{{{' '.join(parts)}}}"


def _tiles(proto: Any) -> Iterator[str]:
    dims = f"devices={_brackets(proto.tile_assignment_dimensions)}"
    if proto.iota_reshape_dims:
        yield dims + _iota(proto.iota_reshape_dims, proto.iota_transpose_perm)
    else:
        yield dims + ",".join(map(str, proto.tile_assignment_devices))
    if proto.replicate_on_last_tile_dim:
        yield "last_tile_dim_replicate"
    if proto.last_tile_dims:
        words = (word_of(TYPES, kind, "last_tile_dims") for kind in proto.last_tile_dims)
        yield f"last_tile_dims={{{', '.join(words)}}}"


def _metadata(several: Iterable[bytes], warnings: list[str]) -> Iterator[str]:
    texts = [read_metadata(data, warnings).text for data in several]
    if len(texts) == 1:
        yield f"metadata={texts[0]}"
    elif texts:
        yield f"metadata={{{', '.join(texts)}}}"


def _brackets(numbers: Iterable[int]) -> str:
    return f"[{','.join(map(str, numbers))}]"


def _iota(dims: Iterable[int], order: Any) -> str:
    transposed = f"T({','.join(map(str, order))})" if len(order) > 1 else ""
    return f"<={_brackets(dims)}{transposed}"


# ---- meshes -----------------------------------------------------------------------------------------


def _named(proto: Any, warnings: list[str]) -> str:
    mesh = proto.mesh
    parts = [f"mesh[{_mesh_axes(mesh)}]", *_device_ids(mesh)]
    if not mesh.axes and mesh.device_ids:  # the sharding of one device
        parts = [f"maximal_mesh[device_ids={mesh.device_ids[0]}]"]
    dims = ", ".join(_dimension(mesh, dim) for dim in proto.dim_shardings)
    parts.append(f"[{dims}]" if dims or mesh.axes or mesh.device_ids else "replicated")
    for word, axes in (
        ("replicated", proto.replicated_axes),
        ("unreduced", proto.unreduced_axes),
        ("manual", proto.manual_axes),
    ):
        if axes:
            parts.append(f"{word}={{{_axes(mesh, axes)}}}")
    parts += _metadata(proto.metadata, warnings)
    return f"{{{', '.join(parts)}}}"


def _mesh(mesh: Any) -> str:
    return f"mesh[{','.join(filter(None, (_mesh_axes(mesh), *_device_ids(mesh))))}]"


def _mesh_axes(mesh: Any) -> str:
    return ",".join(f"'{text(axis.name)}'={axis.size}" for axis in mesh.axes)


def _device_ids(mesh: Any) -> Iterator[str]:
    if mesh.HasField("iota_transform"):
        iota = mesh.iota_transform
        order = _iota(iota.reshape_dims, iota.transpose_perm).removeprefix("<=")
        yield f"device_ids=({order})"
    elif mesh.device_ids:
        yield f"device_ids=({','.join(map(str, mesh.device_ids))})"


def _dimension(mesh: Any, dim: Any) -> str:
    axes = _axes(mesh, dim.axes)
    if dim.is_closed:
        return f"{{{axes}}}"
    return f"{{{axes}, ?}}" if axes else "{?}"


def _axes(mesh: Any, axes: Iterable[Any]) -> str:
    return ", ".join(_axis(mesh, axis) for axis in axes)


def _axis(mesh: Any, axis: Any) -> str:
    if not 0 <= axis.mesh_axis_index < len(mesh.axes):
        raise Problem(f"the mesh has no axis {axis.mesh_axis_index}", "mesh_axis_index")
    name = f"'{text(mesh.axes[axis.mesh_axis_index].name)}'"
    if axis.HasField("sub_axis_info"):
        return f"{name}:({axis.sub_axis_info.pre_size}){axis.sub_axis_info.size}"
    return name


def mesh_axes_text(proto: Any) -> str:
    """``mesh['x'=2] {'x'}``: the groups of a collective named by the axes of a mesh."""
    return f"{_mesh(proto.mesh)} {{{','.join(_axis(proto.mesh, axis) for axis in proto.axes)}}}"
