"""Random bits: ``rng-bit-generator`` with Threefry2x32-20 and Philox4x32-10, bit for bit as XLA.

The block functions are those of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011),
with the constants of the Random123 library; how a state of words becomes counters and blocks become an
array of a shape is XLA's.  ``distributions`` turns such bits into numbers.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from hloopt.interpret.context import Check, Context, Evaluator, Value, array_of
from hloopt.ir import Instruction
from hloopt.types import Array, ArrayShape, TupleShape, array, leaves, without_layout

__all__ = [
    "EVALUATORS",
    "joined_pairs",
    "paired_dims",
    "philox",
    "philox_bits",
    "random_bits",
    "split_dimension",
    "split_pairs",
    "threefry2x32",
    "threefry_bits",
]

_U32 = np.uint32
_U64 = np.uint64
_LOW = 0xFFFFFFFF
_WORD = 0xFFFFFFFFFFFFFFFF
_INITIAL_STATE = 0x7012395

_THREEFRY_PARITY = 0x1BD11BDA
_THREEFRY_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))

_PHILOX_ROUNDS = 10
_PHILOX_MULTIPLIERS = np.array([[0xD2511F53], [0xCD9E8D57]], np.uint64)
# What is added to the two words of the key from round to round, for each of them.
_PHILOX_WEYL = (
    np.arange(_PHILOX_ROUNDS, dtype=np.uint32)[:, np.newaxis]
    * np.array([0x9E3779B9, 0xBB67AE85], np.uint32)
)[..., np.newaxis]
# Rounds of so many blocks at once stay in the second cache: 48 bytes a block.
_AT_ONCE = 1 << 13


def threefry2x32(key: tuple[Any, Any], x0: Array, x1: Array) -> tuple[Array, Array]:
    """The 20-round block function: two u32 words of counter each element to two words of output.

    The words of the key are integers, or u32 arrays with a key for each element.
    """
    keys = (*key, _THREEFRY_PARITY ^ key[0] ^ key[1])
    x0 = x0 + _U32(keys[0])
    x1 = x1 + _U32(keys[1])
    for group in range(5):
        for distance in _THREEFRY_ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = ((x1 << _U32(distance)) | (x1 >> _U32(32 - distance))) ^ x0
        x0 = x0 + _U32(keys[(group + 1) % 3])
        x1 = x1 + _U32((keys[(group + 2) % 3] + group + 1) & _LOW)
    return x0, x1


def philox(state: Array, blocks: int) -> tuple[Array, Array]:
    """The state after ``blocks`` blocks of a u64[2] or u64[3] state, and their words: u64 [blocks, 2].

    A block is the 10-round function of a key of two words and a counter of four.  The state is (key, counter
    low, counter high); of two numbers the key is also the high half of the counter.  Each number of the result
    is two words of a block, the first one low.
    """
    words = state.tolist()
    key, low, high = words if len(words) == 3 else (*words, words[0])
    keys = (_PHILOX_WEYL + np.array([[key & _LOW], [key >> 32]], _U32)).astype(_U64)
    counter = high << 64 | low
    result = np.empty((blocks, 2), _U64)
    for begin in range(0, blocks, _AT_ONCE):
        _fill(result[begin : begin + _AT_ONCE], keys, counter + begin)
    total = counter + blocks
    after = [key, total & _WORD, total >> 64 & _WORD][: len(words)]
    return np.array(after, _U64), result


def _fill(result: Array, keys: Array, counter: int) -> None:
    """The blocks of a 128-bit counter and those that follow it.

    Words are kept in 64 bits, so that a product is made in place: ``factors`` are the two that are
    multiplied, ``rest`` the others.
    """
    count = len(result)
    first = _U64(counter & _WORD)
    lows = np.arange(count, dtype=_U64) + first
    highs = np.full(count, counter >> 64 & _WORD, _U64)
    highs += lows < first
    counters = np.stack([lows, highs])
    half = _U64(32)
    factors, rest = counters & _U64(_LOW), counters >> half
    products = np.empty((2, count), _U64)
    crossed = products[::-1]
    for key in keys:
        np.multiply(factors, _PHILOX_MULTIPLIERS, out=products)
        np.bitwise_xor(rest, key, out=rest)
        np.right_shift(crossed, half, out=factors)
        np.bitwise_xor(factors, rest, out=factors)
        np.bitwise_and(crossed, _U64(_LOW), out=rest)
    rest <<= half
    rest |= factors
    result[...] = rest.T


def threefry_bits(state: Array, dims: tuple[int, ...], bits: int) -> tuple[Array, Array]:
    """Bits from a u64[2] state (key, counter): the new state, and a u32 or u64 array of ``dims``.

    32-bit: the two words of a block lie beside each other along one dimension, the first of even
    size, else the first of the largest; elements narrower than 32 bits are the low bits of these.
    64-bit: one block an element, first word low.
    """
    key, counter = int(state[0]), int(state[1])
    half = dims if bits == 64 else _half_shape(dims)
    count = prod(half)
    counters = np.arange(count, dtype=_U64) + _U64(counter)
    y0, y1 = threefry2x32((key & _LOW, key >> 32), _low(counters), _high(counters))
    after = np.array([key, (counter + count) & _WORD], _U64)
    if bits == 64:
        return after, _wide(y0, y1).reshape(dims)
    return after, joined_pairs(y0.reshape(half), y1.reshape(half), dims)


def philox_bits(state: Array, dims: tuple[int, ...], bits: int) -> tuple[Array, Array]:
    """Bits from a state of ``philox``: the new state, and a u32 or u64 array of ``dims``.

    A block's words fill the result in row-major order, pairs of them (low first) for 64 bits.
    """
    count = prod(dims)
    after, words = philox(state, -(-count // (2 if bits == 64 else 4)))
    if bits != 64:
        # Low words first, whatever the order of bytes is here.
        words = words.astype("<u8", copy=False).view("<u4").astype(_U32, copy=False)
    return after, words.reshape(-1)[:count].reshape(dims)


def random_bits(
    algorithm: str, state: Array, dims: tuple[int, ...], storage: np.dtype[Any], bits: int
) -> tuple[Array, Array]:
    """``rng-bit-generator``: the new state and an array of type ``storage`` (``bits`` wide).

    The elements of a float type have random bits, too: infinities and NaN are among them.

    ``algorithm`` is ``rng_three_fry``, ``rng_philox`` or ``rng_default``, which is Philox on CPU and
    GPU.
    """
    generate = threefry_bits if algorithm == "rng_three_fry" else philox_bits
    after, raw = generate(state, dims, bits)
    if bits >= 32:
        return after, raw.view(storage)
    if bits >= 8:
        return after, raw.astype(f"u{bits // 8}").view(storage)
    return after, (raw & _U32((1 << bits) - 1)).astype(np.uint8).view(storage)


def rng_bit_generator(
    instruction: Instruction, operands: tuple[Value, ...], context: Context
) -> Value:
    """Evaluate ``rng-bit-generator``: (new state, bits), or the bits alone in the older form."""
    state = array_of(operands[0])
    algorithm = str(instruction.attributes["algorithm"])
    shape = instruction.shape
    bits_shape = shape.elements[1] if isinstance(shape, TupleShape) else shape
    assert isinstance(bits_shape, ArrayShape)
    kind = bits_shape.dtype
    after, values = random_bits(algorithm, state, bits_shape.dims, kind.numpy, kind.bits)
    values = context.round(values, kind)
    return (after, values) if isinstance(shape, TupleShape) else values


def _check_bit_generator(instruction: Instruction) -> str | None:
    algorithm = str(instruction.attributes["algorithm"])
    shape = instruction.shape
    *_, bits = leaves(shape)
    if not isinstance(bits, ArrayShape) or not (bits.dtype.is_integer or bits.dtype.is_float):
        return f"random bits of type {bits}; integers and floats have them"
    words = (2,) if algorithm == "rng_three_fry" else (2, 3)
    state = without_layout(instruction.operands[0].shape)
    if state not in [without_layout(array("u64", (count,))) for count in words]:
        wanted = " or ".join(f"u64[{count}]" for count in words)
        return f"{algorithm} with state {state}; it has {wanted}"
    return None


def rng_get_and_update_state(
    instruction: Instruction, operands: tuple[Value, ...], context: Context
) -> Value:
    """Evaluate ``rng-get-and-update-state``: the state before ``delta`` is added, low word first.

    Each instruction has its own state, as on XLA's CPU, which starts anew with each host.
    """
    states, memo = context.host.states, (rng_get_and_update_state, instruction)
    state = states.get(memo, _INITIAL_STATE)
    states[memo] = state + int(instruction.attributes["delta"])
    return np.array([state & _WORD, state >> 64 & _WORD], _U64)


def split_pairs(pairs: Array, dims: tuple[int, ...]) -> tuple[Array, Array]:
    """The halves of an array of ``paired_dims(dims)``."""
    axis = split_dimension(dims) + 1 if dims else 0
    first, second = np.moveaxis(pairs, axis, 0)
    return first, second


def joined_pairs(first: Array, second: Array, dims: tuple[int, ...]) -> Array:
    """An array of ``dims`` out of two halves, whose elements take turns along one dimension.

    That is the first dimension of even size, else the first of the largest; what is too much is dropped.
    """
    if not dims:
        return first.reshape(())
    split = split_dimension(dims)
    pairs = np.stack([first, second], axis=split + 1)
    joined = pairs.reshape(*dims[:split], 2 * first.shape[split], *dims[split + 1 :])
    keep = (slice(None),) * split + (slice(dims[split]),)
    return np.ascontiguousarray(joined[keep])


def paired_dims(dims: tuple[int, ...]) -> tuple[int, ...]:
    """The dimensions of pairs of numbers that make an array of ``dims``: one more, of size 2."""
    if not dims:
        return (2,)
    half, split = _half_shape(dims), split_dimension(dims)
    return (*half[: split + 1], 2, *half[split + 1 :])


def _half_shape(dims: tuple[int, ...]) -> tuple[int, ...]:
    if not dims:
        return ()
    split = split_dimension(dims)
    return (*dims[:split], (dims[split] + 1) // 2, *dims[split + 1 :])


def split_dimension(dims: tuple[int, ...]) -> int:
    """Along which dimension the words of a block lie: the first of even size, else the first of the largest."""
    even = next((axis for axis, size in enumerate(dims) if size % 2 == 0), None)
    return dims.index(max(dims)) if even is None else even


def _low(words: Array) -> Array:
    return words.astype(_U32)


def _high(words: Array) -> Array:
    return (words >> _U64(32)).astype(_U32)


def _wide(low: Array, high: Array) -> Array:
    return low.astype(_U64) | (high.astype(_U64) << _U64(32))


EVALUATORS: dict[str, Evaluator] = {
    "rng-bit-generator": rng_bit_generator,
    "rng-get-and-update-state": rng_get_and_update_state,
}

CHECKS: dict[str, Check] = {"rng-bit-generator": _check_bit_generator}
