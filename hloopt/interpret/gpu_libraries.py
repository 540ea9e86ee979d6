"""Calls of NVIDIA's libraries in modules that were optimised for a GPU: cuBLAS and cuDNN.

A call is a dot or a convolution with an epilogue, and its ``backend_config`` says with which.  The result is
a tuple whose first element is the product; the others are scratch space, which is zero here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hloopt.interpret.context import Array, Check, Context, Evaluator, Value, array_of
from hloopt.interpret.convolution import convolution
from hloopt.interpret.linalg import triangular_solve
from hloopt.interpret.linear import accumulated, dot
from hloopt.ir import Instruction
from hloopt.types import ArrayShape, ConvDims, DotDims, Shape, TupleShape, Window, WindowDim

__all__ = ["CHECKS", "EVALUATORS"]

Config = Mapping[str, Any]

# sqrt(2 / pi) and the factor of the cube: the approximation of GELU by tanh.
_GELU_SCALE, _GELU_CUBE = 0.7978845608028654, 0.044715


def _config(instruction: Instruction, part: str) -> Config:
    """The named part of ``backend_config``; dumps of before 2023 have its fields at the top.

    Raises ``ValueError`` where it is no JSON object.
    """
    found = json.loads(str(instruction.attributes.get("backend_config", "{}")))
    if isinstance(found, str):  # JSON in a string
        found = json.loads(found)
    found = found.get(part, found) if isinstance(found, dict) else found
    if not isinstance(found, dict):
        raise ValueError(f"{part} is not a JSON object")  # noqa: TRY004 - wrong text, not a wrong type
    return found


def _result(instruction: Instruction) -> ArrayShape:
    """The shape of the product."""
    shape = instruction.shape
    first = shape.elements[0] if isinstance(shape, TupleShape) else shape
    assert isinstance(first, ArrayShape), "the check looked at it"
    return first


def _with_scratch(instruction: Instruction, results: Sequence[Array], context: Context) -> Value:
    """Results rounded to their types, and zeros for the rest of the tuple."""
    shape = instruction.shape
    if not isinstance(shape, TupleShape):
        return context.round(results[0], _result(instruction).dtype)
    parts: list[Value] = []
    for number, element in enumerate(shape.elements):
        assert isinstance(element, ArrayShape), "the check looked at it"
        if number < len(results):
            parts.append(context.round(results[number], element.dtype))
        else:
            parts.append(np.zeros(element.dims, element.dtype.numpy))
    return tuple(parts)


def _is_arrays(shape: Shape) -> bool:
    parts = shape.elements if isinstance(shape, TupleShape) else (shape,)
    return bool(parts) and all(isinstance(part, ArrayShape) for part in parts)


def _operands(instruction: Instruction, values: Sequence[Value], context: Context) -> list[Array]:
    result = _result(instruction).dtype
    return [
        accumulated(array_of(value), operand.array.dtype, result, context)
        for value, operand in zip(values, instruction.operands, strict=True)
    ]


# ---- cuBLAS -----------------------------------------------------------------------------------------


def _gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(_GELU_SCALE * (x + _GELU_CUBE * x * x * x))))


def _silu(x: Array) -> Array:
    return np.asarray(x / (1 + np.exp(-x)))


def _relu(x: Array) -> Array:
    return np.maximum(x, 0)


_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"RELU": _relu, "GELU": _gelu, "SILU": _silu}


def _epilogue(config: Config) -> tuple[bool, str, bool]:
    """Whether a vector is added, the activation or nothing, and whether its operand is a result too."""
    words = str(config.get("epilogue", "DEFAULT")).split("_")
    names = [word for word in words if word not in {"DEFAULT", "BIAS", "AUX"}]
    return "BIAS" in words, "_".join(names), "AUX" in words


def _dot_dims(config: Config) -> DotDims:
    numbers = config["dot_dimension_numbers"]

    def dims(name: str) -> tuple[int, ...]:
        return tuple(int(axis) for axis in numbers.get(name, ()))

    return DotDims(
        dims("lhs_contracting_dimensions"),
        dims("rhs_contracting_dimensions"),
        dims("lhs_batch_dimensions"),
        dims("rhs_batch_dimensions"),
    )


def _gemm(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    """activation(alpha lhs rhs + beta C + bias), rounded once."""
    config = _config(instruction, "gemm_backend_config")
    lhs, rhs, *others = _operands(instruction, values, context)
    total = dot(lhs, rhs, _dot_dims(config))
    alpha = complex(float(config.get("alpha_real", 1)), float(config.get("alpha_imag", 0)))
    factor = alpha if np.iscomplexobj(total) else alpha.real
    if factor != 1:
        total = (total * factor).astype(total.dtype)
    beta = float(config.get("beta", 0))
    with np.errstate(all="ignore"):
        if beta:
            total = (total + beta * others.pop(0)).astype(total.dtype)
        bias, name, keeps = _epilogue(config)
        if bias:
            total = total + others.pop(0)
        activated = _ACTIVATIONS[name](total) if name else total
    results = [activated.astype(total.dtype), *([total] if keeps else [])]
    return _with_scratch(instruction, results, context)


def _check_gemm(instruction: Instruction) -> str | None:
    try:
        config = _config(instruction, "gemm_backend_config")
        dims = _dot_dims(config)
        beta = float(config.get("beta", 0))
    except (ValueError, KeyError, TypeError, AttributeError):
        return (
            f"{_target(instruction)} without a gemm_backend_config that says which dimensions meet"
        )
    if not _is_arrays(instruction.shape):
        return f"{_target(instruction)} does not give a product and scratch space"
    bias, name, _ = _epilogue(config)
    if name and name not in _ACTIVATIONS:
        return f"{_target(instruction)} with the epilogue {config['epilogue']}"
    wanted = 2 + bool(beta) + bias
    if len(instruction.operands) != wanted:
        return (
            f"{_target(instruction)} with {len(instruction.operands)} operands instead of {wanted}"
        )
    shapes = [operand.shape for operand in instruction.operands]
    if not all(isinstance(shape, ArrayShape) for shape in shapes):
        return f"{_target(instruction)} of operands that are no arrays"
    lhs, rhs = instruction.operands[0].array, instruction.operands[1].array
    left = [lhs.dims[axis] for axis in (*dims.lhs_batch, *dims.lhs_contracting) if axis < lhs.rank]
    right = [rhs.dims[axis] for axis in (*dims.rhs_batch, *dims.rhs_contracting) if axis < rhs.rank]
    if left != right:
        return f"{_target(instruction)} of {lhs} and {rhs}, whose dimensions do not meet"
    return None


def _triangular(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    config = _config(instruction, "triangular_solve_options")
    solution = triangular_solve(
        array_of(values[0]),
        array_of(values[1]),
        left_side=bool(config.get("left_side", False)),
        lower=bool(config.get("lower", False)),
        unit_diagonal=bool(config.get("unit_diagonal", False)),
        transpose_a=str(config["transpose_a"]),
    )
    return _with_scratch(instruction, [solution], context)


def _check_triangular(instruction: Instruction) -> str | None:
    try:
        known = "transpose_a" in _config(instruction, "triangular_solve_options")
    except ValueError:
        known = False
    if not known or len(instruction.operands) != 2 or not _is_arrays(instruction.shape):
        return f"{_target(instruction)} without options that say which system is to be solved"
    return None


# ---- cuDNN ------------------------------------------------------------------------------------------


def _canonical(spatial: int) -> ConvDims:
    """[batch, feature, space], a kernel of [output feature, input feature, space], the same result."""
    space = tuple(range(2, 2 + spatial))
    return ConvDims(0, 1, space, 1, 0, space, 0, 1, space, "")


def _forward(
    x: Array, kernel: Array, window: Window, dims: ConvDims, groups: int, result: ArrayShape
) -> Array:
    return convolution(x, kernel, window, dims, groups)


def _backward_input(
    gradient: Array, kernel: Array, window: Window, dims: ConvDims, groups: int, result: ArrayShape
) -> Array:
    """The transposed convolution: the gradient spread by the stride meets the kernel turned round."""
    g = gradient.transpose([dims.output_batch, dims.output_feature, *dims.output_spatial])
    k = kernel.transpose(
        [dims.kernel_output_feature, dims.kernel_input_feature, *dims.kernel_spatial]
    )
    features, inner, *space = k.shape
    k = k.reshape(groups, features // groups, inner, *space).swapaxes(1, 2)
    k = k.reshape(groups * inner, features // groups, *space)
    turned = [axis + 2 for axis, dim in enumerate(window.dims) if not dim.reversal]
    back = []
    for dim, size, steps in zip(
        window.dims, (result.dims[axis] for axis in dims.input_spatial), g.shape[2:], strict=True
    ):
        reach = (dim.size - 1) * dim.window_dilation
        low = reach - dim.pad_low
        high = size - (steps - 1) * dim.stride - 1 - low + reach
        back.append(WindowDim(dim.size, 1, low, high, dim.stride, dim.window_dilation))
    total = convolution(
        g, np.flip(k, tuple(turned)), Window(tuple(back)), _canonical(len(back)), groups
    )
    return total.transpose(np.argsort([dims.input_batch, dims.input_feature, *dims.input_spatial]))


def _backward_filter(
    x: Array, gradient: Array, window: Window, dims: ConvDims, groups: int, result: ArrayShape
) -> Array:
    """The gradient of the kernel: a convolution over the batch whose window is the output's gradient."""
    x = x.transpose([dims.input_feature, dims.input_batch, *dims.input_spatial])
    g = gradient.transpose([dims.output_feature, dims.output_batch, *dims.output_spatial])
    across = []
    for dim, size, steps in zip(window.dims, x.shape[2:], g.shape[2:], strict=True):
        reach = (dim.size - 1) * dim.window_dilation + (steps - 1) * dim.stride + 1
        high = reach - size - dim.pad_low
        across.append(WindowDim(steps, dim.window_dilation, dim.pad_low, high, 1, dim.stride))
    parts = [
        convolution(ours, theirs, Window(tuple(across)), _canonical(len(across))).swapaxes(0, 1)
        for ours, theirs in zip(np.split(x, groups), np.split(g, groups), strict=True)
    ]
    reversed_axes = tuple(axis + 2 for axis, dim in enumerate(window.dims) if dim.reversal)
    total = np.flip(np.concatenate(parts), reversed_axes)
    order = [dims.kernel_output_feature, dims.kernel_input_feature, *dims.kernel_spatial]
    return total.transpose(np.argsort(order))


