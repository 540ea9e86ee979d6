"""Windows, paddings, slices and the labels of a convolution's dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from hloopt.proto import ProtoProblem
from hloopt.proto.rows import ProtoRow, of_message, plain, put, records
from hloopt.types import ConvDims, PaddingDim, SliceRange, Window, WindowDim

__all__ = ["DIM_LABELS", "PADDING", "SLICE", "WINDOW"]

_MOST_DIMENSIONS = 64


_read_window, _write_window = records(
    WindowDim,
    *("size", "stride", "padding_low", "padding_high"),
    *("base_dilation", "window_dilation", "window_reversal"),
)
_read_padding, _write_padding = records(
    PaddingDim, "edge_padding_low", "edge_padding_high", "interior_padding"
)
_read_slice, _write_slice = records(SliceRange, "start", "limit", "stride")


def _window(proto: Any) -> Window | None:
    dims = _read_window(proto.dimensions)
    return Window(dims) if dims else None


# ---- convolutions -----------------------------------------------------------------------------------


def _labels(letters: str, places: Sequence[int], spatial: Sequence[int]) -> str:
    """``b01f``: a letter or a digit for each dimension, ``?`` where it plays no part."""
    taken = [*places, *spatial]
    if min(taken) < 0 or max(taken) > _MOST_DIMENSIONS or len(set(taken)) != len(taken):
        raise ProtoProblem(f"{taken} are not dimensions of one array")
    labels = ["?"] * (max(taken) + 1)
    for letter, place in zip(letters, places, strict=True):
        labels[place] = letter
    for axis, place in enumerate(spatial):
        labels[place] = str(axis)
    return "".join(labels)


# The first fields of ``ConvDims``, and those of the message: "dimension" or "dimensions" is appended.
_PLACES = [one.name for one in fields(ConvDims) if one.name != "text"]
_CONV_DIMS = {name: f"{name}_dimension{'s' * name.endswith('spatial')}" for name in _PLACES}


def _conv_dims(proto: Any) -> ConvDims:
    places = {name: plain(getattr(proto, field)) for name, field in _CONV_DIMS.items()}
    parts = ConvDims(**places, text="")
    lhs = _labels("bf", (parts.input_batch, parts.input_feature), parts.input_spatial)
    rhs = _labels(
        "io", (parts.kernel_input_feature, parts.kernel_output_feature), parts.kernel_spatial
    )
    out = _labels("bf", (parts.output_batch, parts.output_feature), parts.output_spatial)
    return replace(parts, text=f"{lhs}_{rhs}->{out}")


def _write_conv_dims(proto: Any, dims: ConvDims) -> None:
    for name, field in _CONV_DIMS.items():
        put(proto, field, getattr(dims, name))


WINDOW = of_message(
    "window", "window", _window, lambda proto, window: _write_window(proto.dimensions, window.dims)
)
PADDING = of_message(
    "padding",
    "padding_config",
    lambda proto: _read_padding(proto.dimensions),
    lambda proto, dims: _write_padding(proto.dimensions, dims),
)
SLICE = ProtoRow(
    "slice",
    ("slice_dimensions",),
    lambda entry: _read_slice(entry.proto.slice_dimensions),
    lambda target, ranges: _write_slice(target.proto.slice_dimensions, ranges),
    always=True,
)
DIM_LABELS = of_message("dim_labels", "convolution_dimension_numbers", _conv_dims, _write_conv_dims)
