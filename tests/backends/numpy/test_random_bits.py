"""Random bits that are planned are the interpreter's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hloopt.backends.numpy import random_bits
from hloopt.interpret.random import philox_bits
from tests.helpers.planned import assert_planned
from tests.semantics.elements import drawn_dims, shape_of

KINDS = ("u32", "u64", "s64", "f32", "f64", "u16", "bf16", "s8", "u4", "s2")
STATES = st.lists(
    st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 2**64 - 1, 2**64 - 3, 2**32 - 1])),
    min_size=2,
    max_size=3,
)


@settings(max_examples=80, deadline=None)
@given(
    STATES,
    st.sampled_from(KINDS),
    drawn_dims(0, 3, 0, 5),
    st.sampled_from(["rng_default", "rng_philox", "rng_three_fry"]),
    st.booleans(),
    st.booleans(),
)
def test_bits_agree(words, kind, dims, algorithm, several, excess):
    """States that run over, the older form without a new state, types of any width."""
    state = np.array(words[:2] if algorithm == "rng_three_fry" else words, np.uint64)
    shape = shape_of(kind, dims)
    result = f"(u64[{state.size}], {shape})" if several else shape
    text = f"""HloModule m
ENTRY e {{
  s = u64[{state.size}] parameter(0)
  ROOT r = {result} rng-bit-generator(s), algorithm={algorithm}
}}
"""
    assert_planned(text, [state], excess_precision=excess)


@pytest.mark.parametrize("words", [[5, 2**64 - 40, 7], [5, 2**64 - 40, 2**64 - 1], [1, 2]])
def test_parts_of_many_blocks_are_one_after_the_other(words, monkeypatch):
    monkeypatch.setattr(random_bits, "_AT_ONCE", 16)
    state = np.array(words, np.uint64)
    after, blocks = random_bits.philox(state, 70)
    wanted, values = philox_bits(state, (140,), 64)
    assert after.tolist() == wanted.tolist()
    assert blocks.reshape(-1).tolist() == values.tolist()