def _elu(x: Array) -> Array:
    return np.where(x > 0, x, np.expm1(x))


def _relu6(x: Array) -> Array:
    return np.clip(x, 0, 6)


def _leaky(config: Config) -> Callable[[Array], Array]:
    slope = float(config.get("leakyrelu_alpha", 0))
    return lambda x: np.where(x > 0, x, slope * x)


_CONV_ACTIVATIONS: dict[str, Callable[[Config], Callable[[Array], Array]]] = {
    "kNone": lambda _: np.asarray,
    "kRelu": lambda _: _relu,
    "kRelu6": lambda _: _relu6,
    "kElu": lambda _: _elu,
    "kLeakyRelu": _leaky,
}

_CONVOLUTIONS: dict[str, Callable[..., Array]] = {
    "__cudnn$convForward": _forward,
    "__cudnn$convBiasActivationForward": _forward,
    "__cudnn$convBackwardInput": _backward_input,
    "__cudnn$convBackwardFilter": _backward_filter,
}


def _conv(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    """activation(scale conv(lhs, rhs) + side_scale side + bias), rounded once."""
    config = _config(instruction, "cudnn_conv_backend_config")
    lhs, rhs, *others = _operands(instruction, values, context)
    dims: ConvDims = instruction.attributes["dim_labels"]
    window = Window.given(instruction.attributes.get("window"), len(dims.input_spatial))
    groups = instruction.attributes.get("feature_group_count", 1)
    result = _result(instruction)
    total = _CONVOLUTIONS[_target(instruction)](lhs, rhs, window, dims, groups, result)
    kind = total.dtype
    with np.errstate(all="ignore"):
        total = total * float(config.get("conv_result_scale", 1))
        if len(others) > 1:
            total = total + float(config.get("side_input_scale", 1)) * others[1]
        if others:
            along = [1] * total.ndim
            along[dims.output_feature] = -1
            total = total + others[0].reshape(along)
        activate = _CONV_ACTIVATIONS[str(config.get("activation_mode", "kNone"))](config)
        total = activate(total)
    return _with_scratch(instruction, [total.astype(kind)], context)


def _check_conv(instruction: Instruction) -> str | None:
    target = _target(instruction)
    try:
        config = _config(instruction, "cudnn_conv_backend_config")
    except ValueError:
        return f"{target} with a backend_config that is not JSON"
    mode = str(config.get("activation_mode", "kNone"))
    if mode not in _CONV_ACTIVATIONS:
        return f"{target} with the activation {mode}"
    most = 4 if target.endswith("BiasActivationForward") else 2
    if not 2 <= len(instruction.operands) <= most:
        return f"{target} with {len(instruction.operands)} operands"
    if "dim_labels" not in instruction.attributes or not _is_arrays(instruction.shape):
        return f"{target} without dim_labels and arrays as results"
    for operand in instruction.operands:
        if not isinstance(operand.shape, ArrayShape) or not operand.shape.dtype.is_float:
            return f"{target} of {operand.shape}; only floats are convolved as cuDNN does it"
    window = instruction.attributes.get("window")
    if window is not None and any(dim.base_dilation != 1 for dim in window.dims):
        return f"{target} with a dilated input"
    return None


def _target(instruction: Instruction) -> str:
    return str(instruction.attributes["custom_call_target"])


EVALUATORS: dict[str, Evaluator] = {
    "__cublas$gemm": _gemm,
    "__cublas$lt$matmul": _gemm,
    "__cublas$triangularSolve": _triangular,
    **dict.fromkeys(_CONVOLUTIONS, _conv),
}
"""By target, as in ``custom_calls.CUSTOM_CALLS``."""

CHECKS: dict[str, Check] = {
    "__cublas$gemm": _check_gemm,
    "__cublas$lt$matmul": _check_gemm,
    "__cublas$triangularSolve": _check_triangular,
    **dict.fromkeys(_CONVOLUTIONS, _check_conv),
}
"""Why a call cannot be evaluated, or None."""
