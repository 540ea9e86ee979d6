"""Dimension numbers, groups of devices, and the options of linear algebra."""

from __future__ import annotations

from typing import Any

from hloopt.proto.entry import Entry, Target, kept, said
from hloopt.proto.messages import new
from hloopt.proto.problem import Problem
from hloopt.proto.rows import Row, numbers_in, of_message
from hloopt.proto.sharding import read_mesh_groups, write_mesh_groups
from hloopt.proto.words import TRANSPOSES, number_of, word_of
from hloopt.types import IotaList, MeshGroups, TupleShape, Verbatim, leaves

__all__ = [
    "CHANNEL_ID",
    "DOT",
    "LARGEST",
    "LOWER",
    "RAGGED_DOT",
    "REPLICA_GROUPS",
    "SLICE_SIZES",
    "SOURCE_TARGET_PAIRS",
    "SPARSITY",
    "TRIANGULAR",
    "vector_dim",
]

# ---- collectives ------------------------------------------------------------------------------------


def _channel() -> Row:
    """Zero and less say that there is none; old protos have the number under another name."""

    def read(entry: Entry) -> int | None:
        found = entry.proto.channel_id
        if found <= 0:
            found = entry.proto.all_reduce_id
        return found if found > 0 else None

    def write(target: Target, value: int) -> None:
        target.proto.channel_id = value

    return Row("channel_id", ("channel_id", "all_reduce_id"), read, write)


def _replica_groups() -> Row:
    """Written out, as an iota, or by the axes of a mesh; old protos have them in other fields."""
    fields = (
        "replica_groups",
        "collective_device_list",
        "iota_collective_device_list",
        "mesh_axes_replica_group_list",
    )

    def read(entry: Entry) -> Any:
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

    def write(target: Target, value: Any) -> None:
        if isinstance(value, Verbatim):
            made = write_mesh_groups(said("replica_groups", value, MeshGroups))
            target.proto.mesh_axes_replica_group_list = made.SerializeToString()
        elif isinstance(value, IotaList):
            made = new("IotaReplicaGroupList")
            made.num_replica_groups, made.num_devices_per_group = value.dims
            made.iota_reshape_dims.extend(value.reshape)
            made.iota_transpose_perm.extend(value.permutation or range(len(value.reshape)))
            target.proto.iota_collective_device_list = made.SerializeToString()
        else:
            made = new("CollectiveDeviceList")
            for group in value:
                made.replica_groups.add().replica_ids.extend(group)
            target.proto.collective_device_list = made.SerializeToString()

    return Row("replica_groups", fields, read, write, always=True)


def _listed(proto: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(group.replica_ids) for group in proto.replica_groups)


def _iota(proto: Any) -> IotaList:
    order = tuple(proto.iota_transpose_perm)
    return IotaList(
        (proto.num_replica_groups, proto.num_devices_per_group),
        tuple(proto.iota_reshape_dims),
        order if len(order) > 1 else (),
    )


def _pairs() -> Row:
    field = "source_target_pairs"

    def read(entry: Entry) -> tuple[tuple[int, int], ...]:
        return tuple((pair.source, pair.target) for pair in entry.proto.source_target_pairs)

    def write(target: Target, value: tuple[tuple[int, int], ...]) -> None:
        for source, destination in value:
            target.proto.source_target_pairs.add(source=source, target=destination)

    return Row(field, (field,), read, write, always=True)


def _slice_sizes() -> Row:
    """One list in the proto: the sizes for each array of the input, as many as it has dimensions."""

    def read(entry: Entry) -> tuple[tuple[int, ...], ...] | None:
        sizes = tuple(entry.proto.dynamic_slice_sizes)
        if not sizes:
            return None
        arrays = list(leaves(entry.operands[0].shape)) if entry.operands else []
        ranks = [getattr(array, "rank", 0) for array in arrays]
        starts = (
            sum(
                len(part.elements) if isinstance(part, TupleShape) else 1
                for part in (entry.operands[2].shape,)
                if isinstance(part, TupleShape)
            )
            if len(entry.operands) > 2
            else 1
        )
        found, at = [], 0
        if len(set(ranks)) == 1 and ranks[0]:
            while at < len(sizes):
                found.append(sizes[at : at + ranks[0]])
                at += ranks[0]
        if not found or at != len(sizes):
            raise Problem(
                f"has {len(sizes)} numbers for inputs of ranks {ranks} and {starts} starts",
                "dynamic_slice_sizes",
            )
        return tuple(found)

    def write(target: Target, value: tuple[tuple[int, ...], ...]) -> None:
        for sizes in value:
            target.proto.dynamic_slice_sizes.extend(sizes)

    return Row("slice_sizes", ("dynamic_slice_sizes",), read, write)


