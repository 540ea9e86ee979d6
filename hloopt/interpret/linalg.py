"""``cholesky`` and ``triangular-solve``, and the factorisations that LAPACK calls need.

All work on the last two dimensions of stacks of matrices, compute in double precision and leave
rounding to the caller.  Real types become float64, complex ones complex128.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Literal

import numpy as np

from hloopt.interpret.context import Check, Context, Evaluator, Value, array_of, arrays_of
from hloopt.ir import Instruction
from hloopt.types import Array

__all__ = [
    "CHECKS",
    "EVALUATORS",
    "cholesky",
    "cholesky_in_place",
    "eig",
    "eigh",
    "householder_product",
    "lu",
    "qr_raw",
    "solved",
    "svd",
    "triangular_solve",
    "tridiagonal_solve",
    "wide",
]

_BLOCK = 16
_PANEL = 32

# Infinities, NaNs and zero pivots are values here, as they are to LAPACK.
_QUIET = np.errstate(all="ignore")


def cholesky(matrices: Array, *, lower: bool) -> Array:
    """L with L Lᴴ = A, or U with Uᴴ U = A; zeros in the other triangle of the result.

    Only the triangle that ``lower`` names is read, and of a complex diagonal the real part.  A matrix
    that is not positive definite gives NaN in every element.
    """
    factors, info = cholesky_in_place(matrices, lower=lower)
    factors = np.tril(factors) if lower else np.triu(factors)
    factors[info != 0] = np.nan
    return factors


@_QUIET
def cholesky_in_place(matrices: Array, *, lower: bool) -> tuple[Array, Array]:
    """LAPACK's ``potrf``: the factor over the named triangle, the other left as it was, and ``info``.

    ``info`` (s32, one a matrix) is 0, or the 1-based order of the first leading minor that is not
    positive; then the columns from there on are as they were.
    """
    given = wide(matrices)
    try:
        factors = np.linalg.cholesky(given if lower else _adjoint(given))
    except np.linalg.LinAlgError:
        return _columns_factored(given, lower=lower)
    # Libraries differ in what they make of NaN.
    if not np.isfinite(np.diagonal(factors, 0, -2, -1)).all():
        return _columns_factored(given, lower=lower)
    if np.iscomplexobj(factors):
        # A conjugate turns the signs of zeros, and so do libraries: both triangles have +0.
        factors = factors + 0 if lower else np.conj(np.conj(factors) + 0)
    named = np.tri(given.shape[-1], dtype=bool)
    whole = (
        np.where(named, factors, given) if lower else np.where(named.T, _adjoint(factors), given)
    )
    return whole, np.zeros(given.shape[:-2], np.int32)


def _columns_factored(result: Array, *, lower: bool) -> tuple[Array, Array]:
    """``cholesky_in_place`` column by column, as far as minors are positive."""
    given = result.copy()
    work = result if lower else _adjoint(result).copy()
    size = work.shape[-1]
    pivots = np.empty(work.shape[:-1])
    for column in range(size):
        below = work[..., column + 1 :, column]
        pivot = work[..., column, column].real
        if column:
            row = work[..., column, :column].conj()
            pivot = pivot - (work[..., column, :column] * row).real.sum(axis=-1)
            below = below - (work[..., column + 1 :, :column] @ row[..., None])[..., 0]
        pivots[..., column] = pivot
        root = np.sqrt(pivot)
        work[..., column, column] = root
        work[..., column + 1 :, column] = below / root[..., None]
    good = pivots > 0
    info = np.zeros(work.shape[:-2], np.int32)
    if not good.all():
        good = np.logical_and.accumulate(good, axis=-1)
        info[...] = np.where(good.all(axis=-1), 0, good.sum(axis=-1) + 1)
        work = np.where(good[..., None, :], work, given if lower else _adjoint(given))
    if lower:
        return work, info
    return np.triu(_adjoint(work)) + np.tril(result, -1), info


@_QUIET
def triangular_solve(
    a: Array,
    b: Array,
    *,
    left_side: bool = True,
    lower: bool = True,
    unit_diagonal: bool = False,
    transpose_a: str = "NO_TRANSPOSE",
) -> Array:
    """The x with op(a) x = b, or x op(a) = b where not ``left_side``.

    op is ``NO_TRANSPOSE``, ``TRANSPOSE`` or ``ADJOINT``.  Only the named triangle of ``a`` is read, and
    not its diagonal where that is ``unit_diagonal``.  Shapes: a [..., n, n], b [..., n, m], or
    [..., m, n] where not ``left_side``.  A zero on the diagonal divides: inf and NaN, no error.
    """
    triangle, right = wide(a), wide(b)
    if transpose_a != "NO_TRANSPOSE":
        triangle, lower = np.swapaxes(triangle, -1, -2), not lower
    if transpose_a == "ADJOINT":
        triangle = triangle.conj()
    if not left_side:
        triangle, right = np.swapaxes(triangle, -1, -2), np.swapaxes(right, -1, -2)
        lower = not lower
    if not lower:
        # Reversed in both dimensions an upper triangle is a lower one.
        triangle, right = triangle[..., ::-1, ::-1], right[..., ::-1, :]
    solution = np.array(right, np.result_type(triangle, right))
    _substitute(triangle, solution, unit_diagonal)
    if not lower:
        solution = solution[..., ::-1, :]
    return solution if left_side else np.swapaxes(solution, -1, -2)


def solved(options: Mapping[str, Any], a: Array, b: Array) -> Array:
    """``triangular_solve`` with the options of the op, of which those that are false may be left out."""
    flags = {name: bool(options.get(name)) for name in ("left_side", "lower", "unit_diagonal")}
    return triangular_solve(a, b, transpose_a=str(options["transpose_a"]), **flags)


@_QUIET
def lu(matrices: Array) -> tuple[Array, Array, Array]:
    """LAPACK's ``getrf``: P A = L U by partial pivoting.

    Returns L (unit diagonal, not stored) and U in one array, the 1-based pivots (s32: row i was swapped
    with row pivots[i]), and ``info`` (s32): 0, or the 1-based index of the first zero pivot.
    """
    dims = matrices.shape
    work = wide(matrices).reshape(prod(dims[:-2]), *dims[-2:]).copy()
    count, rows, columns = work.shape
    steps = min(rows, columns)
    every = np.arange(count)
    pivots = np.zeros((count, steps), np.int32)
    info = np.zeros(count, np.int32)
    for step in range(steps):
        begin = step - step % _PANEL
        end = min(begin + _PANEL, steps)
        column = work[:, step:, step]
        # A NaN is never the pivot.
        weight = _weight(column)
        chosen = step + np.argmax(np.where(np.isnan(weight), -1.0, weight), axis=1)
        pivots[:, step] = chosen + 1
        swapped = work[every, chosen].copy()
        work[every, chosen] = work[:, step]
        work[:, step] = swapped
        pivot = work[:, step, step]
        info = np.where((info == 0) & (pivot == 0), np.int32(step + 1), info)
        scaled = work[:, step + 1 :, step] / np.where(pivot == 0, 1.0, pivot)[:, None]
        work[:, step + 1 :, step] = scaled
        work[:, step + 1 :, step + 1 : end] -= (
            scaled[:, :, None] * work[:, step, None, step + 1 : end]
        )
        if step + 1 == end:
            # What is right of a panel of columns is updated once.
            right = work[:, begin:end, end:]
            _substitute(work[:, begin:end, begin:end], right, unit_diagonal=True)
            work[:, end:, end:] -= work[:, end:, begin:end] @ right
    batch = dims[:-2]
    return work.reshape(dims), pivots.reshape(*batch, steps), info.reshape(batch)


def qr_raw(matrices: Array) -> tuple[Array, Array]:
    """LAPACK's ``geqrf``: R on and above the diagonal, Householder vectors below it (their leading 1 is
    not stored), and the factors tau of H = 1 - tau v vᴴ; Q = H₀ H₁ ...
    """
    double = wide(matrices)
    if 0 in double.shape:
        steps = min(double.shape[-2:])
        return double, np.zeros((*double.shape[:-2], steps), double.dtype)
    reflectors, taus = np.linalg.qr(double, mode="raw")
    return np.swapaxes(reflectors, -1, -2), taus


@_QUIET
def householder_product(reflectors: Array, taus: Array) -> Array:
    """LAPACK's ``orgqr``/``ungqr``: the first columns of H₀ H₁ ..., as many as ``reflectors`` has.

    Shapes: reflectors [..., m, n] as of ``qr_raw``, taus [..., k] with k <= n <= m.
    """
    vectors, factors = wide(reflectors), wide(taus)
    rows, columns = vectors.shape[-2:]
    product = np.broadcast_to(np.eye(rows, columns, dtype=vectors.dtype), vectors.shape).copy()
    for step in reversed(range(factors.shape[-1])):
        vector = vectors[..., step:, step].copy()
        vector[..., 0] = 1
        part = product[..., step:, :]
        projected = vector.conj()[..., None, :] @ part
        part -= factors[..., step, None, None] * vector[..., None] * projected
    return product


def eigh(matrices: Array, *, lower: bool) -> tuple[Array, Array, Array]:
    """LAPACK's ``syevd``/``heevd``: eigenvectors in columns, eigenvalues in ascending order, ``info``.

    Only the named triangle is read.  Where the iteration does not converge ``info`` (s32) is 1 and the
    rest NaN.
    """
    triangle: Literal["L", "U"] = "L" if lower else "U"
    (values, vectors), info = _stacked(lambda each: np.linalg.eigh(each, triangle), wide(matrices))
    return vectors, values, info


def eig(matrices: Array) -> tuple[Array, Array, Array]:
    """LAPACK's ``geev``: eigenvalues and, in columns, right eigenvectors of length 1, complex128; ``info``.

    The largest element of an eigenvector is real.  Where the iteration does not converge, or elements are
    not finite, ``info`` (s32) is 1 and the rest NaN.
    """
    (values, vectors), info = _stacked(
        lambda each: [one.astype(np.complex128) for one in np.linalg.eig(each)], wide(matrices)
    )
    return values, vectors, info


@_QUIET
def tridiagonal_solve(
    lower: Array, diagonal: Array, upper: Array, right: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """LAPACK's ``gtsv``: x of A x = b by elimination with partial pivoting.

    ``lower`` [..., n] stands below the diagonal (its first element does not count), ``upper`` above (its
    last does not).  b and x: [..., n, m].  Returns what is left of the three, x, and ``info`` (s32): 0, or
    the 1-based number of the first zero on the diagonal.
    """
    size = diagonal.shape[-1]
    low, d, up, x = (wide(array).copy() for array in (lower, diagonal, upper, right))
    below = low[..., 1:]
    info = np.zeros(d.shape[:-1], np.int32)
    for row in range(size - 1):
        here, next_, side = d[..., row].copy(), below[..., row].copy(), up[..., row].copy()
        swaps = _weight(here) < _weight(next_)
        factor = np.where(swaps, here, next_) / np.where(swaps, next_, here)
        info = np.where((info == 0) & ~swaps & (here == 0), np.int32(row + 1), info)
        after = d[..., row + 1].copy()
        d[..., row] = np.where(swaps, next_, here)
        d[..., row + 1] = np.where(swaps, side - factor * after, after - factor * side)
        up[..., row] = np.where(swaps, after, side)
        if row < size - 2:
            beyond = up[..., row + 1].copy()
            below[..., row] = np.where(swaps, beyond, 0)
            up[..., row + 1] = np.where(swaps, -factor * beyond, beyond)
        first, second = x[..., row, :].copy(), x[..., row + 1, :].copy()
        x[..., row, :] = np.where(swaps[..., None], second, first)
        other = np.where(swaps[..., None], first, second)
        x[..., row + 1, :] = other - factor[..., None] * x[..., row, :]
    if size:
        info = np.where((info == 0) & (d[..., -1] == 0), np.int32(size), info)
    for row in reversed(range(size)):
        if row < size - 1:
            x[..., row, :] -= up[..., row, None] * x[..., row + 1, :]
        if row < size - 2:
            x[..., row, :] -= below[..., row, None] * x[..., row + 2, :]
        x[..., row, :] /= d[..., row, None]
    return low, d, up, x, info


def _weight(elements: Array) -> Array:
    """|re| + |im|, which LAPACK takes for the size of a complex element."""
    return np.asarray(np.abs(elements.real) + np.abs(elements.imag))


def svd(matrices: Array, *, full_matrices: bool) -> tuple[Array, Array, Array, Array]:
    """LAPACK's ``gesdd``: singular values in descending order, U, Vᴴ, ``info``.

    Shapes: [..., k], [..., m, m or k], [..., n or k, n] with k = min(m, n).  Where the iteration does
    not converge ``info`` (s32) is 1 and the rest NaN.
    """
    (left, values, right), info = _stacked(
        lambda each: np.linalg.svd(each, full_matrices), wide(matrices)
    )
    return values, left, right, info


def _stacked(
    routine: Callable[[Array], Sequence[Array]], matrices: Array
) -> tuple[Sequence[Array], Array]:
    """What NumPy's ``routine`` gives for a stack of matrices, and ``info`` (s32), one a matrix.

    Where a matrix has no results ``info`` is 1 and they are NaN.
    """
    batch = matrices.shape[:-2]
    info = np.zeros(batch, np.int32)
    try:
        return routine(matrices), info
    except np.linalg.LinAlgError:
        pass  # of one of them, and NumPy does not say which
    every = [np.full_like(one, np.nan) for one in routine(np.zeros_like(matrices))]
    for index in np.ndindex(*batch):
        try:
            found = routine(matrices[index])
        except np.linalg.LinAlgError:
            info[index] = 1
            continue
        for one, value in zip(every, found, strict=True):
            one[index] = value
    return every, info


def wide(array: Array) -> Array:
    """In double precision, row by row: BLAS rounds by the order in memory, on which an op must not depend."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64, order="C")


