"""``rng``: what XLA's own expansion draws of the same key and state, and what modes and regions change."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.interpret.distributions import normal, uniform
from hloopt.types import dtype

# What XLA's CPU backend (jaxlib 0.10.2) draws as [3,5], as bytes.  The key is read off its compiled module, in
# which the state is a constant, too.
KEY = 3131142718 << 32 | 3185624911
STATE = np.array([KEY, 0x7012395, 0], np.uint64)
DRAWN = [
    ("rng_uniform", "f32", "4860613e9a4b0f3f50f4f63e405d703decde963e74d0f23ea470263f70684a3e2276463fe80d1e3fbc966d3f00d1723d7c603a3fcc7f483f80232a3e"),
    ("rng_uniform", "f64", "020b477e73e9e13f40f4f6d0ab0bae3fdcdb928f0e5ade3f5038d3a80e4dc93fc4ce981dbdc1e33f602ddbad235aae3f0e4c579af90fe93f1c5105c89c91ea3f6c4cdb3ad6cbed3f10c53e2058dfc33f56bf5c82b891e43fee3923bc3111e73f20f05220543eea3f8e3455d08693e03fb8f26f736a86d33f"),
    ("rng_uniform", "f16", "0b337a38b837832bb734973734395332343af0386d3b972bd339443a5131"),
    ("rng_uniform", "bf16", "613e0f3ff73e703d973ef33e263f4a3e463f1e3f6e3f733d3a3f483f2a3e"),
    ("rng_normal", "f32", "7f5023bff433cfbf86d6de3e742e903f18f3803e6ed3603fc46e993e8eb5f5bebe2f07bf86fa0f3ef18b47bf11f6283ee850d4bf58666a3f571172be"),
    ("rng_normal", "f64", "f8607a426fd9d83f38ff037dfd13f03f6d406d322c7ff23f013a8a75093fd93f5d356afaa7dfd63fc15aa003d395e3bfd5e76bca539fd53f01a60ad99a04d43f70fb3727861dcb3f64e4563adf94edbf4bebd1e14134b2bf7844116f4206e4bf067069af4362f6bf161e12f542abe43ffe8bdcf00d43bf3f"),
    ("rng_normal", "f16", "1bb97abef736813c0834073bcb34aeb739b880303cba4831a3be533b91b3"),
    ("rng_normal", "bf16", "23bfcfbfdf3e903f813e613f993ef6be07bf103e48bf293ed4bf6a3f72be"),
]  # fmt: skip


@pytest.mark.parametrize(("distribution", "name", "content"), DRAWN)
def test_floats_are_those_of_xla_for_its_key(distribution: str, name: str, content: str) -> None:
    """Uniform in [0, 1) exactly; normal but for the last place of a sine."""
    kind = dtype(name)
    draw = normal if distribution == "rng_normal" else uniform
    zero, one = kind.numpy.type(0), kind.numpy.type(1)
    got = draw(STATE, (3, 5), kind, zero, one)
    want = np.frombuffer(bytes.fromhex(content), kind.numpy).reshape(3, 5)
    assert got.dtype == want.dtype
    if distribution == "rng_uniform":
        assert got.tobytes() == want.tobytes()
    else:
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(np.float64), rtol=1e-6, atol=1e-7
        )


REGION = """HloModule m

draw {
  p = f32[] parameter(0)
  a = f32[] constant(0)
  b = f32[] constant(1)
  r = f32[] rng(a, b), distribution=rng_uniform
  ROOT s = f32[] add(p, r)
}

ENTRY e {
  x = f32[3,4] parameter(0)
  ROOT m = f32[3,4] map(x), dimensions={0,1}, to_apply=draw
}
"""


def test_a_region_draws_for_each_element_anew() -> None:
    """``map`` calls its computation once an element, in row-major order."""
    module = hloopt.parse(REGION)
    zeros = [np.zeros((3, 4), np.float32)]
    (got,) = hloopt.evaluate(module, zeros)
    assert len(set(got.reshape(-1).tolist())) == 12
    (again,) = hloopt.compile(module).run(zeros)
    assert again.tolist() == got.tolist()


def test_narrow_floats_are_the_same_in_excess_precision() -> None:
    """What is drawn is rounded to its type in every mode: the mode is about chains of ops."""
    text = """HloModule m

ENTRY e {
  a = bf16[] constant(0)
  b = bf16[] constant(1)
  ROOT r = bf16[64] rng(a, b), distribution=rng_uniform
}
"""
    module = hloopt.parse(text)
    (strict,) = hloopt.evaluate(module, [])
    for got in (
        hloopt.evaluate(module, [], excess_precision=True),
        hloopt.compile(module, excess_precision=True).run([]),
    ):
        assert got[0].tolist() == strict.tolist()
    assert all(0 <= value < 1 for value in strict.astype(np.float32))
