"""On a real GPU, where there is one with CuPy; elsewhere all of this is skipped."""

from __future__ import annotations

import runpy
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import hloopt
from hloopt.backends.cuda import CudaDevice
from hloopt.backends.cuda.description import describe_gpu
from hloopt.backends.cuda.occupancy import occupancy
from hloopt.backends.cuda.profile import profile
from hloopt.backends.cuda.timing import Stopwatch
from hloopt.backends.device_compile import prepare
from hloopt.backends.nvrtc import TIMED
from hloopt.runtime import library_numpy
from hloopt.runtime.device import Pointer, PointerArgument
from hloopt.runtime.device_program import DeviceProgram
from hloopt.runtime.inputs import generate, load_inputs
from hloopt.runtime.program import DeviceOptions
from tests.backends.cuda.library_cases import (
    DOTS,
    FFTS,
    dot_text,
    drawn,
    fft_operand,
    fft_text,
    on_device,
    root,
)
from tests.helpers.support import Sample, invoke, sample_table

pytestmark = pytest.mark.gpu

SAMPLES = Path(__file__).resolve().parents[3] / "samples"
TABLE = sample_table(SAMPLES)

SOURCE = """
extern "C" __global__ void __launch_bounds__(128) add(const float* __restrict__ a, float* __restrict__ o, int n) {
  int i = blockIdx.x * 128 + threadIdx.x;
  if (i < n) o[i] = a[i] + 1.0f;
}
extern "C" __global__ void __launch_bounds__(256) tile(float* __restrict__ o, int n) {
  __shared__ float kept[8192];
  for (int i = threadIdx.x; i < 8192; i += 256) kept[i] = o[i];
  __syncthreads();
  o[threadIdx.x] = kept[(threadIdx.x * 31 + n) & 8191];
}
extern "C" __global__ void __launch_bounds__(512) heavy(float* __restrict__ o, int n) {
  float v[96];
  #pragma unroll
  for (int i = 0; i < 96; i++) v[i] = o[i * 512 + threadIdx.x];
  for (int j = 0; j < n; j++) {
    #pragma unroll
    for (int i = 0; i < 96; i++) v[i] = v[i] * v[(i + 1) % 96] + 1.0f;
  }
  #pragma unroll
  for (int i = 0; i < 96; i++) o[i * 512 + threadIdx.x] = v[i];
}
"""
THREADS = {"add": 128, "tile": 256, "heavy": 512}


@pytest.fixture
def gpu() -> Iterator[CudaDevice]:
    """The first GPU."""
    device = CudaDevice()
    yield device
    device.close()


def test_memory_launches_and_graphs(gpu: CudaDevice, rng: np.random.Generator) -> None:
    """Bytes arrive, kernels run in order, a graph runs its work each time."""
    gpu.load(SOURCE, {})
    count = 1000
    source, target = (Pointer(gpu.allocate(4 * count + 256), 256, 4 * count) for _ in range(2))
    values = rng.random(count, np.float32)
    gpu.upload(source, values)
    arguments = [PointerArgument(source, "in"), PointerArgument(target, "out")]
    gpu.launch("add", (8, 1, 1), (128, 1, 1), arguments, [0])
    gpu.begin_capture()
    gpu.launch("add", (8, 1, 1), (128, 1, 1), arguments, [count])
    gpu.copy(source, target)
    graph = gpu.end_capture()
    for _ in range(3):
        gpu.replay(graph)
    np.testing.assert_array_equal(gpu.download(target).view(np.float32), values + 1 + 1 + 1)
    gpu.fill(target, 0xFF)
    assert gpu.download(target).tolist() == [0xFF] * (4 * count)


@pytest.mark.parametrize("name", DOTS)
def test_products_of_cublas(name: str, gpu: CudaDevice, rng: np.random.Generator) -> None:
    """Whole numbers: exact, whatever the order of summation."""
    instruction = root(dot_text(DOTS[name]))
    arrays = [drawn(operand.array, rng) for operand in instruction.operands]
    got = on_device(gpu, "cublas", instruction, arrays)
    assert got.tobytes() == library_numpy.call(instruction, arrays)[0].tobytes()


