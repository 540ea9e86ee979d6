"""Pairs whose advice is a flag: what follows a product goes into the library's call."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from pairs import normal, pair, weight

_FLAGS = {"xla_gpu_enable_triton_gemm": False}


@pair("unfused-epilogue", flags=_FLAGS)
def feed_forward_with_gelu(rng: Any) -> tuple[Any, ...]:
    """Up, GELU, down, and the residual."""

    def block(x: Any, up: Any, b: Any, down: Any, c: Any) -> Any:
        return x + jax.nn.gelu(x @ up + b) @ down + c

    sizes = (512, 2048), (2048,), (2048, 512), (512,)
    return block, block, normal(rng, 1024, 512), *(weight(rng, *one) for one in sizes)


@pair("unfused-epilogue", flags=_FLAGS)
def a_batch_of_bf16_features(rng: Any) -> tuple[Any, ...]:
    """A product over the last dimension of three, GELU written out, and a mean."""

    def features(x: Any, w: Any, b: Any) -> Any:
        h = jnp.einsum("bsd,df->bsf", x, w) + b
        inner = 0.7978845608 * (h + 0.044715 * h**3)
        return (0.5 * h * (1 + jnp.tanh(inner))).mean(1)

    given = normal(rng, 8, 256, 256), weight(rng, 256, 1024), weight(rng, 1024)
    return features, features, *(one.astype(jnp.bfloat16) for one in given)


@pair("unfused-epilogue", flags=_FLAGS)
def hidden_layer_that_is_kept(rng: Any) -> tuple[Any, ...]:
    """GELU, whose argument is a result, too."""

    def layer(x: Any, w: Any, b: Any) -> Any:
        h = x @ w + b
        return jax.nn.gelu(h), h

    return layer, layer, normal(rng, 2048, 256), weight(rng, 256, 1024), weight(rng, 1024)


@pair("unfused-epilogue", flags=_FLAGS)
def layer_with_relu(rng: Any) -> tuple[Any, ...]:
    """What a Triton kernel takes: nothing is to be found."""

    def layer(x: Any, w: Any, b: Any) -> Any:
        return jax.nn.relu(x @ w + b)

    return layer, layer, normal(rng, 1024, 512), weight(rng, 512, 2048), weight(rng, 2048)
