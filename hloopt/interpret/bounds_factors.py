"""How far solutions of triangular systems, factors and eigenvalues of matrices may be off.

What is computed is right for operands that are a little off (N. J. Higham, Accuracy and Stability of Numerical
Algorithms, 8.5 and 10.3; LAPACK Users' Guide, 4.7 and 4.9).  How far that moves the result follows from the
matrix, which is inverted for it.  Of matrices so near to singular ones that it does not follow, of factors that
pivots choose, and of vectors of eigenvalues nothing is known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from hloopt.interpret import linalg
from hloopt.interpret.bounding import Bounding
from hloopt.interpret.bounds_elementwise import ErrorBound
from hloopt.interpret.bounds_sums import size_of
from hloopt.interpret.context import Value, array_of, leaf_arrays
from hloopt.interpret.lapack import call_options
from hloopt.interpret.perturbation import unit_roundoff
from hloopt.types import Array, of_numpy

__all__ = ["cholesky_factors", "routine_results", "triangular_solutions"]

_STEPS: Final = 16
"""Units of rounding for each row, of eigenvalues: the guide has a "modestly growing function" of the size."""

_ROUTINE: Final = re.compile(
    r"(?:lapack_[sdcz]|cusolver_|hipsolver_)(potrf|trsm|syevd|heevd|gesdd|gesvd|gesvdj|gesvdp)_ffi"
)


def triangular_solutions(one: Bounding) -> Value:
    """Of ``triangular-solve``."""
    result = array_of(one.run())
    return one.close(result, [_solved(one.instruction.attributes, *one.arrays(), result)])


def cholesky_factors(one: Bounding) -> Value:
    """Of ``cholesky``: the other triangle is zero."""
    result = array_of(one.run())
    (matrix,), (off,) = one.arrays()
    lower = bool(one.instruction.attributes.get("lower", False))
    bound = _factored(matrix, off, result, lower=lower)
    own = np.tri(matrix.shape[-1], dtype=np.bool_)
    return one.close(result, [np.where(own if lower else own.T, bound, 0.0)])


def routine_results(one: Bounding) -> Value:
    """Of a call of LAPACK's, or of one like it: factors of ``potrf``, solutions, eigen- and singular values."""
    found = _ROUTINE.fullmatch(one.instruction.custom_call_target)
    if found is None:
        return one.unknown()
    result = one.run()
    results = list(leaf_arrays(result))
    arrays, bounds = one.arrays()
    options, routine = call_options(one.instruction), found[1]
    off: list[ErrorBound] = [np.broadcast_to(np.inf, array.shape) for array in results]
    if routine == "potrf":
        lower = bool(options.get("lower", options.get("uplo") == ord("L")))
        bound = _factored(arrays[0], bounds[0], results[0], lower=lower)
        own = np.tri(arrays[0].shape[-1], dtype=np.bool_)
        off[0] = np.where(own if lower else own.T, bound, _known(arrays[0], bounds[0]))
        off[1] = np.where(np.isfinite(bound).all(axis=(-2, -1)), 0.0, np.inf)
    elif routine == "trsm":
        transposes = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}
        attributes = {
            "left_side": options["side"] == ord("L"),
            "lower": options["uplo"] == ord("L"),
            "unit_diagonal": options["diag"] == ord("U"),
            "transpose_a": transposes[chr(options["trans_x"])],
        }
        off[0] = _solved(attributes, arrays, bounds, results[0])
    else:
        size = np.sqrt(np.sum(size_of(arrays[0]) ** 2, axis=(-2, -1)))
        # One triangle may stand for both.
        moved = np.sqrt(2 * np.sum(_known(arrays[0], bounds[0]) ** 2, axis=(-2, -1)))
        steps = _STEPS * max(arrays[0].shape[-2:]) * unit_roundoff(of_numpy(arrays[0].dtype))
        bound = (moved + steps * (size + moved))[..., np.newaxis]
        off[1] = np.where(np.isfinite(results[1]) & np.isfinite(bound), bound, np.inf)
    return one.close(result, off)


def _known(array: Array, bound: ErrorBound) -> Array:
    return np.zeros(array.shape) if bound is None else bound


