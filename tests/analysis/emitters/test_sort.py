"""The bitonic order sorts lines of any length; which lines a library gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from hloopt.analysis.emitters.sort import (
    SortOptions,
    library_sorts,
    sort_masks,
    sort_passes,
)
from hloopt.targets import Target, target


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
    assert sort_passes(4096, [32], h200, SortOptions(elements=2))[0].tile == 2048


@pytest.mark.parametrize(
    ("device", "bits", "lines", "elements", "expected"),
    [
        ("h200", 8, 1, 1, True), ("h200", 8, 2, 1300, False), ("h200", 8, 2, 1301, True),
        ("h200", 8, 8, 25999, True), ("h200", 8, 8, 26000, False), ("h200", 8, 9, 26000, True),
        ("h200", 16, 1, 512, False), ("h200", 16, 1, 513, True), ("h200", 16, 12, 1 << 20, False),
        ("h200", 16, 13, 65536, False), ("h200", 16, 13, 65537, True), ("h200", 16, 67, 2049, True),
        ("h200", 16, 66, 2049, False), ("h200", 16, 67, 2048, False),
        ("h200", 32, 1, 22000, False), ("h200", 32, 1, 22001, True), ("h200", 32, 27, 131073, True),
        ("h200", 32, 26, 131073, False), ("h200", 32, 53, 8193, True), ("h200", 32, 89, 4097, True),
        ("h200", 32, 88, 4097, False), ("h200", 32, 132, 4097, True), ("h200", 32, 133, 4097, False),
        ("h200", 64, 1, 131072, False), ("h200", 64, 1, 131073, True), ("h200", 64, 161, 16385, True),
        ("h200", 64, 264, 16385, True), ("h200", 64, 265, 16385, False), ("h200", 64, 355, 16385, True),
        ("h200", 4, 1, 1 << 20, False), ("h200", 32, 1, 0, False),
        ("a100", 8, 5, 42999, True), ("a100", 8, 5, 43000, False), ("a100", 8, 6, 43000, True),
        ("a100", 8, 2, 1000, False), ("a100", 16, 1, 65536, False), ("a100", 16, 1, 65537, True),
        ("a100", 16, 14, 8193, True), ("a100", 16, 13, 65537, False), ("a100", 32, 1, 32768, False),
        ("a100", 32, 1, 32769, True), ("a100", 32, 145, 4097, True), ("a100", 64, 139, 16385, True),
        ("a100", 64, 217, 16385, False), ("a100", 64, 290, 16385, True),
        ("b200", 16, 1, 4095, False), ("b200", 16, 3, 4096, True), ("b200", 32, 1, 4096, True),
        ("b200", 32, 1, 4095, False), ("b200", 32, 27, 131072, True), ("b200", 32, 26, 131072, False),
        ("b200", 32, 31, 65536, False), ("b200", 32, 32, 65536, True), ("b200", 32, 89, 4096, True),
        ("b200", 32, 128, 4096, False), ("b200", 64, 1, 16384, True), ("b200", 64, 1, 16383, False),
        ("b200", 8, 1, 1024, False), ("b200", 8, 1, 1025, True), ("b200", 8, 9, 1300, False),
        ("v100", 32, 1, 16384, False), ("v100", 32, 1, 16385, True), ("v100", 8, 128, 129, True),
        ("mi200", 16, 1, 16384, False),
    ],
)  # fmt: skip
def test_library_sorts(device: str, bits: int, lines: int, elements: int, expected: bool) -> None:
    """XLA's measured thresholds, each on both sides."""
    assert library_sorts(lines, elements, bits, target(device)) is expected


