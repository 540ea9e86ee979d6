"""Loop kernels: unroll factors, launches, the width of indices."""

from __future__ import annotations

from dataclasses import replace

import pytest

import hloopt
from hloopt.analysis.emitters.launch import (
    LaunchDimensions,
    index_bits,
    loop_launch,
    split_grid,
    tiled_launch,
)
from hloopt.analysis.emitters.unroll import (
    drops_when_unrolled,
    max_unroll,
    unroll_factor,
)
from hloopt.analysis.region import Region, region_of
from hloopt.targets import Target

THREADS = 132 * 2048


def region(body: str, computations: str = "") -> Region:
    """The region of the root."""
    return region_of(
        hloopt.parse(f"HloModule m\n{computations}ENTRY e {{\n{body}\n}}\n").entry.root
    )


def negate(elements: int, dtype: str = "f32") -> Region:
    """A lone elementwise instruction."""
    return region(f"p = {dtype}[{elements}] parameter(0)\nROOT n = {dtype}[{elements}] negate(p)")


@pytest.mark.parametrize(
    ("elements", "factor", "reason"),
    [
        (THREADS, 4, ""),
        (
            THREADS - 4,
            1,
            f"{THREADS - 4} elements are fewer than the {THREADS} threads of the device",
        ),
        (THREADS + 1, 1, f"4 does not divide {THREADS + 1} elements"),
        (THREADS + 2, 2, f"4 does not divide {THREADS + 2} elements"),
        (0, 1, f"0 elements are fewer than the {THREADS} threads of the device"),
    ],
)
def test_unroll_factor(h200: Target, elements: int, factor: int, reason: str) -> None:
    """The greatest common divisor with 4, from as many elements on as the device holds threads."""
    got = unroll_factor(negate(elements), h200)
    assert (got.factor, got.reason) == (factor, reason)


@pytest.mark.parametrize(("dtype", "factor"), [("s4", 2), ("u2", 4), ("u1", 8), ("pred", 1)])
def test_narrow_results_are_written_a_byte_at_a_time(h200: Target, dtype: str, factor: int) -> None:
    """Even where nothing else would be unrolled; a pred has a byte of its own."""
    lone = region(f"p = {dtype}[7] parameter(0)\nROOT n = {dtype}[7] copy(p)")
    assert unroll_factor(lone, h200).factor == factor


WINDOW = "sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"


def _window(size: int) -> Region:
    return region(
        f"p = f32[600000] parameter(0)\nz = f32[] constant(0)\nROOT w = f32[{600000 - size + 1}] "
        f"reduce-window(p, z), window={{size={size}}}, to_apply=sum",
        WINDOW,
    )


def _concatenate(count: int) -> Region:
    operands = ", ".join(["p"] * count)
    return region(
        f"p = f32[65536] parameter(0)\nROOT c = f32[{65536 * count}] concatenate({operands}), "
        "dimensions={0}"
    )


def test_what_drops_when_unrolled(h200: Target) -> None:
    """Windows over more than 8 elements and concatenates of more than 10 operands, named with both figures."""
    assert drops_when_unrolled(_window(8)) == ""
    assert drops_when_unrolled(_window(9)) == "w is a reduce-window over 9 elements, more than 8"
    assert drops_when_unrolled(_concatenate(10)) == ""
    assert (
        drops_when_unrolled(_concatenate(11)) == "c is a concatenate of 11 operands, more than 10"
    )
    assert unroll_factor(_concatenate(11), h200).factor == 1
    assert unroll_factor(_concatenate(10), h200).factor == 4


def test_sorts_dots_and_reductions_of_pairs_drop() -> None:
    """A reduce of one array does not."""
    dot = region(
        "p = f32[8,8] parameter(0)\nROOT d = f32[8,8] dot(p, p), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={0}"
    )
    assert drops_when_unrolled(dot) == "d is a dot"
    body = "p = f32[8,8] parameter(0)\nz = f32[] constant(0)\nROOT r = "
    one = region(f"{body}f32[8] reduce(p, z), dimensions={{1}}, to_apply=sum", WINDOW)
    assert drops_when_unrolled(one) == ""
    two = region(
        f"{body}(f32[8], f32[8]) reduce(p, p, z, z), dimensions={{1}}, to_apply=both",
        "both { a = f32[] parameter(0) b = f32[] parameter(1) c = f32[] parameter(2)\n"
        "d = f32[] parameter(3) e = f32[] add(a, c) f = f32[] add(b, d)\n"
        "ROOT t = (f32[], f32[]) tuple(e, f) }\n",
    )
    assert drops_when_unrolled(two) == "r is a reduce of 2 arrays"
    ordered = region(
        "p = f32[8] parameter(0)\nROOT s = f32[8] sort(p), dimensions={0}, to_apply=less",
        "less { a = f32[] parameter(0) b = f32[] parameter(1)\n"
        "ROOT c = pred[] compare(a, b), direction=LT }\n",
    )
    assert drops_when_unrolled(ordered) == "s is a sort"


