"""Native running reductions: along every dimension, both ways, of every size around pieces and blocks."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from tests.backends.native.natively import check_native_kernels
from tests.helpers.rarely import one_in

pytestmark = pytest.mark.usefixtures("quickly_compiled")


def _text(dtype: str, dims: tuple[int, ...], axis: int, op: str, init: str, reverse: bool) -> str:
    size = dims[axis]
    ones = ["1"] * len(dims)
    ones[axis] = str(size)
    pads = ["0_0"] * len(dims)
    pads[axis] = f"0_{size - 1}" if reverse else f"{size - 1}_0"
    shape = f"{dtype}[{','.join(map(str, dims))}]"
    return f"""HloModule running

fold {{
  a = {dtype}[] parameter(0)
  b = {dtype}[] parameter(1)
  ROOT c = {dtype}[] {op}(a, b)
}}

ENTRY main {{
  x = {shape} parameter(0)
  z = {dtype}[] constant({init})
  ROOT r = {shape} reduce-window(x, z), window={{size={"x".join(ones)} pad={"x".join(pads)}}}, to_apply=fold
}}
"""


_CASES = [
    ("f32", (3, 9), 1, "add", "2"),
    ("f32", (5, 63), 1, "add", "0"),
    ("f32", (2, 256), 1, "add", "1"),
    ("f32", (2, 257), 1, "add", "1"),
    ("f32", (20000,), 0, "add", "1"),
    ("f32", (70, 1000), 0, "add", "1"),
    ("f32", (3, 40, 5), 1, "add", "1"),
    ("f32", (2, 20, 300), 1, "maximum", "-1"),
    ("f32", (2, 20, 257), 1, "add", "0"),
    ("f64", (4, 100), 1, "multiply", "1"),
    ("bf16", (40, 130), 1, "add", "0.5"),
    ("bf16", (130, 40), 0, "add", "0.5"),
    ("bf16", (4, 99), 1, "maximum", "-1"),
    ("f16", (4, 99), 1, "minimum", "1"),
    ("s32", (300, 20), 1, "maximum", "-5"),
    ("u8", (7, 300), 1, "add", "3"),
    ("s64", (70, 30), 0, "xor", "3"),
    ("pred", (30, 40), 1, "or", "false"),
    ("pred", (30, 40), 0, "and", "true"),
]


@pytest.mark.parametrize("reverse", one_in(2, [True, False]))
def test_lines_run_as_the_interpreter_has_them(reverse: bool) -> None:
    """Of all sizes and types, from the first element on and from the last."""
    for dtype, dims, axis, op, init in _CASES:
        check_native_kernels(_text(dtype, dims, axis, op, init, reverse), "native-running")


def test_what_is_around_is_computed_in_the_same_loops() -> None:
    """What precedes and follows a running sum, along rows and along columns; a scalar of each line's too."""
    for axis in (0, 1):
        text = _text("f32", (300, 200), axis, "add", "0", reverse=False)
        window = next(line for line in text.splitlines() if "ROOT r" in line).split("window=")[1]
        text = (
            text.split("ENTRY")[0]
            + f"""
around {{
  x = f32[300,200] parameter(0)
  y = bf16[300,200] parameter(1)
  w = f32[200] parameter(2)
  z = f32[] constant(1)
  e = f32[300,200] exponential(x)
  r = f32[300,200] reduce-window(e, z), window={window}
  v = f32[300,200] convert(y)
  q = f32[300,200] divide(v, r)
  b = f32[300,200] broadcast(w), dimensions={{1}}
  s = f32[300,200] multiply(q, b)
  n = bf16[300,200] convert(s)
  ROOT t = (bf16[300,200], f32[300,200]) tuple(n, r)
}}

ENTRY main {{
  x = f32[300,200] parameter(0)
  y = bf16[300,200] parameter(1)
  w = f32[200] parameter(2)
  ROOT f = (bf16[300,200], f32[300,200]) fusion(x, y, w), kind=kLoop, calls=around
}}
"""
        )
        check_native_kernels(text, "native-running")


def test_special_values_and_zeros_keep_their_signs() -> None:
    """NaN and infinities go on along the line; a sum of -0 is -0."""
    x = np.zeros((4, 300), np.float32)
    x[0] = -0.0
    x[1, 40], x[2, 290], x[3, 7], x[3, 288] = np.nan, np.inf, np.inf, -np.inf
    for reverse in (False, True):
        for axis, inputs in ((1, x), (0, np.ascontiguousarray(x.T))):
            text = _text("f32", inputs.shape, axis, "add", "-0", reverse)
            check_native_kernels(text, "native-running", inputs=[inputs], exact=True)


def test_short_lines_and_other_windows_have_other_kernels() -> None:
    """A line of a few elements is folded from the first one on; a window that slides does not run."""
    check_native_kernels(_text("f32", (50, 8), 1, "add", "0", reverse=False), "native-loop")
    text = _text("f32", (50, 9), 1, "add", "0", reverse=False)
    check_native_kernels(text.replace("pad=0_0x8_0", "pad=0_0x4_4"), "native-loop")
    empty = hloopt.parse(_text("f32", (0, 9), 1, "add", "0", reverse=False))
    hloopt.verify(empty)


def test_a_product_in_the_same_fusion_is_cut_out() -> None:
    """No product is computed again for each element, nor the running sum by NumPy."""
    text = _text("f32", (64, 64), 1, "add", "0", reverse=False)
    window = next(line for line in text.splitlines() if "ROOT r" in line).split("window=")[1]
    text = (
        text.split("ENTRY")[0]
        + f"""
both {{
  x = f32[64,64] parameter(0)
  y = f32[64,64] parameter(1)
  z = f32[] constant(0)
  p = f32[64,64] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT r = f32[64,64] reduce-window(p, z), window={window}
}}

ENTRY main {{
  x = f32[64,64] parameter(0)
  y = f32[64,64] parameter(1)
  ROOT f = f32[64,64] fusion(x, y), kind=kLoop, calls=both
}}
"""
    )
    check_native_kernels(text, "native-gemm", "native-running")
