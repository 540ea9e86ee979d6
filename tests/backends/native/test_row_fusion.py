"""Fusions that go over the same rows become one kernel natively, and only these."""

from __future__ import annotations

import hloopt
from hloopt.backends.native.row_fusion import NativeRowFusion
from hloopt.ir import Module
from hloopt.rewrite import Pipeline
from tests.backends.native.natively import check_native_kernels

SOFTMAX = """HloModule m

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

most {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b)
}

largest {
  x = f32[70,100] parameter(0)
  low = f32[] constant(-inf)
  ROOT m = f32[70] reduce(x, low), dimensions={1}, to_apply=most
}

sums {
  x = f32[70,100] parameter(0)
  m = f32[70] parameter(1)
  across = f32[70,100] broadcast(m), dimensions={0}
  less = f32[70,100] subtract(x, across)
  power = f32[70,100] exponential(less)
  zero = f32[] constant(0)
  ROOT s = f32[70] reduce(power, zero), dimensions={1}, to_apply=add
}

shares {
  x = f32[70,100] parameter(0)
  m = f32[70] parameter(1)
  s = f32[70] parameter(2)
  across = f32[70,100] broadcast(m), dimensions={0}
  less = f32[70,100] subtract(x, across)
  power = f32[70,100] exponential(less)
  wide = f32[70,100] broadcast(s), dimensions={0}
  ROOT q = f32[70,100] divide(power, wide)
}

ENTRY main {
  x = f32[70,100] parameter(0)
  m = f32[70] fusion(x), kind=kInput, calls=largest
  s = f32[70] fusion(x, m), kind=kInput, calls=sums
  q = f32[70,100] fusion(x, m, s), kind=kLoop, calls=shares
  ROOT r = (f32[70,100], f32[70]) tuple(q, s)
}
"""

BETWEEN = """HloModule m

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

sums {
  x = f32[64,64] parameter(0)
  zero = f32[] constant(0)
  ROOT s = f32[64] reduce(x, zero), dimensions={1}, to_apply=add
}

shares {
  x = f32[64,64] parameter(0)
  s = f32[64] parameter(1)
  across = f32[64,64] broadcast(s), dimensions={0}
  ROOT q = f32[64,64] divide(x, across)
}

scaled {
  x = f32[64,64] parameter(0)
  s = f32[64] parameter(1)
  z = f32[64] parameter(2)
  y = f32[64,64] broadcast(z), dimensions={0}
  across = f32[64,64] broadcast(s), dimensions={0}
  p = f32[64,64] multiply(x, across)
  ROOT r = f32[64,64] add(p, y)
}

ENTRY main {
  x = f32[64,64] parameter(0)
  s = f32[64] fusion(x), kind=kInput, calls=sums
  w = f32[64] negate(s)
  y = f32[64] negate(w)
  q = f32[64,64] fusion(x, s), kind=kLoop, calls=shares
  r = f32[64,64] fusion(x, s, y), kind=kLoop, calls=scaled
  ROOT t = (f32[64,64], f32[64,64]) tuple(q, r)
}
"""


def _fused(text: str) -> Module:
    module = hloopt.parse(text)
    Pipeline((NativeRowFusion(),)).run(module)
    hloopt.verify(module)
    return module


def _count(module: Module) -> int:
    return sum(one.opcode == "fusion" for one in module.entry)


def test_a_softmax_is_one_kernel() -> None:
    """The largest element, the sum and the shares of a row: one fusion, with what others read as results."""
    assert _count(_fused(SOFTMAX)) == 1
    assert len(check_native_kernels(SOFTMAX, "native-rows").functions) == 1


def test_other_places_are_not_joined() -> None:
    """Who needs the reductions of other rows, or along other dimensions, waits for all of them."""
    across = "wide = f32[70,100] broadcast(s), dimensions={0}"
    square = SOFTMAX.replace("70,100", "100,100").replace("f32[70]", "f32[100]")
    columns = across.replace("70,100", "100,100").replace("{0}", "{1}")
    turned = square.replace(across.replace("70,100", "100,100"), columns)
    assert turned != square
    assert _count(_fused(square)) == 1
    assert _count(_fused(turned)) == 2
    reverse = "back = f32[70] reverse(s), dimensions={0}\n  wide = f32[70,100] broadcast(back), dimensions={0}"
    assert _count(_fused(SOFTMAX.replace(across, reverse))) == 2


def test_what_stands_between_keeps_them_apart() -> None:
    """A third instruction that needs the one and is needed by the other."""
    between = SOFTMAX.replace(
        "  q = f32[70,100] fusion(x, m, s)",
        "  w = f32[70] sort(s), dimensions={0}, to_apply=below\\n  q = f32[70,100] fusion(x, m, w)",
    )
    below = "below {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = pred[] compare(a, b), direction=LT\n}\n\n"
    between = between.replace("\\n", "\n").replace("ENTRY", f"{below}ENTRY")
    assert _count(_fused(between)) == 2


def test_what_joined_before_stands_behind_what_it_was_made_of() -> None:
    """Two instructions in between, which stood before the fusion that the reduction has joined meanwhile."""
    assert _count(_fused(BETWEEN)) == 2


def test_few_long_rows_stay_apart() -> None:
    """One row, too long for one thread: reductions are shared out by parts."""
    assert _count(_fused(SOFTMAX.replace("70,100", "1,200000").replace("f32[70]", "f32[1]"))) == 3
