"""Fused loops by blocks of their work items."""

from __future__ import annotations

import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hloopt
from hloopt.backends.numpy.loop_blocks import BlockedLoop
from hloopt.backends.numpy.loop_plan import Blocking
from hloopt.backends.numpy.program import NumpyProgram
from hloopt.errors import EvaluationError
from hloopt.runtime.program import NumpyOptions
from tests.helpers.support import Array

REGIONS = """HloModule m
sum { p = f32[] parameter(0) q = f32[] parameter(1) ROOT s = f32[] add(p, q) }
most { p = f32[] parameter(0) q = f32[] parameter(1) ROOT s = f32[] maximum(p, q) }
first { p = f32[] parameter(0) q = f32[] parameter(1) ROOT s = f32[] add(p, p) }
"""


def loop(
    state: dict[str, str],
    body: str,
    following: dict[str, str],
    given: str,
    *,
    iterations: int = 3,
    regions: str = "",
) -> hloopt.Module:
    """A fused loop over a counter and ``state`` (name: shape); ``given`` makes the first state by its names."""
    shape = f"(s32[], {', '.join(state.values())})"
    reads = "\n".join(
        f"  {name} = {kind} get-tuple-element(s), index={number}"
        for number, (name, kind) in enumerate(state.items(), 1)
    )
    results = "\n".join(
        f"  r{number} = {kind} get-tuple-element(loop), index={number}"
        for number, kind in enumerate(state.values(), 1)
    )
    names = ", ".join(f"r{number}" for number in range(1, len(state) + 1))
    whole = f"({', '.join(state.values())})"
    parameters = [line for line in given.strip().splitlines() if "parameter(" in line]
    entry = "\n".join(parameters)
    passed = ", ".join(line.split(" = ")[0].strip() for line in parameters)
    text = f"""{REGIONS}{regions}
body {{
  s = {shape} parameter(0)
  i = s32[] get-tuple-element(s), index=0
{reads}
  one = s32[] constant(1)
  zero = s32[] constant(0)
  next = s32[] add(i, one)
{body}
  ROOT r = {shape} tuple(next, {", ".join(following[name] for name in state)})
}}
condition {{
  s = {shape} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant({iterations})
  ROOT c = pred[] compare(i, limit), direction=LT
}}
fused {{
{given}
  start = s32[] constant(0)
  t = {shape} tuple(start, {", ".join(state)})
  loop = {shape} while(t), condition=condition, body=body
{results}
  ROOT root = {whole} tuple({names})
}}
ENTRY e {{
{entry}
  ROOT f = {whole} fusion({passed}), kind=kCustom, calls=fused
}}
"""
    module = hloopt.parse(text)
    hloopt.verify(module)
    return module


def blocked(module: hloopt.Module, arrays: list[Array], units: int) -> list[Array]:
    program = NumpyProgram(module, NumpyOptions(threads=1), blocking=Blocking(work_items=units))
    assert all(words.startswith("runs in") for words in program.loops.values()), program.loops
    assert program.loops
    before = [array.copy() for array in arrays]
    found = program.run(arrays)
    shared = NumpyProgram(module, NumpyOptions(threads=3), blocking=Blocking(work_items=units))
    for one, other in zip(found, shared.run(arrays), strict=True):
        assert one.tobytes() == other.tobytes()
    assert all((one == other).all() for one, other in zip(arrays, before, strict=True))
    return found


def check(module: hloopt.Module, arrays: list[Array], *, exact: bool = True) -> None:
    """Blocks of every size compute what the interpreter does."""
    want = hloopt.evaluate(module, arrays)
    for units in (5, 16, 24):
        for got, expected in zip(blocked(module, arrays, units), want, strict=True):
            assert got.dtype == expected.dtype
            if exact:
                np.testing.assert_array_equal(got, expected)
            else:
                np.testing.assert_allclose(got, expected, rtol=1e-5)


def numbers(*dims: int) -> Array:
    return np.random.default_rng(5).uniform(-2, 2, dims).astype(np.float32)


