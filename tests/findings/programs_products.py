"""Products: with one-hot matrices, too thin for a matrix unit, and in loops that need no carried value."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from pairs import integers, normal, pair, weight

BOTH = ("h200", "host")


@pair("one-hot-product", targets=BOTH)
def token_embedding(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(ids: Any, table: Any) -> Any:
        return jax.nn.one_hot(ids, table.shape[0]) @ table

    def after(ids: Any, table: Any) -> Any:
        return jnp.take(table, ids, axis=0)

    return before, after, integers(rng, 4096, 4, 128), normal(rng, 4096, 256)


@pair("one-hot-product", targets=BOTH)
def class_scale_and_shift(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any, labels: Any, scale: Any, shift: Any) -> Any:
        picked = jax.nn.one_hot(labels, scale.shape[0])
        return x * (picked @ scale) + picked @ shift

    def after(x: Any, labels: Any, scale: Any, shift: Any) -> Any:
        return x * jnp.take(scale, labels, axis=0) + jnp.take(shift, labels, axis=0)

    return before, after, normal(rng, 256, 512), integers(rng, 1000, 256), normal(rng, 1000, 512), normal(rng, 1000, 512)  # fmt: skip


@pair("one-hot-product", targets=BOTH)
def atom_embedding_bf16(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(kinds: Any, table: Any, w: Any) -> Any:
        return jax.nn.relu(jax.nn.one_hot(kinds, 119, dtype=jnp.bfloat16) @ table) @ w

    def after(kinds: Any, table: Any, w: Any) -> Any:
        return jax.nn.relu(jnp.take(table, kinds, axis=0)) @ w

    table, w = normal(rng, 119, 128).astype(jnp.bfloat16), weight(rng, 128, 128)
    return before, after, integers(rng, 119, 20000), table, w.astype(jnp.bfloat16)


@pair("one-hot-product", targets=BOTH)
def codebook_rows(rng: np.random.Generator) -> tuple[Any, ...]:
    """Vector quantisation: the nearest entry of a codebook."""

    def distances(x: Any, book: Any) -> Any:
        return jnp.argmin((book**2).sum(1) - 2 * x @ book.T, axis=1)

    def before(x: Any, book: Any) -> Any:
        return jnp.einsum("bk,kd->bd", jax.nn.one_hot(distances(x, book), book.shape[0]), book)

    def after(x: Any, book: Any) -> Any:
        return jnp.take(book, distances(x, book), axis=0)

    return before, after, normal(rng, 2048, 64), normal(rng, 1024, 64)


@pair("one-hot-product", targets=BOTH)
def position_embedding(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any, positions: Any, table: Any) -> Any:
        return x + jnp.einsum("btp,pd->btd", jax.nn.one_hot(positions, 2048), table)

    def after(x: Any, positions: Any, table: Any) -> Any:
        return x + jnp.take(table, positions, axis=0)

    return before, after, normal(rng, 2, 512, 256), integers(rng, 2048, 2, 512), normal(rng, 2048, 256)  # fmt: skip


@pair("thin-product", targets=BOTH)
def rotate_points(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(points: Any, turn: Any, shift: Any) -> Any:
        return jnp.tanh(points @ turn + shift)

    def after(points: Any, turn: Any, shift: Any) -> Any:
        return jnp.tanh((points[..., None] * turn).sum(1) + shift)

    return before, after, normal(rng, 1 << 18, 3), normal(rng, 3, 3), normal(rng, 3)


@pair("thin-product", targets=BOTH)
def camera_transforms(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(cameras: Any, points: Any) -> Any:
        turned = jnp.einsum("bij,bnj->bni", cameras, points)
        return turned[..., :2] / (1.0 + turned[..., 2:3] ** 2)

    def after(cameras: Any, points: Any) -> Any:
        turned = (cameras[:, None] * points[:, :, None]).sum(-1)
        return turned[..., :2] / (1.0 + turned[..., 2:3] ** 2)

    return before, after, normal(rng, 64, 3, 3), normal(rng, 64, 4096, 3)


@pair("thin-product", targets=BOTH)
def gate_of_a_layer(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any, w: Any) -> Any:
        return x * jax.nn.sigmoid(x @ w)

    def after(x: Any, w: Any) -> Any:
        return x * jax.nn.sigmoid((x[..., None] * w).sum(1))

    return before, after, normal(rng, 8192, 512), weight(rng, 512, 1)


@pair("thin-product", targets=BOTH)
def low_rank_adapter(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any, down: Any, up: Any) -> Any:
        return jax.nn.gelu(x + (x @ down) @ up)

    def after(x: Any, down: Any, up: Any) -> Any:
        return jax.nn.gelu(x + ((x @ down)[..., None] * up).sum(1))

    return before, after, normal(rng, 4096, 1024), weight(rng, 1024, 4), weight(rng, 4, 1024)


@pair("thin-product", targets=BOTH)
def small_covariances(rng: np.random.Generator) -> tuple[Any, ...]:
    """The prediction of many Kalman filters."""

    def before(f: Any, p: Any, q: Any) -> Any:
        return jnp.einsum("ij,bjk->bik", f, p) + q

    def after(f: Any, p: Any, q: Any) -> Any:
        return (f[None, :, :, None] * p[:, None]).sum(2) + q

    return before, after, normal(rng, 4, 4), normal(rng, 65536, 4, 4), normal(rng, 4, 4)


@pair("thin-product", targets=BOTH)
def grey_of_images(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(images: Any, mix: Any) -> Any:
        return jnp.clip(images @ mix, 0, 1) ** 2.2

    def after(images: Any, mix: Any) -> Any:
        return jnp.clip((images[..., None] * mix).sum(-2), 0, 1) ** 2.2

    return before, after, normal(rng, 16, 256, 256, 3), normal(rng, 3, 3)


@pair("thin-product", targets=BOTH)
def gradient_of_coordinates(rng: np.random.Generator) -> tuple[Any, ...]:
    """A coordinate network's first layer, with its gradient by the weights."""

    def step(product: Any) -> Any:
        def loss(w: Any, xy: Any, target: Any) -> Any:
            return ((jnp.sin(product(xy, w)) - target) ** 2).mean()

        return lambda w, xy, target: w - 0.1 * jax.grad(loss)(w, xy, target)

    before = step(lambda a, b: a @ b)
    after = step(lambda a, b: (a[..., None] * b).sum(1))
    return before, after, normal(rng, 2, 256), normal(rng, 16384, 2), normal(rng, 16384, 256)


