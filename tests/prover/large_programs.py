"""Programs of 2,000 to 5,000 instructions for the measurement of reducing, written by JAX.

    python large_programs.py FOLDER

Layers are stacked and loops are unrolled in Python, since that is how programs become large; shapes are small, so that
the interpreter runs each in seconds.  Needs JAX, and nothing of this project: it runs in the Python that has it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

_Made = tuple[Callable[..., Any], tuple[Any, ...]]


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    """Weights or data."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype) * 0.3


def descended(loss: Callable[..., Any], params: Any, *data: Any, rate: float = 0.1) -> Any:
    """Parameters after one step of gradient descent."""
    slopes = jax.grad(loss)(params, *data)
    return jax.tree.map(lambda param, slope: param - rate * slope, params, slopes)


def gru_unrolled() -> _Made:
    """A recurrent network through many steps, trained."""

    def loss(params: Any, xs: Any, target: Any) -> Any:
        state = jnp.zeros((4, 8))
        for x in xs:
            both = jnp.concatenate([x, state], axis=1)
            update, reset = (jax.nn.sigmoid(both @ params[name]) for name in ("update", "reset"))
            new = jnp.tanh(jnp.concatenate([x, reset * state], axis=1) @ params["new"])
            state = (1 - update) * state + update * new
        return jnp.mean((state - target) ** 2)

    params = {name: normal(14, 8, seed=at) for at, name in enumerate(("update", "reset", "new"))}
    step = lambda params, xs, target: descended(loss, params, xs, target)  # noqa: E731
    return step, (params, normal(48, 4, 6), normal(4, 8))


def transformer_adam() -> _Made:
    """Blocks of attention and a network, trained by Adam."""

    def norm(x: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)

    def loss(params: Any, x: Any, target: Any) -> Any:
        for p in params:
            h = norm(x)
            q, k, v = (
                (h @ p[name]).reshape(6, 2, 4).transpose(1, 0, 2) for name in ("q", "k", "v")
            )
            scores = jnp.where(jnp.tril(jnp.ones((6, 6), bool)), q @ k.transpose(0, 2, 1), -1e9)
            x = x + (jax.nn.softmax(scores) @ v).transpose(1, 0, 2).reshape(6, 8)
            x = x + jax.nn.gelu(norm(x) @ p["up"]) @ p["down"]
        return -jnp.mean(jax.nn.log_softmax(x)[jnp.arange(6), target])

    def step(params: Any, first: Any, second: Any, x: Any, target: Any) -> Any:
        slopes = jax.grad(loss)(params, x, target)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, slopes)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, slopes)
        moved = jax.tree.map(
            lambda p, m, v: p - 0.01 * m / (jnp.sqrt(v) + 1e-8), params, first, second
        )
        return moved, first, second

    shapes = {"q": (8, 8), "k": (8, 8), "v": (8, 8), "up": (8, 16), "down": (16, 8)}
    params = [{name: normal(*shape, seed=at) for name, shape in shapes.items()} for at in range(7)]
    moments = jax.tree.map(np.abs, params)
    return step, (params, moments, moments, normal(6, 8), np.arange(6, dtype=np.int32))


