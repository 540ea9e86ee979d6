"""Pairs of functions of JAX: as written, and with the advice of a finding carried out.  Only jax and NumPy are imported.

The files ``programs_*.py`` register them.  The second function is what a user makes of the first who knows the finding's text
and nothing else; both are called with the same arguments unless a pair says how its second function's are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["Pair", "integers", "kinds", "made", "normal", "pair", "weight"]


@dataclass(frozen=True)
class Pair:
    """A function before and after the advice of a kind of finding.

    kind       its name, as ``hloopt why --kind`` takes it
    arguments  of both, and ``given`` makes of them what the second is called with
    same       makes of the second's results those of the first
    donate     the numbers of donated arguments of each
    x64        whether 64-bit types are meant
    targets    for which the finding is looked for
    flags      of XLA, with which the second is compiled for a GPU where that is the advice
    scale      what float arguments are multiplied by where accuracy is at stake
    """

    name: str
    kind: str
    before: Callable[..., Any]
    after: Callable[..., Any]
    arguments: tuple[Any, ...]
    given: Callable[..., tuple[Any, ...]] = lambda *arguments: arguments
    same: Callable[[Any], Any] = lambda results: results
    donate: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    x64: bool = False
    targets: tuple[str, ...] = ("h200",)
    flags: dict[str, Any] = field(default_factory=dict)
    scale: float = 1.0

    def sides(self) -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
        """``before`` and ``after``: the function under ``jax.jit``, and its arguments."""
        for number, (side, function) in enumerate((("before", self.before), ("after", self.after))):
            arguments = self.given(*self.arguments) if number else self.arguments
            jitted = jax.jit(function, donate_argnums=self.donate[number], keep_unused=True)
            yield side, jitted, arguments

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """The setting in which both are lowered and called."""
        with jax.enable_x64(self.x64):
            yield


_Maker = Callable[[np.random.Generator], tuple[Any, ...]]
_MADE: dict[str, tuple[str, _Maker, dict[str, Any]]] = {}


def pair(kind: str, **options: Any) -> Callable[[_Maker], _Maker]:
    """Registers what makes both functions and the arguments with a random generator."""

    def register(make: _Maker) -> _Maker:
        if make.__name__ in _MADE:
            raise ValueError(f"two pairs are called {make.__name__}")
        _MADE[make.__name__] = kind, make, options
        return make

    return register


def kinds() -> dict[str, tuple[str, tuple[str, ...]]]:
    """The kind of each pair that is registered, and its targets."""
    return {
        name: (kind, options.get("targets", ("h200",)))
        for name, (kind, _, options) in _MADE.items()
    }


def made(name: str) -> Pair:
    """The pair of this name, with the same arguments on every call."""
    kind, make, options = _MADE[name]
    with jax.enable_x64(options.get("x64", False)):
        before, after, *arguments = make(np.random.default_rng(len(name)))
    return Pair(name, kind, before, after, tuple(arguments), **options)


def normal(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> Any:
    """Standard normal numbers."""
    return jnp.asarray(rng.standard_normal(shape).astype(dtype))


def weight(rng: np.random.Generator, *shape: int) -> Any:
    """Normal numbers, scaled by what a product sums."""
    return normal(rng, *shape) * (shape[0] ** -0.5)


def integers(rng: np.random.Generator, most: int, *shape: int) -> Any:
    """Numbers from 0 to below ``most``."""
    return jnp.asarray(rng.integers(0, most, shape).astype(np.int32))
