"""XLA compiles what expanders write, and computes from it what the interpreter makes of the op."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hloopt
from hloopt.runtime.inputs import generate
from hloopt.types import ArrayShape, leaves
from tests.helpers.support import as_type
from tests.oracle.oracle import ask, available

pytestmark = [
    pytest.mark.xla,
    pytest.mark.skipif(not available(), reason="no jaxlib: install the extra xla"),
    pytest.mark.timeout(600),
]

COMPARE = """
compare {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GE
}

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
"""

CASES = {
    "rng-expander": ("", 0.0, """
  s = u64[3]{0} parameter(0)
  t = u64[2]{0} slice(s), slice={[0:2]}
  a = (u64[3]{0}, u32[5,3]{1,0}) rng-bit-generator(s), algorithm=rng_philox
  b = (u64[2]{0}, u16[3,3]{1,0}) rng-bit-generator(t), algorithm=rng_three_fry
  c = (u64[2]{0}, u64[3]{0}) rng-bit-generator(t), algorithm=rng_default
  a0 = u64[3]{0} get-tuple-element(a), index=0
  a1 = u32[5,3]{1,0} get-tuple-element(a), index=1
  b0 = u64[2]{0} get-tuple-element(b), index=0
  b1 = u16[3,3]{1,0} get-tuple-element(b), index=1
  c0 = u64[2]{0} get-tuple-element(c), index=0
  c1 = u64[3]{0} get-tuple-element(c), index=1
  ROOT r = (u64[3]{0}, u32[5,3]{1,0}, u64[2]{0}, u16[3,3]{1,0}, u64[2]{0}, u64[3]{0}) tuple(a0, a1, b0, b1, c0, c1)
"""),
    "logistic-expander": ("", 1e-6, """
  x = f32[64]{0} parameter(0)
  ROOT r = f32[64]{0} logistic(x)
"""),
    "comparison-expander": ("", 0.0, """
  x = f16[64]{0} parameter(0)
  y = f16[64]{0} reverse(x), dimensions={0}
  ROOT r = pred[64]{0} compare(x, y), direction=LT, type=TOTALORDER
"""),
    "bitcast-dtypes-expander": ("", 0.0, """
  n = s32[6]{0} parameter(0)
  large = s32[] constant(1000000007)
  by = s32[6]{0} broadcast(large), dimensions={}
  x = s32[6]{0} multiply(n, by)
  y = u8[6,4]{1,0} bitcast-convert(x)
  z = u4[6,4,2]{2,1,0} bitcast-convert(y)
  w = u8[6,4]{1,0} bitcast-convert(z)
  v = s32[6]{0} bitcast-convert(w)
  ROOT r = (u8[6,4]{1,0}, u8[6,4]{1,0}, s32[6]{0}) tuple(y, w, v)
"""),
    "stochastic-convert-expander": ("", 0.0, """
  x = f32[64]{0} parameter(0)
  n = u32[64]{0} parameter(1)
  large = u32[] constant(1000000007)
  by = u32[64]{0} broadcast(large), dimensions={}
  random = u32[64]{0} multiply(n, by)
  ROOT r = s8[64]{0} stochastic-convert(x, random)
"""),
    "dynamic-index-splitter": ("", 0.0, """
  x = f32[4,8]{1,0} parameter(0)
  at = s32[2]{0} constant({2, 5})
  y = f32[1,2]{1,0} dynamic-slice(x, at), dynamic_slice_sizes={1,2}
  ROOT r = f32[4,8]{1,0} dynamic-update-slice(x, y, at)
"""),
    "batch-norm-expander": ("", 1e-4, """
  x = f32[4,3,5]{2,1,0} parameter(0)
  scale = f32[3]{0} parameter(1)
  offset = f32[3]{0} parameter(2)
  ROOT r = (f32[4,3,5]{2,1,0}, f32[3]{0}, f32[3]{0}) batch-norm-training(x, scale, offset), epsilon=0.01, feature_index=1
"""),
    "topk-expander": ("", 0.0, """
  x = f32[3,20]{1,0} parameter(0)
  ROOT r = (f32[3,7]{1,0}, s32[3,7]{1,0}) topk(x), k=7, largest=true
"""),
    "cholesky-expander{block=2}": ("", 1e-4, """
  x = f32[2,5,5]{2,1,0} parameter(0)
  ROOT r = f32[2,5,5]{2,1,0} cholesky(x), lower=true
"""),
    "triangular-solve-expander{block=2}": ("", 1e-3, """
  a = c64[5,5]{1,0} parameter(0)
  b = c64[3,5]{1,0} parameter(1)
  ROOT r = c64[3,5]{1,0} triangular-solve(a, b), lower=true, transpose_a=ADJOINT
"""),
    "select-and-scatter-expander": (COMPARE, 1e-6, """
  x = f32[2,7,7]{2,1,0} parameter(0)
  source = f32[2,3,3]{2,1,0} parameter(1)
  zero = f32[] constant(0)
  ROOT r = f32[2,7,7]{2,1,0} select-and-scatter(x, source, zero), window={size=1x3x3 stride=1x2x2}, select=compare, scatter=add
"""),
    "ragged-dot-expander": ("", 1e-4, """
  x = f32[8,4]{1,0} parameter(0)
  w = f32[3,4,5]{2,1,0} parameter(1)
  n = s32[3]{0} constant({3, 0, 4})
  ROOT r = f32[8,5]{1,0} ragged-dot(x, w, n), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}
"""),
}  # fmt: skip


@pytest.mark.parametrize("pipeline", CASES)
def test_xla_computes_the_same(pipeline: str, tmp_path: Path) -> None:
    """The expanded text goes through XLA's CPU compiler; its results are those of the op."""
    regions, tolerance, body = CASES[pipeline]
    module = hloopt.parse(f"HloModule expanded\n{regions}\nENTRY main {{{body}}}\n", pipeline)
    better = hloopt.optimize(module, pipeline)
    assert better.to_text() != module.to_text()
    arrays = generate(module, 11)
    (tmp_path / "m.hlo").write_text(better.to_text())
    np.savez(tmp_path / "in.npz", **{f"in_{at}": array for at, array in enumerate(arrays)})
    ask("run", str(tmp_path / "m.hlo"), str(tmp_path / "in.npz"), str(tmp_path / "out.npz"))
    with np.load(tmp_path / "out.npz") as stored:
        shapes = leaves(module.entry.result_shape)
        for at, (want, shape) in enumerate(
            zip(hloopt.evaluate(module, arrays), shapes, strict=True)
        ):
            assert isinstance(shape, ArrayShape)
            got = as_type(stored[f"out_{at}"], shape.dtype.name)
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
