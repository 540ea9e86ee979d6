"""What is missing is said in one line, before anything else is done."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from hloopt.backends.cuda import CudaDevice, check_gpu
from hloopt.backends.nvrtc import library
from hloopt.errors import DeviceError
from tests.backends.cuda.fake_cupy import CUDARuntimeError, FakeCupy


def refused(match: str, number: int = 0) -> None:
    """Opening the device fails in one line, with the exit code of a missing device."""
    with pytest.raises(DeviceError, match=match):
        check_gpu(number)
    with pytest.raises(DeviceError, match=match) as caught:
        CudaDevice(number)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 5


def failing(status: int) -> Callable[[], int]:
    """A runtime call that fails with a number of cudaError_t."""

    def call() -> int:
        raise CUDARuntimeError(status, f"cudaErrorNumber{status}: details")

    return call


def test_without_cupy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual case on a machine without a GPU."""
    monkeypatch.setitem(sys.modules, "cupy", None)
    refused(r"^CuPy, which talks to the GPU, .*: pip install .*\[gpu\]'")


def test_a_broken_cupy_says_why_it_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy is there, a library it needs is not."""

    class Broken:
        def find_spec(self, name: str, path: object, target: object = None) -> None:
            if name == "cupy":
                raise ImportError(
                    "libcudart.so.13: cannot open shared object file\nmore", name="cupy._core"
                )

    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    refused(r"cannot be loaded \(libcudart.so.13: cannot open shared object file\): pip install")


def test_without_a_driver(fake: FakeCupy) -> None:
    """cudaErrorInsufficientDriver with driver version 0 means that there is none."""
    fake.runtime.getDeviceCount = failing(35)
    fake.runtime.driverGetVersion = lambda: 0
    refused("^no NVIDIA driver is installed on this machine")


def test_a_driver_older_than_cupy_needs(fake: FakeCupy) -> None:
    """Both versions are named, and the extra for the older one."""
    fake.runtime.getDeviceCount = failing(35)
    fake.runtime.driverGetVersion = lambda: 12040
    refused(r"supports CUDA up to 12\.4, CuPy needs 13\.2: .*\[gpu12\]")


@pytest.mark.parametrize("count", [failing(100), lambda: 0])
def test_a_driver_that_sees_no_gpu(fake: FakeCupy, count: Callable[[], int]) -> None:
    """cudaErrorNoDevice, or none counted."""
    fake.runtime.getDeviceCount = count
    refused("sees no GPU on this machine")


def test_a_gpu_that_is_not_there(fake: FakeCupy) -> None:
    """By number, with the numbers there are."""
    refused(r"^there is no GPU 3: this machine has one GPU, number 0", 3)
    fake.runtime.getDeviceCount = lambda: 2
    refused(r"this machine has 2 GPUs, numbers 0 to 1", 2)


def test_any_other_error_of_the_driver_is_passed_on(fake: FakeCupy) -> None:
    """cudaErrorSystemNotReady and the like, in the driver's words."""
    fake.runtime.getDeviceCount = failing(802)
    refused("the NVIDIA driver does not answer: cudaErrorNumber802: details")


def test_cupy_for_other_gpus(fake: FakeCupy) -> None:
    """ROCm is another device."""
    fake.runtime.is_hip = True
    refused("built for ROCm")


def test_without_the_compiler(fake: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found out when the device is opened, not when a program is loaded."""
    monkeypatch.setattr(library, "candidates", lambda: iter(()))
    refused("^NVRTC, which compiles CUDA C, is not installed")
    assert not fake.calls


def test_a_gpu_the_compiler_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """Volta with CUDA 13: the other extra has the compiler."""
    monkeypatch.setitem(sys.modules, "cupy", FakeCupy(capability=(3, 5)))  # type: ignore[arg-type]
    refused(r"not for sm_35|is not installed")
