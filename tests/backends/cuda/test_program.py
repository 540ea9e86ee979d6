"""A whole program on the device, on CuPy's stand-in: kernels are the interpreter's, all else is as on a GPU."""

from __future__ import annotations

import json

import numpy as np
import pytest

import hloopt
from hloopt.analysis.measured import join
from hloopt.backends.cuda import CudaDevice
from hloopt.backends.cuda.profile import profile
from hloopt.backends.device_compile import prepare
from hloopt.kernels.selection import KernelSelection
from hloopt.profiles.chrome import read_chrome
from hloopt.proto import read_proto
from hloopt.runtime.device_program import DeviceProgram
from hloopt.runtime.program import DeviceOptions
from hloopt.runtime.timing import Timing
from hloopt.targets import target
from tests.backends.cuda.fake_cupy import FakeCupy
from tests.backends.cuda.plan_kernels import evaluated, slowed

TEXT = """HloModule m

body {
  p = (s32[], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[8,8] get-tuple-element(p), index=1
  squared = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  half = f32[] constant(0.125)
  halves = f32[8,8] broadcast(half), dimensions={}
  scaled = f32[8,8] multiply(squared, halves)
  moved = f32[8,8] add(scaled, x)
  ROOT t = (s32[], f32[8,8]) tuple(next, moved)
}

condition {
  p = (s32[], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8,8] get-tuple-element(p), index=1
  row = f32[1,1] slice(x), slice={[0:1], [0:1]}
  first = f32[] reshape(row)
  bound = f32[] constant(40)
  ROOT less = pred[] compare(first, bound), direction=LT
}

ENTRY e {
  a = f32[8,8] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[8,8]) tuple(zero, a)
  loop = (s32[], f32[8,8]) while(start), condition=condition, body=body
  x = f32[8,8] get-tuple-element(loop), index=1
  count = s32[] get-tuple-element(loop), index=0
  spectrum = c64[8,5] fft(x), fft_type=RFFT, fft_length={8}
  back = f32[8,8] fft(spectrum), fft_type=IRFFT, fft_length={8}
  negative = f32[8,8] negate(back)
  sum = f32[8,8] add(negative, x)
  ROOT r = (f32[8,8], s32[]) tuple(sum, count)
}
"""


@pytest.mark.parametrize("library_flops", [1, 1 << 40])
def test_a_program_runs_as_the_interpreter_says(
    library_flops: int, device: CudaDevice, fake: FakeCupy, rng: np.random.Generator
) -> None:
    """A loop of unknown count, graphs, products by cuBLAS or by a kernel, transforms; two runs, other inputs."""
    module = hloopt.parse(TEXT)
    options = DeviceOptions(
        selection=KernelSelection(dot_library_flops=library_flops, fft_shared_length=1)
    )
    prepared = prepare(module, options)
    fake.kernels = evaluated(prepared.plan)
    program = DeviceProgram(prepared.module, prepared.plan, device, prepared.program)
    made = len([name for name in fake.names() if name == "alloc"])
    for scale in (1, 2):
        start = scale * rng.random((8, 8), np.float32)
        wanted = hloopt.evaluate(module, [start])
        got = program.run([start])
        assert got[1] == wanted[1]
        assert got[1] > 1, "the loop runs"
        np.testing.assert_allclose(got[0], wanted[0], atol=1e-4)
    names = fake.names()
    assert names.count("alloc") == made, "a run allocates nothing"
    assert ("gemmEx" in names) == (library_flops == 1)
    assert names.count("plan") == 2
    assert names.count("graph") > names.count("begin_capture") >= 1


def test_an_error_ends_a_capture(
    device: CudaDevice, fake: FakeCupy, rng: np.random.Generator
) -> None:
    """The next run is not swallowed by it."""
    module = hloopt.parse(TEXT)
    prepared = prepare(module, DeviceOptions(selection=KernelSelection(fft_shared_length=1)))
    fake.kernels = evaluated(prepared.plan)
    program = DeviceProgram(prepared.module, prepared.plan, device, prepared.program)
    begin = device.begin_capture

    def interrupted() -> None:
        begin()
        raise KeyboardInterrupt

    device.begin_capture = interrupted  # type: ignore[method-assign]
    start = rng.random((8, 8), np.float32)
    with pytest.raises(KeyboardInterrupt):
        program.run([start])
    device.begin_capture = begin  # type: ignore[method-assign]
    got = program.run([start])
    np.testing.assert_allclose(got[0], hloopt.evaluate(module, [start])[0], atol=1e-4)


