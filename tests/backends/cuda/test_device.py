"""The device on CuPy's stand-in: memory, launches, graphs, errors.  No GPU runs here."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from hloopt.backends.cuda import CudaDevice
from hloopt.errors import DeviceError, EvaluationError
from hloopt.runtime.device import Pointer, PointerArgument
from tests.backends.cuda.fake_cupy import CUDARuntimeError, FakeCupy, view

SOURCE = """
extern "C" __global__ void __launch_bounds__(128) add(const float* __restrict__ a, float* __restrict__ o, int n) {
  int i = blockIdx.x * 128 + threadIdx.x;
  if (i < n) o[i] = a[i] + 1.0f;
}
extern "C" __global__ void __launch_bounds__(128) scale(float* __restrict__ o, int n) {
  int i = blockIdx.x * 128 + threadIdx.x;
  if (i < n) o[i] = o[i] * 2.0f;
}
"""
DESCRIBE = {"add": "add.1 (m.hlo:3)", "scale": "multiply.2 (m.hlo:4)"}


def load(device: CudaDevice, fake: FakeCupy) -> None:
    """The program, with Python in the place of a GPU."""

    def add(grid: tuple, block: tuple, a: int, o: int, n: int) -> None:
        view(int(o), np.float32, int(n))[:] = view(int(a), np.float32, int(n)) + 1
        fake.clock += 2.0

    def scale(grid: tuple, block: tuple, o: int, n: int) -> None:
        view(int(o), np.float32, int(n))[:] *= 2
        fake.clock += 3.0

    fake.kernels = {"add": add, "scale": scale}
    device.load(SOURCE, DESCRIBE)


def buffers(device: CudaDevice, count: int = 8) -> tuple[Pointer, Pointer]:
    """Two buffers of f32, the second at an offset."""
    first, second = device.allocate(4 * count), device.allocate(4 * count + 256)
    return Pointer(first, 0, 4 * count), Pointer(second, 256, 4 * count)


def run(device: CudaDevice, source: Pointer, target: Pointer) -> None:
    """o = 2 (a + 1)."""
    count = source.byte_size // 4
    arguments = [PointerArgument(source, "in"), PointerArgument(target, "out")]
    device.launch("add", (1, 1, 1), (128, 1, 1), arguments, [count])
    device.launch("scale", (1, 1, 1), (128, 1, 1), [PointerArgument(target, "update")], [count])


def test_a_program_runs_in_order(device: CudaDevice, fake: FakeCupy) -> None:
    """Upload, two launches with pointers and a number, download."""
    load(device, fake)
    source, target = buffers(device)
    device.upload(source, np.arange(8, dtype=np.float32))
    run(device, source, target)
    assert device.download(target).view(np.float32).tolist() == [2, 4, 6, 8, 10, 12, 14, 16]
    assert device.compiled is not None
    assert device.compiled.resources["add"].registers > 0
    launches = [call for call in fake.calls if call[0] == "launch"]
    assert [call[1:4] for call in launches] == [
        ("add", (1, 1, 1), (128, 1, 1)),
        ("scale", (1, 1, 1), (128, 1, 1)),
    ]
    assert launches[0][4][2] == 8


def test_functions_are_looked_up_once(device: CudaDevice, fake: FakeCupy) -> None:
    """Launching again asks the driver for nothing."""
    load(device, fake)
    source, target = buffers(device)
    run(device, source, target)
    run(device, source, target)
    assert fake.names().count("get_function") == 2


def test_copies_and_fills(device: CudaDevice) -> None:
    """Bytes on the device, at offsets; nothing is done for empty buffers."""
    source, target = buffers(device)
    device.upload(source, np.arange(32, dtype=np.uint8))
    device.copy(target, source)
    device.fill(Pointer(target.allocation, 256 + 4, 2), 255)
    assert device.download(target).tolist()[:8] == [0, 1, 2, 3, 255, 255, 6, 7]
    empty = Pointer(source.allocation, 0, 0)
    device.copy(empty, empty)
    device.fill(empty, 1)
    device.upload(empty, np.zeros(0, np.float32))
    assert device.download(empty).size == 0
    assert device.download(source).tolist() == list(range(32))


def test_sizes_that_do_not_fit_are_refused(device: CudaDevice) -> None:
    """CUDA would write beyond the buffer."""
    source, target = buffers(device)
    with pytest.raises(ValueError, match="16 bytes for a buffer of 32"):
        device.upload(source, np.zeros(4, np.float32))
    with pytest.raises(ValueError, match="32 bytes into a buffer of 4"):
        device.copy(Pointer(target.allocation, 0, 4), source)


def test_a_grid_without_blocks_is_not_launched(device: CudaDevice, fake: FakeCupy) -> None:
    """CuPy would launch one block of it."""
    load(device, fake)
    device.launch("add", (0, 1, 1), (128, 1, 1), [])
    assert "launch" not in fake.names()


def test_shared_memory_of_a_launch_is_asked_for_once(device: CudaDevice, fake: FakeCupy) -> None:
    """More than 48 KiB only for who sets the function's attribute; less than that as it is."""
    load(device, fake)
    fake.kernels["add"] = lambda grid, block: None
    for shared in (0, 1024, 65536, 65536):
        device.launch("add", (1, 1, 1), (128, 1, 1), [], shared=shared)
    assert [call[2] for call in fake.calls if call[0] == "shared"] == [1024, 65536, 65536]
    asked = [call[1:] for call in fake.calls if call[0] == "funcSetAttribute"]
    assert asked == [(hash("add"), 8, 65536)]