def _fused(dtype: str, body: str, result: str) -> Region:
    return region(
        f"p = {dtype} parameter(0)\nROOT f = {result} fusion(p), kind=kLoop, calls=body",
        f"body {{ p = {dtype} parameter(0)\n{body} }}\n",
    )


@pytest.mark.parametrize(
    ("dtype", "factor"), [("s8", 32), ("bf16", 16), ("f32", 8), ("f64", 4), ("c64", 4)]
)
def test_wide_vectors_of_newer_devices(h200: Target, dtype: str, factor: int) -> None:
    """256 bits at once from Blackwell on where results have fewer than 64 bits, 4 elements elsewhere."""
    lone = negate(1 << 20, dtype)
    b200 = replace(h200, capability=(10, 0))
    assert max_unroll(lone, h200) == 4
    assert max_unroll(lone, b200) == factor
    assert max_unroll(lone, replace(h200, capability=(9, 9))) == 4
    assert max_unroll(lone, b200, "reduction") == 4
    assert unroll_factor(lone, b200).factor == factor


def test_wide_vectors_have_limits(h200: Target) -> None:
    """8 at most with a pad, never less than 8, no more than a transpose's minor dimension."""
    b200 = replace(h200, capability=(10, 0))
    pad = _fused(
        "s8[100]",
        "z = s8[] constant(0)\nROOT q = s8[102] pad(p, z), padding=1_1",
        "s8[102]",
    )
    assert max_unroll(pad, b200) == 8
    for minor, factor in ((32, 32), (31, 16), (16, 16), (15, 8), (7, 8)):
        turned = _fused(
            f"s8[{minor},640]",
            f"ROOT t = s8[640,{minor}] transpose(p), dimensions={{1,0}}",
            f"s8[640,{minor}]",
        )
        assert max_unroll(turned, b200) == factor


@pytest.mark.parametrize(
    ("elements", "unroll", "grid", "block"),
    [
        (0, 1, 1, 1),
        (1, 4, 1, 1),
        (2, 1, 1, 2),
        (127, 1, 1, 127),
        (128, 1, 1, 128),
        (129, 1, 2, 128),
        (512, 4, 1, 128),
        (513, 4, 2, 128),
        (1000, 1, 8, 128),  # the kernel of the cost model's example
    ],
)
def test_loop_launch(h200: Target, elements: int, unroll: int, grid: int, block: int) -> None:
    """Blocks of 128 threads; a single element has a single thread."""
    launch = loop_launch(elements, unroll, h200)
    assert launch == LaunchDimensions((grid, 1, 1), (block, 1, 1))
    assert launch.threads * unroll >= elements


@pytest.mark.parametrize(
    ("blocks", "expected"), [(10, (10, 1)), (11, (6, 2)), (20, (10, 2)), (21, (7, 3)), (0, (0, 1))]
)
def test_a_grid_too_wide_is_folded(h200: Target, blocks: int, expected: tuple[int, int]) -> None:
    """Into as few rows as there must be, of equal length."""
    narrow = replace(h200, grid_limit=(10, 65535, 65535))
    assert split_grid(blocks, narrow) == expected
    assert tiled_launch(blocks, 64, narrow, groups=3).grid == (*expected, 3)


def test_index_bits() -> None:
    """32 up to the greatest int32, for the launch, operands, results and values inside."""
    small = negate(8)
    assert index_bits(small, 2**31 - 1) == 32
    assert index_bits(small, 2**31) == 64
    assert index_bits(negate(2**31 - 1, "s8"), 8) == 32
    assert index_bits(negate(2**31, "s8"), 8) == 64
    inside = _fused("s8[2147483648]", "ROOT t = s8[1] slice(p), slice={[0:1]}", "s8[1]")
    assert index_bits(inside, 1) == 64
    wide = _fused(
        "s8[1]",
        "q = s8[] reshape(p)\nb = s8[4294967296] broadcast(q), dimensions={}\n"
        "ROOT t = s8[1] slice(b), slice={[0:1]}",
        "s8[1]",
    )
    assert index_bits(wide, 1) == 64
