"""The Cartpole programs of this folder: ``python make.py [NAME...]`` with JAX 0.10.

The physics is that of gym's CartPole (Barto, Sutton and Anderson 1983, Euler's method).  ``gymnax_*`` follow
CartPole-v1 of gymnax step by step (per-environment keys, 500 steps at most, reset where an episode ends);
they are written here in plain JAX and need no gymnax.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

# isort: split
from dumping import Program, main  # it sets flags before JAX is there

# isort: split
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

GRAVITY = 9.8
CART, POLE = 1.0, 0.1
TOTAL = CART + POLE
HALF_LENGTH = 0.5
POLE_MOMENT = POLE * HALF_LENGTH
FORCE = 10.0
SECONDS = 0.02
FAR, TILTED = 2.4, 12 * 2 * np.pi / 360
LONGEST = 500

ENVIRONMENTS, STEPS = 2048, 1000
ROLLOUT = 200


def physics(x: Any, v: Any, angle: Any, spin: Any, push: Any) -> tuple[Any, ...]:
    """One step of Euler's method; ``push`` is true where the cart is pushed to the right."""
    force = jnp.where(push, FORCE, -FORCE)
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    shared = (force + POLE_MOMENT * spin * spin * sine) / TOTAL
    turning = (GRAVITY * sine - cosine * shared) / (
        HALF_LENGTH * (4.0 / 3.0 - POLE * cosine * cosine / TOTAL)
    )
    moving = shared - POLE_MOMENT * turning * cosine / TOTAL
    return x + SECONDS * v, v + SECONDS * moving, angle + SECONDS * spin, spin + SECONDS * turning


def over(x: Any, angle: Any) -> Any:
    """The cart left the track, or the pole fell."""
    return (x < -FAR) | (x > FAR) | (angle < -TILTED) | (angle > TILTED)


def draw(key: Any, step: Any, count: int) -> tuple[Any, Any]:
    """Pushes and fresh states of a step: bool[count], f32[4, count]."""
    for_push, for_reset = jax.random.split(jax.random.fold_in(key, step))
    push = jax.random.bernoulli(for_push, shape=(count,))
    return push, jax.random.uniform(for_reset, (4, count), minval=-0.05, maxval=0.05)


def first(key: Any, count: int) -> Any:
    """The states all begin with: f32[4, count]."""
    return jax.random.uniform(key, (4, count), minval=-0.05, maxval=0.05)


def advance(state: Any, alive: Any, ended: Any, push: Any, fresh: Any) -> tuple[Any, Any, Any]:
    """A step of the state as one array f32[4, count], which a concatenate puts together."""
    moved = jnp.stack(physics(*state, push))
    done = over(moved[0], moved[2])
    return jnp.where(done, fresh, moved), jnp.where(done, 0, alive + 1), ended + done


def naive(count: int) -> Any:
    """As one writes it: the state one array, its random numbers drawn where they are needed."""

    def program(key: Any) -> Any:
        def body(carry: Any, step: Any) -> Any:
            return advance(*carry, *draw(key, step, count)), None

        zeros = jnp.zeros(count, jnp.int32)
        return lax.scan(body, (first(key, count), zeros, zeros), jnp.arange(STEPS))[0]

    return program


def drawn_before(key: Any) -> tuple[Any, Any]:
    """The numbers of all steps at once: bool[STEPS, count], f32[STEPS, 4, count]; the same as in the loop."""
    return jax.vmap(lambda step: draw(key, step, ENVIRONMENTS))(jnp.arange(STEPS))


def random_before(key: Any) -> Any:
    """The random numbers made before the loop, which reads them."""

    def body(carry: Any, numbers: Any) -> Any:
        return advance(*carry, *numbers), None

    zeros = jnp.zeros(ENVIRONMENTS, jnp.int32)
    return lax.scan(body, (first(key, ENVIRONMENTS), zeros, zeros), drawn_before(key))[0]


def separate(unroll: int) -> Any:
    """Four arrays for the state, no concatenate; ``unroll`` steps in one iteration."""

    def body(carry: Any, numbers: Any) -> Any:
        *state, alive, ended = carry
        push, *fresh = numbers
        moved = physics(*state, push)
        done = over(moved[0], moved[2])
        state = [jnp.where(done, new, old) for new, old in zip(fresh, moved, strict=True)]
        return (*state, jnp.where(done, 0, alive + 1), ended + done), None

    def program(key: Any) -> Any:
        zeros = jnp.zeros(ENVIRONMENTS, jnp.int32)
        pushes, fresh = drawn_before(key)
        numbers = (pushes, *(fresh[:, row] for row in range(4)))
        state = (*first(key, ENVIRONMENTS), zeros, zeros)
        *state, alive, ended = lax.scan(body, state, numbers, unroll=unroll)[0]
        return jnp.stack(state), alive, ended

    return program


