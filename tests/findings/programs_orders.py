"""Products in an expensive order or written as sums, scans that need no order, and arrays that loops copy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from pairs import normal, pair, weight

BOTH = ("h200", "host")


@pair("product-order", targets=BOTH)
def projected_features(rng: np.random.Generator) -> tuple[Any, ...]:
    """A low-rank map applied to a batch of vectors."""

    def before(left: Any, right: Any, x: Any) -> Any:
        return left @ right @ x

    def after(left: Any, right: Any, x: Any) -> Any:
        return left @ (right @ x)

    return before, after, weight(rng, 1024, 1024), weight(rng, 1024, 1024), normal(rng, 1024, 8)


@pair("product-order", targets=BOTH)
def linear_attention(rng: np.random.Generator) -> tuple[Any, ...]:
    """Attention without softmax, which needs no matrix of all pairs."""

    def features(x: Any) -> Any:
        return jax.nn.elu(x) + 1.0

    def before(q: Any, k: Any, v: Any) -> Any:
        return (features(q) @ features(k).T) @ v

    def after(q: Any, k: Any, v: Any) -> Any:
        return features(q) @ (features(k).T @ v)

    return before, after, *(normal(rng, 2048, 64) for _ in range(3))


@pair("product-order", targets=BOTH)
def trace_of_a_product(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(a: Any, b: Any) -> Any:
        return jnp.trace(a @ b)

    def after(a: Any, b: Any) -> Any:
        return jnp.vdot(a, b.T)

    return before, after, normal(rng, 768, 768), normal(rng, 768, 768)


@pair("product-order", targets=BOTH)
def common_factor(rng: np.random.Generator) -> tuple[Any, ...]:
    """Two terms of a loss with one matrix."""

    def before(w: Any, x: Any, y: Any) -> Any:
        return jnp.tanh(x @ w + y @ w)

    def after(w: Any, x: Any, y: Any) -> Any:
        return jnp.tanh((x + y) @ w)

    return before, after, weight(rng, 512, 512), normal(rng, 1024, 512), normal(rng, 1024, 512)


@pair("product-order", targets=BOTH)
def quadratic_forms(rng: np.random.Generator) -> tuple[Any, ...]:
    """Mahalanobis distances, of which only the diagonal is wanted."""

    def before(x: Any, inverse: Any) -> Any:
        return jnp.diagonal(x @ inverse @ x.T)

    def after(x: Any, inverse: Any) -> Any:
        return ((x @ inverse) * x).sum(-1)

    return before, after, normal(rng, 1024, 128), weight(rng, 128, 128)


@pair("summed-product", targets=BOTH)
def pooled_by_weights(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(weights: Any, values: Any) -> Any:
        return (weights[:, :, None] * values[None]).sum(1)

    def after(weights: Any, values: Any) -> Any:
        return weights @ values

    return before, after, jax.nn.softmax(normal(rng, 512, 384)), normal(rng, 384, 256)


@pair("summed-product", targets=BOTH)
def similarities(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any, y: Any) -> Any:
        return jnp.exp((x[:, None, :] * y[None, :, :]).sum(-1) / 8)

    def after(x: Any, y: Any) -> Any:
        return jnp.exp(x @ y.T / 8)

    return before, after, normal(rng, 768, 64), normal(rng, 1024, 64)


@pair("summed-product", targets=BOTH)
def heads_of_scores(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(q: Any, k: Any) -> Any:
        return jnp.sum(q[:, :, None, :] * k[:, None, :, :], axis=-1)

    def after(q: Any, k: Any) -> Any:
        return jnp.einsum("hqd,hkd->hqk", q, k)

    return before, after, normal(rng, 8, 256, 64), normal(rng, 8, 256, 64)


@pair("summed-product", targets=BOTH)
def second_moments(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any) -> Any:
        return (x[:, :, None] * x[:, None, :]).sum(0) / x.shape[0]

    def after(x: Any) -> Any:
        return x.T @ x / x.shape[0]

    return before, after, normal(rng, 2048, 96)


def _composed(one: Any, other: Any) -> Any:
    return one[0] * other[0], one[1] * other[0] + other[1]


@pair("parallel-scan", targets=("h200",))
def discounted_returns(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(rewards: Any, going: Any) -> Any:
        def step(total: Any, xs: Any) -> Any:
            total = xs[0] + 0.99 * xs[1] * total
            return total, total

        return lax.scan(step, jnp.zeros(rewards.shape[1]), (rewards, going))[1]

    def after(rewards: Any, going: Any) -> Any:
        return lax.associative_scan(_composed, (0.99 * going, rewards))[1]

    return before, after, normal(rng, 1024, 64), abs(normal(rng, 1024, 64)) % 1.0


@pair("parallel-scan", targets=("h200",))
def highest_so_far(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(prices: Any) -> Any:
        def step(top: Any, price: Any) -> Any:
            top = jnp.maximum(top, price)
            return top, top - price

        return lax.scan(step, jnp.full(prices.shape[1], -jnp.inf), prices)[1]

    def after(prices: Any) -> Any:
        return lax.associative_scan(jnp.maximum, prices) - prices

    return before, after, normal(rng, 512, 128)


@pair("parallel-scan", targets=("h200",))
def state_space_layer(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(decay: Any, x: Any, gate: Any) -> Any:
        def step(h: Any, xs: Any) -> Any:
            h = jax.nn.sigmoid(xs[1]) * decay * h + xs[0]
            return h, h

        return lax.scan(step, jnp.zeros(x.shape[1:]), (x, gate))[1]

    def after(decay: Any, x: Any, gate: Any) -> Any:
        return lax.associative_scan(_composed, (jax.nn.sigmoid(gate) * decay, x))[1]

    decay = jnp.exp(-abs(normal(rng, 256)))
    return before, after, decay, normal(rng, 600, 256), normal(rng, 600, 256)


@pair("loop-copy", targets=("h200",))
def smoothed_grid(rng: np.random.Generator) -> tuple[Any, ...]:
    """Each sweep reads its neighbours of the sweep before: two buffers in turn."""

    def sweep(_: Any, grid: Any) -> Any:
        around = sum(jnp.roll(grid, by, axis) for by in (-1, 1) for axis in (0, 1))
        return 0.5 * grid + 0.125 * around

    def before(grid: Any) -> Any:
        return lax.fori_loop(0, 200, sweep, grid)

    def after(grid: Any) -> Any:
        return lax.fori_loop(0, 200, sweep, grid, unroll=2)

    return before, after, normal(rng, 1024, 1024)


@pair("loop-copy", targets=("h200",))
def shuffled_state(rng: np.random.Generator) -> tuple[Any, ...]:
    """A permutation round applied again and again."""

    def round_of(state: Any, _: Any) -> Any:
        return jnp.flip(state, 0) * 0.5 + state, None

    def before(state: Any) -> Any:
        return lax.scan(round_of, state, None, 128)[0]

    def after(state: Any) -> Any:
        return lax.scan(round_of, state, None, 128, unroll=2)[0]

    return before, after, normal(rng, 4096, 512)
