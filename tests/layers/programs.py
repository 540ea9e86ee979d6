"""The operations that fill a model's time, as JAX programs: ``python programs.py FOLDER TYPE [NAME...]``.

Run by a Python that has JAX; hloopt is not imported.  Each operation is written in two styles, the library's
(``jax.nn``) and by hand, and each also as its gradient.  ``NAME.hlo`` is the text, ``NAME.json`` the least that any
program for it launches (kernels), reads and writes (bytes), and multiplies (flops of its products).  Sizes are
those of a training step; ``SMALL`` shrinks them for runs.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
from jax import lax

SMALL = bool(os.environ.get("SMALL"))


def size(full: int) -> int:
    """A size of the table, or a small one of the same kind."""
    return full if not SMALL else max(8, full // int(os.environ["SMALL"]))


TOKENS, WIDTH, WORDS = size(4096), size(4096), size(50304)
INNER, EXPERTS = size(11008), 256 if not SMALL else 16
BATCH, LENGTH, HEADS, DEPTH = 4, 2048, 16, 128
if SMALL:
    BATCH, LENGTH, HEADS, DEPTH = 2, max(32, size(2048)), 2, max(16, size(128))


@dataclass(frozen=True)
class Operation:
    """A function and the shapes of its arguments.

    shapes    of arguments of the type that is examined; ``others`` are further ones, whatever the type
    kernels   the least, forward and backward; backward 0 where there is none
    flops     of products, forward; the backward pass has twice that, and ``again`` of the forward's, which its
              program computes before
    kept      elements of the type that are written by one of these kernels and read by another
    by        the arguments whose gradients are asked for
    loss      whether the result is a number whose gradient is meant
    unread    elements of the first argument that the forward pass has no need of
    """

    name: str
    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    others: tuple[Any, ...] = ()
    kernels: tuple[int, int] = (1, 1)
    flops: float = 0.0
    again: float = 0.0
    kept: tuple[int, int] = (0, 0)
    by: tuple[int, ...] = (0,)
    loss: bool = False
    unread: int = 0


_FOUND: list[Operation] = []


def _operation(name: str, shapes: tuple[tuple[int, ...], ...], **facts: Any) -> Any:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _FOUND.append(Operation(name, function, shapes, **facts))
        return function

    return register


def _f32(x: Any) -> Any:
    return x.astype(jnp.float32)


ROWS = ((TOKENS, WIDTH),)
NORM = ((TOKENS, WIDTH), (WIDTH,))
LABELS = (jax.ShapeDtypeStruct((TOKENS,), jnp.int32),)


@_operation("softmax", ROWS)
def _softmax(x: Any) -> Any:
    return jax.nn.softmax(x, axis=-1)


@_operation("softmax_hand", ROWS)
def _softmax_hand(x: Any) -> Any:
    e = jnp.exp(_f32(x) - _f32(x).max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)).astype(x.dtype)


@_operation("log_softmax", ROWS)
def _log_softmax(x: Any) -> Any:
    return jax.nn.log_softmax(x, axis=-1)


@_operation("rms_norm", NORM, kernels=(1, 2), by=(0, 1))
def _rms_norm(x: Any, g: Any) -> Any:
    y = _f32(x)
    return (y * lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-6) * g).astype(x.dtype)


@_operation("rms_norm_hand", NORM, kernels=(1, 2), by=(0, 1))
def _rms_norm_hand(x: Any, g: Any) -> Any:
    scale = jnp.sqrt(jnp.sum(jnp.square(_f32(x)), axis=1) / x.shape[1] + 1e-5)
    return (_f32(x) / scale[:, None]).astype(x.dtype) * g


@_operation("layer_norm", (*NORM, (WIDTH,)), kernels=(1, 2), by=(0, 1, 2))
def _layer_norm(x: Any, g: Any, b: Any) -> Any:
    y = _f32(x)
    centred = y - y.mean(-1, keepdims=True)
    variance = jnp.square(centred).mean(-1, keepdims=True)
    return (centred * lax.rsqrt(variance + 1e-5) * g + b).astype(x.dtype)


@_operation("layer_norm_hand", (*NORM, (WIDTH,)), kernels=(1, 2), by=(0, 1, 2))
def _layer_norm_hand(x: Any, g: Any, b: Any) -> Any:
    y = _f32(x)
    mean, square = y.mean(-1), (y * y).mean(-1)
    normal = (y - mean[:, None]) / jnp.sqrt(square - mean**2 + 1e-5)[:, None]
    return (normal * g + b).astype(x.dtype)


@_operation("add_rms_norm", (*NORM, (TOKENS, WIDTH)), kernels=(1, 2), by=(0, 1, 2))
def _add_rms_norm(x: Any, g: Any, residual: Any) -> Any:
    h = x + residual
    y = _f32(h)
    return h, (y * lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-6) * g).astype(x.dtype)


@_operation("add_layer_norm_hand", (*NORM, (TOKENS, WIDTH)), kernels=(1, 2), by=(0, 1, 2))
def _add_layer_norm_hand(x: Any, g: Any, residual: Any) -> Any:
    h = _f32(x + residual)
    return (h - h.mean(-1, keepdims=True)) / h.std(-1, keepdims=True) * g, h.astype(x.dtype)


@_operation("cross_entropy", ((TOKENS, WORDS),), others=LABELS, kernels=(2, 2), loss=True)
def _cross_entropy(x: Any, labels: Any) -> Any:
    logs = jax.nn.log_softmax(_f32(x))
    return -jnp.take_along_axis(logs, labels[:, None], axis=1).mean()


@_operation("cross_entropy_one_hot", ((TOKENS, WORDS),), others=LABELS, kernels=(2, 2), loss=True)
def _cross_entropy_one_hot(x: Any, labels: Any) -> Any:
    y = _f32(x)
    likelihood = jax.nn.logsumexp(y, axis=-1) - (y * jax.nn.one_hot(labels, WORDS)).sum(-1)
    return likelihood.mean()


@_operation(
    "linear_cross_entropy",
    ((TOKENS, WIDTH // 2), (WIDTH // 2, WORDS)),
    others=LABELS,
    kernels=(3, 4),
    flops=2.0 * TOKENS * WIDTH / 2 * WORDS,
    again=1.0,
    kept=(0, TOKENS * WORDS),
    by=(0, 1),
    loss=True,
)
def _linear_cross_entropy(x: Any, w: Any, labels: Any) -> Any:
    logs = jax.nn.log_softmax(_f32(x @ w))
    return -jnp.take_along_axis(logs, labels[:, None], axis=1).mean()


@_operation("kl", ((TOKENS, WORDS), (TOKENS, WORDS)), kernels=(2, 2), by=(1,), loss=True)
def _kl(p: Any, q: Any) -> Any:
    p, q = jax.nn.log_softmax(_f32(p)), jax.nn.log_softmax(_f32(q))
    return (jnp.exp(p) * (p - q)).sum(-1).mean()


@_operation("kl_hand", ((TOKENS, WORDS), (TOKENS, WORDS)), kernels=(2, 2), by=(1,), loss=True)
def _kl_hand(p: Any, q: Any) -> Any:
    p, q = jax.nn.softmax(_f32(p)), jax.nn.softmax(_f32(q))
    return (p * (jnp.log(p) - jnp.log(q))).sum() / TOKENS


def _angles() -> tuple[Any, Any]:
    frequency = 10000.0 ** (-jnp.arange(0, DEPTH, 2) / DEPTH)
    angle = jnp.arange(LENGTH)[:, None] * frequency
    return jnp.cos(angle), jnp.sin(angle)


@_operation("rope", ((BATCH, LENGTH, HEADS, DEPTH),))
def _rope(x: Any) -> Any:
    cos, sin = (one[None, :, None, :] for one in _angles())
    a, b = jnp.split(_f32(x), 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(x.dtype)


@_operation("rope_hand", ((BATCH, LENGTH, HEADS, DEPTH),))
def _rope_hand(x: Any) -> Any:
    cos, sin = (jnp.concatenate([one, one], -1)[:, None, :] for one in _angles())
    a, b = x[..., : DEPTH // 2], x[..., DEPTH // 2 :]
    return (_f32(x) * cos + _f32(jnp.concatenate([-b, a], -1)) * sin).astype(x.dtype)


GATES = ((TOKENS, INNER), (TOKENS, INNER))


@_operation("swiglu", GATES, by=(0, 1))
def _swiglu(gate: Any, up: Any) -> Any:
    return jax.nn.silu(gate) * up


@_operation("swiglu_hand", GATES, by=(0, 1))
def _swiglu_hand(gate: Any, up: Any) -> Any:
    g = _f32(gate)
    return (g / (1 + jnp.exp(-g)) * _f32(up)).astype(up.dtype)


@_operation("geglu", GATES, by=(0, 1))
def _geglu(gate: Any, up: Any) -> Any:
    return jax.nn.gelu(gate, approximate=True) * up


@_operation("geglu_hand", GATES, by=(0, 1))
def _geglu_hand(gate: Any, up: Any) -> Any:
    g = _f32(gate)
    return (0.5 * g * (1 + lax.erf(g / math.sqrt(2))) * _f32(up)).astype(up.dtype)


@_operation(
    "mlp_swiglu",
    ((TOKENS, WIDTH), (WIDTH, INNER), (WIDTH, INNER), (INNER, WIDTH)),
    kernels=(2, 5),
    flops=6.0 * TOKENS * WIDTH * INNER,
    again=2 / 3,
    kept=(TOKENS * INNER, 5 * TOKENS * INNER),
    by=(0, 1, 2, 3),
)
def _mlp_swiglu(x: Any, gate: Any, up: Any, down: Any) -> Any:
    return (jax.nn.silu(x @ gate) * (x @ up)) @ down


@_operation("dropout_residual", ((TOKENS, WIDTH), (TOKENS, WIDTH)), others=("key",))
def _dropout_residual(x: Any, residual: Any, key: Any) -> Any:
    keep = jax.random.bernoulli(key, 0.9, x.shape)
    return residual + jnp.where(keep, x / 0.9, 0).astype(x.dtype)


@_operation("router_top_k", ((4 * TOKENS, EXPERTS),))
def _router(x: Any) -> Any:
    values, experts = lax.top_k(jax.nn.softmax(_f32(x)), 8)
    return values / values.sum(-1, keepdims=True), experts


HEAD = (BATCH, LENGTH, HEADS, DEPTH)
_ATTENTION = {
    "kernels": (1, 3),
    "flops": 4.0 * BATCH * HEADS * LENGTH * LENGTH * DEPTH,
    "again": 1.0,
    "by": (0, 1, 2),
    "kept": (0, BATCH * LENGTH * HEADS * DEPTH),
}


@_operation("attention", (HEAD, HEAD, HEAD), **_ATTENTION)
def _attention(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


@_operation("attention_hand", (HEAD, HEAD, HEAD), **_ATTENTION)
def _attention_hand(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32)
    mask = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))
    weights = jax.nn.softmax(jnp.where(mask, scores / math.sqrt(DEPTH), -1e30))
    return jnp.einsum("bhqk,bkhd->bqhd", weights.astype(v.dtype), v)


_GEMM = ((TOKENS, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH,))


@_operation(
    "linear_bias_gelu",
    _GEMM,
    kernels=(1, 4),
    flops=2.0 * TOKENS * WIDTH * 4 * WIDTH,
    again=1.0,
    kept=(0, 4 * TOKENS * WIDTH),
    by=(0, 1, 2),
)
def _linear_bias_gelu(x: Any, w: Any, b: Any) -> Any:
    return jax.nn.gelu(x @ w + b, approximate=True)


@_operation("linear_bias_relu_hand", _GEMM, flops=2.0 * TOKENS * WIDTH * 4 * WIDTH, kernels=(1, 0))
def _linear_bias_relu_hand(x: Any, w: Any, b: Any) -> Any:
    return jnp.maximum(jnp.einsum("td,df->tf", x, w) + b, 0)


@_operation(
    "dequantised_linear",
    ((TOKENS, WIDTH), (WIDTH,)),
    others=(jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.int8),),
    flops=2.0 * TOKENS * WIDTH * WIDTH,
    kernels=(1, 0),
)
def _dequantised_linear(x: Any, scale: Any, w: Any) -> Any:
    return x @ (w.astype(x.dtype) * scale)


@_operation("adam", ((WIDTH, WIDTH), (WIDTH, WIDTH)), others=("moments",), kernels=(1, 0))
def _adam(p: Any, g: Any, m: Any, v: Any) -> Any:
    m, v = 0.9 * m + 0.1 * _f32(g), 0.99 * v + 0.01 * jnp.square(_f32(g))
    return (_f32(p) - 1e-3 * m / (jnp.sqrt(v) + 1e-8)).astype(p.dtype), m, v


@_operation("quantise_rows", ROWS, kernels=(1, 0))
def _quantise_rows(x: Any) -> Any:
    scale = jnp.abs(_f32(x)).max(-1, keepdims=True) / 127
    return jnp.round(_f32(x) / scale).astype(jnp.int8), scale


@_operation(
    "embedding",
    ((WORDS, WIDTH // 2),),
    others=LABELS,
    kernels=(1, 2),
    unread=(WORDS - TOKENS) * WIDTH // 2,
)
def _embedding(table: Any, tokens: Any) -> Any:
    return table[tokens]


@_operation("argmax", ((TOKENS, WORDS),), kernels=(1, 0))
def _argmax(x: Any) -> Any:
    return jnp.argmax(x, axis=-1)


@_operation("cumulative_sum", ROWS)
def _cumulative_sum(x: Any) -> Any:
    return jnp.cumsum(x, axis=-1)


def arguments(operation: Operation, dtype: Any) -> list[Any]:
    """The shapes of all arguments."""
    found = [jax.ShapeDtypeStruct(shape, dtype) for shape in operation.shapes]
    for other in operation.others:
        if other == "key":
            found.append(jax.ShapeDtypeStruct((2,), jnp.uint32))
        elif other == "moments":
            found += [jax.ShapeDtypeStruct(operation.shapes[0], jnp.float32)] * 2
        else:
            found.append(other)
    return found


def gradient(operation: Operation) -> Callable[..., Any]:
    """The gradient by the arguments that it is asked for, given those of the results."""
    if operation.loss:
        return jax.grad(operation.function, argnums=operation.by)

    def slopes(ahead: Any, *values: Any) -> Any:
        def part(*chosen: Any) -> Any:
            filled = list(values)
            for at, one in zip(operation.by, chosen, strict=True):
                filled[at] = one
            results = operation.function(*filled)
            return [x for x in jax.tree.leaves(results) if jnp.issubdtype(x.dtype, jnp.floating)]

        _, back = jax.vjp(part, *(values[at] for at in operation.by))
        return back(ahead)

    return slopes


def cases() -> dict[str, tuple[Operation, bool]]:
    """All programs by name: the operation, and whether its gradient is meant."""
    found = {}
    for operation in _FOUND:
        found[operation.name] = operation, False
        if operation.kernels[1]:
            found[f"{operation.name}_grad"] = operation, True
    return found


def write(name: str, dtype: Any, folder: Path) -> None:
    """The text of one program, and its least."""
    operation, backward = cases()[name]
    given = arguments(operation, dtype)
    function: Callable[..., Any] = operation.function
    if backward:
        if not operation.loss:
            results = jax.tree.leaves(jax.eval_shape(function, *given))
            floats = [x for x in results if jnp.issubdtype(x.dtype, jnp.floating)]
            given = [floats, *given]
        function = gradient(operation)
    lowered = jax.jit(function).lower(*given)
    (folder / f"{name}.hlo").write_text(lowered.as_text(dialect="hlo"), encoding="utf-8")
    results = jax.tree.leaves(jax.eval_shape(function, *given))
    ends = sum(math.prod(x.shape) * x.dtype.itemsize for x in (*jax.tree.leaves(given), *results))
    kept = 2 * operation.kept[backward] * jnp.dtype(dtype).itemsize
    flops = operation.flops * (2 + operation.again if backward else 1)
    if not backward:
        ends -= operation.unread * jnp.dtype(dtype).itemsize
    facts = {"kernels": operation.kernels[backward], "bytes": ends + kept, "flops": flops}
    (folder / f"{name}.json").write_text(json.dumps(facts), encoding="utf-8")


if __name__ == "__main__":
    into, kind, *wanted = sys.argv[1:]
    Path(into).mkdir(parents=True, exist_ok=True)
    for each in wanted or cases():
        write(each, jnp.dtype(kind), Path(into))
