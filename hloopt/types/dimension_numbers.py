"""The dimension numbers of dots, convolutions, gathers and scatters, of several attributes each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from hloopt.dataclass import dataclass
from hloopt.types.attrs import ConvDims, Window

__all__ = ["ConvNumbers", "DotDims", "GatherDims", "ScatterDims", "free_dims"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ConvNumbers:
    """All numbers of a convolution: labels, window, and into how many groups features or batches fall."""

    labels: ConvDims
    window: Window
    feature_groups: int = 1
    batch_groups: int = 1

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> ConvNumbers:
        """Read from an instruction's attributes."""
        return cls(
            attributes["dim_labels"],
            Window.of(attributes, 0),
            attributes.get("feature_group_count", 1),
            attributes.get("batch_group_count", 1),
        )

    @property
    def groups(self) -> int:
        """How many groups there are, of either kind."""
        return self.feature_groups * self.batch_groups


@dataclass(frozen=True, slots=True)
class DotDims:
    """The dimension numbers of a dot."""

    lhs_contracting: tuple[int, ...]
    rhs_contracting: tuple[int, ...]
    lhs_batch: tuple[int, ...]
    rhs_batch: tuple[int, ...]

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> DotDims:
        """Read from an instruction's attributes; absent ones are empty."""
        return cls(
            attributes.get("lhs_contracting_dims", ()),
            attributes.get("rhs_contracting_dims", ()),
            attributes.get("lhs_batch_dims", ()),
            attributes.get("rhs_batch_dims", ()),
        )

    def lhs_free(self, rank: int) -> tuple[int, ...]:
        """The left operand's dimensions that come back in the result, of ``rank``."""
        return free_dims(rank, self.lhs_batch, self.lhs_contracting)

    def rhs_free(self, rank: int) -> tuple[int, ...]:
        """The right operand's dimensions that come back in the result, of ``rank``."""
        return free_dims(rank, self.rhs_batch, self.rhs_contracting)

    def places(self, lhs_rank: int, rhs_rank: int) -> tuple[dict[int, int], dict[int, int]]:
        """Of each operand: as which dimension of the result its dimensions come back."""
        lhs = (*self.lhs_batch, *self.lhs_free(lhs_rank))
        batch, rhs = self.rhs_batch, self.rhs_free(rhs_rank)
        return (
            {dim: place for place, dim in enumerate(lhs)},
            {dim: place for place, dim in enumerate(batch)}
            | {dim: place for place, dim in enumerate(rhs, len(lhs))},
        )


def free_dims(rank: int, batch: Sequence[int], contracting: Sequence[int]) -> tuple[int, ...]:
    """Dimensions that come back in the result: neither batch nor contracting ones."""
    taken = {*batch, *contracting}
    return tuple(dim for dim in range(rank) if dim not in taken)


class _IndexedDims(ABC):
    """What gather and scatter share: windows of an operand at places that an array of indices has.

    The batch dimensions are those of the indices without that of the vectors, in order.
    """

    __slots__ = ()
    index_vector_dim: int

    @property
    @abstractmethod
    def dropped_dims(self) -> frozenset[int]:
        """The operand's dimensions that windows do not have: those taken out, and batching ones."""

    def window_dims(self, rank: int) -> tuple[int, ...]:
        """The dimensions of an operand of ``rank`` that windows have."""
        dropped = self.dropped_dims
        return tuple(dim for dim in range(rank) if dim not in dropped)

    def batch_of(self, indices: Sequence[_T]) -> tuple[_T, ...]:
        """Of something for each dimension of the indices that of the batch dimensions."""
        at = self.index_vector_dim
        return (*indices[:at], *indices[at + 1 :])

    def vector_place(self, batch: Sequence[_T], number: _T, rank: int) -> tuple[_T, ...]:
        """Where in indices of ``rank`` element ``number`` of the vector at a batch position is."""
        at = self.index_vector_dim
        return (*batch[:at], number, *batch[at:]) if at < rank else tuple(batch)

    def _paired(
        self, operand: Sequence[int], indices: Sequence[int]
    ) -> tuple[tuple[int, int], ...]:
        at = self.index_vector_dim
        return tuple((dim, axis - (axis > at)) for dim, axis in zip(operand, indices, strict=True))


