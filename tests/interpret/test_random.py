"""rng-bit-generator: the block functions' published vectors, XLA's recorded arrays, plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hloopt
from hloopt.errors import UnsupportedError
from hloopt.interpret.random import philox4x32, random_bits, threefry2x32
from hloopt.types import dtype

# Random123's known-answer tests: counter words, key words, output words.
THREEFRY_VECTORS = [
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]
PHILOX_VECTORS = [
    ((0,) * 4, (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]

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


def words(values: tuple[int, ...]) -> list[np.ndarray]:
    return [np.array([value], np.uint32) for value in values]


@pytest.mark.parametrize(("counter", "key", "expected"), THREEFRY_VECTORS)
def test_threefry_gives_the_published_vectors(counter, key, expected) -> None:
    assert tuple(int(word[0]) for word in threefry2x32(key, *words(counter))) == expected


@pytest.mark.parametrize(("counter", "key", "expected"), PHILOX_VECTORS)
def test_philox_gives_the_published_vectors(counter, key, expected) -> None:
    assert tuple(int(word[0]) for word in philox4x32(key, tuple(words(counter)))) == expected


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


def rotate(value: int, distance: int) -> int:
    return (value << distance | value >> 32 - distance) & 0xFFFFFFFF


def plain_threefry(key: int, counter: int) -> tuple[int, int]:
    """Threefry2x32-20 on Python's integers, one block."""
    keys = [key & 0xFFFFFFFF, key >> 32]
    keys.append(0x1BD11BDA ^ keys[0] ^ keys[1])
    x = [counter & 0xFFFFFFFF, counter >> 32]
    x = [(x[0] + keys[0]) % 2**32, (x[1] + keys[1]) % 2**32]
    for number in range(20):
        distance = [13, 15, 26, 6, 17, 29, 16, 24][number % 8]
        x[0] = (x[0] + x[1]) % 2**32
        x[1] = rotate(x[1], distance) ^ x[0]
        if number % 4 == 3:
            group = number // 4 + 1
            x[0] = (x[0] + keys[group % 3]) % 2**32
            x[1] = (x[1] + keys[(group + 1) % 3] + group) % 2**32
    return x[0], x[1]


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple),
    st.integers(0, LAST),
    st.integers(0, LAST),
)
def test_threefry_words_of_a_block_lie_along_the_first_even_else_the_largest_dimension(
    dims: tuple[int, ...], key: int, counter: int
) -> None:
    after, found = random_bits(
        "rng_three_fry", np.array([key, counter], np.uint64), dims, np.uint32, 32
    )
    even = [axis for axis, size in enumerate(dims) if size % 2 == 0]
    split = even[0] if even else dims.index(max(dims))
    half = list(dims)
    half[split] = (half[split] + 1) // 2
    assert int(after[1]) == (counter + math.prod(half)) % 2**64
    for index in np.ndindex(*dims):
        block = list(index)
        block[split] //= 2
        number = int(np.ravel_multi_index(block, half))
        word = plain_threefry(key, (counter + number) % 2**64)[index[split] % 2]
        assert int(found[index]) == word


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
