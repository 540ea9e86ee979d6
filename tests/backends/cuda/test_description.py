"""The GPU at hand as a target: a known one, or the driver's numbers."""

from __future__ import annotations

import pytest

from hloopt.backends.cuda import CudaDevice
from hloopt.backends.cuda.description import describe_gpu, known_target
from hloopt.backends.cuda.occupancy import occupancy
from hloopt.targets import target
from tests.backends.cuda.fake_cupy import PROPERTIES, FakeCupy

H200 = target("h200")


def test_a_known_gpu_is_found_by_what_it_has() -> None:
    """Names differ from driver to driver; multiprocessors and memory do not."""
    assert known_target(PROPERTIES) is H200
    assert known_target({**PROPERTIES, "multiProcessorCount": 114}) is None
    assert known_target({**PROPERTIES, "totalGlobalMem": 50 << 30}) is None
    assert known_target({**PROPERTIES, "minor": 1}) is None


def test_an_unknown_gpu_is_what_the_driver_says(device: CudaDevice, fake: FakeCupy) -> None:
    """Every number, with its memory's bandwidth from clock and width."""
    fake.runtime.getDeviceProperties = lambda number: {**PROPERTIES, "multiProcessorCount": 10}
    found = describe_gpu(device)
    assert (found.name, found.title, found.cores) == ("this-gpu", "NVIDIA H200", 10)
    assert found.memory_bandwidth == 2 * 3_201_000_000 * 6144 // 8
    assert (found.clock_ghz, found.fpus_per_core, found.calibrated) == (1.98, 128, False)
    assert found.peak_flops("f32") == pytest.approx(10 * 128 * 2 * 1.98e9)
    assert occupancy(found, 256, 40).warps == 48


def test_a_bandwidth_the_driver_does_not_tell_is_measured(
    device: CudaDevice, fake: FakeCupy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the device's own copy of 256 MB, here one of a tenth of a second."""
    fake.runtime.getDeviceProperties = lambda number: {
        **PROPERTIES,
        "multiProcessorCount": 10,
        "memoryClockRate": 0,
    }

    def copy(*pointers: object) -> None:
        fake.clock += 100.0

    monkeypatch.setattr(device, "copy", copy)
    assert describe_gpu(device).memory_bandwidth == round(2 * (1 << 28) / 0.1)
