"""Ops on dynamic dimensions give what XLA's CPU compiler gives, sizes and elements."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hloopt
from tests.oracle.oracle import ask, available

pytestmark = [
    pytest.mark.xla,
    pytest.mark.skipif(not available(), reason="no jaxlib: install the extra xla"),
    pytest.mark.timeout(600),
]

REGIONS = """
plus { a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT r = s32[] add(a, b) }
most { a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GE }
less { a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT }
smaller { x = s32[<=6] parameter(0)
  n = s32[] constant(1)
  ROOT r = s32[<=6] set-dimension-size(x, n), dimensions={0} }
other { x = s32[<=6] parameter(0)
  ROOT r = s32[<=6] negate(x) }
again { s = (s32[<=6], s32[]) parameter(0)
  x = s32[<=6] get-tuple-element(s), index=0
  n = s32[] get-dimension-size(x), dimensions={0}
  k = s32[] constant(1)
  ROOT r = pred[] compare(n, k), direction=GT }
shrink { s = (s32[<=6], s32[]) parameter(0)
  x = s32[<=6] get-tuple-element(s), index=0
  i = s32[] get-tuple-element(s), index=1
  n = s32[] get-dimension-size(x), dimensions={0}
  k = s32[] constant(1)
  m = s32[] subtract(n, k)
  y = s32[<=6] set-dimension-size(x, m), dimensions={0}
  z = s32[<=6] add(y, y)
  j = s32[] add(i, k)
  ROOT r = (s32[<=6], s32[]) tuple(z, j) }
"""
HEAD = """
  x = s32[6] parameter(0)
  y = s32[6] parameter(1)
  n = s32[] parameter(2)
  m = s32[] parameter(3)
  zero = s32[] constant(0)
  two = s32[] constant(2)
  dx = s32[<=6] set-dimension-size(x, n), dimensions={0}
  dz = s32[<=6] set-dimension-size(x, m), dimensions={0}
  equal = s32[<=6] set-dimension-size(y, n), dimensions={0}
  rows = s32[<=6,2] broadcast(dx), dimensions={0}
  split = s32[2,3] reshape(x)
  columns = s32[2,<=3] set-dimension-size(split, two), dimensions={1}
  first = s32[3] slice(y), slice={[0:3]}
  pair = s32[2] slice(y), slice={[0:2]}
  where = s32[6,1] reshape(x)
  places = s32[<=6,1] set-dimension-size(where, n), dimensions={0}
  window = s32[1] constant({1})
  bits = pred[6] constant({1,0,0,1,1,0})
  start = (s32[<=6], s32[]) tuple(dx, zero)
  loop = (s32[<=6], s32[]) while(start), condition=again, body=shrink
