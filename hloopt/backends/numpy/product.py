"""The product of two large arrays by BLAS: which views of them it takes, and what is converted in blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hloopt.backends.numpy.plan import Dims, Function

if TYPE_CHECKING:
    from hloopt.backends.numpy.contraction import ProductDims

__all__ = ["BLOCK", "BlasProduct", "Widening", "is_merged", "matrices"]

Widening: TypeAlias = "tuple[Function | None, Function | None]"
"""What converts each operand to the type sums are made in; None where it is of that type."""


# Rows of a product below which BLAS loses more by the many calls than a copy of its operand costs
# (measured on Zen 5, f32[8,R,768] times [768,768]: from 32 rows on, not copying is quicker).
_FEW_ROWS = 32
# Elements of a narrow operand that is converted at once: they stay in the cache until BLAS has read them.
BLOCK = 1 << 20
# Rows or columns of a block, so that BLAS's own copies of the other operand pay.
_LEAST = 64


class BlasProduct:
    """``[*batch, m, k]`` times ``[*batch, k, n]``: a function of two arrays that takes ``out=``.

    ``widen`` converts each operand to ``compute``, the type sums are made in, or is None; ``finish`` makes the
    sum an array of ``carrier``, or is None.
    """

    def __init__(
        self,
        contraction: ProductDims,
        widen: Widening,
        compute: np.dtype[Any],
        carrier: np.dtype[Any],
        finish: Function | None,
    ) -> None:
        self._contraction = contraction
        self._widen = widen
        self._compute, self._carrier = compute, carrier
        self._finish = finish
        self._shape = contraction.result

    def __call__(self, x: Any, y: Any, out: Any = None) -> Any:
        """The result in ``out``, an array in row-major order, or in a new array."""
        if out is not None and not out.flags.c_contiguous:
            out = (
                None  # a ufunc's result of transposed operands: it has no view of other dimensions
            )
        left, right = matrices(self._contraction, x, y)
        if self._is_blocked(left, right):
            return self._by_blocks(left, right, out)
        left, right = self._wide(0, left), self._wide(1, right)
        if self._finish is None:
            if out is None:
                out = np.empty(self._shape, self._compute)
            _multiply(left, right, out.reshape(*left.shape[:-1], right.shape[-1]))
            return out
        total = np.empty((*left.shape[:-1], right.shape[-1]), self._compute)
        _multiply(left, right, total)
        return _given(self._finish(total.reshape(self._shape)), out)

    def _wide(self, at: int, array: Any) -> Any:
        widen = self._widen[at]
        return array if widen is None else widen(array)

    def _is_blocked(self, left: Any, right: Any) -> bool:
        """Whether a converted operand is too large to be kept whole."""
        sizes = [
            0 if widen is None else array.size
            for widen, array in zip(self._widen, (left, right), strict=True)
        ]
        return max(sizes) > BLOCK

    def _by_blocks(self, left: Any, right: Any, out: Any) -> Any:
        """The larger of the operands that are converted, some of its rows or columns at a time."""
        if out is None:
            out = np.empty(self._shape, self._carrier)
        columns = self._widen[1] is not None and (self._widen[0] is None or right.size >= left.size)
        whole = out.reshape(*left.shape[:-1], right.shape[-1])
        if columns:
            left = self._wide(0, left)
        else:
            right = self._wide(1, right)
        at: tuple[Any, ...]
        for batch in _batches(left, right):
            rows, matrix, target = left[batch], right[batch], whole[batch]
            size, step = _step(matrix if columns else rows, 1 if columns else 0)
            for start in range(0, size, step):
                part = slice(start, start + step)
                if columns:
                    at, first, second = np.s_[..., part], rows, self._wide(1, matrix[..., part])
                else:
                    at, first, second = (
                        np.s_[..., part, :],
                        self._wide(0, rows[..., part, :]),
                        matrix,
                    )
                if self._finish is None:
                    np.matmul(first, second, out=target[at])
                else:
                    target[at] = self._finish(np.matmul(first, second))
        return out


def _given(result: Any, out: Any) -> Any:
    if out is None:
        return result
    np.copyto(out, result)
    return out


def _multiply(left: Any, right: Any, out: Any) -> None:
    if left.shape[-1] == 1 and out.dtype.kind == "f":
        # BLAS is slow at outer products.  Its sums begin with +0, which the sign of a zero shows.
        np.multiply(left, right, out=out)
        np.add(out, out.dtype.type(0), out=out)
    else:
        np.matmul(left, right, out=out)


def _batches(left: Any, right: Any) -> Iterator[tuple[Any, ...]]:
    """Indices of the first batch dimension where there is one: what is converted at once is less."""
    if left.ndim > 2 and left.shape[0] == right.shape[0]:
        yield from ((number,) for number in range(left.shape[0]))
    else:
        yield (...,)


def _step(matrix: Any, free: int) -> tuple[int, int]:
    """The size of a matrix's free dimension (0 for rows), and how many of it make a block."""
    size = matrix.shape[free - 2]
    others = max(1, matrix.size // max(1, size))
    return size, max(_LEAST, BLOCK // others)


# ---- views ---------------------------------------------------------------------------------------------


def matrices(contraction: ProductDims, x: Any, y: Any) -> tuple[Any, Any]:
    """The operands as BLAS takes them: ``[*batch, *lead, m, k]`` and ``[*batch, *ones, k, n]``.

    ``lead`` are those free dimensions of ``x`` that make no one dimension with the others as they lie in
    memory.  What is merged is a view, if the strides allow it.
    """
    batch, free = len(contraction.batch), len(contraction.left_free)
    left, right = x.transpose(contraction.left), y.transpose(contraction.right)
    order = _contracting_order(left.strides[batch + free :], right.strides[batch:], contraction)
    if order is not None:
        left = left.transpose([*range(batch + free), *(batch + free + at for at in order)])
        count = len(order)
        rest = range(batch + count, right.ndim)
        right = right.transpose([*range(batch), *(batch + at for at in order), *rest])
    k, n = prod(contraction.contracted), prod(contraction.right_free)
    lead = _unmerged(left, batch, free, contraction.left_free)
    kept = left.shape[: batch + lead]
    rows = prod(contraction.left_free[lead:])
    return (
        left.reshape(*kept, rows, k),
        right.reshape(*contraction.batch, *(1,) * lead, k, n),
    )


def _contracting_order(
    left: Sequence[int], right: Sequence[int], contraction: ProductDims
) -> list[int] | None:
    """An order of the contracted dimensions in which both operands merge them as they lie; None: as given."""
    sizes = contraction.contracted
    count = len(sizes)
    if count < 2:
        return None

    def merges(order: Sequence[int]) -> bool:
        dims = [sizes[at] for at in order]
        return all(is_merged(dims, [strides[at] for at in order]) for strides in (left, right))

    given = list(range(count))
    if merges(given):
        return None
    for strides in (right, left):
        order = sorted(given, key=lambda at: -abs(strides[at]))
        if merges(order):
            return order
    # One of them is copied: the smaller one, which the other's order decides.
    larger = right if prod(contraction.right_free) > prod(contraction.left_free) else left
    return sorted(given, key=lambda at: -abs(larger[at]))


def _unmerged(left: Any, batch: int, free: int, sizes: Dims) -> int:
    """How many of the free dimensions stay dimensions of a stack of products."""
    strides = left.strides[batch : batch + free]
    for lead in range(free):
        if is_merged(sizes[lead:], strides[lead:]):
            return lead if prod(sizes[lead:]) >= _FEW_ROWS else 0
    return 0


def is_merged(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether dimensions lie in memory like one."""
    pairs = [pair for pair in zip(sizes, strides, strict=True) if pair[0] != 1]
    return all(stride == inner * size for (_, stride), (size, inner) in pairwise(pairs))
