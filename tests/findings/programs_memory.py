"""Memory: donation, copies of arguments, and large arrays between kernels."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from pairs import integers, normal, pair, weight

BOTH = ("h200", "host")


def _donated(function: Any) -> tuple[Any, Any]:
    return function, function


@pair("not-donated", donate=((), (0, 1)), targets=BOTH)
def momentum_step(rng: np.random.Generator) -> tuple[Any, ...]:
    def loss(params: Any, x: Any, y: Any) -> Any:
        hidden = jnp.tanh(x @ params["w1"] + params["b1"])
        return ((hidden @ params["w2"] - y) ** 2).mean()

    def step(params: Any, momentum: Any, x: Any, y: Any) -> Any:
        slope = jax.grad(loss)(params, x, y)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, slope)
        return jax.tree.map(lambda p, m: p - 0.01 * m, params, momentum), momentum

    params = {"w1": weight(rng, 512, 1024), "b1": normal(rng, 1024), "w2": weight(rng, 1024, 512)}
    zeros = jax.tree.map(jnp.zeros_like, params)
    return *_donated(step), params, zeros, normal(rng, 64, 512), normal(rng, 64, 512)


@pair("not-donated", donate=((), (0, 1)), targets=BOTH)
def particles_step(rng: np.random.Generator) -> tuple[Any, ...]:
    def step(x: Any, v: Any, field: Any) -> Any:
        v = v + 0.01 * jnp.sin(x @ field)
        return x + 0.01 * v, v

    return *_donated(step), normal(rng, 1 << 17, 4), normal(rng, 1 << 17, 4), normal(rng, 4, 4)


@pair("not-donated", donate=((), (0,)), targets=BOTH)
def wave_field(rng: np.random.Generator) -> tuple[Any, ...]:
    def step(u: Any, speed: Any) -> Any:
        around = sum(jnp.roll(u, by, axis) for by in (-1, 1) for axis in (0, 1))
        return u + speed * (around - 4 * u)

    return *_donated(step), normal(rng, 1024, 1024), normal(rng, 1024, 1024)


@pair("not-donated", donate=((), (0, 1, 2)), targets=BOTH)
def adam_of_one_matrix(rng: np.random.Generator) -> tuple[Any, ...]:
    def step(p: Any, m: Any, v: Any, g: Any) -> Any:
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        return p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), m, v

    shape = (1024, 768)
    return *_donated(step), normal(rng, *shape), normal(rng, *shape), abs(normal(rng, *shape)), normal(rng, *shape)  # fmt: skip


@pair("not-donated", donate=((), (0,)), targets=BOTH)
def layer_in_place(rng: np.random.Generator) -> tuple[Any, ...]:
    def apply(x: Any, w1: Any, w2: Any) -> Any:
        return x + jax.nn.relu(x @ w1) @ w2

    return *_donated(apply), normal(rng, 4096, 256), weight(rng, 256, 256), weight(rng, 256, 256)


@pair("copy", donate=((), (0,)), targets=BOTH)
def key_cache(rng: np.random.Generator) -> tuple[Any, ...]:
    def step(cache: Any, key: Any, at: Any) -> Any:
        return lax.dynamic_update_slice(cache, key[:, None], (0, at, 0))

    return *_donated(step), normal(rng, 16, 1024, 128), normal(rng, 16, 128), jnp.int32(7)


@pair("copy", donate=((), (0,)), targets=BOTH)
def replay_buffer(rng: np.random.Generator) -> tuple[Any, ...]:
    def push(buffer: Any, at: Any, seen: Any) -> Any:
        return buffer.at[at].set(seen), at + 1

    return *_donated(push), normal(rng, 65536, 64), jnp.int32(5), normal(rng, 64)


@pair("copy", donate=((), (0,)), targets=BOTH)
def rows_of_a_table(rng: np.random.Generator) -> tuple[Any, ...]:
    def update(table: Any, ids: Any, slopes: Any) -> Any:
        return table.at[ids].add(-0.1 * slopes)

    return *_donated(update), normal(rng, 50000, 64), integers(rng, 50000, 512), normal(rng, 512, 64)  # fmt: skip


@pair("copy", donate=((), (0, 1)), targets=BOTH)
def two_caches(rng: np.random.Generator) -> tuple[Any, ...]:
    def step(keys: Any, values: Any, x: Any, w: Any, at: Any) -> Any:
        key, value = jnp.split(x @ w, 2, axis=-1)
        keys = lax.dynamic_update_slice(keys, key[:, None], (0, at, 0))
        values = lax.dynamic_update_slice(values, value[:, None], (0, at, 0))
        scores = jax.nn.softmax(jnp.einsum("bd,btd->bt", key, keys))
        return keys, values, jnp.einsum("bt,btd->bd", scores, values)

    shape = (8, 2048, 128)
    return *_donated(step), normal(rng, *shape), normal(rng, *shape), normal(rng, 8, 256), weight(rng, 256, 256), jnp.int32(100)  # fmt: skip


@pair("copy", donate=((), (0,)), targets=BOTH)
def grid_sources(rng: np.random.Generator) -> tuple[Any, ...]:
    def inject(grid: Any, at: Any, amounts: Any) -> Any:
        return grid.at[at[:, 0], at[:, 1]].add(amounts)

    return *_donated(inject), normal(rng, 2048, 2048), integers(rng, 2048, 100, 2), normal(rng, 100)  # fmt: skip


@pair("temporary", targets=BOTH)
def pairwise_forces(rng: np.random.Generator) -> tuple[Any, ...]:
    def force(x: Any, all_of_them: Any) -> Any:
        apart = all_of_them - x
        return (apart / (1e-2 + (apart**2).sum(-1, keepdims=True)) ** 1.5).sum(0)

    def before(x: Any) -> Any:
        apart = x[None] - x[:, None]
        size = jnp.sort((apart**2).sum(-1), axis=-1)
        return (apart / (1e-2 + size[..., None]) ** 1.5).sum(1)

    def after(x: Any) -> Any:
        def one(x_i: Any) -> Any:
            apart = x - x_i
            size = jnp.sort((apart**2).sum(-1), axis=-1)
            return (apart / (1e-2 + size[..., None]) ** 1.5).sum(0)

        return lax.map(one, x, batch_size=128)

    return before, after, normal(rng, 1024, 3)


@pair("temporary", targets=BOTH)
def attention_by_heads(rng: np.random.Generator) -> tuple[Any, ...]:
    def attend(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.softmax(q @ k.T / 8.0, axis=-1) @ v

    def before(q: Any, k: Any, v: Any) -> Any:
        return jax.vmap(attend)(q, k, v)

    def after(q: Any, k: Any, v: Any) -> Any:
        return lax.map(lambda one: attend(*one), (q, k, v), batch_size=1)

    return before, after, *(normal(rng, 8, 1024, 64) for _ in range(3))


@pair("temporary", targets=BOTH)
def kernel_regression(rng: np.random.Generator) -> tuple[Any, ...]:
    def one(x: Any, known: Any, values: Any) -> Any:
        near = jnp.exp(-((known @ x) ** 2))
        return (near / near.sum()) @ values

    def before(xs: Any, known: Any, values: Any) -> Any:
        return jax.vmap(one, (0, None, None))(xs, known, values)

    def after(xs: Any, known: Any, values: Any) -> Any:
        return lax.map(lambda x: one(x, known, values), xs, batch_size=256)

    return before, after, normal(rng, 2048, 16), normal(rng, 2048, 16), normal(rng, 2048, 8)
