"""Exported files do what they say: NVRTC compiles them, their checks pass, and fail where a kernel is wrong."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.backends.nvrtc import nvrtc_for
from hloopt.driver.exporting import ExportedFile, export
from hloopt.errors import DeviceError, UnsupportedError, UsageError
from hloopt.exports.kernel import identifier
from hloopt.exports.text import c_string, commented, python_string
from tests.exports.fake_cupy import emulated_cupy
from tests.exports.programs import PROGRAMS, exported

HERE = Path(__file__).resolve().parent

each_program = pytest.mark.parametrize("text", PROGRAMS.values(), ids=list(PROGRAMS))
SIMPLE = PROGRAMS["bf16 beside f32"]
SEVERAL = (
    "several results of several types",
    "the first of the largest, of which there are several",
)


def loaded(file: ExportedFile) -> dict[str, Any]:
    """The names of a Python file after its import, which is not a run of its check."""
    names: dict[str, Any] = {"__name__": "exported"}
    exec(compile(file.text, file.name, "exec"), names)
    return names


@each_program
def test_nvrtc_compiles_the_file_as_it_stands(text: str) -> None:
    """With the options of nvcc alone: nothing depends on those that hloopt gives NVRTC."""
    try:
        nvrtc = nvrtc_for("sm_90")
    except DeviceError as error:
        pytest.skip(str(error))
    file = exported(text, "cuda")
    outcome = nvrtc.compile(file.text, file.name, ("-arch=sm_90", "-std=c++17"))
    assert outcome.ok, outcome.log
    assert outcome.cubin


@each_program
def test_the_check_of_a_cupy_file_passes_on_the_emulator(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Copies, fills, scratch memory and launches give what the interpreter gives."""
    file = exported(text, "cupy")
    names = loaded(file)
    with emulated_cupy():
        assert names["main"]() == 0
    assert capsys.readouterr().out.endswith(f": ok, {file.compared} numbers compared\n")
    assert file.compared


