"""What belongs to a label: sums over products with one-hot matrices, and the elements picked."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pairs import integers, normal, pair


def _picked(x: Any, ids: Any) -> Any:
    return jnp.take_along_axis(x, ids[..., None], axis=-1)[..., 0]


@pair("one-hot-sum")
def cross_entropy_of_one_hot_labels(rng: np.random.Generator) -> tuple[Any, ...]:
    def before(logits: Any, labels: Any) -> Any:
        return (
            -(jax.nn.log_softmax(logits) * jax.nn.one_hot(labels, logits.shape[1])).sum(-1).mean()
        )

    def after(logits: Any, labels: Any) -> Any:
        return -_picked(jax.nn.log_softmax(logits), labels).mean()

    return before, after, normal(rng, 2048, 16000), integers(rng, 16000, 2048)


@pair("one-hot-sum")
def likelihood_of_tokens(rng: np.random.Generator) -> tuple[Any, ...]:
    """With a mask of all classes, and tokens of several sequences."""

    def before(logits: Any, tokens: Any) -> Any:
        is_token = jnp.arange(logits.shape[-1]) == tokens[..., None]
        return jnp.where(is_token, jax.nn.log_softmax(logits), 0).sum(-1)

    def after(logits: Any, tokens: Any) -> Any:
        return _picked(jax.nn.log_softmax(logits), tokens)

    return before, after, normal(rng, 8, 256, 16000), integers(rng, 16000, 8, 256)


@pair("one-hot-sum")
def gate_of_the_chosen(rng: np.random.Generator) -> tuple[Any, ...]:
    """Of values that are expensive to compute."""

    def before(x: Any, scale: Any, choice: Any) -> Any:
        values = jnp.sin(jnp.exp(jnp.tanh(x) * scale))
        return (values * jax.nn.one_hot(choice, x.shape[1])[..., None]).sum(1)

    def after(x: Any, scale: Any, choice: Any) -> Any:
        chosen = jnp.take_along_axis(x, choice[:, None, None], axis=1)[:, 0]
        scales = jnp.take(scale, choice, axis=0)
        return jnp.sin(jnp.exp(jnp.tanh(chosen) * scales))

    return before, after, normal(rng, 4096, 32, 64), normal(rng, 32, 64), integers(rng, 32, 4096)
