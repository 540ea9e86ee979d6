"""Counting positions of windows."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.types import ConvDims, Window, WindowDim

__all__ = ["valid_multiply_adds", "window_dims"]


def window_dims(instruction: Instruction) -> tuple[WindowDim, ...]:
    """The window an instruction slides; of single elements where the text gives none."""
    labels: ConvDims | None = instruction.attributes.get("dim_labels")
    source = instruction.operands[0].array
    rank = len(source.dims) if labels is None else len(labels.input_spatial)
    return Window.given(instruction.attributes.get("window"), rank).dims


def valid_multiply_adds(dimension: WindowDim, source: int, result: int) -> int:
    """Pairs of result position and window element that read an input element, in one dimension.

    Elements of the padding and of the holes that base dilation makes are not counted.  Linear in the
    window's size, whatever the number of positions.
    """
    total = 0
    dilated = (source - 1) * dimension.base_dilation + 1 if source else 0
    for element in range(dimension.size):
        offset = element * dimension.window_dilation - dimension.pad_low
        total += _hits(offset, dimension.stride, result, dilated, dimension.base_dilation)
    return total


def _hits(offset: int, stride: int, count: int, limit: int, step: int) -> int:
    """How many ``offset + k * stride`` with ``0 <= k < count`` are in ``range(0, limit, step)``."""
    first = max(0, -(offset // stride))
    last = min(count - 1, (limit - 1 - offset) // stride)
    periods, rest = divmod(max(0, last + 1 - first), step)
    valid = [(offset + k * stride) % step == 0 for k in range(first, first + step)]
    return periods * sum(valid) + sum(valid[:rest])
