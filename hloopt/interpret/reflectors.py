"""Factorisations by Householder reflections, one column a step, as LAPACK's unblocked routines make them.

All work on the last two dimensions of stacks of matrices, compute in double precision and leave
rounding to the caller.  A reflection is H = 1 - tau v vᴴ, whose v begins with a 1 that is not stored.
"""

from __future__ import annotations

import numpy as np

from hloopt.interpret.linalg import wide
from hloopt.types import Array

__all__ = ["apply_reflections", "hessenberg", "qr_pivoted", "tridiagonal_form"]

_QUIET = np.errstate(all="ignore")


def _reflection(x: Array) -> tuple[Array, Array, Array]:
    """LAPACK's ``larfg`` of x [..., m]: beta, tau and v with Hᴴ x = (beta, 0, ...); beta is real.

    Where x is (real, 0, ...) already, tau is 0.
    """
    first, rest = x[..., 0], x[..., 1:]
    below = (rest * rest.conj()).real.sum(axis=-1)
    is_done = (below == 0) & (first.imag == 0)
    norm = np.sqrt((first * first.conj()).real + below)
    beta = np.where(is_done, first.real, -np.copysign(norm, first.real))
    tau = np.where(is_done, 0, (beta - first) / np.where(is_done, 1, beta))
    scale = np.where(is_done, 1, first - beta)
    v = np.concatenate([np.ones_like(x[..., :1]), rest / scale[..., None]], axis=-1)
    return beta, tau, v


def _from_left(part: Array, tau: Array, v: Array) -> Array:
    """H part."""
    return np.asarray(
        part - tau[..., None, None] * v[..., :, None] * (v.conj()[..., None, :] @ part)
    )


def _from_right(part: Array, tau: Array, v: Array) -> Array:
    """Part H."""
    return np.asarray(
        part - tau[..., None, None] * (part @ v[..., :, None]) * v.conj()[..., None, :]
    )


@_QUIET
def hessenberg(matrices: Array) -> tuple[Array, Array]:
    """LAPACK's ``gehrd`` of [..., n, n]: Qᴴ A Q over the vectors of Q, and taus [..., n - 1]."""
    work = wide(matrices).copy()
    size = work.shape[-1]
    taus = np.zeros((*work.shape[:-2], max(size - 1, 0)), work.dtype)
    for step in range(size - 1):
        beta, tau, v = _reflection(work[..., step + 1 :, step])
        work[..., :, step + 1 :] = _from_right(work[..., :, step + 1 :], tau, v)
        work[..., step + 1 :, step + 1 :] = _from_left(
            work[..., step + 1 :, step + 1 :], tau.conj(), v
        )
        work[..., step + 1, step], work[..., step + 2 :, step] = beta, v[..., 1:]
        taus[..., step] = tau
    return work, taus


@_QUIET
def tridiagonal_form(matrices: Array, *, lower: bool) -> tuple[Array, Array, Array, Array]:
    """LAPACK's ``sytrd``/``hetrd`` of [..., n, n]: Qᴴ A Q over the vectors of Q, its diagonal [..., n], what
    stands beside it [..., n - 1], taus [..., n - 1].

    Only the named triangle is read; the other stays as it was.
    """
    given = wide(matrices)
    if not lower:
        # Reversed in both dimensions an upper triangle is a lower one, and Q comes from the other end.
        result, diagonal, beside, taus = tridiagonal_form(given[..., ::-1, ::-1], lower=True)
        return result[..., ::-1, ::-1], diagonal[..., ::-1], beside[..., ::-1], taus[..., ::-1]
    size = given.shape[-1]
    below = np.tril(given, -1)
    work = below + np.swapaxes(below, -1, -2).conj()
    step = np.arange(size)
    work[..., step, step] = given[..., step, step].real
    taus = np.zeros((*given.shape[:-2], max(size - 1, 0)), given.dtype)
    beside = np.zeros(taus.shape)
    stored = np.zeros_like(given)
    for column in range(size - 1):
        beta, tau, v = _reflection(work[..., column + 1 :, column])
        rest = _from_right(work[..., column + 1 :, column + 1 :], tau, v)
        work[..., column + 1 :, column + 1 :] = _from_left(rest, tau.conj(), v)
        stored[..., column + 1, column], stored[..., column + 2 :, column] = beta, v[..., 1:]
        beside[..., column], taus[..., column] = beta, tau
    diagonal = work[..., step, step].real
    stored[..., step, step] = diagonal
    return np.tril(stored) + np.triu(given, 1), diagonal, beside, taus


@_QUIET
def qr_pivoted(matrices: Array, fixed: Array) -> tuple[Array, Array, Array]:
    """LAPACK's ``geqp3`` of [..., m, n]: R over the vectors of Q, 1-based columns, taus [..., min(m, n)].

    Columns whose number in ``fixed`` [..., n] is not 0 come first; of the others the one with the largest
    rest is next each time.
    """
    work = wide(matrices).copy()
    rows, columns = work.shape[-2:]
    order = np.argsort(fixed == 0, axis=-1, kind="stable")
    work = np.take_along_axis(work, order[..., None, :], axis=-1)
    held = (fixed != 0).sum(axis=-1)
    steps = min(rows, columns)
    taus = np.zeros((*work.shape[:-2], steps), work.dtype)
    for step in range(steps):
        rest = work[..., step:, step:]
        norms = (rest * rest.conj()).real.sum(axis=-2)
        chosen = np.where(held > step, step, step + np.argmax(norms, axis=-1))
        swap = np.broadcast_to(np.arange(columns), order.shape).copy()
        np.put_along_axis(swap, chosen[..., None], step, axis=-1)
        swap[..., step] = chosen
        work = np.take_along_axis(work, swap[..., None, :], axis=-1)
        order = np.take_along_axis(order, swap, axis=-1)
        beta, tau, v = _reflection(work[..., step:, step])
        work[..., step:, step + 1 :] = _from_left(work[..., step:, step + 1 :], tau.conj(), v)
        work[..., step, step], work[..., step + 1 :, step] = beta, v[..., 1:]
        taus[..., step] = tau
    return work, (order + 1).astype(fixed.dtype), taus


@_QUIET
def apply_reflections(
    reflectors: Array, taus: Array, matrices: Array, *, left: bool, adjoint: bool
) -> Array:
    """LAPACK's ``ormqr``/``unmqr``: Q C, Qᴴ C, C Q or C Qᴴ with Q = H₀ H₁ ... of ``qr_raw``.

    Shapes: reflectors [..., m, k], taus [..., k], matrices [..., m, n], or [..., n, m] where not ``left``.
    """
    vectors, factors = wide(reflectors), wide(taus)
    result = wide(matrices).copy()
    steps = list(range(factors.shape[-1]))
    # The reflection next to C is applied first: the last of Q C, the first of C Q.
    for step in reversed(steps) if left != adjoint else steps:
        v = vectors[..., step:, step].copy()
        v[..., 0] = 1
        tau = factors[..., step].conj() if adjoint else factors[..., step]
        if left:
            result[..., step:, :] = _from_left(result[..., step:, :], tau, v)
        else:
            result[..., :, step:] = _from_right(result[..., :, step:], tau, v)
    return result
