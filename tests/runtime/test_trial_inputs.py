"""Inputs of trials: each spread is what it says, and leaves alone what the module asks for."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.runtime.inputs import generate
from hloopt.runtime.trial_inputs import TRIALS, Spread, trial_inputs

MODULE = """HloModule m
ENTRY e {
  x = f32[40,30] parameter(0)
  i = s8[500] parameter(1)
  n = s32[60,1] parameter(2)
  v = f32[40] parameter(3)
  c = c64[50] parameter(4)
  p = pred[30] parameter(5)
  u = u16[400] parameter(6)
  z = bf16[0] parameter(7)
  g = f32[60,30] gather(x, n), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,30}
  s = f32[40] sqrt(v)
  ROOT t = (f32[60,30], f32[40], s8[500], c64[50], pred[30], u16[400], bf16[0]) tuple(g, s, i, c, p, u, z)
}
"""


@pytest.fixture
def module() -> hloopt.Module:
    return hloopt.parse(MODULE)


@pytest.mark.parametrize("spread", sorted(set(TRIALS)))
def test_what_is_asked_for_is_kept(module: hloopt.Module, spread: Spread) -> None:
    """Types and dimensions are the parameters', indices stay in range but for strays, and so do arguments of roots."""
    plain, found = generate(module, 3), trial_inputs(module, 3, spread)
    for one, other in zip(plain, found, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
    assert np.array_equal(plain[3], found[3])
    assert np.array_equal(plain[2], found[2]) == (spread != "stray")
    for one, other in zip(found, trial_inputs(module, 3, spread), strict=True):
        assert one.tobytes() == other.tobytes()


def test_spreads(module: hloopt.Module) -> None:
    """Ties are many, negatives are all, wide ones reach the ends, and a lone one is alone."""
    tied = trial_inputs(module, 1, "tied")
    assert np.unique(tied[0]).size < 12
    assert np.array_equal(tied[4], np.round(tied[4]))
    negative = trial_inputs(module, 1, "negative")
    assert negative[0].max() <= -1
    assert negative[1].max() == -1
    assert negative[1].min() < -100
    assert negative[6].min() >= 0
    wide = trial_inputs(module, 1, "wide")
    assert (wide[1].min(), wide[1].max()) == (-128, 127)
    assert wide[6].max() > 900
    lone = trial_inputs(module, 1, "lone")
    assert [np.count_nonzero(lone[at]) for at in (0, 4, 5)] == [1, 1, 1]
