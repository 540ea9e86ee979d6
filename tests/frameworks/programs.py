"""Programs of JAX, written for the tests: what people train, sample, simulate and search with, at small sizes.

``programs()`` gives them by name.  Only jax, jax.numpy and NumPy are imported, so that any Python with JAX can load
this file by its path.  A program that needs several devices says how many; one for x64 has to be traced within
``jax.enable_x64``, which ``Program.tracing`` enters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

__all__ = ["Program", "programs"]


@dataclass(frozen=True)
class Program:
    """A function of JAX and arguments for it.

    donate    the numbers of donated arguments, static of static ones
    x64       whether 64-bit types are meant
    devices   how many devices it is for; 1 without a mesh
    open      symbolic shapes for ``jax.export``, as a function of no arguments; None where all are fixed
    smooth    whether the sum of its float results has a gradient by its first argument
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    donate: tuple[int, ...] = ()
    static: tuple[int, ...] = ()
    x64: bool = False
    devices: int = 1
    open: Callable[[], tuple[Any, ...]] | None = None
    smooth: bool = False

    def jitted(self) -> Any:
        """The function under ``jax.jit`` with its donated and static arguments."""
        return jax.jit(self.function, donate_argnums=self.donate, static_argnums=self.static)

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """The setting in which it is traced, lowered and called."""
        with jax.enable_x64(self.x64):
            yield


_Maker = Callable[[np.random.Generator], tuple[Any, ...]]
_MADE: dict[str, tuple[_Maker, dict[str, Any]]] = {}


def _program(**options: Any) -> Callable[[_Maker], _Maker]:
    """Registers what makes a function and its arguments with a random generator."""

    def register(make: _Maker) -> _Maker:
        _MADE[make.__name__] = make, options
        return make

    return register


def programs(devices: int = 1) -> dict[str, Program]:
    """All programs that this many devices suffice for, by name; the same arguments on every call."""
    found = {}
    for number, (name, (make, options)) in enumerate(_MADE.items()):
        if options.get("devices", 1) <= devices:
            with jax.enable_x64(options.get("x64", False)):
                function, *arguments = make(np.random.default_rng(number))
            found[name] = Program(name, function, tuple(arguments), **options)
    return found


def _normal(
    rng: np.random.Generator, *shape: int, scale: float = 1.0, dtype: Any = np.float32
) -> Any:
    return jnp.asarray((rng.standard_normal(shape) * scale).astype(dtype))


def _weight(rng: np.random.Generator, *shape: int) -> Any:
    return _normal(rng, *shape, scale=1 / math.sqrt(shape[-2] if len(shape) > 1 else shape[0]))


def _integers(rng: np.random.Generator, most: int, *shape: int) -> Any:
    return jnp.asarray(rng.integers(0, most, shape).astype(np.int32))


# ---- layers and models ----


def _rms_norm(x: Any, scale: Any) -> Any:
    return x * lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale


def _rotate(x: Any) -> Any:
    """Rotary position embedding of [batch, time, heads, width]."""
    time, width = x.shape[1], x.shape[3]
    rates = 10000.0 ** (-jnp.arange(0, width, 2) / width)
    angles = jnp.arange(time)[:, None] * rates
    sine, cosine = jnp.sin(angles)[None, :, None], jnp.cos(angles)[None, :, None]
    even, odd = x[..., ::2], x[..., 1::2]
    turned = jnp.stack([even * cosine - odd * sine, even * sine + odd * cosine], axis=-1)
    return turned.reshape(x.shape)


def _attention(q: Any, k: Any, v: Any, causal: bool = True) -> Any:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
    if causal:
        mask = jnp.tril(jnp.ones((q.shape[1], k.shape[1]), bool))
        scores = jnp.where(mask, scores, jnp.finfo(scores.dtype).min)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)


def _block(params: Any, x: Any, heads: int = 4) -> Any:
    """A decoder block: RMSNorm, attention with RoPE, SwiGLU."""
    batch, time, width = x.shape
    h = _rms_norm(x, params["norm1"])
    q, k, v = (
        (h @ params[name]).reshape(batch, time, heads, width // heads) for name in ("q", "k", "v")
    )
    x = x + _attention(_rotate(q), _rotate(k), v).reshape(x.shape) @ params["o"]
    h = _rms_norm(x, params["norm2"])
    return x + (jax.nn.silu(h @ params["gate"]) * (h @ params["up"])) @ params["down"]


def _block_params(rng: np.random.Generator, width: int = 32, inner: int = 64) -> dict[str, Any]:
    square = {name: _weight(rng, width, width) for name in ("q", "k", "v", "o")}
    return {
        **square,
        "norm1": jnp.ones(width),
        "norm2": jnp.ones(width),
        "gate": _weight(rng, width, inner),
        "up": _weight(rng, width, inner),
        "down": _weight(rng, inner, width),
    }


@_program(smooth=True)
def decoder_block(rng: np.random.Generator) -> tuple[Any, ...]:
    return _block, _block_params(rng), _normal(rng, 2, 16, 32)


def _language_model(params: Any, tokens: Any) -> Any:
    x = params["embed"][tokens]
    x, _ = lax.scan(lambda h, layer: (_block(layer, h), None), x, params["layers"])
    logits = _rms_norm(x, params["norm"]) @ params["embed"].T
    labels = jax.nn.one_hot(tokens[:, 1:], logits.shape[-1])
    return -jnp.mean(jnp.sum(labels * jax.nn.log_softmax(logits[:, :-1]), axis=-1))


def _model_params(rng: np.random.Generator) -> dict[str, Any]:
    layers = [_block_params(rng) for _ in range(3)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers)
    return {"embed": _weight(rng, 50, 32), "layers": stacked, "norm": jnp.ones(32)}


@_program(smooth=True)
def language_model_loss(rng: np.random.Generator) -> tuple[Any, ...]:
    return _language_model, _model_params(rng), _integers(rng, 50, 2, 12)


@_program(donate=(0, 1))
def language_model_step(rng: np.random.Generator) -> tuple[Any, ...]:
    def step(params: Any, momentum: Any, tokens: Any) -> Any:
        loss, gradient = jax.value_and_grad(_language_model)(params, tokens)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradient)
        return jax.tree.map(lambda p, m: p - 0.01 * m, params, momentum), momentum, loss

    params = _model_params(rng)
    return step, params, jax.tree.map(jnp.zeros_like, params), _integers(rng, 50, 2, 12)


