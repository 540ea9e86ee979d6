"""Ops that move and fold elements, of 10^3 to 10^6 of them: the NumPy executor beside the interpreter."""

from __future__ import annotations

import gc
import time
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np

import hloopt
from hloopt.runtime.inputs import generate
from tests.helpers.support import Array

__all__ = ["MOVING", "moving"]

MOVING = "Moving and folding elements (seconds; ratio of interpreter to executor)"
_SIZES = (1_000, 10_000, 100_000, 1_000_000)
_TURN = 0.005  # seconds of calls that are timed together

_ADD = "f {{ a = {t}[] parameter(0)\n  b = {t}[] parameter(1)\n  ROOT r = {t}[] {op}(a, b) }}\n"
_LESS = """less {{
  a = f32[] parameter(0)
  b = f32[] parameter(1){more}
  na = pred[] compare(a, a), direction=NE
  nb = pred[] compare(b, b), direction=NE
  none = f32[] constant(nan)
  zero = f32[] constant(0)
  za = pred[] compare(a, zero), direction=EQ
  zb = pred[] compare(b, zero), direction=EQ
  pa = f32[] select(za, zero, a)
  pb = f32[] select(zb, zero, b)
  ka = f32[] select(na, none, pa)
  kb = f32[] select(nb, none, pb)
  ROOT r = pred[] compare(ka, kb), direction=LT, type=TOTALORDER
}}
"""
_PLAIN_LESS = """less {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT
}}
"""
_MORE = "\n  c = s32[] parameter(2)\n  d = s32[] parameter(3)"
_SORTED = (
    "  x = f32[{n}] parameter(0)\n  ROOT r = f32[{n}] sort(x), dimensions={{0}}, to_apply=less"
)
_ARGSORTED = """  x = f32[{n}] parameter(0)
  i = s32[{n}] iota(), iota_dimension=0
  ROOT r = (f32[{n}], s32[{n}]) sort(x, i), dimensions={{0}}, is_stable=true, to_apply=less"""
_TAKEN = """  x = f32[{rows},{width}] parameter(0)
  i = s32[{rows},1] parameter(1)
  ROOT r = f32[{rows},{width}] gather(x, i), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1,{width}}}"""
_PUT = """  x = f32[{rows},{width}] parameter(0)
  i = s32[{rows},1] parameter(1)
  u = f32[{rows},{width}] parameter(2)
  ROOT r = f32[{rows},{width}] scatter(x, i, u), update_window_dims={{1}}, inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=f"""
_PIECES = """  x = f32[{side},{side}] parameter(0)
  i = s32[{few},2] parameter(1)
  ROOT r = f32[{few},8,8] gather(x, i), offset_dims={{1,2}}, collapsed_slice_dims={{}}, start_index_map={{0,1}}, index_vector_dim=1, slice_sizes={{8,8}}"""
_REDUCED = """  x = f32[{rows},{width}] parameter(0)
  z = f32[] constant({init})
  ROOT r = f32[{rows}] reduce(x, z), dimensions={{1}}, to_apply=f"""
_CUMULATIVE = """  x = f32[{n}] parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[{n}] reduce-window(x, z), window={{size={n} pad={less}_0}}, to_apply=f"""
_POOLED = """  x = f32[{side},{side}] parameter(0)
  z = f32[] constant(-inf)
  ROOT r = f32[{half},{half}] reduce-window(x, z), window={{size=3x3 stride=2x2 pad=1_1x1_1}}, to_apply=f"""
_UNPOOLED = """  x = f32[{even},{even}] parameter(0)
  s = f32[{quarter},{quarter}] parameter(1)
  z = f32[] constant(0)
  ROOT r = f32[{even},{even}] select-and-scatter(x, s, z), window={{size=2x2 stride=2x2}}, select=keep, scatter=f"""