CHANNEL_ID = _channel()
REPLICA_GROUPS = _replica_groups()
SOURCE_TARGET_PAIRS = _pairs()
SLICE_SIZES = _slice_sizes()

# ---- dimension numbers ------------------------------------------------------------------------------

_DOT_NAMES = (
    ("lhs_batch_dims", "lhs_batch_dimensions"),
    ("lhs_contracting_dims", "lhs_contracting_dimensions"),
    ("rhs_batch_dims", "rhs_batch_dimensions"),
    ("rhs_contracting_dims", "rhs_contracting_dimensions"),
)

DOT = tuple(
    numbers_in(
        name, "DotDimensionNumbers", "dot_dimension_numbers", inner, optional="batch" in name
    )
    for name, inner in _DOT_NAMES
)


def _ragged(name: str, inner: str) -> Row:
    field, kind = "ragged_dot_dimension_numbers", "RaggedDotDimensionNumbers"

    def read(entry: Entry) -> tuple[int, ...] | None:
        found = tuple(getattr(entry.message(kind, field).dot_dimension_numbers, inner))
        return found if found or "contracting" in name else None

    def write(target: Target, value: tuple[int, ...]) -> None:
        getattr(target.message(kind, field).dot_dimension_numbers, inner).extend(value)

    return Row(name, (field,), read, write)


RAGGED_DOT = (
    *(_ragged(name, inner) for name, inner in _DOT_NAMES),
    numbers_in(
        "lhs_ragged_dims",
        "RaggedDotDimensionNumbers",
        "ragged_dot_dimension_numbers",
        "lhs_ragged_dimensions",
    ),
    numbers_in(
        "rhs_group_dims",
        "RaggedDotDimensionNumbers",
        "ragged_dot_dimension_numbers",
        "rhs_group_dimensions",
    ),
)


def vector_dim(field: str, kind: str) -> Row:
    """``index_vector_dim`` of a gather or a scatter."""

    def read(entry: Entry) -> int:
        return int(entry.message(kind, field).index_vector_dim)

    def write(target: Target, value: int) -> None:
        target.message(kind, field).index_vector_dim = value

    return Row("index_vector_dim", (field,), read, write, always=True)


# ---- options ----------------------------------------------------------------------------------------


def _option(name: str, kind: str, field: str) -> Row:
    def read(entry: Entry) -> bool | None:
        return True if getattr(entry.message(kind, field), name) else None

    def write(target: Target, value: bool) -> None:
        setattr(target.message(kind, field), name, bool(value))

    return Row(name, (field,), read, write)


def _transpose() -> Row:
    kind, field = "TriangularSolveOptions", "triangular_solve_options"

    def read(entry: Entry) -> str | None:
        value = entry.message(kind, field).transpose_a
        return word_of(TRANSPOSES, value, field) if value else None

    def write(target: Target, value: str) -> None:
        target.message(kind, field).transpose_a = number_of(TRANSPOSES, value)

    return Row("transpose_a", (field,), read, write)


def _largest() -> Row:
    def read(entry: Entry) -> bool:
        return bool(entry.proto.largest)

    def write(target: Target, value: bool) -> None:
        target.proto.largest = bool(value)

    return Row("largest", ("largest",), read, write, always=True)


LARGEST = _largest()
LOWER = _option("lower", "CholeskyOptions", "cholesky_options")
TRIANGULAR = (
    *(
        _option(name, "TriangularSolveOptions", "triangular_solve_options")
        for name in ("left_side", "lower", "unit_diagonal")
    ),
    _transpose(),
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
                raise Problem(f"{name}= of a sparsity_config has {len(numbers)} numbers")
            for field, number in zip(names, numbers, strict=True):
                setattr(part, field, number)


SPARSITY = of_message(
    "sparsity_config", "sparsity_config", "SparsityConfig", _read_sparsity, _write_sparsity
)
