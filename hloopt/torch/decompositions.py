"""Ops of ATen in terms of others, where torch-mlir has no StableHLO for them or computes something else.

Some ways are torch's own, the others are here.  They create no tensors of given values: two of them that one op
becomes would be the same constant of the exported program.
"""

from __future__ import annotations

import math
from contextvars import ContextVar
from typing import Any, Final

import torch
from torch._decomp import get_decompositions
from torch_mlir.extras.fx_decomp_util import get_decomposition_table

__all__ = ["decompositions"]

_aten: Final = torch.ops.aten
_OF_TORCH: Final = (
    _aten.bucketize,
    _aten.unfold,
    _aten.upsample_nearest1d.vec,
    _aten.upsample_nearest2d.vec,
)
_BARE: Final = ContextVar("_BARE", default=False)
_MODES: Final = ("sum", "mean", "max")


def decompositions() -> Any:
    """What torch takes apart before torch-mlir sees it."""
    return {
        **get_decomposition_table(),
        **get_decompositions(_OF_TORCH),
        _aten.cumprod.default: _cumprod,
        _aten.diagonal.default: _diagonal,
        _aten.diagonal_copy.default: _diagonal,
        _aten.remainder.Tensor: _remainder,
        _aten.remainder.Scalar: _remainder,
        _aten.remainder.Scalar_Tensor: _remainder,
        _aten.fmod.Tensor: _fmod,
        _aten.fmod.Scalar: _fmod,
        _aten.max_pool2d_with_indices.default: _max_pool2d,
        _aten.max_pool2d_with_indices_backward.default: _max_pool2d_gradient,
        _aten.avg_pool2d_backward.default: _avg_pool2d_gradient,
        _aten.convolution_backward.default: _convolution_gradient,
        _aten._embedding_bag.default: _embedding_bag,
        _aten._embedding_bag_forward_only.default: _embedding_bag,
        _aten._embedding_bag_backward.default: _embedding_bag_gradient,
    }


def _cumprod(x: Any, dim: int, *, dtype: Any = None) -> Any:
    """Products of ever longer runs: of 2, 4, 8 ... elements."""
    if dtype is None:
        dtype = x.dtype if x.dtype.is_floating_point or x.dtype.is_complex else torch.int64
    found = x.to(dtype)
    if not x.ndim:
        return found
    step = 1
    while step < x.shape[dim]:
        kept = found.narrow(dim, 0, step)
        length = x.shape[dim] - step
        longer = found.narrow(dim, step, length) * found.narrow(dim, 0, length)
        found, step = torch.cat([kept, longer], dim), 2 * step
    return found


def _bare_remainder(x: Any, y: Any) -> Any:
    """Torch's op itself, which torch-mlir computes with the sign of ``x``."""
    kind = torch.result_type(x, y)
    op = _aten.remainder.Tensor if isinstance(y, torch.Tensor) else _aten.remainder.Scalar
    token = _BARE.set(True)
    try:
        return op(x.to(kind), y)
    finally:
        _BARE.reset(token)


def _remainder(x: Any, y: Any) -> Any:
    """With the sign of ``y``, whichever it comes with."""
    if _BARE.get():
        return NotImplemented
    if not isinstance(x, torch.Tensor):
        x = torch.full_like(y, x, dtype=torch.result_type(x, y))
    rest = _bare_remainder(x, y)
    return torch.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)


def _fmod(x: Any, y: Any) -> Any:
    """With the sign of ``x``, whichever it comes with."""
    rest = _bare_remainder(x, y)
    other = torch.where((x < 0) == (y < 0), rest + y, rest - y)
    return torch.where((rest != 0) & ((rest < 0) != (x < 0)), other, rest)


