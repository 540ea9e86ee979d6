"""Times on the stand-in's clock: what is measured, and what of the device's limits it is."""

from __future__ import annotations

import json

import pytest

from hloopt.backends.cuda import CudaDevice
from hloopt.backends.cuda.timing import KernelTime, StepSpan, Stopwatch
from hloopt.backends.nvrtc import Resources
from hloopt.profiles.trace_events import TraceEvent, chrome_trace
from hloopt.runtime.timing import Timing
from hloopt.targets import target
from tests.backends.cuda.fake_cupy import FakeCupy


class Step:
    """Takes so many milliseconds of the stand-in's clock, the first runs more."""

    def __init__(self, fake: FakeCupy, *milliseconds: float) -> None:
        self.fake, self.left, self.runs = fake, list(milliseconds), 0

    def __call__(self) -> None:
        self.runs += 1
        self.fake.clock += self.left.pop(0) if len(self.left) > 1 else self.left[0]


def test_each_step_has_its_times_after_the_warm_up(device: CudaDevice, fake: FakeCupy) -> None:
    """What the first runs take is not among them; steps run in turn."""
    first, second = Step(fake, 100, 100, 100, 1), Step(fake, 5)
    times = Stopwatch(device).steps([first, second], repeat=4)
    assert [timing.median for timing in times] == pytest.approx([1e-3, 5e-3])
    assert len(times[0].seconds) == 4
    assert first.runs == second.runs == 7


def test_the_device_is_kept_busy_before_a_step(device: CudaDevice, fake: FakeCupy) -> None:
    """Else the host's time to launch would be measured."""
    watch = Stopwatch(device)
    fake.calls.clear()
    watch.steps([lambda: fake.calls.append(("step",))], repeat=2, warm_up=0)
    names = [name for name in fake.names() if name in ("graph", "step")]
    assert names == ["graph", "step", "graph", "step"]


def test_a_cold_cache_is_emptied_before_each_step(device: CudaDevice, fake: FakeCupy) -> None:
    """By writing twice its size, before the clock starts."""
    watch = Stopwatch(device, cold=True)
    fake.calls.clear()
    watch.steps([lambda: None], repeat=3, warm_up=2)
    assert fake.calls.count(("memsetAsync", 0, 2 << 20)) == 3
    assert fake.calls.count(("alloc", 2 << 20)) == 1
    fake.calls.clear()
    Stopwatch(device).steps([lambda: None], repeat=3)
    assert ("memsetAsync", 0, 2 << 20) not in fake.calls


def test_a_program_as_one_piece(device: CudaDevice, fake: FakeCupy) -> None:
    """One time a run."""
    assert Stopwatch(device).whole(Step(fake, 9, 9, 9, 4, 6, 5), repeat=3).median == pytest.approx(
        5e-3
    )


def test_a_timeline_has_starts_and_lengths(device: CudaDevice, fake: FakeCupy) -> None:
    """One run, in which nothing waits; no steps, no spans."""
    watch = Stopwatch(device)
    fake.calls.clear()
    spans = watch.timeline([Step(fake, 2), Step(fake, 3)])
    assert spans == (
        StepSpan(0.0, pytest.approx(2e-3)),
        StepSpan(pytest.approx(2e-3), pytest.approx(3e-3)),
    )
    assert fake.names().count("synchronize") == 1
    assert watch.timeline([]) == ()


def test_copy_bandwidth_counts_reading_and_writing(
    device: CudaDevice, fake: FakeCupy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A megabyte in a millisecond is two gigabytes a second."""
    copy = device.copy

    def slowly(*pointers: object) -> None:
        fake.clock += 1.0
        copy(*pointers)  # type: ignore[arg-type]

    monkeypatch.setattr(device, "copy", slowly)
    assert Stopwatch(device).copy_bandwidth(1 << 20) == pytest.approx(2 * (1 << 20) / 1e-3)


def test_figures_of_a_kernel() -> None:
    """Rates at the median, the share of what the description allows, and warps held."""
    h200 = target("h200")
    timing = Timing((2e-3, 1e-3, 3e-3))
    moved = KernelTime(
        "k",
        "fusion.1",
        timing,
        bytes=4_800_000_000,
        flops=10,
        threads=256,
        resources=Resources(registers=40),
    )
    assert moved.bytes_per_second == pytest.approx(2.4e12)
    assert moved.flops_per_second == pytest.approx(5e3)
    assert moved.share_of_roofline(h200) == pytest.approx(0.5)
    held = moved.occupancy(h200)
    assert held is not None
    assert (held.blocks, held.fraction) == (6, 0.75)
    computed = KernelTime(
        "cublas",
        "dot.1",
        timing,
        bytes=8,
        flops=int(h200.peak_flops("f16", "matrix") or 0) // 1000,
        dtype="f16",
        unit="matrix",
    )
    assert computed.share_of_roofline(h200) == pytest.approx(0.5)
    assert computed.occupancy(h200) is None


def test_what_is_too_short_for_the_clock_has_no_rate() -> None:
    """Rather than an infinite one."""
    brief = KernelTime("k", "fusion.1", Timing((0.0,)), bytes=8, flops=8)
    h200 = target("h200")
    rates = (brief.bytes_per_second, brief.flops_per_second, brief.share_of_roofline(h200))
    assert rates == (0.0, 0.0, 0.0)


def test_a_trace_has_a_bar_for_each_launch() -> None:
    """Microseconds, rows by name in the order they occur, and what a click shows."""
    trace = chrome_trace(
        [
            TraceEvent(
                "fusion_1", 0.0, 2e-6, "loop", arguments={"bytes": 64, "instruction": "fusion.1"}
            ),
            TraceEvent("rng", 1e-6, 5e-7, "host", "host"),
            TraceEvent("fusion_2", 2.5e-6, 1.2345678e-6),
        ],
        "m.hlo on H200",
    )
    assert json.loads(json.dumps(trace)) == {
        "displayTimeUnit": "ns",
        "traceEvents": [
            {
                "ph": "M",
                "name": "process_name",
                "pid": 0,
                "tid": 0,
                "args": {"name": "m.hlo on H200"},
            },
            {"ph": "M", "name": "thread_name", "pid": 0, "tid": 0, "args": {"name": "GPU"}},
            {"ph": "M", "name": "thread_name", "pid": 0, "tid": 1, "args": {"name": "host"}},
            {
                "ph": "X",
                "name": "fusion_1",
                "cat": "loop",
                "pid": 0,
                "tid": 0,
                "ts": 0.0,
                "dur": 2.0,
                "args": {"bytes": 64, "instruction": "fusion.1"},
            },
            {
                "ph": "X",
                "name": "rng",
                "cat": "host",
                "pid": 0,
                "tid": 1,
                "ts": 1.0,
                "dur": 0.5,
                "args": {},
            },
            {
                "ph": "X",
                "name": "fusion_2",
                "cat": "kernel",
                "pid": 0,
                "tid": 0,
                "ts": 2.5,
                "dur": 1.235,
                "args": {},
            },
        ],
    }
