"""The bitonic order sorts lines of any length."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from hloopt.analysis.emitters.sort import sort_masks, sort_passes
from hloopt.targets import Target


def test_masks() -> None:
    """A mirror and then halved distances for each doubling."""
    assert sort_masks(0) == sort_masks(1) == ()
    assert sort_masks(2) == (1,)
    assert sort_masks(3) == sort_masks(4) == (1, 3, 1)
    assert sort_masks(8) == (1, 3, 1, 7, 2, 1)
    assert len(sort_masks(1025)) == 11 * 12 // 2


def _sorted(values: np.ndarray, masks: tuple[int, ...]) -> np.ndarray:
    """All pairs of a mask at once: each element is in one pair at most."""
    line = values.copy()
    for mask in masks:
        at = np.arange(line.size)
        other = at ^ mask
        chosen = (at < other) & (other < line.size)
        low, high = at[chosen], other[chosen]
        swap = line[high] < line[low]
        line[low[swap]], line[high[swap]] = line[high[swap]], line[low[swap]]
    return line


@pytest.mark.parametrize("size", [*range(1, 40), 63, 64, 65, 1000])
def test_the_masks_sort(size: int) -> None:
    """Lines of every length, though pairs beyond the end are left out."""
    generator = np.random.default_rng(size)
    for _ in range(3):
        values = generator.integers(0, max(2, size // 2), size)
        assert (_sorted(values, sort_masks(size)) == np.sort(values)).all()


def test_short_lines_are_sorted_by_zeros_and_ones() -> None:
    """What sorts all sequences of zeros and ones sorts everything."""
    for size in range(1, 11):
        for bits in product((0, 1), repeat=size):
            values = np.array(bits)
            assert (_sorted(values, sort_masks(size)) == np.sort(values)).all()


@pytest.mark.parametrize(
    ("size", "bits", "tile"),
    [
        (100, [32], 128),
        (5000, [32], 4096),  # 4 elements of 1024 threads
        (5000, [32, 32], 4096),
        (5000, [64, 64], 2048),  # 48 KiB of 16 bytes are 3072 elements
        (5000, [8], 4096),
        (1, [32], 1),
    ],
)
def test_tile(h200: Target, size: int, bits: list[int], tile: int) -> None:
    """A power of two that threads and shared memory allow."""
    passes = sort_passes(size, bits, h200)
    assert {entry.tile for entry in passes if entry.tile} in ({tile}, set())


def test_masks_of_a_tile_share_a_kernel(h200: Target) -> None:
    """The others are one kernel each; all together are the masks in order."""
    passes = sort_passes(10_000, [32, 32], h200)
    assert [mask for entry in passes for mask in entry.masks] == list(sort_masks(10_000))
    assert [entry.tile > 0 for entry in passes] == [True, False, True, False, False, True]
    assert all(len(entry.masks) == 1 for entry in passes if not entry.tile)
    first = passes[0]
    assert (first.threads, first.blocks) == (1024, 3)
    assert passes[1].masks == (8191,)
    assert passes[1].blocks == 8192  # pairs of a line of 16384
    assert sort_passes(1, [32], h200) == ()
    (only,) = sort_passes(2, [32], h200)
    assert (only.threads, only.blocks) == (1, 1)
