"""Dimension numbers, groups of devices, and the options of linear algebra."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hloopt.proto import ProtoProblem
from hloopt.proto.entry import ProtoSource, ProtoTarget, kept, said
from hloopt.proto.messages import new
from hloopt.proto.rows import ProtoRow, flag, integers, of_message, word
from hloopt.proto.sharding import read_iota, read_mesh_groups, write_mesh_groups
from hloopt.proto.words import TRANSPOSES
from hloopt.types import IotaList, MeshGroups, TupleShape, Verbatim, leaves

__all__ = [
    "CHANNEL_ID",
    "DOT",
    "LOWER",
    "RAGGED_DOT",
    "REPLICA_GROUPS",
    "SLICE_SIZES",
    "SOURCE_TARGET_PAIRS",
    "SPARSITY",
    "TRIANGULAR",
]

# ---- collectives ------------------------------------------------------------------------------------


def _channel() -> ProtoRow:
    """Zero and less say that there is none; old protos have the number under another name."""

    def read(entry: ProtoSource) -> int | None:
        found = entry.proto.channel_id
        if found <= 0:
            found = entry.proto.all_reduce_id
        return found if found > 0 else None

    def write(target: ProtoTarget, value: int) -> None:
        target.proto.channel_id = value

    return ProtoRow("channel_id", ("channel_id", "all_reduce_id"), read, write)


def _replica_groups() -> ProtoRow:
    """Written out, as an iota, or by the axes of a mesh; old protos have them in other fields."""
    fields = (
        "replica_groups",
        "collective_device_list",
        "iota_collective_device_list",
        "mesh_axes_replica_group_list",
    )

    def read(entry: ProtoSource) -> Any:
        proto = entry.proto
        if proto.HasField("mesh_axes_replica_group_list"):
            groups = entry.message("MeshAxesReplicaGroupList", fields[3])
            return Verbatim.of(read_mesh_groups(groups))
        if proto.HasField("iota_collective_device_list"):
            return _iota(entry.message("IotaReplicaGroupList", fields[2]))
        if not proto.HasField("collective_device_list"):
            return _listed(proto)
        groups = entry.message("CollectiveDeviceList", fields[1])
        if groups.HasField("iota_replica_group_list"):
            return _iota(groups.iota_replica_group_list)
        return _listed(groups)

    def write(target: ProtoTarget, value: Any) -> None:
        if isinstance(value, Verbatim):
            field, made = fields[3], write_mesh_groups(said("replica_groups", value, MeshGroups))
        elif isinstance(value, IotaList):
            field, made = fields[2], new("IotaReplicaGroupList")
            made.num_replica_groups, made.num_devices_per_group = value.dims
            made.iota_reshape_dims.extend(value.reshape)
            made.iota_transpose_perm.extend(value.permutation or range(len(value.reshape)))
        else:
            field, made = fields[1], new("CollectiveDeviceList")
            for group in value:
                made.replica_groups.add().replica_ids.extend(group)
        setattr(target.proto, field, made.SerializeToString())

    return ProtoRow("replica_groups", fields, read, write, always=True)


def _listed(proto: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(group.replica_ids) for group in proto.replica_groups)


def _iota(proto: Any) -> IotaList:
    dims = proto.num_replica_groups, proto.num_devices_per_group
    return read_iota(dims, proto.iota_reshape_dims, proto.iota_transpose_perm)


def _pairs() -> ProtoRow:
    name = "source_target_pairs"

    def read(entry: ProtoSource) -> tuple[tuple[int, int], ...]:
        return tuple((pair.source, pair.target) for pair in entry.proto.source_target_pairs)

    def write(target: ProtoTarget, value: tuple[tuple[int, int], ...]) -> None:
        for source, destination in value:
            target.proto.source_target_pairs.add(source=source, target=destination)

    return ProtoRow(name, (name,), read, write, always=True)


def _slice_sizes() -> ProtoRow:
    """One list in the proto: the sizes for each array of the input, as many as it has dimensions."""

    def read(entry: ProtoSource) -> tuple[tuple[int, ...], ...] | None:
        sizes = tuple(entry.proto.dynamic_slice_sizes)
        if not sizes:
            return None
        arrays = list(leaves(entry.operands[0].shape)) if entry.operands else []
        ranks = [getattr(array, "rank", 0) for array in arrays]
        rank = ranks[0] if len(set(ranks)) == 1 else 0
        if not rank or len(sizes) % rank:
            starts = entry.operands[2].shape if len(entry.operands) > 2 else None
            count = len(starts.elements) if isinstance(starts, TupleShape) else starts is None
            raise ProtoProblem(
                f"has {len(sizes)} numbers for inputs of ranks {ranks} and {count:d} starts",
                "dynamic_slice_sizes",
            )
        return tuple(sizes[at : at + rank] for at in range(0, len(sizes), rank))

    def write(target: ProtoTarget, value: tuple[tuple[int, ...], ...]) -> None:
        for sizes in value:
            target.proto.dynamic_slice_sizes.extend(sizes)

    return ProtoRow("slice_sizes", ("dynamic_slice_sizes",), read, write)


CHANNEL_ID = _channel()
REPLICA_GROUPS = _replica_groups()
SOURCE_TARGET_PAIRS = _pairs()
SLICE_SIZES = _slice_sizes()

# ---- dimension numbers ------------------------------------------------------------------------------


def _dot(path: str) -> Iterator[ProtoRow]:
    for side in ("lhs", "rhs"):
        for dims in ("batch", "contracting"):
            inner = f"{path}.{side}_{dims}_dimensions"
            yield integers(f"{side}_{dims}_dims", inner, optional=dims == "batch")


DOT = tuple(_dot("dot_dimension_numbers"))
_RAGGED = "ragged_dot_dimension_numbers"
RAGGED_DOT = (
    *_dot(f"{_RAGGED}.dot_dimension_numbers"),
    integers("lhs_ragged_dims", f"{_RAGGED}.lhs_ragged_dimensions", optional=True),
    integers("rhs_group_dims", f"{_RAGGED}.rhs_group_dimensions", optional=True),
)

# ---- options ----------------------------------------------------------------------------------------

_SOLVE = "triangular_solve_options"
LOWER = flag("lower", "cholesky_options.lower")
TRIANGULAR = (
    *(flag(name, f"{_SOLVE}.{name}") for name in ("left_side", "lower", "unit_diagonal")),
    word("transpose_a", f"{_SOLVE}.transpose_a", TRANSPOSES, unless=0),
)

# ---- sparse convolutions ----------------------------------------------------------------------------


def _read_sparsity(proto: Any) -> Verbatim | None:
    parts = []
    for side in ("lhs", "rhs"):
        if proto.HasField(side):
            found = getattr(proto, side)
            parts.append(
                f"{side}={{sparsity={found.num_non_zero}x{found.block_size} "
                f"dimension={found.dimension} stride={found.stride}}}"
            )
    return kept("sparsity_config", f"{{{' '.join(parts)}}}") if parts else None


def _write_sparsity(proto: Any, value: Verbatim) -> None:
    for side, fields in said("sparsity_config", value, dict).items():
        part = getattr(proto, side)
        part.SetInParent()
        for name, numbers in fields.items():
            names = ("num_non_zero", "block_size") if name == "sparsity" else (name,)
            if len(numbers) != len(names):
                raise ProtoProblem(f"{name}= of a sparsity_config has {len(numbers)} numbers")
            for field, number in zip(names, numbers, strict=True):
                setattr(part, field, number)


SPARSITY = of_message("sparsity_config", "sparsity_config", _read_sparsity, _write_sparsity)