@_program(donate=(1,))
def decode_with_cache(rng: np.random.Generator) -> tuple[Any, ...]:
    def step(params: Any, cache: Any, x: Any, position: Any) -> Any:
        def head(name: str) -> Any:
            return (x @ params[name]).reshape(2, 1, 4, 8)

        keys = lax.dynamic_update_slice(cache["k"], head("k"), (0, position, 0, 0))
        values = lax.dynamic_update_slice(cache["v"], head("v"), (0, position, 0, 0))
        scores = jnp.einsum("bqhd,bkhd->bhqk", head("q"), keys) / math.sqrt(8)
        seen = jnp.arange(keys.shape[1]) <= position
        weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
        out = jnp.einsum("bhqk,bkhd->bqhd", weights, values).reshape(2, 1, 32) @ params["o"]
        return out, {"k": keys, "v": values}

    cache = {name: jnp.zeros((2, 16, 4, 8)) for name in ("k", "v")}
    return step, _block_params(rng), cache, _normal(rng, 2, 1, 32), jnp.int32(5)


@_program(smooth=True)
def grouped_query_attention(rng: np.random.Generator) -> tuple[Any, ...]:
    def attend(q: Any, k: Any, v: Any) -> Any:
        repeated = (jnp.repeat(one, 4, axis=2) for one in (k, v))
        return _attention(q, *repeated)

    return attend, _normal(rng, 2, 10, 8, 4), _normal(rng, 2, 10, 2, 4), _normal(rng, 2, 10, 2, 4)


@_program(smooth=True)
def attention_bf16(rng: np.random.Generator) -> tuple[Any, ...]:
    def attend(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32)
        weights = jax.nn.softmax(scores / 4.0, axis=-1).astype(jnp.bfloat16)
        return jnp.einsum("bhqk,bkhd->bqhd", weights, v)

    q, k, v = (_normal(rng, 2, 8, 2, 16).astype(jnp.bfloat16) for _ in range(3))
    return attend, q, k, v


@_program(smooth=True)
def mixture_of_experts(rng: np.random.Generator) -> tuple[Any, ...]:
    def route(x: Any, gate: Any, up: Any, down: Any) -> Any:
        scores = jax.nn.softmax(x @ gate, axis=-1)
        best, chosen = lax.top_k(scores, 2)
        sent = (
            jax.nn.one_hot(chosen, scores.shape[-1])
            * (best / best.sum(-1, keepdims=True))[..., None]
        )
        share = sent.sum(axis=1)
        hidden = jax.nn.gelu(jnp.einsum("td,edf->etf", x, up))
        return jnp.einsum("etf,efd,te->td", hidden, down, share)

    return (
        route,
        _normal(rng, 12, 16),
        _weight(rng, 16, 4),
        _weight(rng, 4, 16, 32),
        _weight(rng, 4, 32, 16),
    )


