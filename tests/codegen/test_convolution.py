"""Convolutions by tiles of windows, over features alone, and output by output; calls of cuDNN and cuBLAS."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.analysis.region import region_of
from hloopt.errors import UsageError
from hloopt.kernels.kernel import Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.registry import find_kernel
from hloopt.targets import find_target
from tests.codegen.harness import check_kernel, planned
from tests.codegen.products import module_of, random_convolution
from tests.helpers.kernel_code import KernelCode

TYPES = [
    ("s8", "s8", "s8"),
    ("s32", "s32", "s32"),
    ("u8", "s8", "s32"),
    ("f32", "f32", "bf16"),
    ("bf16", "bf16", "bf16"),
    ("f64", "f64", "f64"),
    ("c64", "c64", "c64"),
    ("pred", "pred", "pred"),
]


@pytest.mark.parametrize("kernel", ["convolution-implicit-matmul", "convolution-direct", "loop"])
def test_any_attributes(kernel: str) -> None:
    """Labels in any order, strides, dilations, reversals, paddings of both signs, groups."""
    convolutions = [random_convolution(number) for number in range(16)]
    check_kernel(module_of(convolutions), kernel, twice=False, everywhere=False)


@pytest.mark.parametrize("kernel", ["convolution-implicit-matmul", "convolution-direct", "loop"])
def test_every_element_type(kernel: str) -> None:
    """Sums of narrow floats are rounded once, integers wrap."""
    convolutions = [random_convolution(number + 3, kinds) for number, kinds in enumerate(TYPES)]
    check_kernel(module_of(convolutions), kernel, twice=False, everywhere=kernel != "loop")


POINTWISE = [
    (
        "f32[2,5,7,24] convolution(%0, %1), window={size=1x1}, dim_labels=b01f_01io->b01f",
        ["f32[2,5,7,16]", "f32[1,1,16,24]"],
    ),
    (
        "f32[2,24,3,4] convolution(%0, %1), window={size=1x1 stride=2x2}, dim_labels=bf01_oi01->bf01",
        ["f32[2,16,5,7]", "f32[24,16,1,1]"],
    ),
]


def test_pointwise() -> None:
    """A window of one element is a product over features, whatever the stride."""
    check_kernel(module_of(POINTWISE), "convolution-1x1")


def test_gradient_of_weights_is_cut() -> None:
    """A long contracted axis is cut into parts that are added up in their order."""
    text = (
        "f32[3,3,4,8] convolution(%0, %1), window={size=12x12 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf",
        ["f32[6,12,12,4]", "f32[6,12,12,8]"],
    )
    program = check_kernel(module_of([text]), "convolution-implicit-matmul", {"split": 5})
    names = [one.name for one in KernelCode.of(program).functions]
    assert any(name.endswith("_partial") for name in names)


FUSED = """HloModule fused

