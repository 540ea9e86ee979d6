"""Programs of JAX whose plans are held against XLA's; only jax, jax.numpy and NumPy are imported.

``programs()`` gives for each name a function and the shapes and types of its arguments: a few arrays of the sizes that
people compute with, since plans depend on sizes and nothing is run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import erf, gammaln, logsumexp

__all__ = ["Program", "programs"]

Program: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...]]

_MADE: dict[str, Program] = {}


def _a(*dims: int, t: Any = jnp.float32) -> Any:
    return jax.ShapeDtypeStruct(dims, t)


def program(*arguments: Any, name: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function with its arguments, and its gradient where ``grad`` is in the name's ending."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _MADE[name or function.__name__] = function, arguments
        return function

    return register


def gradient(name: str, *numbers: int) -> None:
    """Register the gradient of a program's mean by some of its arguments as ``NAME_grad``."""
    function, arguments = _MADE[name]
    _MADE[f"{name}_grad"] = jax.grad(lambda *a: jnp.mean(function(*a)), numbers or (0,)), arguments


BF16, F16, F8, I8, I4, I32 = (
    jnp.bfloat16, jnp.float16, jnp.float8_e4m3fn, jnp.int8, jnp.int4, jnp.int32,
)  # fmt: skip

# ---- rows ------------------------------------------------------------------------------------------------


@program(_a(512, 384))
def softmax_rows(x: Any) -> Any:
    return jax.nn.softmax(x, -1)


@program(_a(64, 12, 197, 197, t=F16))
def softmax_scores_f16(x: Any) -> Any:
    return jax.nn.softmax(x.astype(jnp.float32) * 0.125, -1).astype(F16)


