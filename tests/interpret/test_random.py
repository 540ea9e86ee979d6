"""rng-bit-generator: XLA's recorded arrays, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.errors import UnsupportedError
from hloopt.interpret import random as generators
from hloopt.interpret.random import philox, random_bits
from hloopt.types import dtype

KEY = 0x123456789ABCDEF0
LAST = 2**64 - 1

# What XLA's CPU backend (jaxlib 0.10.2) answers.
RECORDED = [
    ("rng_three_fry", (KEY, LAST), "u32", (5,), (KEY, 2),
     [2754706343, 569486026, 1593802813, 1289978105, 961273596]),
    ("rng_three_fry", (KEY, LAST), "u32", (), (KEY, 0), 2754706343),
    ("rng_three_fry", (KEY, LAST), "u32", (3, 3), (KEY, 5),
     [[2754706343, 1593802813, 961273596], [569486026, 1289978105, 1692389550],
      [1379882886, 1430061416, 523829269]]),
    ("rng_three_fry", (KEY, LAST), "u64", (3,), (KEY, 2),
     [2445923859953712039, 5540413775124856893, 7268757770303430396]),
    ("rng_three_fry", (KEY, LAST), "u8", (5,), (KEY, 2), [167, 202, 61, 249, 252]),
    ("rng_three_fry", (KEY, LAST), "u16", (3, 4), (KEY, 5),
     [[31655, 43722, 32829, 33017], [57084, 53422, 22406, 56717], [360, 34058, 21, 40121]]),
    ("rng_three_fry", (KEY, LAST), "u4", (3,), (KEY, 1), [7, 10, 13]),
    ("rng_three_fry", (KEY, LAST), "u32", (0,), (KEY, LAST), []),
    ("rng_philox", (KEY, LAST), "u32", (5,), (KEY, 1),
     [1480449822, 3015399692, 3935955418, 1076038438, 271420659]),
    ("rng_philox", (KEY, LAST), "u64", (3,), (KEY, 1),
     [12951043062988922654, 4621549904384879066, 2311151477393820915]),
    ("rng_philox", (KEY, LAST), "u16", (3, 4), (KEY, 2),
     [[57118, 22796, 59866, 2854], [36083, 56326, 12798, 26110], [4150, 12992, 44771, 33498]]),
    ("rng_philox", (KEY, 5, 7), "u32", (3, 3), (KEY, 8, 7),
     [[1301050222, 3090664569, 3096839350], [2754954323, 2121519059, 2194712500],
      [3858208825, 407835498, 136163349]]),
    ("rng_philox", (KEY, 5, 7), "u64", (3,), (KEY, 7, 7),
     [13274303248061985646, 11832438722355659958, 9426218413743919059]),
    ("rng_philox", (KEY, 5, 7), "u8", (5,), (KEY, 7, 7), [110, 121, 182, 83, 211]),
    ("rng_default", (KEY, LAST), "u32", (3, 3), (KEY, 2),
     [[1480449822, 3015399692, 3935955418], [1076038438, 271420659, 538106886],
      [3801100798, 3007079934, 2583171126]]),
]  # fmt: skip


@pytest.mark.parametrize(("algorithm", "state", "name", "dims", "after", "bits"), RECORDED)
def test_arrays_and_states_are_those_of_xla(algorithm, state, name, dims, after, bits) -> None:
    kind = dtype(name)
    found_state, found = random_bits(
        algorithm, np.array(state, np.uint64), dims, kind.numpy, kind.bits
    )
    assert found_state.tolist() == list(after)
    assert found.dtype == kind.numpy
    assert found.tolist() == bits


def test_signed_types_have_the_same_bits_as_unsigned_ones() -> None:
    state = np.array([KEY, 9], np.uint64)
    for algorithm in ("rng_three_fry", "rng_philox"):
        for bits in (8, 16, 32, 64):
            signed, unsigned = dtype(f"s{bits}").numpy, dtype(f"u{bits}").numpy
            _, left = random_bits(algorithm, state, (7,), signed, bits)
            _, right = random_bits(algorithm, state, (7,), unsigned, bits)
            assert left.dtype == signed
            assert left.view(unsigned).tolist() == right.tolist()
        _, left = random_bits(algorithm, state, (16,), dtype("s4").numpy, 4)
        _, right = random_bits(algorithm, state, (16,), dtype("u4").numpy, 4)
        assert [int(value) % 16 for value in left] == [int(value) for value in right]
        assert min(int(value) for value in left) < 0


def test_philox_counter_carries_into_its_high_word() -> None:
    after, bits = random_bits("rng_philox", np.array([1, LAST, 3], np.uint64), (8,), np.uint32, 32)
    assert after.tolist() == [1, 1, 4]
    second = np.array([1, 0, 4], np.uint64)
    assert bits[4:].tolist() == random_bits("rng_philox", second, (4,), np.uint32, 32)[1].tolist()


MODULE = """HloModule m