@_program(smooth=True)
def encoder_layer_norm(rng: np.random.Generator) -> tuple[Any, ...]:
    def norm(x: Any, scale: Any, shift: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        return (x - mean) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale + shift

    def encode(x: Any, w1: Any, w2: Any, scale: Any, shift: Any) -> Any:
        heads = x.reshape(2, 8, 4, 8)
        x = norm(x + _attention(heads, heads, heads, causal=False).reshape(x.shape), scale, shift)
        return norm(x + jax.nn.gelu(x @ w1, approximate=False) @ w2, scale, shift)

    arguments = _weight(rng, 32, 64), _weight(rng, 64, 32), jnp.ones(32), jnp.zeros(32)
    return encode, _normal(rng, 2, 8, 32), *arguments


@_program(smooth=True)
def mlp_mixer(rng: np.random.Generator) -> tuple[Any, ...]:
    def mix(x: Any, tokens: Any, channels: Any) -> Any:
        x = x + jax.nn.gelu(jnp.swapaxes(x, 1, 2) @ tokens).swapaxes(1, 2)
        return x + jax.nn.gelu(x @ channels)

    return mix, _normal(rng, 2, 9, 16), _weight(rng, 9, 9), _weight(rng, 16, 16)


def _convolved(x: Any, kernel: Any, stride: int = 1, padding: str = "SAME") -> Any:
    return lax.conv_general_dilated(
        x, kernel, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


@_program(donate=(0,))
def convolution_training(rng: np.random.Generator) -> tuple[Any, ...]:
    def loss(params: Any, images: Any, labels: Any) -> Any:
        x = jax.nn.relu(_convolved(images, params["conv1"]))
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        x = jax.nn.relu(_convolved(x, params["conv2"], 2)).mean((1, 2)) @ params["head"]
        chosen = jnp.take_along_axis(jax.nn.log_softmax(x), labels[:, None], 1)
        return -chosen.mean()

    def step(params: Any, images: Any, labels: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(params, images, labels)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient), value

    params = {
        "conv1": _normal(rng, 3, 3, 3, 8, scale=0.2),
        "conv2": _normal(rng, 3, 3, 8, 8, scale=0.1),
        "head": _weight(rng, 8, 5),
    }
    return step, params, _normal(rng, 4, 12, 12, 3), _integers(rng, 5, 4)


@_program(smooth=True)
def residual_block(rng: np.random.Generator) -> tuple[Any, ...]:
    def block(x: Any, k1: Any, k2: Any, scale: Any) -> Any:
        def batch_norm(h: Any) -> Any:
            mean = h.mean((0, 1, 2))
            return (h - mean) * lax.rsqrt(h.var((0, 1, 2)) + 1e-5) * scale

        h = jax.nn.relu(batch_norm(_convolved(x, k1)))
        return jax.nn.relu(x + batch_norm(_convolved(h, k2)))

    kernels = _normal(rng, 3, 3, 8, 8, scale=0.1), _normal(rng, 3, 3, 8, 8, scale=0.1)
    return block, _normal(rng, 2, 8, 8, 8), *kernels, jnp.ones(8)


@_program(smooth=True)
def depthwise_and_dilated(rng: np.random.Generator) -> tuple[Any, ...]:
    def convolve(x: Any, depth: Any, wide: Any) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        x = lax.conv_general_dilated(
            x, depth, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=8
        )
        return lax.conv_general_dilated(
            x, wide, (1, 1), [(2, 2), (2, 2)], rhs_dilation=(2, 2), dimension_numbers=numbers
        )

    return (
        convolve,
        _normal(rng, 1, 9, 9, 8),
        _normal(rng, 3, 3, 1, 8),
        _normal(rng, 3, 3, 8, 4, scale=0.1),
    )


@_program(smooth=True)
def u_net_step(rng: np.random.Generator) -> tuple[Any, ...]:
    def net(x: Any, down: Any, middle: Any, up: Any) -> Any:
        kept = jax.nn.silu(_convolved(x, down))
        low = lax.reduce_window(kept, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4
        low = jax.nn.silu(_convolved(low, middle))
        high = jax.image.resize(low, kept.shape, "nearest")
        return _convolved(jnp.concatenate([kept, high], -1), up)

    kernels = [_normal(rng, 3, 3, *io, scale=0.1) for io in ((3, 8), (8, 8), (16, 3))]
    return net, _normal(rng, 1, 8, 8, 3), *kernels


@_program(smooth=True)
def transposed_convolution(rng: np.random.Generator) -> tuple[Any, ...]:
    def upsample(x: Any, kernel: Any) -> Any:
        return jnp.tanh(lax.conv_transpose(x, kernel, (2, 2), "SAME"))

    return upsample, _normal(rng, 2, 5, 5, 4), _normal(rng, 4, 4, 4, 3, scale=0.2)


@_program(smooth=True)
def lstm(rng: np.random.Generator) -> tuple[Any, ...]:
    def run(params: Any, xs: Any) -> Any:
        def cell(state: Any, x: Any) -> Any:
            h, c = state
            i, f, g, o = jnp.split(x @ params["x"] + h @ params["h"] + params["b"], 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        start = jnp.zeros((xs.shape[1], 8)), jnp.zeros((xs.shape[1], 8))
        return lax.scan(cell, start, xs)

    params = {"x": _weight(rng, 4, 32), "h": _weight(rng, 8, 32), "b": jnp.zeros(32)}
    return run, params, _normal(rng, 7, 3, 4)


@_program(smooth=True)
def linear_recurrence(rng: np.random.Generator) -> tuple[Any, ...]:
    """A state space layer by an associative scan."""

    def run(decay: Any, x: Any) -> Any:
        def join(a: Any, b: Any) -> Any:
            return a[0] * b[0], b[0] * a[1] + b[1]

        gates = jnp.broadcast_to(jax.nn.sigmoid(decay), x.shape)
        return lax.associative_scan(join, (gates, x))[1]

    return run, _normal(rng, 6), _normal(rng, 13, 6)


@_program(smooth=True)
def variational_autoencoder(rng: np.random.Generator) -> tuple[Any, ...]:
    def loss(params: Any, key: Any, x: Any) -> Any:
        mean, log_var = jnp.split(jnp.tanh(x @ params["in"]) @ params["code"], 2, axis=-1)
        z = mean + jnp.exp(log_var / 2) * jax.random.normal(key, mean.shape)
        logits = jnp.tanh(z @ params["out1"]) @ params["out2"]
        likelihood = jnp.sum(jax.nn.softplus(logits) - x * logits, -1)
        divergence = -0.5 * jnp.sum(1 + log_var - mean**2 - jnp.exp(log_var), -1)
        return jnp.mean(likelihood + divergence)

    sizes = {"in": (20, 16), "code": (16, 8), "out1": (4, 16), "out2": (16, 20)}
    params = {name: _weight(rng, *size) for name, size in sizes.items()}
    data = jnp.asarray(rng.random((6, 20)).astype(np.float32))
    return loss, params, jax.random.PRNGKey(3), data


@_program(smooth=True)
def contrastive_loss(rng: np.random.Generator) -> tuple[Any, ...]:
    def loss(images: Any, texts: Any, scale: Any) -> Any:
        def unit(x: Any) -> Any:
            return x / jnp.linalg.norm(x, axis=-1, keepdims=True)

        logits = unit(images) @ unit(texts).T * jnp.exp(scale)
        both = [jnp.diag(jax.nn.log_softmax(logits, axis)).mean() for axis in (0, 1)]
        return -sum(both) / 2

    return loss, _normal(rng, 8, 16), _normal(rng, 8, 16), jnp.float32(1.0)


@_program()
def embedding_bag(rng: np.random.Generator) -> tuple[Any, ...]:
    def bag(table: Any, tokens: Any, owners: Any) -> Any:
        total = jax.ops.segment_sum(table[tokens], owners, 4)
        counts = jax.ops.segment_sum(jnp.ones(tokens.shape), owners, 4)
        return total / jnp.maximum(counts, 1)[:, None]

    owners = jnp.asarray(np.sort(rng.integers(0, 4, 15)).astype(np.int32))
    return bag, _normal(rng, 30, 8), _integers(rng, 30, 15), owners


@_program()
def graph_network(rng: np.random.Generator) -> tuple[Any, ...]:
    def layer(nodes: Any, sources: Any, targets: Any, message: Any, update: Any) -> Any:
        sent = jax.nn.relu(jnp.concatenate([nodes[sources], nodes[targets]], -1) @ message)
        received = jax.ops.segment_sum(sent, targets, nodes.shape[0])
        best = jax.ops.segment_max(sent, targets, nodes.shape[0])
        best = jnp.where(jnp.isfinite(best), best, 0)
        return jnp.tanh(jnp.concatenate([nodes, received, best], -1) @ update)

    edges = _integers(rng, 10, 24), _integers(rng, 10, 24)
    return layer, _normal(rng, 10, 6), *edges, _weight(rng, 12, 6), _weight(rng, 18, 6)


# ---- optimisers ----


def _tree(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "w": _normal(rng, 6, 5),
        "b": _normal(rng, 5),
        "deep": [_normal(rng, 3), jnp.float32(0.5)],
    }


@_program(donate=(0, 1))
def adamw_with_clipping(rng: np.random.Generator) -> tuple[Any, ...]:
    def step(params: Any, state: Any, gradient: Any) -> Any:
        norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(gradient)))
        gradient = jax.tree.map(lambda g: g * jnp.minimum(1.0, 1.0 / norm), gradient)
        count = state["count"] + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["m"], gradient)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, state["v"], gradient)
        rate = 1e-3 * jnp.minimum(1.0, count / 100)
        late = 1 - 0.9**count, 1 - 0.999**count

        def moved(p: Any, m: Any, v: Any) -> Any:
            return p - rate * (m / late[0] / (jnp.sqrt(v / late[1]) + 1e-8) + 0.01 * p)

        return jax.tree.map(moved, params, m, v), {"m": m, "v": v, "count": count}

    params = _tree(rng)
    zeros = jax.tree.map(jnp.zeros_like, params)
    state = {"m": zeros, "v": jax.tree.map(jnp.zeros_like, params), "count": jnp.int32(0)}
    return step, params, state, _tree(rng)