def convolutions_trained() -> _Made:
    """Layers of a residual network with normalised batches, trained."""

    def loss(params: Any, x: Any, labels: Any) -> Any:
        for p in params:
            h = lax.conv_general_dilated(
                x, p["k"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            mean, variance = h.mean((0, 1, 2)), h.var((0, 1, 2))
            x = x + jax.nn.relu((h - mean) / jnp.sqrt(variance + 1e-5) * p["scale"] + p["shift"])
        pooled = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return -jnp.mean(jax.nn.log_softmax(pooled.mean((1, 2)))[jnp.arange(2), labels])

    params = [
        {"k": normal(3, 3, 4, 4, seed=at), "scale": normal(4, seed=at), "shift": normal(4)}
        for at in range(24)
    ]
    step = lambda params, x, labels: descended(loss, params, x, labels)  # noqa: E731
    return step, (params, normal(2, 4, 4, 4), np.array([0, 3], np.int32))


def runge_kutta() -> _Made:
    """A pendulum on a spring by Runge and Kutta's method, and what its end depends on."""

    def slope(state: Any, k: Any) -> Any:
        length, angle, speed, turn = state
        return jnp.stack([
            speed, turn, length * turn**2 + 9.8 * jnp.cos(angle) - k * (length - 1),
            -(9.8 * jnp.sin(angle) + 2 * speed * turn) / length,
        ])  # fmt: skip

    def end(state: Any, k: Any) -> Any:
        h = 0.02
        for _ in range(9):
            a = slope(state, k)
            b = slope(state + h / 2 * a, k)
            c = slope(state + h / 2 * b, k)
            d = slope(state + h * c, k)
            state = state + h / 6 * (a + 2 * b + 2 * c + d)
        return jnp.sum(state**2)

    return jax.grad(end, argnums=(0, 1)), (np.array([1.2, 0.5, 0, 0.1], np.float32), np.float32(40))


def kalman_unrolled() -> _Made:
    """A Kalman filter over many measurements, with its log-likelihood."""

    def run(f: Any, q: Any, r: Any, zs: Any) -> Any:
        x, p, likelihood = jnp.zeros(3), jnp.eye(3), 0.0
        for z in zs:
            x, p = f @ x, f @ p @ f.T + q
            residual, s = z - x[:2], p[:2, :2] + r
            determinant = s[0, 0] * s[1, 1] - s[0, 1] * s[1, 0]
            adjugate = jnp.stack([
                jnp.stack([s[1, 1], -s[0, 1]]), jnp.stack([-s[1, 0], s[0, 0]])
            ])  # fmt: skip
            inverse = adjugate / determinant
            gain = p[:, :2] @ inverse
            x, p = x + gain @ residual, (jnp.eye(3) - gain @ jnp.eye(2, 3)) @ p
            likelihood -= 0.5 * (jnp.log(determinant) + residual @ inverse @ residual)
        return x, p, likelihood

    return run, (normal(3, 3), np.eye(3, dtype="f"), np.eye(2, dtype="f"), normal(45, 2))


def heat_stencil() -> _Made:
    """An explicit scheme for heat with a moving source: steps of slices, pads and concatenations."""

    def run(u: Any, conductivity: Any) -> Any:
        for step in range(120):
            padded = jnp.pad(u, 1, mode="edge")
            around = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
            u = u + conductivity * (around - 4 * u)
            row = jnp.where(jnp.arange(6) == step % 6, 1.0, 0.0)
            u = jnp.concatenate([u[:2], (u[2:3] + row), u[3:]])
            u = jnp.minimum(jnp.maximum(u, -5), 5)
        return u, u.sum()

    return run, (normal(6, 6), np.float32(0.1))


def message_passing() -> _Made:
    """A network on a graph: gathers and scatters of many layers, trained."""

    def loss(params: Any, nodes: Any, sources: Any, targets: Any) -> Any:
        for p in params:
            messages = jnp.tanh(nodes[sources] @ p["send"] + nodes[targets] @ p["meet"])
            score = jnp.exp(messages.sum(-1, keepdims=True) * 0.1)
            total = jax.ops.segment_sum(score, targets, 7)
            share = score / (total[targets] + 1e-6)
            gathered = jax.ops.segment_sum(messages * share, targets, 7)
            nodes = nodes + jax.nn.softplus(gathered @ p["mix"])
        return jnp.mean(nodes**2)

    shapes = {"send": (5, 5), "meet": (5, 5), "mix": (5, 5)}
    params = [{name: normal(*shape, seed=at) for name, shape in shapes.items()} for at in range(22)]
    rng = np.random.default_rng(3)
    edges = [rng.integers(0, 7, 11).astype(np.int32) for _ in range(2)]
    step = lambda params, *rest: descended(loss, params, *rest)  # noqa: E731
    return step, (params, normal(7, 5), *edges)


def half_precision() -> _Made:
    """Normalised layers in bf16 with weights in f32, trained with a scaled loss."""

    def loss(params: Any, x: Any, target: Any) -> Any:
        h = x.astype(jnp.bfloat16)
        for p in params:
            mean = h.astype(jnp.float32).mean(-1, keepdims=True)
            spread = lax.rsqrt(h.astype(jnp.float32).var(-1, keepdims=True) + 1e-5)
            h = ((h.astype(jnp.float32) - mean) * spread).astype(jnp.bfloat16)
            h = h + jax.nn.silu(h @ p["w"].astype(jnp.bfloat16) + p["b"].astype(jnp.bfloat16))
        return 128 * jnp.mean((h.astype(jnp.float32) - target) ** 2)

    def step(params: Any, x: Any, target: Any) -> Any:
        slopes = jax.grad(loss)(params, x, target)
        norm = jnp.sqrt(sum(jnp.vdot(g, g) for g in jax.tree.leaves(slopes))) / 128
        scale = jnp.minimum(1.0, 1.0 / (norm + 1e-6)) / 128
        finite = jnp.isfinite(norm)
        return jax.tree.map(lambda p, g: jnp.where(finite, p - scale * g, p), params, slopes)

    params = [{"w": normal(8, 8, seed=at), "b": normal(8, seed=at)} for at in range(20)]
    return step, (params, normal(4, 8), normal(4, 8))


def alignment() -> _Made:
    """Two sequences aligned by dynamic programming row by row, softly and hard."""

    def run(scores: Any) -> Any:
        hard = soft = jnp.full(9, -1e3).at[0].set(0.0)
        paths = jnp.zeros(9, jnp.int32)
        for row in scores:
            ahead = jnp.concatenate([jnp.array([-1e3]), hard[:-1]])
            options = jnp.stack([ahead + row, hard - 1, jnp.roll(hard, 1) - 2])
            hard, choice = options.max(0), jnp.argmax(options, 0).astype(jnp.int32)
            shifted = jnp.concatenate([jnp.array([-1e3]), soft[:-1]])
            soft = jnp.logaddexp(shifted + row, soft - 1)
            paths = paths * 3 + jnp.sort(choice)
            paths = jnp.bitwise_xor(paths, lax.shift_right_logical(paths, 3)) % 9973
        return hard, soft, paths

    return run, (normal(80, 9),)


def spectral_solver() -> _Made:
    """A wave in a periodic box: Fourier transforms of many steps."""

    def run(u: Any, frequencies: Any) -> Any:
        norms = []
        for _ in range(40):
            spectrum = jnp.fft.fft(u.astype(jnp.complex64))
            spectrum = spectrum * jnp.exp(-0.01j * frequencies**2)
            filtered = jnp.where(jnp.abs(frequencies) > 5, 0, spectrum)
            w = jnp.fft.ifft(filtered)
            u = jnp.real(w * jnp.exp(0.01j * jnp.abs(w) ** 2)) - 0.1 * jnp.imag(w)
            u = u / (1e-3 + jnp.sqrt(jnp.sum(u * u)))
            norms.append(jnp.max(jnp.abs(u)))
        return u, jnp.stack(norms)

    return run, (normal(16), np.fft.fftfreq(16, 1 / 16).astype(np.float32))


def hamiltonian_sampler() -> _Made:
    """Hamiltonian Monte Carlo: proposals of four leapfrog steps, each taken or refused."""

    def energy(x: Any, data: Any) -> Any:
        return jnp.sum(jax.nn.softplus(data @ x)) + 0.5 * x @ x

    def run(x: Any, key: Any, data: Any) -> Any:
        slope = jax.grad(energy)
        kept = []
        for number in range(20):
            momentum = jnp.sin(key * (number + 1.0))
            new, p = x, momentum
            for _ in range(4):
                p = p - 0.05 * slope(new, data)
                new = new + 0.1 * p
                p = p - 0.05 * slope(new, data)
            gain = energy(x, data) + momentum @ momentum / 2 - energy(new, data) - p @ p / 2
            taken = jnp.log(jnp.abs(jnp.cos(key[0] * number)) + 1e-3) < gain
            x = jnp.where(taken, new, x)
            kept.append(x)
        return jnp.stack(kept)

    return run, (normal(5), normal(5, seed=1), normal(8, 5))


def experts() -> _Made:
    """Layers in which the two best of four experts are chosen for each token, trained."""

    def loss(params: Any, x: Any) -> Any:
        balance = 0.0
        for p in params:
            gates = jax.nn.softmax(x @ p["gate"])
            best, chosen = lax.top_k(gates, 2)
            weights = jax.nn.one_hot(chosen, 4) * (best / best.sum(-1, keepdims=True))[..., None]
            every = jnp.einsum("td,edf->tef", x, p["up"])
            every = jnp.einsum("tef,efd->ted", jnp.where(every > 0, every, 0.01 * every), p["down"])
            x = x + jnp.einsum("tke,ted->td", weights, every)
            balance += jnp.sum(gates.mean(0) * weights.sum(1).mean(0))
        return jnp.mean(x**2) + 0.01 * balance

    shapes = {"gate": (6, 4), "up": (4, 6, 5), "down": (4, 5, 6)}
    params = [{name: normal(*shape, seed=at) for name, shape in shapes.items()} for at in range(16)]
    step = lambda params, x: descended(loss, params, x)  # noqa: E731
    return step, (params, normal(5, 6))


PROGRAMS = (
    gru_unrolled, transformer_adam, convolutions_trained, runge_kutta, kalman_unrolled, heat_stencil,
    message_passing, half_precision, alignment, spectral_solver, hamiltonian_sampler, experts,
)  # fmt: skip


def main() -> None:
    """Write each program's HLO before optimisation to ``FOLDER/NAME.hlo``."""
    for program in PROGRAMS:
        function, arguments = program()
        text = jax.jit(function).lower(*arguments).as_text(dialect="hlo")
        (Path(sys.argv[1]) / f"{program.__name__}.hlo").write_text(text)


if __name__ == "__main__":
    main()
