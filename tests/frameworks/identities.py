"""Identities of linear algebra as programs of JAX: as people write them, and in their best known form.

``identities(n)`` gives them by name for matrices of n rows.  Only jax and jax.numpy are imported, so that any Python
with JAX can load this file.  The numbers are those of the table that the pass ``linear-algebra`` was made by; the
best forms are written by hand, with the routines that JAX has: a triangle in quarters, for it has no trmm.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

__all__ = ["Identity", "identities", "paired"]

Array = Any
_FEW = 16
"""Columns of what is thin."""
_TRIPS = 32
_PARTS = 4


@dataclass(frozen=True)
class Identity:
    """A computation in two forms, with the shapes of what both take.

    written  as people write it
    best     what it is equal to
    dims     of the arguments, f32 each
    whole    of them those that hold row numbers, s32
    smooth   whether its results have gradients
    """

    written: Callable[..., Any]
    best: Callable[..., Any]
    dims: tuple[tuple[int, ...], ...]
    whole: frozenset[int] = frozenset()
    smooth: bool = True

    def shapes(self) -> list[jax.ShapeDtypeStruct]:
        """Of the arguments."""
        return [
            jax.ShapeDtypeStruct(dims, jnp.int32 if at in self.whole else jnp.float32)
            for at, dims in enumerate(self.dims)
        ]

    def gradient(self) -> Identity:
        """Both forms' slopes by all arguments that have any."""
        by = tuple(at for at in range(len(self.dims)) if at not in self.whole)
        both = (jax.grad(_summed(form), by) for form in (self.written, self.best))
        return Identity(*both, self.dims, self.whole)


def _summed(form: Callable[..., Any]) -> Callable[..., Array]:
    def total(*arguments: Array) -> Array:
        results = jax.tree.leaves(form(*arguments))
        return sum(jnp.sum(jnp.sin(one)) for one in results)

    return total


def paired(one: Identity, other: Identity) -> Identity:
    """Both together: the other takes what the first gives for its first matrix, or else both results are wanted."""
    given = len(one.dims)

    def both(first: Callable[..., Any], second: Callable[..., Any]) -> Callable[..., Any]:
        def form(*arguments: Array) -> Any:
            own, rest = arguments[:given], list(arguments[given:])
            made = first(*own)
            leaf = jax.tree.leaves(made)[0]
            for at, dims in enumerate(other.dims):
                if dims == leaf.shape and at not in other.whole:
                    rest[at] = leaf * (1 / math.sqrt(leaf.size))
                    return second(*rest)
            return made, second(*rest)

        return form

    whole = one.whole | {given + at for at in other.whole}
    return Identity(
        both(one.written, other.written),
        both(one.best, other.best),
        (*one.dims, *other.dims),
        frozenset(whole),
        one.smooth and other.smooth,
    )


