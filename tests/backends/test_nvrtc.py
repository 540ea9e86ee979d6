"""NVRTC without a GPU: machine code, what it takes, flags, errors that name their place, the cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from hloopt.backends import nvrtc
from hloopt.backends.nvrtc import library
from hloopt.errors import DeviceError

SOURCE = """\
__device__ float twice(float x) {
  return x + x;
}

extern "C" __global__ void __launch_bounds__(128) scale(const float* __restrict__ a, float* __restrict__ o, int n) {
  __shared__ float tile[128];
  int i = blockIdx.x * 128 + threadIdx.x;
  tile[threadIdx.x] = i < n ? a[i] : 0.0f;
  __syncthreads();
  if (i < n) o[i] = twice(tile[127 - threadIdx.x]) * a[i] + 1.0f;
}

extern "C" __global__ void __launch_bounds__(1024, 2) crowded(const double* __restrict__ a, double* __restrict__ o, int n) {
  double v[48];
  for (int i = 0; i < 48; i++) v[i] = a[i];
  for (int j = 0; j < n; j++)
    for (int i = 0; i < 48; i++) v[i] += v[(i * 7 + 1) % 48] * a[j];
  for (int i = 0; i < 48; i++) o[i] = v[i];
}
"""


@pytest.fixture(scope="module", autouse=True)
def _needs_the_library() -> None:
    try:
        nvrtc.nvrtc_for("sm_90")
    except DeviceError as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOOPT_CACHE_DIR", str(tmp_path / "cache"))


def test_machine_code_and_what_it_takes() -> None:
    """A cubin for the device asked for, with registers, spills, stack and shared memory of each kernel."""
    made = nvrtc.compile_cuda(SOURCE, "sm_90")
    assert made.image.startswith(b"\x7fELF")
    assert set(made.resources) == {"scale", "crowded"}
    scale, crowded = made.resources["scale"], made.resources["crowded"]
    assert 8 <= scale.registers <= 40
    assert (scale.shared, scale.spill_stores, scale.stack, scale.barriers) == (512, 0, 0, 1)
    assert crowded.registers == 32
    assert crowded.spill_stores > 0
    assert crowded.spill_loads > 0
    assert crowded.stack > 0
    assert made.flags is nvrtc.VERIFY
    assert made.seconds > 0


def test_flags_decide_about_contraction_and_flushing() -> None:
    """Verification keeps product and sum apart; timed builds fuse them; only fast math flushes."""
    texts = {name: nvrtc.compile_ptx(SOURCE, "sm_90", flags) for name, flags in nvrtc.FLAGS.items()}
    assert "fma.rn.f32" not in texts["verify"]
    assert "mul.rn.f32" in texts["verify"]
    assert "fma.rn.f32" in texts["timed"]
    assert "fma.rn.ftz.f32" in texts["fast-math"]
    assert ".ftz" not in texts["verify"] + texts["timed"]


def test_flags_say_their_names_and_options() -> None:
    """A result can tell what it was compiled with."""
    assert str(nvrtc.VERIFY).startswith("verify (--fmad=false --ftz=false")


def test_an_error_names_function_instruction_and_line() -> None:
    """NVRTC's first error, where it is in the text and whose kernel it is."""
    wrong = SOURCE.replace("twice(tile[127", "thrice(tile[127")
    with pytest.raises(nvrtc.CompilationError) as caught:
        nvrtc.compile_cuda(wrong, "sm_90", describe={"scale": "fusion.3 (m.hlo:12:3)"})
    error = caught.value
    assert (error.function, error.instruction, error.line) == ("scale", "fusion.3 (m.hlo:12:3)", 10)
    assert 'function scale of fusion.3 (m.hlo:12:3): identifier "thrice" is undefined' in str(error)
    assert "line 10: if (i < n) o[i] = thrice(" in str(error)


def test_an_error_in_a_device_function_names_that_function() -> None:
    """It belongs to no instruction, so none is named."""
    with pytest.raises(nvrtc.CompilationError, match="function twice: ") as caught:
        nvrtc.compile_cuda(
            SOURCE.replace("x + x", "x + y"), "sm_90", describe={"scale": "fusion.3"}
        )
    assert (caught.value.line, caught.value.instruction) == (2, "")


def test_an_error_of_the_assembler_names_function_and_instruction() -> None:
    """Too much shared memory is found after the text was accepted."""
    wrong = SOURCE.replace("tile[128]", "tile[128000]")
    with pytest.raises(nvrtc.CompilationError, match="uses too much shared data") as caught:
        nvrtc.compile_cuda(wrong, "sm_90", describe={"scale": "reduce.1"})
    assert (caught.value.function, caught.value.instruction) == ("scale", "reduce.1")


