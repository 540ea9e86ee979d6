"""Calls of cuDNN in modules that were optimised for a GPU: convolutions, forward, backward and fused.

What is computed is said by ``backend_config`` and by the attributes of a convolution.  The result is a tuple
whose first element is the product; scratch space, its last, is zero here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hloopt.interpret.context import Check, Context, Evaluator, Value
from hloopt.interpret.convolution import convolution
from hloopt.interpret.cublas import relu
from hloopt.interpret.library_calls import (
    LibraryOptions,
    config,
    is_arrays,
    operands_of,
    result_shape,
    saturated,
    with_scratch,
)
from hloopt.ir import Instruction
from hloopt.types import (
    DTYPES,
    Array,
    ArrayShape,
    ConvDims,
    ConvNumbers,
    TupleShape,
    Window,
    WindowDim,
    dilated,
)

__all__ = ["CHECKS", "EVALUATORS", "activation"]


def _canonical(spatial: int) -> ConvDims:
    """[batch, feature, space], a kernel of [output feature, input feature, space], the same result."""
    space = tuple(range(2, 2 + spatial))
    return ConvDims(0, 1, space, 1, 0, space, 0, 1, space, "")


def _forward(x: Array, kernel: Array, numbers: ConvNumbers, result: ArrayShape) -> Array:
    return convolution(x, kernel, numbers)


def _backward_input(
    gradient: Array, kernel: Array, numbers: ConvNumbers, result: ArrayShape
) -> Array:
    """The transposed convolution: the gradient dilated by the stride meets the reversed kernel."""
    dims, groups = numbers.labels, numbers.feature_groups
    g = gradient.transpose([dims.output_batch, dims.output_feature, *dims.output_spatial])
    k = kernel.transpose(
        [dims.kernel_output_feature, dims.kernel_input_feature, *dims.kernel_spatial]
    )
    features, inner, *space = k.shape
    k = k.reshape(groups, features // groups, inner, *space).swapaxes(1, 2)
    k = k.reshape(groups * inner, features // groups, *space)
    sizes = [result.dims[axis] for axis in dims.input_spatial]
    windows = zip(numbers.window.dims, sizes, g.shape[2:], strict=True)
    back = Window(tuple(dim.transposed(size, steps) for dim, size, steps in windows))
    total = convolution(g, k, ConvNumbers(_canonical(len(space)), back, groups))
    return total.transpose(np.argsort([dims.input_batch, dims.input_feature, *dims.input_spatial]))


def _backward_filter(x: Array, gradient: Array, numbers: ConvNumbers, result: ArrayShape) -> Array:
    """The gradient of the kernel: a convolution over the batch whose window is the output's gradient."""
    dims, window, groups = numbers.labels, numbers.window, numbers.feature_groups
    x = x.transpose([dims.input_feature, dims.input_batch, *dims.input_spatial])
    g = gradient.transpose([dims.output_feature, dims.output_batch, *dims.output_spatial])
    across = []
    for dim, size, steps in zip(window.dims, x.shape[2:], g.shape[2:], strict=True):
        high = dim.reach + dilated(steps, dim.stride) - 1 - size - dim.pad_low
        across.append(WindowDim(steps, dim.window_dilation, dim.pad_low, high, 1, dim.stride))
    over_batch = ConvNumbers(_canonical(len(across)), Window(tuple(across)))
    parts = [
        convolution(ours, theirs, over_batch).swapaxes(0, 1)
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


def _leaky(settings: LibraryOptions) -> Callable[[Array], Array]:
    slope = float(settings.get("leakyrelu_alpha", 0))
    return lambda x: np.where(x > 0, x, slope * x)


def _logistic(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


_CONV_ACTIVATIONS: dict[str, Callable[[LibraryOptions], Callable[[Array], Array]]] = {
    "kNone": lambda _: np.asarray,
    "kSigmoid": lambda _: _logistic,
    "kRelu": lambda _: relu,
    "kRelu6": lambda _: _relu6,
    "kTanh": lambda _: np.tanh,
    "kElu": lambda _: _elu,
    "kLeakyRelu": _leaky,
}
# Dumps of before 2023 have numbers.
_NUMBERS = {
    "0": "kNone",
    "1": "kSigmoid",
    "2": "kRelu",
    "3": "kRelu6",
    "5": "kTanh",
    "7": "kElu",
    "8": "kLeakyRelu",
}


def activation(settings: LibraryOptions) -> str:
    mode = str(settings.get("activation_mode", "kNone"))
    return _NUMBERS.get(mode, mode)


_CONVOLUTIONS: dict[str, Callable[..., Array]] = {
    "__cudnn$convForward": _forward,
    "__cudnn$convBiasActivationForward": _forward,
    "__cudnn$convBackwardInput": _backward_input,
    "__cudnn$convBackwardFilter": _backward_filter,
}


def _conv(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    """activation(scale conv(lhs, rhs) + side_scale side + bias), rounded once."""
    settings = config(instruction, "cudnn_conv_backend_config")
    lhs, rhs, *others = operands_of(instruction, values, context)
    numbers = ConvNumbers.of(instruction.attributes)
    total = _CONVOLUTIONS[instruction.custom_call_target](
        lhs, rhs, numbers, result_shape(instruction)
    )
    kind = total.dtype
    with np.errstate(all="ignore"):
        total = total * float(settings.get("conv_result_scale", 1))
        if len(others) > 1:
            total = total + float(settings.get("side_input_scale", 1)) * others[1]
        if others:
            along = [1] * total.ndim
            along[numbers.labels.output_feature] = -1
            total = total + others[0].reshape(along)
        activate = _CONV_ACTIVATIONS[activation(settings)](settings)
        total = activate(total)
    return with_scratch(instruction, [total.astype(kind)], context)


class _Node(NamedTuple):
    """A step of a graph: its number, its element type, what it does, and the numbers of what it takes."""

    number: int
    dtype: str
    name: str
    takes: tuple[int, ...]


_NODE = re.compile(r"(\d+):\[(\w+)\](\w+)\(([\d,]*)\);")
# Steps of two operands; the second is the call's next one unless the graph has it.
_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "invscale": np.divide,
    "scale": np.multiply,
}
_UNARY: dict[str, Callable[[Array], Array]] = {
    "amax": lambda x: np.asarray(np.abs(x).max(initial=0.0)),
    "relu": relu,
}


def _graph(instruction: Instruction) -> list[_Node]:
    """The steps of a fused convolution.  Raises ``ValueError`` where they are written in any other way."""
    text = str(config(instruction, "cudnn_conv_backend_config").get("serialized_graph", ""))
    nodes = [
        _Node(int(found[1]), found[2], found[3], tuple(map(int, re.findall(r"\d+", found[4]))))
        for found in _NODE.finditer(text)
    ]
    if not nodes or sum(len(found[0]) for found in _NODE.finditer(text)) != len(text):
        raise ValueError("no serialized_graph")
    return nodes


def _conv_graph(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    """A convolution and what its graph does with it, each step rounded to its type; the largest magnitudes
    come after the result.
    """
    lhs, rhs, *others = operands_of(instruction, values, context)
    numbers = ConvNumbers.of(instruction.attributes)
    found: dict[int, Array] = {}
    results: list[Array] = [np.zeros(())]
    for node in _graph(instruction):
        kind = DTYPES[node.dtype]
        taken = [found[number] for number in node.takes]
        with np.errstate(all="ignore"):
            if node.name == "conv":
                step = convolution(lhs, rhs, numbers)
            elif node.name in _UNARY:
                step = _UNARY[node.name](*taken)
            else:
                step = _BINARY[node.name](*taken, *([] if len(taken) == 2 else [others.pop(0)]))
        rounded = context.round(saturated(step, kind), kind)
        found[node.number] = rounded.astype(kind.compute)
        if node.name == "amax":
            results.append(rounded)
        else:
            results[0] = rounded
    return with_scratch(instruction, results, context)


def _check_graph(instruction: Instruction) -> str | None:
    complaint = _check_conv_call(instruction)
    if complaint is not None:
        return complaint
    try:
        nodes = _graph(instruction)
    except ValueError:
        return f"{instruction.custom_call_target} without a serialized_graph that can be read"
    name, wanted = instruction.custom_call_target, 2
    known: set[int] = set()
    for node in nodes:
        takes = {"conv": 0, **dict.fromkeys(_UNARY, 1), **dict.fromkeys(_BINARY, 2)}.get(node.name)
        if takes is None or node.dtype not in DTYPES:
            return f"{name} with the step {node.dtype} {node.name}"
        missing = takes - len(node.takes)
        if missing not in (0, 1) or (missing and takes != 2) or not known.issuperset(node.takes):
            return f"{name} with the step {node.name} of {len(node.takes)} operands"
        wanted += missing
        known.add(node.number)
    if nodes[0].name != "conv" or len(instruction.operands) != wanted:
        return f"{name} with {len(instruction.operands)} operands instead of {wanted}"
    extra = sum(node.name == "amax" for node in nodes)
    parts = instruction.shape.elements if isinstance(instruction.shape, TupleShape) else ()
    if len(parts) != extra + 2:
        return f"{name} with {len(parts)} results instead of {extra + 2}"
    return None


def _check_conv(instruction: Instruction) -> str | None:
    complaint = _check_conv_call(instruction)
    if complaint is not None:
        return complaint
    name = instruction.custom_call_target
    mode = activation(config(instruction, "cudnn_conv_backend_config"))
    if mode not in _CONV_ACTIVATIONS:
        return f"{name} with the activation {mode}"
    most = 4 if name.endswith("BiasActivationForward") else 2
    if not 2 <= len(instruction.operands) <= most:
        return f"{name} with {len(instruction.operands)} operands"
    return None


def _check_conv_call(instruction: Instruction) -> str | None:
    name = instruction.custom_call_target
    try:
        config(instruction, "cudnn_conv_backend_config")
    except ValueError:
        return f"{name} with a backend_config that is not JSON"
    if "dim_labels" not in instruction.attributes or not is_arrays(instruction.shape):
        return f"{name} without dim_labels and arrays as results"
    if len(instruction.operands) < 2:
        return f"{name} with {len(instruction.operands)} operands"
    for operand in instruction.operands:
        if not isinstance(operand.shape, ArrayShape) or not operand.shape.dtype.is_float:
            return f"{name} of {operand.shape}; only floats are convolved as cuDNN does it"
    window = instruction.attributes.get("window")
    dilated = window is not None and any(dim.base_dilation != 1 for dim in window.dims)
    if dilated and "Backward" in name:
        return f"{name} with a dilated input"
    return None


EVALUATORS: dict[str, Evaluator] = {
    **dict.fromkeys(_CONVOLUTIONS, _conv),
    "__cudnn$convForwardGraph": _conv_graph,
}
"""By target, as in ``custom_calls.CUSTOM_CALLS``."""

CHECKS: dict[str, Check] = {
    **dict.fromkeys(_CONVOLUTIONS, _check_conv),
    "__cudnn$convForwardGraph": _check_graph,
}
"""Why a call cannot be evaluated, or None."""
