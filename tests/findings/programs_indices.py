"""Indices that count up, and running reductions written as windows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from pairs import normal, pair


@pair("indexed-range")
def every_other_frame(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(video: Any) -> Any:
        return jnp.take(video, jnp.arange(0, video.shape[1], 2), axis=1).mean((2, 3))

    def after(video: Any) -> Any:
        return video[:, ::2].mean((2, 3))

    return before, after, normal(rng, 4, 64, 64, 96)


@pair("indexed-range")
def lagged_differences(rng: np.random.Generator) -> tuple[Any, ...]:
    """Of a series, by the indices of both ends."""

    def before(series: Any) -> Any:
        at = jnp.arange(24, series.shape[0])
        return jnp.tanh(series[at] - series[at - 24])

    def after(series: Any) -> Any:
        return jnp.tanh(series[24:] - series[:-24])

    return before, after, normal(rng, 20000, 64)


@pair("indexed-range")
def rows_set_by_a_range(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(grid: Any, edge: Any) -> Any:
        return jnp.sin(grid.at[jnp.arange(100, 356)].set(edge))

    def after(grid: Any, edge: Any) -> Any:
        return jnp.sin(grid.at[100:356].set(edge))

    return before, after, normal(rng, 2048, 512), normal(rng, 256, 512)


def _running(x: Any, start: float, combine: Any) -> Any:
    length = x.shape[1]
    return lax.reduce_window(x, start, combine, (1, length), (1, 1), ((0, 0), (length - 1, 0)))


def _in_blocks(x: Any, start: float, combine: Any, block: int = 4) -> Any:
    rows, length = x.shape
    inner = lax.reduce_window(
        x.reshape(rows, -1, block), start, combine, (1, 1, block), (1, 1, 1), ((0, 0), (0, 0), (block - 1, 0))
    )  # fmt: skip
    ends = _running(inner[:, :, -1], start, combine)
    before = jnp.pad(ends[:, :-1], ((0, 0), (1, 0)), constant_values=start)
    return combine(inner, jnp.broadcast_to(before[:, :, None], inner.shape)).reshape(rows, length)


@pair("running-reduction")
def totals_by_windows(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any) -> Any:
        return _running(x, 0.0, lax.add) / 2

    def after(x: Any) -> Any:
        return _in_blocks(x, 0.0, lax.add) / 2

    return before, after, normal(rng, 64, 16384)


@pair("running-reduction")
def drawdown(rng: np.random.Generator) -> tuple[Any, ...]:
    """How far each price is below the highest so far."""

    def before(prices: Any) -> Any:
        return prices - _running(prices, -jnp.inf, lax.max)

    def after(prices: Any) -> Any:
        return prices - _in_blocks(prices, -jnp.inf, lax.max)

    return before, after, normal(rng, 64, 16384)


@pair("full-sort")
def candidates_of_a_beam(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(scores: Any) -> Any:
        return jnp.sort(jax.nn.log_softmax(scores), axis=-1)[:, -8:]

    def after(scores: Any) -> Any:
        return jax.lax.top_k(jax.nn.log_softmax(scores), 8)[0][:, ::-1]

    return before, after, normal(rng, 64, 32000)


@pair("full-sort")
def nearest_neighbours(rng: np.random.Generator) -> tuple[Any, ...]:
    def distances(x: Any, y: Any) -> Any:
        return (x * x).sum(-1)[:, None] - 2 * x @ y.T + (y * y).sum(-1)

    def before(x: Any, y: Any) -> Any:
        return jnp.argsort(distances(x, y), axis=-1)[:, :10]

    def after(x: Any, y: Any) -> Any:
        return jax.lax.top_k(-distances(x, y), 10)[1]

    return before, after, normal(rng, 128, 64), normal(rng, 20000, 64)


@pair("full-sort")
def samples_of_the_forty_best(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(logits: Any) -> Any:
        least = jnp.sort(logits, axis=-1)[:, -40, None]
        return jnp.where(logits < least, -jnp.inf, logits)

    def after(logits: Any) -> Any:
        least = jax.lax.top_k(logits, 40)[0][:, -1:]
        return jnp.where(logits < least, -jnp.inf, logits)

    return before, after, normal(rng, 16, 32000)
