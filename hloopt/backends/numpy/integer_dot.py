"""Sums of products of integers, exact, by BLAS: as floats that hold every partial sum.

How large partial sums can be is known from the element types and the number of terms.  Where no float type
holds them, the values decide, and numbers that are large in themselves are cut into limbs
(``interpret.linear.integral``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hloopt.backends.numpy.plan import Dims, Function
from hloopt.backends.numpy.product import BlasProduct, Widening, matrices
from hloopt.dataclass import dataclass
from hloopt.interpret.context import Context
from hloopt.interpret.linear import accumulated, integral, rounded
from hloopt.types import DType

if TYPE_CHECKING:
    from hloopt.backends.numpy.contraction import ProductDims

__all__ = ["IntegerForm", "integer_form", "largest"]

# Multiplications up to which NumPy's loops of integers cost less than conversions to floats and back
# (measured on Zen 5: equal at 16 x 16 x 16).
_FEW = 1 << 12
# Up to which magnitude every integer is a float.
_EXACT32, _EXACT64 = 1 << 24, 1 << 53
# f32 sums of parts of the terms pay against f64 ones, of half the speed, up to so many parts.
_MOST_PARTS = 8
_WIDTHS = frozenset({8, 16, 32, 64})


def largest(kind: DType) -> int:
    """The largest magnitude of a type's values."""
    least, most = kind.limits
    return max(-least, most)


@dataclass(frozen=True, slots=True)
class IntegerForm:
    """``widen`` for each operand and ``finish`` for the sums, as for floats; ``compute`` is between them.

    ``terms``      how many terms make a sum that is exact; the others are added in int64
    ``by_values``  the values decide: operands are widened to int64
    """

    widen: Widening
    finish: Function | None
    compute: np.dtype[Any]
    carrier: np.dtype[Any]
    terms: int = 0
    by_values: bool = False

    @property
    def is_one_product(self) -> bool:
        """Whether one call of BLAS, or of NumPy's loops, makes it."""
        return not self.by_values and not self.terms

    def in_one(self) -> IntegerForm:
        """With sums of f64 where f32 holds parts of them only, for products that are not cut into parts."""
        return replace(self, compute=np.dtype(np.float64), terms=0) if self.terms else self

    def function(self, contraction: ProductDims) -> Function:
        """The product of two arrays, of its result's type."""
        if not self.is_one_product:
            return self._in_parts(contraction)
        return BlasProduct(contraction, self.widen, self.compute, self.carrier, self.finish)

    def _in_parts(self, contraction: ProductDims) -> Function:
        count = prod(contraction.contracted)

        def product(x: Any, y: Any) -> Any:
            left, right = matrices(contraction, x, y)
            wide = [
                array if widen is None else widen(array)
                for widen, array in zip(self.widen, (left, right), strict=True)
            ]
            if self.by_values:
                total = integral(np.matmul, wide[0], wide[1], count)
            else:
                total = _added(wide[0], wide[1], self.terms)
            total = total.reshape(contraction.result)
            return total if self.finish is None else self.finish(total)

        return product


def _added(left: Any, right: Any, terms: int) -> Any:
    total = None
    for start in range(0, left.shape[-1], terms):
        part = slice(start, start + terms)
        exact = np.matmul(left[..., part], right[..., part, :])
        if total is None:
            total = exact.astype(np.int64)
        else:
            np.add(total, exact, out=total, casting="unsafe")
    return total


def integer_form(
    kinds: Sequence[DType],
    kind: DType,
    result: DType,
    contracted: Dims,
    work: int,
    context: Context,
) -> IntegerForm:
    """How sums of ``kind`` of products of integers (or pred) are made exactly.

    ``contracted`` are the sizes whose product is the number of terms, ``work`` all multiplications.
    """
    count = max(1, prod(contracted))
    bound = largest(kinds[0]) * largest(kinds[1])
    carrier = context.carrier(result)

    def made(compute: Any, finish: Function | None, **more: Any) -> IntegerForm:
        target = np.dtype(compute)
        widen = tuple(_widening(source, kind, target, context) for source in kinds)
        return IntegerForm((widen[0], widen[1]), finish, target, carrier, **more)

    if work <= _FEW and kind.bits in _WIDTHS:
        # Integers of NumPy wrap as those of HLO do.
        same = kind is result
        return made(kind.numpy, None if same else _finish(kind, result, 0, context))
    if bound * count <= _EXACT32:
        return made(np.float32, _finish(kind, result, bound * count, context))
    if -(-bound * count // _EXACT32) <= _MOST_PARTS:
        finish = _finish(kind, result, bound * count, context)
        return made(np.float32, finish, terms=_EXACT32 // bound)
    if bound * count <= _EXACT64:
        return made(np.float64, _finish(kind, result, bound * count, context))
    return made(np.int64, _finish(kind, result, _EXACT64, context), by_values=True)


def _widening(
    source: DType, kind: DType, target: np.dtype[Any], context: Context
) -> Function | None:
    if source.numpy == target:
        return None
    if target != np.int64:  # a value that wraps to the sum's type could exceed the proven bound
        return lambda array: array.astype(target)

    def wide(array: Any) -> Any:
        return accumulated(array, source, kind, context).astype(target, copy=False)

    return wide


def _finish(kind: DType, result: DType, bound: int, context: Context) -> Callable[[Any], Any]:
    """Sums no larger than ``bound`` as the result: integers wrap."""
    if kind is not result or kind.bits not in _WIDTHS:
        return lambda total: rounded(
            np.asarray(total).astype(np.int64, copy=False), kind, result, context
        )
    if kind.kind == "signed" and bound < 1 << (kind.bits - 1):
        return lambda total: np.asarray(total).astype(kind.numpy, copy=False)
    return lambda total: (
        np.asarray(total).astype(np.int64, copy=False).astype(kind.numpy, copy=False)
    )