@program(_a(256, 768), _a(768), _a(768))
def layer_norm(x: Any, g: Any, b: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    var = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(var + 1e-5) * g + b


gradient("layer_norm", 0, 1, 2)


@program(_a(4, 256, 1024, t=BF16), _a(4, 256, 1024, t=BF16), _a(1024))
def residual_rms_norm(x: Any, y: Any, g: Any) -> Any:
    z = x + y
    w = z.astype(jnp.float32)
    return z, (w * lax.rsqrt(jnp.mean(w * w, -1, keepdims=True) + 1e-6) * g).astype(BF16)


@program(_a(32, 50, 640), _a(640), _a(640))
def group_norm(x: Any, g: Any, b: Any) -> Any:
    w = x.reshape(32, 50, 32, 20)
    mean, var = w.mean((1, 3), keepdims=True), w.var((1, 3), keepdims=True)
    return ((w - mean) / jnp.sqrt(var + 1e-5)).reshape(x.shape) * g + b


@program(_a(16, 28, 28, 64), _a(64), _a(64))
def batch_norm(x: Any, g: Any, b: Any) -> Any:
    mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
    return jax.nn.relu((x - mean) * lax.rsqrt(var + 1e-5) * g + b), mean, var


@program(_a(2048, 300))
def standardise_columns(x: Any) -> Any:
    return (x - x.mean(0)) / (x.std(0) + 1e-6)


@program(_a(1024, 96))
def l2_normalise(x: Any) -> Any:
    return x / jnp.maximum(jnp.linalg.norm(x, axis=-1, keepdims=True), 1e-12)


@program(_a(128, 2000))
def log_softmax_entropy(x: Any) -> Any:
    p = jax.nn.log_softmax(x)
    return -(jnp.exp(p) * p).sum(-1)


# ---- losses ----------------------------------------------------------------------------------------------


@program(_a(256, 1000), _a(256, t=I32))
def cross_entropy(x: Any, y: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).mean()


gradient("cross_entropy")


@program(_a(512, 100), _a(512, 100))
def smooth_cross_entropy(x: Any, y: Any) -> Any:
    target = 0.9 * y + 0.1 / 100
    return -(target * jax.nn.log_softmax(x)).sum(-1).mean()


gradient("smooth_cross_entropy")


@program(_a(4096), _a(4096))
def huber(x: Any, y: Any) -> Any:
    d = jnp.abs(x - y)
    return jnp.where(d < 1, 0.5 * d * d, d - 0.5).mean()


gradient("huber")


@program(_a(128, 64), _a(128, 64))
def contrastive(x: Any, y: Any) -> Any:
    x, y = (v / jnp.linalg.norm(v, axis=1, keepdims=True) for v in (x, y))
    s = x @ y.T / 0.07
    return -(jnp.diag(jax.nn.log_softmax(s, 0)) + jnp.diag(jax.nn.log_softmax(s, 1))).mean()


gradient("contrastive", 0, 1)


@program(_a(8, 64, 64, 21), _a(8, 64, 64, t=I32))
def dice_loss(x: Any, y: Any) -> Any:
    p, t = jax.nn.softmax(x), jax.nn.one_hot(y, 21)
    both, either = (p * t).sum((1, 2)), (p + t).sum((1, 2))
    return 1 - ((2 * both + 1) / (either + 1)).mean()


gradient("dice_loss")


@program(_a(1000), _a(1000), _a(1000, t=jnp.bool_))
def focal_loss(x: Any, w: Any, y: Any) -> Any:
    p = jax.nn.sigmoid(x)
    return (w * jnp.where(y, -((1 - p) ** 2) * jnp.log(p), -(p**2) * jnp.log(1 - p))).sum()


# ---- optimisers ------------------------------------------------------------------------------------------

_LAYERS = tuple(_a(*dims) for dims in ((784, 128), (128,), (128, 64), (64,), (64, 10), (10,)))


@program(_LAYERS, _LAYERS, _LAYERS)
def clipped_momentum(p: Any, m: Any, g: Any) -> Any:
    norm = jnp.sqrt(sum(jnp.vdot(leaf, leaf) for leaf in g))
    g = jax.tree.map(lambda leaf: leaf * jnp.minimum(1.0, 1 / norm), g)
    m = jax.tree.map(lambda a, b: 0.9 * a + b, m, g)
    return jax.tree.map(lambda a, b: a - 0.01 * b, p, m), m


@program(_LAYERS, _LAYERS, _LAYERS, _LAYERS, _a(t=I32))
def adam_w(p: Any, m: Any, v: Any, g: Any, step: Any) -> Any:
    m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
    v = jax.tree.map(lambda a, b: 0.999 * a + 0.001 * b * b, v, g)
    one, two = 1 - 0.9 ** (step + 1), 1 - 0.999 ** (step + 1)
    new = jax.tree.map(
        lambda a, b, c: a - 1e-3 * (b / one / (jnp.sqrt(c / two) + 1e-8) + 0.01 * a), p, m, v
    )
    return new, m, v, step + 1


@program(_a(512, 256), _a(512), _a(256), _a(512, 256))
def adafactor(p: Any, r: Any, c: Any, g: Any) -> Any:
    s = g * g + 1e-30
    r, c = 0.99 * r + 0.01 * s.mean(1), 0.99 * c + 0.01 * s.mean(0)
    u = g * lax.rsqrt(r / r.mean())[:, None] * lax.rsqrt(c)
    return p - 1e-2 * u / jnp.maximum(1, jnp.sqrt(jnp.mean(u * u))), r, c


@program(_a(1024, 1024), _a(1024, 1024), _a(1024, 1024))
def lion(p: Any, m: Any, g: Any) -> Any:
    return p - 1e-4 * (jnp.sign(0.9 * m + 0.1 * g) + 0.1 * p), 0.99 * m + 0.01 * g


# ---- products --------------------------------------------------------------------------------------------


@program(_a(256, 512, t=F8), _a(512, 512, t=F8), _a(), _a())
def f8_product(x: Any, w: Any, sx: Any, sw: Any) -> Any:
    return (x.astype(BF16) * sx.astype(BF16)) @ (w.astype(BF16) * sw.astype(BF16))


@program(_a(64, 1024, t=BF16), _a(1024, 1024, t=I4), _a(8, 1024, t=BF16))
def int4_product(x: Any, w: Any, s: Any) -> Any:
    return x @ (w.astype(BF16).reshape(8, 128, 1024) * s[:, None]).reshape(1024, 1024)


@program(_a(128, 256), _a(256, 512, t=I8), _a(512))
def int8_product(x: Any, w: Any, s: Any) -> Any:
    scale = jnp.max(jnp.abs(x), 1, keepdims=True) / 127
    q = jnp.round(x / scale).astype(I8)
    return lax.dot(q, w, preferred_element_type=I32).astype(jnp.float32) * scale * s


@program(_a(128, 256), _a(256, 1024), _a(1024), _a(1024, 256), _a(256))
def mlp(x: Any, w: Any, b: Any, v: Any, c: Any) -> Any:
    return jax.nn.gelu(x @ w + b) @ v + c + x


gradient("mlp", 0, 1, 2, 3, 4)


@program(_a(2, 128, 8, 64), _a(2, 128, 8, 64), _a(2, 128, 8, 64))
def causal_attention(q: Any, k: Any, v: Any) -> Any:
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 8
    s = jnp.where(jnp.tri(128, dtype=bool), s, -jnp.inf)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s), v)


