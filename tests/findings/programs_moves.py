"""Data movement: running reductions, indices that count up, pieces, contention, arguments in another order."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from pairs import integers, normal, pair

# ---- running reductions ----


@pair("running-reduction")
def cumulative_sum_of_rows(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any) -> Any:
        return jnp.cumsum(x, axis=0)

    def after(x: Any) -> Any:
        return lax.associative_scan(jnp.add, x, axis=0)

    return before, after, normal(rng, 360, 160, 60)


@pair("running-reduction")
def cumulative_maximum(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any) -> Any:
        return lax.cummax(x, axis=0)

    def after(x: Any) -> Any:
        return lax.associative_scan(jnp.maximum, x, axis=0)

    return before, after, normal(rng, 1500, 2048)


@pair("running-reduction")
def cumulative_log_sum_exp(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any) -> Any:
        return lax.cumlogsumexp(x, axis=1)

    def after(x: Any) -> Any:
        return lax.associative_scan(jnp.logaddexp, x, axis=1)

    return before, after, normal(rng, 128, 2048)


# ---- indices that count up ----


@pair("indexed-range", donate=((0,), (0,)))
def cache_rows(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(cache: Any, rows: Any, start: Any) -> Any:
        return cache.at[start + jnp.arange(1000)].set(rows)

    def after(cache: Any, rows: Any, start: Any) -> Any:
        return lax.dynamic_update_slice_in_dim(cache, rows, start, axis=0)

    return before, after, normal(rng, 4096, 512), normal(rng, 1000, 512), jnp.int32(17)


@pair("indexed-range")
def every_second_row(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any, u: Any) -> Any:
        return x.at[jnp.arange(0, 4096, 2)].add(u)

    def after(x: Any, u: Any) -> Any:
        return x + lax.pad(u, jnp.float32(0), ((0, 1, 1), (0, 0, 0)))

    return before, after, normal(rng, 4096, 512), normal(rng, 2048, 512)


@pair("indexed-range")
def gradient_of_first_rows(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(table: Any, u: Any) -> Any:
        return jnp.zeros_like(table).at[jnp.arange(3000)].add(u) + table

    def after(table: Any, u: Any) -> Any:
        return lax.pad(u, jnp.float32(0), ((0, 5000, 0), (0, 0, 0))) + table

    return before, after, normal(rng, 8000, 256), normal(rng, 3000, 256)


# ---- pieces ----


@pair("written-in-pieces")
def rows_in_a_loop(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any) -> Any:
        out = jnp.zeros((48, 512))
        for k in range(48):
            out = out.at[k].set(jnp.tanh(x[k]) * k)
        return out

    def after(x: Any) -> Any:
        return jnp.stack([jnp.tanh(x[k]) * k for k in range(48)])

    return before, after, normal(rng, 48, 512)


@pair("written-in-pieces")
def columns_in_a_loop(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any) -> Any:
        out = jnp.zeros((4096, 12))
        for k in range(12):
            out = out.at[:, k].set(jnp.cos(x[:, k] * (k + 1)))
        return out

    def after(x: Any) -> Any:
        return jnp.stack([jnp.cos(x[:, k] * (k + 1)) for k in range(12)], axis=1)

    return before, after, normal(rng, 4096, 12)


# ---- contention ----


@pair("contention")
def histogram(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(bins: Any) -> Any:
        return jnp.zeros(256, jnp.int32).at[bins].add(1)

    def after(bins: Any) -> Any:
        copies = jnp.zeros((32, 256), jnp.int32)
        return copies.at[jnp.arange(bins.size) % 32, bins].add(1).sum(0)

    return before, after, integers(rng, 256, 1 << 20)


@pair("contention")
def sums_of_few_segments(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any, segments: Any) -> Any:
        return jnp.zeros((100, 16)).at[segments].add(x)

    def after(x: Any, segments: Any) -> Any:
        copies = jnp.zeros((32, 100, 16))
        return copies.at[jnp.arange(segments.size) % 32, segments].add(x).sum(0)

    return before, after, normal(rng, 1 << 18, 16), integers(rng, 100, 1 << 18)


# ---- arguments in another order ----


def _heads_first(q: Any, k: Any) -> tuple[Any, ...]:
    return jnp.transpose(q, (0, 2, 1, 3)), jnp.transpose(k, (0, 2, 3, 1))


@pair("argument-layout", given=_heads_first)
def attention_scores(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(q: Any, k: Any) -> Any:
        return jnp.einsum("bqhd,bkhd->bhqk", q, k)

    def after(q: Any, k: Any) -> Any:
        return jnp.einsum("bhqd,bhdk->bhqk", q, k)

    return before, after, normal(rng, 16, 256, 8, 64), normal(rng, 16, 256, 8, 64)


@pair("argument-layout", given=lambda x: (x.T,))
def sorted_columns(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any) -> Any:
        return jnp.sort(x.T, axis=1)

    def after(x: Any) -> Any:
        return jnp.sort(x, axis=1)

    return before, after, normal(rng, 2048, 512)


def _with_room(cache: Any, rows: Any) -> Any:
    """A cache that is as long as it becomes, as a user makes it once."""
    return jnp.pad(cache, ((0, 0), (0, 0), (0, rows.shape[2]), (0, 0)))


@pair(
    "grown-argument",
    given=lambda q, keys, values, k, v: (
        q,
        _with_room(keys, k),
        _with_room(values, v),
        k,
        v,
        jnp.int32(keys.shape[2]),
    ),
    donate=((), (1, 2)),
)
def a_step_of_decoding(rng: np.random.Generator) -> tuple[Any, ...]:
    def attended(q: Any, keys: Any, values: Any, seen: Any) -> Any:
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, keys) / 8
        weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
        return jnp.einsum("bhqk,bhkd->bhqd", weights, values)

    def before(q: Any, keys: Any, values: Any, k: Any, v: Any) -> Any:
        keys, values = jnp.concatenate([keys, k], axis=2), jnp.concatenate([values, v], axis=2)
        return attended(q, keys, values, True), keys, values

    def after(q: Any, keys: Any, values: Any, k: Any, v: Any, position: Any) -> Any:
        keys = lax.dynamic_update_slice(keys, k, (0, 0, position, 0))
        values = lax.dynamic_update_slice(values, v, (0, 0, position, 0))
        return attended(q, keys, values, jnp.arange(keys.shape[2]) <= position), keys, values

    caches = normal(rng, 8, 16, 1024, 64), normal(rng, 8, 16, 1024, 64)
    rows = [normal(rng, 8, 16, 1, 64) for _ in range(3)]
    return before, after, rows[0], *caches, *rows[1:]


@pair(
    "grown-argument",
    given=lambda seen, row: (jnp.pad(seen, ((1, 0), (0, 0))), row),
    donate=((), (0,)),
)
def replay_with_a_row_more(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(seen: Any, row: Any) -> Any:
        return jnp.concatenate([row, seen])

    def after(seen: Any, row: Any) -> Any:
        return lax.dynamic_update_slice(seen, row, (0, 0))

    return before, after, normal(rng, 8191, 512), normal(rng, 1, 512)


@pair("grown-argument")
def two_halves_joined(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any, y: Any) -> Any:
        return jnp.concatenate([x, y])

    def after(x: Any, y: Any) -> Any:
        return jnp.stack([x, y]).reshape(-1, x.shape[1])

    return before, after, normal(rng, 4096, 512), normal(rng, 4096, 512)
