"""Modules of one kernel each, which together need all that a file can need."""

from __future__ import annotations

from typing import Final

from hloopt.driver.exporting import ExportedFile, export
from hloopt.pipelines import optimize_module
from hloopt.text.parser import parse_module

__all__ = ["PROGRAMS", "exported"]

_ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b) }\n"

PROGRAMS: Final = {
    "bf16 beside f32": """HloModule m
ENTRY main {
  x = f32[6,40] parameter(0)
  w = bf16[40] parameter(1)
  wf = f32[40] convert(w)
  wb = f32[6,40] broadcast(wf), dimensions={1}
  m = f32[6,40] multiply(x, wb)
  ROOT k = f32[6,40] tanh(m)
}
""",
    "a rounding before a wider type": """HloModule m
most { a = bf16[] parameter(0)
 b = bf16[] parameter(1)
 ROOT m = bf16[] maximum(a, b) }
body {
  x = bf16[32,10] parameter(0)
  y = bf16[32,10] parameter(1)
  s = bf16[32,10] add(x, y)
  least = bf16[] constant(-inf)
  most = bf16[32] reduce(s, least), dimensions={1}, to_apply=most
  m = f32[32] convert(most)
  w = f32[32,10] convert(s)
  b = f32[32,10] broadcast(m), dimensions={0}
  d = f32[32,10] subtract(w, b)
  ROOT e = f32[32,10] exponential(d)
}
ENTRY main {
  x = bf16[32,10] parameter(0)
  y = bf16[32,10] parameter(1)
  ROOT k = f32[32,10] fusion(x, y), kind=kLoop, calls=body
}
""",
    "sums of rows": f"""HloModule m
{_ADD}
ENTRY main {{
  x = f32[33,300] parameter(0)
  e = f32[33,300] exponential(x)
  z = f32[] constant(0)
  ROOT k = f32[33] reduce(e, z), dimensions={{1}}, to_apply=add
}}
""",
    "a long sum, which needs scratch memory": f"""HloModule m
{_ADD}
ENTRY main {{
  x = f32[300000] parameter(0)
  z = f32[] constant(1)
  ROOT k = f32[] reduce(x, z), dimensions={{0}}, to_apply=add
}}
""",
    "the first of the largest, of which there are several": """HloModule m
first {
  a = s32[] parameter(0)
  i = s32[] parameter(1)
  b = s32[] parameter(2)
  j = s32[] parameter(3)
  g = pred[] compare(a, b), direction=GE
  v = s32[] select(g, a, b)
  k = s32[] select(g, i, j)
  ROOT t = (s32[], s32[]) tuple(v, k)
}
ENTRY main {
  x = s32[16,61] parameter(0)
  three = s32[] constant(3)
  b = s32[16,61] broadcast(three), dimensions={}
  few = s32[16,61] and(x, b)
  at = s32[16,61] iota(), iota_dimension=1
  least = s32[] constant(-1)
  zero = s32[] constant(0)
  ROOT k = (s32[16], s32[16]) reduce(few, at, least, zero), dimensions={1}, to_apply=first
}
""",
    "several results of several types": """HloModule m
body {
  h = f16[70] parameter(0)
  i = s16[70] parameter(1)
  c = c64[70] parameter(2)
  h2 = f16[70] multiply(h, h)
  j = s16[70] negate(i)
  p = pred[70] compare(i, j), direction=LT
  d = c64[70] multiply(c, c)
  u = u32[70] convert(i)
  ROOT t = (f16[70], s16[70], pred[70], c64[70], u32[70]) tuple(h2, j, p, d, u)
}
ENTRY main {
  h = f16[70] parameter(0)
  i = s16[70] parameter(1)
  c = c64[70] parameter(2)
  ROOT k = (f16[70], s16[70], pred[70], c64[70], u32[70]) fusion(h, i, c), kind=kLoop, calls=body
}
""",
    "an update of an argument, which is copied": """HloModule m
ENTRY main {
  x = f32[90,8] parameter(0)
  u = f32[1,8] parameter(1)
  i = s32[] parameter(2)
  z = s32[] constant(0)
  ROOT k = f32[90,8] dynamic-update-slice(x, u, i, z)
}
""",
    "rows that are gathered": """HloModule m
ENTRY main {
  x = f32[50,16] parameter(0)
  i = s32[100,1] parameter(1)
  g = f32[100,16] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
    index_vector_dim=1, slice_sizes={1,16}
  ROOT k = f32[100,16] negate(g)
}
""",
    "f8, and words of many languages for names": """HloModule m
ENTRY main {
  int = f8e4m3fn[80] parameter(0)
  lambda = f32[80] convert(int)
  stream = f32[80] parameter(1)
  workspace = f32[80] add(lambda, stream)
  ROOT print = f8e5m2[80] convert(workspace)
}
""",
}


def exported(text: str, form: str) -> ExportedFile:
    """The last kernel of a module as a file."""
    module = optimize_module(parse_module(text, "m.hlo"))
    return export(module, module.entry.root.name, form, pipeline="")