gradient("causal_attention", 0, 1, 2)


def _rope(x: Any) -> Any:
    length, half = x.shape[1], x.shape[-1] // 2
    angle = jnp.arange(length)[:, None] / 10000 ** (jnp.arange(half) / half)
    cos, sin = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
    one, two = x[..., :half], x[..., half:]
    return jnp.concatenate([one * cos - two * sin, two * cos + one * sin], -1)


@program(
    _a(2, 64, 256), _a(256, 256), _a(256, 128), _a(256, 128), _a(256, 256), _a(256, 512), _a(256, 512), _a(512, 256),
    _a(256), _a(256),
)  # fmt: skip
def llama_block(x, wq, wk, wv, wo, w1, w3, w2, g1, g2):  # type: ignore[no-untyped-def]
    def norm(y: Any, g: Any) -> Any:
        return y * lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6) * g

    h = norm(x, g1)
    q = _rope((h @ wq).reshape(2, 64, 4, 64))
    k = _rope((h @ wk).reshape(2, 64, 2, 64)).repeat(2, 2)
    v = (h @ wv).reshape(2, 64, 2, 64).repeat(2, 2)
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 8
    s = jnp.where(jnp.tri(64, dtype=bool), s, -1e30)
    x = x + jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s), v).reshape(2, 64, 256) @ wo
    h = norm(x, g2)
    return x + (jax.nn.silu(h @ w1) * (h @ w3)) @ w2


gradient("llama_block", *range(10))


@program(_a(64, 128, t=BF16), _a(8, 128, 256, t=BF16), _a(8, 256, 128, t=BF16), _a(128, 8))
def top2_experts(x: Any, w: Any, v: Any, r: Any) -> Any:
    weight, chosen = lax.top_k(jax.nn.softmax(x.astype(jnp.float32) @ r), 2)
    gate = (jax.nn.one_hot(chosen, 8) * (weight / weight.sum(-1, keepdims=True))[..., None]).sum(1)
    h = jax.nn.silu(jnp.einsum("td,edf->tef", x, w))
    return jnp.einsum("tef,efd,te->td", h, v, gate.astype(BF16))


@program(_a(512, 32), _a(300, 32))
def pairwise_distances(x: Any, y: Any) -> Any:
    return jnp.sqrt(jnp.maximum(((x[:, None] - y[None]) ** 2).sum(-1), 1e-12))


@program(_a(400, 8), _a(400), _a(8))
def kernel_matrix(x: Any, y: Any, scale: Any) -> Any:
    z = x / scale
    k = jnp.exp(-0.5 * ((z[:, None] - z[None]) ** 2).sum(-1)) + 1e-3 * jnp.eye(400)
    return k @ y, y @ (k @ y)


# ---- elementwise and statistics --------------------------------------------------------------------------


@program(_a(100_000), _a(100_000), _a(100_000))
def option_prices(s: Any, k: Any, t: Any) -> Any:
    d = (jnp.log(s / k) + 0.545 * t) / (0.3 * jnp.sqrt(t))
    cdf = partial(lambda v: 0.5 * (1 + erf(v / jnp.sqrt(2.0))))
    call = s * cdf(d) - k * jnp.exp(-0.5 * t) * cdf(d - 0.3 * jnp.sqrt(t))
    return call, call - s + k * jnp.exp(-0.5 * t)


