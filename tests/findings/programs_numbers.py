"""Numbers: f64 by accident, constants that XLA computes while it compiles, and what overflows or is rounded otherwise."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from pairs import normal, pair, weight

BOTH = ("h200", "host")


@pair("f64", x64=True, targets=BOTH)
def scores_by_a_numpy_scalar(rng: np.random.Generator) -> tuple[Any, ...]:
    width = np.array(64.0)

    def before(q: Any, k: Any) -> Any:
        return (jax.nn.softmax(q @ k.T / np.sqrt(width)[None], axis=-1)).astype(jnp.float32)

    def after(q: Any, k: Any) -> Any:
        return jax.nn.softmax(q @ k.T / jnp.float32(np.sqrt(width))[None], axis=-1)

    return before, after, normal(rng, 1024, 64), normal(rng, 1024, 64)


@pair("f64", x64=True, targets=BOTH)
def scaled_by_a_numpy_array(rng: np.random.Generator) -> tuple[Any, ...]:
    rates = np.linspace(0.1, 1.0, 512)

    def before(x: Any) -> Any:
        return jnp.tanh(x * rates).astype(x.dtype)

    def after(x: Any) -> Any:
        return jnp.tanh(x * rates.astype(x.dtype))

    return before, after, normal(rng, 2048, 512)


@pair("f64", x64=True, targets=BOTH)
def statistics_in_f64(rng: np.random.Generator) -> tuple[Any, ...]:
    eps = np.full(512, 1e-5)

    def norm(x: Any, eps: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        return (x - mean) / jnp.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + eps)

    def before(x: Any) -> Any:
        return norm(x.astype(eps.dtype), eps).astype(x.dtype)

    def after(x: Any) -> Any:
        return norm(x, eps.astype(x.dtype))

    return before, after, normal(rng, 4096, 512)


@pair("f64", x64=True, targets=BOTH)
def projection_by_a_numpy_matrix(rng: np.random.Generator) -> tuple[Any, ...]:
    matrix = rng.standard_normal((256, 256)) / 16

    def before(x: Any) -> Any:
        return jax.nn.relu(x @ matrix).astype(jnp.float32)

    def after(x: Any) -> Any:
        return jax.nn.relu(x @ matrix.astype(x.dtype))

    return before, after, normal(rng, 2048, 256)


@pair("f64", x64=True, targets=BOTH)
def phases_of_f32(rng: np.random.Generator) -> tuple[Any, ...]:
    rates = 10000.0 ** -np.linspace(0, 1, 64)

    def before(x: Any, t: Any) -> Any:
        return (x * jnp.cos(t[:, None] * rates)).astype(x.dtype)

    def after(x: Any, t: Any) -> Any:
        return x * jnp.cos(t[:, None] * rates.astype(t.dtype))

    return before, after, normal(rng, 8192, 64), abs(normal(rng, 8192))


@pair("f64", x64=True, targets=BOTH)
def root_mean_square_norm(rng: np.random.Generator) -> tuple[Any, ...]:
    """The weights of a checkpoint, which NumPy reads as f64."""
    scale = rng.uniform(0.5, 1.5, 1024)

    def norm(x: Any, scale: Any) -> Any:
        return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * scale

    def before(x: Any) -> Any:
        return norm(x.astype(scale.dtype), scale).astype(x.dtype)

    def after(x: Any) -> Any:
        return norm(x, scale.astype(x.dtype))

    return before, after, normal(rng, 2048, 1024)


@pair("f64", x64=True, targets=BOTH)
def distances_to_centres(rng: np.random.Generator) -> tuple[Any, ...]:
    centres = rng.standard_normal((96, 24))

    def before(x: Any) -> Any:
        return jnp.sqrt(((x[:, None] - centres) ** 2).sum(-1)).astype(jnp.float32)

    def after(x: Any) -> Any:
        return jnp.sqrt(((x[:, None] - centres.astype(x.dtype)) ** 2).sum(-1))

    return before, after, normal(rng, 4096, 24)


@pair("folded", given=lambda x, *_: (x, jnp.asarray(_RATES)))
def norms_of_gathered_rows(rng: np.random.Generator) -> tuple[Any, ...]:
    """A table of constants looked up by constant indices, and summed."""
    order = rng.integers(0, _RATES.shape[0], 12000)

    def normed(x: Any, rates: Any) -> Any:
        return x * (rates[order] ** 2).sum(-1)

    def before(x: Any) -> Any:
        return normed(x, jnp.asarray(_RATES))

    return before, normed, normal(rng, 12000)


@pair("folded")
def rows_held_back(rng: np.random.Generator) -> tuple[Any, ...]:
    """A permutation of a constant table; the barrier keeps it for the device."""
    order = rng.permutation(_RATES.shape[0])

    def before(x: Any) -> Any:
        return x + lax.rev(jnp.asarray(_RATES)[order], (1,))

    def after(x: Any) -> Any:
        return x + lax.rev(lax.optimization_barrier(jnp.asarray(_RATES))[order], (1,))

    return before, after, normal(rng, *_RATES.shape)


@pair("folded", given=lambda x, *_: (x, jnp.asarray(_RATES)))
def ranks_of_constants(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any) -> Any:
        return x * jnp.sort(jnp.asarray(_RATES), axis=-1)

    def after(x: Any, knots: Any) -> Any:
        return x * jnp.sort(knots, axis=-1)

    return before, after, normal(rng, *_RATES.shape)


_RATES = np.random.default_rng(0).uniform(0.1, 1, (8192, 128)).astype(np.float32)


@pair("folded", given=lambda x, *_: (x, jnp.asarray(_BASIS)))
def gram_of_constants(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any) -> Any:
        basis = jnp.asarray(_BASIS)
        return x @ (basis @ basis.T)

    def after(x: Any, basis: Any) -> Any:
        return x @ (basis @ basis.T)

    return before, after, normal(rng, 64, 192)


_BASIS = np.random.default_rng(1).standard_normal((192, 192)).astype(np.float32)


@pair("not-finite", scale=100.0)
def cross_entropy_of_probabilities(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any, w: Any, y: Any) -> Any:
        p = jax.nn.sigmoid(x @ w)
        return -(y * jnp.log(p) + (1 - y) * jnp.log(1 - p))

    def after(x: Any, w: Any, y: Any) -> Any:
        logits = x @ w
        log_p, log_rest = jax.nn.log_sigmoid(logits), jax.nn.log_sigmoid(-logits)
        return -(y * log_p + (1 - y) * log_rest)

    return before, after, normal(rng, 128, 32), weight(rng, 32, 10), normal(rng, 128, 10)


@pair("not-finite", scale=100.0)
def ranking_of_pairs(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(user: Any, liked: Any, other: Any) -> Any:
        return jnp.log(jax.nn.sigmoid((user * (liked - other)).sum(-1)))

    def after(user: Any, liked: Any, other: Any) -> Any:
        return jax.nn.log_sigmoid((user * (liked - other)).sum(-1))

    return before, after, normal(rng, 512, 16), normal(rng, 512, 16), normal(rng, 512, 16)


@pair("not-finite", scale=100.0)
def negative_samples(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(centre: Any, drawn: Any) -> Any:
        return jnp.log1p(-jax.nn.sigmoid(jnp.einsum("bd,bkd->bk", centre, drawn)))

    def after(centre: Any, drawn: Any) -> Any:
        return jax.nn.log_sigmoid(-jnp.einsum("bd,bkd->bk", centre, drawn))

    return before, after, weight(rng, 128, 16), weight(rng, 128, 5, 16)


@pair("log-sum-exp", scale=100.0)
def energies(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any) -> Any:
        return jnp.log(jnp.sum(jnp.exp(x), axis=-1))

    def after(x: Any) -> Any:
        return jax.nn.logsumexp(x, axis=-1)

    return before, after, normal(rng, 256, 100)


@pair("log-sum-exp", scale=100.0)
def plain_cross_entropy(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any, w: Any) -> Any:
        logits = x @ w
        return logits - jnp.log(jnp.exp(logits).sum(-1, keepdims=True))

    def after(x: Any, w: Any) -> Any:
        return jax.nn.log_softmax(x @ w, axis=-1)

    return before, after, normal(rng, 64, 32), weight(rng, 32, 10)


@pair("log-sum-exp", scale=100.0)
def forward_scores(rng: np.random.Generator) -> tuple[Any, ...]:
    """One step of the forward algorithm of a hidden Markov model."""

    def before(alpha: Any, transition: Any, seen: Any) -> Any:
        return jnp.log(jnp.exp(alpha[:, :, None] + transition).sum(1)) + seen

    def after(alpha: Any, transition: Any, seen: Any) -> Any:
        return jax.nn.logsumexp(alpha[:, :, None] + transition, axis=1) + seen

    return before, after, normal(rng, 32, 20), normal(rng, 20, 20), normal(rng, 32, 20)


@pair("inexact-rewrite", scale=1e3)
def logarithm_of_an_exponential(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any) -> Any:
        return jnp.log(jnp.exp(x))

    def after(x: Any) -> Any:
        return jnp.log(lax.optimization_barrier(jnp.exp(x)))

    return before, after, normal(rng, 1024)


@pair("inexact-rewrite", scale=1.0)
def rounded_on_purpose(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any) -> Any:
        return x - x.astype(jnp.bfloat16).astype(jnp.float32)

    def after(x: Any) -> Any:
        return x - lax.reduce_precision(x, 8, 7)

    return before, after, normal(rng, 1024)