def test_warnings_are_kept() -> None:
    """A variable nobody reads is worth a look at the generator."""
    made = nvrtc.compile_cuda(SOURCE.replace("double v[48];", "double v[48]; int idle;"), "sm_90")
    assert any('"idle" was declared but never referenced' in line for line in made.warnings)
    assert not nvrtc.compile_cuda(SOURCE, "sm_90").warnings


def test_a_device_no_library_knows_is_refused_in_one_line() -> None:
    """CUDA 13 has no code for old devices; the message says what to install."""
    with pytest.raises(DeviceError, match=r"not for sm_35.*pip install -e '.*\[gpu\]'") as caught:
        nvrtc.compile_cuda(SOURCE, "sm_35")
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 5


def test_a_library_newer_than_the_driver_is_refused() -> None:
    """A driver of CUDA 11 cannot load what a newer assembler wrote."""
    with pytest.raises(DeviceError, match="is too new for a driver of CUDA 11"):
        nvrtc.nvrtc_for("sm_80", newest=11)


def test_without_the_library_one_line_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing found is a missing device, not a defect."""
    monkeypatch.setattr(
        library, "candidates", lambda: iter(["libnvrtc.so.0", "/nowhere/libnvrtc.so"])
    )
    with pytest.raises(
        DeviceError,
        match=r"^NVRTC, which compiles CUDA C, is not installed: pip install nvidia-cuda-nvrtc",
    ) as caught:
        nvrtc.compile_cuda(SOURCE, "sm_90")
    assert "\n" not in str(caught.value)


def test_a_gpu_newer_than_the_library_gets_ptx() -> None:
    """Of the newest architecture before it: its driver compiles that.  One that is older gets nothing."""
    newest, arch = nvrtc.nvrtc_for_device((99, 0))
    assert arch == newest.architectures[-1].replace("sm_", "compute_")
    made = nvrtc.compile_cuda(SOURCE, arch)
    assert b".visible .entry scale(" in made.image
    assert made.image.endswith(b"\0")
    assert not made.resources
    assert nvrtc.nvrtc_for_device((9, 0))[1] == "sm_90"
    assert nvrtc.nvrtc_for_device((9, 1))[1] == "compute_90"
    with pytest.raises(DeviceError, match="not for sm_35"):
        nvrtc.nvrtc_for_device((3, 5))


def test_names_of_architectures() -> None:
    """Real and virtual ones, with what is special to a device; nothing else."""
    library = nvrtc.nvrtc_for("sm_90")
    assert [library.supports(arch) for arch in ("sm_90", "sm_90a", "compute_90")] == [True] * 3
    wrong = ("sm_91", "sm_9", "sm_90x", "90", "compute_sm_90", "")
    assert [library.supports(arch) for arch in wrong] == [False] * len(wrong)
    assert nvrtc.architecture((10, 3)) == "sm_103"


def test_unknown_options_are_refused_with_their_name() -> None:
    """NVRTC's complaint about an option is passed on."""
    with pytest.raises(DeviceError, match="--nonsense"):
        nvrtc.compile_cuda(SOURCE, "sm_90", options=["--nonsense"])


def test_the_second_time_comes_out_of_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same text, device and flags compile once; another of them compiles again."""
    calls = []
    compile_once = nvrtc.Nvrtc.compile

    def counted(self: nvrtc.Nvrtc, *arguments: object) -> object:
        calls.append(arguments)
        return compile_once(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(nvrtc.Nvrtc, "compile", counted)
    first = nvrtc.compile_cuda(SOURCE, "sm_90")
    again = nvrtc.compile_cuda(SOURCE, "sm_90")
    assert len(calls) == 1
    assert again == first
    nvrtc.compile_cuda(SOURCE, "sm_90", nvrtc.TIMED)
    nvrtc.compile_cuda(SOURCE, "sm_80")
    nvrtc.compile_cuda(SOURCE + "\n", "sm_90")
    nvrtc.compile_cuda(SOURCE, "sm_90", cached=False)
    assert len(calls) == 5


def test_the_report_of_older_assemblers_is_read() -> None:
    """Shared memory in two parts, constant banks, and functions that were not inlined."""
    log = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_70'
ptxas info    : Function properties for k
    24 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 40 registers, 64 bytes cumulative stack size, 1024+16 bytes smem, 380 bytes cmem[0], 8 bytes cmem[2]
ptxas info    : Function properties for helper
    40 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
"""
    found = nvrtc.read_resources(log)
    assert found["k"] == nvrtc.Resources(40, 64, 8, 12, 1040, 388, 0)
    assert found["helper"] == nvrtc.Resources(0, 40, 4, 4, 0, 0, 0)
