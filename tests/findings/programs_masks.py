"""Masks and outer products that loops carry, and products whose rows have odd lengths."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from pairs import integers, normal, pair, weight

# ---- carried masks ----


def _attention(h: Any, w: Any, bias: Any) -> Any:
    scores = jnp.einsum("bqd,bkd->bqk", h @ w, h) + bias
    return h + jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores), h)


@pair("carried-mask")
def layers_with_a_bias_of_lengths(rng: np.random.Generator) -> tuple[Any, ...]:
    def bias(lengths: Any) -> Any:
        inside = jnp.arange(512) < lengths[:, None]
        return jnp.where(inside[:, None, :] & inside[:, :, None], 0.0, -1e9)

    def before(x: Any, ws: Any, lengths: Any) -> Any:
        made = bias(lengths)
        return lax.scan(lambda h, w: (_attention(h, w, made), None), x, ws)[0]

    def after(x: Any, ws: Any, lengths: Any) -> Any:
        return lax.scan(lambda h, w: (_attention(h, w, bias(lengths)), None), x, ws)[0]

    ws = jnp.stack([weight(rng, 16, 16) for _ in range(6)])
    return before, after, normal(rng, 4, 512, 16), ws, integers(rng, 512, 4) + 1


@pair("carried-mask", targets=("h200", "host"))
def steps_of_a_masked_field(rng: np.random.Generator) -> tuple[Any, ...]:
    def walls(left: Any, top: Any) -> Any:
        rows, columns = jnp.arange(1024)[:, None], jnp.arange(1024)[None, :]
        return jnp.where((rows > top) & (columns > left), 0.97, 0.2)

    def step(u: Any, factor: Any) -> Any:
        return (0.25 * (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0)) + 0.5 * u) * factor

    def before(u: Any, left: Any, top: Any) -> Any:
        factor = walls(left, top)
        return lax.fori_loop(0, 24, lambda _, v: step(v, factor), u)

    def after(u: Any, left: Any, top: Any) -> Any:
        return lax.fori_loop(0, 24, lambda _, v: step(v, walls(left, top)), u)

    return (
        before,
        after,
        normal(rng, 1024, 1024),
        integers(rng, 400, 1024),
        integers(rng, 400, 1024, 1),
    )


@pair("carried-mask", targets=("h200", "host"))
def power_steps_with_an_outer_product(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any, u: Any, v: Any) -> Any:
        scale = jnp.outer(u, v)
        return lax.fori_loop(0, 16, lambda _, y: jnp.tanh(y * scale), x)

    def after(x: Any, u: Any, v: Any) -> Any:
        return lax.fori_loop(0, 16, lambda _, y: jnp.tanh(y * jnp.outer(u, v)), x)

    return before, after, normal(rng, 2048, 1024), normal(rng, 2048), normal(rng, 1024)


@pair("carried-mask")
def sums_by_segment_in_a_loop(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(xs: Any, ids: Any) -> Any:
        chosen = jax.nn.one_hot(ids, 1024, dtype=jnp.float32)
        return lax.map(lambda x: jnp.max(x[:, None] * chosen, 0), xs)

    def after(xs: Any, ids: Any) -> Any:
        return lax.map(
            lambda x: jnp.max(x[:, None] * jax.nn.one_hot(ids, 1024, dtype=jnp.float32), 0), xs
        )

    return before, after, normal(rng, 16, 1024), integers(rng, 1024, 1024)


# ---- odd rows ----


def _padded(x: Any, *sizes: int) -> Any:
    return jnp.pad(x, [(0, new - old) for old, new in zip(x.shape, sizes, strict=True)])


@pair("unaligned-product", given=lambda x, w: (_padded(x, 512, 1008), _padded(w, 1008, 2048)))
def features_of_odd_size(rng: np.random.Generator) -> tuple[Any, ...]:
    def layer(x: Any, w: Any) -> Any:
        return jnp.maximum(x @ w, 0)

    half = jnp.bfloat16
    return layer, layer, normal(rng, 512, 1003).astype(half), weight(rng, 1003, 2048).astype(half)


@pair(
    "unaligned-product",
    given=lambda x, v, w: (x, _padded(v, 256, 2736), _padded(w, 2736, 256)),
)
def hidden_layer_of_odd_size(rng: np.random.Generator) -> tuple[Any, ...]:
    def block(x: Any, v: Any, w: Any) -> Any:
        return jax.nn.relu(x @ v) @ w

    half = jnp.bfloat16
    return (
        block,
        block,
        normal(rng, 1024, 256).astype(half),
        weight(rng, 256, 2731).astype(half),
        weight(rng, 2731, 256).astype(half),
    )


@pair("unaligned-product", given=lambda x, y: (_padded(x, 1024, 1024), _padded(y, 1024, 1024)))
def similarities_of_odd_vectors(rng: np.random.Generator) -> tuple[Any, ...]:
    def scores(x: Any, y: Any) -> Any:
        return jnp.einsum("qd,kd->qk", x, y)

    half = jnp.float16
    return (
        scores,
        scores,
        normal(rng, 1024, 1023).astype(half),
        weight(rng, 1024, 1023).astype(half),
    )
