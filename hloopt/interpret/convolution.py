"""convolution: windows laid side by side, a block of them at a time, and multiplied by the kernel.

A block of windows is a matrix of one row an output position and one column a place in the kernel (all its
input features); it is never larger than a few megabytes, whatever the operands are.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from hloopt.interpret.context import Check, Context, Evaluator, Value
from hloopt.interpret.correlation import Geometry, Phase, slices_of_each
from hloopt.interpret.linear import Product, check_precision, integral
from hloopt.interpret.window import window_places
from hloopt.ir import Instruction
from hloopt.types import Array, ConvNumbers, Window

__all__ = ["CHECKS", "EVALUATORS", "convolution"]

# Elements of a block of windows, and the rows below which matrix products lose speed.
_BLOCK = 1 << 19
_FEW_ROWS = 512
# Elements that lie side by side in windows: below so many, copies of whole lines of outputs are quicker.
_SHORT_RUN = 16
# Output features of a group of one input feature, up to which sums are quicker than matrix products.
_FEW_FEATURES = 4


class _Layout(NamedTuple):
    """How windows lie in memory best: dimensions of the operand, the quickest last; ``across``: outputs
    next to each other in a block, not the places of a window.
    """

    order: list[int]
    across: bool


def convolution(lhs: Array, rhs: Array, numbers: ConvNumbers) -> Array:
    """A convolution with any dimension numbers, dilations, reversal, and feature or batch groups.

    Operands are of one type; int64 wraps.  Padding and the gaps of a dilated ``lhs`` take no part in
    the sum (an infinite weight meets no zero there).  Raises ``ValueError`` when both group counts
    exceed 1, which HLO does not allow.
    """
    if numbers.feature_groups > 1 and numbers.batch_groups > 1:
        raise ValueError("feature_group_count and batch_group_count cannot both exceed 1")
    if lhs.dtype == np.int64:
        terms = rhs.size // max(1, rhs.shape[numbers.labels.kernel_output_feature])
        return integral(lambda x, y: convolution(x, y, numbers), lhs, rhs, terms)
    geometry = Geometry(lhs.shape, rhs.shape, numbers)
    result = np.zeros(geometry.shape, lhs.dtype)
    if result.size and rhs.size:
        x, kernel = geometry.operand(lhs), geometry.kernel(rhs)
        _correlate(geometry, x, kernel, numbers.window, geometry.result(result))
    return result


def _correlate(geometry: Geometry, x: Array, kernel: Array, window: Window, out: Array) -> None:
    """Fill ``out`` [g, n, output spatial, o], which is 0: x [g, n, spatial, c], kernel [g, window, c, o]."""
    if geometry.meets_padding and not np.isfinite(kernel).all():
        _multiply_places(x, kernel, window, out)
        return
    every = (slice(None), slice(None))
    for phase in geometry.phases:
        weights = kernel[(slice(None), *(span.positions for span in phase.spans))]
        piece = out[(*every, *(span.outputs for span in phase.spans))]
        if x.shape[0] > 1 and x.shape[-1] == 1 and kernel.shape[-1] <= _FEW_FEATURES:
            _sum_depthwise(x, weights, phase, piece)
        else:
            _multiply_blocks(x, weights, phase, piece)


def _multiply_places(x: Array, kernel: Array, window: Window, out: Array) -> None:
    """One place of the window after the other, each with the elements that it really meets."""
    places = list(map(window_places, x.shape[2:-1], window.dims))
    every = (slice(None), slice(None))
    for position in np.ndindex(*kernel.shape[1:-2]):
        met = [along[number] for along, number in zip(places, position, strict=True)]
        rows = x[(*every, *(inside for inside, _ in met))]
        target = out[(*every, *(at for _, at in met))]
        weights = kernel[(slice(None), *position)]
        target += np.matmul(rows.reshape(x.shape[0], -1, x.shape[-1]), weights).reshape(
            target.shape
        )


def _sum_depthwise(x: Array, weights: Array, phase: Phase, out: Array) -> None:
    """Groups of one input feature: sums over the window for all groups at once."""
    rank = len(phase.spans)
    windows = _windows(x, phase, _Layout([*range(1, x.ndim), 0], False))
    axes = list(range(windows.ndim))
    beside = [*axes[2 + rank :], 0]
    for feature in range(weights.shape[-1]):
        spread = np.ascontiguousarray(np.moveaxis(weights[..., feature], 0, -1))
        total = np.einsum(windows, axes, spread, beside, [*axes[1 : 2 + rank], 0])
        out[..., feature] = np.moveaxis(total, -1, 0)


def _multiply_blocks(x: Array, weights: Array, phase: Phase, out: Array) -> None:
    """Matrix products of blocks of windows and of the kernel.

    Blocks are cut along the outputs first and then, where those are few, along the window.
    """
    rank = len(phase.spans)
    layout = _layout(x, phase)
    windows = _windows(x, phase, layout)
    # [groups, batch, outputs, window, features]: each half in the order of memory.
    axes = sorted(range(1, windows.ndim), key=lambda axis: -abs(windows.strides[axis]))
    rows = [axis for axis in axes if axis < 2 + rank]
    inner = [axis for axis in axes if axis >= 2 + rank]
    windows = windows.transpose([0, *rows, *inner])
    weights = weights.transpose([0, *(axis - 1 - rank for axis in inner), weights.ndim - 1])
    out = out.transpose([0, *rows, out.ndim - 1])
    groups, depth, features = windows.shape[0], prod(windows.shape[2 + rank :]), weights.shape[-1]
    row_cuts = slices_of_each(
        windows.shape[1 : 2 + rank], max(_FEW_ROWS, _BLOCK // (depth * groups))
    )
    most = prod(cuts[0].stop for cuts in row_cuts)
    inner_cuts = slices_of_each(windows.shape[2 + rank :], max(1, _BLOCK // (most * groups)))
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


def _layout(x: Array, phase: Phase) -> _Layout:
    """As the operand lies, if that is good for copying windows; else with features or space last."""
    batch, feature = 1, x.ndim - 1
    memory = sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))
    filled = [axis for axis in memory if x.shape[axis] > 1]
    quickest = filled[-1] if filled else feature
    if quickest == batch or prod(phase.sizes) == 1:
        return _Layout(memory, quickest != feature)
    run = x.shape[feature] * (phase.sizes[-1] if phase.spans[-1].dilation == 1 else 1)
    if run >= _SHORT_RUN or phase.outputs[-1] <= run:
        return _Layout([axis for axis in memory if axis != feature] + [feature], False)
    return _Layout([0, feature, *range(1, feature)], True)


def _windows(x: Array, phase: Phase, layout: _Layout) -> Array:
    """Every window of ``x``, padded by 0: a view [g, n, outputs, window, c].

    ``x`` is copied where it is padded, or where its quickest dimension is not the layout's.
    """
    piece: Array = phase.cut(x)
    quickest = layout.order[-1]
    scattered = x.shape[quickest] > 1 and x.strides[quickest] != x.itemsize
    if (scattered and prod(phase.sizes) > 1) or phase.is_padded:
        piece = phase.padded(piece, layout.order, x.dtype)
    windows: Array = phase.windows(piece)
    return windows


def _convolution(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    operands = Product.of(instruction, values, context)
    total = convolution(operands.lhs, operands.rhs, ConvNumbers.of(instruction.attributes))
    return operands.result(total, instruction, context)


def _check_convolution(instruction: Instruction) -> str | None:
    if len(instruction.operands) != 2 or "sparsity_config" in instruction.attributes:
        return "sparse convolutions cannot be evaluated"
    return check_precision(instruction)


EVALUATORS: Mapping[str, Evaluator] = {"convolution": _convolution}
CHECKS: Mapping[str, Check] = {"convolution": _check_convolution}
