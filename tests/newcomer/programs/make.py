"""The programs of the forty tasks: ``python make.py`` with JAX on a CPU writes them and a dump beside this file."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

DUMPS = tempfile.mkdtemp()
os.environ["XLA_FLAGS"] = (
    f"--xla_dump_to={DUMPS} --xla_dump_hlo_as_text --xla_dump_large_constants=true"
)

import jax  # noqa: E402 - XLA reads its flags when it is loaded
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402

HERE = Path(__file__).parent
jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/programs/")


def ranker(users: Any, items: Any, history: Any) -> Any:
    """Scores of all items for users that are means of what they looked at, and the eight best."""
    user = users + items[history].mean(1)
    user = user / jnp.linalg.norm(user, axis=-1, keepdims=True)
    scores = jax.nn.softmax(user @ items.T / 0.1, axis=-1)
    return lax.top_k(scores, 8)


def low_rank(down: Any, up: Any, x: Any) -> Any:
    """An adapter of low rank, multiplied out before it is applied."""
    return x + (down @ up) @ x


def cell(weights: Any, bias: Any, inputs: Any) -> Any:
    """A gated recurrence over 64 steps."""

    def step(state: Any, x: Any) -> Any:
        gate, new = jnp.split(x + state @ weights + bias, 2, axis=-1)
        gate = jax.nn.sigmoid(gate)
        state = gate * state + (1 - gate) * jnp.tanh(new)
        return state, state.sum(-1)

    return lax.scan(step, jnp.zeros((4, 16), jnp.float32), inputs)


def step(weights: Any, scale: Any, x: Any, target: Any) -> Any:
    """Loss and gradient of RMSNorm, a gated layer and a projection, in bf16 with f32 weights."""

    def loss(weights: Any, scale: Any) -> Any:
        h = x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale
        h = h.astype(jnp.bfloat16)
        gate, up = (h @ w.astype(jnp.bfloat16) for w in weights[:2])
        out = (jax.nn.silu(gate) * up) @ weights[2].astype(jnp.bfloat16)
        return jnp.mean((out.astype(jnp.float32) - target) ** 2)

    value, gradient = jax.value_and_grad(loss)(weights, scale)
    return value, [w - 0.1 * g for w, g in zip(weights, gradient, strict=True)]


def entropy(p: Any) -> Any:
    """0 log 0 is NaN."""
    return -jnp.sum(p * jnp.log(p), axis=-1)


def draw(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32)


PROGRAMS = {
    ranker: (draw(16, 24), draw(256, 24), np.arange(160, dtype=np.int32).reshape(16, 10)),
    low_rank: (draw(384, 8), draw(8, 384), draw(384, 4)),
    cell: (draw(16, 32), draw(32), draw(64, 4, 32)),
    step: ([draw(64, 96), draw(64, 96), draw(96, 64)], draw(64), draw(24, 64), draw(24, 64)),
    entropy: (np.float32([[0.5, 0.5, 0], [0.2, 0.3, 0.5]]),),
}


def main() -> None:
    for function, inputs in PROGRAMS.items():
        outputs = jax.jit(function).lower(*inputs).compile()(*inputs)
        name = function.__name__
        (text,) = Path(DUMPS).glob(f"module_*.jit_{name}.before_optimizations.txt")
        shutil.copyfile(text, HERE / f"{name}.hlo")
        arrays = {
            f"{prefix}_{n}": np.asarray(value)
            for prefix, values in (("in", inputs), ("out", outputs))
            for n, value in enumerate(jax.tree.leaves(values))
        }
        np.savez_compressed(HERE / f"{name}.npz", **arrays)
    shutil.rmtree(HERE / "dump", ignore_errors=True)
    (HERE / "dump").mkdir()
    for name in ("ranker", "entropy"):
        for stage in ("before_optimizations", "cpu_after_optimizations"):
            for path in Path(DUMPS).glob(f"module_*.jit_{name}.{stage}.txt"):
                shutil.copyfile(path, HERE / "dump" / path.name)


if __name__ == "__main__":
    main()
