"""convolution: windows laid side by side, a block of them at a time, and multiplied by the kernel.

A block of windows is a matrix of one row an output position and one column a place in the kernel (all its
input features); it is never larger than a few megabytes, whatever the operands are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import gcd, prod
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from hloopt.interpret.context import Array, Check, Context, Evaluator, Value
from hloopt.interpret.linear import Product, check_precision, integral
from hloopt.interpret.window import output_size, window_places
from hloopt.ir import Instruction
from hloopt.types import ConvDims, Window, WindowDim

__all__ = ["CHECKS", "EVALUATORS", "convolution"]

# Elements of a block of windows, and the rows below which matrix products lose speed.
_BLOCK = 1 << 19
_FEW_ROWS = 512
# Elements that lie side by side in windows: below so many, copies of whole lines of outputs are quicker.
_SHORT_RUN = 16
# Output features of a group of one input feature, up to which sums are quicker than matrix products.
_FEW_FEATURES = 4


class _Part(NamedTuple):
    """The outputs of one spatial dimension that meet the same positions of the window, none in a gap.

    Output ``o`` of these meets, at position ``k`` of these, the element ``o stride + k dilation - low``.
    """

    outputs: slice
    positions: slice
    stride: int
    dilation: int
    low: int


class _Layout(NamedTuple):
    """How windows lie in memory best: dimensions of the operand, the quickest last; ``across``: outputs
    next to each other in a block, not the places of a window.
    """

    order: list[int]
    across: bool


def convolution(
    lhs: Array,
    rhs: Array,
    window: Window,
    dims: ConvDims,
    feature_groups: int = 1,
    batch_groups: int = 1,
) -> Array:
    """A convolution with any dimension numbers, dilations, reversal, and feature or batch groups.

    Operands are of one type; int64 wraps.  Padding and the gaps of a dilated ``lhs`` take no part in
    the sum (an infinite weight meets no zero there).  Raises ``ValueError`` when both group counts
    exceed 1, which HLO does not allow.
    """
    if feature_groups > 1 and batch_groups > 1:
        raise ValueError("feature_group_count and batch_group_count cannot both exceed 1")
    if lhs.dtype == np.int64:
        terms = prod(rhs.shape) // max(1, rhs.shape[dims.kernel_output_feature])

        def multiplied(x: Array, y: Array) -> Array:
            return convolution(x, y, window, dims, feature_groups, batch_groups)

        return integral(multiplied, lhs, rhs, terms)
    groups = feature_groups * batch_groups
    x = lhs.transpose([dims.input_batch, *dims.input_spatial, dims.input_feature])
    cut = (groups, x.shape[0] // groups, *x.shape[1:])
    x = x.reshape(cut) if batch_groups > 1 else _grouped(x, groups)
    kernel = rhs.transpose(
        [*dims.kernel_spatial, dims.kernel_input_feature, dims.kernel_output_feature]
    )
    features = kernel.shape[-1]
    kernel = _grouped(kernel, groups)
    for axis, dim in enumerate(window.dims):
        if dim.reversal:
            kernel = np.flip(kernel, axis + 1)
    output = tuple(map(output_size, x.shape[2:-1], window.dims))
    sizes = [x.shape[1], *output, features]
    order = [dims.output_batch, *dims.output_spatial, dims.output_feature]
    result = np.zeros([sizes[order.index(axis)] for axis in range(len(order))], x.dtype)
    if result.size and kernel.size:
        _correlate(x, kernel, window, _grouped(result.transpose(order), groups))
    return result


def _grouped(array: Array, groups: int) -> Array:
    """A view in which the last dimension is cut into ``groups``, a new first dimension."""
    cut = array.reshape(*array.shape[:-1], groups, array.shape[-1] // groups)
    return np.moveaxis(cut, -2, 0)


def _correlate(x: Array, kernel: Array, window: Window, out: Array) -> None:
    """Fill ``out`` [g, n, output spatial, o], which is 0: x [g, n, spatial, c], kernel [g, window, c, o]."""
    spatial, output = x.shape[2:-1], out.shape[2:-1]
    if _meets_padding(spatial, window, output) and not np.isfinite(kernel).all():
        _multiply_places(x, kernel, window, out)
        return
    every = (slice(None), slice(None))
    for parts in product(*map(_parts, window.dims, output)):
        weights = kernel[(slice(None), *(part.positions for part in parts))]
        piece = out[(*every, *(part.outputs for part in parts))]
        if x.shape[0] > 1 and x.shape[-1] == 1 and kernel.shape[-1] <= _FEW_FEATURES:
            _sum_depthwise(x, weights, parts, piece)
        else:
            _multiply_blocks(x, weights, parts, piece)


def _multiply_places(x: Array, kernel: Array, window: Window, out: Array) -> None:
    """One place of the window after the other, each with the elements that it really meets."""
    spatial, output = x.shape[2:-1], out.shape[2:-1]
    places = [window_places(*args) for args in zip(spatial, window.dims, output, strict=True)]
    every = (slice(None), slice(None))
    for position in np.ndindex(*kernel.shape[1:-2]):
        met = [along[number] for along, number in zip(places, position, strict=True)]
        rows = x[(*every, *(inside for inside, _ in met))]
        target = out[(*every, *(at for _, at in met))]
        weights = kernel[(slice(None), *position)]
        target += np.matmul(rows.reshape(x.shape[0], -1, x.shape[-1]), weights).reshape(
            target.shape
        )


def _meets_padding(spatial: Sequence[int], window: Window, output: Sequence[int]) -> bool:
    """Whether a window reaches over an end; what lies between dilated elements is not looked at."""
    for size, dim, steps in zip(spatial, window.dims, output, strict=True):
        last = (steps - 1) * dim.stride + (dim.size - 1) * dim.window_dilation - dim.pad_low
        if dim.pad_low > 0 or last > (size - 1) * dim.base_dilation:
            return True
    return False


def _parts(dim: WindowDim, output: int) -> Iterator[_Part]:
    """Outputs that a gap of the base meets at the same positions of the window: every ``period``-th."""
    base = dim.base_dilation
    period = base // gcd(dim.stride, base)
    every = base // gcd(dim.window_dilation, base)
    for start in range(min(period, output)):
        at = start * dim.stride - dim.pad_low
        for first in range(min(every, dim.size)):
            met = at + first * dim.window_dilation
            if met % base == 0:
                yield _Part(
                    slice(start, None, period),
                    slice(first, None, every),
                    dim.stride * period // base,
                    dim.window_dilation * every // base,
                    -(met // base),
                )
                break


def _sum_depthwise(x: Array, weights: Array, parts: Sequence[_Part], out: Array) -> None:
    """Groups of one input feature: sums over the window for all groups at once."""
    rank = len(parts)
    layout = _Layout([*range(1, x.ndim), 0], False)
    windows = _windows(x, weights.shape[1:-2], out.shape[2:-1], parts, layout)
    axes = list(range(windows.ndim))
    beside = [*axes[2 + rank :], 0]
    for feature in range(weights.shape[-1]):
        spread = np.ascontiguousarray(np.moveaxis(weights[..., feature], 0, -1))
        total = np.einsum(windows, axes, spread, beside, [*axes[1 : 2 + rank], 0])
        out[..., feature] = np.moveaxis(total, -1, 0)


def _multiply_blocks(x: Array, weights: Array, parts: Sequence[_Part], out: Array) -> None:
    """Matrix products of blocks of windows and of the kernel.

    Blocks are cut along the outputs first and then, where those are few, along the window.
    """
    rank = len(parts)
    size, output = weights.shape[1:-2], out.shape[2:-1]
    layout = _layout(x, size, output, parts)
    windows = _windows(x, size, output, parts, layout)
    # [groups, batch, outputs, window, features]: each half in the order of memory.
    axes = sorted(range(1, windows.ndim), key=lambda axis: -abs(windows.strides[axis]))
    rows = [axis for axis in axes if axis < 2 + rank]
    inner = [axis for axis in axes if axis >= 2 + rank]
    windows = windows.transpose([0, *rows, *inner])
    weights = weights.transpose([0, *(axis - 1 - rank for axis in inner), weights.ndim - 1])
    out = out.transpose([0, *rows, out.ndim - 1])
    groups, depth, features = windows.shape[0], prod(windows.shape[2 + rank :]), weights.shape[-1]
    row_cuts = _cuts(windows.shape[1 : 2 + rank], max(_FEW_ROWS, _BLOCK // (depth * groups)))
    most = prod(cuts[0].stop for cuts in row_cuts)
    inner_cuts = _cuts(windows.shape[2 + rank :], max(1, _BLOCK // (most * groups)))
    swapped = abs(out.strides[-1]) > min(map(abs, out.strides[1:-1]))
    whole = slice(None)
    for first, inner_part in enumerate(product(*inner_cuts)):
        factor = weights[(whole, *inner_part)].reshape(groups, -1, features)
        for row_part in product(*row_cuts):
            block = _matrix(windows[(whole, *row_part, *inner_part)], 2 + rank, layout.across)
            target = out[(whole, *row_part)]
            if swapped:  # features before outputs, as they lie in the result
                target = np.moveaxis(target, -1, 1)
                total = np.matmul(factor.swapaxes(1, 2), block.swapaxes(1, 2))
            else:
                total = np.matmul(block, factor)
            if first:
                target += total.reshape(target.shape)
            else:
                target[...] = total.reshape(target.shape)


def _matrix(block: Array, split: int, across: bool) -> Array:
    """[groups, rows, columns] of an array whose dimensions before ``split`` make rows.

    A copy, where the array's elements do not lie like this already, has rows side by side if ``across``.
    """
    rows, columns = block.shape[1:split], block.shape[split:]
    if not across:
        return block.reshape(block.shape[0], prod(rows), prod(columns))
    turned = block.transpose([0, *range(split, block.ndim), *range(1, split)])
    return turned.reshape(block.shape[0], prod(columns), prod(rows)).swapaxes(1, 2)


def _layout(
    x: Array, size: Sequence[int], output: Sequence[int], parts: Sequence[_Part]
) -> _Layout:
    """As the operand lies, if that is good for copying windows; else with features or space last."""
    batch, feature = 1, x.ndim - 1
    memory = sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))
    filled = [axis for axis in memory if x.shape[axis] > 1]
    quickest = filled[-1] if filled else feature
    if quickest == batch or prod(size) == 1:
        return _Layout(memory, quickest != feature)
    run = x.shape[feature] * (size[-1] if parts[-1].dilation == 1 else 1)
    if run >= _SHORT_RUN or output[-1] <= run:
        return _Layout([axis for axis in memory if axis != feature] + [feature], False)
    return _Layout([0, feature, *range(1, feature)], True)


def _windows(
    x: Array,
    size: Sequence[int],
    output: Sequence[int],
    parts: Sequence[_Part],
    layout: _Layout,
) -> Array:
    """Every window of ``x``, padded by 0: a view [g, n, outputs, window, c].

    ``x`` is copied where it is padded, or where its quickest dimension is not the layout's.
    """
    source, target, span = [], [], []
    for length, places, steps, part in zip(x.shape[2:-1], size, output, parts, strict=True):
        reach = (steps - 1) * part.stride + (places - 1) * part.dilation + 1
        begin, end = (min(max(at, 0), length) for at in (-part.low, reach - part.low))
        source.append(slice(begin, end))
        target.append(slice(begin + part.low, end + part.low))
        span.append(reach)
    every = (slice(None), slice(None))
    piece = x[(*every, *source)]
    quickest = layout.order[-1]
    scattered = x.shape[quickest] > 1 and x.strides[quickest] != x.itemsize and prod(size) > 1
    if scattered or piece.shape[2:-1] != tuple(span):
        dims = (*x.shape[:2], *span, x.shape[-1])
        padded = np.zeros([dims[axis] for axis in layout.order], x.dtype)
        padded = padded.transpose(np.argsort(layout.order))
        padded[(*every, *target)] = piece
        piece = padded
    strides = piece.strides[2:-1]
    return as_strided(
        piece,
        (*x.shape[:2], *output, *size, x.shape[-1]),
        (
            *piece.strides[:2],
            *(stride * part.stride for stride, part in zip(strides, parts, strict=True)),
            *(stride * part.dilation for stride, part in zip(strides, parts, strict=True)),
            piece.strides[-1],
        ),
        writeable=False,
    )


def _cuts(sizes: Sequence[int], most: int) -> list[list[slice]]:
    """Slices of each dimension, the first cut first, so that one of each has ``most`` elements or fewer."""
    cuts, rest = [], prod(sizes)
    for size in sizes:
        rest //= size
        step = max(1, min(size, most // rest))
        cuts.append([slice(at, min(at + step, size)) for at in range(0, size, step)])
    return cuts


def _convolution(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    operands = Product.of(instruction, values, context)
    dims: ConvDims = instruction.attributes["dim_labels"]
    window = Window.given(instruction.attributes.get("window"), len(dims.input_spatial))
    total = convolution(
        operands.lhs,
        operands.rhs,
        window,
        dims,
        instruction.attributes.get("feature_group_count", 1),
        instruction.attributes.get("batch_group_count", 1),
    )
    return operands.result(total, instruction, context)


def _check_convolution(instruction: Instruction) -> str | None:
    if len(instruction.operands) != 2 or "sparsity_config" in instruction.attributes:
        return "sparse convolutions cannot be evaluated"
    return check_precision(instruction)


EVALUATORS: Mapping[str, Evaluator] = {"convolution": _convolution}
CHECKS: Mapping[str, Check] = {"convolution": _check_convolution}