def test_a_graph_runs_what_was_captured_each_time(device: CudaDevice, fake: FakeCupy) -> None:
    """Nothing runs while it is captured; each replay runs everything, on the same memory."""
    load(device, fake)
    source, target = buffers(device)
    device.upload(source, np.zeros(8, np.float32))
    device.fill(target, 0)
    device.begin_capture()
    run(device, source, target)
    device.copy(source, target)
    graph = device.end_capture()
    assert device.download(target).view(np.float32)[0] == 0
    device.replay(graph)
    device.replay(graph)
    assert device.download(target).view(np.float32)[0] == 6
    assert fake.names().count("graph") == 2


def test_what_waits_cannot_be_captured(device: CudaDevice) -> None:
    """Uploads and downloads are refused by name; captures do not nest."""
    source, _ = buffers(device)
    device.begin_capture()
    with pytest.raises(ValueError, match="no download while a graph is captured"):
        device.download(source)
    with pytest.raises(ValueError, match="no upload while a graph is captured"):
        device.upload(source, np.zeros(8, np.float32))
    with pytest.raises(ValueError, match="a capture is under way"):
        device.begin_capture()
    device.abandon_capture()
    with pytest.raises(ValueError, match="no capture is under way"):
        device.end_capture()
    device.upload(source, np.zeros(8, np.float32))


def test_an_error_names_what_was_launched_since_the_last_wait(
    device: CudaDevice, fake: FakeCupy
) -> None:
    """CUDA does not say which kernel it was; we say which it may have been."""
    load(device, fake)
    source, target = buffers(device)
    device.launch("scale", (1, 1, 1), (128, 1, 1), [PointerArgument(source, "update")], [8])
    device.synchronize()
    device.launch(
        "add",
        (1, 1, 1),
        (128, 1, 1),
        [PointerArgument(source, "in"), PointerArgument(target, "out")],
        [8],
    )
    fake.error_on_wait = CUDARuntimeError(
        700, "cudaErrorIllegalAddress: an illegal memory access was encountered"
    )
    with pytest.raises(
        EvaluationError, match=r"illegal memory access.*: add of add.1 \(m.hlo:3\)$"
    ) as caught:
        device.download(target)
    assert "scale" not in str(caught.value)
    device.close()


def test_a_blocking_device_names_the_one_kernel(fake: FakeCupy, device: CudaDevice) -> None:
    """It waits after each launch."""
    blocking = CudaDevice(blocking=True)
    load(blocking, fake)
    source, target = buffers(blocking)
    fake.error_on_wait = CUDARuntimeError(716, "cudaErrorMisalignedAddress: misaligned address")
    with pytest.raises(EvaluationError, match=r"misaligned address.*: add of add.1"):
        run(blocking, source, target)
    blocking.close()
    fake.error_on_wait = None


def test_an_error_of_a_launch_names_the_kernel(device: CudaDevice, fake: FakeCupy) -> None:
    """The driver refuses a grid or block at once."""
    load(device, fake)
    source, target = buffers(device)

    def refuse(*arguments: object) -> None:
        raise CUDARuntimeError(9, "cudaErrorInvalidConfiguration: invalid configuration argument")

    fake.kernels["add"] = refuse
    with pytest.raises(
        EvaluationError, match=r"launching add of add.1 \(m.hlo:3\): cudaErrorInvalidConfiguration"
    ):
        run(device, source, target)


def test_no_memory_left_says_how_much_there_is(device: CudaDevice, fake: FakeCupy) -> None:
    """The size that was asked for, and what is free."""
    fake.memory_left = 10
    with pytest.raises(
        DeviceError, match=r"GPU 0 has no 4,096 bytes left: 1,000 of 2,000 are free"
    ):
        device.allocate(4096)


def test_events_measure_seconds_on_the_device(device: CudaDevice, fake: FakeCupy) -> None:
    """The time between two events, which CUDA gives in milliseconds."""
    load(device, fake)
    source, target = buffers(device)
    start = device.record()
    run(device, source, target)
    end = device.record()
    assert device.elapsed(start, end) == pytest.approx(5e-3)


def test_without_a_program_nothing_can_be_launched(device: CudaDevice) -> None:
    """A defect of the caller, not of the device."""
    with pytest.raises(ValueError, match="no program is loaded"):
        device.launch("add", (1, 1, 1), (128, 1, 1), [])


def test_the_caller_may_change_an_array_after_its_upload(
    device: CudaDevice, fake: FakeCupy
) -> None:
    """The copy is awaited; arrays that are not contiguous arrive in order."""
    source, _ = buffers(device, 4)
    array = np.arange(8, dtype=np.float32)
    device.upload(source, array[::2])
    assert fake.names()[-1] == "synchronize"
    array[:] = 0
    assert device.download(source).view(np.float32).tolist() == [0, 2, 4, 6]


def test_a_gpu_newer_than_the_compiler_loads_ptx(
    monkeypatch: pytest.MonkeyPatch, device: CudaDevice
) -> None:
    """The driver makes machine code of it; what that takes is not known."""
    newer = FakeCupy(capability=(99, 0))
    monkeypatch.setitem(sys.modules, "cupy", newer)  # type: ignore[arg-type]
    opened = CudaDevice()
    load(opened, newer)
    assert opened.compiled is not None
    assert opened.compiled.arch.startswith("compute_")
    assert "load" in newer.names()
    opened.close()