def _diagonal(x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """The elements themselves, not a view of them."""
    moved = x.movedim((dim1, dim2), (-2, -1))
    below, right = max(-offset, 0), max(offset, 0)
    length = max(min(moved.shape[-2] - below, moved.shape[-1] - right), 0)
    places = torch.arange(length, device=x.device)
    return moved[..., places + below, places + right]


def _max_pool2d(x: Any, window: Any, stride: Any = (), *rest: Any) -> Any:
    """With the stride written out where it is that of the window: torch-mlir takes it for 1."""
    if len(stride):
        return NotImplemented
    return _aten.max_pool2d_with_indices.default(x, window, window, *rest)


def _max_pool2d_gradient(
    gradient: Any,
    x: Any,
    window: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    largest: Any,
) -> Any:
    """Each window's gradient goes to the element that was its largest."""
    del window, stride, padding, dilation, ceil_mode
    zeros = torch.zeros_like(x).flatten(-2)
    return zeros.scatter_add(-1, largest.flatten(-2), gradient.flatten(-2)).reshape(x.shape)


def _avg_pool2d_gradient(
    gradient: Any,
    x: Any,
    window: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    """A transposed convolution with ones, of what each element of a window has."""
    if ceil_mode:
        return NotImplemented
    stride = stride or window
    if divisor_override is not None or count_include_pad:
        share = gradient / (divisor_override or math.prod(window))
    else:
        ones = x.new_ones((1, *x.shape[-2:]))
        every = _aten.avg_pool2d.default(ones, window, stride, padding, False, True)
        share = gradient / (every * math.prod(window))
    given = share.reshape(-1, 1, *gradient.shape[-2:])
    ones = x.new_ones((1, 1, *window))
    found = _aten.convolution.default(given, ones, None, stride, [0, 0], [1, 1], True, [0, 0], 1)
    # Of the padded image; behind the last window there may be more of it.
    for dim in (-1, -2):
        behind = max(x.shape[dim] + padding[dim] - found.shape[dim], 0)
        margins = [0, behind] if dim == -1 else [0, 0, 0, behind]
        found = _aten.constant_pad_nd.default(found, margins, 0)
        found = found.narrow(dim, padding[dim], x.shape[dim])
    return found.reshape(x.shape)


def _convolution_gradient(
    gradient: Any,
    x: Any,
    weight: Any,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    wanted: Any,
) -> Any:
    """Of a transposed convolution, itself the gradient of one in which ``x`` and ``gradient`` change places."""
    if not transposed:
        return NotImplemented
    none = [0] * len(output_padding)
    of_input = of_weight = of_bias = None
    if wanted[0]:
        of_input = _aten.convolution.default(
            gradient, weight, None, stride, padding, dilation, False, none, groups
        )
    if wanted[1]:
        _, of_weight, _ = _aten.convolution_backward.default(
            x, gradient, weight, None, stride, padding, dilation, False, none, groups, [False, True, False]
        )  # fmt: skip
    if wanted[2]:
        of_bias = gradient.sum([n for n in range(gradient.ndim) if n != 1])
    return of_input, of_weight, of_bias


def _embedding_bag(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Any, Any, Any, Any]:
    """Rows of ``weight`` summed, averaged or their maximum, by bags; and what its gradient needs.

    ``offsets`` say where each bag begins in ``indices``; rows of ``padding_idx`` count for nothing.
    """
    del scale_grad_by_freq, sparse
    bags = offsets.shape[0] - int(include_last_offset)
    places = torch.arange(indices.shape[0], device=indices.device)
    ends = torch.cat([offsets[1:bags], indices.new_full((1,), indices.shape[0])])
    inside = (places >= offsets[:bags, None]) & (places < ends[:, None])
    real = inside if padding_idx < 0 else inside & (indices != padding_idx)
    sizes = real.sum(1)
    rows, chosen = weight[indices], real[:, :, None]
    bag = (inside * torch.arange(bags, device=indices.device)[:, None]).sum(0)
    if _MODES[mode] == "max":
        bounded = torch.where(chosen, rows, -torch.inf)
        found = torch.where(sizes[:, None] > 0, bounded.amax(1), 0.0).to(weight.dtype)
        return found, bag, sizes, indices[bounded.argmax(1)]
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[:, None]
    # A product with ones and zeros would spread what is infinite in other bags.
    found = torch.where(chosen, rows, 0.0).sum(1)
    if _MODES[mode] == "mean":
        found = found / sizes.clamp(min=1)[:, None].to(rows.dtype)
    return found, bag, sizes, sizes


def _embedding_bag_gradient(
    gradient: Any,
    indices: Any,
    offsets: Any,
    bag: Any,
    sizes: Any,
    largest: Any,
    rows: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Any = None,
    padding_idx: int = -1,
) -> Any:
    """The gradient of ``weight``, which has so many rows, from that of the bags."""
    del offsets, sparse
    zeros = gradient.new_zeros((rows, gradient.shape[1]))
    if _MODES[mode] == "max":
        given = torch.where(sizes[:, None] > 0, gradient, 0.0)
        return zeros.scatter_add(0, largest, given)
    given = gradient[bag]
    if _MODES[mode] == "mean":
        given = given / sizes.clamp(min=1)[bag][:, None].to(given.dtype)
    if per_sample_weights is not None:
        given = given * per_sample_weights[:, None]
    if padding_idx >= 0:
        given = torch.where((indices != padding_idx)[:, None], given, 0.0)
    if scale_grad_by_freq:
        counts = (indices[:, None] == indices).sum(1)
        given = given / counts[:, None].to(given.dtype)
    return zeros.index_add(0, indices, given)
