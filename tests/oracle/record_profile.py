"""Records a trace of a few programs by jax.profiler, for a Python with jax: ``record_profile.py FOLDER``."""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
from jax import lax


def attention(x: jax.Array) -> jax.Array:
    scores = jax.nn.softmax(x @ x.swapaxes(-1, -2) / 8.0, axis=-1)
    return scores @ x


def layers(x: jax.Array) -> jax.Array:
    def loss(weights: jax.Array) -> jax.Array:
        found = x
        for _ in range(3):
            found = jax.nn.gelu(found @ weights)
        return jnp.mean(found**2)

    return jax.grad(loss)(x[0] * 0.1)


def loop(x: jax.Array) -> jax.Array:
    return lax.fori_loop(0, 20, lambda _, carry: jnp.tanh(carry @ carry * 0.01), x[0])


def recurrence(x: jax.Array) -> jax.Array:
    def step(carry: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        following = jnp.sin(carry) * row
        return following, following.sum()

    return lax.scan(step, x[0, 0], x[0])[1]


def ordered(x: jax.Array) -> jax.Array:
    values = jnp.sort(x.reshape(-1)).cumsum()
    return lax.cond(values[-1] > 0, jnp.exp, jnp.negative, values)


def main() -> None:
    """Run each program five times after it was compiled."""
    x = jax.random.normal(jax.random.key(0), (4, 64, 64))
    programs = [jax.jit(one) for one in (attention, layers, loop, recurrence, ordered)]
    for program in programs:
        jax.block_until_ready(program(x))
    with jax.profiler.trace(sys.argv[1], create_perfetto_trace=True):
        for program in programs:
            for _ in range(5):
                jax.block_until_ready(program(x))


if __name__ == "__main__":
    main()