@dataclass(frozen=True, slots=True)
class GatherDims(_IndexedDims):
    """The dimension numbers of a gather."""

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...]
    start_indices_batching_dims: tuple[int, ...]
    index_vector_dim: int
    slice_sizes: tuple[int, ...]

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> GatherDims:
        """Read from an instruction's attributes."""
        return cls(
            attributes.get("offset_dims", ()),
            attributes.get("collapsed_slice_dims", ()),
            attributes.get("start_index_map", ()),
            attributes.get("operand_batching_dims", ()),
            attributes.get("start_indices_batching_dims", ()),
            attributes["index_vector_dim"],
            attributes["slice_sizes"],
        )

    def attributes(self) -> dict[str, Any]:
        """The attributes that say this; no batching dimensions where there are none."""
        return _attributes_of(self)

    @property
    def index_map(self) -> tuple[int, ...]:
        """The operand's dimension that each element of an index vector is for."""
        return self.start_index_map

    @property
    def dropped_dims(self) -> frozenset[int]:
        """Collapsed and batching dimensions of the operand."""
        return frozenset(self.collapsed_slice_dims + self.operand_batching_dims)

    @property
    def batching(self) -> tuple[tuple[int, int], ...]:
        """Each batching dimension of the operand with the batch dimension that it follows."""
        return self._paired(self.operand_batching_dims, self.start_indices_batching_dims)

    @property
    def kept_sizes(self) -> tuple[int, ...]:
        """The sizes of the offset dimensions."""
        return tuple(self.slice_sizes[dim] for dim in self.window_dims(len(self.slice_sizes)))

    def offsets_in(self, index: Sequence[_T], rank: int, zero: _T) -> list[_T]:
        """Where in a slice an element of the result at ``index`` lies, along each operand dimension."""
        offsets = dict(zip(self.window_dims(rank), self.offset_dims, strict=True))
        return [index[offsets[dim]] if dim in offsets else zero for dim in range(rank)]

    def batch_dims(self, rank: int) -> tuple[int, ...]:
        """The dimensions of a result of ``rank`` that are batch dimensions."""
        return tuple(dim for dim in range(rank) if dim not in self.offset_dims)


@dataclass(frozen=True, slots=True)
class ScatterDims(_IndexedDims):
    """The dimension numbers of a scatter."""

    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    input_batching_dims: tuple[int, ...]
    scatter_indices_batching_dims: tuple[int, ...]
    index_vector_dim: int

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> ScatterDims:
        """Read from an instruction's attributes."""
        return cls(
            attributes.get("update_window_dims", ()),
            attributes.get("inserted_window_dims", ()),
            attributes.get("scatter_dims_to_operand_dims", ()),
            attributes.get("input_batching_dims", ()),
            attributes.get("scatter_indices_batching_dims", ()),
            attributes["index_vector_dim"],
        )

    def attributes(self) -> dict[str, Any]:
        """The attributes that say this; no batching dimensions where there are none."""
        return _attributes_of(self)

    @property
    def index_map(self) -> tuple[int, ...]:
        """The operand's dimension that each element of an index vector is for."""
        return self.scatter_dims_to_operand_dims

    @property
    def dropped_dims(self) -> frozenset[int]:
        """Inserted and batching dimensions of the operand."""
        return frozenset(self.inserted_window_dims + self.input_batching_dims)

    @property
    def batching(self) -> tuple[tuple[int, int], ...]:
        """Each batching dimension of the operand with the batch dimension that it follows."""
        return self._paired(self.input_batching_dims, self.scatter_indices_batching_dims)

    def batch_dims(self, rank: int) -> tuple[int, ...]:
        """The dimensions of updates of ``rank`` that are batch dimensions."""
        return tuple(dim for dim in range(rank) if dim not in self.update_window_dims)

    def windows(self, rank: int) -> dict[int, int]:
        """For each dimension of an operand of ``rank`` that windows have, that of the updates."""
        return dict(zip(self.window_dims(rank), self.update_window_dims, strict=True))

    def window_sizes(self, rank: int, updates: Sequence[int]) -> tuple[int, ...]:
        """The size of a window in each dimension of an operand of ``rank``; 1 in those it has not."""
        windows = self.windows(rank)
        return tuple(updates[windows[dim]] if dim in windows else 1 for dim in range(rank))


def _attributes_of(dims: GatherDims | ScatterDims) -> dict[str, Any]:
    said = {field.name: getattr(dims, field.name) for field in fields(dims)}
    return {name: value for name, value in said.items() if value or "batching" not in name}
