"""Random bits: the words of Threefry's and Philox's blocks, element by element, and states that move on."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.types import DTYPES
from tests.helpers.rarely import examples
from tests.semantics.blocks import (
    MASK32,
    MASK64,
    element_philox,
    element_threefry,
    philox,
    threefry,
)
from tests.semantics.elements import FLOATS, INTEGERS, drawn_dims, entry, from_bits, shape_of
from tests.semantics.statement import check

OPCODES = ("rng-bit-generator", "rng-get-and-update-state")

words = st.one_of(st.integers(0, MASK64), st.sampled_from([0, 1, MASK32, MASK64 - 1, MASK64]))

# Random123's kat_vectors: key words, counter words, output words.
KNOWN_THREEFRY = [
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((MASK32, MASK32), (MASK32, MASK32), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
]
KNOWN_PHILOX = [
    ((0, 0), (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((MASK32,) * 2, (MASK32,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0xA4093822, 0x299F31D0),
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("key", "counter", "block"), KNOWN_THREEFRY)
def test_threefry_of_the_statement_and_of_the_op_give_the_published_vectors(key, counter, block):
    """The words of the first block of a 64-bit element are the vector's."""
    assert threefry(key, counter) == block
    state = np.array([key[0] | key[1] << 32, counter[0] | counter[1] << 32], np.uint64)
    after = np.array([int(state[0]), (int(state[1]) + 1) & MASK64], np.uint64)
    text = generator("rng_three_fry", 2, "u64", (1,))
    check(text, [state], [after, np.array([block[0] | block[1] << 32], np.uint64)])


@pytest.mark.parametrize(("key", "counter", "block"), KNOWN_PHILOX)
def test_philox_of_the_statement_and_of_the_op_give_the_published_vectors(key, counter, block):
    """The words of the first block of four 32-bit elements are the vector's."""
    assert philox(key, counter) == block
    low, high = counter[0] | counter[1] << 32, counter[2] | counter[3] << 32
    state = np.array([key[0] | key[1] << 32, low, high], np.uint64)
    total = (low | high << 64) + 1
    after = np.array([int(state[0]), total & MASK64, total >> 64 & MASK64], np.uint64)
    text = generator("rng_philox", 3, "u32", (4,))
    check(text, [state], [after, np.array(block, np.uint32)])


# ---- rng-bit-generator ----------------------------------------------------------------------------


def generator(algorithm, size, name, dims):
    """A module of one generator with its state as parameter."""
    shape = f"(u64[{size}], {shape_of(name, dims)})"
    return entry(f"{shape} rng-bit-generator(p0), algorithm={algorithm}", [f"u64[{size}]"])


