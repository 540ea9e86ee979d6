"""Calls of cuDNN for layer normalisation and for attention, in modules that were optimised for a GPU.

Computed in double precision and rounded once; scratch space, the last of the results, is zero here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hloopt.interpret.context import Check, Context, Evaluator, Value, array_of
from hloopt.interpret.library_calls import LibraryOptions, config, dot_dims, is_arrays, with_scratch
from hloopt.interpret.linear import dot
from hloopt.ir import Instruction
from hloopt.types import Array, ArrayShape, TupleShape, parts_of

__all__ = ["CHECKS", "EVALUATORS"]


class _Norm(NamedTuple):
    """How many operands and results a kind of normalisation has."""

    operands: int
    results: int


_NORMS = {
    "LAYER_FWD_INFER": _Norm(3, 2),
    "LAYER_FWD_TRAIN": _Norm(3, 4),
    "LAYER_BWD": _Norm(5, 4),
}


def _doubles(values: tuple[Value, ...]) -> list[Array]:
    return [array_of(value).astype(np.float64) for value in values]


def _norm(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    """(x - mean) / sqrt(variance + epsilon) scale + bias over the dimensions that the scale has.

    In training the mean and 1 / sqrt(variance + epsilon) are results, too.  Backward: of x, scale, the
    gradient and these two the gradients of x, scale and bias.
    """
    settings = config(instruction, "cudnn_norm_backend_config")
    x, scale, third, *others = _doubles(values)
    axes = tuple(axis for axis, size in enumerate(scale.shape) if size != 1)
    if settings["kind"] == "LAYER_BWD":
        results = _norm_backward(x, scale, third, others[0], others[1], axes)
        return with_scratch(instruction, results, context)
    mean = x.mean(axis=axes, keepdims=True)
    factor = 1 / np.sqrt(x.var(axis=axes, keepdims=True) + float(settings.get("epsilon", 0)))
    results = [(x - mean) * factor * scale + third]
    if settings["kind"] == "LAYER_FWD_TRAIN":
        results += [mean, factor]
    return with_scratch(instruction, results, context)


def _norm_backward(
    x: Array, scale: Array, gradient: Array, mean: Array, factor: Array, axes: tuple[int, ...]
) -> list[Array]:
    others = tuple(axis for axis in range(x.ndim) if axis not in axes)
    normal = (x - mean) * factor
    scaled = gradient * scale
    inner = scaled - scaled.mean(axis=axes, keepdims=True)
    inner = inner - normal * (scaled * normal).mean(axis=axes, keepdims=True)
    of_scale = (gradient * normal).sum(axis=others, keepdims=True)
    return [inner * factor, of_scale, gradient.sum(axis=others, keepdims=True)]


def _check_norm(instruction: Instruction) -> str | None:
    name = instruction.custom_call_target
    try:
        kind = str(config(instruction, "cudnn_norm_backend_config").get("kind", ""))
    except ValueError:
        kind = ""
    if kind not in _NORMS:
        return f"{name} of the kind {kind or 'that is not said'}"
    shape = instruction.shape
    found = [operand.shape for operand in instruction.operands]
    parts = parts_of(shape)
    if (len(found), len(parts)) != _NORMS[kind]:
        return f"{name} of the kind {kind} with {len(found)} operands and {len(parts)} results"
    arrays = [part for part in found if isinstance(part, ArrayShape)]
    if not is_arrays(shape) or len(arrays) != len(found):
        return f"{name} of what are not arrays"
    x, scale = arrays[0], arrays[1]
    fits = x.rank == scale.rank and all(
        part in (1, whole) for whole, part in zip(x.dims, scale.dims, strict=True)
    )
    return None if fits else f"{name} of {x} with the scale {scale}"


def _scores(scores: Array, settings: LibraryOptions, bias: Array | None) -> Array:
    """What the softmax is taken of: scaled, with the bias, and -inf where a query may not see a key."""
    scores = scores * float(settings.get("fmha_scale", 1))
    if bias is not None:
        scores = scores + bias
    if settings.get("mask_type") == "CAUSAL":
        scores = np.where(np.triu(np.ones(scores.shape[-2:], np.bool_), 1), -np.inf, scores)
    return scores


def _attention(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    """softmax(scale Q Kᵀ + bias) V, and the logarithms of the sums of exponentials.

    A causal mask lets a query see the keys up to its own place.
    """
    settings = config(instruction, "cudnn_fmha_backend_config")
    query, key, value, *bias = _doubles(values)
    product = dot(query, key, dot_dims(settings["bmm1_dot_dimension_numbers"]))
    with np.errstate(all="ignore"):
        scores = _scores(product, settings, bias[0] if bias else None)
        most = scores.max(axis=-1, keepdims=True, initial=-np.inf)
        weights = np.exp(scores - most)
        total = weights.sum(axis=-1, keepdims=True)
        logarithm = (most + np.log(total))[..., 0]
        weights = weights / total
    result = dot(weights, value, dot_dims(settings["bmm2_dot_dimension_numbers"]))
    return with_scratch(instruction, [result, logarithm][: _wanted(instruction)], context)


_GRADIENTS = tuple(
    f"bmm{bmm}_grad_gemm{gemm}_dot_dimension_numbers" for bmm in "12" for gemm in "12"
)


def _laid(array: Array, settings: LibraryOptions, product: int) -> Array:
    """[batch, heads, places, features] of the second operand of one of the backward products."""
    dims = dot_dims(settings[_GRADIENTS[product]])
    (met,) = dims.rhs_contracting
    (other,) = (axis for axis in range(array.ndim) if axis not in (*dims.rhs_batch, met))
    # The gradient of the weights is summed over features, the others over places.
    places = (other, met) if product == 3 else (met, other)
    return array.transpose([*dims.rhs_batch, *places])


def _attention_gradient(
    instruction: Instruction, values: tuple[Value, ...], context: Context
) -> Value:
    """The gradients of Q, K and V, each [batch, heads, places, features], and of the bias where that is a
    result.

    Operands: Q, K, V, the logarithms that the forward call gave, the gradient, the bias, the result of the
    forward call.
    """
    settings = config(instruction, "cudnn_fmha_backend_config")
    query, key, value, logarithm, gradient, *bias, result = _doubles(values)
    query, key = _laid(query, settings, 0), _laid(key, settings, 1)
    gradient, result = _laid(gradient, settings, 2), _laid(result, settings, 2)
    value = _laid(value, settings, 3)
    scale = float(settings.get("fmha_scale", 1))
    with np.errstate(all="ignore"):
        scores = _scores(query @ key.swapaxes(-1, -2), settings, bias[0] if bias else None)
        weights = np.exp(scores - logarithm[..., None])
        of_weights = gradient @ value.swapaxes(-1, -2)
        of_scores = weights * (of_weights - (gradient * result).sum(axis=-1, keepdims=True))
    results = [
        scale * (of_scores @ key),
        scale * (of_scores.swapaxes(-1, -2) @ query),
        weights.swapaxes(-1, -2) @ gradient,
    ]
    if _wanted(instruction) == 4:
        axes = tuple(axis for axis, size in enumerate(bias[0].shape) if size == 1)
        results.append(of_scores.sum(axis=axes, keepdims=True))
    return with_scratch(instruction, results, context)


def _wanted(instruction: Instruction) -> int:
    """The results before the scratch space."""
    shape = instruction.shape
    return len(shape.elements) - 1 if isinstance(shape, TupleShape) else 1


def _check_attention(instruction: Instruction) -> str | None:
    name = instruction.custom_call_target
    backward = name.endswith("Backward")
    numbers = (
        _GRADIENTS if backward else ("bmm1_dot_dimension_numbers", "bmm2_dot_dimension_numbers")
    )
    try:
        settings = config(instruction, "cudnn_fmha_backend_config")
        dims = [dot_dims(settings[part]) for part in numbers]
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{name} without a cudnn_fmha_backend_config that says which dimensions meet"
    try:
        complaint = _other_attention(settings)
    except (TypeError, ValueError) as error:
        complaint = f"an option that is not a number: {error}"
    if complaint is not None:
        return f"{name} with {complaint}"
    biased = "ScaleBias" in name
    wanted = (6 if backward else 3) + biased
    if len(instruction.operands) != wanted:
        return f"{name} with {len(instruction.operands)} operands instead of {wanted}"
    shapes = [o.shape for o in instruction.operands if isinstance(o.shape, ArrayShape)]
    if not is_arrays(instruction.shape) or len(shapes) != wanted:
        return f"{name} of what are not arrays"
    if _wanted(instruction) not in ((3, 3 + biased) if backward else (1, 2)):
        return f"{name} with {_wanted(instruction) + 1} results"
    whole = all(len(d.rhs_batch) == 2 and len(d.rhs_contracting) == 1 for d in dims)
    if not whole or any(shape.rank != 4 for shape in (*shapes[:3], shapes[-1])):
        return f"{name} of what is not batch, heads, places and features"
    return None


def _other_attention(settings: LibraryOptions) -> str | None:
    """Which of the options is not defined by the operands alone."""
    if float(settings.get("dropout_rate", 0)):
        return "dropout"
    mask = str(settings.get("mask_type", "NO_MASK"))
    if mask not in ("NO_MASK", "CAUSAL"):
        return f"the mask {mask}"
    if int(settings.get("sliding_window_length", 0)) > 0:
        return "a sliding window"
    if settings.get("is_paged_attention") or int(settings.get("max_seg_per_batch", 1)) > 1:
        return "pages or packed sequences"
    return None


_FORWARD = ("__cudnn$fmhaScaleBiasSoftmax", "__cudnn$fmhaSoftmax")
_BACKWARD = ("__cudnn$fmhaScaleBiasSoftmaxBackward", "__cudnn$fmhaSoftmaxBackward")

EVALUATORS: dict[str, Evaluator] = {
    "__cudnn$norm": _norm,
    **dict.fromkeys(_FORWARD, _attention),
    **dict.fromkeys(_BACKWARD, _attention_gradient),
}
"""By target, as in ``custom_calls.CUSTOM_CALLS``."""

CHECKS: dict[str, Check] = {
    "__cudnn$norm": _check_norm,
    **dict.fromkeys((*_FORWARD, *_BACKWARD), _check_attention),
}
"""Why a call cannot be evaluated, or None."""
