"""Loops in parallel form give what they give one iteration after another, whatever the recurrence."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.findings.recurrences import _in_parallel
from hloopt.prover.compare import compare_modules
from hloopt.prover.trials import TrialOptions

LOOP = """HloModule loop
body {{
  state = (s32[], f32[3], f32[{count},3], f32[{count},3], f32[3]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  h = f32[3] get-tuple-element(state), index=1
  xs = f32[{count},3] get-tuple-element(state), index=2
  ys = f32[{count},3] get-tuple-element(state), index=3
  g = f32[3] get-tuple-element(state), index=4
  zero = s32[] constant(0)
  one = s32[] constant(1)
  most = s32[] constant({last})
  back = s32[] subtract(most, i)
  cut = f32[1,3] dynamic-slice(xs, {place}, zero), dynamic_slice_sizes={{1,3}}
  x = f32[3] reshape(cut)
  half = f32[3] constant({{0.5, -0.5, 0.25}})
{body}
  row = f32[1,3] reshape(out)
  written = f32[{count},3] dynamic-update-slice(ys, row, {place}, zero)
  step = s32[] add(i, one)
  ROOT r = (s32[], f32[3], f32[{count},3], f32[{count},3], f32[3]) tuple(step, next, xs, written, {other})
}}
condition {{
  state = (s32[], f32[3], f32[{count},3], f32[{count},3], f32[3]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  most = s32[] constant({count})
  ROOT c = pred[] compare(i, most), direction=LT
}}
ENTRY main {{
  h = f32[3] parameter(0)
  xs = f32[{count},3] parameter(1)
  ys = f32[{count},3] parameter(2)
  g = f32[3] parameter(3)
  zero = s32[] constant(0)
  state = (s32[], f32[3], f32[{count},3], f32[{count},3], f32[3]) tuple(zero, h, xs, ys, g)
  loop = (s32[], f32[3], f32[{count},3], f32[{count},3], f32[3]) while(state), condition=condition, body=body
  a = f32[3] get-tuple-element(loop), index=1
  b = f32[{count},3] get-tuple-element(loop), index=3
  c = f32[3] get-tuple-element(loop), index=4
  d = s32[] get-tuple-element(loop), index=0
  ROOT r = (f32[3], f32[{count},3], f32[3], s32[]) tuple(a, b, c, d)
}}
"""
RECURRENCES = {
    "sum": "next = f32[3] add(h, x)\n out = f32[3] copy(next)",
    "the value before": "next = f32[3] add(x, h)\n out = f32[3] sine(h)",
    "product": "next = f32[3] multiply(h, x)\n out = f32[3] negate(next)",
    "maximum": "next = f32[3] maximum(x, h)\n out = f32[3] subtract(next, x)",
    "linear": "k = f32[3] multiply(h, half)\n next = f32[3] add(k, x)\n out = f32[3] tanh(next)",
    "difference": "next = f32[3] subtract(x, h)\n out = f32[3] add(next, g)",
    "both sides": "d = f32[3] subtract(x, h)\n k = f32[3] multiply(d, half)\n"
    " next = f32[3] add(h, k)\n out = f32[3] abs(next)",
    "quotient": "two = f32[3] add(half, half)\n k = f32[3] divide(h, two)\n"
    " next = f32[3] subtract(k, x)\n out = f32[3] abs(h)",
    "starts again": "p = pred[3] compare(x, half), direction=GT\n k = f32[3] add(h, x)\n"
    " next = f32[3] select(p, x, k)\n out = f32[3] abs(next)",
    "counted": "f = f32[] convert(i)\n fs = f32[3] broadcast(f), dimensions={}\n"
    " k = f32[3] multiply(fs, x)\n next = f32[3] add(h, k)\n out = f32[3] add(next, fs)",
    "one of two": "k = f32[3] multiply(g, half)\n next = f32[3] add(h, k)\n out = f32[3] add(next, x)",
}
OTHERS = {
    "square": "next = f32[3] multiply(h, h)\n out = f32[3] add(next, x)",
    "not linear": "k = f32[3] tanh(h)\n next = f32[3] add(k, x)\n out = f32[3] add(next, x)",
    "its own chooser": "p = pred[3] compare(h, half), direction=GT\n k = f32[3] add(h, x)\n"
    " next = f32[3] select(p, x, k)\n out = f32[3] abs(next)",
}


def text(body: str, *, count: int, place: str = "i", other: str = "g") -> hloopt.Module:
    """A loop with that body."""
    return hloopt.parse(
        LOOP.format(body=body, count=count, last=count - 1, place=place, other=other)
    )


@pytest.mark.every_value
@pytest.mark.parametrize("count", [16, 21])
@pytest.mark.parametrize("place", ["i", "back"])
@pytest.mark.parametrize("name", RECURRENCES)
def test_the_results_are_those_of_the_loop(name: str, place: str, count: int) -> None:
    """Upwards and downwards, of even and of odd length, with no loop left."""
    other = "x" if name == "one of two" else "g"
    before = text(RECURRENCES[name], count=count, place=place, other=other)
    after = text(RECURRENCES[name], count=count, place=place, other=other)
    assert _in_parallel(after, [after["loop"]])
    hloopt.verify(after)
    assert all(one.opcode != "while" for one in after.instructions())
    made = compare_modules(before, after, trials=TrialOptions(trials=1))
    assert made.verdict in ("equal", "within tolerance")


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_recurrence_stays_a_loop(name: str) -> None:
    """The module says so without a trial."""
    found = hloopt.why(text(OTHERS[name], count=20), kinds=["parallel-scan"])
    assert not found.rows
    assert not found.useless


def test_a_sum_of_which_only_the_last_value_is_read_is_a_reduction() -> None:
    """The remedy says so, too."""
    body = RECURRENCES["sum"].replace("copy(next)", "sine(x)")
    (row,) = hloopt.why(text(body, count=40), kinds=["parallel-scan"]).rows
    assert "element 1 (h = h + b)" in row.why
    assert row.remedies[0].text.startswith("jnp.sum")
    assert row.gain.after < row.gain.before / 5


MAP = """
HloModule rows_one_by_one
add {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }}
body {{
  state = (s32[], f32[64,32,32], f32[64,32,32], f32[64,32]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  xs = f32[64,32,32] get-tuple-element(state), index=1
  ys = f32[64,32,32] get-tuple-element(state), index=2
  out = f32[64,32] get-tuple-element(state), index=3
  zero = s32[] constant(0)
  nothing = f32[] constant(0)
  cut = f32[1,32,32] dynamic-slice(xs, {place}, zero, zero), dynamic_slice_sizes={{1,32,32}}
  x = f32[32,32] reshape(cut)
  next = f32[1,32,32] dynamic-slice(ys, i, zero, zero), dynamic_slice_sizes={{1,32,32}}
  y = f32[32,32] reshape(next)
  d = f32[32,32] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
  s = f32[32] reduce(d, nothing), dimensions={{0}}, to_apply=add
  row = f32[1,32] reshape(s)
  written = f32[64,32] dynamic-update-slice(out, row, i, zero)
  one = s32[] constant(1)
  step = s32[] add(i, one)
  ROOT r = (s32[], f32[64,32,32], f32[64,32,32], f32[64,32]) tuple(step, xs, ys, written)
}}
condition {{
  state = (s32[], f32[64,32,32], f32[64,32,32], f32[64,32]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  most = s32[] constant(64)
  ROOT c = pred[] compare(i, most), direction=LT
}}
ENTRY main {{
  xs = f32[64,32,32] parameter(0)
  ys = f32[64,32,32] parameter(1)
  zero = s32[] constant(0)
  nothing = f32[] constant(0)
  out = f32[64,32] broadcast(nothing), dimensions={{}}
  state = (s32[], f32[64,32,32], f32[64,32,32], f32[64,32]) tuple(zero, xs, ys, out)
  loop = (s32[], f32[64,32,32], f32[64,32,32], f32[64,32]) while(state), condition=condition, body=body
  ROOT r = f32[64,32] get-tuple-element(loop), index=3
}}
"""


def test_iterations_that_share_nothing_are_one() -> None:
    """As jax.vmap makes them of jax.lax.map, products of two mapped sides included."""
    found = hloopt.why(hloopt.parse(MAP.format(place="i")), "h200", kinds=["parallel-scan"])
    (row,) = found.rows
    assert "none of them reads what another one writes" in row.why
    assert "jax.vmap(f)(xs)" in row.remedies[0].text
    assert row.gain.before > 20 * row.gain.after
    assert row.gain.verdict in ("equal", "within tolerance")


def test_rows_in_another_order_are_no_map() -> None:
    """Row ``i * i`` is none that a slice of all rows gives."""
    text = MAP.format(place="square").replace("  cut =", "  square = s32[] multiply(i, i)\n  cut =")
    assert not hloopt.why(hloopt.parse(text), "h200", kinds=["parallel-scan"]).rows
