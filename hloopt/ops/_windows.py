"""The arithmetic of windows, shared by reduce-window, select-and-scatter and convolution."""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.ops.opdef import InferArgs
from hloopt.ops.shapes import error
from hloopt.types import UNBOUNDED, Window, WindowDim

__all__ = ["dilated", "positions", "window_of", "windowed"]


def dilated(size: int, dilation: int) -> int:
    """The extent of ``size`` elements with ``dilation - 1`` holes between neighbours."""
    return (size - 1) * dilation + 1 if size else 0


def positions(size: int, dim: WindowDim) -> int:
    """How many places the window has along a dimension of ``size`` elements."""
    extent = dilated(size, dim.base_dilation) + dim.pad_low + dim.pad_high
    reach = dilated(dim.size, dim.window_dilation)
    return 0 if extent < reach else (extent - reach) // dim.stride + 1


def window_of(args: InferArgs, rank: int) -> Window:
    """The window attribute; without one, a window of single elements."""
    window = Window.given(args.attributes.get("window"), rank)
    if len(window.dims) != rank:
        raise error(args, f"window has {len(window.dims)} dimensions, not {rank}")
    return window


def windowed(args: InferArgs, dims: Sequence[int], window: Window) -> tuple[int, ...]:
    """The number of window positions in each dimension."""
    for index, dim in enumerate(window.dims):
        for name, value in (
            ("size", dim.size),
            ("stride", dim.stride),
            ("base dilation", dim.base_dilation),
            ("window dilation", dim.window_dilation),
        ):
            if value < 1:
                raise error(args, f"window dimension {index}: {name} {value} must be positive")
    return tuple(
        UNBOUNDED if size == UNBOUNDED else positions(size, dim)
        for size, dim in zip(dims, window.dims, strict=True)
    )
