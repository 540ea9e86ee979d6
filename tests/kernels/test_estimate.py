"""Estimates: bytes and flops over the target's rates, held against figures worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

import hloopt
from hloopt.analysis.region import region_of
from hloopt.kernels.estimate import EFFICIENCIES, LAUNCH_SECONDS, Estimate, estimate
from hloopt.kernels.kernel import YES, Efficiency, Kernel, Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.registry import find_kernel, kernels
from hloopt.kernels.spec import (
    Argument,
    Copy,
    Fill,
    KernelPart,
    KernelSpec,
    Launch,
    LeafPlace,
    ScratchBuffer,
)
from hloopt.targets import find_target
from tests.kernels.selecting import DEVICE, TEXT, by_name

SITE = Site(region_of(by_name(hloopt.parse(TEXT), "sum")), DEVICE, Limits())
ROW = Kernel(
    "row",
    "",
    lambda _: YES(),
    lambda _: YES(),
    lambda _: {},
    lambda _, tile: KernelSpec("row", tile),
)
READS = (Argument(LeafPlace("operand", 0), "in"), Argument(LeafPlace("operand", 1), "in"))
WRITES = Argument(LeafPlace("result", 0), "out")


def launch(*arguments: Argument, blocks: int = 1000, threads: int = 128) -> Launch:
    return Launch("", (blocks, 1, 1), (threads, 1, 1), arguments)


def asked(*steps: KernelPart, efficiency: Efficiency | None = None, **parts: object) -> Estimate:
    """Of the addition of two vectors of 4096 bytes each."""
    kernel = ROW if efficiency is None else replace(ROW, efficiency=lambda *_: efficiency)
    return estimate(SITE, kernel, KernelSpec("row", {}, steps, **parts))  # type: ignore[arg-type]


def test_every_operand_once_every_result_once() -> None:
    """8192 bytes in, 4096 out, 1024 flops; memory at 1 TB/s, arithmetic at 10 cores of 100 lanes, 1 GHz."""
    found = asked(launch(*READS, WRITES))
    assert (found.bytes_read, found.bytes_written, found.flops) == (8192, 4096, 1024)
    memory, arithmetic = 12288 / 1e12, 1024 / 2e12
    assert found.seconds == pytest.approx(LAUNCH_SECONDS + memory + 0.05 * arithmetic)


def test_few_blocks_read_slowly() -> None:
    """A core asks for 32 bytes a clock: one block reads at 32 GB/s, and one core adds."""
    found = asked(launch(*READS, WRITES, blocks=1))
    memory, arithmetic = 8192 / 32e9 + 4096 / 1e12, 1024 / 2e11
    assert found.seconds == pytest.approx(LAUNCH_SECONDS + memory + 0.05 * arithmetic)


def test_shares_of_the_rates() -> None:
    """Half of the bandwidth and a tenth of the arithmetic; what is read again comes from a cache."""
    found = asked(launch(*READS, WRITES), efficiency=Efficiency(0.5, 0.001, 3.0, "so it is"))
    memory = 12288 / 5e11 + 2 * 8192 / (5e11 * 20)
    arithmetic = 1024 / 2e9
    assert found.seconds == pytest.approx(LAUNCH_SECONDS + arithmetic + 0.05 * memory)
    assert found.note == "so it is"


def test_each_step_is_launched() -> None:
    """Fills, copies and further launches count with what they move; scratch is written and read."""
    out, back = Argument(LeafPlace("scratch", 0), "out"), Argument(LeafPlace("scratch", 0), "in")
    steps = (
        Fill(LeafPlace("result", 0)),
        launch(*READS, out),
        launch(back, Argument(LeafPlace("result", 0), "update")),
        Copy(LeafPlace("operand", 0), LeafPlace("result", 0)),
    )
    found = asked(*steps, scratch=(ScratchBuffer("f64", 10),))
    assert found.bytes_read == 8192 + 80 + 4096 + 4096
    assert found.bytes_written == 4096 + 4096 + 80 + 4096
    assert found.seconds > 4 * LAUNCH_SECONDS


def test_what_several_launches_read_counts_each_time() -> None:
    """Two results by a launch each: the operands are read twice, each result is written once."""
    found = asked(launch(*READS, WRITES), launch(*READS, WRITES))
    assert (found.bytes_read, found.bytes_written) == (2 * 8192, 4096)
    apart = asked(launch(READS[0], WRITES), launch(READS[1], WRITES))
    assert (apart.bytes_read, apart.bytes_written) == (8192, 4096)


def test_what_is_in_place_is_not_moved() -> None:
    """A slice of 8 elements updated: in place its bytes alone, else the whole array twice."""
    text = """HloModule m
ENTRY main {
  x = f32[1024] parameter(0)
  u = f32[8] parameter(1)
  i = s32[] parameter(2)
  ROOT r = f32[1024] dynamic-update-slice(x, u, i)
}
"""
    site = Site(region_of(by_name(hloopt.parse(text), "r")), DEVICE, Limits())
    step = launch(*READS, WRITES)
    inside = estimate(site, ROW, KernelSpec("row", {}, (step,), in_place=((0, 0),)))
    apart = estimate(site, ROW, KernelSpec("row", {}, (step,)))
    assert (inside.bytes_read, inside.bytes_written) == (36, 32)
    assert (apart.bytes_read, apart.bytes_written) == (36 + 4096 - 32, 4096)


def test_doubles_are_slower_than_floats() -> None:
    """By the rates of the target: half on an H200."""
    target = find_target("h200")
    loop = find_kernel("loop")
    times = {}
    for dtype in ("f32", "f64", "bf16"):
        text = f"""HloModule m
ENTRY main {{
  x = {dtype}[256,256] parameter(0)
  ROOT r = {dtype}[256,256] dot(x, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
        site = Site(region_of(by_name(hloopt.parse(text), "r")), target, Limits())
        times[dtype] = estimate(site, loop, loop.spec(site, loop.tile(site))).seconds
    assert times["f64"] > times["f32"] >= times["bf16"]


def test_a_row_read_by_one_thread_is_not_coalesced() -> None:
    """The loop kernel pays for transposes and for reductions of the fastest dimension, as XLA's model has it."""
    body = """HloModule m
f { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[512,512] parameter(0)
  z = f32[] parameter(1)
  rows = f32[512] reduce(x, z), dimensions={1}, to_apply=f
  columns = f32[512] reduce(x, z), dimensions={0}, to_apply=f
  turned = f32[512,512] transpose(x), dimensions={1,0}
  same = f32[512,512] negate(x)
  ROOT all = (f32[512], f32[512], f32[512,512], f32[512,512]) tuple(rows, columns, turned, same)
}
"""
    module, loop = hloopt.parse(body), find_kernel("loop")
    times = {}
    for name in ("rows", "columns", "turned", "same"):
        site = Site(region_of(by_name(module, name)), DEVICE, Limits())
        spec = KernelSpec("loop", {}, (launch(*READS[:1], WRITES),))
        times[name] = estimate(site, loop, spec)
    assert times["rows"].seconds > 3 * times["columns"].seconds
    assert times["turned"].seconds > 3 * times["same"].seconds
    assert times["rows"].note == "threads reduce rows of rows one each"
    assert times["turned"].note == "transpose turned is not coalesced"


def test_every_name_of_the_table_is_a_kernel() -> None:
    """None is left behind when a kernel is called otherwise."""
    assert set(EFFICIENCIES) <= {kernel.name for kernel in kernels()}
