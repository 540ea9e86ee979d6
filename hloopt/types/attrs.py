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

``dimension_numbers`` has the records that group several attributes of one op.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.types.annotations import Verbatim

__all__ = [
    "AliasEntry",
    "ConvDims",
    "IotaList",
    "PaddingDim",
    "RunningDim",
    "SliceRange",
    "Window",
    "WindowDim",
    "attribute_name",
    "dilated",
    "stray_key",
]


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

    def running(self, dims: Sequence[int]) -> RunningDim | None:
        """The dimension of an array of these sizes along which it runs; None for all other windows."""
        axes = [axis for axis, dim in enumerate(self.dims) if dim != WindowDim(1)]
        if len(axes) != 1:
            return None
        (axis,) = axes
        dim, size = self.dims[axis], dims[axis]
        plain = dim.base_dilation == dim.window_dilation == dim.stride == 1
        if not plain or dim.size < size or dim.pad_low + dim.pad_high != dim.size - 1 or not size:
            return None
        if dim.pad_high == 0:
            return RunningDim(axis, reverse=False)
        return RunningDim(axis, reverse=True) if dim.pad_low == 0 else None


@dataclass(frozen=True, slots=True)
class RunningDim:
    """Along ``axis`` result ``o`` meets all elements up to ``o``, or (``reverse``) from ``o`` on."""

    axis: int
    reverse: bool


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


def _listed(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))