def test_products_keep_f32(gpu: CudaDevice, rng: np.random.Generator) -> None:
    """TF32 has ten bits of fraction: its errors would be a thousand times as large."""
    text = dot_text("f32[256,256]{1,0} a, f32[256,256]{1,0} b -> f32[256,256]{1,0} contract 1 0")
    arrays = [rng.random((256, 256), np.float32) for _ in range(2)]
    got = on_device(gpu, "cublas", root(text), arrays)
    exact = arrays[0].astype(np.float64) @ arrays[1].astype(np.float64)
    np.testing.assert_allclose(got, exact, rtol=1e-5)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("kind", FFTS)
def test_transforms_of_cufft(
    kind: str, wide: bool, gpu: CudaDevice, rng: np.random.Generator
) -> None:
    """Scaled, batched, and the operand stays what it was."""
    instruction = root(fft_text(kind, wide))
    array = fft_operand(instruction, rng)
    got = on_device(gpu, "cufft", instruction, [array], times=2)
    (wanted,) = library_numpy.call(instruction, [array])
    near = 1e-11 if wide else 1e-4
    np.testing.assert_allclose(got, wanted, rtol=near, atol=near)


def test_occupancy_is_the_driver_s(gpu: CudaDevice) -> None:
    """The formula and CUDA's own count agree for kernels bound by threads, shared memory and registers."""
    import cupy

    gpu.load(SOURCE, {})
    target = describe_gpu(gpu)
    assert gpu.compiled is not None
    for name, threads in THREADS.items():
        taken = gpu.compiled.resources[name]
        function = gpu._module.get_function(name)
        held = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(function.ptr, threads, 0)
        assert occupancy(target, threads, taken.registers, taken.shared).blocks == held, name


def test_the_target_is_this_gpu(gpu: CudaDevice) -> None:
    """Capability and multiprocessors of the driver; memory is as quick as described, within a third."""
    target = describe_gpu(gpu)
    properties = gpu.properties()
    assert target.capability == gpu.capability
    assert target.cores == properties["multiProcessorCount"]
    measured = Stopwatch(gpu).copy_bandwidth()
    assert 0.5 < measured / target.memory_bandwidth < 1.1


def test_small_kernels_are_not_timed_by_the_host(gpu: CudaDevice) -> None:
    """An empty step takes a few microseconds, not what Python needs to launch it."""
    gpu.load(SOURCE, {})
    buffer = Pointer(gpu.allocate(4096), 0, 4096)
    arguments = [PointerArgument(buffer, "in"), PointerArgument(buffer, "update")]

    def step() -> None:
        gpu.launch("add", (1, 1, 1), (128, 1, 1), arguments, [0])

    for cold in (False, True):
        (timing,) = Stopwatch(gpu, cold=cold).steps([step])
        assert 0 < timing.median < 15e-6


