"""rng-bit-generator: Philox with the words of a block in two arrays of two rows, five calls a round.

The rows of one are the words that are multiplied, those of the other are not; words are kept in 64 bits, so
that a product is made in place.  See ``interpret.random`` for the function and for how blocks become an
array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from hloopt.backends.numpy.builder import Builder
from hloopt.backends.numpy.movement import Emitter
from hloopt.backends.numpy.plan import Dims
from hloopt.backends.numpy.values import Slots
from hloopt.interpret.context import Array
from hloopt.interpret.random import random_bits
from hloopt.ir import Instruction
from hloopt.types import ArrayShape, DType, TupleShape

__all__ = ["EMITTERS", "philox"]

_ROUNDS = 10
_MULTIPLIERS = np.array([[0xD2511F53], [0xCD9E8D57]], np.uint64)
# What is added to the two words of the key from round to round, for each of them.
_WEYL = (
    np.arange(_ROUNDS, dtype=np.uint32)[:, np.newaxis]
    * np.array([0x9E3779B9, 0xBB67AE85], np.uint32)
)[..., np.newaxis]
_WORD = 0xFFFFFFFFFFFFFFFF
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
# Rounds of so many blocks at once stay in the second cache: 48 bytes a block.
_AT_ONCE = 1 << 13


def philox(state: Array, blocks: int) -> tuple[Array, Array]:
    """The state after ``blocks`` blocks of a u64[2] or u64[3] state, and their words: u64 [blocks, 2].

    Each number is two words of a block, the first one low.
    """
    words = state.tolist()
    key, low = words[0], words[1]
    high = words[2] if len(words) == 3 else key
    keys = (_WEYL + np.array([[key & 0xFFFFFFFF], [key >> 32]], np.uint32)).astype(np.uint64)
    result = np.empty((blocks, 2), np.uint64)
    for begin in range(0, blocks, _AT_ONCE):
        _fill(result[begin : begin + _AT_ONCE], keys, (high << 64 | low) + begin)
    total = (high << 64 | low) + blocks
    after = [key, total & _WORD, total >> 64 & _WORD][: len(words)]
    return np.array(after, np.uint64), result


def _fill(result: Array, keys: Array, counter: int) -> None:
    """The blocks of a 128-bit counter and those that follow it."""
    count = len(result)
    first = np.uint64(counter & _WORD)
    lows = np.arange(count, dtype=np.uint64) + first
    highs = np.full(count, counter >> 64 & _WORD, np.uint64)
    if (counter & _WORD) + count - 1 > _WORD:
        highs += lows < first
    counters = np.stack([lows, highs])
    factors, rest = counters & _LOW, counters >> _HALF
    products = np.empty((2, count), np.uint64)
    crossed = products[::-1]
    for key in keys:
        np.multiply(factors, _MULTIPLIERS, out=products)
        np.bitwise_xor(rest, key, out=rest)
        np.right_shift(crossed, _HALF, out=factors)
        np.bitwise_xor(factors, rest, out=factors)
        np.bitwise_and(crossed, _LOW, out=rest)
    rest <<= _HALF
    rest |= factors
    result[...] = rest.T


def _rng_bit_generator(
    builder: Builder, instruction: Instruction, operands: Sequence[int]
) -> Slots:
    shape = instruction.shape
    bits_shape = shape.elements[1] if isinstance(shape, TupleShape) else shape
    assert isinstance(bits_shape, ArrayShape)
    kind, dims = bits_shape.dtype, bits_shape.dims
    algorithm = str(instruction.attributes["algorithm"])
    context = builder.context

    def generate(state: Any) -> tuple[Array, Array]:
        if algorithm == "rng_three_fry":
            after, values = random_bits(algorithm, state, dims, kind.numpy, kind.bits)
        else:
            after, values = _philox_bits(state, dims, kind)
        return after, context.round(values, kind)

    if isinstance(shape, TupleShape):
        return builder.applied(instruction, operands, generate)
    return builder.applied(instruction, operands, lambda state: generate(state)[1])


def _philox_bits(state: Array, dims: Dims, kind: DType) -> tuple[Array, Array]:
    count = prod(dims)
    each = 2 if kind.bits == 64 else 4
    after, words = philox(state, -(-count // each))
    if kind.bits == 64:
        raw = words.reshape(-1)
    else:
        # Low words first, whatever the order of bytes is here.
        raw = words.astype("<u8", copy=False).view("<u4").astype(np.uint32, copy=False).reshape(-1)
    raw = raw[:count].reshape(dims)
    if kind.bits >= 32:
        return after, raw.view(kind.numpy)
    if kind.bits >= 8:
        return after, raw.astype(f"u{kind.bits // 8}").view(kind.numpy)
    return after, (raw & np.uint32((1 << kind.bits) - 1)).astype(np.uint8).view(kind.numpy)


EMITTERS: Mapping[str, Emitter] = {"rng-bit-generator": _rng_bit_generator}
