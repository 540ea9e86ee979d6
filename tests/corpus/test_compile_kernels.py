"""Every kernel of the samples compiles without a GPU; what is wrong with one is said by name."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

import hloopt
from hloopt.backends.nvrtc import VERIFY, Compiled, nvrtc_for
from hloopt.errors import DeviceError
from tests.corpus.compile_kernels import (
    FRAMES,
    STRICT,
    Program,
    Row,
    compiled,
    faults,
    main,
    too_long,
    written,
    written_natively,
)
from tests.helpers.rarely import one_in

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
NATIVE = sorted([*SAMPLES.glob("*.hlo"), *SAMPLES.glob("loops/*.hlo")])
BOTH = ("sm_75", STRICT)

FAULTY = """
extern "C" __global__ void __launch_bounds__(1024, 2) crowded(const double* __restrict__ a, double* __restrict__ o, int n) {
  double v[48];
  for (int i = 0; i < 48; i++) v[i] = a[i];
  for (int j = 0; j < n; j++)
    for (int i = 0; i < 48; i++) v[i] += v[(i * 7 + 1) % 48] * a[j];
  for (int i = 0; i < 48; i++) o[i] = v[i];
}
extern "C" __global__ void indexed(float* __restrict__ o, int n) {
  float v[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  for (int i = 0; i < n; i++) v[i & 7] += o[i];
  o[0] = v[n & 7];
}
extern "C" __global__ void fine(float* __restrict__ o) { o[threadIdx.x] += 1.0f; }
"""
DESCRIBE = {"crowded": "reduce.1", "indexed": "gather.2", "fine": "add.3"}


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadPoolExecutor]:
    """Threads that compile; machine code is made anew."""
    try:
        nvrtc_for(STRICT)
    except DeviceError as error:
        pytest.skip(str(error))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HLOOPT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        with ThreadPoolExecutor(2) as made:
            yield made


@pytest.mark.parametrize(
    "path", one_in(3, sorted(SAMPLES.glob("*.hlo"))), ids=lambda path: path.stem
)
def test_every_kernel_of_a_sample_compiles(path: Path, pool: ThreadPoolExecutor) -> None:
    """After -O2, for sm_90, where nothing spills or has a stack frame; `make kernels` has all others."""
    module = hloopt.optimize(hloopt.parse(path.read_text(), name=path.name), pipeline="O2")
    row = compiled(written(module, path.stem), (STRICT,), VERIFY, pool)
    assert not faults(row)
    assert set(row.describe) <= set(row.made[STRICT].resources), "a launch without a function"


@pytest.mark.parametrize("name", one_in(4, (str(path.relative_to(SAMPLES)) for path in NATIVE)))
def test_native_code_of_a_sample_stays_within_its_bytes(name: str) -> None:
    """After -O2 for the host; the functions that are counted are those that the program calls."""
    module = hloopt.parse((SAMPLES / name).read_text(), name=name)
    program = written_natively(hloopt.optimize(module, pipeline="O2", target="host"), name)
    assert program.sizes
    assert not too_long(program.sizes)
    assert not program.broken


def test_a_function_that_is_too_long_is_named() -> None:
    sizes = {"hlo_short": (20_600, 1), "hlo_long": (20_601, 1)}
    assert too_long(sizes) == ["hlo_long has 20601 bytes of code for 1 instructions"]


LOOPS = (
    "cartpole/naive",
    "loops/kalman_tracks",
    "loops/viterbi",
    "loops/gru",
    "loops/kepler_bisection",
)


@pytest.mark.parametrize("name", one_in(2, LOOPS))
def test_loops_of_samples_have_their_state_in_registers(
    name: str, pool: ThreadPoolExecutor
) -> None:
    """After -O3 there is a loop kernel, which neither spills nor keeps an array on the stack."""
    module = hloopt.optimize(hloopt.parse((SAMPLES / f"{name}.hlo").read_text()), pipeline="O3")
    row = compiled(written(module, name), (STRICT,), VERIFY, pool)
    assert any("loop_fusion" in one for one in row.describe.values())
    assert not faults(row)


def test_spills_and_stack_frames_are_named(pool: ThreadPoolExecutor) -> None:
    """With function and instruction; a kernel without them is not, nor a mere frame in the corpus."""
    row = compiled(Program("p", FAULTY, DESCRIBE), (STRICT,), VERIFY, pool)
    first, second = sorted(faults(row))
    assert first.startswith("sm_90: crowded of reduce.1 spills ")
    assert second.startswith("sm_90: indexed of gather.2 spills 0 bytes, reads back 0, stack 32")
    assert faults(row, must=False) == [first]


SINES = """
__device__ double both(double x) { return sin(x) * cos(x); }
extern "C" __global__ void __launch_bounds__(128) turns(double* __restrict__ o) { o[threadIdx.x] = both(o[threadIdx.x]); }
extern "C" __global__ void plain(double* __restrict__ o) { o[threadIdx.x] = 2.0; }  // no sin(x)
"""


def test_the_frames_of_cudas_own_sines_are_no_fault(pool: ThreadPoolExecutor) -> None:
    """Called through a function, too; a larger one is, and one of a kernel that calls none."""
    row = compiled(Program("p", SINES, {"turns": "a.1", "plain": "b.2"}), (STRICT,), VERIFY, pool)
    made = row.made[STRICT]
    assert made.resources["turns"].stack == FRAMES["sin cos tan"]
    assert not faults(row)

    def faults_of(name: str, stack: int) -> list[str]:
        figures = {**made.resources, name: replace(made.resources[name], stack=stack)}
        told = SimpleNamespace(resources=figures)
        return faults(replace(row, made={STRICT: cast("Compiled", told)}))

    assert faults_of("turns", 48) == ["sm_90: turns of a.1 spills 0 bytes, reads back 0, stack 48"]
    assert faults_of("plain", 8) == ["sm_90: plain of b.2 spills 0 bytes, reads back 0, stack 8"]


def test_what_the_compiler_refuses_is_named(pool: ThreadPoolExecutor) -> None:
    """For each architecture, with function, instruction and line."""
    source = FAULTY.replace("+= 1.0f", "+= one")
    row = compiled(Program("p", source, DESCRIBE), BOTH, VERIFY, pool)
    assert not row.made
    assert len(row.errors) == 2
    assert 'refuses function fine of add.3: identifier "one" is undefined' in faults(row)[0]


def test_a_sample_must_have_kernels_a_corpus_program_need_not() -> None:
    """Some programs of the corpus call Python."""
    row = Row("p", refused="m.hlo:3:3: error: callback")
    assert faults(row) == ["no kernels: m.hlo:3:3: error: callback"]
    assert faults(row, must=False) == []
    assert faults(Row("p", refused="m.hlo:3:3: error: infeed: infeed fits no kernel")) == []


def test_the_table_says_what_is_wrong_and_fails(
    pool: ThreadPoolExecutor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program with kernels passes; one that calls Python is refused by name."""
    good, bad = tmp_path / "good.hlo", tmp_path / "bad.hlo"
    good.write_text(
        "HloModule g\nENTRY e {\n  a = f32[300] parameter(0)\n  ROOT r = f32[300] negate(a)\n}\n"
    )
    bad.write_text(
        'HloModule b\nENTRY e {\n  a = f32[3] parameter(0)\n  ROOT r = f32[3] custom-call(a), custom_call_target="mine"\n}\n'
    )
    assert main(["--arch", STRICT, "--workers", "1", str(good)]) == 0
    said = capsys.readouterr().out
    assert "3 programs, 0 refused; 3 kernels, compiled 3 times; 6 of 6 elements certainly" in said
    assert "; 0 wrong; " in said
    assert main(["--arch", STRICT, "--workers", "1", str(good), str(bad)]) == 1
    said = capsys.readouterr().out
    assert "6 programs, 3 refused; 3 kernels, compiled 3 times; 6 of 6 elements certainly" in said
    assert "; 3 wrong; " in said
    assert "bad.hlo:4:8: error: r" in said
    assert main(["--arch", "sm_20", str(good)]) == 5


def test_too_much_code_is_a_fault() -> None:
    """The bytes of a function beside the instructions that it computes."""
    row = Row("p", sizes={"hlo_a": (20_600, 1), "hlo_b": (20_601, 1)})
    assert faults(row) == ["hlo_b has 20601 bytes of code for 1 instructions"]


def test_the_code_of_each_function_is_measured() -> None:
    text = "HloModule m\nENTRY e { x = f32[8] parameter(0) ROOT y = f32[8] negate(x) }"
    program = written(hloopt.parse(text), "m")
    ((size, instructions),) = program.sizes.values()
    assert instructions == 1
    assert 50 < size < len(program.source)