def test_an_access_outside_of_memory_names_the_kernel() -> None:
    """In a process of its own: CUDA gives a context with such an error up."""
    program = """
        from hloopt.errors import EvaluationError
        from hloopt.backends.cuda import CudaDevice
        from hloopt.runtime.device import Pointer, PointerArgument

        device = CudaDevice()
        source = 'extern "C" __global__ void wild(float* o, int n) { o[(1ll << 40) + n] = 1.0f; }'
        device.load(source, {"wild": "scatter.1"})
        buffer = Pointer(device.allocate(64), 0, 64)
        device.launch("wild", (1, 1, 1), (1, 1, 1), [PointerArgument(buffer, "out")], [0])
        try:
            device.download(buffer)
        except EvaluationError as error:
            print(error)
        device.close()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    assert "illegal memory access" in done.stdout
    assert "wild of scatter.1" in done.stdout


@pytest.mark.parametrize("level", ["-O0", "-O2"])
@pytest.mark.parametrize("sample", TABLE, ids=[row.name for row in TABLE])
def test_samples_on_the_gpu(sample: Sample, level: str) -> None:
    """Right against the interpreter and the recorded results."""
    path = SAMPLES / sample.name
    files = ["run", f"{path}.hlo", "--inputs", f"{path}.npz", "--expect", f"{path}.npz"]
    result = invoke(*files, level, "--device", "gpu", "--repeat", "1", *sample.options)
    assert result.exit_code == 0, result.stdout + result.stderr


LOOPS = sample_table(SAMPLES / "loops")
CARTPOLE = ("naive", "random_before", "separate", "unrolled_10", "gymnax_random", "gymnax_network")


def near(got: list[np.ndarray], want: list[np.ndarray], share: float) -> None:
    """Equal within 1e-3 in all but a share of the elements: a last bit decides now and then whether a pole falls."""
    for left, right in zip(got, want, strict=True):
        close = np.isclose(left.astype(np.float64), right.astype(np.float64), rtol=1e-3, atol=1e-3)
        assert 1 - close.mean() <= share


def whole_loops(name: str) -> tuple[list[str], list[np.ndarray], list[np.ndarray]]:
    """A sample after O3 on the GPU: the kernels that are loops, its results, and those recorded."""
    module = hloopt.parse((SAMPLES / f"{name}.hlo").read_text(), name)
    record = SAMPLES / f"{name}.npz"
    prepared = prepare(hloopt.optimize(module, "O3"), DeviceOptions())
    kernels = [getattr(getattr(step, "spec", None), "kernel", "") for step in prepared.plan.steps]
    with closing(CudaDevice()) as device:
        program = DeviceProgram(prepared.module, prepared.plan, device, prepared.program)
        results = program.run(load_inputs(record, module))
    with np.load(record) as arrays:
        wanted = [arrays[f"out_{number}"] for number in range(len(results))]
    return [kernel for kernel in kernels if kernel.startswith("while-")], results, wanted


@pytest.mark.parametrize("loop", LOOPS, ids=[row.name for row in LOOPS])
def test_loops_as_one_kernel_on_the_gpu(loop: Sample) -> None:
    """The recorded results, from kernels that are whole loops."""
    kernels, results, wanted = whole_loops(f"loops/{loop.name}")
    assert kernels
    # Chains of spins flip where a random number is next to the odds.
    near(results, wanted, share=1e-3)


@pytest.mark.parametrize("name", CARTPOLE)
def test_cartpole_as_one_kernel_on_the_gpu(name: str) -> None:
    """All steps in one launch; in some of 2,048 environments a step falls to the other side of a limit."""
    kernels, results, wanted = whole_loops(f"cartpole/{name}")
    assert kernels == ["while-per-thread"]
    near(results, wanted, share=5e-3)


def test_the_yardstick_on_the_gpu(gpu: CudaDevice) -> None:
    """Cartpole by hand gives what XLA recorded of the naive program."""
    yardstick = runpy.run_path(str(SAMPLES / "cartpole" / "yardstick.py"))["Yardstick"]
    with np.load(SAMPLES / "cartpole" / "naive.npz") as arrays:
        found = yardstick(gpu, arrays["in_0"], 2048, 1000)
        found.launch()
        near(found.read(), [arrays[f"out_{number}"] for number in range(3)], share=5e-3)


def test_a_profile_of_a_sample() -> None:
    """Every kernel has a time and its code's registers; between them little time is lost."""
    module = hloopt.parse((SAMPLES / "mlp_train_step.hlo").read_text())
    prepared = prepare(hloopt.optimize(module, pipeline="O2"), DeviceOptions())
    device = CudaDevice(flags=TIMED)
    try:
        target = describe_gpu(device)
        found = profile(prepared, generate(module), device, target, repeat=5)
    finally:
        device.close()
    assert all(row.timing.median > 0 for row in found.kernels)
    assert all(row.resources.registers for row in found.kernels if row.resources is not None)
    assert found.whole.median < 10 * found.busy
    assert found.trace()["traceEvents"]
