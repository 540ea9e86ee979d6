"""Launches: loops of small kernels, and small kernels side by side."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree
from pairs import normal, pair

# ---- small kernels ----


def _tree(rng: np.random.Generator, layers: int = 24) -> dict[str, Any]:
    """The small parameters of a network, each of its own size."""
    return {f"layer{n:02}": {"bias": normal(rng, 16 + n), "scale": normal(rng, 8 + n)} for n in range(layers)}  # fmt: skip


def _flat(*trees: Any) -> tuple[Any, ...]:
    return tuple(ravel_pytree(tree)[0] for tree in trees)


def _by_leaf(one: Any, results: int) -> Any:
    """Each leaf by itself, the results as trees."""

    def function(*trees: Any) -> Any:
        made = jax.tree.map(one, *trees)
        inner = jax.tree.structure((0,) * results)
        return jax.tree.transpose(jax.tree.structure(trees[0]), inner, made)

    return function


@pair("small-kernels", given=_flat)
def adam_of_small_arrays(rng: np.random.Generator) -> tuple[Any, ...]:
    def one(p: Any, m: Any, v: Any, g: Any) -> Any:
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        return p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), m, v

    return _by_leaf(one, 3), one, _tree(rng), _tree(rng), jax.tree.map(abs, _tree(rng)), _tree(rng)


@pair("small-kernels", given=_flat)
def momentum_of_small_arrays(rng: np.random.Generator) -> tuple[Any, ...]:
    def one(p: Any, m: Any, g: Any) -> Any:
        m = 0.9 * m + g
        return p - 1e-2 * m, m

    return _by_leaf(one, 2), one, _tree(rng, 40), _tree(rng, 40), _tree(rng, 40)


@pair("small-kernels", given=_flat)
def moving_average(rng: np.random.Generator) -> tuple[Any, ...]:
    def one(slow: Any, fast: Any) -> Any:
        return (0.999 * slow + 0.001 * fast,)

    return _by_leaf(one, 1), one, _tree(rng), _tree(rng)


@pair("small-kernels", given=lambda *towers: (jnp.stack(towers),))
def towers_of_features(rng: np.random.Generator) -> tuple[Any, ...]:
    """Normalised inputs of several towers."""

    def one(x: Any) -> Any:
        x = x - x.mean(-1, keepdims=True)
        return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)

    def before(*towers: Any) -> Any:
        return [one(tower) for tower in towers]

    return before, jax.vmap(one), *(normal(rng, 64, 128) for _ in range(12))


@pair("small-kernels")
def clipped_gradients(rng: np.random.Generator) -> tuple[Any, ...]:
    """The arrays are those of a library: they are put into one within the function."""

    def before(tree: Any) -> Any:
        size = jnp.sqrt(sum((x * x).sum() for x in jax.tree.leaves(tree)))
        return jax.tree.map(lambda x: x * jnp.minimum(1.0, 1.0 / size), tree)

    def after(tree: Any) -> Any:
        flat, back = ravel_pytree(tree)
        return back(flat * jnp.minimum(1.0, 1.0 / jnp.sqrt((flat * flat).sum())))

    return before, after, _tree(rng)


# ---- loops ----


def _unrolled(step: Any, length: int) -> tuple[Any, Any]:
    """A scan as written, and with eight iterations in one."""

    def before(state: Any, *xs: Any) -> Any:
        return lax.scan(step, state, xs or None, length)

    def after(state: Any, *xs: Any) -> Any:
        return lax.scan(step, state, xs or None, length, unroll=8)

    return before, after


@pair("loop-kernels")
def swinging_cart(rng: np.random.Generator) -> tuple[Any, ...]:
    def step(state: Any, xs: Any) -> Any:
        x, v, angle, spin = state
        force = jnp.where(xs[0] > 0, 10.0, -10.0)
        push = (force + 0.05 * spin**2 * jnp.sin(angle)) / 1.1
        turn = (9.8 * jnp.sin(angle) - jnp.cos(angle) * push) / (0.5 * (4 / 3 - 0.1 * jnp.cos(angle) ** 2 / 1.1))  # fmt: skip
        state = (x + 0.02 * v, v + 0.02 * push, angle + 0.02 * spin, spin + 0.02 * turn)
        return state, jnp.abs(angle) < 0.2

    start = tuple(0.05 * normal(rng, 2048) for _ in range(4))
    return *_unrolled(step, 200), start, normal(rng, 200, 2048)


@pair("loop-kernels")
def heat_by_steps(rng: np.random.Generator) -> tuple[Any, ...]:
    def step(u: Any, _: Any) -> Any:
        return u + 0.1 * (jnp.roll(u, 1, -1) - 2 * u + jnp.roll(u, -1, -1)), None

    return *_unrolled(step, 400), normal(rng, 64, 256)


@pair("loop-kernels")
def decaying_sums(rng: np.random.Generator) -> tuple[Any, ...]:
    def step(total: Any, xs: Any) -> Any:
        total = xs[0] + xs[1] * total
        return total, total

    return *_unrolled(step, 512), normal(rng, 256), normal(rng, 512, 256), abs(normal(rng, 512, 256)) % 1.0  # fmt: skip


@pair("loop-kernels")
def chaotic_orbits(rng: np.random.Generator) -> tuple[Any, ...]:
    def step(state: Any, _: Any) -> Any:
        def slope(s: Any) -> Any:
            x, y, z = s
            return jnp.stack([10.0 * (y - x), x * (28.0 - z) - y, x * y - 8 / 3 * z])

        k1 = slope(state)
        k2 = slope(state + 0.005 * k1)
        return state + 0.01 * k2, None

    return *_unrolled(step, 64), normal(rng, 3, 4096)
