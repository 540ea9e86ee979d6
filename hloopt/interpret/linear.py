"""dot and convolution: transposed, reshaped and given to NumPy's matrix product.

The functions take operands that are already in one type; the evaluators convert operands to the
result type first, accumulate narrow floats in float32 and integers in int64, and round once, as
XLA's evaluator does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod

import numpy as np

from hloopt.interpret.context import Array, Check, Context, Evaluator, Value, array_of
from hloopt.interpret.elementwise import convert
from hloopt.interpret.window import output_size, window_places
from hloopt.ir import Instruction
from hloopt.types import ConvDims, DotDims, DType, Window, of_numpy

__all__ = ["CHECKS", "EVALUATORS", "accumulated", "convolution", "dot", "matmul", "wrapped"]

# Columns of a convolution that are laid out at once, in elements.
_MOST_COLUMNS = 1 << 24
_EXACT_IN_DOUBLE = 2.0**53


def matmul(lhs: Array, rhs: Array) -> Array:
    """[..., m, k] times [..., k, n]; int64 wraps.

    Integers go through the float64 product, which BLAS does, where every sum is exact in it.
    """
    if lhs.dtype != np.int64:
        return np.asarray(np.matmul(lhs, rhs))
    if not lhs.size or not rhs.size:
        return np.asarray(np.matmul(lhs, rhs))
    left, right = lhs.astype(np.float64), rhs.astype(np.float64)
    bound = np.abs(left).max() * np.abs(right).max() * lhs.shape[-1]
    if bound < _EXACT_IN_DOUBLE:
        return np.asarray(np.matmul(left, right).astype(np.int64))
    return np.asarray(np.matmul(lhs, rhs))


def dot(lhs: Array, rhs: Array, dims: DotDims) -> Array:
    """The product over contracting dimensions for every batch index.

    Result dimensions: batch (in the order of ``lhs_batch``), other dimensions of ``lhs``, those
    of ``rhs``.
    """
    left_free = _free(lhs.ndim, dims.lhs_batch, dims.lhs_contracting)
    right_free = _free(rhs.ndim, dims.rhs_batch, dims.rhs_contracting)
    batch = [lhs.shape[axis] for axis in dims.lhs_batch]
    m = [lhs.shape[axis] for axis in left_free]
    n = [rhs.shape[axis] for axis in right_free]
    k = prod(lhs.shape[axis] for axis in dims.lhs_contracting)
    left = lhs.transpose([*dims.lhs_batch, *left_free, *dims.lhs_contracting])
    right = rhs.transpose([*dims.rhs_batch, *dims.rhs_contracting, *right_free])
    result = matmul(left.reshape(prod(batch), prod(m), k), right.reshape(prod(batch), k, prod(n)))
    return result.reshape([*batch, *m, *n])


def _free(rank: int, *taken: Sequence[int]) -> list[int]:
    return [axis for axis in range(rank) if not any(axis in dims for dims in taken)]


def convolution(
    lhs: Array,
    rhs: Array,
    window: Window,
    dims: ConvDims,
    feature_groups: int = 1,
    batch_groups: int = 1,
) -> Array:
    """A convolution with any dimension numbers, dilations, reversal, and feature or batch groups.

    Padding and the gaps of a dilated ``lhs`` take no part in the sum (an infinite weight meets no
    zero there).  Raises ``ValueError`` when both group counts exceed 1, which HLO does not allow.
    """
    if feature_groups > 1 and batch_groups > 1:
        raise ValueError("feature_group_count and batch_group_count cannot both exceed 1")
    groups = feature_groups * batch_groups
    x = lhs.transpose([dims.input_batch, *dims.input_spatial, dims.input_feature])
    if batch_groups > 1:
        x = x.reshape(groups, x.shape[0] // groups, *x.shape[1:])
    else:
        x = x.reshape(*x.shape[:-1], groups, x.shape[-1] // groups)
        x = np.moveaxis(x, -2, 0)
    kernel = rhs.transpose(
        [*dims.kernel_spatial, dims.kernel_input_feature, dims.kernel_output_feature]
    )
    kernel = kernel.reshape(*kernel.shape[:-1], groups, kernel.shape[-1] // groups)
    kernel = np.moveaxis(kernel, -2, 0)
    out = _grouped(x, kernel, window)
    # [groups, batch, spatial, features] -> [batch, spatial, all features] -> the labels' order
    merged = np.moveaxis(out, 0, -2)
    merged = merged.reshape(*merged.shape[:-2], merged.shape[-2] * merged.shape[-1])
    order = [dims.output_batch, *dims.output_spatial, dims.output_feature]
    return merged.transpose(np.argsort(order))


def _grouped(x: Array, kernel: Array, window: Window) -> Array:
    """``x`` [g, n, spatial, c] and kernel [g, window, c, o] to [g, n, output spatial, o]."""
    spatial = x.shape[2:-1]
    output = tuple(map(output_size, spatial, window.dims))
    for axis, dim in enumerate(window.dims):
        if dim.reversal:
            kernel = np.flip(kernel, axis + 1)
    groups, batch, channels, features = x.shape[0], x.shape[1], x.shape[-1], kernel.shape[-1]
    places = list(product(*map(window_places, spatial, window.dims, output)))
    weights = kernel.reshape(groups, len(places), channels, features)
    result = np.zeros((groups, batch, *output, features), x.dtype)
    if not result.size:
        return result
    finite = x.dtype.kind == "i" or bool(np.isfinite(weights).all())
    at_once = max(1, _MOST_COLUMNS // max(1, prod((groups, batch, *output, channels))))
    for begin in range(0, len(places), at_once if finite else 1):
        part = places[begin : begin + (at_once if finite else 1)]
        if len(part) == 1:
            source, target = _indexes(part[0])
            piece = x[source]
            flat = matmul(piece.reshape(groups, -1, channels), weights[:, begin])
            result[target] += flat.reshape(*piece.shape[:-1], features)
            continue
        columns = np.zeros((groups, batch, *output, len(part), channels), x.dtype)
        for number, where in enumerate(part):
            source, target = _indexes(where)
            columns[..., number, :][target] = x[source]
        flat = matmul(
            columns.reshape(groups, -1, len(part) * channels),
            weights[:, begin : begin + len(part)].reshape(groups, -1, features),
        )
        result += flat.reshape(result.shape)
    return result


def _indexes(
    places: Sequence[tuple[slice, slice]],
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    whole = (slice(None), slice(None))
    return (*whole, *(source for source, _ in places)), (*whole, *(to for _, to in places))


def accumulated(array: Array, source: DType, result: DType, context: Context) -> Array:
    """An operand converted to the result's element type and then to the type sums are made in.

    Floats whose product is an integer stay floats until it is made, as in XLA's compilers.
    """
    if source.is_float and result.is_integer:
        return context.widen(array, source)
    converted = convert(array, source, result, context)
    if result.is_integer or result.is_pred:
        return _int64(converted)
    return context.widen(converted, result)


def _int64(array: Array) -> Array:
    return array.view(np.int64) if array.dtype == np.uint64 else array.astype(np.int64)


def wrapped(total: Array, result: DType, context: Context) -> Array:
    """A sum as the result's element type: integers wrap, floats round."""
    if total.dtype.kind == "f" and result.is_integer:
        return convert(total, of_numpy(total.dtype), result, context)
    if result.is_pred:
        return np.not_equal(total, 0)
    if result.is_integer:
        shift = 64 - result.bits
        if result.kind == "signed":
            total = (total << shift) >> shift
        elif result.bits < 64:
            total = total & ((1 << result.bits) - 1)
    return context.round(total, result)


