"""Buffers: how long each is needed, and offsets that keep those alive together apart."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloopt.kernels.buffers.packing import ALIGNMENT, Packing, Timeline, aligned, live_bound, pack
from tests.helpers.support import count_calls

Life = tuple[int, int, int]
lives = st.lists(
    st.tuples(st.integers(0, 9000), st.integers(0, 30), st.integers(0, 12)).map(
        lambda row: (row[0], row[1], row[1] + row[2])
    ),
    max_size=40,
)


def packed(rows: list[Life]) -> Packing:
    sizes, starts, ends = (
        (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    )
    return pack(sizes, starts, ends)


def overlaps(rows: list[Life], offsets: tuple[int, ...]) -> list[tuple[int, int]]:
    """Pairs alive at one moment that share bytes, found by looking at every pair."""
    found = []
    for i, (size, start, end) in enumerate(rows):
        for j, (other, begin, last) in enumerate(rows[:i]):
            together = start <= last and begin <= end
            low, high = max(offsets[i], offsets[j]), min(offsets[i] + size, offsets[j] + other)
            if together and low < high:
                found.append((i, j))
    return found


def most_alive(rows: list[Life]) -> int:
    """The bound by looking at every moment."""
    last = max((end for _, _, end in rows), default=0)
    return max(
        sum(aligned(size) for size, start, end in rows if start <= moment <= end)
        for moment in range(last + 1)
    )


@given(lives)
def test_what_lives_together_lies_apart(rows: list[Life]) -> None:
    """Offsets are aligned, within the arena, and those of one moment do not overlap."""
    packing = packed(rows)
    assert not overlaps(rows, packing.offsets)
    assert all(offset % ALIGNMENT == 0 for offset in packing.offsets)
    assert all(
        offset + size <= packing.byte_size
        for (size, _, _), offset in zip(rows, packing.offsets, strict=True)
    )
    assert packing.bound == most_alive(rows) <= packing.byte_size


def drawn(count: int, seed: int) -> list[Life]:
    chooser = random.Random(seed)
    rows = []
    for _ in range(count):
        start = chooser.randrange(count)
        time = chooser.randrange(count) if chooser.random() < 0.1 else chooser.expovariate(0.05)
        rows.append((256 * int(2 ** chooser.uniform(0, 16)), start, start + int(time)))
    return rows


@pytest.mark.parametrize("count", [100, 1000, 3000])
def test_the_arena_is_near_the_bound(count: int) -> None:
    """Of buffers of very different sizes and lives, at most 1.1 times what lives at once is needed."""
    packing = packed(drawn(count, count))
    assert packing.byte_size <= 1.1 * packing.bound


def test_more_buffers_than_are_compared_with_each_other() -> None:
    """Thousands of buffers beyond the limit of the greedy way are packed apart, in time that grows like theirs."""
    rows = drawn(9000, 5)
    packing = packed(rows)
    assert not overlaps(rows[:600], packing.offsets[:600])
    assert packing.byte_size <= 1.15 * packing.bound
    few, many = drawn(1500, 1), drawn(6000, 1)
    assert count_calls(lambda: packed(many)) < 6 * count_calls(lambda: packed(few))


def test_a_hole_is_used_again() -> None:
    """A buffer takes the place of one that ended the moment before, not of one that ends as it begins."""
    after = packed([(1000, 0, 1), (1000, 2, 3)])
    assert after.offsets == (0, 0)
    assert after.byte_size == 1024
    during = packed([(1000, 0, 2), (1000, 2, 3)])
    assert sorted(during.offsets) == [0, 1024]


def test_nothing_and_no_life_take_no_bytes() -> None:
    """Buffers of no bytes and buffers nobody touches lie at 0 and count nothing."""
    packing = pack([0, 512, 256], [0, -1, 0], [5, -2, 0])
    assert packing == Packing((0, 0, 0), 256, 256)
    assert pack([], [], []) == Packing((), 0, 0)
    assert live_bound([1], [0], [0]) == ALIGNMENT


def test_time_goes_from_the_first_touch_to_the_last() -> None:
    """A buffer lives from the step that touches it first to the one that touches it last."""
    timeline = Timeline()
    a, b, idle = timeline.add(), timeline.add(), timeline.add()
    timeline.step((a,))
    timeline.step((a, b))
    timeline.step((b,))
    assert (timeline.starts, timeline.ends) == ([0, 1, -1], [1, 2, -2])
    assert idle == 2


def test_what_a_loop_finds_lasts_until_it_ends() -> None:
    """What is there before a loop and touched inside lives as long as the outermost such loop."""
    timeline = Timeline()
    outer, between, inner = timeline.add(), timeline.add(), timeline.add()
    timeline.step((outer,))
    with timeline.loop():
        timeline.step((between,))
        with timeline.loop():
            timeline.step((outer, inner))
            timeline.step((between,))
        last = timeline.step(())
    end = timeline.step(()) - 1
    assert timeline.ends[outer] == end > last
    assert timeline.ends[between] < last
    assert timeline.starts[inner] == timeline.ends[inner]