@pytest.mark.every_value
@pytest.mark.parametrize(("form", "variable"), [("jax", "XLA"), ("torch", "TORCH")])
@pytest.mark.parametrize("text", [PROGRAMS[name] for name in SEVERAL], ids=SEVERAL)
def test_a_framework_computes_the_same_on_a_cpu(
    text: str, form: str, variable: str, tmp_path: Path
) -> None:
    """The file is imported without a GPU, and its own operations pass its check."""
    python = os.environ.get(f"HLOOPT_{variable}_PYTHON") or sys.executable
    file = exported(text, form)
    (tmp_path / file.name).write_text(file.text)
    there = [python, "-c", f"import {form}"]
    if subprocess.run(there, capture_output=True, check=False, timeout=60).returncode:
        pytest.skip(f"no {form}; HLOOPT_{variable}_PYTHON names a Python that has it")
    ran = subprocess.run(
        [python, file.name], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.endswith(f": ok, {file.compared} numbers compared\n")


def test_an_operation_that_a_framework_lacks_is_named() -> None:
    """With its place; CUDA does not need it."""
    text = """HloModule m
less {
  a = u8[] parameter(0)
  b = u8[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}
ENTRY main {
  x = u8[64] parameter(0)
  ROOT k = u8[64] sort(x), dimensions={0}, to_apply=less
}
"""
    module = hloopt.parse(text, "m.hlo")
    assert export(module, "k", "cuda", pipeline="").compared
    with pytest.raises(UnsupportedError, match="k: PyTorch has no operation for sort"):
        export(module, "k", "torch", pipeline="")


def test_the_check_of_a_wrong_kernel_fails(capsys: pytest.CaptureFixture[str]) -> None:
    """One function in the place of another is found, and named."""
    file = exported(SIMPLE, "cupy")
    names = loaded(file)
    assert "tanhf(" in names["SOURCE"]
    names["SOURCE"] = names["SOURCE"].replace("tanhf(", "sinf(")
    with emulated_cupy():
        assert names["main"]() == 1
    assert re.search(
        r"^loop_tanh_fusion: \d+ of 24 numbers compared differ$",
        capsys.readouterr().out,
        re.MULTILINE,
    )


def test_a_cupy_function_names_the_array_that_does_not_fit() -> None:
    """Of the wrong type, size or number."""
    names = loaded(exported(SIMPLE, "cupy"))
    function, inputs = names["loop_tanh_fusion"], names["check_inputs"]()
    with emulated_cupy():
        with pytest.raises(TypeError, match=r"^in_x is float32\[6, 40\], not float32\[40, 6\]$"):
            function(inputs[0].T, inputs[1])
        with pytest.raises(TypeError, match=r"^in_w is uint16\[40\], not float16\[40\]$"):
            function(inputs[0], inputs[1].view(np.float16))
        with pytest.raises(TypeError, match=r"^loop_tanh_fusion takes 2 arrays, not 1$"):
            function(inputs[0])


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("bf16 beside f32", False),
        ("several results of several types", False),
        ("bf16 beside f32", True),
    ],
)
def test_the_main_of_a_cuda_file(tmp_path: Path, name: str, *, wrong: bool) -> None:
    """C makes the inputs that Python made, bit by bit: run here with a stand-in of CUDA's runtime."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no g++")
    file = exported(PROGRAMS[name], "cuda")
    text = file.text
    if wrong:
        text = text.replace("tanhf(", "sinf(")
    (tmp_path / "a.cpp").write_text(text)
    pointers = text.count("void* in_") + text.count("void* out")
    build = [
        compiler,
        "-std=c++17",
        "-O1",
        f"-DPOINTERS={pointers}",
        f"-I{HERE}",
        "-ffp-contract=off",
    ]
    subprocess.run([*build, "a.cpp", "-o", "a"], cwd=tmp_path, check=True, timeout=120)
    ran = subprocess.run([tmp_path / "a"], capture_output=True, text=True, timeout=60, check=False)
    if wrong:
        assert (ran.returncode, "numbers compared differ" in ran.stdout) == (1, True), ran
    else:
        assert (ran.returncode, ran.stderr) == (0, "")
        assert f": ok, {file.compared} numbers compared; " in ran.stdout


def cuda_of(file: ExportedFile) -> str:
    """The CUDA that a file of JAX compiles."""
    found = re.search(r"^SOURCE = r?'''(.*?)'''$", file.text, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def headers_of_xla() -> str:
    """The folder of XLA's headers beside the JAX of ``HLOOPT_XLA_PYTHON``."""
    asked = [os.environ["HLOOPT_XLA_PYTHON"], "-c", "import jax; print(jax.ffi.include_dir())"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


# Runs a file's handler by XLA, which has no stream on a CPU to hand on.
HANDLED = """
import ctypes, importlib.util, sys
import jax
found = importlib.util.spec_from_file_location("exported", sys.argv[1])
exported = importlib.util.module_from_spec(found)
found.loader.exec_module(exported)
handler = getattr(ctypes.cdll.LoadLibrary(sys.argv[2]), sys.argv[3] + "_ffi")
jax.ffi.register_ffi_target(sys.argv[3], jax.ffi.pycapsule(handler), platform="cpu")
setattr(exported, sys.argv[3], exported.on_gpu)
sys.exit(exported.main())
"""


def test_xla_calls_the_handler_of_a_jax_file(tmp_path: Path) -> None:
    """Compiled against XLA's own headers, as it stands; then run by XLA with a stand-in of CUDA's runtime."""
    python, compiler = os.environ.get("HLOOPT_XLA_PYTHON") or None, shutil.which("g++")
    if python is None or compiler is None:
        pytest.skip("needs g++, and HLOOPT_XLA_PYTHON for a Python with JAX")
    file = exported(PROGRAMS["several results of several types"], "jax")
    (tmp_path / file.name).write_text(file.text)
    source = cuda_of(file)
    build = [
        compiler,
        "-std=c++17",
        "-DNO_MAIN",
        "-DWITH_FFI",
        f"-I{HERE}",
        f"-I{headers_of_xla()}",
    ]
    build += ["-w", f"-DPOINTERS={source.count('void* in_') + source.count('void* out')}"]
    (tmp_path / "kernel.cpp").write_text(source)
    subprocess.run([*build, "-fsyntax-only", "kernel.cpp"], cwd=tmp_path, check=True, timeout=120)
    stream = ".Ctx<xla::ffi::PlatformStream<cudaStream_t>>()"
    assert source.count(stream) == source.count("run(cudaStream_t stream, ") == 1
    plain = source.replace(stream, "").replace("run(cudaStream_t stream, ", "run(")
    plain = plain.replace("workspace->untyped_data(), stream)", "nullptr, nullptr)")
    (tmp_path / "kernel.cpp").write_text(plain)
    command = [*build, "-ffp-contract=off", "-shared", "-fPIC", "kernel.cpp", "-o", "kernel.so"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    words = [python, "-c", HANDLED, file.name, "./kernel.so", file.name.removesuffix(".py")]
    cpu = {**os.environ, "JAX_PLATFORMS": "cpu"}
    ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env=cpu, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert f": ok, {file.compared} numbers compared" in ran.stdout


@pytest.mark.parametrize("form", ["cuda", "jax"])
def test_nvcc_builds_the_file(tmp_path: Path, form: str) -> None:
    """The whole of it, with CUDA's own headers and, for JAX, those of XLA."""
    nvcc, python = shutil.which("nvcc"), os.environ.get("HLOOPT_XLA_PYTHON") or None
    if nvcc is None or (form == "jax" and python is None):
        pytest.skip("needs nvcc on the path, and HLOOPT_XLA_PYTHON for a Python with JAX")
    file = exported(PROGRAMS["several results of several types"], form)
    source, options = file.text, []
    if form == "jax":
        source, options = cuda_of(file), ["-DNO_MAIN", "-DWITH_FFI", f"-I{headers_of_xla()}"]
    (tmp_path / "kernel.cu").write_text(source)
    command = [nvcc, "-std=c++17", "-arch=sm_90", *options, "-c", "kernel.cu", "-o", "a.o"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=300)


def test_text_of_a_module_stays_text() -> None:
    """Whatever a name holds: a comment ends with its line, and a string of Python is what was put in."""
    for text in ("a\nb\n", "'''\n", "\\\n", "a'''+exit()+'''\n", "\x00\n", "no end", "é \\ ''\n"):
        assert eval(python_string(text)) in (text, f"\n{text}"), text
    assert (
        commented(["a\nimport os", "b\\", "??/", "c\u2028d"], "#")
        == "# a import os\n# b\n# ? ?/\n# c d"
    )
    assert c_string('1.5"\\\n') == '"1.5???"'
    for name in ("class", "3d", "", "é", "print", "torch", "a.b-c", "x" * 500):
        made = identifier(name)
        assert made.isidentifier(), made
        assert made not in ("class", "print", "torch")
        assert len(made) < 80


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "nothing",
            "no kernel is called 'nothing' (valid: loop_tanh_fusion); hloopt kernels lists them",
        ),
        (
            "m",
            "no kernel is called 'm'; it is part of another kernel, or not left; hloopt kernels lists them",
        ),
    ],
)
def test_a_kernel_that_is_not_there(name: str, message: str) -> None:
    """The error says what is there."""
    with pytest.raises(UsageError) as caught:
        export(hloopt.parse(SIMPLE), name)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("ROOT k = s4[8] negate(x)", "elements of s4 are narrower than a byte"),
        ('ROOT k = s4[8] custom-call(x), custom_call_target="f"', ""),
    ],
)
def test_a_kernel_that_no_file_can_have(line: str, problem: str) -> None:
    """It is named with its place."""
    text = f"HloModule m\nENTRY main {{\n  x = s4[8] parameter(0)\n  {line}\n}}\n"
    with pytest.raises(UnsupportedError) as caught:
        export(hloopt.parse(text, "m.hlo"), "k", pipeline="")
    assert problem in str(caught.value)
    assert caught.value.line == 4, str(caught.value)


def test_a_library_call_is_no_kernel_of_a_file() -> None:
    """cuBLAS computes a large product: its name is in the error."""
    text = """HloModule m
ENTRY main {
  x = f32[2048,2048] parameter(0)
  ROOT k = f32[2048,2048] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    with pytest.raises(UnsupportedError, match=r"k: cublas computes it, which is a library"):
        export(hloopt.parse(text, "m.hlo"), "k", pipeline="")


def test_the_command_writes_what_the_function_returns(tmp_path: Path) -> None:
    """To a file, into a folder, or to stdout."""
    source = tmp_path / "m.hlo"
    source.write_text(SIMPLE)
    want = export(source, "loop_tanh_fusion", "cupy").text
    command = [
        sys.executable,
        "-m",
        "hloopt",
        "export",
        str(source),
        "loop_tanh_fusion",
        "--as",
        "cupy",
    ]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout == want
    subprocess.run([*command, "-o", str(tmp_path)], check=True, timeout=60)
    assert (tmp_path / "loop_tanh_fusion.py").read_text() == want
