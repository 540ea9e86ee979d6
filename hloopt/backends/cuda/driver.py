"""Whether a GPU can be used.  Checked before anything else is done; one line says what is missing."""

from __future__ import annotations

from typing import Any

from hloopt.backends.nvrtc import INSTALL, Nvrtc, nvrtc_for_device
from hloopt.errors import DeviceError
from hloopt.extras import install_command

__all__ = ["capability", "check_gpu", "compiler_for", "open_cupy"]

# cudaError_t, as CuPy's errors carry it.
_INSUFFICIENT_DRIVER, _NO_DEVICE = 35, 100


def open_cupy(number: int = 0) -> Any:
    """The module ``cupy``, with GPU ``number`` there to be used.

    Raises ``DeviceError`` of one line where CuPy, the driver or the GPU is missing.
    """
    try:
        import cupy
    except ImportError as error:
        first = str(error).strip().partition("\n")[0]
        missing = error.name == "cupy" or not first
        why = "is not installed" if missing else f"cannot be loaded ({first})"
        raise DeviceError(f"CuPy, which talks to the GPU, {why}: {INSTALL}") from error
    runtime = cupy.cuda.runtime
    if runtime.is_hip:
        raise DeviceError(f"CuPy is built for ROCm here; this device needs CUDA: {INSTALL}")
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        raise DeviceError(_no_driver(runtime, error)) from error
    if number >= count:
        raise DeviceError(_too_few(count, number))
    return cupy


def capability(cupy: Any, number: int) -> tuple[int, int]:
    """The compute capability, such as (9, 0)."""
    runtime = cupy.cuda.runtime
    properties = runtime.getDeviceProperties(number)
    return int(properties["major"]), int(properties["minor"])


def compiler_for(cupy: Any, number: int) -> tuple[Nvrtc, str]:
    """The compiler whose code the GPU and its driver take, and its name for the GPU."""
    newest = cupy.cuda.runtime.driverGetVersion() // 1000
    return nvrtc_for_device(capability(cupy, number), newest)


def check_gpu(number: int = 0) -> None:
    """Raise ``DeviceError`` where CuPy, the driver, the GPU or the compiler is missing."""
    compiler_for(open_cupy(number), number)


def _no_driver(runtime: Any, error: Any) -> str:
    if error.status == _NO_DEVICE:
        return _too_few(0, 0)
    if error.status != _INSUFFICIENT_DRIVER:
        return f"the NVIDIA driver does not answer: {error}"
    has, needs = runtime.driverGetVersion(), runtime.runtimeGetVersion()
    if not has:
        return (
            "no NVIDIA driver is installed on this machine (libcuda.so), which --device gpu needs"
        )
    return (
        f"the NVIDIA driver supports CUDA up to {has // 1000}.{has % 1000 // 10}, CuPy needs "
        f"{needs // 1000}.{needs % 1000 // 10}: update the driver, or {install_command('gpu12')}"
    )


def _too_few(count: int, number: int) -> str:
    if not count:
        return "the NVIDIA driver sees no GPU on this machine (or CUDA_VISIBLE_DEVICES hides it)"
    have = "one GPU, number 0" if count == 1 else f"{count} GPUs, numbers 0 to {count - 1}"
    return f"there is no GPU {number}: this machine has {have}"
