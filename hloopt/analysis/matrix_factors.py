"""As what matrix units multiply the factors of a product: exactly, or rounded as its ``algorithm`` allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from hloopt.analysis.contraction import EXACT, exact_dtype, keeps_values
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.types import DType

__all__ = ["ALGORITHMS", "MatrixFactors", "matrix_factors"]


@dataclass(frozen=True, slots=True)
class MatrixFactors:
    """How matrix units take the factors of a product.

    unit      the type they multiply, as targets name its rate: f32 stands for TF32
    depth     of one of their steps along the contracted axis, or of two, on devices before 8.0
    bytes     of a factor in shared memory; one of 4 is rounded, or cut into terms, when it is read from there
    products  of terms for each product that is asked for
    """

    unit: str
    depth: int
    bytes: int
    products: int = 1

    @property
    def step(self) -> str:
        """The key of the step in ``MATRIX_STEPS``."""
        return f"m16n8k{self.depth}.{'tf32' if self.unit == 'f32' else self.unit}"

    @property
    def capability(self) -> tuple[int, int]:
        """Of the first device that multiplies so."""
        return (7, 5) if self.unit == "f16" else (8, 0)

    @property
    def read_ops(self) -> int:
        """Instructions that a factor costs whenever a warp reads it."""
        return _READ_OPS[self.products] if self.bytes == 4 else 0


_READ_OPS: Final = {1: 3, 3: 6}

_EXACTLY: Final[Mapping[str, MatrixFactors]] = MappingProxyType({
    "f16": MatrixFactors("f16", 16, 2),
    "bf16": MatrixFactors("bf16", 16, 2),
    "s8": MatrixFactors("s8", 32, 1),
})  # fmt: skip

ALGORITHMS: Final[Mapping[str, MatrixFactors]] = MappingProxyType({
    "dot_bf16_bf16_f32": MatrixFactors("bf16", 16, 2),
    "dot_tf32_tf32_f32": MatrixFactors("f32", 8, 4),
    "dot_bf16_bf16_f32_x3": MatrixFactors("bf16", 16, 4, 3),
})  # fmt: skip
"""What f32 factors may be rounded to.  Of x3 a factor is the sum of two bf16; the product of both second ones
is left out, as XLA does."""

_ROUNDED: Final = frozenset({"f32", "bf16"})


def matrix_factors(
    hero: Instruction, kind: DType, is_inside: Callable[[Instruction], bool]
) -> MatrixFactors | str:
    """How matrix units multiply the first two operands of a product, or why none does.

    ``kind`` is the type of its sums; ops of which ``is_inside`` holds belong to its kernel.
    """
    found = [exact_dtype(one, is_inside) for one in hero.operands[:2]]
    names = " and ".join(dict.fromkeys(one.name for one in found))
    if kind.bits > 32:
        return f"{names} are multiplied as {kind.name}"
    for name, exact in EXACT.items():
        if all(one.name in exact for one in found):
            if not all(keeps_values(one, kind) for one in found):
                return f"{names} are multiplied as {kind.name}"
            return _EXACTLY[name]
    rounded = ALGORITHMS.get(str(hero.attributes.get("algorithm", "")))
    if rounded is not None and all(one.array.dtype.name in _ROUNDED for one in hero.operands[:2]):
        return rounded
    return f"no matrix unit multiplies {names} without rounding them"