def state_after(algorithm, state, dims, wide):
    """Blocks that were used are counted, in the low word that the state has."""
    if algorithm == "rng_three_fry":
        sizes = list(dims)
        if dims and not wide:
            even = [axis for axis, size in enumerate(dims) if size % 2 == 0]
            split = even[0] if even else dims.index(max(dims))
            sizes[split] = (sizes[split] + 1) // 2
        return [state[0], (state[1] + math.prod(sizes)) & MASK64]
    blocks = -(-math.prod(dims) // (2 if wide else 4))
    if len(state) == 2:
        return [state[0], (state[1] + blocks) & MASK64]
    total = (state[1] | state[2] << 64) + blocks
    return [state[0], total & MASK64, total >> 64 & MASK64]


@pytest.mark.parametrize("algorithm", ["rng_three_fry", "rng_philox", "rng_default"])
@given(
    st.sampled_from([*INTEGERS, *FLOATS]),
    drawn_dims(max_size=5),
    st.lists(words, min_size=2, max_size=3),
)
@settings(max_examples=examples(60))
def test_bits_are_those_of_the_blocks_of_a_counter(algorithm, name, dims, state):
    """Every type takes the low bits of its words; XLA's CPU has Philox for ``rng_default``."""
    row = DTYPES[name]
    if algorithm == "rng_three_fry":
        state = state[:2]
    element = element_threefry if algorithm == "rng_three_fry" else element_philox
    bits = [
        element(state, dims, index, row.bits == 64) & ((1 << row.bits) - 1)
        for index in product(*map(range, dims))
    ]
    want = from_bits(bits, row).reshape(dims)
    after = state_after(algorithm, state, dims, row.bits == 64)
    text = generator(algorithm, len(state), name, dims)
    results = (
        hloopt.evaluate(hloopt.parse(text), [np.array(state, np.uint64)]),
        hloopt.compile(hloopt.parse(text)).run([np.array(state, np.uint64)]),
    )
    for got_state, got in results:
        assert got_state.tolist() == after
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        assert got.tobytes() == want.tobytes()  # the bits, of NaN too


def test_the_older_form_gives_the_bits_alone():
    """A result that is no tuple has no new state."""
    bits = [element_philox([7, 9], (3,), (at,), wide=False) for at in range(3)]
    text = entry("u32[3] rng-bit-generator(p0), algorithm=rng_philox", ["u64[2]"])
    check(text, [np.array([7, 9], np.uint64)], np.array(bits, np.uint32))


# ---- rng-get-and-update-state ---------------------------------------------------------------------


@given(st.lists(st.integers(-(2**40), 2**62), min_size=1, max_size=4), st.integers(1, 5))
@settings(max_examples=examples(30))
def test_a_state_is_read_before_it_moves_on(deltas, iterations):
    """Each instruction counts by itself from 0x7012395, 128 bits wide, as often as it runs."""
    states = ", ".join(["u64[2]"] * len(deltas))
    lines = [f"HloModule m\nbody {{\n  s = (s32[], {states}) parameter(0)"]
    lines.append("  i = s32[] get-tuple-element(s), index=0\n  one = s32[] constant(1)")
    lines.append("  n = s32[] add(i, one)")
    lines += [f"  r{at} = u64[2] rng-get-and-update-state(), delta={delta}" for at, delta in enumerate(deltas)]  # fmt: skip
    names = ", ".join(f"r{at}" for at in range(len(deltas)))
    lines.append(f"  ROOT t = (s32[], {states}) tuple(n, {names})\n}}")
    lines.append(f"again {{\n  s = (s32[], {states}) parameter(0)")
    lines.append(f"  i = s32[] get-tuple-element(s), index=0\n  e = s32[] constant({iterations})")
    lines.append("  ROOT c = pred[] compare(i, e), direction=LT\n}\nENTRY e {")
    lines.append("  z = s32[] constant(0)\n  v = u64[2] constant({0, 0})")
    lines.append(f"  t = (s32[], {states}) tuple(z{', v' * len(deltas)})")
    lines.append(f"  ROOT w = (s32[], {states}) while(t), condition=again, body=body\n}}\n")
    totals = [(0x7012395 + (iterations - 1) * delta) % 2**128 for delta in deltas]
    want = [np.array([total & MASK64, total >> 64], np.uint64) for total in totals]
    check("\n".join(lines), [], [np.array(iterations, np.int32), *want])


def test_calls_that_share_a_state_are_not_inlined():
    """Two calls of one computation count on the same state; copies of it would each begin anew."""
    text = """HloModule m

next {
  ROOT r = u64[2] rng-get-and-update-state(), delta=3
}

ENTRY e {
  a = u64[2] call(), to_apply=next
  b = u64[2] call(), to_apply=next
  ROOT t = (u64[2], u64[2]) tuple(a, b)
}
"""
    module = hloopt.parse(text)
    for form in (module, hloopt.optimize(module, "O2"), hloopt.optimize(module, "call-inliner")):
        states = [state.tolist() for state in hloopt.evaluate(form, [])]
        assert states == [[0x7012395, 0], [0x7012398, 0]]
