"""The elementwise ops are those of HLO."""

from __future__ import annotations

import hloopt
from hloopt.analysis.elementwise import is_elementwise
from hloopt.ops import OPS

ELEMENTWISE = """abs acos acosh add and asin asinh atan2 atanh cbrt ceil clamp compare complex convert
copy cosh cosine count-leading-zeros divide erf exponential exponential-minus-one floor imag is-finite
log log-plus-one logistic maximum minimum mulhi multiply negate not or popcnt power real
reduce-precision remainder round-nearest-afz round-nearest-even rsqrt select shift-left
shift-right-arithmetic shift-right-logical sign sine sinh sqrt stochastic-convert subtract tan tanh
xor"""


def test_the_table_knows_all_elementwise_ops() -> None:
    """Those of the table are those that XLA treats so; bitcast-convert depends on its types."""
    assert {name for name, row in OPS.items() if row.is_elementwise} == set(ELEMENTWISE.split())


def test_a_bitcast_convert_is_elementwise_between_equal_widths() -> None:
    """f32 to s32 is, f32 to u8 is not."""
    text = """HloModule m
ENTRY e { p = f32[4] parameter(0) a = s32[4] bitcast-convert(p) b = u8[4,4] bitcast-convert(p)
  c = f32[2,2] reshape(p) ROOT t = (s32[4], u8[4,4], f32[2,2]) tuple(a, b, c) }
"""
    names = hloopt.parse(text).entry.by_name
    assert [is_elementwise(names[name]) for name in "abc"] == [True, False, False]
