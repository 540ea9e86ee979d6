"""Rules that add floats in another order apply with fast_math, and without it say why they do not."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.ir.walk import post_order
from hloopt.passes.examples import rule_examples
from hloopt.rewrite import PassLog
from hloopt.simplify import RULES, Simplify
from tests.passes.proof import check

SUMS = (
    "reduce(reduce(A)) => reduce(A)",
    "reduce-add(dot(A, B)) over batch dimensions => dot(A, B) that contracts them",
    "dot(dot(A, B), C) => dot(A, dot(B, C)) with fewer products",
    "dot(A, dot(B, C)) => dot(dot(A, B), C) with fewer products",
    "dot(concatenate(A, B), C) => dot(A, slice(C)) + dot(B, slice(C))",
    "convolution(pad(A, 0), B) => convolution(A, B)",
    "convolution(A, pad(B, 0)) => convolution(A, B) with a dilated window",
    "convolution(A, B) of single places => dot(A, B)",
    "reduce-max(A) beside arg-max(A) => get-tuple-element(arg-max(A))",
)


def text_of(name: str, element: str) -> str:
    (rule,) = (rule for rule in RULES.rules if rule.name == name)
    text = (
        rule_examples()[rule.name]
        .example.replace("$T", element)
        .replace("s32[2,3,4]", f"{element}[2,3,4]")
    )
    if name == SUMS[0]:
        text = text.replace("s32", element)
    return text if text.startswith("HloModule") else f"HloModule m\nENTRY e {{\n{text}\n}}\n"


# XLA regroups these only where floats are to be real numbers: what is infinite may become NaN.
REAL = frozenset((*SUMS[1:4], SUMS[8]))


@pytest.mark.parametrize("name", SUMS)
def test_sums_of_floats_need_fast_math(name: str) -> None:
    """The example of a rule for integers, with floats: rewritten with the option alone, to near results."""
    text = text_of(name, "f32")
    log = PassLog()
    Simplify().run(hloopt.parse(text, "text"), log)
    assert not log.hits[name]
    _, log = check(text, Simplify(fast_math=True, floats_are_real=name in REAL), rtol=1e-4)
    assert log.hits[name] == 1


def test_a_sum_of_matrices_is_not_sharded_as_they_were() -> None:
    """The dot that contracts the batch has fewer dimensions than the one before it."""
    text = """HloModule m
add {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT s = s32[] add(a, b)
}
ENTRY e {
  x = s32[4,6,5]{2,1,0} parameter(0)
  y = s32[4,5,6]{2,1,0} parameter(1)
  z = s32[] constant(0)
  d = s32[4,6,6]{2,1,0} dot(x, y), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0},
      rhs_contracting_dims={1}, sharding={devices=[2,1,1]0,1}
  ROOT r = s32[6,6]{1,0} reduce(d, z), dimensions={0}, to_apply=add
}
"""
    better, _ = check(text, Simplify())
    assert better.entry.root.opcode == "dot"
    assert "sharding" not in better.entry.root.attributes


def test_a_reason_is_given() -> None:
    """What kept a rule from applying is a remark."""
    log = PassLog(kinds=frozenset({"missed"}))
    Simplify().run(hloopt.parse(text_of(SUMS[0], "f32"), "text"), log)
    assert [remark.reason for remark in log.remarks if remark.rule == SUMS[0]] == [
        "floating-point add in two steps rounds in between"
    ]


@pytest.mark.parametrize("init", ["0", "-0.0"])
def test_a_sum_of_single_elements_is_lost_in_the_next(init: str) -> None:
    """A sum from +0 has no -0 among its terms to show; the first sum may go, bit for bit."""
    text = (
        "HloModule m\nadd { a = f32[] parameter(0)\n b = f32[] parameter(1)\n"
        "ROOT s = f32[] add(a, b) }\nENTRY e { x = f32[3,1,5] parameter(0)\n"
        f"i = f32[] constant({init})\n z = f32[] constant(0)\n"
        "y = f32[3,5] reduce(x, i), dimensions={1}, to_apply=add\n"
        "ROOT r = f32[5] reduce(y, z), dimensions={0}, to_apply=add }\n"
    )
    better, _ = check(text, Simplify(), draws=24)
    needed = post_order(better.entry, (better.entry.root,))
    assert sum(entry.opcode == "reduce" for entry in needed) == 1


def test_a_sum_from_zero_is_never_minus_zero() -> None:
    """A second sum, over single elements of the first, is a reshape."""
    text = (
        "HloModule m\nadd { a = f32[] parameter(0)\n b = f32[] parameter(1)\n"
        "ROOT s = f32[] add(a, b) }\nENTRY e { x = f32[3,1,5] parameter(0)\n"
        "z = f32[] constant(0)\n y = f32[1,5] reduce(x, z), dimensions={0}, to_apply=add\n"
        "ROOT r = f32[5] reduce(y, z), dimensions={0}, to_apply=add }\n"
    )
    _better, log = check(text, Simplify(), draws=24)
    assert log.hits["reduce(A) over single elements => reshape(A)"] == 1
    single = text.replace("x = f32[3,1,5]", "y = f32[1,5]").replace(
        "y = f32[1,5] reduce(x, z), dimensions={0}, to_apply=add\n", ""
    )
    check(single, Simplify(), changes=False)


BESIDE = """HloModule m
max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] maximum(a, b) }
pair { v = f32[] parameter(0) i = s32[] parameter(1) w = f32[] parameter(2) j = s32[] parameter(3)
 g = pred[] compare(v, w), direction=GT
 n = pred[] compare(v, v), direction=NE
 m = pred[] or(g, n)
 e = pred[] compare(v, w), direction=EQ
 l = pred[] compare(i, j), direction=LT
 t = pred[] and(e, l)
 c = pred[] or(m, t)
 x = f32[] select(c, v, w)
 y = s32[] select(c, i, j)
 ROOT r = (f32[], s32[]) tuple(x, y) }
ENTRY e {
 x = f32[3,4] parameter(0)
 y = s32[3,4] iota(), iota_dimension=1
 i = f32[] constant(-inf)
 j = s32[] constant(0)
 t = (f32[3], s32[3]) reduce(x, y, i, j), dimensions={1}, to_apply=pair
 g = s32[3] get-tuple-element(t), index=1
 h = f32[3] reduce(x, i), dimensions={1}, to_apply=max
 ROOT r = (s32[3], f32[3]) tuple(g, h) }
"""


def test_an_arg_max_that_loses_a_nan_is_no_maximum() -> None:
    """With fast_math the maximum is the value an arg-max has chosen, if that is NaN where one is."""
    loses = BESIDE.replace("or(g, n)", "and(g, g)")
    for text, options, hits in (
        (BESIDE, {}, 0),
        (loses, {"fast_math": True}, 0),
        (BESIDE, {"fast_math": True}, 1),
    ):
        module, log = hloopt.parse(text), PassLog()
        Simplify(**options).run(module, log)
        assert log.hits[SUMS[8]] == hits
    given = np.array([[1, np.nan, 3, 2], [-np.inf] * 4, [5, 7, 7, -1]], np.float32)
    for one, other in zip(
        hloopt.evaluate(hloopt.parse(BESIDE), [given]),
        hloopt.evaluate(module, [given]),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
