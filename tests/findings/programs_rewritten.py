"""Programs whose arrays are moved, repeated or masked where a part of them is meant."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from pairs import integers, normal, pair, weight

HALF = jnp.bfloat16


# ---- distances ----


@pair("pairwise-distance")
def distances_of_points(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any, y: Any) -> Any:
        return jnp.sqrt(((x[:, None] - y[None]) ** 2).sum(-1))

    def after(x: Any, y: Any) -> Any:
        product = jnp.matmul(x, y.T, precision="highest")
        return jnp.sqrt(jnp.maximum((x * x).sum(-1)[:, None] + (y * y).sum(-1) - 2 * product, 0))

    return before, after, normal(rng, 2048, 64), normal(rng, 1024, 64)


@pair("pairwise-distance")
def nearest_centres(rng: np.random.Generator) -> tuple[Any, ...]:
    """As one hears it: the indices are those of the nearest."""

    def before(x: Any, c: Any) -> Any:
        return jnp.sum((x[:, None, :] - c[None]) ** 2, -1).min(1)

    def after(x: Any, c: Any) -> Any:
        product = jnp.matmul(x, c.T, precision="highest")
        return jnp.maximum((x * x).sum(-1)[:, None] + (c * c).sum(-1) - 2 * product, 0).min(1)

    return before, after, normal(rng, 8192, 128), normal(rng, 256, 128)


@pair("pairwise-distance")
def kernel_matrix_in_batches(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any) -> Any:
        return jnp.exp(-0.01 * ((x[:, :, None] - x[:, None]) ** 2).sum(-1))

    def after(x: Any) -> Any:
        s = (x * x).sum(-1)
        product = jnp.einsum("bid,bjd->bij", x, x, precision="highest")
        return jnp.exp(-0.01 * jnp.maximum(s[:, :, None] + s[:, None] - 2 * product, 0))

    return before, after, normal(rng, 8, 512, 64)


@pair("pairwise-distance")
def distances_in_space(rng: np.random.Generator) -> tuple[Any, ...]:
    """Three coordinates are too few for a product."""

    def before(x: Any, y: Any) -> Any:
        return ((x[:, None] - y[None]) ** 2).sum(-1)

    def after(x: Any, y: Any) -> Any:
        product = jnp.matmul(x, y.T, precision="highest")
        return jnp.maximum((x * x).sum(-1)[:, None] + (y * y).sum(-1) - 2 * product, 0)

    return before, after, normal(rng, 2048, 3), normal(rng, 2048, 3)


# ---- repeated factors ----


@pair("repeated-factor")
def grouped_queries_while_decoding(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(q: Any, k: Any) -> Any:
        return jnp.einsum("bqhd,bkhd->bhqk", q, jnp.repeat(k, 8, axis=2))

    def after(q: Any, k: Any) -> Any:
        grouped = q.reshape(*q.shape[:2], 4, 8, q.shape[-1])
        scores = jnp.einsum("bqgrd,bkgd->bgrqk", grouped, k)
        return scores.reshape(q.shape[0], 32, q.shape[1], k.shape[1])

    return before, after, normal(rng, 2, 16, 32, 128).astype(HALF), normal(rng, 2, 2048, 4, 128).astype(HALF)  # fmt: skip


@pair("repeated-factor")
def tiled_keys(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(q: Any, k: Any) -> Any:
        return jnp.einsum("hqd,hkd->hqk", q, jnp.tile(k, (8, 1, 1)))

    def after(q: Any, k: Any) -> Any:
        grouped = q.reshape(8, 4, *q.shape[1:])
        return jnp.einsum("rgqd,gkd->rgqk", grouped, k).reshape(32, q.shape[1], k.shape[1])

    return before, after, normal(rng, 32, 64, 128).astype(HALF), normal(rng, 4, 4096, 128).astype(HALF)  # fmt: skip


@pair("repeated-factor")
def weights_for_each_of_a_batch(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any, w: Any) -> Any:
        return jnp.einsum("bnk,bkm->bnm", x, jnp.broadcast_to(w, (16, *w.shape)))

    def after(x: Any, w: Any) -> Any:
        return x @ w

    return before, after, normal(rng, 16, 64, 512).astype(HALF), normal(rng, 512, 2048).astype(HALF)


# ---- histories ----


@pair("shifted-history")
def last_samples_of_a_filter(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(h: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> tuple[Any, Any]:
            h = jnp.concatenate([h[1:], x[None]])
            return h, h[0] + h[-1]

        return lax.scan(step, h, xs)

    def after(h: Any, xs: Any) -> Any:
        n, room = h.shape[0], jnp.concatenate([h, jnp.zeros_like(xs)])

        def step(i: Any, carried: tuple[Any, Any]) -> tuple[Any, Any]:
            h, ys = carried
            h = lax.dynamic_update_index_in_dim(h, xs[i], n + i, 0)
            window = lax.dynamic_slice_in_dim(h, i + 1, n)
            return h, ys.at[i].set(window[0] + window[-1])

        h, ys = lax.fori_loop(0, xs.shape[0], step, (room, jnp.zeros_like(xs)))
        return h[-n:], ys

    return before, after, normal(rng, 8192, 512), normal(rng, 64, 512)


@pair("shifted-history")
def newest_first(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(h: Any, w: Any) -> Any:
        def step(_: Any, h: Any) -> Any:
            return jnp.concatenate([(w[:, None] * h).sum(0)[None], h[:-1]])

        return lax.fori_loop(0, 50, step, h)

    def after(h: Any, w: Any) -> Any:
        n, room = h.shape[0], jnp.concatenate([jnp.zeros((50, h.shape[1])), h])

        def step(i: Any, h: Any) -> Any:
            window = lax.dynamic_slice_in_dim(h, 50 - i, n)
            return lax.dynamic_update_index_in_dim(h, (w[:, None] * window).sum(0), 49 - i, 0)

        return lax.fori_loop(0, 50, step, room)[:n]

    return before, after, normal(rng, 4096, 1024), normal(rng, 4096) / 4096


# ---- masked updates ----


@pair("masked-update", donate=((0,), (0,)))
def cache_at_a_position(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(cache: Any, new: Any, at: Any) -> Any:
        return jnp.where((jnp.arange(2048) == at)[None, :, None], new[:, None], cache)

    def after(cache: Any, new: Any, at: Any) -> Any:
        return lax.dynamic_update_index_in_dim(cache, new, at, 1)

    return before, after, normal(rng, 16, 2048, 128), normal(rng, 16, 128), jnp.int32(77)


@pair("masked-update")
def results_by_a_mask_in_a_loop(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any, w: Any) -> Any:
        def step(i: Any, carried: tuple[Any, Any]) -> tuple[Any, Any]:
            x, kept = carried
            x = jnp.tanh(x * w)
            return x, jnp.where((jnp.arange(200) == i)[:, None], x, kept)

        return lax.fori_loop(0, 200, step, (x, jnp.zeros((200, x.shape[0]))))[1]

    def after(x: Any, w: Any) -> Any:
        def step(i: Any, carried: tuple[Any, Any]) -> tuple[Any, Any]:
            x, kept = carried
            x = jnp.tanh(x * w)
            return x, lax.dynamic_update_index_in_dim(kept, x, i, 0)

        return lax.fori_loop(0, 200, step, (x, jnp.zeros((200, x.shape[0]))))[1]

    return before, after, normal(rng, 16384), normal(rng, 16384)


@pair("masked-update")
def one_entry_that_is_not_donated(rng: np.random.Generator) -> tuple[Any, ...]:
    """The whole array is copied, whatever writes the entry."""

    def before(x: Any, value: Any, at: Any) -> Any:
        return jnp.where(jnp.arange(1 << 20) == at, value, x)

    def after(x: Any, value: Any, at: Any) -> Any:
        return x.at[at].set(value)

    return before, after, normal(rng, 1 << 20), jnp.float32(3), integers(rng, 1 << 20)


@pair("stacked-output")
def last_hidden_state(rng: np.random.Generator) -> tuple[Any, ...]:
    """A recurrent network that returns all states, for a head that reads the last."""

    def step(state: Any, x: Any, w: Any) -> Any:
        return jnp.tanh(x + state @ w)

    def before(xs: Any, w: Any, head: Any) -> Any:
        start = jnp.zeros_like(xs[0])
        states = lax.scan(lambda s, x: (step(s, x, w),) * 2, start, xs)[1]
        return states[-1] @ head

    def after(xs: Any, w: Any, head: Any) -> Any:
        start = jnp.zeros_like(xs[0])
        return lax.scan(lambda s, x: (step(s, x, w), None), start, xs)[0] @ head

    return before, after, normal(rng, 96, 64, 256), weight(rng, 256, 256), weight(rng, 256, 16)


@pair("stacked-output")
def last_of_the_losses(rng: np.random.Generator) -> tuple[Any, ...]:
    """Gradient descent whose residuals are collected, though those of the end are looked at."""

    def residual(x: Any, a: Any, b: Any) -> tuple[Any, Any]:
        off = a @ x - b
        return x - 0.1 * (a.T @ off), off

    def before(a: Any, b: Any, x: Any) -> Any:
        x, all_of_them = lax.scan(lambda x, _: residual(x, a, b), x, None, 80)
        return x, all_of_them[-1]

    def after(a: Any, b: Any, x: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            return residual(state[0], a, b), None

        return lax.scan(step, (x, jnp.zeros_like(b)), None, 80)[0]

    return before, after, weight(rng, 512, 256), normal(rng, 512, 64), normal(rng, 256, 64)