def _hopper(bits: int, lines: int, size: int, cores: int) -> bool:
    if bits == 8:
        return lines == 1 or (size > 1300 and (lines > 8 or size < 26000))
    if bits == 16:
        above = ((12, 16), (14, 15), (16, 14), (18, 13), (33, 12), (66, 11))
        return (lines == 1 and size > 512) or _above(above, lines, size)
    if bits == 32:
        above = ((26, 17), (31, 16), (38, 15), (44, 14), (52, 13))
        some = 88 < lines <= cores and size > 4096
        return (lines == 1 and size > 22000) or some or _above(above, lines, size)
    some = (160 < lines <= 2 * cores or lines > 354) and size > 16384
    return (
        (lines == 1 and size > 131072)
        or some
        or _above(((55, 17), (70, 16), (92, 15)), lines, size)
    )


def _ampere(bits: int, lines: int, size: int, cores: int) -> bool:
    if bits == 8:
        return lines == 1 or (size > 1000 and (lines > 5 or size < 43000))
    if bits == 16:
        above = ((9, 17), (13, 16), (13, 15), (13, 14), (13, 13), (27, 12), (54, 11))
        return (lines == 1 and size > 65536) or _above(above, lines, size)
    if bits == 32:
        above = ((24, 17), (30, 16), (36, 15), (39, 14), (52, 13), (144, 12))
        return (lines == 1 and size > 32768) or _above(above, lines, size)
    some = (138 < lines <= 2 * cores or lines > 289) and size > 16384
    return (
        (lines == 1 and size > 65536) or some or _above(((46, 17), (55, 16), (72, 15)), lines, size)
    )


def _blackwell(bits: int, lines: int, size: int, cores: int) -> bool:
    if size <= 1024:
        return False
    if bits == 16:
        return size >= 4096
    if bits == 32 and lines == 1:
        return size >= 4096
    if bits == 32:
        for least, more in (
            (1 << 17, 26),
            (1 << 16, 31),
            (1 << 15, 38),
            (1 << 14, 44),
            (1 << 13, 52),
        ):
            if size >= least:
                return lines > more
        return size >= 4096 and 88 < lines < 128
    if bits == 64:
        return size >= 16384
    return _hopper(bits, lines, size, cores)


def _above(pairs: tuple[tuple[int, int], ...], lines: int, size: int) -> bool:
    return any(lines > more and size > 1 << power for more, power in pairs)


@pytest.mark.parametrize(
    ("device", "rule"), [("h200", _hopper), ("a100", _ampere), ("b200", _blackwell)]
)
def test_the_tables_are_the_rules(device: str, rule: Callable[[int, int, int, int], bool]) -> None:
    """Conditions as XLA states them, on both sides of every figure in any of them."""
    gpu = target(device)
    lines = {1, 2, gpu.cores, gpu.cores + 1, 2 * gpu.cores, 2 * gpu.cores + 1, 127, 128}
    for more in (
        5,
        8,
        9,
        12,
        13,
        14,
        16,
        18,
        24,
        26,
        27,
        30,
        31,
        33,
        36,
        38,
        39,
        44,
        46,
        52,
        54,
        55,
    ):
        lines |= {more, more + 1}
    for more in (66, 70, 72, 88, 92, 138, 144, 160, 289, 354):
        lines |= {more, more + 1}
    sizes = {1}
    for size in (
        512,
        1000,
        1024,
        1300,
        22000,
        26000,
        43000,
        *(1 << power for power in range(10, 18)),
    ):
        sizes |= {size - 1, size, size + 1}
    for bits, batch, size in product((8, 16, 32, 64), lines, sizes):
        got = library_sorts(batch, size, bits, gpu)
        assert got is rule(bits, batch, size, gpu.cores), (bits, batch, size)


def test_long_keys_with_values_on_blackwell() -> None:
    """The library gains nothing there."""
    assert not library_sorts(1, 1 << 20, 64, target("b200"), has_values=True)
    assert library_sorts(1, 1 << 20, 64, target("h200"), has_values=True)


def test_cores_count() -> None:
    """Where a limit is lines for each core."""
    smaller = replace(target("h200"), cores=100)
    assert library_sorts(100, 4097, 32, smaller)
    assert not library_sorts(101, 4097, 32, smaller)
