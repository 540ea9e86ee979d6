"""Runs in different orders give the same bits, or betray a missing barrier or an atomic of floats."""

from __future__ import annotations

from collections.abc import Callable
from operator import ne
from typing import Any

import numpy as np
import pytest

SOURCE = r"""
extern "C" __global__ void exchange(const int* __restrict__ in, int* __restrict__ out, int barrier) {
  __shared__ int s[128];
  s[threadIdx.x] = 0;
  __syncthreads();
  s[threadIdx.x] = in[threadIdx.x];
  if (barrier) __syncthreads();
  out[threadIdx.x] = s[(threadIdx.x + 33) % 128];
}
extern "C" __global__ void last_block(int* __restrict__ out, int n) {
  out[0] = blockIdx.x;
}
extern "C" __global__ void sum(const float* __restrict__ in, float* __restrict__ out) {
  atomicAdd(&out[0], in[blockIdx.x]);
}
"""


@pytest.fixture
def runner(bench: Callable[..., Any]) -> Callable[..., Any]:
    """Runs a kernel by seed: its first buffer holds numbers, its second zeros."""

    def make(name: str, grid: int, block: int, given: Any, *scalars: int) -> Callable[[int], bytes]:
        def run(seed: int) -> bytes:
            made = bench(SOURCE, seed=seed, threads=1)
            out = made.buffer(np.zeros(128, "i4"), "update")
            arguments = [out] if given is None else [made.buffer(given), out]
            made.launch(name, grid, block, arguments, *scalars)
            return made.read(out, "i4").tobytes()

        return run

    return make


def test_order_does_not_matter(runner: Callable[..., Any]) -> None:
    """With its barrier a kernel gives the same bits in every order."""
    run = runner("exchange", 1, 128, np.arange(128, dtype="i4"), 1)
    assert len({run(seed) for seed in range(5)}) == 1


def test_missing_barrier(runner: Callable[..., Any]) -> None:
    """Without it, orders of threads differ."""
    run = runner("exchange", 1, 128, np.arange(1, 129, dtype="i4"), 0)
    first, *others = (run(seed) for seed in range(3))
    assert all(sum(map(ne, first, other)) > 1 for other in others)


def test_blocks_that_collide(runner: Callable[..., Any]) -> None:
    """The last block to write wins, whichever that is."""
    first, second = map(runner("last_block", 200, 1, None, 0), (0, 1))
    assert first[0] != second[0]
    assert first[1:] == second[1:]


def test_atomics_of_floats(runner: Callable[..., Any], rng: np.random.Generator) -> None:
    """Sums of floats round by order, and a seed gives the same order each time."""
    run = runner("sum", 10_000, 1, rng.standard_normal(10_000).astype("f4"))
    assert len({run(seed) for seed in range(3)}) > 1
    assert run(3) == run(3)