def test_arrays_along_the_axis_are_cut_wherever_it_stands() -> None:
    """Transposed, reshaped, broadcast, sliced, padded, put together, reversed and sorted along other dimensions."""
    module = loop(
        {"x": "f32[24,3]", "y": "f32[3,24]"},
        """
        t = f32[24,3] transpose(y), dimensions={1,0}
        a = f32[24,3] add(x, t)
        flat = f32[24,1,3] reshape(a)
        back = f32[24,3] reshape(flat)
        turned = f32[24,3] reverse(back), dimensions={1}
        part = f32[24,2] slice(turned), slice={[0:24], [1:3]}
        other = f32[24,1] slice(turned), slice={[0:24:1], [0:1]}
        whole = f32[24,3] concatenate(part, other), dimensions={1}
        z = f32[] constant(0.5)
        padded = f32[24,5] pad(whole, z), padding=0_0x1_1
        cut = f32[24,3] slice(padded), slice={[0:24], [2:5]}
        row = f32[24] reduce(cut, z), dimensions={1}, to_apply=sum
        spread = f32[24,3] broadcast(row), dimensions={0}
        next_x = f32[24,3] subtract(spread, cut)
        next_y = f32[3,24] transpose(next_x), dimensions={1,0}
        """,
        {"x": "next_x", "y": "next_y"},
        "  x = f32[24,3] parameter(0)\n  y = f32[3,24] parameter(1)",
    )
    check(module, [numbers(24, 3), numbers(3, 24)])


def test_what_counts_along_the_axis_goes_on_from_block_to_block() -> None:
    """An iota and a constant of different elements are cut where the block lies, a splat made smaller."""
    module = loop(
        {"x": "f32[24]", "y": "s8[24,2]"},
        """
        n = f32[24] iota(), iota_dimension=0
        c = f32[24] constant({3, 1, 4, 1, 5, 9, 2, 6, 3, 1, 4, 1, 5, 9, 2, 6, 3, 1, 4, 1, 5, 9, 2, 6})
        e = f32[24] constant({2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2})
        nc = f32[24] multiply(n, c)
        ns = f32[24] add(nc, e)
        next_x = f32[24] add(x, ns)
        m = s8[24,2] iota(), iota_dimension=0
        k = s8[24,2] iota(), iota_dimension=1
        mk = s8[24,2] subtract(m, k)
        next_y = s8[24,2] add(y, mk)
        """,
        {"x": "next_x", "y": "next_y"},
        "  x = f32[24] parameter(0)\n  y = s8[24,2] parameter(1)",
    )
    check(module, [numbers(24), np.arange(48, dtype=np.int8).reshape(24, 2)])


def test_one_value_is_whole_for_one_and_cut_for_another() -> None:
    """A table that is multiplied with whole also gives each work item its own element."""
    module = loop(
        {"x": "f32[24,4]", "w": "f32[4,4]", "b": "f32[24]"},
        """
        d = f32[24,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        z = f32[] constant(0)
        total = f32[] reduce(b, z), dimensions={0}, to_apply=sum
        totals = f32[24,4] broadcast(total), dimensions={}
        each = f32[24,4] broadcast(b), dimensions={0}
        e = f32[24,4] subtract(totals, each)
        next_x = f32[24,4] add(d, e)
        """,
        {"x": "next_x", "w": "w", "b": "b"},
        "  x = f32[24,4] parameter(0)\n  w = f32[4,4] parameter(1)\n  b = f32[24] parameter(2)",
    )
    check(module, [numbers(24, 4), numbers(4, 4), numbers(24)], exact=False)


STREAMS = """
        zx = s32[] constant(0)
        row = f32[1,24] dynamic-slice(xs, i, zx), dynamic_slice_sizes={1,24}
        in = f32[24] reshape(row)
        next_x = f32[24] add(x, in)
        part = f32[24,1] reshape(next_x)
        next_out = f32[24,3] dynamic-update-slice(out, part, zx, i)
"""
STREAMED = {"x": "f32[24]", "xs": "f32[3,24]", "out": "f32[24,3]"}
FOLLOWING = {"x": "next_x", "xs": "xs", "out": "next_out"}


