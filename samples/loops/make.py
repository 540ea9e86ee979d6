"""The loops of this folder: ``python make.py [NAME...]`` with JAX 0.10."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

# isort: split
from dumping import Program, main  # it sets flags before JAX is there

# isort: split
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Array = Any
NUMBERS = np.random.default_rng(2301)
KEY = np.array([13, 62], np.uint32)


def normal(*shape: int, scale: float = 1.0) -> np.ndarray:
    """Inputs, f32."""
    return NUMBERS.normal(0, scale, shape).astype(np.float32)


def heston_paths(key: Array) -> Array:
    """Heston's model by Euler with full truncation: 4,096 paths of 64 days, and the mean price of every day."""
    paths, days = 4096, 64
    rate, back, level, noisy, tie, day = 0.02, 1.5, 0.04, 0.3, -0.7, 1 / 252

    def body(carry: Array, _: Array) -> Array:
        key, log_price, variance = carry
        key, key_price, key_variance = jax.random.split(key, 3)
        shock = jax.random.normal(key_price, (paths,))
        other = tie * shock + np.sqrt(1 - tie**2) * jax.random.normal(key_variance, (paths,))
        positive = jnp.maximum(variance, 0)
        swing = jnp.sqrt(positive * day)
        log_price += (rate - positive / 2) * day + swing * shock
        variance += back * (level - positive) * day + noisy * swing * other
        return (key, log_price, variance), jnp.exp(log_price).mean()

    start = (key, jnp.zeros(paths), jnp.full(paths, level))
    (_, log_price, _), means = lax.scan(body, start, length=days)
    return jnp.maximum(jnp.exp(log_price) - 1, 0).mean(), means


def kalman_tracks(measured: Array) -> Array:
    """A filter for each of 128 tracks in the plane: position and speed from 32 noisy positions."""
    moves = np.eye(4, k=2, dtype=np.float32) * 0.1 + np.eye(4, dtype=np.float32)
    sees = np.eye(2, 4, dtype=np.float32)
    drift, noise = 0.01 * np.eye(4, dtype=np.float32), 0.25 * np.eye(2, dtype=np.float32)

    def track(mean: Array, spread: Array, seen: Array) -> Array:
        mean, spread = moves @ mean, moves @ spread @ moves.T + drift
        s = sees @ spread @ sees.T + noise
        inverse = jnp.array([[s[1, 1], -s[0, 1]], [-s[1, 0], s[0, 0]]])
        inverse /= s[0, 0] * s[1, 1] - s[0, 1] * s[1, 0]
        gain = spread @ sees.T @ inverse
        return mean + gain @ (seen - sees @ mean), spread - gain @ sees @ spread

    def body(carry: Array, seen: Array) -> Array:
        carry = jax.vmap(track)(*carry, seen)
        return carry, carry[0]

    count = measured.shape[1]
    start = jnp.zeros((count, 4)), jnp.broadcast_to(jnp.eye(4), (count, 4, 4))
    return lax.scan(body, start, measured)[1]


# Tsitouras 2011, table 1: rows of the tableau, and the weights of the fifth order.
TSIT5 = (
    (0.161,),
    (-0.008480655492356989, 0.335480655492357),
    (2.8971530571054935, -6.359448489975075, 4.3622954328695815),
    (5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525),
    (
        5.86145544294642,
        -12.92096931784711,
        8.159367898576159,
        -0.071584973281401,
        -0.028269050394068383,
    ),
    (
        0.09646076681806523,
        0.01,
        0.4798896504144996,
        1.379008574103742,
        -3.290069515436081,
        2.324710524099774,
    ),
)


def tsit5_lorenz(start: Array, speeds: Array) -> Array:
    """An ODE as diffrax solves it with Tsit5 and steps of one size: saved 8 times, 8 steps between."""

    def slope(y: Array) -> Array:
        x, y, z = y
        return jnp.stack([10 * (y - x), x * (speeds - z) - y, x * y - 8 / 3 * z])

    def step(_: Array, y: Array) -> Array:
        slopes = [slope(y)]
        for row in TSIT5:
            at = y + 0.005 * sum(weight * k for weight, k in zip(row, slopes, strict=True))
            slopes.append(slope(at))
        return at

    def save(y: Array, _: Array) -> Array:
        y = lax.fori_loop(0, 8, step, y)
        return y, y

    return lax.scan(save, start, length=8)[1]