def _saturated(total: Array, result: DType, context: Context) -> Array:
    if total.dtype.kind == "f" and result.is_integer:
        return convert(total, of_numpy(total.dtype), result, context)
    if result.kind == "signed":
        half = 1 << (result.bits - 1)
        total = np.clip(total, -half, half - 1)
    elif result.kind == "unsigned":
        total = np.clip(total, 0, min((1 << result.bits) - 1, np.iinfo(np.int64).max))
    elif result.is_pred:
        return np.not_equal(total, 0)
    return context.round(total, result)


def _operands(instruction: Instruction, values: Sequence[Value], context: Context) -> list[Array]:
    result = instruction.array.dtype
    return [
        accumulated(array_of(value), operand.array.dtype, result, context)
        for value, operand in zip(values, instruction.operands, strict=True)
    ]


def _dot(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    lhs, rhs = _operands(instruction, values, context)
    total = dot(lhs, rhs, DotDims.of(instruction.attributes))
    return wrapped(total, instruction.array.dtype, context)


def _convolution(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    lhs, rhs = _operands(instruction, values, context)
    dims: ConvDims = instruction.attributes["dim_labels"]
    window = Window.given(instruction.attributes.get("window"), len(dims.input_spatial))
    total = convolution(
        lhs,
        rhs,
        window,
        dims,
        instruction.attributes.get("feature_group_count", 1),
        instruction.attributes.get("batch_group_count", 1),
    )
    return _saturated(total, instruction.array.dtype, context)


def _check_convolution(instruction: Instruction) -> str | None:
    if len(instruction.operands) != 2 or "sparsity_config" in instruction.attributes:
        return "sparse convolutions cannot be evaluated"
    return None


EVALUATORS: Mapping[str, Evaluator] = {"convolution": _convolution, "dot": _dot}
CHECKS: Mapping[str, Check] = {"convolution": _check_convolution}