def _cell(h: Any, mixed: Any, u: Any) -> Any:
    h = jnp.tanh(mixed + h @ u)
    return h, h


@pair("loop-product")
def recurrent_inputs(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(h: Any, xs: Any, w: Any, u: Any) -> Any:
        return lax.scan(lambda h, x: _cell(h, x @ w, u), h, xs)

    def after(h: Any, xs: Any, w: Any, u: Any) -> Any:
        return lax.scan(lambda h, x: _cell(h, x, u), h, xs @ w)

    return before, after, normal(rng, 32, 128), normal(rng, 200, 32, 128), weight(rng, 128, 128), weight(rng, 128, 128)  # fmt: skip


def _gates(state: Any, mixed: Any, u: Any) -> Any:
    h, c = state
    i, f, g, o = jnp.split(mixed + h @ u, 4, axis=-1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (h, c), h


@pair("loop-product")
def lstm_inputs(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(state: Any, xs: Any, w: Any, u: Any) -> Any:
        return lax.scan(lambda s, x: _gates(s, x @ w, u), state, xs)

    def after(state: Any, xs: Any, w: Any, u: Any) -> Any:
        return lax.scan(lambda s, x: _gates(s, x, u), state, xs @ w)

    start = normal(rng, 64, 256), normal(rng, 64, 256)
    return before, after, start, normal(rng, 100, 64, 512), weight(rng, 512, 1024), weight(rng, 256, 1024)  # fmt: skip


@pair("loop-product")
def driven_recurrence(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(h: Any, xs: Any, decay: Any, w: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = decay * h + x @ w
            return h, h.sum(-1)

        return lax.scan(step, h, xs)

    def after(h: Any, xs: Any, decay: Any, w: Any) -> Any:
        def step(h: Any, mixed: Any) -> Any:
            h = decay * h + mixed
            return h, h.sum(-1)

        return lax.scan(step, h, xs @ w)

    return before, after, normal(rng, 16, 256), normal(rng, 500, 16, 64), normal(rng, 256), weight(rng, 64, 256)  # fmt: skip


@pair("loop-product")
def mixed_inputs_of_a_controller(rng: np.random.Generator) -> tuple[Any, ...]:
    """One row of inputs in each step."""

    def before(h: Any, xs: Any, w: Any, u: Any) -> Any:
        return lax.scan(lambda h, x: _cell(h, x @ w, u), h, xs)

    def after(h: Any, xs: Any, w: Any, u: Any) -> Any:
        return lax.scan(lambda h, x: _cell(h, x, u), h, xs @ w)

    return before, after, normal(rng, 64), normal(rng, 1000, 96), weight(rng, 96, 64), weight(rng, 64, 64)  # fmt: skip


@pair("scaled-factor")
def weights_of_eight_bits(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any, w: Any, s: Any) -> Any:
        return x @ (w.astype(jnp.bfloat16) * s.astype(jnp.bfloat16))

    def after(x: Any, w: Any, s: Any) -> Any:
        return (x @ w.astype(jnp.bfloat16)) * s.astype(jnp.bfloat16)

    weights = jnp.asarray(rng.integers(-127, 128, (4096, 2048)), jnp.int8)
    scale = jnp.asarray(rng.uniform(0.01, 0.02, 2048), jnp.float32)
    return before, after, normal(rng, 64, 4096).astype(jnp.bfloat16), weights, scale


@pair("scaled-factor")
def weights_divided_by_a_norm(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any, w: Any) -> Any:
        norms = jnp.sqrt((w * w).sum(0))
        return x @ (w / norms)

    def after(x: Any, w: Any) -> Any:
        norms = jnp.sqrt((w * w).sum(0))
        return (x @ w) / norms

    return before, after, normal(rng, 64, 4096), normal(rng, 4096, 2048)


@pair("scaled-factor")
def weights_divided_by_their_input(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any, w: Any, spread: Any) -> Any:
        return x @ (w / spread[:, None])

    def after(x: Any, w: Any, spread: Any) -> Any:
        return (x / spread) @ w

    spread = jnp.asarray(rng.uniform(0.5, 2, 4096), jnp.float32)
    return before, after, normal(rng, 32, 4096), normal(rng, 4096, 2048), spread


@pair("scaled-factor")
def scaled_activations(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any, w: Any, s: Any) -> Any:
        return (x * s) @ w

    def after(x: Any, w: Any, s: Any) -> Any:
        return x @ (s[:, None] * w)

    scale = jnp.asarray(rng.uniform(0.5, 2, 512), jnp.float32)
    return before, after, normal(rng, 4096, 512), normal(rng, 512, 2048), scale