def test_rows_are_read_and_written_in_place() -> None:
    """Of what is read a row a trip a block has its part, and what is written goes straight to the result."""
    given_text = """
  x = f32[24] parameter(0)
  xs = f32[3,24] parameter(1)
  z = f32[] constant(7)
  out = f32[24,3] broadcast(z), dimensions={}"""
    for iterations in (0, 1, 2, 3):
        module = loop(STREAMED, STREAMS, FOLLOWING, given_text, iterations=iterations)
        check(module, [numbers(24), numbers(3, 24)])


def test_branches_loops_and_calls_within_the_body() -> None:
    """They are cut with the body, and what counts along the axis within them goes on, too."""
    text = hloopt.parse(NESTED)
    hloopt.verify(text)
    check(text, [numbers(24)])


NESTED = """HloModule m
twice { a = f32[24] parameter(0) n = f32[24] iota(), iota_dimension=0 ROOT b = f32[24] add(a, n) }
yes { p = (f32[24], f32[]) parameter(0) a = f32[24] get-tuple-element(p), index=0
  n = f32[24] iota(), iota_dimension=0 ROOT b = f32[24] multiply(a, n) }
no { a = f32[24] parameter(0) ROOT b = f32[24] negate(a) }
inner {
  p = (s32[], f32[24], f32[24]) parameter(0)
  j = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  k = s32[] add(j, one)
  a = f32[24] get-tuple-element(p), index=1
  n = f32[24] get-tuple-element(p), index=2
  c = f32[24] constant({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24})
  b = f32[24] add(a, n)
  d = f32[24] subtract(b, c)
  ROOT r = (s32[], f32[24], f32[24]) tuple(k, d, n)
}
within {
  p = (s32[], f32[24], f32[24]) parameter(0)
  j = s32[] get-tuple-element(p), index=0
  limit = s32[] constant(2)
  ROOT c = pred[] compare(j, limit), direction=LT
}
body {
  s = (s32[], f32[24]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[24] get-tuple-element(s), index=1
  one = s32[] constant(1)
  zero = s32[] constant(0)
  next = s32[] add(i, one)
  called = f32[24] call(x), to_apply=twice
  limit = s32[] constant(1)
  first = pred[] compare(i, limit), direction=LT
  f = f32[] constant(3)
  pair = (f32[24], f32[]) tuple(called, f)
  chosen = f32[24] conditional(first, pair, called), true_computation=yes, false_computation=no
  n = f32[24] iota(), iota_dimension=0
  t = (s32[], f32[24], f32[24]) tuple(zero, chosen, n)
  w = (s32[], f32[24], f32[24]) while(t), condition=within, body=inner
  y = f32[24] get-tuple-element(w), index=1
  ROOT r = (s32[], f32[24]) tuple(next, y)
}
condition {
  s = (s32[], f32[24]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(3)
  ROOT c = pred[] compare(i, limit), direction=LT
}
fused {
  x = f32[24] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[24]) tuple(zero, x)
  w = (s32[], f32[24]) while(t), condition=condition, body=body
  ROOT r = f32[24] get-tuple-element(w), index=1
}
ENTRY e { x = f32[24] parameter(0) ROOT f = f32[24] fusion(x), kind=kCustom, calls=fused }
"""

COLLECT = """
        z = f32[] constant(ZERO)
        next_x = f32[24] multiply(x, x)
        total = f32[] reduce(next_x, z), dimensions={{0}}, to_apply={reducer}
        half = f32[] constant(0.5)
        mean = f32[] multiply(total, half)
        part = f32[1] reshape(mean)
        next_out = f32[3] dynamic-update-slice(out, part, i)
"""
COLLECTED = "  x = f32[24] parameter(0)\n  out = f32[3] parameter(1)"


def collecting(reducer: str, zero: str) -> hloopt.Module:
    body = COLLECT.format(reducer=reducer).replace("ZERO", zero)
    return loop(
        {"x": "f32[24]", "out": "f32[3]"}, body, {"x": "next_x", "out": "next_out"}, COLLECTED
    )


@pytest.mark.parametrize(("reducer", "zero"), [("sum", "0"), ("sum", "-0"), ("most", "1")])
def test_parts_of_reduces_are_put_together(reducer: str, zero: str) -> None:
    """Of the reduces over the axis that are only written down, trip by trip."""
    check(collecting(reducer, zero), [numbers(24) / 2, numbers(3)], exact=False)


