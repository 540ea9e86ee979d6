"""Counting positions of windows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hloopt.ir import Instruction
from hloopt.types import ArrayShape, ConvDims, ConvNumbers, WindowDim, dilated

__all__ = ["convolution_flops", "valid_multiply_adds", "valid_products"]


def convolution_flops(
    convolution: Instruction, source: ArrayShape, kernel: ArrayShape, result: ArrayShape
) -> int:
    """Two flops per multiply-add that does not fall into padding or between dilated elements."""
    numbers = ConvNumbers.of(convolution.attributes)
    labels = numbers.labels
    batch = source.dims[labels.input_batch] // numbers.batch_groups
    inputs = kernel.dims[labels.kernel_input_feature]
    outputs = kernel.dims[labels.kernel_output_feature]
    spatial = valid_multiply_adds(convolution, source.dims, result.dims)
    return 2 * batch * inputs * outputs * spatial


def valid_multiply_adds(
    convolution: Instruction, source: Sequence[int], result: Sequence[int]
) -> int:
    """Pairs of output position and window element that read an input element, along space.

    ``source`` and ``result`` are the dimensions of the input and of the output.
    """
    labels: ConvDims = convolution.attributes["dim_labels"]
    dims = zip(convolution.window.dims, labels.input_spatial, labels.output_spatial, strict=True)
    return prod(valid_products(dim, source[at], result[to]) for dim, at, to in dims)


def valid_products(dim: WindowDim, source: int, result: int) -> int:
    """As ``valid_multiply_adds``, in one dimension.

    Elements of the padding and of the holes that base dilation makes are not counted.  Linear in the
    window's size, whatever the number of positions.
    """
    limit = dilated(source, dim.base_dilation)
    offsets = (element * dim.window_dilation - dim.pad_low for element in range(dim.size))
    return sum(_hits(at, dim.stride, result, limit, dim.base_dilation) for at in offsets)


def _hits(offset: int, stride: int, count: int, limit: int, step: int) -> int:
    """How many ``offset + k * stride`` with ``0 <= k < count`` are in ``range(0, limit, step)``."""
    first = max(0, -(offset // stride))
    last = min(count - 1, (limit - 1 - offset) // stride)
    periods, rest = divmod(max(0, last + 1 - first), step)
    valid = [(offset + k * stride) % step == 0 for k in range(first, first + step)]
    return periods * sum(valid) + sum(valid[:rest])
