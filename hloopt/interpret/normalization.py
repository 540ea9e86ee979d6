"""batch-norm-training, -inference and -grad, computed in double precision and rounded once.

All dimensions but the feature dimension are reduced.  ``n`` is the number of elements of a feature.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hloopt.interpret.context import Context, Evaluator, Value, arrays_of
from hloopt.ir import Instruction
from hloopt.types import Array, DType, TupleShape

__all__ = ["EVALUATORS", "inference", "training", "training_gradient"]


def _axes(x: Array, feature: int) -> tuple[int, ...]:
    return tuple(axis for axis in range(x.ndim) if axis != feature)


def _spread(vector: Array, x: Array, feature: int) -> Array:
    place = [1] * x.ndim
    place[feature] = vector.size
    return vector.reshape(place)


def inference(
    x: Array,
    scale: Array,
    offset: Array,
    mean: Array,
    variance: Array,
    epsilon: float,
    feature: int,
) -> Array:
    """(x - mean) / sqrt(variance + epsilon) * scale + offset, vectors along ``feature``."""
    deviation = np.sqrt(_spread(variance, x, feature) + epsilon)
    centered = x - _spread(mean, x, feature)
    return np.asarray(
        centered / deviation * _spread(scale, x, feature) + _spread(offset, x, feature)
    )


def training(
    x: Array, scale: Array, offset: Array, epsilon: float, feature: int
) -> tuple[Array, Array, Array]:
    """The normalised array, the mean and the (biased) variance of each feature: NaN where it has no element."""
    axes = _axes(x, feature)
    count = x.size // x.shape[feature] if x.size else 0
    with np.errstate(invalid="ignore"):
        mean = x.sum(axis=axes) / count
        variance = np.square(x - _spread(mean, x, feature)).sum(axis=axes) / count
    return inference(x, scale, offset, mean, variance, epsilon, feature), mean, variance


def training_gradient(
    x: Array,
    scale: Array,
    mean: Array,
    variance: Array,
    gradient: Array,
    epsilon: float,
    feature: int,
) -> tuple[Array, Array, Array]:
    """The gradients with respect to x, scale and offset.

    With h = (x - mean) / sqrt(variance + epsilon): offset: sum(g); scale: sum(g h);
    x: scale / sqrt(variance + epsilon) * (g - sum(g) / n - h * sum(g h) / n).
    """
    axes = _axes(x, feature)
    count = x.size // x.shape[feature] if x.size else 1
    deviation = np.sqrt(_spread(variance, x, feature) + epsilon)
    normal = (x - _spread(mean, x, feature)) / deviation
    of_offset = gradient.sum(axis=axes)
    of_scale = (gradient * normal).sum(axis=axes)
    inner = (
        gradient
        - _spread(of_offset, x, feature) / count
        - normal * _spread(of_scale, x, feature) / count
    )
    return np.asarray(_spread(scale, x, feature) / deviation * inner), of_scale, of_offset


def _doubles(values: tuple[Value, ...]) -> list[Array]:
    return [array.astype(np.float64) for array in arrays_of(values)]


def _settings(instruction: Instruction) -> tuple[float, int]:
    """epsilon, which HLO keeps in single precision, and the feature dimension."""
    return float(np.float32(instruction.attributes["epsilon"])), instruction.attributes[
        "feature_index"
    ]


def _dtype(instruction: Instruction) -> DType:
    return instruction.operands[0].array.dtype


def _inference(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    x, scale, offset, mean, variance = _doubles(values)
    result = inference(x, scale, offset, mean, variance, *_settings(instruction))
    return context.round(result, _dtype(instruction))


def _training(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    x, scale, offset = _doubles(values)
    return _rounded(training(x, scale, offset, *_settings(instruction)), instruction, context)


def _gradient(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    x, scale, mean, variance, gradient = _doubles(values)
    results = training_gradient(x, scale, mean, variance, gradient, *_settings(instruction))
    return _rounded(results, instruction, context)


def _rounded(results: tuple[Array, ...], instruction: Instruction, context: Context) -> Value:
    shape = instruction.shape
    assert isinstance(shape, TupleShape)
    return tuple(
        context.round(result, leaf.dtype)  # type: ignore[union-attr]
        for result, leaf in zip(results, shape.elements, strict=True)
    )


EVALUATORS: Mapping[str, Evaluator] = {
    "batch-norm-grad": _gradient,
    "batch-norm-inference": _inference,
    "batch-norm-training": _training,
}