def _adjoint(matrices: Array) -> Array:
    return np.swapaxes(matrices, -1, -2).conj()


def _substitute(triangle: Array, right: Array, unit_diagonal: bool) -> None:
    """Solve lower-triangular systems in place of ``right``: halves, and rows for small ones."""
    size = triangle.shape[-1]
    if size > _BLOCK:
        half = size // 2
        _substitute(triangle[..., :half, :half], right[..., :half, :], unit_diagonal)
        right[..., half:, :] -= triangle[..., half:, :half] @ right[..., :half, :]
        _substitute(triangle[..., half:, half:], right[..., half:, :], unit_diagonal)
        return
    for row in range(size):
        known = triangle[..., row, None, :row] @ right[..., :row, :]
        right[..., row, :] -= known[..., 0, :]
        if not unit_diagonal:
            right[..., row, :] /= triangle[..., row, row, None]


def _evaluate_cholesky(
    instruction: Instruction, operands: tuple[Value, ...], context: Context
) -> Value:
    lower = bool(instruction.attributes.get("lower", False))
    factors = cholesky(array_of(operands[0]), lower=lower)
    return context.round(factors, instruction.array.dtype)


def _evaluate_triangular_solve(
    instruction: Instruction, operands: tuple[Value, ...], context: Context
) -> Value:
    solution = solved(instruction.attributes, *arrays_of(operands))
    return context.round(solution, instruction.array.dtype)


def _check_triangular_solve(instruction: Instruction) -> str | None:
    if "transpose_a" not in instruction.attributes:
        return "transpose_a is not given, so that the system to solve is not known"
    return None


EVALUATORS: dict[str, Evaluator] = {
    "cholesky": _evaluate_cholesky,
    "triangular-solve": _evaluate_triangular_solve,
}

CHECKS: dict[str, Check] = {"triangular-solve": _check_triangular_solve}