"""
ROWS = "offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1"
INTO = "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"
PART = (
    "update_window_dims={0}, inserted_window_dims={}, scatter_dims_to_operand_dims={0}, "
    "index_vector_dim=0"
)
OPS = (
    "s32[<=6] add(dx, equal)",
    "s32[<=6] subtract(y, dx)",
    "s32[<=6] select(bits, dx, equal)",
    "s32[<=6] clamp(y, dx, y)",
    "s32[<=6] map(dx, equal), dimensions={0}, to_apply=plus",
    "s32[<=6,2] copy(rows)",
    "s32[2,<=6] transpose(rows), dimensions={1,0}",
    "s32[<=6] reverse(dx), dimensions={0}",
    "s32[<=3] slice(dx), slice={[1:6:2]}",
    "s32[1] slice(dx), slice={[2:3]}",
    "s32[2] dynamic-slice(dx, m), dynamic_slice_sizes={2}",
    "s32[<=6] dynamic-slice(dx, m), dynamic_slice_sizes={6}",
    "s32[<=6] dynamic-update-slice(dx, pair, m)",
    "s32[<=6] dynamic-update-slice(x, equal, m)",
    "s32[<=12] concatenate(dx, dz), dimensions={0}",
    "s32[<=12] concatenate(y, dx), dimensions={0}",
    "s32[<=14] pad(dx, m), padding=1_2_1",
    "s32[<=6] reshape(columns)",
    "s32[<=4] dynamic-reshape(columns4, four)",
    "s32[] reduce(dx, zero), dimensions={0}, to_apply=plus",
    "s32[2] reduce(rows, zero), dimensions={0}, to_apply=plus",
    "s32[<=5] reduce-window(dx, zero), window={size=2}, to_apply=plus",
    "s32[<=3] reduce-window(dx, zero), window={size=2 stride=2}, to_apply=plus",
    "s32[] dot(dx, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    "s32[2,2] dot(rows, rows), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    "s32[<=6] sort(dx), dimensions={0}, to_apply=less",
    f"s32[<=6] gather(y, places), {ROWS}, slice_sizes={{1}}",
    f"s32[6] scatter(y, places, y), update_window_dims={{}}, {INTO}, to_apply=plus",
    f"s32[<=6] scatter(dx, window, pair), {PART}, to_apply=plus",
    "s32[<=6] get-tuple-element(loop), index=0",
    "s32[] get-tuple-element(loop), index=1",
    "s32[<=6] set-dimension-size(dx, m), dimensions={0}",
)
BROADCASTS = ("s32[<=6] add(dx, dz)", "s32[<=6] multiply(dz, dx)")


def module_of(ops: tuple[str, ...]) -> str:
    """Each op and, where its result is dynamic, the sizes it has."""
    more = "  four = s32[] constant(4)\n  part = s32[2,2] slice(split), slice={[0:2], [0:2]}\n"
    more += "  columns4 = s32[2,<=2] set-dimension-size(part, two), dimensions={1}\n"
    lines, results = [], []
    for number, op in enumerate(ops):
        shape = op.split(" ", 1)[0]
        lines.append(f"  r{number} = {op}")
        results.append((f"r{number}", shape))
        for dim, size in enumerate(shape[4:-1].split(",")):
            if "<" in size:
                name = f"s{number}.{dim}"
                lines.append(
                    f"  {name} = s32[] get-dimension-size(r{number}), dimensions={{{dim}}}"
                )
                results.append((name, "s32[]"))
    shapes, names = (", ".join(result[at] for result in results) for at in (1, 0))
    body = "\n".join(lines)
    return f"HloModule m\n{REGIONS}\nENTRY e {{{HEAD}{more}{body}\n  ROOT t = ({shapes}) tuple({names})\n}}\n"


@pytest.mark.parametrize(
    ("ops", "n", "m"),
    [(OPS, 4, 2), (OPS, 6, 0), (OPS, 3, 5), (BROADCASTS, 4, 1), (BROADCASTS, 1, 1)],
)
def test_sizes_and_elements_are_those_of_xla(ops: tuple[str, ...], n: int, m: int, tmp_path: Path):
    """XLA's results have their elements at the beginning of an array of the bounds.

    Not asked, as XLA gives nothing that can be meant: a reduction whose initial value is no identity (it
    counts once more for each element hidden), a slice that ends before the size (the result's size exceeds
    its bound).
    """
    text = module_of(ops)
    (tmp_path / "m.hlo").write_text(text)
    inputs = [
        np.array([1, 2, 3, 4, 5, 0], np.int32),
        np.array([10, 20, 30, 40, 50, 60], np.int32),
        np.array(n, np.int32),
        np.array(m, np.int32),
    ]
    np.savez(tmp_path / "in.npz", **{f"in_{k}": array for k, array in enumerate(inputs)})
    ask("run", str(tmp_path / "m.hlo"), str(tmp_path / "in.npz"), str(tmp_path / "out.npz"))
    module = hloopt.parse(text)
    hloopt.verify(module)
    found = hloopt.evaluate(module, inputs)
    with np.load(tmp_path / "out.npz") as stored:
        for number, got in enumerate(found):
            want = stored[f"out_{number}"].reshape(-1)[: got.size]
            assert got.reshape(-1).tolist() == want.tolist(), (number, list(got.shape))
