"""The arithmetic of windows, shared by reduce-window, select-and-scatter and convolution."""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.ops.opdef import InferArgs
from hloopt.ops.shapes import error
from hloopt.types import UNBOUNDED, Window

__all__ = ["window_of", "windowed"]


def window_of(args: InferArgs, rank: int) -> Window:
    """The window attribute; without one, a window of single elements."""
    window = Window.of(args.attributes, rank)
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
        UNBOUNDED if size == UNBOUNDED else dim.positions(size)
        for size, dim in zip(dims, window.dims, strict=True)
    )