@pytest.mark.parametrize(
    ("reducer", "zero", "words"),
    [("sum", "1", "each part of reduce total would begin with its first value")],
)
def test_parts_that_would_not_add_up_run_whole(reducer: str, zero: str, words: str) -> None:
    """A reduce that begins with something cannot begin with it in each block."""
    program = NumpyProgram(collecting(reducer, zero), blocking=Blocking(work_items=3))
    assert program.loops == {"f": f"runs whole: {words}"}
    arrays = [numbers(24) / 2, numbers(3)]
    want = hloopt.evaluate(collecting(reducer, zero), arrays)
    for got, expected in zip(program.run(arrays), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_parts_are_put_together_in_types_without_infinities() -> None:
    """The greatest of parts begins with the least number there is, not with a NaN."""
    region = "most8 { p = f8e4m3fn[] parameter(0) q = f8e4m3fn[] parameter(1) ROOT s = f8e4m3fn[] maximum(p, q) }"
    body = COLLECT.replace("f32", "f8e4m3fn").format(reducer="most8").replace("ZERO", "-1")
    state = {"x": "f8e4m3fn[24]", "out": "f8e4m3fn[3]"}
    given = COLLECTED.replace("f32", "f8e4m3fn")
    module = loop(state, body, {"x": "next_x", "out": "next_out"}, given, regions=region)
    x = numbers(24).astype(ml_dtypes.float8_e4m3fn)
    check(module, [x, np.zeros(3, ml_dtypes.float8_e4m3fn)])


HALVING = """HloModule m
any { p = pred[] parameter(0) q = pred[] parameter(1) ROOT s = pred[] or(p, q) }
body {
  s = (s32[], f32[24]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[24] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  limit = f32[] constant(1)
  limits = f32[24] broadcast(limit), dimensions={}
  high = pred[24] compare(x, limits), direction=GT
  half = f32[] constant(0.5)
  halves = f32[24] broadcast(half), dimensions={}
  y = f32[24] multiply(x, halves)
  z = f32[24] select(high, y, x)
  ROOT r = (s32[], f32[24]) tuple(next, z)
}
condition {
  s = (s32[], f32[24]) parameter(0)
  x = f32[24] get-tuple-element(s), index=1
  limit = f32[] constant(1)
  limits = f32[24] broadcast(limit), dimensions={}
  high = pred[24] compare(x, limits), direction=GT
  no = pred[] constant(false)
  ROOT c = pred[] reduce(high, no), dimensions={0}, to_apply=any
}
ENTRY e {
  x = f32[24] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[24]) tuple(zero, x)
  w = (s32[], f32[24]) while(t), condition=condition, body=body
  ROOT RESULT
}
"""


def test_each_block_runs_until_its_own_units_are_done() -> None:
    """Where work items may stop by themselves a block does, having asked its own work items alone."""
    text = HALVING.replace("RESULT", "r = f32[24] get-tuple-element(w), index=1")
    module = hloopt.optimize(hloopt.parse(text), "loop-fusion{always=true}")
    check(module, [numbers(24) * 100])


def test_what_all_units_count_is_that_of_the_last_to_end() -> None:
    """The number of trips is asked for: whoever knows it ran the longest."""
    text = HALVING.replace("RESULT", "r = (s32[], f32[24]) tuple(n, y)").replace(
        "  ROOT r = (s32[], f32[24]) tuple(n, y)",
        "  n = s32[] get-tuple-element(w), index=0\n  y = f32[24] get-tuple-element(w), index=1\n"
        "  ROOT r = (s32[], f32[24]) tuple(n, y)",
    )
    module = hloopt.parse(text)
    fused = hloopt.optimize(module, "loop-fusion{always=true}")
    x = numbers(24) * 100
    program = NumpyProgram(fused, blocking=Blocking(work_items=4))
    for got, expected in zip(program.run([x]), hloopt.evaluate(module, [x]), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_a_loop_that_does_not_end_is_stopped_in_a_block() -> None:
    """With the place of the loop in the user's text."""
    text = NESTED.replace("next = s32[] add(i, one)", "next = s32[] multiply(i, one)").replace(
        "y = f32[24] get-tuple-element(w), index=1", "y = f32[24] negate(x)", 1
    )
    text = text.replace("negate(x)", "abs(x)")
    program = NumpyProgram(hloopt.parse(text), blocking=Blocking(work_items=3))
    with pytest.raises(EvaluationError) as error:
        program.run([numbers(24)])
    line = text.splitlines().index(next(one for one in text.splitlines() if "body=body" in one)) + 1
    assert error.value.message == (
        f"<text>:{line}:3: w: the loop does not end: iteration 256 has not changed its state"
    )


def test_failures_within_a_block_name_the_instruction() -> None:
    """As it stands in the user's text, although what runs is a copy."""
    module = loop(
        {"x": "f32[24,2,2]"},
        "  y = f32[24,2,2] cholesky(x), lower=true",
        {"x": "y"},
        "  x = f32[24,2,2] parameter(0)",
    )
    check(module, [np.broadcast_to(np.eye(2, dtype=np.float32) * 4, (24, 2, 2)).copy()])


def test_threads_share_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of them are in a block at the same time."""
    program = NumpyProgram(large(64, 2), NumpyOptions(threads=2), blocking=Blocking(work_items=8))
    real = BlockedLoop._block
    met = threading.Barrier(2, timeout=20)
    waited = threading.local()

    def block(self: Any, *args: Any) -> Any:
        if not getattr(waited, "done", False):
            waited.done = True
            met.wait()
        return real(self, *args)

    monkeypatch.setattr(BlockedLoop, "_block", block)
    x = numbers(64)
    np.testing.assert_array_equal(program.run([x])[0], _grown(x, 2, 3))


def test_small_loops_run_whole() -> None:
    """The threshold and what met it are told."""
    program = NumpyProgram(hloopt.parse(NESTED))
    (words,) = program.loops.values()
    assert words.startswith("runs whole: an iteration touches ")
    assert words.endswith(" bytes, at most 8388608")


def large(units: int, ops: int) -> hloopt.Module:
    body = "\n".join(
        f"  a{at} = f32[{units}] add({f'a{at - 1}' if at else 'x'}, x)" for at in range(ops)
    )
    given_text = f"  x = f32[{units}] parameter(0)"
    return loop({"x": f"f32[{units}]"}, body, {"x": f"a{ops - 1}"}, given_text)


def test_large_loops_run_by_blocks_that_fit() -> None:
    """Of a few thousand work items each, that many that what an iteration touches stays in a core's own cache."""
    units = 1 << 22
    program = NumpyProgram(large(units, 8))
    (words,) = program.loops.values()
    count, size = (int(word) for word in words.split() if word.isdigit())
    assert count == -(-units // size)
    assert 16384 <= size <= 1 << 17
    x = numbers(units)
    np.testing.assert_array_equal(program.run([x])[0], _grown(x, 8, 3))


def _grown(x: Array, ops: int, iterations: int) -> Array:
    for _ in range(iterations):
        start = x
        for _ in range(ops):
            x = x + start
    return x


def test_an_array_that_nobody_else_needs_is_written_over() -> None:
    """The parameter of a program is not; an array made for the loop is."""
    module = loop(
        {"x": "f32[24]"}, "  y = f32[24] negate(x)", {"x": "y"}, "  x = f32[24] parameter(0)"
    )
    check(module, [numbers(24)])


def test_blocks_keep_of_a_trip_what_buffers_keep() -> None:
    """With excess precision a chain within a trip is in f32, the state between trips in bf16."""
    module = loop(
        {"x": "bf16[24]"},
        "  a = bf16[24] multiply(x, x)\n  y = bf16[24] add(a, x)",
        {"x": "y"},
        "  x = bf16[24] parameter(0)",
    )
    x = numbers(24).astype(ml_dtypes.bfloat16)
    program = NumpyProgram(
        module, NumpyOptions(excess_precision=True), blocking=Blocking(work_items=5)
    )
    assert program.loops == {"f": "runs in 5 blocks of 5 work items"}
    (wanted,) = hloopt.evaluate(module, [x], excess_precision=True)
    (strict,) = hloopt.evaluate(module, [x])
    assert (wanted != strict).any()
    np.testing.assert_array_equal(program.run([x])[0], wanted)