ENTRY e {{
  state = {state} parameter(0)
  ROOT bits = ({state}, {bits}) rng-bit-generator(state), algorithm={algorithm}
}}
"""


def test_the_op_returns_the_new_state_and_the_bits() -> None:
    text = MODULE.format(state="u64[2]", bits="u32[5]", algorithm="rng_three_fry")
    after, bits = hloopt.evaluate(hloopt.parse(text), [np.array([KEY, LAST], np.uint64)])
    assert after.tolist() == [KEY, 2]
    assert bits.tolist() == [2754706343, 569486026, 1593802813, 1289978105, 961273596]


@pytest.mark.parametrize(
    ("state", "bits", "algorithm", "message"),
    [
        ("u64[3]", "u32[5]", "rng_three_fry", "rng_three_fry with state u64[3]; it has u64[2]"),
        (
            "u64[4]",
            "u32[5]",
            "rng_philox",
            "rng_philox with state u64[4]; it has u64[2] or u64[3]",
        ),
        (
            "u64[2]",
            "pred[5]",
            "rng_philox",
            "random bits of type pred[5]; integers and floats have them",
        ),
        (
            "u64[2]",
            "c64[5]",
            "rng_three_fry",
            "random bits of type c64[5]; integers and floats have them",
        ),
        ("u32[4]", "u32[5]", "rng_philox", "rng_philox with state u32[4]; it has u64[2] or u64[3]"),
    ],
)
def test_what_is_not_defined_is_refused_by_name(state, bits, algorithm, message) -> None:
    module = hloopt.parse(MODULE.format(state=state, bits=bits, algorithm=algorithm))
    with pytest.raises(UnsupportedError) as error:
        hloopt.evaluate(module, [np.zeros(4, np.uint64)])
    assert error.value.message == f"bits: {message}"
    assert error.value.line == 5


def test_rng_state_advances_by_delta_and_each_instruction_has_its_own() -> None:
    """XLA's CPU backend answers 117515157 first, then what the trips before have added."""
    text = """HloModule m

body {
  state = (s32[], u64[2]) parameter(0)
  trip = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(trip, one)
  words = u64[2] rng-get-and-update-state(), delta=7
  ROOT result = (s32[], u64[2]) tuple(next, words)
}

condition {
  state = (s32[], u64[2]) parameter(0)
  trip = s32[] get-tuple-element(state), index=0
  limit = s32[] constant(4)
  ROOT more = pred[] compare(trip, limit), direction=LT
}

ENTRY e {
  zero = s32[] constant(0)
  nothing = u64[2] constant({0, 0})
  start = (s32[], u64[2]) tuple(zero, nothing)
  loop = (s32[], u64[2]) while(start), condition=condition, body=body
  last = u64[2] get-tuple-element(loop), index=1
  other = u64[2] rng-get-and-update-state(), delta=3
  ROOT both = (u64[2], u64[2]) tuple(last, other)
}
"""
    module = hloopt.parse(text)
    for _ in range(2):
        last, other = hloopt.evaluate(module, [])
        assert last.tolist() == [117515157 + 3 * 7, 0]
        assert other.tolist() == [117515157, 0]


@pytest.mark.parametrize("words", [[5, 2**64 - 40, 7], [5, 2**64 - 40, 2**64 - 1], [1, 2]])
def test_parts_of_many_blocks_are_one_after_the_other(words, monkeypatch):
    state = np.array(words, np.uint64)
    wanted = [array.tolist() for array in philox(state, 70)]
    monkeypatch.setattr(generators, "_AT_ONCE", 16)
    assert [array.tolist() for array in philox(state, 70)] == wanted