_KEEP = """keep {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GE
}}
"""
_ARGMAX = """pick {{
  v = f32[] parameter(0)
  i = s32[] parameter(1)
  w = f32[] parameter(2)
  j = s32[] parameter(3)
  wins = pred[] compare(v, w), direction=GT
  none = pred[] compare(v, v), direction=NE
  value = pred[] or(wins, none)
  tie = pred[] compare(v, w), direction=EQ
  lower = pred[] compare(i, j), direction=LT
  both = pred[] and(tie, lower)
  at = pred[] or(value, both)
  x = f32[] select(value, v, w)
  k = s32[] select(at, i, j)
  ROOT t = (f32[], s32[]) tuple(x, k)
}}
"""
_ARGMAXED = """  x = f32[{rows},{width}] parameter(0)
  i = s32[{rows},{width}] iota(), iota_dimension=1
  c = f32[] constant(-inf)
  z = s32[] constant(0)
  p = (f32[{rows}], s32[{rows}]) reduce(x, i, c, z), dimensions={{1}}, to_apply=pick
  ROOT r = s32[{rows}] get-tuple-element(p), index=1"""
_BITS = """  s = u64[2] parameter(0)
  ROOT r = (u64[2], u32[{n}]) rng-bit-generator(s), algorithm=rng_philox"""
_PADDED = """  x = f32[{side},{side}] parameter(0)
  z = f32[] constant(1)
  ROOT r = f32[{wider},{wider}] pad(x, z), padding=1_1x1_1"""

_SUM = _ADD.format(t="f32", op="add")
_MOST = _ADD.format(t="f32", op="maximum")
CASES = {
    "sort": (_LESS.format(more=""), _SORTED),
    "sort, < on floats": (_PLAIN_LESS.format(), _SORTED),
    "sort with an index": (_LESS.format(more=_MORE), _ARGSORTED),
    "gather rows": ("", _TAKEN),
    "gather 8x8": ("", _PIECES),
    "scatter rows, add": (_SUM, _PUT),
    "scatter rows, maximum": (_MOST, _PUT),
    "reduce rows, add": (_SUM, _REDUCED.replace("{init}", "0")),
    "reduce rows, maximum": (_MOST, _REDUCED.replace("{init}", "-inf")),
    "arg-max of rows": (_ARGMAX.format(), _ARGMAXED),
    "cumulative sum": (_SUM, _CUMULATIVE),
    "cumulative maximum": (_MOST, _CUMULATIVE),
    "maximum of 3x3": (_MOST, _POOLED),
    "selected of 2x2": (_SUM + _KEEP.format(), _UNPOOLED),
    "random bits": ("", _BITS),
    "pad": ("", _PADDED),
}
"""Regions and the entry's body; the numbers in braces follow from how many elements there are."""


def moving(count: int) -> list[dict[str, Any]]:
    """Seconds of each op at each size."""
    rows = []
    for name, (regions, body) in CASES.items():
        for size in _SIZES:
            text = _text(regions, body, size)
            module = hloopt.parse(text, name)
            inputs = _inputs(module, size)
            program = hloopt.compile(module)
            row: dict[str, Any] = {"op": name, "elements": float(size)}
            row["interpreter"] = _best(lambda: hloopt.evaluate(module, inputs), min(count, 3))  # noqa: B023
            row["executor"] = _best(lambda: program.run(inputs), count)  # noqa: B023
            row["ratio"] = row["interpreter"] / row["executor"]
            rows.append(row)
    return rows


def _text(regions: str, body: str, size: int) -> str:
    width = 16
    side = int(size**0.5)
    numbers = {
        "n": size,
        "less": size - 1,
        "width": width,
        "rows": size // width,
        "side": side,
        "wider": side + 2,
        "half": (side - 1) // 2 + 1,
        "even": side // 2 * 2,
        "quarter": side // 2,
        "few": max(size // 64, 1),
    }
    return f"HloModule moving\n{regions}ENTRY e {{\n{body.format(**numbers)}\n}}\n"


def _inputs(module: Any, size: int) -> list[Array]:
    """Indices over all rows; everything else as it is generated."""
    found = generate(module, 0)
    rng = np.random.default_rng(0)
    limit = module.entry.parameters[0].array.dims[0]
    return [
        rng.integers(0, limit, x.shape).astype(x.dtype) if x.dtype == np.int32 else x for x in found
    ]


def _best(step: Callable[[], object], count: int) -> float:
    """Seconds of a call: the best of ``count`` turns of many calls each, after one to warm up.

    Neighbours on a machine make a call slower, never quicker.
    """
    step()
    start = time.perf_counter()
    step()
    many = max(int(_TURN / (time.perf_counter() - start)), 1)
    gc.collect()
    return min(timeit.repeat(step, number=many, repeat=count)) / many
