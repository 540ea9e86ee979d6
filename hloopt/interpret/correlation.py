"""Where the windows of a convolution lie: its dimensions in one order, and its parts without gaps.

An operand dilated by ``d`` has gaps: of every ``d`` outputs each meets other positions of the window.  The
outputs that meet the same ones are a ``Phase``, a convolution that has no gaps itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import product
from math import gcd, prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from hloopt.dataclass import dataclass
from hloopt.types import ConvNumbers, Window, WindowDim, dilated
from hloopt.types.shape import Dims

__all__ = ["Geometry", "Phase", "PhaseSpan", "slices", "slices_of_each"]


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    """The outputs of one spatial dimension that meet the same positions of the window.

    Output ``o`` of these meets, at position ``k`` of these, element ``o stride + k dilation`` of ``reach``
    elements: ``source`` of the operand at ``target``, and 0 around them.
    """

    outputs: slice
    positions: slice
    count: int
    size: int
    stride: int
    dilation: int
    reach: int
    source: slice
    target: slice

    @property
    def is_padded(self) -> bool:
        """Whether any element lies outside of the operand."""
        return bool(self.target.stop - self.target.start != self.reach)


@dataclass(frozen=True, slots=True, eq=False)
class Phase:
    """A convolution without gaps in its operand."""

    spans: tuple[PhaseSpan, ...]

    @property
    def is_padded(self) -> bool:
        """Whether a window reaches past an end of the operand."""
        return any(span.is_padded for span in self.spans)

    @property
    def outputs(self) -> Dims:
        """How many outputs each spatial dimension has."""
        return tuple(span.count for span in self.spans)

    @property
    def sizes(self) -> Dims:
        """The window."""
        return tuple(span.size for span in self.spans)

    @property
    def reach(self) -> Dims:
        """How many elements all windows cover."""
        return tuple(span.reach for span in self.spans)

    def cut(self, x: Any) -> Any:
        """The elements of an operand [g, n, space, c] that windows meet, without padding."""
        return x[(slice(None), slice(None), *(span.source for span in self.spans))]

    def padded(self, cut: Any, order: Sequence[int], kind: np.dtype[Any]) -> Any:
        """A copy of a cut with 0 around it, whose dimensions lie in ``order``, the quickest last."""
        dims = (*cut.shape[:2], *self.reach, cut.shape[-1])
        piece = np.zeros([dims[axis] for axis in order], kind).transpose(np.argsort(order))
        piece[(slice(None), slice(None), *(span.target for span in self.spans))] = cut
        return piece

    def windows(self, piece: Any) -> Any:
        """Every window of elements that are cut and padded: a view [g, n, outputs, window, c]."""
        spans = list(zip(piece.strides[2:-1], self.spans, strict=True))
        return as_strided(
            piece,
            (*piece.shape[:2], *self.outputs, *self.sizes, piece.shape[-1]),
            (
                *piece.strides[:2],
                *(stride * span.stride for stride, span in spans),
                *(stride * span.dilation for stride, span in spans),
                piece.strides[-1],
            ),
            writeable=False,
        )


class Geometry:
    """The operands and the result of a convolution in one order of dimensions, whatever its labels are.

    operand  [groups, batch, space, features]
    kernel   [groups, window, input features, output features], reversed where the window is
    result   [groups, batch, outputs, features]
    """

    def __init__(self, operand: Dims, kernel: Dims, numbers: ConvNumbers) -> None:
        dims, window = numbers.labels, numbers.window
        if (
            len(operand) != len(dims.input_spatial) + 2
            or len(kernel) != len(dims.kernel_spatial) + 2
        ):
            raise ValueError("axes don't match array")  # as NumPy says of a view's
        self._dims = dims
        # What is decided by the strides of the operands: there are few of them.
        self.plans: dict[Hashable, Any] = {}
        self.groups = numbers.groups
        self._by_batch = numbers.batch_groups > 1
        space = tuple(operand[axis] for axis in dims.input_spatial)
        self.batch = operand[dims.input_batch] // numbers.batch_groups
        self.features = kernel[dims.kernel_input_feature]
        self.made = kernel[dims.kernel_output_feature] // self.groups
        self.outputs = window.positions(space)
        order = (dims.output_batch, *dims.output_spatial, dims.output_feature)
        sizes = (self.batch, *self.outputs, kernel[dims.kernel_output_feature])
        # The result's dimensions, as its labels order them.
        self.shape = tuple(size for _, size in sorted(zip(order, sizes, strict=True)))
        self.meets_padding = _meets_padding(space, window, self.outputs)
        spans = [list(_spans(*one)) for one in zip(space, window.dims, self.outputs, strict=True)]
        self.phases = tuple(Phase(spans) for spans in product(*spans))
        # Outputs that only meet gaps are 0; they belong to no phase.
        self.has_gaps = not all(map(_is_covered, spans, self.outputs))
        self._turned = tuple(axis + 1 for axis, dim in enumerate(window.dims) if dim.reversal)

    def operand(self, array: Any) -> Any:
        """A view of the operand in this order."""
        dims = self._dims
        x = array.transpose((dims.input_batch, *dims.input_spatial, dims.input_feature))
        if self._by_batch:
            return x.reshape(self.groups, x.shape[0] // self.groups, *x.shape[1:])
        return self._split(x)

    def kernel(self, array: Any) -> Any:
        """A view of the kernel in this order."""
        dims = self._dims
        order = (*dims.kernel_spatial, dims.kernel_input_feature, dims.kernel_output_feature)
        kernel = self._split(array.transpose(order))
        return np.flip(kernel, self._turned) if self._turned else kernel

    def result(self, array: Any) -> Any:
        """A view of the result in this order."""
        dims = self._dims
        return self._split(
            array.transpose((dims.output_batch, *dims.output_spatial, dims.output_feature))
        )

    def _split(self, array: Any) -> Any:
        """The last dimension in groups, which come first."""
        if self.groups == 1:
            return array[np.newaxis]
        *others, features = array.shape
        cut = array.reshape(*others, self.groups, features // self.groups)
        return cut.transpose((len(others), *range(len(others)), len(others) + 1))


def _meets_padding(space: Sequence[int], window: Window, outputs: Sequence[int]) -> bool:
    """Whether a window reaches over an end, or over what lies between dilated elements of the end."""
    for size, dim, count in zip(space, window.dims, outputs, strict=True):
        last = (count - 1) * dim.stride + dim.reach - 1 - dim.pad_low
        if dim.pad_low > 0 or last > (size - 1) * dim.base_dilation:
            return True
    return False


def _is_covered(spans: Sequence[PhaseSpan], count: int) -> bool:
    return sum(span.count for span in spans) == count


def _spans(size: int, dim: WindowDim, outputs: int) -> Iterator[PhaseSpan]:
    """One for each of the outputs that a gap of the operand meets at the same positions."""
    base = dim.base_dilation
    period = base // gcd(dim.stride, base)
    every = base // gcd(dim.window_dilation, base)
    for start in range(min(period, outputs)):
        at = start * dim.stride - dim.pad_low
        for first in range(min(every, dim.size)):
            met = at + first * dim.window_dilation
            if met % base == 0:
                yield _span(size, dim, outputs, (start, period), (first, every), met // base)
                break


def _span(
    size: int,
    dim: WindowDim,
    outputs: int,
    chosen: tuple[int, int],
    places: tuple[int, int],
    low: int,
) -> PhaseSpan:
    """``low``: the element that the first output meets at the first position; below 0 in front of them."""
    (start, period), (first, every) = chosen, places
    stride = dim.stride * period // dim.base_dilation
    dilation = dim.window_dilation * every // dim.base_dilation
    count = len(range(start, outputs, period))
    positions = len(range(first, dim.size, every))
    reach = dilated(count, stride) + dilated(positions, dilation) - 1
    begin, end = (min(max(at, 0), size) for at in (low, low + reach))
    return PhaseSpan(
        slice(start, None, period),
        slice(first, None, every),
        count,
        positions,
        stride,
        dilation,
        reach,
        slice(begin, end),
        slice(begin - low, end - low),
    )


def slices(size: int, step: int) -> list[slice]:
    """Slices of a dimension, ``step`` elements each."""
    return [slice(at, min(at + step, size)) for at in range(0, size, step)]


def slices_of_each(sizes: Sequence[int], most: int) -> list[list[slice]]:
    """Slices of each dimension, the first cut first, so that one of each has ``most`` elements or fewer."""
    cuts, rest = [], prod(sizes)
    for size in sizes:
        rest //= size
        cuts.append(slices(size, max(1, min(size, most // rest))))
    return cuts
