"""Values that several kernels compute, and arrays that programs hold as constants."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from pairs import normal, pair

# ---- recomputed ----


@pair("recomputed")
def activation_and_moments(rng: np.random.Generator) -> tuple[Any, ...]:
    def rest(h: Any) -> Any:
        centred = h - h.mean(-1, keepdims=True)
        return centred, (centred**2).mean(0), h.max(1)

    def before(x: Any) -> Any:
        return rest(jax.nn.gelu(x, approximate=False))

    def after(x: Any) -> Any:
        return rest(lax.optimization_barrier(jax.nn.gelu(x, approximate=False)))

    return before, after, normal(rng, 4096, 1024)


@pair("recomputed", targets=("h200", "host"))
def powers_summed_both_ways(rng: np.random.Generator) -> tuple[Any, ...]:
    def rest(g: Any) -> Any:
        return g.sum(0), g.max(1), g[:, ::2].min(1)

    def scores(x: Any, y: Any) -> Any:
        return jnp.abs(jax.scipy.special.erf(jnp.exp(x) * y)) ** 1.7

    def before(x: Any, y: Any) -> Any:
        return rest(scores(x, y))

    def after(x: Any, y: Any) -> Any:
        return rest(lax.optimization_barrier(scores(x, y)))

    return before, after, normal(rng, 2048, 1024), normal(rng, 2048, 1024)


@pair("recomputed", targets=("h200", "host"))
def differences_of_logarithms(rng: np.random.Generator) -> tuple[Any, ...]:
    def rest(p: Any) -> Any:
        return p[2:] - 2 * p[1:-1] + p[:-2], p[:, 2:] - p[:, :-2]

    def potential(x: Any) -> Any:
        return jnp.log1p(jnp.exp(jnp.sin(x) * jnp.cos(x) + jnp.tan(x) ** 2.5))

    def before(x: Any) -> Any:
        return rest(potential(jnp.abs(x)))

    def after(x: Any) -> Any:
        return rest(lax.optimization_barrier(potential(jnp.abs(x))))

    return before, after, normal(rng, 1026, 1024)


@pair("recomputed")
def weights_of_many_products(rng: np.random.Generator) -> tuple[Any, ...]:
    def rest(w: Any, x: Any) -> Any:
        return x @ w, w.sum(0), w.T @ x.T

    def before(w: Any, x: Any) -> Any:
        return rest(jnp.tanh(w) * jax.nn.softplus(w) ** 1.5, x)

    def after(w: Any, x: Any) -> Any:
        return rest(lax.optimization_barrier(jnp.tanh(w) * jax.nn.softplus(w) ** 1.5), x)

    return before, after, normal(rng, 1024, 1024), normal(rng, 1024, 1024)


# ---- captured constants ----


@pair("captured-constant", given=lambda x, w: (w, x))
def a_layer_that_closes_over_its_weights(rng: np.random.Generator) -> tuple[Any, ...]:
    held = rng.standard_normal((256, 512)).astype(np.float32)

    def before(x: Any, w: Any) -> Any:
        return jnp.tanh(x @ held) + 0 * w[0, 0]

    def after(w: Any, x: Any) -> Any:
        return jnp.tanh(x @ w) + 0 * w[0, 0]

    return before, after, normal(rng, 64, 256), jnp.asarray(held)
