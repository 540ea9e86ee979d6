"""How far the batch-norm ops may be off, in whatever form a device computes them.

``(x - mean) * scale / sqrt(variance + epsilon) + offset`` may be ``x * a + b`` with a and b made before, a
variance the difference of the mean of squares and the squared mean: roundings are parts of the magnitudes that
are added in the form with the largest ones.  Sums are off as ``bounds_sums`` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import ml_dtypes
import numpy as np

from hloopt.interpret.bounding import Bounding
from hloopt.interpret.bounds_elementwise import ErrorBound
from hloopt.interpret.context import Value, leaf_arrays
from hloopt.interpret.perturbation import unit_roundoff
from hloopt.types import Array, of_numpy

__all__ = ["normalized"]

_STEPS: Final = 16
"""Units of rounding of an element: two of a reciprocal square root's four, and of each product and sum."""


def normalized(one: Bounding) -> Value:
    """Of ``batch-norm-inference``, ``-training`` and ``-grad``."""
    result = one.run()
    results = list(leaf_arrays(result))
    arrays, bounds = one.arrays()
    with np.errstate(all="ignore"):
        found = _Feature(one, arrays[0]).bounds(one.instruction.opcode, arrays, bounds)
    return one.close(result, [_closed(off, own) for off, own in zip(found, results, strict=True)])


class _Feature:
    """The sums and magnitudes of one call, all in f64 and of the shape of ``x`` or 1 where it is reduced."""

    def __init__(self, one: Bounding, x: Array) -> None:
        attributes = one.instruction.attributes
        self.epsilon = float(np.float32(attributes["epsilon"]))
        self.feature = int(attributes["feature_index"])
        self.axes = tuple(axis for axis in range(x.ndim) if axis != self.feature)
        self.count = max(1, x.size // max(1, x.shape[self.feature]))
        self.unit = unit_roundoff(of_numpy(x.dtype))
        steps = (self.count + _STEPS) * self.unit
        self.gamma = steps / (1 - steps) if steps < 0.5 else np.inf

    def bounds(
        self, opcode: str, arrays: Sequence[Array], bounds: Sequence[ErrorBound]
    ) -> list[Array]:
        """Of each result."""
        wide = [self._spread(array, arrays[0].ndim) for array in arrays]
        off = [
            np.zeros(array.shape) if bound is None else self._spread(bound, arrays[0].ndim)
            for array, bound in zip(wide, bounds, strict=True)
        ]
        if opcode == "batch-norm-inference":
            return [self._inference(wide, off)]
        if opcode == "batch-norm-training":
            return self._training(wide, off)
        return self._gradient(wide, off)

    def _spread(self, array: Array, rank: int) -> Array:
        found = array.astype(np.float64)
        if found.ndim == rank:
            return found
        place = [1] * rank
        place[self.feature] = found.size
        return found.reshape(place)

    def _sum(self, terms: Array) -> Array:
        return np.asarray(terms.sum(axis=self.axes, keepdims=True))

    def _inverse(self, variance: Array, off: Array) -> tuple[Array, Array]:
        """1 / sqrt(variance + epsilon), and how far that moves; unknown where it comes near a pole."""
        under = variance + self.epsilon
        part = off / under
        inverse = 1 / np.sqrt(under)
        return inverse, np.where(part <= 0.5, inverse * part, np.inf)

    def _inference(self, wide: Sequence[Array], off: Sequence[Array]) -> Array:
        x, scale, offset, mean, variance = wide
        off_x, off_scale, off_offset, off_mean, off_variance = off
        inverse, moved = self._inverse(variance, off_variance)
        factor = np.abs(scale) * inverse
        most = (np.abs(scale) + off_scale) * (inverse + moved)
        off_centered = off_x + off_mean
        added = most * (np.abs(x) + np.abs(mean) + off_centered) + np.abs(offset) + off_offset
        return np.asarray(
            most * off_centered
            + np.abs(x - mean) * (most - factor)
            + off_offset
            + _STEPS * self.unit * added
        )

    def _training(self, wide: Sequence[Array], off: Sequence[Array]) -> list[Array]:
        x, scale, offset = wide
        mean = self._sum(x) / self.count
        variance = self._sum((x - mean) ** 2) / self.count
        off_mean = self._sum(off[0] + self.gamma * (np.abs(x) + off[0])) / self.count
        size, moved = np.abs(x - mean), off[0] + off_mean
        squares = self._sum((np.abs(x) + off[0]) ** 2) / self.count
        off_variance = self._sum(moved * (2 * size + moved)) / self.count + 2 * self.gamma * squares
        values = self._inference((x, scale, offset, mean, variance), (*off, off_mean, off_variance))
        return [values, off_mean.reshape(-1), off_variance.reshape(-1)]

    def _gradient(self, wide: Sequence[Array], off: Sequence[Array]) -> list[Array]:
        """Of ``scale / deviation * (g - sum(g) / n - h * sum(g h) / n)``, ``h = (x - mean) / deviation``."""
        x, scale, mean, variance, gradient = wide
        off_x, off_scale, off_mean, off_variance, off_gradient = off
        inverse, moved = self._inverse(variance, off_variance)
        normal = (x - mean) * inverse
        ones, zero = np.ones((1,) * x.ndim), np.zeros((1,) * x.ndim)
        off_normal = self._inference(
            (x, ones, zero, mean, variance), (off_x, zero, zero, off_mean, off_variance)
        )
        most_normal = (np.abs(x) + np.abs(mean)) * inverse + off_normal
        most_gradient = np.abs(gradient) + off_gradient
        off_offset = self._sum(off_gradient + self.gamma * most_gradient)
        of_scale = self._sum(gradient * normal)
        off_of_scale = self._sum(
            np.abs(gradient) * off_normal
            + (np.abs(normal) + off_normal) * off_gradient
            + self.gamma * most_gradient * most_normal
        )
        inner = gradient - self._sum(gradient) / self.count - normal * of_scale / self.count
        added = (
            most_gradient
            + self._sum(most_gradient) / self.count
            + most_normal * self._sum(most_gradient * most_normal) / self.count
        )
        off_inner = (
            off_gradient
            + off_offset / self.count
            + (np.abs(normal) + off_normal) * off_of_scale / self.count
            + np.abs(of_scale) * off_normal / self.count
        )
        most = (np.abs(scale) + off_scale) * (inverse + moved)
        bound = (
            most * off_inner
            + (most - np.abs(scale) * inverse) * np.abs(inner)
            + _STEPS * self.unit * most * added
        )
        return [bound, off_of_scale.reshape(-1), off_offset.reshape(-1)]


def _closed(off: Array, result: Array) -> Array:
    """With the rounding of the result on either side; of what is no number, or near none, nothing is known."""
    kind = of_numpy(result.dtype)
    facts = ml_dtypes.finfo(kind.numpy)  # type: ignore[no-untyped-call]
    size = np.abs(result.astype(np.float64))
    off = np.broadcast_to(off, result.shape)
    bound = off + unit_roundoff(kind) * (2 * size + off) + float(facts.tiny)
    return np.where(size + bound < float(facts.max), bound, np.inf)