@_program(donate=(0, 1))
def lion(rng: np.random.Generator) -> tuple[Any, ...]:
    def step(params: Any, momentum: Any, gradient: Any) -> Any:
        signs = jax.tree.map(lambda m, g: jnp.sign(0.9 * m + 0.1 * g), momentum, gradient)
        momentum = jax.tree.map(lambda m, g: 0.99 * m + 0.01 * g, momentum, gradient)
        return jax.tree.map(lambda p, s: p - 1e-4 * (s + 0.1 * p), params, signs), momentum

    return step, _tree(rng), _tree(rng), _tree(rng)


@_program(donate=(0,))
def adafactor(rng: np.random.Generator) -> tuple[Any, ...]:
    def step(p: Any, rows: Any, columns: Any, g: Any) -> Any:
        squared = g * g + 1e-30
        rows = 0.9 * rows + 0.1 * squared.mean(-1)
        columns = 0.9 * columns + 0.1 * squared.mean(-2)
        estimate = rows[:, None] * columns[None] / rows.mean()
        update = g * lax.rsqrt(estimate)
        update /= jnp.maximum(1.0, jnp.sqrt(jnp.mean(update**2)))
        return p - 0.01 * update, rows, columns

    return step, _normal(rng, 6, 8), jnp.ones(6), jnp.ones(8), _normal(rng, 6, 8)


@_program()
def muon(rng: np.random.Generator) -> tuple[Any, ...]:
    """An update made orthogonal by Newton and Schulz's iteration."""

    def step(p: Any, g: Any) -> Any:
        a, b, c = 3.4445, -4.7750, 2.0315
        x = g / (jnp.linalg.norm(g) + 1e-7)

        def iterate(_: Any, x: Any) -> Any:
            square = x @ x.T
            return a * x + (b * square + c * square @ square) @ x

        return p - 0.02 * lax.fori_loop(0, 5, iterate, x)

    return step, _normal(rng, 6, 10), _normal(rng, 6, 10)


@_program()
def conjugate_gradients(rng: np.random.Generator) -> tuple[Any, ...]:
    def solve(a: Any, b: Any) -> Any:
        def go_on(state: Any) -> Any:
            return (state[3] > 1e-8) & (state[4] < 20)

        def step(state: Any) -> Any:
            x, r, p, rr, count = state
            ap = a @ p
            alpha = rr / (p @ ap)
            r = r - alpha * ap
            new = r @ r
            return x + alpha * p, r, r + new / rr * p, new, count + 1

        start = (jnp.zeros_like(b), b, b, b @ b, 0)
        return lax.while_loop(go_on, step, start)[0]

    m = rng.standard_normal((8, 8)).astype(np.float32)
    return solve, jnp.asarray(m @ m.T + 8 * np.eye(8, dtype=np.float32)), _normal(rng, 8)


@_program()
def line_search(rng: np.random.Generator) -> tuple[Any, ...]:
    def search(x: Any, target: Any) -> Any:
        def f(x: Any) -> Any:
            return jnp.sum((x - target) ** 2) + jnp.sum(jnp.cos(x))

        value, gradient = jax.value_and_grad(f)(x)

        def too_far(rate: Any) -> Any:
            return (f(x - rate * gradient) > value - 0.1 * rate * gradient @ gradient) & (
                rate > 1e-6
            )

        rate = lax.while_loop(too_far, lambda rate: rate / 2, jnp.float32(4.0))
        return x - rate * gradient, rate

    return search, _normal(rng, 7), _normal(rng, 7)


# ---- sampling, search, simulation ----


@_program()
def diffusion_step(rng: np.random.Generator) -> tuple[Any, ...]:
    def step(params: Any, x: Any, t: Any, key: Any) -> Any:
        betas = jnp.linspace(1e-4, 0.02, 50)
        kept = jnp.cumprod(1 - betas)
        time = jnp.concatenate([jnp.sin(t * jnp.arange(1, 9)), jnp.cos(t * jnp.arange(1, 9))])
        noise = jnp.tanh(x @ params["x"] + time @ params["t"]) @ params["out"]
        mean = (x - betas[t] / jnp.sqrt(1 - kept[t]) * noise) / jnp.sqrt(1 - betas[t])
        return mean + jnp.where(t > 0, jnp.sqrt(betas[t]), 0) * jax.random.normal(key, x.shape)

    params = {"x": _weight(rng, 12, 16), "t": _weight(rng, 16, 16), "out": _weight(rng, 16, 12)}
    return step, params, _normal(rng, 4, 12), jnp.int32(7), jax.random.PRNGKey(0)


