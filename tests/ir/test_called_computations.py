"""Called computations are told apart by their attributes, never by the order in which those are written."""

from __future__ import annotations

from itertools import permutations

import pytest

import hloopt
from hloopt.ir.walk import called_computations, calls_by_attribute
from hloopt.pipelines import PASSES, parse_pipeline
from tests.passes.proof import identical, inputs

BRANCHES = """HloModule m
f { t = (f32[4], f32[4]) parameter(0)
  a = f32[4] get-tuple-element(t), index=0
  n = f32[4] negate(a)
  ROOT r = (f32[4]) tuple(n) }
g { t = (f32[4], f32[4]) parameter(0)
  a = f32[4] get-tuple-element(t), index=1
  n = f32[4] abs(a)
  ROOT r = (f32[4]) tuple(n) }
ENTRY e { x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  p = pred[] parameter(2)
  t = (f32[4], f32[4]) tuple(x, y)
  u = (f32[4], f32[4]) tuple(y, x)
  ROOT r = (f32[4]) conditional(p, t, u), %s }
"""
LOOP = """HloModule m
body { s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[4] get-tuple-element(s), index=1
  y = f32[4] negate(x)
  ROOT r = (s32[], f32[4]) tuple(next, y) }
condition { s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  three = s32[] constant(3)
  ROOT r = pred[] compare(i, three), direction=LT }
ENTRY e { x = f32[4] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[4]) tuple(zero, x)
  ROOT r = (s32[], f32[4]) while(s), %s }
"""
WINDOWS = """HloModule m
ge { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GE }
last { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(b, a) }
ENTRY e { x = f32[4] parameter(0)
  y = f32[2] parameter(1)
  zero = f32[] constant(0)
  ROOT r = f32[4] select-and-scatter(x, y, zero), %s }
"""
CASES = [
    (BRANCHES, ("true_computation=g", "false_computation=f")),
    (BRANCHES, ("true_computation=f", "false_computation=g")),
    (LOOP, ("condition=condition", "body=body")),
    (WINDOWS, ("window={size=2 stride=2}", "select=ge", "scatter=last")),
]


def spellings(case: tuple[str, tuple[str, ...]]) -> list[str]:
    text, attributes = case
    return [text % ", ".join(order) for order in permutations(attributes)]


@pytest.mark.parametrize("case", CASES)
def test_the_order_of_attributes_does_not_matter(case: tuple[str, tuple[str, ...]]) -> None:
    """Nothing, each pass alone, and the levels leave a module of any order with the same results."""
    first, *others = spellings(case)
    rows = [inputs(hloopt.parse(first), seed) for seed in (0, 1)]  # both values of a predicate
    wanted = [hloopt.evaluate(hloopt.parse(first), row) for row in rows]
    for text in others:
        for pipeline in ("", *PASSES, "O1", "O2", "O3"):
            module = hloopt.parse(text)
            parse_pipeline(pipeline).run(module, verify_each=True)
            for row, want in zip(rows, wanted, strict=True):
                assert all(map(identical, want, hloopt.evaluate(module, row))), pipeline
        for row, want in zip(rows, wanted, strict=True):
            assert all(map(identical, want, hloopt.compile(hloopt.parse(text)).run(row)))


@pytest.mark.parametrize("case", CASES)
def test_calls_come_in_the_order_of_the_schema(case: tuple[str, tuple[str, ...]]) -> None:
    """As the op's row has them, whatever the order in the text, or in which a pass set them."""
    orders = set()
    for text in spellings(case):
        root = hloopt.parse(text).entry.root
        schema = [name for name in root.op.computation_attributes() if name in root.attributes]
        assert list(calls_by_attribute(root)) == schema
        orders.add(tuple(called.name for called in called_computations(root)))
    assert len(orders) == 1


def test_calls_of_unknown_attributes_come_last() -> None:
    """By name, so that their order does not depend on the text, either."""
    text = """HloModule m
f { ROOT p = f32[] parameter(0) }
g { ROOT p = f32[] parameter(0) }
h { ROOT p = f32[] parameter(0) }
ENTRY e { x = f32[] parameter(0)
  ROOT r = f32[] custom-call(x), later=%g, earlier=%h, to_apply=%f, custom_call_target="t" }
"""
    root = hloopt.parse(text).entry.root
    assert list(calls_by_attribute(root)) == ["to_apply", "earlier", "later"]
