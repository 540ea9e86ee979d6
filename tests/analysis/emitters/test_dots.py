"""What XLA does with dots by their sizes."""

from __future__ import annotations

import pytest

from hloopt.analysis.emitters.dots import (
    DotSizes,
    split_cost,
    split_k,
)
from hloopt.ir import Instruction
from hloopt.targets import target
from tests.analysis.emitters.regions import lone


def _dot(
    lhs: str,
    rhs: str,
    result: str,
    contracting: tuple[str, str] = ("1", "0"),
    batch: str = "",
    more: str = "",
) -> Instruction:
    batches = f"lhs_batch_dims={{{batch}}}, rhs_batch_dims={{{batch}}}, " if batch else ""
    return lone(
        f"a = {lhs} parameter(0)\nb = {rhs} parameter(1)\nROOT d = {result} dot(a, b), {batches}"
        f"lhs_contracting_dims={{{contracting[0]}}}, rhs_contracting_dims={{{contracting[1]}}}{more}"
    ).instruction


def test_sizes() -> None:
    """Batch, rows, columns and depth, dimensions multiplied."""
    dot = _dot("f32[2,3,4,5]", "f32[2,5,6]", "f32[2,3,4,6]", ("3", "1"), "0")
    assert DotSizes.of(dot) == DotSizes(batch=2, m=12, n=6, k=5)


def test_split_cost_by_hand() -> None:
    """H200: 64 x 64 x 4096 in f16, in 1 and in 4 parts."""
    h200 = target("h200")
    sizes, bits = DotSizes(1, 64, 64, 4096), (16, 16, 32, 16)
    # slots = 132 * 128 * 128 / (64 * 64) = 528 tiles at once: one wave
    compute = 2 * 64 * 64 * 4096 * 100
    assert split_cost(sizes, 1, bits, h200) == compute == 3355443200
    parts = 4
    written = 64 * 64 * parts * 4
    expected = compute / parts + 4.36e7 + (written + 64 * 64 * 2) * 193.1384
    assert split_cost(sizes, parts, bits, h200) == pytest.approx(expected)
    # two tiles of 128 x 128 run side by side
    assert split_cost(DotSizes(1, 256, 128, 4096), 1, bits, h200) == 2 * 128 * 128 * 4096 * 100
    # 600 tiles are more than the 132 * 4 at once
    many = split_cost(DotSizes(600, 64, 64, 4096), 1, bits, h200)
    assert many == pytest.approx(compute * 600 / 528)


def test_both_sides_are_read() -> None:
    """Each by its own width, once for each of a batch."""
    h200 = target("h200")
    cost = split_cost(DotSizes(3, 100, 10, 7), 1, (1 << 30, 8, 32, 16), h200)
    bits = 3 * (100 * 7 * (1 << 30) + 10 * 7 * 8 + 100 * 10 * 16)
    assert cost == pytest.approx(0.194136 * bits / 8, rel=1e-12)
    cost = split_cost(DotSizes(3, 100, 10, 7), 1, (8, 1 << 30, 32, 16), h200)
    bits = 3 * (100 * 7 * 8 + 10 * 7 * (1 << 30) + 100 * 10 * 16)
    assert cost == pytest.approx(0.194136 * bits / 8, rel=1e-12)


def test_parts_have_a_limit() -> None:
    """2048 by default."""
    long = _dot("f16[1,16777216]", "f16[16777216,1]", "f16[1,1]")
    assert split_k(long, target("h200"))[0] <= 2048


def test_memory_may_bound() -> None:
    """A long thin product moves more than it computes."""
    sizes = DotSizes(1, 1, 1, 1 << 20)
    bits = (64, 64, 64, 64)
    h200 = target("h200")
    assert split_cost(sizes, 1, bits, h200) == 2 * (1 << 20) * 100
    cheap = split_cost(sizes, 1 << 11, bits, h200)
    moved = 0.194136 * (2 * (1 << 20) * 8 + (1 << 11) * 8)
    reduced = ((1 << 11) * 8 + 8) * 193.1384
    assert cheap == pytest.approx(max(2 * 512 * 100, moved) + 4.36e7 + reduced)


@pytest.mark.parametrize(
    ("lhs", "rhs", "result", "expected"),
    [
        ("f16[4096,4096]", "f16[4096,4096]", "f16[4096,4096]", 1),
        ("f16[128,16]", "f16[16,128]", "f16[128,128]", 1),
        ("s32[64,65536]", "s32[65536,64]", "s32[64,64]", 1),
    ],
)
def test_dots_left_whole(lhs: str, rhs: str, result: str, expected: int) -> None:
    """Large results, short contractions, integers of 32 bits."""
    assert split_k(_dot(lhs, rhs, result), target("h200")) == (expected, 0)


@pytest.mark.parametrize("k", [65536, 65537, 65535])
def test_the_cheapest_split_is_taken(k: int) -> None:
    """By the estimate, and padded to vectors of 128 bits in each part."""
    h200 = target("h200")
    dot = _dot(f"f16[64,{k}]", f"f16[{k},64]", "f16[64,64]")
    split, padding = split_k(dot, h200)
    costs = {
        1 << power: split_cost(DotSizes(1, 64, 64, k), 1 << power, (16, 16, 32, 16), h200)
        for power in range(12)
    }
    assert split > 1
    assert costs[split] == min(costs.values())
    assert (k + padding) % (split * 8) == 0
    assert 0 <= padding < split * 8


def test_dots_that_cannot_be_split() -> None:
    """Two contracted dimensions, or nothing at all."""
    two = _dot("f16[64,64,1024]", "f16[64,1024,64]", "f16[64,64]", ("1,2", "0,1"))
    assert split_k(two, target("h200")) == (1, 0)
    nothing = _dot("f16[64,0]", "f16[0,64]", "f16[64,64]")
    assert split_k(nothing, target("h200")) == (1, 0)


def test_emulated_products_cost_more() -> None:
    """An algorithm of three products counts 12 flops where a plain one counts 2."""
    h200 = target("h200")
    sizes, bits = DotSizes(1, 64, 64, 4096), (32, 32, 32, 32)
    assert split_cost(sizes, 1, bits, h200, flops=12) == 6 * split_cost(sizes, 1, bits, h200)
    shapes = ("f32[64,2048]", "f32[2048,64]", "f32[64,64]")
    plain = split_k(_dot(*shapes), h200)
    emulated = split_k(_dot(*shapes, more=", algorithm=dot_bf16_bf16_f32_x3"), h200)
    assert emulated[0] > plain[0]


def test_devices_weigh_differently() -> None:
    """Blackwell, Hopper and the others have weights of their own."""
    sizes, bits = DotSizes(1, 64, 64, 4096), (16, 16, 32, 16)
    costs = {split_cost(sizes, 4, bits, target(name)) for name in ("b200", "h200", "a100")}
    assert len(costs) == 3
