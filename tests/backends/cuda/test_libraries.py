"""Library calls on CuPy's stand-in, whose products and transforms are NumPy's, against the interpreter."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from hloopt.analysis.gpu_libraries import refusal
from hloopt.backends.cuda import CudaDevice
from hloopt.errors import DeviceError, UnsupportedError
from hloopt.runtime import library_numpy
from hloopt.runtime.device import Pointer
from tests.backends.cuda.fake_cupy import FakeCupy
from tests.backends.cuda.library_cases import (
    DOTS,
    FFTS,
    dot_text,
    drawn,
    fft_operand,
    fft_text,
    on_device,
    read,
    root,
)


@pytest.mark.parametrize("name", DOTS)
def test_products_are_those_of_the_interpreter(
    name: str, device: CudaDevice, rng: np.random.Generator
) -> None:
    """Every arrangement of dimensions and layouts; whole numbers make the comparison exact."""
    instruction = root(dot_text(DOTS[name]))
    arrays = [drawn(operand.array, rng) for operand in instruction.operands]
    got = on_device(device, "cublas", instruction, arrays)
    (wanted,) = library_numpy.call(instruction, arrays)
    assert got.dtype == wanted.dtype
    assert got.tobytes() == wanted.tobytes()


def test_dimensions_are_merged_into_few_calls(
    device: CudaDevice, fake: FakeCupy, rng: np.random.Generator
) -> None:
    """One call for what is one product, a batch where there is one, several calls only where they must be."""
    made = {}
    for name, case in DOTS.items():
        fake.calls.clear()
        instruction = root(dot_text(case))
        on_device(
            device,
            "cublas",
            instruction,
            [drawn(operand.array, rng) for operand in instruction.operands],
        )
        made[name] = [call for call in fake.calls if call[0].startswith("gemm")]
    assert [
        len(calls)
        for name, calls in made.items()
        if name not in ("nothing to sum", "no result", "batch inside (attention)")
    ] == [1] * 21
    assert made["nothing to sum"] == made["no result"] == []
    assert made["several dimensions each"][0][3:] == (42, 6, 20, 1, 68)
    assert made["two batch dimensions that are one"][0][3:] == (6, 4, 5, 6, 68)
    assert {call[3:] for call in made["batch inside (attention)"]} == {(6, 5, 4, 3, 68)}
    assert made["f64"][0][-1] == 70
    assert made["s8"][0][-1] == 72


@pytest.mark.parametrize(
    ("case", "attributes", "reason"),
    [
        (
            "f32[3,4]{1,0} a, f32[4,5]{1,0} b -> bf16[3,5]{1,0} contract 1 0",
            "",
            "no product of f32 and f32 to bf16",
        ),
        (
            "s32[3,4]{1,0} a, s32[4,5]{1,0} b -> s32[3,5]{1,0} contract 1 0",
            "",
            "no product of s32 and s32 to s32",
        ),
        (
            "s8[3,5]{1,0} a, s8[5,8]{1,0} b -> s32[3,8]{1,0} contract 1 0",
            "",
            "rows of 8-bit integers that do not begin at multiples of 4 bytes",
        ),
        (
            "f32[4,3,5]{2,1,0} a, f32[4,5,6]{2,1,0} b -> f32[3,6]{1,0} contract 0,2 0,1",
            "",
            "the 2 contracted dimensions do not lie one within the other",
        ),
        (
            "f32[3,2,4]{2,1,0} a, f32[4,5,2]{2,1,0} b -> f32[2,3,5]{0,2,1} contract 2 0 batch 1 2",
            "",
            "no contiguous dimension among those of its matrix",
        ),
        (
            "f32[3,4]{1,0} a, f32[4,5]{1,0} b -> f32[3,5]{1,0} contract 1 0",
            ", algorithm=dot_bf16_bf16_f32_x3",
            "the algorithm dot_bf16_bf16_f32_x3 for f32 and f32",
        ),
        (
            "f32[3,4]{1,0} a, f32[4,5]{1,0} b -> f32[3,5]{1,0} contract 1 0",
            ", algorithm=dot_bf16_bf16_f32",
            "the algorithm dot_bf16_bf16_f32 for f32 and f32",
        ),
        (
            "f32[3,70,4,2]{3,2,1,0} a, f32[4,5,70,2]{3,2,1,0} b -> f32[70,2,3,5]{3,2,1,0} contract 2 0 batch 1,3 2,3",
            "",
            "no contiguous dimension",
        ),
    ],
)
def test_what_the_library_cannot_do_is_said(
    case: str, attributes: str, reason: str, device: CudaDevice
) -> None:
    """The same words from the pure question and, with the instruction's name, from the call."""
    instruction = root(dot_text(case, attributes))
    said = refusal("cublas", instruction)
    assert said is not None
    assert reason in said
    with pytest.raises(UnsupportedError, match="r: cublas has no call for "):
        device.library("cublas", instruction, [], [])


def test_tf32_only_where_the_algorithm_asks(
    device: CudaDevice, fake: FakeCupy, rng: np.random.Generator
) -> None:
    """Default precision stays f32; dot_tf32_tf32_f32 is the fast one."""
    for attributes, compute in (
        ("", 68),
        (", operand_precision={default,default}", 68),
        (", algorithm=dot_f32_f32_f32", 68),
        (", algorithm=dot_tf32_tf32_f32", 77),
    ):
        instruction = root(dot_text(DOTS["plain"], attributes))
        on_device(
            device,
            "cublas",
            instruction,
            [drawn(operand.array, rng) for operand in instruction.operands],
        )
        assert fake.calls[-3][0] == "gemmEx"
        assert fake.calls[-3][-1] == compute


