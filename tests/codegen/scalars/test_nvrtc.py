"""NVRTC compiles the expressions and the library for devices with and without the newer instructions."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hloopt.backends.nvrtc import compile_cuda, compile_ptx, nvrtc_for
from hloopt.codegen.device import Uses, names
from hloopt.errors import DeviceError
from tests.codegen.scalars.device_code import Case, statement

# One type of each kind that has code of its own; the others differ in numbers.
_KINDS = {
    "pred",
    "s4",
    "u8",
    "s32",
    "u64",
    "f16",
    "bf16",
    "f8e4m3fn",
    "f8e8m0fnu",
    "f32",
    "f64",
    "c64",
}
_BESIDE_F32 = {"f16", "bf16", "f8e4m3fn", "f8e5m2", "f4e2m1fn", "s8", "u32", "s64", "f64", "f32"}


@pytest.fixture(autouse=True)
def _nvrtc() -> None:
    try:
        nvrtc_for("sm_90")
    except DeviceError as error:
        pytest.skip(f"NVRTC is not installed: {error}")


def _source(cases: Sequence[Case]) -> str:
    uses = Uses()
    kernels = "".join(
        f'extern "C" __global__ void case{i}(void* const* arrays, int n) {{\n'
        f"{statement(case, uses)}}}\n"
        for i, case in enumerate(cases)
    )
    return uses.source() + kernels


def _is_typical(case: Case) -> bool:
    kinds = {case.kinds[0].name, case.result.name}
    if case.opcode in ("convert", "bitcast-convert"):
        return "f32" in kinds and kinds <= _BESIDE_F32
    if case.opcode == "stochastic-convert" or "direction" in case.attributes:
        return kinds <= {"f32", "bf16", "f16", "s8", "pred"}
    if case.opcode == "reduce-precision" and case.attributes["exponent_bits"] != 5:
        return False
    return case.kinds[0].name in _KINDS


def test_before_the_newer_instructions(executable_cases: list[Case]) -> None:
    """For sm_75, which has neither bf16 nor f8 nor a maximum of NaN, there is C++."""
    ptx = compile_ptx(_source([case for case in executable_cases if _is_typical(case)]), "sm_75")
    assert "cvt.rn.f16.f32" in ptx
    assert "cvt.rn.bf16.f32" not in ptx
    assert ".NaN." not in ptx
    assert "e4m3x2" not in ptx


def test_narrow_floats_round_in_one_instruction_where_there_is_one(
    executable_cases: list[Case],
) -> None:
    """For sm_90 narrow floats, maxima and saturating conversions are instructions; nothing spills."""
    cases = [
        case
        for case in executable_cases
        if case.opcode in ("add", "maximum", "minimum", "convert")
        and _is_typical(case)
        and case.kinds[0].is_float
    ]
    source = _source(cases)
    ptx = compile_ptx(source, "sm_90")
    for instruction in (
        "cvt.rn.f16.f32",
        "cvt.rn.bf16.f32",
        "add.rn.f16",
        "add.rn.bf16",
        "max.NaN.bf16",
        "max.NaN.f32",
        "min.NaN.f32",
        "cvt.rn.satfinite.e4m3x2.f32",
        "cvt.rn.satfinite.e5m2x2.f32",
        "cvt.rn.f16x2.e4m3x2",
        "cvt.rzi.s32.f32",
        "cvt.rzi.u32.f32",
    ):
        assert instruction in ptx, instruction
    compiled = compile_cuda(source, "sm_90")
    assert len(compiled.resources) >= len(cases)
    assert compiled.warnings == ()
    for name, resources in compiled.resources.items():
        assert (resources.spill_stores, resources.stack) == (0, 0), name


def test_the_whole_library_is_one_text() -> None:
    """Everything of the library compiles together, vectors and shuffles of 1 to 16 bytes in use."""
    uses = Uses()
    for name in names():
        uses.add(name)
    kernel = """
extern "C" __global__ void exchange(const f16* __restrict__ p, f16* __restrict__ q, c128* __restrict__ z,
                                    signed char* __restrict__ s) {
  Vector<f16, 8> v = load_vector<8>(p + 8 * threadIdx.x);
  v.lane[0] = shuffle_xor(v.lane[1], 16);
  store_vector(q + 8 * threadIdx.x, v);
  z[threadIdx.x] = shuffle_index(shuffle_up(z[threadIdx.x], 1), 0);
  s[threadIdx.x] = shuffle_down(s[threadIdx.x], 4);
}
"""
    ptx = compile_ptx(uses.source() + kernel, "sm_90")
    assert "ld.global.nc.v4.u32" in ptx
    assert "st.global.v4.u32" in ptx
    assert ptx.count("shfl.sync") == 1 + 4 + 4 + 1
