"""dot: transposed, reshaped and given to NumPy's matrix product; what all sums of products share.

The functions take operands that are already in one type; the evaluators convert operands to the
type of the sum first, accumulate narrow floats in float32 and integers in int64, and round once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import frexp, prod
from typing import Final, NamedTuple

import ml_dtypes
import numpy as np

from hloopt.interpret.context import Check, Context, Evaluator, Value, array_of
from hloopt.interpret.elementwise import convert
from hloopt.ir import Instruction
from hloopt.types import Array, DotDims, DType, record_of

__all__ = [
    "CHECKS",
    "EVALUATORS",
    "FACTOR_ROUNDING",
    "Product",
    "accumulated",
    "check_precision",
    "dot",
    "integral",
    "matmul",
    "rounded",
    "sum_type",
]

FACTOR_ROUNDING: Final[Mapping[str, float]] = {
    "dot_bf16_bf16_f32": 2.0**-8,
    "dot_bf16_bf16_f32_x3": 2.0**-15,
    "dot_tf32_tf32_f32": 2.0**-10,
}
"""By how much, at most, an algorithm moves each factor that is wider than its own type, relative to it.

A bf16 has 8 bits: the nearest one is off by 2^-8 at most, and a TF32 that is cut off by 2^-10.  Of x3 each
factor is two bf16, off by 2^-16 of it, and the product of both second ones, another 2^-16 of the product, is
left out: less than both factors moved by 2^-15."""

# Up to which magnitude every integer is a float of the type; the quicker type first.
_EXACT = {np.float32: 1 << 24, np.float64: 1 << 53}


def integral(product: Callable[[Array, Array], Array], lhs: Array, rhs: Array, terms: int) -> Array:
    """``product`` of int64 arrays modulo 2**64, made of products of floats, which BLAS does.

    ``product`` is linear in both arrays and sums at most ``terms`` products of their elements for an
    element of its result.  Each float product is small enough to be exact: where whole numbers are
    not, they are cut into limbs.
    """
    if not lhs.size or not rhs.size:
        return product(lhs.astype(np.float64), rhs.astype(np.float64)).astype(np.int64)
    bound = _largest(lhs) * _largest(rhs) * terms
    for kind, exact in _EXACT.items():
        if bound <= exact:
            return product(lhs.astype(kind), rhs.astype(kind)).astype(np.int64)
    bits = (53 - terms.bit_length()) // 2
    right = _limbs(rhs, bits)
    total: Array | None = None
    for number, high in enumerate(_limbs(lhs, bits)):
        for other, low in enumerate(right):
            shift = bits * (number + other)
            if shift < 64:
                part = product(high, low).astype(np.int64) << shift
                total = part if total is None else total + part
    assert total is not None
    return total


def _largest(array: Array) -> int:
    """The largest magnitude."""
    return max(-int(array.min()), int(array.max()))


def _limbs(array: Array, bits: int) -> list[Array]:
    """float64 limbs whose sum, each shifted by ``bits`` more than the one before, is ``array``."""
    count = _largest(array).bit_length() // bits + 1
    limbs = [(array >> (bits * number)) & ((1 << bits) - 1) for number in range(count - 1)]
    return [limb.astype(np.float64) for limb in (*limbs, array >> (bits * (count - 1)))]


def matmul(lhs: Array, rhs: Array) -> Array:
    """[..., m, k] times [..., k, n]; int64 wraps."""
    if lhs.dtype == np.int64:
        return integral(np.matmul, lhs, rhs, lhs.shape[-1])
    return np.asarray(np.matmul(lhs, rhs))


def dot(lhs: Array, rhs: Array, dims: DotDims) -> Array:
    """The product over contracting dimensions for every batch index.

    Result dimensions: batch (in the order of ``lhs_batch``), other dimensions of ``lhs``, those
    of ``rhs``.
    """
    left_free = dims.lhs_free(lhs.ndim)
    right_free = dims.rhs_free(rhs.ndim)
    batch = [lhs.shape[axis] for axis in dims.lhs_batch]
    m = [lhs.shape[axis] for axis in left_free]
    n = [rhs.shape[axis] for axis in right_free]
    k = prod(lhs.shape[axis] for axis in dims.lhs_contracting)
    left = lhs.transpose([*dims.lhs_batch, *left_free, *dims.lhs_contracting])
    right = rhs.transpose([*dims.rhs_batch, *dims.rhs_contracting, *right_free])
    result = matmul(left.reshape(prod(batch), prod(m), k), right.reshape(prod(batch), k, prod(n)))
    return result.reshape([*batch, *m, *n])


def sum_type(operands: Sequence[DType], result: DType) -> DType:
    """The type whose arithmetic a product has: of those of the operands and of the result the one with
    most range, then most precision, as in XLA's compilers.

    Complex types come before floats, floats before integers, signed integers before unsigned ones of
    their width.  (XLA's evaluator makes products in the type of the result.)
    """
    return max((result, *operands), key=_reach)


@cache
def _reach(dtype: DType) -> tuple[bool, int, int, int, bool]:
    exponent = precision = -1
    if dtype.is_float or dtype.is_complex:
        limits = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
        exponent, precision = int(frexp(float(limits.max))[1]), int(limits.nmant)
    bits = 1 if dtype.is_pred else dtype.bits
    return dtype.is_complex, exponent, precision, bits, dtype.kind == "signed"


def accumulated(array: Array, source: DType, kind: DType, context: Context) -> Array:
    """An operand converted to a product's type and then to the type sums are made in: int64, or what
    floats are computed in.
    """
    converted = convert(array, source, kind, context)
    if not (kind.is_integer or kind.is_pred):
        return context.widen(converted, kind)
    return converted.view(np.int64) if kind.numpy == np.uint64 else converted.astype(np.int64)


def rounded(total: Array, kind: DType, result: DType, context: Context) -> Array:
    """A sum as an element of its type, where integers wrap and floats round, and then of the result's."""
    if kind.is_pred:
        total = np.not_equal(total, 0)
    elif kind.is_integer:
        shift = 64 - kind.bits
        if kind.kind == "signed":
            total = (total << shift) >> shift
        elif shift:
            total = total & ((1 << kind.bits) - 1)
    return convert(context.round(total, kind), kind, result, context)


class Product(NamedTuple):
    """The operands of a sum of products, in the type it is made in, and the way back."""

    lhs: Array
    rhs: Array
    kind: DType

    @staticmethod
    def of(instruction: Instruction, values: Sequence[Value], context: Context) -> Product:
        """The first two operands."""
        types = [operand.array.dtype for operand in instruction.operands[:2]]
        kind = sum_type(types, instruction.array.dtype)
        lhs, rhs = (
            accumulated(array_of(value), source, kind, context)
            for value, source in zip(values[:2], types, strict=True)
        )
        return Product(lhs, rhs, kind)

    def result(self, total: Array, instruction: Instruction, context: Context) -> Array:
        """A sum as the instruction's result."""
        return rounded(total, self.kind, instruction.array.dtype, context)


def _dot(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    product = Product.of(instruction, values, context)
    total = dot(product.lhs, product.rhs, DotDims.of(instruction.attributes))
    return product.result(total, instruction, context)


_PRECISIONS = frozenset({"default", "high", "highest"})


def check_precision(instruction: Instruction) -> str | None:
    """Precisions allow rounding, which changes nothing here; older XLA had one that packs two numbers."""
    for word in record_of(instruction.attributes, "operand_precision", tuple) or ():
        if word.lower() not in _PRECISIONS:
            return f"operands of the precision {word} cannot be evaluated"
    return None


EVALUATORS: Mapping[str, Evaluator] = {"dot": _dot}
CHECKS: Mapping[str, Check] = {"dot": check_precision}
