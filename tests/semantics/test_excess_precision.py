"""Excess precision: chains of bf16 and f16 keep f32 until a buffer of the type must hold them; else each op rounds."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings

import hloopt
from hloopt.types import DTYPES
from tests.semantics.elements import from_bits, seeds
from tests.semantics.formats import FORMATS, array_of, numbers, rounded
from tests.semantics.statement import assert_same

MODES = [False, True]


def both(text, inputs, excess):
    """The results of the interpreter and of the executor in a mode."""
    module = hloopt.parse(text)
    hloopt.verify(module)
    return [
        hloopt.evaluate(module, inputs, excess_precision=excess),
        hloopt.compile(module, excess_precision=excess).run(inputs),
    ]


def chain(name):
    """x * y + y, a chain of two; then what it is as f32, and rounded by reduce-precision."""
    form = FORMATS[name]
    return f"""HloModule m
ENTRY e {{
  x = {name}[8] parameter(0)
  y = {name}[8] parameter(1)
  product = {name}[8] multiply(x, y)
  sum = {name}[8] add(product, y)
  wide = f32[8] convert(sum)
  cut = {name}[8] reduce-precision(sum), exponent_bits={form.exponent}, mantissa_bits={form.mantissa}
  narrow = f32[8] convert(cut)
  ROOT r = ({name}[8], f32[8], f32[8]) tuple(sum, wide, narrow)
}}
"""


def stated(name, x, y, excess):
    """The sum in f32 and rounded to the type, with or without a rounding of the product."""
    step = "f32" if excess else name

    def once(value):
        return rounded(step, rounded("f32", value))

    if not (math.isfinite(x) and math.isfinite(y)):
        return x * y + y
    product = once(Fraction(x) * Fraction(y)) if x and y else x * y
    if not math.isfinite(product):
        return product + y
    total = Fraction(product) + Fraction(y)
    return once(total) if total else product + y


@pytest.mark.every_value
@pytest.mark.parametrize("excess", MODES)
@pytest.mark.parametrize("name", ["bf16", "f16", "f8e5m2", "f8e4m3fn"])
def test_a_chain_rounds_after_each_op_or_at_its_end(name, excess):
    """Types of 8 bits round after each op in any mode."""

    @settings(max_examples=12)
    @given(seeds)
    def examples(chooser):
        codes = [[chooser.getrandbits(DTYPES[name].bits) for _ in range(8)] for _ in range(2)]
        inputs = [from_bits(side, DTYPES[name]) for side in codes]
        keeps = excess and name in ("bf16", "f16")
        sums = [
            stated(name, x, y, keeps)
            for x, y in zip(*(numbers(name, side) for side in inputs), strict=True)
        ]
        for found, wide, narrow in both(chain(name), inputs, excess):
            assert_same(found, array_of(name, [rounded(name, value) for value in sums]), "the sum")
            # A finite sum beyond f16 is infinite only when it is stored.
            assert_same(wide, array_of("f32", [rounded("f32", value) for value in sums]), "in f32")
            limits = 2.0 ** FORMATS[name].least_exponent, 2.0 ** FORMATS[name].bias
            normal = [at for at, x in enumerate(sums) if limits[0] <= abs(x) < limits[1]]
            want = array_of("f32", [rounded(name, value) for value in sums])
            assert_same(narrow[normal], want[normal], "rounded")

    examples()


@pytest.mark.parametrize("excess", MODES)
def test_parameters_bits_and_loops_hold_the_type_itself(excess):
    """1 + 2^-8 is lost in bf16 wherever a buffer holds it: carried by a loop, or seen as bits."""
    text = """HloModule m
cond {
  c = (s32[], bf16[]) parameter(0)
  n = s32[] get-tuple-element(c), index=0
  four = s32[] constant(4)
  ROOT less = pred[] compare(n, four), direction=LT
}
body {
  b = (s32[], bf16[]) parameter(0)
  k = s32[] get-tuple-element(b), index=0
  v = bf16[] get-tuple-element(b), index=1
  one = s32[] constant(1)
  little = bf16[] constant(0.00390625)
  next = s32[] add(k, one)
  more = bf16[] add(v, little)
  ROOT t = (s32[], bf16[]) tuple(next, more)
}
ENTRY e {
  start = bf16[] parameter(0)
  zero = s32[] constant(0)
  init = (s32[], bf16[]) tuple(zero, start)
  loop = (s32[], bf16[]) while(init), condition=cond, body=body
  carried = bf16[] get-tuple-element(loop), index=1
  step = bf16[] constant(0.00390625)
  sum = bf16[] add(start, step)
  bits = u16[] bitcast-convert(sum)
  again = bf16[] add(sum, step)
  ROOT r = (bf16[], u16[], bf16[]) tuple(carried, bits, again)
}
"""
    for carried, bits, again in both(text, [array_of("bf16", [1.0], ())], excess):
        assert numbers("bf16", carried) == [1.0]
        assert bits == np.uint16(0x3F80)
        assert numbers("bf16", again) == [1 + 2.0**-7 if excess else 1.0]