class State(NamedTuple):
    """gymnax's EnvState of CartPole-v1."""

    x: Any
    v: Any
    angle: Any
    spin: Any
    time: Any


def terminal(state: State) -> Any:
    """As in gymnax: over, or as long as an episode may be."""
    return over(state.x, state.angle) | (state.time >= LONGEST)


def observe(state: State) -> Any:
    """What a policy sees: f32[4]."""
    return jnp.array([state.x, state.v, state.angle, state.spin])


def reset(key: Any) -> tuple[Any, State]:
    """As in gymnax: ``reset_env``."""
    start = jax.random.uniform(key, minval=-0.05, maxval=0.05, shape=(4,))
    state = State(start[0], start[1], start[2], start[3], 0)
    return observe(state), state


def step(key: Any, state: State, action: Any) -> tuple[Any, ...]:
    """As in gymnax: ``step``: ``step_env``, and a reset where the episode is over."""
    _, key_reset = jax.random.split(key)
    reward = 1.0 - terminal(state)
    x, v, angle, spin = physics(state.x, state.v, state.angle, state.spin, action == 1)
    moved = State(x, v, angle, spin, state.time + 1)
    done = terminal(moved)
    seen, fresh = reset(key_reset)
    state = jax.tree.map(lambda new, old: jnp.where(done, new, old), fresh, moved)
    return jnp.where(done, seen, observe(moved)), state, reward, done


def random_policy(key: Any, _seen: Any) -> Any:
    """As in gymnax: ``action_space.sample``."""
    return jax.random.randint(key, shape=(), minval=0, maxval=2).astype(jnp.int32)


def rollout(policy: Any) -> Any:
    """The usual rollout, under vmap: rewards and ends of every step, and the last observations."""

    def program(key: Any, *weights: Any) -> Any:
        def body(carry: Any, _: Any) -> Any:
            key, seen, states = carry
            key, key_act, key_step = jax.random.split(key, 3)
            act_keys = jax.random.split(key_act, ENVIRONMENTS)
            step_keys = jax.random.split(key_step, ENVIRONMENTS)
            actions = jax.vmap(lambda k, o: policy(k, o, *weights))(act_keys, seen)
            seen, states, reward, done = jax.vmap(step)(step_keys, states, actions)
            return (key, seen, states), (reward, done)

        key, key_reset = jax.random.split(key)
        seen, states = jax.vmap(reset)(jax.random.split(key_reset, ENVIRONMENTS))
        (_, seen, _), (rewards, dones) = lax.scan(body, (key, seen, states), length=ROLLOUT)
        return seen, rewards, dones

    return program


def network_policy(key: Any, seen: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    """A network 4 -> 32 -> 2; the action is drawn with the odds it gives."""
    return jax.random.categorical(key, jnp.tanh(seen @ w1 + b1) @ w2 + b2).astype(jnp.int32)


def weights() -> list[np.ndarray]:
    """A network that nobody trained."""
    numbers = np.random.default_rng(7)
    w1, w2 = numbers.normal(0, 0.5, (4, 32)), numbers.normal(0, 0.2, (32, 2))
    b1, b2 = numbers.normal(0, 0.1, 32), np.zeros(2)
    return [values.astype(np.float32) for values in (w1, b1, w2, b2)]


KEY = np.array([0, 1], np.uint32)
PROGRAMS = {
    "naive": Program(naive(ENVIRONMENTS), [KEY]),
    "random_before": Program(random_before, [KEY]),
    "separate": Program(separate(1), [KEY]),
    "unrolled_10": Program(separate(10), [KEY]),
    "gymnax_random": Program(rollout(random_policy), [KEY]),
    "gymnax_network": Program(rollout(network_policy), [KEY, *weights()]),
    "naive_65536": Program(naive(65536), [KEY], recorded=False),
    "naive_1000003": Program(naive(1_000_003), [KEY], recorded=False),
}

if __name__ == "__main__":
    main(PROGRAMS, Path(__file__).parent)