def _solved(
    attributes: Mapping[str, Any],
    arrays: list[Array],
    bounds: list[ErrorBound],
    result: Array,
) -> Array:
    """With T of n rows the solution is that of T + E, where |E| <= gamma(n) |T| (Higham, 8.5).

    Inverting blocks of T on the diagonal, as GPUs do, is as right for |inverse(T)| |b| in the place of |x|
    (14.2).
    """
    matrix, right = map(linalg.wide, arrays)
    off_matrix, off_right = map(_known, arrays, bounds)
    lower = bool(attributes.get("lower"))
    count = matrix.shape[-1]
    read = np.tri(count, k=-1 if attributes.get("unit_diagonal") else 0, dtype=np.bool_)
    read = read if lower else np.tri(count, k=-1 if attributes.get("unit_diagonal") else 0).T > 0
    gamma = _gamma(4 * count, result)
    grown = np.where(read, gamma * np.abs(matrix) + off_matrix, 0.0)
    if attributes["transpose_a"] != "NO_TRANSPOSE":
        grown = np.swapaxes(grown, -1, -2)
    unit = np.broadcast_to(np.eye(count), matrix.shape)
    inverse = np.abs(linalg.solved({**attributes, "left_side": True}, matrix, unit))
    if not attributes.get("left_side"):
        inverse, grown = np.swapaxes(inverse, -1, -2), np.swapaxes(grown, -1, -2)
        off_right, right = np.swapaxes(off_right, -1, -2), np.swapaxes(right, -1, -2)
    with np.errstate(all="ignore"):
        reach = inverse @ grown
        first = inverse @ off_right + reach @ (inverse @ np.abs(right))
        rows = reach.sum(axis=-1, keepdims=True)
        most = rows.max(axis=-2, keepdims=True)
        bound = first + rows * first.max(axis=-2, keepdims=True) / (1 - most)
        bound = np.where(most < 0.5, bound, np.inf)
    if not attributes.get("left_side"):
        bound = np.swapaxes(bound, -1, -2)
    return _rounded(bound, result)


def _factored(matrix: Array, off: ErrorBound, result: Array, *, lower: bool) -> Array:
    """With A of n rows the factor L is that of A + E, where |E| <= gamma(n + 1) |L| |L|ᴴ (Higham, 10.3).

    L moves by L X, where X + Xᴴ + X Xᴴ = F is inverse(L) E inverse(L)ᴴ and X is lower triangular: by less than
    sqrt(2) |F| in the norm where that of F is below a half (J.-g. Sun, BIT 31, 1991).
    """
    factor = linalg.wide(result)
    moved = _known(matrix, off)
    if not lower:
        factor, moved = (np.swapaxes(part, -1, -2).conj() for part in (factor, moved))
    factor, moved = np.tril(factor), np.tril(moved)
    moved = moved + np.swapaxes(np.tril(moved, -1), -1, -2)
    unit = np.broadcast_to(np.eye(factor.shape[-1]), factor.shape)
    inverse = np.abs(linalg.triangular_solve(factor, unit))
    size = np.abs(factor)
    with np.errstate(all="ignore"):
        moved = moved + _gamma(4 * (factor.shape[-1] + 1), result) * (
            size @ np.swapaxes(size, -1, -2)
        )
        inside = inverse @ moved @ np.swapaxes(inverse, -1, -2)
        norm = np.sqrt(np.sum(inside**2, axis=(-2, -1), keepdims=True))
        inside = np.tril(inside + 2 * norm**2)
        inside = inside - np.tril(inside) * np.eye(factor.shape[-1]) / 2
        bound = np.where(norm < 0.5, size @ inside, np.inf)
    return _rounded(bound if lower else np.swapaxes(bound, -1, -2), result)


def _gamma(steps: int, result: Array) -> float:
    """For a complex number a step is four."""
    times = 4 if np.iscomplexobj(result) else 1
    unit = times * steps * unit_roundoff(of_numpy(result.dtype))
    return unit / (1 - unit) if unit < 0.5 else np.inf


def _rounded(bound: Array, result: Array) -> Array:
    """With the rounding of the result on either side; of what is no number nothing is known."""
    size = size_of(result)
    kind = of_numpy(result.dtype)
    bound = bound + 2 * unit_roundoff(kind) * (size + bound)
    return np.where(np.isfinite(size) & np.isfinite(bound), bound, np.inf)
