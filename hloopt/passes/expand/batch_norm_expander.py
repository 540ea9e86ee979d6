"""Batch normalisation as sums and products."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.passes.expand.expander import Expander
from hloopt.passes.expand.writer import Term, Writer

__all__ = ["BatchNormExpander"]


@dataclass(frozen=True)
class BatchNormExpander(Expander):
    """Write batch-norm-training, -inference and -grad as elementwise ops and sums.

    With n elements of a feature, i = rsqrt(variance + epsilon) and c = x - mean:

        training    mean = sum(x) / n, variance = sum(c c) / n,
                    y = c (scale i) + offset
        inference   y = c (scale i) + offset
        grad        of offset sum(g), of scale s = sum(g c i),
                    of x scale i (g - sum(g) / n - c i s / n)

    Equal within rounding.  Floats narrower than f32 are computed in f32 and rounded once, where XLA sums in
    the type itself.

    short   as XLA: variance = sum(x x) / n - mean mean, which needs no mean before it, and inference as
            x a + b with a and b of the features alone; digits are lost where a mean is large
            beside the deviation
    """

    opcodes: ClassVar[frozenset[str]] = frozenset(
        {"batch-norm-training", "batch-norm-inference", "batch-norm-grad"}
    )
    example: ClassVar[str] = """\
HloModule normalise

ENTRY main {
  x = f32[8,4]{1,0} parameter(0)
  scale = f32[4]{0} parameter(1)
  offset = f32[4]{0} parameter(2)
  mean = f32[4]{0} parameter(3)
  variance = f32[4]{0} parameter(4)
  ROOT r = f32[8,4]{1,0} batch-norm-inference(x, scale, offset, mean, variance), epsilon=0.001, feature_index=1
}
"""

    short: bool = False

    def expand(self, instruction: Instruction, write: Writer) -> Term:
        """Write the formula of the opcode; parts of a tuple have the layouts of the op's."""
        operands = [write.term(operand) for operand in instruction.operands]
        kind = operands[0].dtype
        wide = [operand.wide() for operand in operands]
        norm = _Norm(
            wide[0],
            float(np.float32(instruction.attributes["epsilon"])),
            instruction.attributes["feature_index"],
        )
        if instruction.opcode == "batch-norm-inference":
            return self.inference(norm, *wide[1:]).convert(kind)
        formula = self.training if instruction.opcode == "batch-norm-training" else self.gradient
        results: Sequence[Term] = formula(norm, *wide[1:])
        parts = zip(results, instruction.elements, strict=True)
        return write.pack(*(write.fitted(part.convert(kind), wanted) for part, wanted in parts))

    def inference(self, norm: _Norm, scale: Term, offset: Term, mean: Term, variance: Term) -> Term:
        """The normalised array."""
        factor = scale * norm.inverse(variance)
        if self.short:
            shift = offset - mean * factor
            return norm.x * norm.spread(factor) + norm.spread(shift)
        return (norm.x - norm.spread(mean)) * norm.spread(factor) + norm.spread(offset)

    def training(self, norm: _Norm, scale: Term, offset: Term) -> Sequence[Term]:
        """The normalised array, the means and the variances."""
        mean = norm.sum(norm.x) / norm.count
        centered = norm.x - norm.spread(mean)
        if self.short:
            variance = norm.sum(norm.x * norm.x) / norm.count - mean * mean
        else:
            variance = norm.sum(centered * centered) / norm.count
        factor = norm.spread(scale * norm.inverse(variance))
        return centered * factor + norm.spread(offset), mean, variance

    def gradient(
        self, norm: _Norm, scale: Term, mean: Term, variance: Term, gradient: Term
    ) -> Sequence[Term]:
        """The gradients of x, scale and offset."""
        inverse = norm.inverse(variance)
        normal = (norm.x - norm.spread(mean)) * norm.spread(inverse)
        of_offset = norm.sum(gradient)
        of_scale = norm.sum(gradient * normal)
        inner = (
            gradient
            - norm.spread(of_offset / norm.count)
            - normal * norm.spread(of_scale / norm.count)
        )
        return norm.spread(scale * inverse) * inner, of_scale, of_offset


class _Norm:
    """What all three ops need of x: its features, and sums over all other dimensions."""

    def __init__(self, x: Term, epsilon: float, feature: int) -> None:
        self.x = x
        self.epsilon = epsilon
        self.feature = feature
        self.others = tuple(dim for dim in range(len(x.dims)) if dim != feature)
        self.count = prod(x.dims[dim] for dim in self.others)

    def sum(self, values: Term) -> Term:
        """For each feature."""
        return values.reduce("add", 0, *self.others)

    def spread(self, features: Term) -> Term:
        """A number of each feature, at all of its elements."""
        return features.broadcast(self.x.shape, self.feature)

    def inverse(self, variance: Term) -> Term:
        """One over the deviation."""
        return (variance + self.epsilon).unary("rsqrt")
