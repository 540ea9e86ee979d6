"""Mixtures of experts: every expert for every token, and the chosen ones alone.

Each expert is chosen as often as any other, so that the capacity of the second function is enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from pairs import normal, pair


def _logits(rng: np.random.Generator, tokens: int, experts: int, each: int) -> Any:
    """Of which the ``each`` largest of a token are those of the experts after its own."""
    logits = rng.uniform(0, 1, (tokens, experts)).astype(np.float32)
    for number in range(each):
        logits[np.arange(tokens), (np.arange(tokens) + number) % experts] += 2
    return jnp.asarray(logits)


def _in_groups(x: Any, chosen: Any, scale: Any, experts: int, run: Callable[[Any], Any]) -> Any:
    """What ``run`` makes of ``[experts, capacity, features]``, for each token and each of its experts."""
    order = jnp.argsort(chosen.ravel())
    rows = (order // chosen.shape[1]).reshape(experts, -1)
    made = run(x[rows])
    back = jnp.argsort(order).reshape(chosen.shape)
    return (made.reshape(-1, made.shape[-1])[back] * scale[..., None]).sum(1)


@pair("dense-experts")
def two_of_eight_experts(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any, logits: Any, up: Any, down: Any) -> Any:
        scale, chosen = lax.top_k(jax.nn.softmax(logits), 2)
        combine = (jax.nn.one_hot(chosen, up.shape[0]) * scale[..., None]).sum(1)
        hidden = jax.nn.gelu(jnp.einsum("td,edh->teh", x, up))
        return jnp.einsum("te,ted->td", combine, jnp.einsum("teh,ehd->ted", hidden, down))

    def after(x: Any, logits: Any, up: Any, down: Any) -> Any:
        scale, chosen = lax.top_k(jax.nn.softmax(logits), 2)

        def run(rows: Any) -> Any:
            return jnp.einsum(
                "ech,ehd->ecd", jax.nn.gelu(jnp.einsum("ecd,edh->ech", rows, up)), down
            )

        return _in_groups(x, chosen, scale, up.shape[0], run)

    weights = normal(rng, 8, 256, 512) / 16, normal(rng, 8, 512, 256) / 16
    return before, after, normal(rng, 1024, 256), _logits(rng, 1024, 8, 2), *weights


@pair("dense-experts")
def one_of_sixteen_under_vmap(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any, logits: Any, gate: Any, up: Any, down: Any) -> Any:
        chosen = jnp.argmax(logits, axis=1)
        made = jax.vmap(lambda g, u, d: (jax.nn.silu(x @ g) * (x @ u)) @ d)(gate, up, down)
        is_mine = chosen == jnp.arange(gate.shape[0])[:, None]
        return jnp.where(is_mine[..., None], made, 0).sum(0)

    def after(x: Any, logits: Any, gate: Any, up: Any, down: Any) -> Any:
        chosen = jnp.argmax(logits, axis=1)[:, None]

        def run(rows: Any) -> Any:
            hidden = jax.nn.silu(jnp.einsum("ecd,edh->ech", rows, gate)) * jnp.einsum(
                "ecd,edh->ech", rows, up
            )
            return jnp.einsum("ech,ehd->ecd", hidden, down)

        return _in_groups(x, chosen, jnp.ones(chosen.shape), gate.shape[0], run)

    weights = (
        normal(rng, *shape) / 12 for shape in ((16, 128, 256), (16, 128, 256), (16, 256, 128))
    )
    return before, after, normal(rng, 2048, 128), _logits(rng, 2048, 16, 1), *weights


@pair("dense-experts")
def experts_with_biases(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(x: Any, logits: Any, up: Any, bias: Any, down: Any) -> Any:
        scale, chosen = lax.top_k(jax.nn.softmax(logits), 2)
        rows = jnp.arange(x.shape[0])[:, None]
        combine = jnp.zeros(logits.shape).at[rows, chosen].set(scale)
        hidden = jax.nn.relu(jnp.einsum("td,edh->eth", x, up) + bias[:, None])
        return jnp.einsum("etd,te->td", jnp.einsum("eth,ehd->etd", hidden, down), combine)

    def after(x: Any, logits: Any, up: Any, bias: Any, down: Any) -> Any:
        scale, chosen = lax.top_k(jax.nn.softmax(logits), 2)

        def run(rows: Any) -> Any:
            hidden = jax.nn.relu(jnp.einsum("ecd,edh->ech", rows, up) + bias[:, None])
            return jnp.einsum("ech,ehd->ecd", hidden, down)

        return _in_groups(x, chosen, scale, up.shape[0], run)

    weights = normal(rng, 16, 256, 512) / 16, normal(rng, 16, 512), normal(rng, 16, 512, 256) / 16
    return before, after, normal(rng, 1024, 256), _logits(rng, 1024, 16, 2), *weights
