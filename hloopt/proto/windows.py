"""Windows, paddings, slices and the labels of a convolution's dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hloopt.proto.entry import Entry, Target
from hloopt.proto.problem import Problem
from hloopt.proto.rows import Row, of_message
from hloopt.types import ConvDims, PaddingDim, SliceRange, Window, WindowDim

__all__ = ["DIM_LABELS", "PADDING", "SLICE", "WINDOW"]

_MOST_DIMENSIONS = 64


def _window(proto: Any) -> Window | None:
    dims = tuple(
        WindowDim(
            dim.size,
            dim.stride,
            dim.padding_low,
            dim.padding_high,
            dim.base_dilation,
            dim.window_dilation,
            dim.window_reversal,
        )
        for dim in proto.dimensions
    )
    return Window(dims) if dims else None


def _write_window(proto: Any, window: Window) -> None:
    for dim in window.dims:
        proto.dimensions.add(
            size=dim.size,
            stride=dim.stride,
            padding_low=dim.pad_low,
            padding_high=dim.pad_high,
            base_dilation=dim.base_dilation,
            window_dilation=dim.window_dilation,
            window_reversal=dim.reversal,
        )


def _padding(proto: Any) -> tuple[PaddingDim, ...]:
    return tuple(
        PaddingDim(dim.edge_padding_low, dim.edge_padding_high, dim.interior_padding)
        for dim in proto.dimensions
    )


def _write_padding(proto: Any, dims: tuple[PaddingDim, ...]) -> None:
    for dim in dims:
        proto.dimensions.add(
            edge_padding_low=dim.low, edge_padding_high=dim.high, interior_padding=dim.interior
        )


def _slice() -> Row:
    def read(entry: Entry) -> tuple[SliceRange, ...]:
        return tuple(
            SliceRange(dim.start, dim.limit, dim.stride) for dim in entry.proto.slice_dimensions
        )

    def write(target: Target, ranges: tuple[SliceRange, ...]) -> None:
        for part in ranges:
            target.proto.slice_dimensions.add(
                start=part.start, limit=part.limit, stride=part.stride
            )

    return Row("slice", ("slice_dimensions",), read, write, always=True)


# ---- convolutions -----------------------------------------------------------------------------------


def _labels(letters: str, places: Sequence[int], spatial: Sequence[int]) -> str:
    """``b01f``: a letter or a digit for each dimension, ``?`` where it plays no part."""
    taken = [*places, *spatial]
    if min(taken) < 0 or max(taken) > _MOST_DIMENSIONS or len(set(taken)) != len(taken):
        raise Problem(f"{taken} are no dimensions of one array")
    labels = ["?"] * (max(taken) + 1)
    for letter, place in zip(letters, places, strict=True):
        labels[place] = letter
    for axis, place in enumerate(spatial):
        labels[place] = str(axis)
    return "".join(labels)


def _conv_dims(proto: Any) -> ConvDims:
    parts = ConvDims(
        proto.input_batch_dimension,
        proto.input_feature_dimension,
        tuple(proto.input_spatial_dimensions),
        proto.kernel_input_feature_dimension,
        proto.kernel_output_feature_dimension,
        tuple(proto.kernel_spatial_dimensions),
        proto.output_batch_dimension,
        proto.output_feature_dimension,
        tuple(proto.output_spatial_dimensions),
        "",
    )
    lhs = _labels("bf", (parts.input_batch, parts.input_feature), parts.input_spatial)
    rhs = _labels(
        "io", (parts.kernel_input_feature, parts.kernel_output_feature), parts.kernel_spatial
    )
    out = _labels("bf", (parts.output_batch, parts.output_feature), parts.output_spatial)
    return replace(parts, text=f"{lhs}_{rhs}->{out}")


def _write_conv_dims(proto: Any, dims: ConvDims) -> None:
    proto.input_batch_dimension = dims.input_batch
    proto.input_feature_dimension = dims.input_feature
    proto.input_spatial_dimensions.extend(dims.input_spatial)
    proto.kernel_input_feature_dimension = dims.kernel_input_feature
    proto.kernel_output_feature_dimension = dims.kernel_output_feature
    proto.kernel_spatial_dimensions.extend(dims.kernel_spatial)
    proto.output_batch_dimension = dims.output_batch
    proto.output_feature_dimension = dims.output_feature
    proto.output_spatial_dimensions.extend(dims.output_spatial)


WINDOW = of_message("window", "window", "Window", _window, _write_window)
PADDING = of_message("padding", "padding_config", "PaddingConfig", _padding, _write_padding)
SLICE = _slice()
DIM_LABELS = of_message(
    "dim_labels",
    "convolution_dimension_numbers",
    "ConvolutionDimensionNumbers",
    _conv_dims,
    _write_conv_dims,
)
