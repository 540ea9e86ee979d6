"""Threefry and Philox on Python's integers, and which word of which block is an element of an array."""

from __future__ import annotations

__all__ = ["MASK32", "MASK64", "element_philox", "element_threefry", "halves", "philox", "threefry"]

MASK32, MASK64 = 2**32 - 1, 2**64 - 1


def rotated(word, distance):
    """A 32-bit word rotated to the left."""
    return (word << distance | word >> (32 - distance)) & MASK32


def threefry(key, counter):
    """Threefry2x32-20: two words of key and of counter to two words."""
    keys = (*key, key[0] ^ key[1] ^ 0x1BD11BDA)
    x, y = (counter[0] + keys[0]) & MASK32, (counter[1] + keys[1]) & MASK32
    for step in range(20):
        x = (x + y) & MASK32
        y = rotated(y, (13, 15, 26, 6, 17, 29, 16, 24)[step % 8]) ^ x
        if step % 4 == 3:
            turn = step // 4 + 1
            x = (x + keys[turn % 3]) & MASK32
            y = (y + keys[(turn + 1) % 3] + turn) & MASK32
    return x, y


def philox(key, counter):
    """Philox4x32-10: two words of key and four of counter to four words."""
    a, b, c, d = counter
    for step in range(10):
        k0, k1 = (key[0] + step * 0x9E3779B9) & MASK32, (key[1] + step * 0xBB67AE85) & MASK32
        left, right = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = right >> 32 ^ b ^ k0, right & MASK32, left >> 32 ^ d ^ k1, left & MASK32
    return a, b, c, d


def halves(word):
    """A 64-bit word as two, low first."""
    return word & MASK32, word >> 32


def element_threefry(state, dims, index, wide):
    """The bits of one element, by its index."""
    key, start = halves(state[0]), state[1]
    if wide:
        low, high = threefry(key, halves((start + place(index, dims)) & MASK64))
        return low | high << 32
    if not dims:
        return threefry(key, halves(start))[0]
    even = [axis for axis, size in enumerate(dims) if size % 2 == 0]
    split = even[0] if even else dims.index(max(dims))
    half = tuple((size + 1) // 2 if axis == split else size for axis, size in enumerate(dims))
    block = tuple(at // 2 if axis == split else at for axis, at in enumerate(index))
    return threefry(key, halves((start + place(block, half)) & MASK64))[index[split] % 2]


def element_philox(state, dims, index, wide):
    """The bits of one element, by its index."""
    low, high = (state[1], state[2]) if len(state) == 3 else (state[1], state[0])
    per_block = 2 if wide else 4
    number, at = divmod(place(index, dims), per_block)
    counter = ((low | high << 64) + number) & (2**128 - 1)
    block = philox(halves(state[0]), (*halves(counter & MASK64), *halves(counter >> 64)))
    return block[2 * at] | block[2 * at + 1] << 32 if wide else block[at]


def place(index, dims):
    """The number of an element in row-major order."""
    number = 0
    for at, size in zip(index, dims, strict=True):
        number = number * size + at
    return number