@program(_a(20_000), _a(20_000))
def statistics_wide(x: Any, w: Any) -> Any:
    x, w = x.astype(jnp.float64), w.astype(jnp.float64)
    mean = (x * w).sum() / w.sum()
    d = x - mean
    return mean, (w * d**2).sum() / w.sum(), (w * d**3).sum(), (w * d**4).sum(), x.min(), x.max()


@program(_a(64, 4096, t=BF16))
def statistics_bf16(x: Any) -> Any:
    w = x.astype(jnp.float32)
    return w.mean(1), w.var(1), w.max(1), jnp.abs(w).max()


@program(_a(5000), _a(5000))
def poisson_deviance(x: Any, y: Any) -> Any:
    rate = jax.nn.softplus(x)
    return (rate - y * jnp.log(rate) + gammaln(y + 1)).sum()


gradient("poisson_deviance")


@program(_a(3, 3), _a(3, 3), _a(3))
def small_algebra(a: Any, b: Any, x: Any) -> Any:
    s = a @ b + b.T @ a.T
    return s @ x, jnp.trace(s), x @ (s @ x), jnp.linalg.norm(s)


@program(_a(1000, 3), _a(1000, 4))
def rotate_points(p: Any, q: Any) -> Any:
    q = q / jnp.linalg.norm(q, axis=-1, keepdims=True)
    w, v = q[:, :1], q[:, 1:]
    t = 2 * jnp.cross(v, p)
    return p + w * t + jnp.cross(v, t)


@program(_a(256, 3))
def lennard_jones(p: Any) -> Any:
    d = p[:, None] - p[None]
    r = (d * d).sum(-1) + jnp.eye(256)
    s = (1 / r) ** 3
    return ((s * s - s) * (1 - jnp.eye(256))).sum() * 2


gradient("lennard_jones")


@program(_a(300, 300), _a(300, 300))
def game_of_life_and_blur(x: Any, y: Any) -> Any:
    around = sum(jnp.roll(x, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)) - x
    alive = (around == 3) | ((around == 2) & (x > 0))
    blur = (y[:-2] + 2 * y[1:-1] + y[2:]) / 4
    return alive.astype(jnp.float32), (blur[:, :-2] + 2 * blur[:, 1:-1] + blur[:, 2:]) / 4


@program(_a(128, 128))
def stencil_written_out(x: Any) -> Any:
    for _ in range(12):
        p = jnp.pad(x, 1, mode="edge")
        x = x + 0.1 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * x)
    return x


@program(_a(64, 64, 3), _a(3, 3))
def image_histogram(x: Any, m: Any) -> Any:
    y = x @ m
    bins = jnp.clip((y * 16).astype(I32), 0, 15)
    return y, (bins[..., None] == jnp.arange(16)).sum((0, 1)), y.max((0, 1)), y.min((0, 1))


@program(_a(4, 1000))
def running_statistics(x: Any) -> Any:
    total = jnp.cumsum(x, 1)
    mean = total / jnp.arange(1, 1001)
    return mean, lax.cummax(x, axis=1), jnp.diff(x, axis=1)


@program(_a(2000), _a(2000, t=I32))
def segment_softmax(x: Any, s: Any) -> Any:
    top = jax.ops.segment_max(x, s, 50)
    e = jnp.exp(x - top[s])
    return e / jax.ops.segment_sum(e, s, 50)[s]


@program(_a(1000, 64), _a(32, 20, t=I32), _a(64, 5))
def embedding_bag(table: Any, tokens: Any, w: Any) -> Any:
    return jax.nn.softmax(table[tokens].mean(1) @ w)


gradient("embedding_bag", 0, 2)


@program(_a(8, 32, 32, 16), _a(3, 3, 16, 32), _a(32))
def convolution_pool(x: Any, w: Any, b: Any) -> Any:
    y = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return lax.reduce_window(
        jax.nn.relu(y + b), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
    )


gradient("convolution_pool", 1, 2)


@program(_a(512), _a(512), _a(512))
def complex_signal(x: Any, y: Any, f: Any) -> Any:
    z = (x + 1j * y) * jnp.exp(2j * jnp.pi * f)
    return jnp.abs(z), jnp.angle(z), (z * jnp.conj(z)).real.sum()