@pytest.mark.parametrize("cold", [False, True])
def test_a_profile_tells_each_instruction(
    cold: bool, device: CudaDevice, fake: FakeCupy, rng: np.random.Generator
) -> None:
    """How often it ran, how long, what it moved and what its code takes; the whole beside the sum."""
    h200 = target("h200")
    options = DeviceOptions(selection=KernelSelection(dot_library_flops=1, fft_shared_length=1))
    prepared = prepare(hloopt.parse(TEXT), options)
    fake.kernels = slowed(evaluated(prepared.plan), fake)
    start = rng.random((8, 8), np.float32)
    iterations = int(hloopt.evaluate(hloopt.parse(TEXT), [start])[1])
    found = profile(prepared, [start], device, h200, repeat=4, cold=cold)
    rows = {row.instruction: row for row in found.kernels}
    moved = rows["moved"]
    assert (moved.launches, len(moved.timing.seconds)) == (iterations, 4 * iterations)
    assert moved.timing.median == pytest.approx(1e-3)
    assert moved.bytes == 3 * 4 * 64
    assert moved.bytes_per_second == pytest.approx(moved.bytes / 1e-3)
    assert moved.resources is not None
    assert moved.resources.registers > 0
    assert moved.occupancy(h200) is not None
    assert 0 < moved.share_of_roofline(h200) < 1
    product = rows["squared"]
    assert (product.function, product.unit, product.launches) == ("cublas", "matrix", iterations)
    assert product.flops == 2 * 8**3
    assert product.resources is None
    launched = sum(row.launches for row in found.kernels if row.resources is not None)
    assert found.busy == pytest.approx(launched * 1e-3)
    assert isinstance(found.whole, Timing)
    assert found.whole.median == pytest.approx(launched * 1e-3)
    assert (found.flags.name, found.is_cold) == ("verify", cold)
    assert (("memsetAsync", 0, 2 << 20) in fake.calls) == cold


def test_a_profile_is_a_trace(device: CudaDevice, fake: FakeCupy, rng: np.random.Generator) -> None:
    """A bar for each thing that ran in the last run, in order, with its instruction."""
    options = DeviceOptions(selection=KernelSelection(fft_shared_length=1))
    prepared = prepare(hloopt.parse(TEXT), options)
    fake.kernels = slowed(evaluated(prepared.plan), fake)
    found = profile(prepared, [rng.random((8, 8), np.float32)], device, target("h200"), repeat=2)
    events = found.trace()["traceEvents"]
    assert isinstance(events, list)
    bars = [event for event in events if event["ph"] == "X"]
    assert len(bars) == len(found.entries)
    assert [bar["ts"] for bar in bars] == sorted(bar["ts"] for bar in bars)
    assert {bar["cat"] for bar in bars} >= {"launch", "library"}
    named = [bar for bar in bars if bar["args"].get("instruction") == "moved"]
    assert named
    assert named[0]["dur"] == 1000.0
    assert named[0]["args"]["registers"] > 0
    assert events[0]["args"]["name"] == f"{target('h200').title}, verify"


def test_a_trace_is_joined_without_the_module(
    device: CudaDevice, fake: FakeCupy, rng: np.random.Generator
) -> None:
    """It holds the module that ran; each launch and each library call is of one of its instructions."""
    options = DeviceOptions(selection=KernelSelection(dot_library_flops=1, fft_shared_length=1))
    prepared = prepare(hloopt.parse(TEXT), options)
    fake.kernels = slowed(evaluated(prepared.plan), fake)
    found = profile(prepared, [rng.random((8, 8), np.float32)], device, target("h200"), repeat=2)
    trace = read_chrome(json.dumps(found.trace()).encode(), "trace.json")
    (program,) = trace.programs
    held = read_proto(program.module, "trace.json")
    joined = join(held, trace, program, held)
    ran = [one.name for one in found.entries if one.kind in ("launch", "library")]
    assert sum(row.executions for row in joined.joined) == len(ran) > 0
    assert {"moved", "squared", "spectrum"} <= {row.name for row in joined.joined}
    assert joined.share(joined.joined) == pytest.approx(1.0)
    assert joined.total == pytest.approx(found.busy)