def identities(n: int) -> dict[str, Identity]:
    """Those of matrices of n rows, by their numbers and names."""
    square, vector, thin = (n, n), (n,), (n, _FEW)

    def symmetric(a: Array) -> Array:
        """By quarters, what is below the diagonal once."""
        rows = jnp.split(a, _PARTS)
        lower = [[one @ other.T for other in rows[: at + 1]] for at, one in enumerate(rows)]
        return jnp.block(
            [
                [lower[i][j] if j <= i else lower[j][i].T for j in range(_PARTS)]
                for i in range(_PARTS)
            ]
        )

    def triangle(a: Array, b: Array) -> Array:
        cut = n // _PARTS
        low = jnp.tril(a)
        parts = [low[at : at + cut, : at + cut] @ b[: at + cut] for at in range(0, n, cut)]
        return jnp.concatenate(parts, axis=0)

    def definite(b: Array) -> Array:
        return b @ b.T / n + jnp.eye(n)

    def solved(b: Array, x: Array) -> tuple[Array, Array]:
        factor = jnp.linalg.cholesky(definite(b), symmetrize_input=False)
        half = lax.linalg.triangular_solve(factor, x[:, None], left_side=True, lower=True)
        found = lax.linalg.triangular_solve(
            factor, half, left_side=True, lower=True, transpose_a=True
        )
        return found[:, 0], 2 * jnp.sum(jnp.log(jnp.diagonal(factor)))

    outer = 1 << (n.bit_length() // 2)
    inner = n // outer

    def blocks(*parts: Array) -> Array:
        return jax.scipy.linalg.block_diag(*parts)

    def looped(step: Callable[[Array], Array], x: Array) -> Array:
        return lax.scan(lambda state, _: (jnp.tanh(step(state)), None), x, None, _TRIPS)[0]

    def folded(x: Array, a: Array, b: Array) -> Array:
        product = a @ b
        return looped(lambda state: state @ product, x)

    quarter = n // _PARTS
    pieces = [slice(at, at + n // 8) for at in range(0, n, n // 8)]
    return {
        "1 chain": Identity(
            lambda a, b, x: (a @ b) @ x, lambda a, b, x: a @ (b @ x), (square, square, vector)
        ),
        "2 transposed product": Identity(
            lambda a, b, c: (a @ b, (b.T @ a.T) * c),
            lambda a, b, c: ((made := a @ b), made.T * c),
            (square, square, square),
        ),
        "3 shared product": Identity(
            lambda a, b, c, d: (a @ (b @ c), (a @ b) @ d),
            lambda a, b, c, d: ((made := a @ b) @ c, made @ d),
            (square,) * 4,
        ),
        "4 common factor": Identity(
            lambda a, b, c: a @ b + a @ c, lambda a, b, c: a @ (b + c), (square,) * 3
        ),
        "5 sum with a diagonal": Identity(
            lambda a, b, d: (a @ b, a @ (b + jnp.diag(d))),
            lambda a, b, d: ((made := a @ b), made + a * d),
            (square, square, vector),
        ),
        "6 rank one update": Identity(
            lambda a, u, v, x: (a + jnp.outer(u, v)) @ x,
            lambda a, u, v, x: a @ x + u * (v @ x),
            (square, vector, vector, vector),
        ),
        "7 quadratic form": Identity(
            lambda a, x: jnp.trace(jnp.outer(x, x) @ a),
            lambda a, x: x @ (a @ x),
            (square, vector),
        ),
        "8 diagonal": Identity(
            lambda a, d: jnp.diag(d) @ a, lambda a, d: d[:, None] * a, (square, vector)
        ),
        "9 one-hot rows": Identity(
            lambda a, at: jax.nn.one_hot(at, n) @ a,
            lambda a, at: jnp.where(((at >= 0) & (at < n))[:, None], a[at], 0),
            (square, vector),
            frozenset({1}),
        ),
        "10 triangle": Identity(lambda a, b: jnp.tril(a) @ b, triangle, (square, square)),
        "11 symmetric": Identity(lambda a: a @ a.T, symmetric, (square,)),
        "12 one row": Identity(
            lambda a, b: (a @ b)[n // 3], lambda a, b: a[n // 3] @ b, (square, square)
        ),
        "13 trace": Identity(
            lambda a, b: jnp.trace(a @ b), lambda a, b: jnp.sum(a * b.T), (square, square)
        ),
        "14 sum of a product": Identity(
            lambda a, b: jnp.sum(a @ b), lambda a, b: a.sum(0) @ b.sum(1), (square, square)
        ),
        "15 scaled": Identity(
            lambda a, b, k: (jnp.sin(k[0]) * a) @ b,
            lambda a, b, k: a @ (jnp.sin(k[0]) * b),
            (square, thin, (1,)),
        ),
        "16 inverse": Identity(
            lambda a, x: jnp.linalg.inv(a + n * jnp.eye(n)) @ x,
            lambda a, x: jnp.linalg.solve(a + n * jnp.eye(n), x),
            (square, vector),
        ),
        "17 positive definite": Identity(
            lambda b, x: (
                jnp.linalg.solve(definite(b), x),
                jnp.linalg.slogdet(definite(b))[1],
            ),
            solved,
            (square, vector),
        ),
        "18 Kronecker": Identity(
            lambda a, b, x: jnp.kron(a, b) @ x,
            lambda a, b, x: (a @ x.reshape(outer, inner) @ b.T).reshape(-1),
            ((outer, outer), (inner, inner), vector),
        ),
        "19 blocks": Identity(
            lambda a, b, c, d, x: blocks(a, b, c, d) @ x,
            lambda a, b, c, d, x: jnp.concatenate(
                [
                    part @ x[at * quarter : (at + 1) * quarter]
                    for at, part in enumerate((a, b, c, d))
                ]
            ),
            (*((quarter, quarter),) * 4, square),
        ),
        "20 sliced sum": Identity(
            lambda a, b: sum(a[:, one] @ b[one] for one in pieces),
            lambda a, b: a @ b,
            (square, square),
        ),
        "21 loop": Identity(
            lambda x, a, b: looped(lambda state: (state @ a) @ b, x),
            folded,
            ((4 * _FEW, n), square, square),
        ),
    }
