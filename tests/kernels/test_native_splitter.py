"""Fusions cut for the native device: at products, long windows and what no loop computes; and only there."""

from __future__ import annotations

import pytest

from hloopt.backends.native.splitter import NativeSplitter
from hloopt.errors import UsageError
from hloopt.ir import Module
from tests.passes.proof import check


def _fusion(body: str, root: str) -> str:
    return f"""HloModule m
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
less {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}}
f {{
  x = f32[24,24] parameter(0)
  y = f32[24,24] parameter(1)
{body}
}}
ENTRY e {{
  x = f32[24,24] parameter(0)
  y = f32[24,24] parameter(1)
  ROOT r = {root} fusion(x, y), kind=kLoop, calls=f
}}
"""


DIMS = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
TWO = f"""  p = f32[24,24] dot(x, y), {DIMS}
  n = f32[24,24] negate(p)
  q = f32[24,24] dot(n, x), {DIMS}
  ROOT s = f32[24,24] add(q, p)"""
ONE = f"""  n = f32[24,24] negate(x)
  p = f32[24,24] dot(n, y), {DIMS}
  ROOT s = f32[24,24] tanh(p)"""
TINY = f"""  u = f32[4,4] slice(x), slice={{[0:4],[0:4]}}
  v = f32[4,4] slice(y), slice={{[0:4],[0:4]}}
  p = f32[4,4] dot(u, v), {DIMS}
  q = f32[4,4] dot(p, v), {DIMS}
  ROOT s = f32[4,4] add(p, q)"""
SORT = """  n = f32[24,24] negate(x)
  o = f32[24,24] sort(n), dimensions={1}, to_apply=less
  ROOT s = f32[24,24] add(o, y)"""
RUNNING = """  zero = f32[] constant(0)
  w = f32[24,24] reduce-window(x, zero), window={size=24x24 pad=23_0x23_0}, to_apply=add
  ROOT s = f32[24,24] add(w, y)"""
SHORT = RUNNING.replace("24x24 pad=23_0x23_0", "3x3 pad=1_1x1_1")
SHARE = """  zero = f32[] constant(0)
  t = f32[24] reduce(x, zero), dimensions={1}, to_apply=add
  b = f32[24,24] broadcast(t), dimensions={0}
  d = f32[24,24] divide(x, b)
  ROOT s = f32[24,24] add(d, y)"""
PLAIN = """  ROOT s = f32[24,24] add(x, y)"""


def _split(text: str, *, changes: bool = True, **options: int) -> Module:
    return check(text, NativeSplitter(**options), draws=2, changes=changes)[0]


def _opcodes(module: Module) -> list[str]:
    return [one.opcode for one in module.entry if one.opcode != "parameter"]


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (TWO, ["dot", "negate", "dot", "add"]),
        (SORT, ["negate", "sort", "add"]),
        (RUNNING, ["fusion", "add"]),
    ],
    ids=["products", "sort", "window"],
)
def test_cut(body: str, wanted: list[str]) -> None:
    """Each part stands by itself; what is one op is that op."""
    assert _opcodes(_split(_fusion(body, "f32[24,24]"))) == wanted


@pytest.mark.parametrize(
    ("body", "root"),
    [
        (ONE, "f32[24,24]"),
        (TINY, "f32[4,4]"),
        (SHORT, "f32[24,24]"),
        (PLAIN, "f32[24,24]"),
        (SHARE, "f32[24,24]"),
    ],
    ids=[
        "one small product",
        "tiny products",
        "short window",
        "nothing to cut",
        "a kernel of whole rows",
    ],
)
def test_left_whole(body: str, root: str) -> None:
    """One small product has a kernel; tiny ones, and short windows, are no work."""
    assert _opcodes(_split(_fusion(body, root), changes=False)) == ["fusion"]


def test_options() -> None:
    """The limits are options; none is below 1."""
    found = _split(_fusion(TWO, "f32[24,24]"), products=4 * 24**3, changes=False)
    assert _opcodes(found) == ["fusion"]
    assert _opcodes(_split(_fusion(TWO, "f32[24,24]"), products=24**3)) != ["fusion"]
    assert _opcodes(_split(_fusion(SHORT, "f32[24,24]"), window=8)) != ["fusion"]
    for option in ("products", "window"):
        with pytest.raises(UsageError, match=f"{option}=0 must be above 0"):
            NativeSplitter(**{option: 0})
