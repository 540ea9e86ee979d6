"""dot: transposed, reshaped and given to NumPy's matrix product; what all sums of products share.

The functions take operands that are already in one type; the evaluators convert operands to the
result type first, accumulate narrow floats in float32 and integers in int64, and round once, as
XLA's evaluator does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np

from hloopt.interpret.context import Array, Context, Evaluator, Value, array_of
from hloopt.interpret.elementwise import convert
from hloopt.ir import Instruction
from hloopt.types import DotDims, DType, of_numpy

__all__ = ["EVALUATORS", "accumulated", "dot", "integral", "matmul", "sum_operands", "wrapped"]

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
    """float64 arrays whose sum, each shifted by ``bits`` more than the one before, is ``array``."""
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


def sum_operands(
    instruction: Instruction, values: Sequence[Value], context: Context
) -> list[Array]:
    result = instruction.array.dtype
    return [
        accumulated(array_of(value), operand.array.dtype, result, context)
        for value, operand in zip(values, instruction.operands, strict=True)
    ]


def _dot(instruction: Instruction, values: tuple[Value, ...], context: Context) -> Value:
    lhs, rhs = sum_operands(instruction, values, context)
    total = dot(lhs, rhs, DotDims.of(instruction.attributes))
    return wrapped(total, instruction.array.dtype, context)


EVALUATORS: Mapping[str, Evaluator] = {"dot": _dot}