relu {
  x = bf16[2,9,9,8] parameter(0)
  w = f32[3,3,8,16] parameter(1)
  b = f32[16] parameter(2)
  wide = f32[2,9,9,8] convert(x)
  product = f32[2,9,9,16] convolution(wide, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
  bias = f32[2,9,9,16] broadcast(b), dimensions={3}
  sum = f32[2,9,9,16] add(product, bias)
  zero = f32[] constant(0)
  zeros = f32[2,9,9,16] broadcast(zero), dimensions={}
  active = f32[2,9,9,16] maximum(sum, zeros)
  ROOT narrow = bf16[2,9,9,16] convert(active)
}

ENTRY main {
  x = bf16[2,9,9,8] parameter(0)
  w = f32[3,3,8,16] parameter(1)
  b = f32[16] parameter(2)
  ROOT f = bf16[2,9,9,16] fusion(x, w, b), kind=kLoop, calls=relu
}
"""


@pytest.mark.parametrize("kernel", ["convolution-implicit-matmul", "convolution-direct"])
def test_prologue_and_epilogue(kernel: str) -> None:
    """Ops around a convolution are computed with it."""
    assert not KernelCode.of(check_kernel(FUSED, kernel)).named("product_sum")


CONFIG = 'backend_config={"cudnn_conv_backend_config":{%s}}'
WINDOW = (
    "window={size=3x3 stride=2x2 pad=1_1x1_1%s}, dim_labels=b01f_01io->b01f, feature_group_count=2"
)
ELU = '"activation_mode":"kElu","conv_result_scale":0.5,"side_input_scale":2'

CUDNN = f"""HloModule calls

ENTRY main {{
  x = f32[2,7,7,6] parameter(0)
  w = f32[3,3,3,8] parameter(1)
  g = f32[2,4,4,8] parameter(2)
  bias = f32[8] parameter(3)
  side = f32[2,4,4,8] parameter(4)
  forward = (f32[2,4,4,8], s8[64]) custom-call(x, w, bias, side), {WINDOW % ""}, custom_call_target="__cudnn$convBiasActivationForward", {CONFIG % ELU}
  back = (f32[2,7,7,6], s8[64]) custom-call(g, w), {WINDOW % ""}, custom_call_target="__cudnn$convBackwardInput", {CONFIG % ""}
  weights = (f32[3,3,3,8], s8[64]) custom-call(x, g), {WINDOW % " rhs_reversal=1x1"}, custom_call_target="__cudnn$convBackwardFilter", {CONFIG % ""}
  r0 = f32[2,4,4,8] get-tuple-element(forward), index=0
  r1 = f32[2,7,7,6] get-tuple-element(back), index=0
  r2 = f32[3,3,3,8] get-tuple-element(weights), index=0
  ROOT results = (f32[2,4,4,8], f32[2,7,7,6], f32[3,3,3,8]) tuple(r0, r1, r2)
}}
"""

CUBLAS = """HloModule calls

ENTRY main {
  a = f32[3,20,12] parameter(0)
  b = f32[3,12,9] parameter(1)
  c = f32[3,20,9] parameter(2)
  v = f32[9] parameter(3)
  gemm = (f32[3,20,9], f32[3,20,9], s8[64]) custom-call(a, b, c, v), custom_call_target="__cublas$lt$matmul", backend_config={"gemm_backend_config":{"alpha_real":0.5,"alpha_imag":0,"beta":2,"epilogue":"BIAS_GELU_AUX","dot_dimension_numbers":{"lhs_contracting_dimensions":["2"],"rhs_contracting_dimensions":["1"],"lhs_batch_dimensions":["0"],"rhs_batch_dimensions":["0"]}}}
  p = f8e4m3fn[16,32] parameter(4)
  q = f8e4m3fn[16,32] parameter(5)
  s = f32[] parameter(6)
  small = (bf16[16,16], s8[64]) custom-call(p, q, s, s), custom_call_target="__cublas$lt$matmul$f8", backend_config={"gemm_backend_config":{"alpha_real":1,"alpha_imag":0,"beta":0,"epilogue":"RELU","dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["1"],"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]}}}
  r0 = f32[3,20,9] get-tuple-element(gemm), index=0
  r1 = f32[3,20,9] get-tuple-element(gemm), index=1
  r2 = bf16[16,16] get-tuple-element(small), index=0
  ROOT results = (f32[3,20,9], f32[3,20,9], bf16[16,16]) tuple(r0, r1, r2)
}
"""


@pytest.mark.parametrize(
    ("text", "kernel"),
    [
        (CUDNN, "convolution-implicit-matmul"),
        (CUDNN, "convolution-direct"),
        (CUBLAS, "dot-tiled"),
        (CUBLAS, "dot-split-k"),
    ],
)
def test_library_calls(text: str, kernel: str) -> None:
    """Calls of cuDNN and cuBLAS are computed by the same kernels, what they do with the sums included."""
    whole = kernel.endswith(("matmul", "tiled"))
    check_kernel(text, kernel, twice=whole, everywhere=whole)


def test_refusals() -> None:
    """A call that asks for the largest magnitude, and a 1x1 kernel with padding, are refused with reasons."""
    most = CUBLAS.replace("(bf16[16,16], s8", "(bf16[16,16], f32[], s8")
    assert "largest magnitude" in _reason(most, "small", "dot-tiled")
    padded = "window={size=1x1 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"
    text = module_of([(f"f32[2,7,9,24] convolution(%0, %1), {padded}", POINTWISE[0][1])])
    reason = _reason(text, "product0", "convolution-1x1")
    assert reason == "product0 has padding or a dilated base"


def _reason(text: str, name: str, kernel: str) -> str:
    module = hloopt.parse(text)
    instruction = next(found for found in module.entry if found.name == name)
    site = Site(region_of(instruction), find_target("h200"), Limits())
    verdict = find_kernel(kernel).fits(site)
    assert not verdict
    return verdict.reason


def test_tiles_that_cannot_be() -> None:
    """A tile that cannot be is a usage error that says what would do."""
    with pytest.raises(UsageError, match=r"outputs=5 does not divide 24; 4 would do"):
        planned(
            module_of(POINTWISE[:1]),
            "convolution-direct",
            {"threads": 128, "outputs": 5, "vector": 1},
        )