def gemm_call(settings: str, operands: str = "") -> str:
    """cuBLAS's own custom call as an optimised module has it."""
    return f"""HloModule m
ENTRY e {{
  a = f32[3,4]{{1,0}} parameter(0)
  b = f32[4,5]{{1,0}} parameter(1)
  c = f32[3,5]{{1,0}} parameter(2)
  ROOT r = (f32[3,5]{{1,0}}, s8[64]{{0}}) custom-call(a, b{operands}), custom_call_target="__cublas$gemm", backend_config={{"gemm_backend_config":{{{settings},"dot_dimension_numbers":{{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]}},"precision_config":{{"operand_precision":["DEFAULT","DEFAULT"],"algorithm":"ALG_UNSET"}}}}}}
}}
"""


@pytest.mark.parametrize(
    ("settings", "operands"),
    [
        ('"alpha_real":2,"alpha_imag":0,"beta":0,"epilogue":"DEFAULT"', ""),
        ('"alpha_real":3,"alpha_imag":0,"beta":2,"epilogue":"DEFAULT"', ", c"),
    ],
)
def test_calls_of_cublas_itself(
    settings: str, operands: str, device: CudaDevice, rng: np.random.Generator
) -> None:
    """alpha A B + beta C; the scratch space is left alone, and C is not written."""
    instruction = root(gemm_call(settings, operands))
    arrays = [drawn(operand.array, rng) for operand in instruction.operands]
    got = on_device(device, "cublas", instruction, arrays)
    wanted = library_numpy.call(instruction, arrays)[0]
    assert got.tobytes() == wanted.tobytes()


def test_epilogues_are_refused() -> None:
    """They are cublasLt's, which CuPy has not."""
    text = gemm_call('"alpha_real":1,"alpha_imag":0,"beta":0,"epilogue":"BIAS"')
    assert refusal("cublas", root(text)) == "the epilogue BIAS is one of cublasLt"


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("kind", FFTS)
def test_transforms_are_those_of_the_interpreter(
    kind: str, wide: bool, device: CudaDevice, rng: np.random.Generator
) -> None:
    """Scaled where HLO says so, batched, one call after the other; the operand stays what it was."""
    instruction = root(fft_text(kind, wide))
    array = fft_operand(instruction, rng)
    got = on_device(device, "cufft", instruction, [array], times=2)
    (wanted,) = library_numpy.call(instruction, [array])
    np.testing.assert_allclose(
        got, wanted, rtol=1e-12 if wide else 1e-5, atol=1e-12 if wide else 1e-5
    )


def test_transforms_of_other_lengths_are_refused() -> None:
    """HLO may cut or pad; cuFFT does not."""
    text = fft_text("RFFT", wide=False).replace("f32[2,3,9]", "f32[2,3,11]")
    said = refusal("cufft", root(text))
    assert said == "a transform of length [9] of dimensions [11]"


def test_calls_are_captured_like_launches(
    device: CudaDevice, fake: FakeCupy, rng: np.random.Generator
) -> None:
    """Prepared before, so that nothing is allocated or made meanwhile."""
    instruction = root(fft_text("IRFFT", wide=False))
    shape = instruction.operands[0].array
    source = Pointer(device.allocate(shape.byte_size), 0, shape.byte_size)
    target = Pointer(device.allocate(instruction.array.byte_size), 0, instruction.array.byte_size)
    device.prepare_library("cufft", instruction)
    device.begin_capture()
    device.library("cufft", instruction, [source], [target])
    graph = device.end_capture()
    array = fft_operand(instruction, rng)
    device.upload(source, array)
    device.replay(graph)
    device.replay(graph)
    got = read(device.download(target), instruction.array)
    np.testing.assert_allclose(
        got, library_numpy.call(instruction, [array])[0], rtol=1e-5, atol=1e-5
    )
    assert fake.names().count("plan") == 1


def test_a_missing_library_is_a_missing_device(device: CudaDevice, fake: FakeCupy) -> None:
    """Known before a program runs; the extra brings it."""
    device.require(["cublas", "cufft"])
    fake.cuda = Without(fake.cuda, "cublas")
    with pytest.raises(
        DeviceError, match=r"^cublas, which .* cannot be loaded: pip install .*\[gpu\]'"
    ):
        device.require(["cublas"])
    device.require(["cufft"])


class Without:
    """CuPy's modules where a library is not installed."""

    def __init__(self, whole: object, name: str) -> None:
        self.whole, self.name = whole, name

    def __getattr__(self, name: str) -> object:
        if name == self.name:
            raise ImportError(f"Failure finding {name}")
        return getattr(self.whole, name)


def test_the_host_evaluates_tuples_and_storage_views(rng: np.random.Generator) -> None:
    """Leaves in, leaves out: a tuple's in its place, types NumPy lacks as their bits."""
    text = """HloModule m
ENTRY e {
  t = (bf16[4], f32[2]) parameter(0)
  ROOT r = (bf16[4], f32[2]) tuple-select(t)
}
"""
    text = text.replace(
        "(bf16[4], f32[2]) tuple-select(t)", "bf16[4] get-tuple-element(t), index=0"
    )
    instruction = root(text)
    bits = np.array([1, 2, 3, 4], ml_dtypes.bfloat16)
    (got,) = library_numpy.call(instruction, [bits.view(np.uint16), np.zeros(2, np.float32)])
    assert got.tolist() == [1, 2, 3, 4]
    assert got.dtype == ml_dtypes.bfloat16
    with pytest.raises(ValueError, match="no array for t"):
        library_numpy.call(instruction, [bits])
    with pytest.raises(ValueError, match="fewer than 3"):
        library_numpy.call(instruction, [bits, np.zeros(2, np.float32), bits])
