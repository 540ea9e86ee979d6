"""Attribute values: frozen records for what HLO writes after an instruction's operands.

An instruction's ``attributes`` maps the names of the text (``dimensions``, ``window`` ...) to values:

==================  ===========================================================
kind in the text    Python value
==================  ===========================================================
int, float, bool    ``int``, ``float``, ``bool``
word                ``str`` (``LT``, ``kLoop``, ``rng_philox``)
``"string"``        ``Text`` (decoded; printed with quotes)
``{1,0}``           ``tuple[int, ...]``
``{{0,1},{2,3}}``   ``tuple[tuple[int, ...], ...]``, or ``IotaList``
``{[0:4:2]}``       ``tuple[SliceRange, ...]``
window, padding     ``Window``, ``tuple[PaddingDim, ...]``
``b01f_01io->b01f`` ``ConvDims``
computations        ``Computation``, or a tuple of them (in ``hloopt.ir``)
literal, shape      ``Literal``, ``Shape``, tuple of shapes
metadata            ``Metadata`` (decoded on demand)
all the rest        ``Verbatim``: printed back as it was, beside the record the grammar made
==================  ===========================================================

An attribute of another op has a key that no reader looks up (``stray_key``), so that its text is never taken
for a value of one of these types.

``DotDims``, ``GatherDims`` and ``ScatterDims`` group the several attributes of one op.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, fields
from typing import Any, TypeVar

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.types.annotations import Verbatim

__all__ = [
    "AliasEntry",
    "ConvDims",
    "ConvNumbers",
    "DotDims",
    "GatherDims",
    "IotaList",
    "PaddingDim",
    "ScatterDims",
    "SliceRange",
    "Window",
    "WindowDim",
    "attribute_name",
    "dilated",
    "stray_key",
]


_T = TypeVar("_T")
_STRAY = "?"


def stray_key(name: str) -> str:
    """The key of an attribute that other ops have, but not this one; no name in a text is spelled so."""
    return _STRAY + name


def attribute_name(key: str) -> str:
    """How the text spells the attribute under a key."""
    return key.removeprefix(_STRAY)


@dataclass(frozen=True, slots=True)
class SliceRange:
    """``[start:limit:stride]`` of one dimension; the limit is exclusive, the stride positive."""

    start: int
    limit: int
    stride: int = 1

    @property
    def size(self) -> int:
        """The number of elements taken."""
        return max(0, -(-(self.limit - self.start) // self.stride))


@dataclass(frozen=True, slots=True)
class PaddingDim:
    """``low_high_interior`` of one dimension; low and high may be negative (they crop)."""

    low: int
    high: int
    interior: int = 0


@dataclass(frozen=True, slots=True)
class WindowDim:
    """One dimension of a window, as in XLA's ``WindowDimension``."""

    size: int
    stride: int = 1
    pad_low: int = 0
    pad_high: int = 0
    base_dilation: int = 1
    window_dilation: int = 1
    reversal: bool = False

    @property
    def reach(self) -> int:
        """The extent of the window, with the holes that its dilation makes."""
        return dilated(self.size, self.window_dilation)

    def positions(self, size: int) -> int:
        """How many places the window has along a dimension of ``size`` elements."""
        room = dilated(size, self.base_dilation) + self.pad_low + self.pad_high - self.reach
        return room // self.stride + 1 if room >= 0 else 0

    def transposed(self, size: int, steps: int) -> WindowDim:
        """The window that slides over the gradient of ``steps`` outputs for that of an input of ``size``.

        Outputs are as far apart as the window's steps, and it meets them from its end.
        """
        low = self.reach - 1 - self.pad_low
        high = size - dilated(steps, self.stride) + self.pad_low
        dilations = self.stride, self.window_dilation
        return WindowDim(self.size, 1, low, high, *dilations, reversal=not self.reversal)


def dilated(size: int, dilation: int) -> int:
    """The extent of ``size`` elements with ``dilation - 1`` holes between neighbours."""
    return (size - 1) * dilation + 1 if size else 0


@dataclass(frozen=True, slots=True)
class Window:
    """``{size=3x3 stride=2x2 pad=0_1x0_1 lhs_dilate=.. rhs_dilate=.. rhs_reversal=..}``."""

    dims: tuple[WindowDim, ...]

    @staticmethod
    def of(attributes: Mapping[str, Any], rank: int) -> Window:
        """That of an op on arrays of ``rank``; of single elements where the text gives none.

        A convolution has as many dimensions as ``dim_labels`` name spatial ones, whatever ``rank`` is.
        """
        window: Window | None = attributes.get("window")
        labels: ConvDims | None = attributes.get("dim_labels")
        count = rank if labels is None else len(labels.input_spatial)
        if window is None or (not window.dims and count):
            return Window((WindowDim(1),) * count)
        return window

    @property
    def size(self) -> int:
        """How many elements the window has."""
        return math.prod(dim.size for dim in self.dims)

    def positions(self, dims: Sequence[int]) -> tuple[int, ...]:
        """How many places the window has along each dimension."""
        return tuple(dim.positions(size) for dim, size in zip(self.dims, dims, strict=True))


@dataclass(frozen=True, slots=True)
class ConvDims:
    """``b01f_01io->b01f``: the role of each dimension of input, kernel and output.

    Spatial tuples are in the order of the digits: ``input_spatial[k]`` is the input's dimension of
    spatial axis ``k``.  ``text`` is kept for printing (labels with ``?`` mark unused dimensions).
    """

    input_batch: int
    input_feature: int
    input_spatial: tuple[int, ...]
    kernel_input_feature: int
    kernel_output_feature: int
    kernel_spatial: tuple[int, ...]
    output_batch: int
    output_feature: int
    output_spatial: tuple[int, ...]
    text: str = field(compare=False)


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
class IotaList:
    """``[2,4]<=[4,2]T(1,0)``: ``arange`` reshaped, transposed, and cut into groups."""

    dims: tuple[int, ...]
    reshape: tuple[int, ...]
    permutation: tuple[int, ...] = ()

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers in their order, as many as ``reshape`` has; ``ValueError`` if that is not possible."""
        numbers = np.arange(math.prod(self.reshape)).reshape(self.reshape)
        return tuple(numbers.transpose(self.permutation or None).ravel().tolist())

    def __str__(self) -> str:
        order = f"T({_listed(self.permutation)})" if self.permutation else ""
        return f"[{_listed(self.dims)}]<=[{_listed(self.reshape)}]{order}"


@dataclass(frozen=True, slots=True)
class AliasEntry:
    """``{0}: (1, {}, may-alias)``: an output index that shares the buffer of a parameter, or of an operand.

    ``kind`` is ``may-alias``, ``must-alias`` or empty where the text has none.
    """

    output_index: tuple[int, ...]
    parameter: int
    parameter_index: tuple[int, ...] = ()
    kind: str = ""

    @staticmethod
    def listed(entries: tuple[AliasEntry, ...]) -> Verbatim:
        """The value of ``output_to_operand_aliasing``."""
        return Verbatim(f"{{{', '.join(map(str, entries))}}}", entries)

    def __str__(self) -> str:
        kind = f", {self.kind}" if self.kind else ""
        index = f"{{{_listed(self.parameter_index)}}}"
        return f"{{{_listed(self.output_index)}}}: ({self.parameter}, {index}{kind})"


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


def _listed(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))
