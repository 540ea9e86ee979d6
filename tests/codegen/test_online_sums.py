"""Softmax and its like over rows that no block holds: maximum and sum in one pass."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hloopt
from hloopt.analysis.online_sums import merged_with_next, online_sum
from tests.codegen.harness import check_kernel
from tests.helpers.kernel_code import KernelCode

_TILE = {"rows": 1, "threads": 96, "keep": 0, "vector": 1}

LOG_SUM = """HloModule m
max {{ a = {k}[] parameter(0) b = {k}[] parameter(1) ROOT c = {k}[] maximum(a, b) }}
sum {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }}
body {{
  x = {k}[{r},{n}] parameter(0)
  low = {k}[] constant(-inf)
  zero = f32[] constant(0)
  wide = f32[{r},{n}] convert(x)
  most = {k}[{r}] reduce(x, low), dimensions={{1}}, to_apply=max
  m = f32[{r}] convert(most)
  {shift}
  b = f32[{r},{n}] broadcast(g), dimensions={{0}}
  d = f32[{r},{n}] subtract(wide, b)
  e = f32[{r},{n}] exponential(d)
  s = f32[{r}] reduce(e, zero), dimensions={{1}}, to_apply=sum
  l = f32[{r}] log(s)
  y = f32[{r}] add(l, g)
  {last}
}}
ENTRY e {{
  x = {k}[{r},{n}] parameter(0)
  ROOT f = {result} fusion(x), kind=kCustom, calls=body
}}
"""
_PLAIN = "g = f32[{r}] copy(m)"
_GUARDED = """fin = pred[{r}] is-finite(m)
  z = f32[{r}] broadcast(zero), dimensions={{}}
  g = f32[{r}] select(fin, m, z)"""
_ROWS = "ROOT t = (f32[{r}], f32[{r}]) tuple(y, m)", "(f32[{r}], f32[{r}])"
_FULL = (
    """yb = f32[{r},{n}] broadcast(y), dimensions={{0}}
  ROOT t = f32[{r},{n}] subtract(wide, yb)""",
    "f32[{r},{n}]",
)


def _text(rows: int, minor: int, kind: str, shift: str, last: tuple[str, str]) -> str:
    sizes = {"r": rows, "n": minor}
    parts = {"shift": shift.format(**sizes), "last": last[0].format(**sizes)}
    return LOG_SUM.format(k=kind, result=last[1].format(**sizes), **parts, **sizes)


@pytest.mark.parametrize(
    ("rows", "minor", "kind", "shift"),
    [(1, 17, "f32", _GUARDED), (3, 129, "bf16", _PLAIN), (2, 1000, "f32", _PLAIN)],
)
def test_the_sum_goes_along_with_the_maximum(rows: int, minor: int, kind: str, shift: str) -> None:
    """One pass for both, whatever becomes of the maximum, and one more for results of whole rows."""
    for last, loops in ((_ROWS, 1), (_FULL, 2)):
        text = _text(rows, minor, kind, shift, last)
        kernels = check_kernel(text, "whole-row", _TILE, everywhere=minor == 129)
        assert KernelCode.of(kernels).reads("x") == loops


@pytest.mark.parametrize("shift", [_PLAIN, _GUARDED])
def test_rows_that_are_infinite_or_have_nan(shift: str) -> None:
    """-inf in front, in all places a thread has, and everywhere; inf and NaN; very small and large numbers."""
    x = np.random.default_rng(1).standard_normal((12, 400)).astype(np.float32)
    x[0, :200] = -np.inf
    x[1] = -np.inf
    x[2, 7] = np.inf
    x[3, 300] = np.nan
    x[4] *= 1e4
    x[5] = -3e38
    x[6, ::96] = -np.inf
    x[7] = np.linspace(-1e3, 1e3, 400)
    x[8] = np.linspace(1e3, -1e3, 400)
    x[9] = np.inf
    x[10, 1:] = -np.inf
    x[10, 0] = -1e30
    x[11, 5], x[11, 200] = np.nan, np.inf
    for last in (_ROWS, _FULL):
        check_kernel(_text(12, 400, "f32", shift, last), "whole-row", _TILE, inputs=[x])


def test_half_of_the_numbers_in_bf16() -> None:
    """The maximum of narrow rows is narrow; the shift is not."""
    x = np.random.default_rng(1).standard_normal((3, 500)).astype(ml_dtypes.bfloat16)
    x[1, :400] = -np.inf
    check_kernel(_text(3, 500, "bf16", _PLAIN, _ROWS), "whole-row", _TILE, inputs=[x])


def _heroes(text: str) -> list[list[hloopt.ir.Instruction]]:
    body = hloopt.parse(text).computations["body"]
    return [[one] for one in body if one.opcode == "reduce"]


def test_what_is_no_such_sum() -> None:
    """Of another array, of a smaller type, of a minimum, of what two maxima make."""
    text = _text(4, 64, "f32", _PLAIN, _ROWS)
    assert merged_with_next(_heroes(text)) == [True, False]
    for old, new in [
        ("subtract(wide, b)", "subtract(b, wide)"),
        ("reduce(x, low)", "reduce(twice, low)"),
        ("maximum(a, b)", "minimum(a, b)"),
        ("exponential(d)", "tanh(d)"),
    ]:
        changed = text.replace(old, new).replace(
            "wide = ", "twice = f32[4,64] add(x, x)\n  wide = "
        )
        (_,), (total,) = _heroes(changed)
        assert online_sum(total) is None, new
