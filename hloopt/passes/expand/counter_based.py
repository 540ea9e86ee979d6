"""Threefry2x32-20 and Philox4x32-10 as integer HLO, and the arrays of bits XLA makes of their blocks.

The block functions are those of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011);
``interpret.random`` is their definition here.  A block has two (Threefry) or four (Philox) words of 32
bits.  How words become an array:

joined   each block once; the words are concatenated beside each other
chosen   each element computes its block and takes its word: no concatenate, and as many times the
         arithmetic as a block has words
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from hloopt.passes.expand.writer import Term, Writer, plain
from hloopt.types import ArrayShape, Dims, array, dtype

__all__ = ["philox_bits", "threefry2x32", "threefry_bits"]

_U32 = dtype("u32")
_U64 = dtype("u64")

_THREEFRY_PARITY = 0x1BD11BDA
_THREEFRY_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))

_PHILOX_ROUNDS = 10
_PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_PHILOX_WEYL = (0x9E3779B9, 0xBB67AE85)


def threefry2x32(key: tuple[Term, Term], x0: Term, x1: Term) -> tuple[Term, Term]:
    """The two words of each block; the words of the key are scalars or arrays like those of the counter."""
    keys = (*key, key[0] ^ key[1] ^ _THREEFRY_PARITY)
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for group in range(5):
        for distance in _THREEFRY_ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = (x1 << distance | x1 >> 32 - distance) ^ x0
        x0 = x0 + keys[(group + 1) % 3]
        x1 = x1 + (keys[(group + 2) % 3] + (group + 1))
    return x0, x1


def philox4x32(key: tuple[Term, Term], words: Sequence[Term]) -> tuple[Term, Term, Term, Term]:
    """The four words of each block; the words of the key are scalars."""
    x0, x1, x2, x3 = words
    k0, k1 = key
    for number in range(_PHILOX_ROUNDS):
        if number:
            k0, k1 = k0 + _PHILOX_WEYL[0], k1 + _PHILOX_WEYL[1]
        p0 = x0.convert(_U64) * _PHILOX_MULTIPLIERS[0]
        p1 = x2.convert(_U64) * _PHILOX_MULTIPLIERS[1]
        x0, x1, x2, x3 = _high(p1) ^ x1 ^ k0, _low(p1), _high(p0) ^ x3 ^ k1, _low(p0)
    return x0, x1, x2, x3


def threefry_bits(state: Term, shape: ArrayShape, concatenate: bool) -> tuple[Term, Term]:
    """The new state, and bits of a u32 or u64 shape, from a u64[2] state (key, counter).

    32 bits: the words of a block lie beside each other along one dimension, the first of even size,
    else the first of the largest.  64 bits: a block an element, the first word low.
    """
    key, counter = state.element(0), state.element(1)
    words = (_low(key), _high(key))

    def block(index: Term) -> list[Term]:
        counters = index + counter
        return list(threefry2x32(words, _low(counters), _high(counters)))

    wide = shape.dtype is _U64
    split = _split_dimension(shape.dims)
    half = _halved(shape.dims, split)
    after = _advanced(state, (0, shape.elements if wide else prod(half)))
    if not shape.elements:
        return after, state.writer.splat(shape, 0)
    if wide:
        return after, _wide(block(_places(state.writer, shape))).reshape(*shape.dims)
    if concatenate or not shape.dims:
        return after, _joined(state.writer, block, half, split, shape.dims)
    index = _row_major_index(state.writer, shape, split)
    return after, _chosen(block(index), state.writer.iota(plain(shape), split) & 1)


def philox_bits(state: Term, shape: ArrayShape, concatenate: bool) -> tuple[Term, Term]:
    """The new state, and bits of a u32 or u64 shape, from a u64[3] state (key, counter low, counter high).

    With u64[2] the key is the high word of the counter too, and stays as it is.  The words of the
    blocks fill the result in row-major order, two of them an element of 64 bits, low first.
    """
    parts = [state.element(index) for index in range(state.dims[0])]
    key, low, high = parts[0], parts[1], parts[-1 if len(parts) == 3 else 0]
    wide = shape.dtype is _U64
    per_block = 2 if wide else 4
    blocks = -(-shape.elements // per_block)

    def block(index: Term) -> list[Term]:
        lows = index + low
        highs = (lows < low).convert(_U64) + high
        counter = (_low(lows), _high(lows), _low(highs), _high(highs))
        words = philox4x32((_low(key), _high(key)), counter)
        return [_wide(words[:2]), _wide(words[2:])] if wide else list(words)

    after = _advanced(state, (0, blocks, 0)[: len(parts)])
    if not blocks:
        return after, state.writer.splat(shape, 0)
    if len(parts) == 3:
        carry = (low + blocks < low).convert(_U64)
        after = after + state.writer.constant(np.array([0, 0, 1], np.uint64)) * carry
    if concatenate or not shape.dims:
        return after, _joined(state.writer, block, (blocks,), 0, shape.dims)
    index = _places(state.writer, shape)
    words = block(index >> per_block.bit_length() - 1)
    return after, _chosen(words, _low(index) & per_block - 1).reshape(*shape.dims)


def _advanced(state: Term, amounts: Sequence[int]) -> Term:
    if not any(amounts):
        return state
    return state + state.writer.constant(np.array(amounts, np.uint64))


def _joined(
    write: Writer,
    block: Callable[[Term], list[Term]],
    places: Dims,
    split: int,
    dims: Dims,
) -> Term:
    """The words of blocks at ``places`` take turns along dimension ``split``; what is too much goes.

    The result has ``dims``; all is row-major.
    """
    count = prod(places)
    words = block(write.iota(array(_U64, (count,)), 0))
    if count == 1:
        words = words[: prod(dims)]
    before, after = places[: split + 1], places[split + 1 :]
    pairs = write.concatenate(split + 1, *(word.reshape(*before, 1, *after) for word in words))
    turns = pairs.reshape(*places[:split], places[split] * len(words), *after)
    if len(dims) == len(places):
        return turns.slice(*((0, size) for size in dims))
    return turns.slice((0, prod(dims))).reshape(*dims)


def _chosen(words: Sequence[Term], number: Term) -> Term:
    """For each element the word of that number."""
    result = words[-1]
    for index, word in reversed(list(enumerate(words[:-1]))):
        result = number.equals(index).select(word, result)
    return result


def _places(write: Writer, shape: ArrayShape) -> Term:
    """The place of each element in row-major order, as u64: of the shape, or flat where that is its order."""
    if shape.layout is None or shape.layout.is_descending:
        return write.iota(array(_U64, (shape.elements,)), 0)
    return _row_major_index(write, shape)


def _row_major_index(write: Writer, shape: ArrayShape, halved: int | None = None) -> Term:
    """The place of each element in row-major order, as u64 of the shape.

    ``halved`` is a dimension of which two neighbours have one place.
    """
    wide = plain(shape, _U64)
    sizes = shape.dims if halved is None else _halved(shape.dims, halved)
    index = None
    for dim in range(len(sizes)):
        if sizes[dim] == 1:
            continue
        step = write.iota(wide, dim)
        if dim == halved:
            step = step >> 1
        stride = prod(sizes[dim + 1 :])
        step = step * stride if stride != 1 else step
        index = step if index is None else index + step
    return write.splat(wide, 0) if index is None else index


def _halved(dims: Dims, split: int) -> Dims:
    if not dims:
        return (1,)
    return (*dims[:split], -(-dims[split] // 2), *dims[split + 1 :])


def _split_dimension(dims: Dims) -> int:
    even = next((axis for axis, size in enumerate(dims) if size % 2 == 0), None)
    if even is not None or not dims:
        return even or 0
    return dims.index(max(dims))


def _low(words: Term) -> Term:
    return words.convert(_U32)


def _high(words: Term) -> Term:
    return (words >> 32).convert(_U32)


def _wide(pair: Sequence[Term]) -> Term:
    low, high = pair
    return low.convert(_U64) | high.convert(_U64) << 32