@_program(static=(2,))
def diffusion_sampler(rng: np.random.Generator) -> tuple[Any, ...]:
    def sample(w: Any, key: Any, steps: int) -> Any:
        def step(x: Any, t: Any) -> Any:
            t, key = t
            noise = jax.random.normal(key, x.shape)
            return x - 0.1 * jnp.tanh(x @ w) * t + 0.05 * noise, jnp.abs(x).max()

        keys = jax.random.split(key, steps + 1)
        start = jax.random.normal(keys[-1], (3, 6))
        return lax.scan(step, start, (jnp.linspace(1, 0, steps), keys[:-1]))

    return sample, _weight(rng, 6, 6), jax.random.PRNGKey(1), 5


@_program()
def beam_search(rng: np.random.Generator) -> tuple[Any, ...]:
    def search(table: Any, start: Any) -> Any:
        beams, vocabulary, length = 3, table.shape[0], 6

        def grow(position: Any, state: Any) -> Any:
            tokens, scores = state
            last = tokens[:, position - 1]
            options = scores[:, None] + jax.nn.log_softmax(table[last])
            scores, flat = lax.top_k(options.reshape(-1), beams)
            tokens = tokens[flat // vocabulary]
            return tokens.at[:, position].set(flat % vocabulary), scores

        tokens = jnp.zeros((beams, length), jnp.int32).at[:, 0].set(start)
        scores = jnp.where(jnp.arange(beams) == 0, 0.0, -jnp.inf)
        return lax.fori_loop(1, length, grow, (tokens, scores))

    return search, _normal(rng, 9, 9), jnp.int32(4)


@_program()
def nucleus_sampling(rng: np.random.Generator) -> tuple[Any, ...]:
    def sample(logits: Any, key: Any) -> Any:
        order = jnp.argsort(-logits)
        kept = jnp.cumsum(jax.nn.softmax(logits[order])) <= 0.9
        kept = kept.at[0].set(True)
        masked = (
            jnp.full_like(logits, -jnp.inf).at[order].set(jnp.where(kept, logits[order], -jnp.inf))
        )
        return jax.random.categorical(key, masked), kept.sum()

    return sample, _normal(rng, 20), jax.random.PRNGKey(5)


@_program()
def random_draws(rng: np.random.Generator) -> tuple[Any, ...]:
    def draw(key: Any) -> Any:
        a, b, c, d = jax.random.split(key, 4)
        return (
            jax.random.uniform(a, (5,)),
            jax.random.bernoulli(b, 0.3, (5,)),
            jax.random.permutation(c, 10),
            jax.random.randint(d, (4,), -3, 9),
        )

    return draw, jax.random.PRNGKey(9)


@_program()
def metropolis(rng: np.random.Generator) -> tuple[Any, ...]:
    def chain(key: Any, start: Any) -> Any:
        def density(x: Any) -> Any:
            return -0.5 * jnp.sum(x * x) + jnp.log1p(jnp.exp(-jnp.sum(x)))

        def step(x: Any, key: Any) -> Any:
            one, two = jax.random.split(key)
            proposal = x + 0.5 * jax.random.normal(one, x.shape)
            accept = jnp.log(jax.random.uniform(two)) < density(proposal) - density(x)
            x = jnp.where(accept, proposal, x)
            return x, (x, accept)

        return lax.scan(step, start, jax.random.split(key, 8))

    return chain, jax.random.PRNGKey(2), _normal(rng, 3)


@_program()
def kalman_filter(rng: np.random.Generator) -> tuple[Any, ...]:
    def run(measured: Any) -> Any:
        f = jnp.array([[1.0, 0.1], [0.0, 1.0]])
        h = jnp.array([[1.0, 0.0]])
        q, r = 0.01 * jnp.eye(2), jnp.array([[0.1]])

        def step(state: Any, z: Any) -> Any:
            mean, cov = state
            mean, cov = f @ mean, f @ cov @ f.T + q
            s = h @ cov @ h.T + r
            gain = cov @ h.T / s
            mean = mean + gain @ (z - h @ mean)
            return (mean, (jnp.eye(2) - gain @ h) @ cov), mean

        return lax.scan(step, (jnp.zeros(2), jnp.eye(2)), measured)

    return run, _normal(rng, 12, 1)


@_program(smooth=True)
def runge_kutta(rng: np.random.Generator) -> tuple[Any, ...]:
    def solve(start: Any, rates: Any) -> Any:
        def slope(y: Any) -> Any:
            x, y, z = y
            return jnp.stack([rates[0] * (y - x), x * (rates[1] - z) - y, x * y - rates[2] * z])

        def step(y: Any, _: Any) -> Any:
            h = 0.01
            k1 = slope(y)
            k2 = slope(y + h / 2 * k1)
            k3 = slope(y + h / 2 * k2)
            k4 = slope(y + h * k3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            return y, y

        return lax.scan(step, start, None, length=20)

    return solve, _normal(rng, 3), jnp.array([10.0, 28.0, 8 / 3])


@_program()
def adaptive_ode(rng: np.random.Generator) -> tuple[Any, ...]:
    def solve(y: Any, end: Any) -> Any:
        def slope(y: Any) -> Any:
            return jnp.stack([y[1], 0.5 * (1 - y[0] ** 2) * y[1] - y[0]])

        def step(state: Any) -> Any:
            t, y, h, count = state
            h = jnp.minimum(h, end - t)
            k1 = slope(y)
            k2 = slope(y + h * k1)
            error = jnp.max(jnp.abs(h / 2 * (k2 - k1)))
            good = error < 1e-3
            grown = h * jnp.clip(0.9 * jnp.sqrt(1e-3 / (error + 1e-12)), 0.3, 2.0)
            moved = y + h / 2 * (k1 + k2)
            return jnp.where(good, t + h, t), jnp.where(good, moved, y), grown, count + 1

        def go_on(state: Any) -> Any:
            return (state[0] < end - 1e-6) & (state[3] < 60)

        return lax.while_loop(go_on, step, (jnp.float32(0), y, jnp.float32(0.1), 0))

    return solve, _normal(rng, 2), jnp.float32(1.0)


@_program()
def heat_equation(rng: np.random.Generator) -> tuple[Any, ...]:
    def run(u: Any) -> Any:
        def step(_: Any, u: Any) -> Any:
            padded = jnp.pad(u, 1, mode="edge")
            around = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
            return u + 0.1 * (around - 4 * u)

        return lax.fori_loop(0, 10, step, u)

    return run, _normal(rng, 10, 12)


@_program()
def spectral_step(rng: np.random.Generator) -> tuple[Any, ...]:
    def step(u: Any) -> Any:
        waves = jnp.fft.rfftn(u)
        k = jnp.fft.fftfreq(u.shape[0])[:, None] ** 2 + jnp.fft.rfftfreq(u.shape[1])[None] ** 2
        return jnp.fft.irfftn(waves * jnp.exp(-20 * k), u.shape), jnp.abs(waves)

    return step, _normal(rng, 8, 16)


@_program(smooth=True)
def n_body(rng: np.random.Generator) -> tuple[Any, ...]:
    def step(x: Any, v: Any) -> Any:
        away = x[:, None] - x[None]
        pull = -away / (jnp.sum(away**2, -1, keepdims=True) + 0.1) ** 1.5
        v = v + 0.01 * pull.sum(1)
        return x + 0.01 * v, v

    return step, _normal(rng, 9, 3), _normal(rng, 9, 3)


@_program()
def game_of_life(rng: np.random.Generator) -> tuple[Any, ...]:
    def step(board: Any) -> Any:
        around = sum(
            jnp.roll(board, (dy, dx), (0, 1))
            for dy in (-1, 0, 1)
            for dx in (-1, 0, 1)
            if (dy, dx) != (0, 0)
        )
        return ((around == 3) | ((board == 1) & (around == 2))).astype(jnp.int32)

    return step, _integers(rng, 2, 9, 9)


@_program()
def edit_distance(rng: np.random.Generator) -> tuple[Any, ...]:
    def distance(a: Any, b: Any) -> Any:
        def row(above: Any, letter: Any) -> Any:
            def cell(left: Any, column: Any) -> Any:
                up, diagonal, other = column
                best = jnp.minimum(jnp.minimum(up, left) + 1, diagonal + (other != letter))
                return best, best

            first = above[0] + 1
            _, rest = lax.scan(cell, first, (above[1:], above[:-1], b))
            return jnp.concatenate([first[None], rest]), None

        return lax.scan(row, jnp.arange(b.shape[0] + 1), a)[0][-1]

    return distance, _integers(rng, 4, 7), _integers(rng, 4, 9)


@_program()
def bit_mixing(rng: np.random.Generator) -> tuple[Any, ...]:
    def mix(x: Any) -> Any:
        x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
        x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
        x = x ^ (x >> 16)
        return x, lax.population_count(x), lax.clz(x), lax.bitcast_convert_type(x, jnp.float32) > 0

    return mix, jnp.asarray(rng.integers(0, 1 << 32, 11, dtype=np.uint32))


@_program()
def sorting_and_searching(rng: np.random.Generator) -> tuple[Any, ...]:
    def find(x: Any, keys: Any) -> Any:
        order = jnp.argsort(x)
        ranked = x[order]
        both = lax.sort((jnp.round(x), x), num_keys=2)
        return ranked, jnp.searchsorted(ranked, keys), both, jnp.median(x), lax.cummax(x)

    return find, _normal(rng, 17), _normal(rng, 5)


@_program()
def histogram(rng: np.random.Generator) -> tuple[Any, ...]:
    def count(x: Any) -> Any:
        counts, edges = jnp.histogram(x, bins=6, range=(-2, 2))
        return counts, edges, jnp.bincount(jnp.clip(x.astype(jnp.int32) + 2, 0, 4), length=5)

    return count, _normal(rng, 40)


@_program()
def ray_marching(rng: np.random.Generator) -> tuple[Any, ...]:
    def render(origins: Any, directions: Any) -> Any:
        def march(origin: Any, direction: Any) -> Any:
            def step(t: Any, _: Any) -> Any:
                place = origin + t * direction
                return t + jnp.minimum(jnp.linalg.norm(place) - 1.0, place[2] + 1.5), None

            t, _ = lax.scan(step, jnp.float32(0), None, length=12)
            return jnp.where(t < 20, 1 / (1 + t), 0)

        return jax.vmap(march)(
            origins, directions / jnp.linalg.norm(directions, axis=-1, keepdims=True)
        )

    return render, _normal(rng, 12, 3) + jnp.array([0.0, 0.0, 4.0]), _normal(rng, 12, 3)


@_program()
def pole_balancing(rng: np.random.Generator) -> tuple[Any, ...]:
    def roll_out(weights: Any, start: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            x, dx, angle, turning, alive = state
            force = jnp.where(jnp.stack([x, dx, angle, turning]) @ weights > 0, 10.0, -10.0)
            sine, cosine = jnp.sin(angle), jnp.cos(angle)
            push = (force + 0.05 * turning**2 * sine) / 1.1
            spin = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
            speed = push - 0.05 * spin * cosine / 1.1
            alive = alive & (jnp.abs(x) < 2.4) & (jnp.abs(angle) < 0.2)
            moved = x + 0.02 * dx, dx + 0.02 * speed, angle + 0.02 * turning, turning + 0.02 * spin
            return (*moved, alive), alive

        state = (*jnp.unstack(start), jnp.bool_(True))
        return lax.scan(step, state, None, length=15)[1].sum()

    return jax.vmap(roll_out), _normal(rng, 5, 4), _normal(rng, 5, 4, scale=0.05)


@_program()
def dispatch(rng: np.random.Generator) -> tuple[Any, ...]:
    def choose(index: Any, x: Any) -> Any:
        inner = lax.cond(x.sum() > 0, jnp.tanh, lambda y: y * 2, x)
        return lax.switch(index, [jnp.sin, jnp.cos, lambda y: y @ y.T @ y], inner)

    return choose, jnp.int32(2), _normal(rng, 4, 4)


# ---- linear algebra, types, JAX's own features ----


@_program()
def cholesky_solve(rng: np.random.Generator) -> tuple[Any, ...]:
    def posterior(x: Any, y: Any, at: Any) -> Any:
        def kernel(a: Any, b: Any) -> Any:
            return jnp.exp(-0.5 * jnp.sum((a[:, None] - b[None]) ** 2, -1))

        factor = jnp.linalg.cholesky(kernel(x, x) + 0.1 * jnp.eye(x.shape[0]))
        half = jax.scipy.linalg.solve_triangular(factor, kernel(x, at), lower=True)
        mean = half.T @ jax.scipy.linalg.solve_triangular(factor, y, lower=True)
        return mean, jnp.sum(jnp.log(jnp.diag(factor)))

    return posterior, _normal(rng, 8, 2), _normal(rng, 8), _normal(rng, 3, 2)


@_program(x64=True)
def newton_f64(rng: np.random.Generator) -> tuple[Any, ...]:
    def step(x: Any) -> Any:
        def f(x: Any) -> Any:
            return jnp.sum(jnp.log1p(jnp.exp(x))) + 0.5 * x @ x

        return x - jnp.linalg.solve(jax.hessian(f)(x), jax.grad(f)(x))

    return step, _normal(rng, 5, dtype=np.float64)


@_program(x64=True)
def integers_64(rng: np.random.Generator) -> tuple[Any, ...]:
    def mixed(x: Any, y: Any) -> Any:
        product = x * y % 1_000_003
        return (
            product,
            jnp.cumsum(product),
            lax.div(x, y + 7),
            (x << 3) ^ y,
            x.astype(jnp.float64) / 3,
        )

    values = (jnp.asarray(rng.integers(1, 1 << 40, 9)) for _ in range(2))
    return mixed, *values


@_program(smooth=True)
def mixed_precision_step(rng: np.random.Generator) -> tuple[Any, ...]:
    def loss(params: Any, x: Any, y: Any) -> Any:
        half = jax.tree.map(lambda p: p.astype(jnp.bfloat16), params)
        hidden = jax.nn.relu(x.astype(jnp.bfloat16) @ half["w1"])
        return jnp.mean(((hidden @ half["w2"]).astype(jnp.float32) - y) ** 2)

    params = {"w1": _weight(rng, 8, 16), "w2": _weight(rng, 16, 2)}
    return loss, params, _normal(rng, 6, 8), _normal(rng, 6, 2)


@_program()
def quantised_dot(rng: np.random.Generator) -> tuple[Any, ...]:
    def multiply(x: Any, w: Any, scale: Any) -> Any:
        step = jnp.max(jnp.abs(x), -1, keepdims=True) / 127
        small = jnp.round(x / step).astype(jnp.int8)
        total = lax.dot_general(
            small, w, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32
        )
        return total.astype(jnp.float32) * step * scale

    w = jnp.asarray(rng.integers(-127, 128, (16, 6)).astype(np.int8))
    return multiply, _normal(rng, 4, 16), w, jnp.float32(0.01)


@_program()
def complex_signal(rng: np.random.Generator) -> tuple[Any, ...]:
    def process(x: Any) -> Any:
        turned = x * jnp.exp(1j * jnp.angle(x))
        return jnp.abs(turned), turned.real, jnp.conj(x) @ x, jnp.fft.ifft(turned)

    return process, _normal(rng, 8) + 1j * _normal(rng, 8)


@_program(smooth=True)
def special_functions(rng: np.random.Generator) -> tuple[Any, ...]:
    def apply(x: Any) -> Any:
        u = jax.nn.sigmoid(x)
        erf = jax.scipy.special.erf(x) + jax.scipy.special.erfinv(u * 1.8 - 0.9)
        return (
            erf,
            lax.lgamma(u + 1),
            lax.digamma(u + 1),
            jnp.arctan2(x, u),
            jnp.cbrt(x),
            jnp.expm1(x),
        )

    return apply, _normal(rng, 10)


@_program()
def checkpointed_gradient(rng: np.random.Generator) -> tuple[Any, ...]:
    def gradient(params: Any, x: Any) -> Any:
        @jax.checkpoint
        def layer(x: Any, w: Any) -> Any:
            return jnp.tanh(x @ w)

        def loss(params: Any) -> Any:
            h = x
            for w in params:
                h = layer(h, w)
            return jnp.sum(h**2)

        return jax.grad(loss)(params)

    return gradient, [_weight(rng, 6, 6) for _ in range(3)], _normal(rng, 4, 6)


@_program(smooth=True)
def own_gradient(rng: np.random.Generator) -> tuple[Any, ...]:
    @jax.custom_vjp
    def clipped(x: Any) -> Any:
        return x * 2

    clipped.defvjp(lambda x: (x * 2, None), lambda _, g: (jnp.clip(g, -0.1, 0.1),))

    def apply(x: Any) -> Any:
        return clipped(jnp.sin(x)) ** 2

    return apply, _normal(rng, 9)


@_program()
def jacobians(rng: np.random.Generator) -> tuple[Any, ...]:
    def both(x: Any, w: Any) -> Any:
        def f(x: Any) -> Any:
            return jnp.tanh(w @ x) * x.sum()

        return jax.jacfwd(f)(x), jax.jacrev(f)(x), jax.jvp(f, (x,), (jnp.ones_like(x),))

    return both, _normal(rng, 5), _normal(rng, 4, 5)


@_program()
def composite_op(rng: np.random.Generator) -> tuple[Any, ...]:
    norm = lax.composite(_rms_norm, name="hloopt_tests.rms_norm", version=1)

    def apply(x: Any, scale: Any) -> Any:
        return norm(x, scale) + norm(x * 2, scale)

    return apply, _normal(rng, 4, 8), jnp.ones(8)


@_program()
def nested_functions(rng: np.random.Generator) -> tuple[Any, ...]:
    @jax.jit
    def inner(x: Any) -> Any:
        return jnp.sin(x) + 1

    def outer(x: Any, names: Any) -> Any:
        with jax.named_scope("first half"):
            y = inner(x)
        return {"sum": inner(y).sum(), "kept": (names["a"], [y])}

    return outer, _normal(rng, 6), {"a": _normal(rng, 2), "b": jnp.float32(1)}


@_program()
def unused_and_empty(rng: np.random.Generator) -> tuple[Any, ...]:
    def apply(x: Any, unused: Any, empty: Any) -> Any:
        return x[:0], jnp.concatenate([empty, x]), jnp.float32(1)

    return apply, _normal(rng, 3), _normal(rng, 4), jnp.zeros(0)


@_program()
def slicing(rng: np.random.Generator) -> tuple[Any, ...]:
    def cut(x: Any, start: Any, rows: Any) -> Any:
        window = lax.dynamic_slice(x, (start, 1), (3, 4))
        x = x.at[rows].add(1.0).at[0, ::2].set(-1.0)
        return (
            window,
            x[::-1, 1:-1:2],
            jnp.take(x, rows, axis=0, mode="clip"),
            jnp.flip(x, 1),
            x[rows, rows % 6],
        )

    return cut, _normal(rng, 8, 6), jnp.int32(3), _integers(rng, 8, 4)


# ---- open sizes ----


def _symbols(*specs: str) -> Any:
    from jax import export

    scope = export.SymbolicScope()
    return tuple(
        jax.ShapeDtypeStruct(export.symbolic_shape(spec, scope=scope), jnp.float32)
        for spec in specs
    )


@_program(open=lambda: _symbols("b, 16", "16, 8", "8"))
def dense_open_batch(rng: np.random.Generator) -> tuple[Any, ...]:
    def dense(x: Any, w: Any, b: Any) -> Any:
        return jax.nn.relu(x @ w + b)

    return dense, _normal(rng, 5, 16), _weight(rng, 16, 8), _normal(rng, 8)


@_program(open=lambda: _symbols("b, t, 8"))
def attention_open_time(rng: np.random.Generator) -> tuple[Any, ...]:
    def attend(x: Any) -> Any:
        heads = x.reshape(x.shape[0], x.shape[1], 2, 4)
        return _attention(heads, heads, heads).reshape(x.shape).mean(axis=1)

    return attend, _normal(rng, 3, 6, 8)


# ---- several devices ----


def _mesh(*axes: tuple[str, int]) -> Any:
    sizes, names = [size for _, size in axes], [name for name, _ in axes]
    devices = jax.devices()[: math.prod(sizes)]
    return jax.make_mesh(sizes, names, axis_types=(AxisType.Auto,) * len(axes), devices=devices)


def _placed(mesh: Any, array: Any, *axes: Any) -> Any:
    return jax.device_put(array, NamedSharding(mesh, P(*axes)))


@_program(devices=4)
def data_parallel_step(rng: np.random.Generator) -> tuple[Any, ...]:
    mesh = _mesh(("data", 4))

    @partial(jax.shard_map, mesh=mesh, in_specs=(P(), P("data"), P("data")), out_specs=(P(), P()))
    def step(w: Any, x: Any, y: Any) -> Any:
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(w)
        return w - 0.1 * lax.pmean(gradient, "data"), lax.pmean(loss, "data")

    arguments = _placed(mesh, _weight(rng, 6, 2)), _placed(mesh, _normal(rng, 8, 6), "data")
    return step, *arguments, _placed(mesh, _normal(rng, 8, 2), "data")


@_program(devices=4)
def tensor_parallel_mlp(rng: np.random.Generator) -> tuple[Any, ...]:
    mesh = _mesh(("model", 4))

    @partial(jax.shard_map, mesh=mesh, in_specs=(P(), P(None, "model"), P("model")), out_specs=P())
    def mlp(x: Any, up: Any, down: Any) -> Any:
        return lax.psum(jax.nn.gelu(x @ up) @ down, "model")

    up, down = (
        _placed(mesh, _weight(rng, 8, 16), None, "model"),
        _placed(mesh, _weight(rng, 16, 8), "model"),
    )
    return mlp, _placed(mesh, _normal(rng, 4, 8)), up, down


@_program(devices=4)
def ring_shift(rng: np.random.Generator) -> tuple[Any, ...]:
    mesh = _mesh(("ring", 4))

    @partial(jax.shard_map, mesh=mesh, in_specs=P("ring"), out_specs=(P("ring"), P("ring")))
    def shift(x: Any) -> Any:
        moved = lax.ppermute(x, "ring", [(i, (i + 1) % 4) for i in range(4)])
        return moved, lax.psum_scatter(jnp.tile(x, (4, 1)), "ring", tiled=True)

    return shift, _placed(mesh, _normal(rng, 8, 3), "ring")


@_program(devices=4)
def expert_exchange(rng: np.random.Generator) -> tuple[Any, ...]:
    mesh = _mesh(("expert", 4))

    @partial(jax.shard_map, mesh=mesh, in_specs=(P("expert"), P("expert")), out_specs=P("expert"))
    def exchange(x: Any, w: Any) -> Any:
        sent = lax.all_to_all(x, "expert", 0, 0, tiled=True)
        worked = jnp.tanh(sent @ w[0]) + lax.axis_index("expert")
        return lax.all_to_all(worked, "expert", 0, 0, tiled=True)

    return (
        exchange,
        _placed(mesh, _normal(rng, 16, 5), "expert"),
        _placed(mesh, _weight(rng, 4, 5, 5), "expert"),
    )


@_program(devices=8)
def sharded_constraint(rng: np.random.Generator) -> tuple[Any, ...]:
    mesh = _mesh(("a", 4), ("b", 2))

    def multiply(x: Any, w: Any) -> Any:
        return lax.with_sharding_constraint(jnp.tanh(x @ w), NamedSharding(mesh, P("a", "b"))).sum(
            0
        )

    return (
        multiply,
        _placed(mesh, _normal(rng, 8, 16), "a"),
        _placed(mesh, _weight(rng, 16, 8), None, "b"),
    )