def gray_scott(grid: int, steps: int) -> Any:
    """Reaction and diffusion on a torus: every cell reads its neighbours."""

    def spread(field: Array) -> Array:
        around = [jnp.roll(field, shift, axis) for axis in (0, 1) for shift in (-1, 1)]
        return sum(around) - 4 * field

    def program(u: Array, v: Array) -> Array:
        def body(_: Array, fields: Array) -> Array:
            u, v = fields
            reaction = u * v * v
            return (
                u + 0.16 * spread(u) - reaction + 0.035 * (1 - u),
                v + 0.08 * spread(v) + reaction - 0.1 * v,
            )

        return lax.fori_loop(0, steps, body, (u, v))

    seeds = np.zeros((grid, grid), np.float32)
    middle = slice(grid // 2 - 4, grid // 2 + 4)
    seeds[middle, middle] = 0.5
    return program, [1 - seeds, seeds / 2 + NUMBERS.random((grid, grid), np.float32) / 50]


def gru(sequence: Array, inward: Array, across: Array, bias: Array) -> Array:
    """A gated recurrent unit, 64 sequences of 24, 16 units, and its outputs."""
    size = across.shape[0]

    def body(hidden: Array, x: Array) -> Array:
        fed, kept = x @ inward + bias, hidden @ across
        reset = jax.nn.sigmoid(fed[:, :size] + kept[:, :size])
        update = jax.nn.sigmoid(fed[:, size : 2 * size] + kept[:, size : 2 * size])
        new = jnp.tanh(fed[:, 2 * size :] + reset * kept[:, 2 * size :])
        hidden = update * hidden + (1 - update) * new
        return hidden, hidden

    return lax.scan(body, jnp.zeros((sequence.shape[1], size)), sequence)


def ising_chains(key: Array, heat: Array) -> Array:
    """Metropolis on 16x16 spins, a chain for each of 24 temperatures: spins, and their mean at every sweep."""
    chains, side = heat.shape[0], 16
    colour = jnp.asarray(np.indices((side, side)).sum(0) % 2 == 0)

    def half(spins: Array, key: Array, mask: Array) -> Array:
        near = sum(jnp.roll(spins, shift, axis) for axis in (1, 2) for shift in (-1, 1))
        cost = 2 * spins * near
        odds = jnp.exp(-cost / heat[:, None, None])
        flips = jax.random.uniform(key, spins.shape) < odds
        return jnp.where(flips & mask, -spins, spins)

    def body(carry: Array, _: Array) -> Array:
        key, spins = carry
        key, one, two = jax.random.split(key, 3)
        spins = half(half(spins, one, colour), two, ~colour)
        return (key, spins), spins.mean((1, 2))

    start = jnp.ones((chains, side, side))
    (_, spins), means = lax.scan(body, (key, start), length=20)
    return spins, means


def kepler_bisection(eccentricity: Array, anomaly: Array) -> Array:
    """Kepler's equation for each of 1,000 orbits, by bisection until it is close enough: trips by element."""

    def solve(e: Array, m: Array) -> Array:
        def body(carry: Array) -> Array:
            low, high, count = carry
            middle = (low + high) / 2
            above = middle - e * jnp.sin(middle) > m
            return jnp.where(above, low, middle), jnp.where(above, middle, high), count + 1

        close = 1e-2 + e * 1e-3
        found = lax.while_loop(lambda c: c[1] - c[0] > close * c[1], body, (0.0, 2 * jnp.pi, 0))
        return (found[0] + found[1]) / 2, found[2]

    return jax.vmap(solve)(eccentricity, anomaly)


def viterbi(emitted: Array, moves: Array) -> Array:
    """The likeliest states of 48 sequences: 8 states, 40 steps forth with back-pointers, 40 steps back."""

    def forth(score: Array, seen: Array) -> Array:
        through = score[:, :, None] + moves[None]
        return through.max(1) + seen, through.argmax(1).astype(jnp.int32)

    last, pointers = lax.scan(forth, emitted[0], emitted[1:])
    end = last.argmax(1).astype(jnp.int32)

    def back(state: Array, pointer: Array) -> Array:
        state = jnp.take_along_axis(pointer, state[:, None], 1)[:, 0]
        return state, state

    _, path = lax.scan(back, end, pointers, reverse=True)
    return last.max(1), jnp.concatenate([path, end[None]])


def filter_bank(signal: Array, poles: Array, radius: Array) -> Array:
    """48 resonators (biquads in direct form II transposed) over one signal of 256 samples, all outputs kept."""
    a1, a2 = -2 * radius * jnp.cos(poles), radius * radius
    gain = 1 - radius

    def body(carry: Array, x: Array) -> Array:
        one, two = carry
        y = gain * x + one
        return (two - a1 * y, -gain * x - a2 * y), y

    zeros = jnp.zeros_like(poles)
    return lax.scan(body, (zeros, zeros), signal)[1]


def nbody(count: int, steps: int) -> Any:
    """Leapfrog under gravity: every body reads all others."""

    def pull(place: Array, mass: Array) -> Array:
        apart = place[None, :, :] - place[:, None, :]
        near = (apart * apart).sum(2) + 0.05
        return (apart * (mass[None, :] * near**-1.5)[:, :, None]).sum(1)

    def program(place: Array, speed: Array, mass: Array) -> Array:
        def body(_: Array, carry: Array) -> Array:
            place, speed = carry
            speed += 0.01 * pull(place, mass)
            return place + 0.01 * speed, speed

        return lax.fori_loop(0, steps, body, (place, speed))

    places, speeds = normal(count, 3), normal(count, 3, scale=0.1)
    return program, [places, speeds, NUMBERS.uniform(0.5, 1.5, count).astype(np.float32) / count]


small_nbody, bodies = nbody(64, 50)
many_nbody, _ = nbody(65536, 50)
small_field, fields = gray_scott(32, 100)
wide_field, _ = gray_scott(1024, 100)

PROGRAMS = {
    "heston_paths": Program(heston_paths, [KEY]),
    "kalman_tracks": Program(kalman_tracks, [normal(32, 128, 2)]),
    "tsit5_lorenz": Program(
        tsit5_lorenz, [normal(3, 256), NUMBERS.uniform(10, 28, 256).astype(np.float32)]
    ),
    "gray_scott": Program(small_field, fields),
    "gru": Program(
        gru,
        [normal(24, 64, 8), normal(8, 48, scale=0.3), normal(16, 48, scale=0.3), normal(48)],
    ),
    "ising_chains": Program(ising_chains, [KEY, np.linspace(1.5, 3.5, 24, dtype=np.float32)]),
    "kepler_bisection": Program(
        kepler_bisection,
        [
            NUMBERS.uniform(0, 0.95, 1000).astype(np.float32),
            NUMBERS.uniform(0.01, 6.2, 1000).astype(np.float32),
        ],
    ),
    "viterbi": Program(viterbi, [normal(40, 48, 8), normal(8, 8)]),
    "filter_bank": Program(
        filter_bank,
        [
            normal(256),
            np.linspace(0.1, 3.0, 48, dtype=np.float32),
            NUMBERS.uniform(0.8, 0.99, 48).astype(np.float32),
        ],
    ),
    "nbody": Program(small_nbody, bodies),
    # What does not fit into one kernel: of these there is only the text.
    "gray_scott_wide": Program(wide_field, [np.zeros((1024, 1024), np.float32)] * 2, None),
    "nbody_many": Program(
        many_nbody,
        [np.zeros((65536, 3), np.float32)] * 2 + [np.zeros(65536, np.float32)],
        None,
    ),
}

if __name__ == "__main__":
    main(PROGRAMS, Path(__file__).parent)
