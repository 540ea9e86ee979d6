"""The operations of ``programs.py`` on this processor, beside XLA's: ``python -m tests.layers.native [NAME...]``.

Run by a Python that has JAX, with hloopt on its path.  A line a program: microseconds of a call of ``jax.jit`` and of
``hloopt.jax.native``, the best of rounds in turn, and whether the results agree; at the end the geometric mean.
``SMALL`` divides the sizes, by 4 unless told otherwise.  Both use as many threads as there are cores.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from typing import Any

os.environ.setdefault("SMALL", "4")

import jax
import jax.numpy as jnp
import numpy as np

import hloopt.jax
from tests.frameworks.jax_board import Reference
from tests.layers.programs import arguments, cases, gradient

_SECONDS = 0.05
"""Of calls in each round."""


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--type", action="append", choices=["bfloat16", "float32"])
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    ratios = []
    for dtype in given.type or ["bfloat16", "float32"]:
        print(f"{dtype:32} {'jit us':>10} {'native us':>10} {'times':>6}")
        for name in given.names or cases():
            ratio = line(name, jnp.dtype(dtype), given.rounds)
            ratios += [ratio] if ratio else []
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    worst = sum(ratio > 1 for ratio in ratios)
    print(f"native / jit: {mean:.2f}, geometric mean of {len(ratios)}; {worst} above 1")


def line(name: str, dtype: Any, rounds: int) -> float | None:
    """Print the line of one program; None where ``native`` refuses it."""
    operation, backward = cases()[name]
    values = made(name, dtype)
    function = gradient(operation) if backward else operation.function
    kinds = {"jit": jax.jit(function), "native": hloopt.jax.native(function)}
    try:
        found = kinds["native"](*values)
    except hloopt.HlooptError as error:
        print(f"{name:32} refused: {error.message}", flush=True)
        return None
    problem = Reference(function, tuple(values)).problem(found)[:40]
    best, busy = dict.fromkeys(kinds, math.inf), dict.fromkeys(kinds, math.inf)
    for _ in range(rounds):
        for kind, run in kinds.items():
            jax.block_until_ready(run(*values))
            spent, calls = 0.0, 0
            while spent < _SECONDS:
                start, begun = time.perf_counter(), time.process_time()
                jax.block_until_ready(run(*values))
                took = time.perf_counter() - start
                busy[kind] = min(busy[kind], time.process_time() - begun)
                spent, calls = spent + took, calls + 1
                best[kind] = min(best[kind], took)
    ratio = best["native"] / best["jit"]
    times = f"{best['jit'] * 1e6:10.0f} {best['native'] * 1e6:10.0f} {ratio:6.2f} {busy['jit'] * 1e6:10.0f} {busy['native'] * 1e6:10.0f}"
    print(f"{name:32} {times} {problem}", flush=True)
    return ratio


def made(name: str, dtype: Any) -> list[Any]:
    """Values for the arguments: normal floats, small ones where they are weights, and labels in their range."""
    operation, backward = cases()[name]
    rng = np.random.default_rng(2026)
    shapes = arguments(operation, dtype)
    if backward and not operation.loss:
        ends = jax.tree.leaves(jax.eval_shape(operation.function, *shapes))
        floats = [one for one in ends if jnp.issubdtype(one.dtype, jnp.floating)]
        return [[_filled(one, rng) for one in floats], *(_filled(one, rng) for one in shapes)]
    return [_filled(one, rng) for one in shapes]


def _filled(shape: Any, rng: np.random.Generator) -> Any:
    if jnp.issubdtype(shape.dtype, jnp.floating):
        return jnp.asarray(rng.normal(size=shape.shape), shape.dtype)
    if shape.dtype == jnp.bool_:
        return jnp.asarray(rng.integers(0, 2, shape.shape), shape.dtype)
    return jnp.asarray(rng.integers(0, 100, shape.shape), shape.dtype)


if __name__ == "__main__":
    main()