@program(_a(4096, t=jnp.uint32), _a(4096, t=jnp.uint32))
def hashes(x: Any, y: Any) -> Any:
    for shift in (13, 17, 5, 9, 21):
        x = (x ^ (x << shift)) * jnp.uint32(0x9E3779B1) + (y >> (shift % 7))
    return x, lax.population_count(x ^ y), (x & 1023).sum()


@program(_a(2, t=jnp.uint32), _a(64, 512), _a(512))
def dropout_scale(key: Any, x: Any, g: Any) -> Any:
    keep = jax.random.bernoulli(jax.random.wrap_key_data(key), 0.9, x.shape)
    return jnp.where(keep, x / 0.9, 0) * g


@program(_a(50, 6), _a(6))
def dynamics_jacobian(x: Any, u: Any) -> Any:
    def step(s: Any, v: Any) -> Any:
        return jnp.concatenate([jnp.sin(s[3:]) * v[3:], jnp.cos(s[:3]) * s[3:] + v[:3]])

    return jax.vmap(jax.jacfwd(step), (0, None))(x, u)


@program(_a(8, 8, 8), _a(8, 8, 8))
def transposed_sums(x: Any, y: Any) -> Any:
    return (x.transpose(2, 0, 1) + y).sum(1), (x.transpose(1, 2, 0) * y).max((0, 2)), x.T @ y[0]


@program(_a(16, 1024), _a(16, 1024))
def mixture_of_logistics(x: Any, y: Any) -> Any:
    a, b = jax.nn.log_sigmoid(x), jax.nn.log_sigmoid(-y)
    return logsumexp(a + b - logsumexp(x, 0), 0), jnp.argmax(x, 0)


@program(_a(256, 256), _a(256, 256), _a(256))
def gru_cell(w: Any, u: Any, h: Any) -> Any:
    r, z = jax.nn.sigmoid(w @ h), jax.nn.sigmoid(u @ h)
    return z * h + (1 - z) * jnp.tanh(w @ (r * h))


# ---- loops -----------------------------------------------------------------------------------------------


@program(_a(4, 100, 32), _a(32, 128), _a(32, 128), _a(128))
def lstm(x: Any, w: Any, u: Any, b: Any) -> Any:
    def cell(state: Any, row: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(row @ w + h @ u + b, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    start = jnp.zeros((4, 32)), jnp.zeros((4, 32))
    return lax.scan(cell, start, x.swapaxes(0, 1))[1]


@program(_a(64, 64))
def heat_loop(x: Any) -> Any:
    def step(_: Any, y: Any) -> Any:
        return y + 0.1 * (
            jnp.roll(y, 1, 0) + jnp.roll(y, -1, 0) + jnp.roll(y, 1, 1) + jnp.roll(y, -1, 1) - 4 * y
        )

    return lax.fori_loop(0, 50, step, x)


@program(_a(1000), _a(1000))
def newton_roots(x: Any, c: Any) -> Any:
    return lax.fori_loop(0, 20, lambda _, y: y - (y**3 - c) / (3 * y * y + 1e-6), x)


@program(_a(40, 40), _a(40))
def conjugate_gradient(m: Any, b: Any) -> Any:
    a = m @ m.T + jnp.eye(40)

    def step(state: Any, _: Any) -> Any:
        x, r, p = state
        q = a @ p
        alpha = (r @ r) / (p @ q)
        s = r - alpha * q
        return (x + alpha * p, s, s + (s @ s) / (r @ r) * p), None

    return lax.scan(step, (jnp.zeros(40), b, b), None, 25)[0][0]


@program(_a(256, 4), _a(256))
def rollouts(x: Any, u: Any) -> Any:
    def step(s: Any, _: Any) -> Any:
        p, v, a, w = s.T
        acc = (u + jnp.sin(a) * w * w) / (1.1 - jnp.cos(a) ** 2)
        s = jnp.stack(
            [p + 0.02 * v, v + 0.02 * acc, a + 0.02 * w, w + 0.02 * (9.8 * jnp.sin(a) - acc)], 1
        )
        return s, s[:, 0]

    return lax.scan(step, x, None, 200)


def programs() -> dict[str, Program]:
    """All programs by name."""
    return dict(_MADE)
