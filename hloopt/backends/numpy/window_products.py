"""Windows times a kernel by BLAS: a matrix of windows is made block by block, or not at all.

Of the windows ``[groups, batch, outputs, window, features]``, a view with overlaps, batch and outputs make the
rows and window and features the columns of a matrix.  Where the operand lies like that matrix (a window of
one place) BLAS reads it as it is.  Elsewhere some of its rows, or columns, are copied at a time into memory
that stays in the cache, rows or columns side by side as they lie in the operand; products of columns are
added up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from hloopt.backends.numpy.arena import scratch
from hloopt.backends.numpy.plan import Dims
from hloopt.backends.numpy.product import is_merged
from hloopt.interpret.correlation import Geometry, Phase, slices, slices_of_each

__all__ = ["multiply_windows", "sum_outputs", "sum_windows"]

# Elements of a block of windows; measured on ResNet-50's shapes (Zen 5, 1 MiB of second-level cache a core):
# half a million is best or next to it, a quarter of it costs 3%, of a million 5%.
_BLOCK: Final = 1 << 19
# Rows below which products with large kernels lose speed: BLAS copies the kernel for each.
_FEW_ROWS: Final = 512
# Neighbouring elements of windows below which lines of neighbouring outputs are copied faster.
_SHORT_RUN: Final = 16
# Elements of the operand that are padded at a time.
_PADDED: Final = 1 << 21
# Terms that one sum of products adds up one after the other; the sums of parts are added then.
_TERMS: Final = 4096

_OPERAND, _WINDOWS, _TOTAL = range(3)  # pieces of scratch memory

_Index = tuple[slice, ...]


def multiply_windows(geometry: Geometry, phase: Phase, x: Any, weights: Any, out: Any) -> None:
    """One phase: ``out`` [g, n, outputs, o] of ``x`` [g, n, space, c] and ``weights`` [g, window, c, o]."""
    kind = out.dtype
    key = (phase, x.shape, x.strides)
    found = geometry.plans.get(key)
    if found is None:
        found = geometry.plans[key] = _layout(geometry, phase, x)
    order, stays = found
    cut = phase.cut(x)
    if stays and cut.dtype == kind:
        _multiply(geometry, phase, cut, weights, out, started=False)
        return
    # The batch or the features, whichever are farther apart, some at a time.
    axis = 1 if abs(x.strides[1]) >= abs(x.strides[-1]) else x.ndim - 1
    if x.shape[axis] == 1:
        axis = x.ndim - axis
    count = x.shape[axis]
    padded = [x.shape[0], x.shape[1], *phase.reach, x.shape[-1]]
    step = max(1, min(count, _PADDED * count // max(1, prod(padded))))
    padded[axis] = step
    piece = scratch.of(_OPERAND, tuple(padded[at] for at in order), kind)
    piece = piece.transpose(np.argsort(order))
    inside = piece[(*np.s_[:, :], *(span.target for span in phase.spans))]
    if phase.is_padded:
        piece[...] = 0
    for start in range(0, count, step):
        part = _at(axis, slice(start, min(start + step, count)))
        here = _at(axis, slice(0, min(step, count - start)))
        inside[here] = cut[part]
        if axis == 1:
            _multiply(geometry, phase, piece[here], weights, out[part], started=False)
        else:
            features = weights[_at(weights.ndim - 2, part[axis])]
            _multiply(geometry, phase, piece[here], features, out, started=start > 0)


def _at(axis: int, part: slice) -> _Index:
    return (*(slice(None),) * axis, part)


def _layout(geometry: Geometry, phase: Phase, x: Any) -> tuple[list[int], bool]:
    """In which order of dimensions the operand is best copied, the quickest last; whether it may stay."""
    memory = sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))
    filled = [axis for axis in memory if x.shape[axis] > 1]
    batch, feature = 1, x.ndim - 1
    single = prod(phase.sizes) == 1
    quickest = filled[-1] if filled else feature
    straight = not filled or x.strides[quickest] == x.itemsize
    if quickest == batch or single:
        order = memory
    else:
        joined = phase.spans[-1].dilation == 1 and geometry.groups == 1
        run = x.shape[feature] * (phase.sizes[-1] if joined else 1)
        if run >= _SHORT_RUN or phase.outputs[-1] <= run:
            order = [axis for axis in memory if axis != feature] + [feature]
            straight = straight and (quickest == feature or x.shape[feature] == 1)
        else:
            order = [0, feature, *range(1, feature)]
            straight = straight and quickest == feature - 1
    return order, not phase.is_padded and (straight or single)


def _multiply(
    geometry: Geometry, phase: Phase, piece: Any, weights: Any, out: Any, *, started: bool
) -> None:
    """Products of blocks; they are added to ``out`` where that is ``started``."""
    windows = phase.windows(piece)
    key = (windows.shape, windows.strides, out.strides)
    plan = geometry.plans.get(key)
    if plan is None:
        plan = geometry.plans[key] = _planned(geometry, phase, windows, out)
    windows = windows.transpose(plan.windows)
    weights = weights.transpose(plan.weights)
    out = out.transpose(plan.out)
    blocks, swapped = plan.blocks, plan.swapped
    for group_part in blocks.groups:
        for number, column_part in enumerate(blocks.columns()):
            factor = weights[(group_part, *column_part)]
            factor = factor.reshape(factor.shape[0], -1, factor.shape[-1])
            for row_part in blocks.rows():
                matrix = blocks.matrix(windows[(group_part, *row_part, *column_part)])
                target = out[(group_part, *row_part)]
                _product(matrix, factor, target, swapped=swapped, adds=started or number > 0)


class _Plan(NamedTuple):
    """The order of dimensions of what is multiplied, and the blocks; the same for operands that lie alike.

    ``swapped``: in the result outputs lie closer to each other than features.
    """

    windows: tuple[int, ...]
    weights: tuple[int, ...]
    out: tuple[int, ...]
    blocks: _Blocks
    swapped: bool


def _planned(geometry: Geometry, phase: Phase, windows: Any, out: Any) -> _Plan:
    split, last = 2 + len(phase.spans), out.ndim - 1
    rows = sorted(range(1, split), key=lambda axis: -abs(out.strides[axis]))
    columns = sorted(range(split, windows.ndim), key=lambda axis: -abs(windows.strides[axis]))
    order = (0, *rows, *columns)
    return _Plan(
        order,
        (0, *(axis - split + 1 for axis in columns), len(columns) + 1),
        (0, *rows, last),
        _Blocks(windows.transpose(order), split),
        abs(out.strides[-1]) > min(map(abs, out.strides[1:-1])) and out.shape[-1] > 1,
    )


def _product(matrix: Any, factor: Any, target: Any, *, swapped: bool, adds: bool) -> None:
    """``matrix`` [g, r, k] times ``factor`` [g, k, o] as ``target`` [g, rows, o], in place if it lies so."""
    if swapped:  # outputs lie closer to each other than features
        target = target.transpose((0, target.ndim - 1, *range(1, target.ndim - 1)))
        left, right, first = factor.swapaxes(1, 2), matrix.swapaxes(1, 2), 2
    else:
        left, right, first = matrix, factor, 1
    merged = slice(first, target.ndim - (0 if swapped else 1))
    shape = (left.shape[0], left.shape[1], right.shape[2])
    if not adds and is_merged(target.shape[merged], target.strides[merged]):
        np.matmul(left, right, out=target.reshape(shape))
        return
    total = scratch.of(_TOTAL, shape, target.dtype)
    np.matmul(left, right, out=total)
    total = total.reshape(target.shape)
    if adds:
        np.add(target, total, out=target)
    else:
        np.copyto(target, total)


class _Blocks:
    """Which parts of windows are one matrix at a time.

    ``windows`` are [groups, rows, columns]; the dimensions before ``split`` are rows.
    """

    def __init__(self, windows: Any, split: int) -> None:
        self._split = split
        self._rows, self._columns = windows.shape[1:split], windows.shape[split:]
        groups, depth, count = windows.shape[0], prod(self._columns), prod(self._rows)
        self.groups = [slice(None)]
        row_strides, column_strides = windows.strides[1:split], windows.strides[split:]
        self._row_cuts = [[slice(None)] for _ in self._rows]
        self._column_cuts = [[slice(None)] for _ in self._columns]
        self._across = _quickest(self._rows, row_strides) < _quickest(self._columns, column_strides)
        if is_merged(self._columns, column_strides):
            lead = _leading(self._rows, row_strides)
            if lead is not None and prod(self._rows[lead:]) * 2 >= min(_FEW_ROWS, count):
                self._row_cuts[:lead] = [slices(size, 1) for size in self._rows[:lead]]
                return
        most = max(_FEW_ROWS, _BLOCK // max(1, depth * groups))
        self._row_cuts = slices_of_each(self._rows, most)
        block = prod(cuts[0].stop for cuts in self._row_cuts)
        each = min(depth, max(1, _BLOCK // block))
        self._column_cuts = slices_of_each(self._columns, each)
        step = max(1, _BLOCK // (block * each))
        if step < groups:
            self.groups = slices(groups, step)

    def rows(self) -> Iterator[_Index]:
        """Indices of the dimensions that are rows."""
        return product(*self._row_cuts)

    def columns(self) -> Iterator[_Index]:
        """Indices of the dimensions that are columns."""
        return product(*self._column_cuts)

    def matrix(self, block: Any) -> Any:
        """[g, r, k]: a view of a part of the windows, or a copy in which what lies side by side still does."""
        split = self._split
        rows, columns = block.shape[1:split], block.shape[split:]
        shape = (block.shape[0], prod(rows), prod(columns))
        rows_lie = is_merged(rows, block.strides[1:split])
        if rows_lie and is_merged(columns, block.strides[split:]):
            return block.reshape(shape)
        if not self._across:
            copy = scratch.of(_WINDOWS, block.shape, block.dtype)
            np.copyto(copy, block)
            return copy.reshape(shape)
        turned = block.transpose((0, *range(split, block.ndim), *range(1, split)))
        copy = scratch.of(_WINDOWS, turned.shape, block.dtype)
        np.copyto(copy, turned)
        return copy.reshape(shape[0], shape[2], shape[1]).swapaxes(1, 2)


def _quickest(sizes: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """The dimension that lies closest together, of several the longest: its stride, and minus its size."""
    pairs = zip(sizes, strides, strict=True)
    return min(((abs(stride), -size) for size, stride in pairs if size > 1), default=(1 << 62, 0))


def _leading(sizes: Dims, strides: Dims) -> int | None:
    """How many dimensions have to be cut off so that the others lie like one; None: all but the last."""
    for lead in range(len(sizes)):
        if is_merged(sizes[lead:], strides[lead:]):
            return lead
    return None


# ---- without matrices ----------------------------------------------------------------------------------


def sum_windows(phase: Phase, x: Any, weights: Any, out: Any) -> None:
    """Groups of one input feature and few output features: sums over the window for all groups at once."""
    windows = np.moveaxis(phase.windows(_padded(phase, x, out.dtype))[..., 0], 0, -1)
    result = np.moveaxis(out, 0, -2)
    rank = len(phase.spans)
    axes = list(range(windows.ndim))  # batch, outputs, window, groups
    for feature in range(weights.shape[-1]):
        factor = np.ascontiguousarray(np.moveaxis(weights[..., 0, feature], 0, -1))
        total = np.einsum(windows, axes, factor, axes[1 + rank :], [*axes[: 1 + rank], axes[-1]])
        result[..., feature] = total


def sum_outputs(phase: Phase, x: Any, weights: Any, out: Any) -> None:
    """Groups with few outputs, each the sum of many products: for all groups at once."""
    windows = phase.windows(_padded(phase, x, out.dtype))
    rank = len(phase.spans)
    axes = list(range(rank + 3))  # groups, batch, window, features
    step = max(1, _TERMS // max(1, prod(phase.sizes)))
    features = weights.shape[-2]
    parts = [slice(at, at + step) for at in range(0, features, step)]
    for place in np.ndindex(*phase.outputs):
        met = windows[(slice(None), slice(None), *place)]
        for feature in range(weights.shape[-1]):
            factor = weights[..., feature]
            total = sum(
                np.einsum(met[..., part], axes, factor[..., part], [0, *axes[2:]], axes[:2])
                for part in parts
            )
            out[(slice(None), slice(None), *place, feature)] = total


def _padded(phase: Phase, x: Any, kind: np.dtype[Any]) -> Any:
    cut = phase.cut(x)
    if not phase.is_padded and cut.dtype == kind and cut.strides[0] == cut.itemsize:
        return cut
    # The groups side by side: sums run along them.
    memory = sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))
    order = [axis for axis in memory if axis] + [0]
    return phase.padded(cut, order, kind)
