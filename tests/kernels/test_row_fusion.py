"""Clusters of rows: what one kernel takes, what it writes for others, and what stays apart."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.analysis.backend_config import custom_name
from hloopt.fusion.history import FusionPlan
from hloopt.ir import Instruction, Module
from hloopt.kernels.row_fusion import RowFusion
from tests.helpers.rarely import examples
from tests.helpers.support import invoke

REGIONS = """sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] maximum(a, b) }
"""
SOFTMAX = """low = f32[] constant(-inf)
  m = f32[64] reduce({x}, low), dimensions={{1}}, to_apply=max
  mb = f32[64,512] broadcast(m), dimensions={{0}}
  s = f32[64,512] subtract({x}, mb)
  e = f32[64,512] exponential(s)
  zero = f32[] constant(0)
  n = f32[64] reduce(e, zero), dimensions={{1}}, to_apply=sum
  nb = f32[64,512] broadcast(n), dimensions={{0}}
  {root} f32[64,512] divide(e, nb)"""


def _fused(body: str, **options: bool | int) -> tuple[Module, Module, FusionPlan]:
    """The module as it was, and as it is after the pass and dce, with what was decided."""
    before = hloopt.parse(f"HloModule m\n{REGIONS}ENTRY e {{\n  {body}\n}}\n")
    after = hloopt.parse(before.to_text())
    plan = RowFusion(**options).fuse(after)  # type: ignore[arg-type]
    hloopt.verify(after)
    return before, hloopt.optimize(after, "dce"), plan


def _rows(module: Module) -> list[Instruction]:
    return [one for one in module.entry if custom_name(one) == "whole-row"]


def _assert_equal(before: Module, after: Module) -> None:
    """The same bits: the body of the fusion is what stood there."""
    rng = np.random.default_rng(3)
    inputs = [
        rng.standard_normal(shape.dims).astype(np.float32)
        for shape in before.entry.parameter_shapes
    ]
    for one, other in zip(
        hloopt.evaluate(before, inputs), hloopt.evaluate(after, inputs), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_a_softmax_is_one_kernel() -> None:
    """Both reductions and all around them; constants come along, the fusion reads the argument alone."""
    x = "x = f32[64,512] parameter(0)\n  "
    before, after, plan = _fused(x + SOFTMAX.format(x="x", root="ROOT y ="))
    (fusion,) = _rows(after)
    assert after.entry.root is fusion
    assert [one.name for one in fusion.operands] == ["x"]
    assert {step.consumer for step in plan.steps} == {"y", fusion.name}
    _assert_equal(before, after)


@pytest.mark.parametrize(("classes", "kernels"), [(3, 0), (5, 1), (10, 1), (21, 1)])
def test_a_softmax_over_a_few_classes(classes: int, kernels: int) -> None:
    """Of 4 each element folds its row by itself; from 5 on a kernel of rows takes less."""
    x = "x = f32[64,512] parameter(0)\n  "
    body = (x + SOFTMAX.format(x="x", root="ROOT y =")).replace("512", str(classes))
    before, after, _ = _fused(body)
    assert len(_rows(after)) == kernels
    _assert_equal(before, after)


PACKED = """w = f32[8,8] parameter(0)
  zero = f32[] constant(0)
  n = f32[8] reduce(w, zero), dimensions={1}, to_apply=sum
  ROOT y = f32[8] sqrt(n)"""


def test_short_rows_that_a_loop_takes_as_well() -> None:
    """The loop can join more around it, such as what reads the same values."""
    _, after, plan = _fused(PACKED)
    assert not _rows(after)
    assert [refusal.decision.code for refusal in plan.refusals] == ["rows-short"]


STEP = """  {x}b = f32[{n},8] broadcast({x}), dimensions={{1}}
  {x}p = f32[{n},8] multiply(w, {x}b)
  {x}n = f32[{n}] reduce({x}p, zero), dimensions={{1}}, to_apply=sum
"""


@pytest.mark.parametrize(
    ("rows", "end", "always", "codes"),
    [
        (8, "ROOT y = f32[8] tanh(xn)", False, ["rows-short"]),
        (8, "ROOT y = f32[8] tanh(xn)", True, []),
        (256, "ROOT y = f32[256] tanh(xn)", False, ["rows-slower"]),
        (
            8,
            "b = f32[8,8] broadcast(xn), dimensions={0}\nROOT y = f32[8,8] divide(xp, b)",
            False,
            [],
        ),
    ],
)
def test_few_numbers_that_several_kernels_can_compute(
    rows: int, end: str, always: bool, codes: list[str]
) -> None:
    """A small product before an activation, as in a step of a recurrence, unless the kernel is asked for.

    More rows, and elements that are computed from a reduction, are decided by the times.
    """
    body = f"w = f32[{rows},8] parameter(0)\nx = f32[8] parameter(1)\nzero = f32[] constant(0)\n"
    body += STEP.format(x="x", n=rows) + end
    before, after, plan = _fused(body, always=always)
    assert [refusal.decision.code for refusal in plan.refusals] == codes
    assert len(_rows(after)) == (not codes)
    _assert_equal(before, after)


def test_a_residual_is_a_further_result() -> None:
    """What is added before a softmax and read after a product is written by the same kernel."""
    body = f"""x = f32[64,512] parameter(0)
  r = f32[64,512] parameter(1)
  w = f32[512,512] parameter(2)
  h = f32[64,512] add(x, r)
  {SOFTMAX.format(x="h", root="p =")}
  d = f32[64,512] dot(p, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  t = f32[512,64] transpose(h), dimensions={{1,0}}
  ROOT o = (f32[64,512], f32[512,64]) tuple(d, t)"""
    before, after, _ = _fused(body)
    (fusion,) = _rows(after)
    assert [str(shape) for shape in fusion.shape.elements] == ["f32[64,512]"] * 2
    assert not [one for one in after.entry if one.opcode == "add"]
    _assert_equal(before, after)


def test_what_is_cheap_to_compute_again_is_not_written() -> None:
    """An elementwise reader elsewhere computes the difference itself, from x and the row's maximum."""
    body = f"""x = f32[64,512] parameter(0)
  w = f32[512,512] parameter(1)
  {SOFTMAX.format(x="x", root="p =")}
  d = f32[64,512] dot(p, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT o = f32[64,512] multiply(d, s)"""
    before, after, _ = _fused(body)
    (fusion,) = _rows(after)
    assert sorted(str(shape) for shape in fusion.shape.elements) == [
        "f32[64,512]",
        "f32[64]",
    ]
    assert [one.opcode for one in after.entry if one.opcode in ("subtract", "exponential")] == [
        "subtract"
    ]
    _assert_equal(before, after)


def test_sums_over_the_rows_come_along() -> None:
    """Of a value that waits for the row, and of an argument; not where a member needs the sum."""
    body = f"""x = f32[64,512] parameter(0)
  d = f32[64,512] parameter(1)
  {SOFTMAX.format(x="x", root="p =")}
  pd = f32[64,512] multiply(p, d)
  g = f32[512] reduce(pd, zero), dimensions={{0}}, to_apply=sum
  b = f32[512] reduce(x, zero), dimensions={{0}}, to_apply=sum
  ROOT o = (f32[64,512], f32[512], f32[512]) tuple(p, g, b)"""
    before, after, _ = _fused(body)
    (fusion,) = _rows(after)
    assert len(fusion.shape.elements) == 3
    _assert_equal(before, after)


def test_a_sum_that_the_rows_wait_for_stays_apart() -> None:
    """Columns first, then rows: two kernels, in this order."""
    body = f"""x = f32[64,512] parameter(0)
  start = f32[] constant(0)
  c = f32[512] reduce(x, start), dimensions={{0}}, to_apply=sum
  cb = f32[64,512] broadcast(c), dimensions={{1}}
  h = f32[64,512] subtract(x, cb)
  {SOFTMAX.format(x="h", root="ROOT y =")}"""
    before, after, _ = _fused(body)
    (fusion,) = _rows(after)
    assert "c" in [one.name for one in fusion.operands]
    assert after.entry["c"].opcode == "reduce"
    _assert_equal(before, after)


def test_no_path_leaves_and_comes_back() -> None:
    """What is computed from a product of the softmax is not in the softmax's kernel."""
    first = SOFTMAX.format(x="x", root="p =")
    second = re.sub(r"\b(low|m|mb|s|e|zero|n|nb)\b(?=[ ,)])(?! = fold)", r"\1.2", SOFTMAX)
    second = second.format(x="h", root="ROOT y =")
    body = f"""x = f32[64,512] parameter(0)
  w = f32[512,512] parameter(1)
  {first}
  d = f32[64,512] dot(p, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  h = f32[64,512] add(x, d)
  {second}"""
    before, after, _ = _fused(body)
    assert len(_rows(after)) == 2
    _assert_equal(before, after)


def test_a_running_sum_is_one_kernel() -> None:
    """With the product before it and the scale after it; other windows stay."""
    body = """x = f32[64,512] parameter(0)
  p = f32[64,512] multiply(x, x)
  zero = f32[] constant(0)
  s = f32[64,512] reduce-window(p, zero), window={size=1x512 pad=0_0x511_0}, to_apply=sum
  half = f32[] constant(0.5)
  halves = f32[64,512] broadcast(half), dimensions={}
  h = f32[64,512] multiply(s, halves)
  w = f32[64,510] reduce-window(h, zero), window={size=1x3}, to_apply=sum
  ROOT o = (f32[64,512], f32[64,510]) tuple(h, w)"""
    before, after, _ = _fused(body)
    (fusion,) = [one for one in after.entry if custom_name(one) == "running-reduction"]
    assert [one.name for one in fusion.operands] == ["x"]
    assert [one.name for one in after.entry if one.opcode == "reduce-window"] == ["w"]
    _assert_equal(before, after)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (
            SOFTMAX.format(x="x", root="ROOT y =").replace("64", "1").replace("512", "900000"),
            "rows-slower",
        ),
        (
            """zero = f64[] constant(0)
  s = f64[64] reduce(x, zero), dimensions={1}, to_apply=twisted
  b = f64[64,512] broadcast(s), dimensions={0}
  ROOT y = f64[64,512] subtract(x, b)""",
            "rows-unfit",
        ),
    ],
)
def test_refusals(body: str, code: str) -> None:
    """What no kernel takes, and what takes longer that way, is refused with the reason."""
    regions = """twisted { a = f64[] parameter(0) b = f64[] parameter(1) n = f64[] negate(a)
  ROOT c = f64[] add(n, b) }
"""
    shape = "f64[64,512]" if "f64" in body else "f32[1,900000]"
    text = f"HloModule m\n{REGIONS}{regions}ENTRY e {{\n  x = {shape} parameter(0)\n  {body}\n}}\n"
    module = hloopt.parse(text)
    plan = RowFusion().fuse(module)
    assert [refusal.decision.code for refusal in plan.refusals] == [code]
    assert not _rows(module)


def test_no_fuel() -> None:
    """The most fusions that may be made is a limit as everywhere."""
    x = "x = f32[64,512] parameter(0)\n  "
    _, after, plan = _fused(x + SOFTMAX.format(x="x", root="ROOT y ="), fuel=0)
    assert not _rows(after)
    assert [refusal.decision.code for refusal in plan.refusals] == ["out-of-fuel"]


_MAKERS: dict[str, Callable[[str, str], str]] = {
    "add": lambda a, b: f"f32[40,40] add({a}, {b})",
    "negate": lambda a, _: f"f32[40,40] negate({a})",
    "multiply": lambda a, b: f"f32[40,40] multiply({a}, {b})",
    "transpose": lambda a, _: f"f32[40,40] transpose({a}), dimensions={{1,0}}",
    "dot": lambda a, b: (
        f"f32[40,40] dot({a}, {b}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
    ),
    "rows": lambda a, _: f"f32[40] reduce({a}, zero), dimensions={{1}}, to_apply=sum",
    "columns": lambda a, _: f"f32[40] reduce({a}, zero), dimensions={{0}}, to_apply=sum",
    "over rows": lambda a, _: f"f32[40,40] broadcast({a}), dimensions={{0}}",
    "over columns": lambda a, _: f"f32[40,40] broadcast({a}), dimensions={{1}}",
    "small": lambda a, b: f"f32[40] subtract({a}, {b})",
}
"""Rows are as long as there are rows: only dimensions tell them apart."""


@given(st.data())
@settings(max_examples=examples(25), deadline=None)
def test_random_graphs_keep_their_bits(data: st.DataObject) -> None:
    """Whatever reduces, spreads, mixes and comes back: the module stays valid, and every bit the same."""
    lines = ["x = f32[40,40] parameter(0)", "v = f32[40] parameter(1)", "zero = f32[] constant(0)"]
    full, single = ["x"], ["v"]
    for number in range(data.draw(st.integers(3, 16))):
        kind = data.draw(st.sampled_from(sorted(_MAKERS)))
        source = single if kind in ("over rows", "over columns", "small") else full
        operands = [data.draw(st.sampled_from(source[-5:])) for _ in range(2)]
        made = _MAKERS[kind](*operands)
        lines.append(f"i{number} = {made}")
        (full if made.startswith("f32[40,40]") else single).append(f"i{number}")
    results = [*full[-2:], *single[-2:]]
    shapes = ", ".join("f32[40,40]" if one in full else "f32[40]" for one in results)
    lines.append(f"ROOT o = ({shapes}) tuple({', '.join(results)})")
    before, after, _ = _fused("\n  ".join(lines), always=True)
    _assert_equal(before, after)


def test_kernels_that_read_each_other_s_values() -> None:
    """A value that one kernel writes is not computed by another, whichever is made first."""
    body = f"""x = f32[64,512] parameter(0)
  w = f32[512,512] parameter(1)
  {SOFTMAX.format(x="x", root="p =")}
  d = f32[64,512] dot(p, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  q = f32[64,512] multiply(p, x)
  h = f32[64,512] multiply(q, d)
  v = f32[64] reduce(h, zero), dimensions={{1}}, to_apply=sum
  vb = f32[64,512] broadcast(v), dimensions={{0}}
  t = f32[64,512] subtract(h, vb)
  ROOT o = (f32[64,512], f32[64,512]) tuple(t, q)"""
    before, after, _ = _fused(body)
    assert len(_rows(after)) == 2
    for fusion in _rows(after):
        assert all(one.users or one.is_root for one in fusion.calls)
    _assert_equal(before, after)


def test_clusters_that_meet_in_front_of_all_that_is_between_them() -> None:
    """``q`` follows a product of ``a``, and ``t``, beside ``a``, needs the sines: one kernel cannot have both."""
    body = """x = f32[33,33] parameter(0)
  a = f32[33,33] divide(x, x)
  b = f32[33,33] multiply(a, a)
  zero = f32[] constant(0)
  n = f32[33] reduce(b, zero), dimensions={1}, to_apply=sum
  nb = f32[33,33] broadcast(n), dimensions={0}
  d = f32[33,33] dot(a, a), lhs_contracting_dims={0}, rhs_contracting_dims={1}
  i = f32[33] iota(), iota_dimension=0
  s = f32[33] sine(i)
  sb = f32[33,33] broadcast(s), dimensions={1}
  p = f32[33,33] multiply(d, sb)
  m = f32[33] reduce(d, zero), dimensions={1}, to_apply=sum
  t = f32[33,33] subtract(sb, nb)
  q = f32[33] multiply(m, s)
  ROOT o = (f32[33,33], f32[33,33], f32[33], f32[33,33], f32[33], f32[33]) tuple(p, t, q, b, n, s)"""
    _assert_equal(*_fused(body, always=True)[:2])


def test_what_is_picked_of_sums_over_the_rows_stays_apart() -> None:
    """One row: its sums over the rows are as long as it, and a kernel that picks from them needs them all."""
    body = """x = f32[64,1] parameter(0)
  e = f32[64,1] exponential(x)
  zero = f32[] constant(0)
  n = f32[64] reduce(e, zero), dimensions={1}, to_apply=sum
  t = (f32[8], s32[8]) topk(n), k=8, largest=false
  v = f32[8] get-tuple-element(t), index=0
  a = f32[8] negate(v)
  nb = f32[64,1] broadcast(n), dimensions={0}
  d = f32[64,1] divide(e, nb)
  far = f32[64,64,1] broadcast(d), dimensions={1,2}
  ROOT o = (f32[8], f32[64,64,1]) tuple(a, far)"""
    _assert_equal(*_fused(body, always=True)[:2])


def test_running_sums_of_no_rows() -> None:
    body = """x = f32[0,17,129] parameter(0)
  zero = f32[] constant(0)
  n = f32[0,17,129] negate(x)
  ROOT r = f32[0,17,129] reduce-window(n, zero), window={size=1x1x129 pad=0_0x0_0x128_0}, to_apply=sum"""
    _, after, plan = _fused(body, always=True)
    assert not plan.steps
    assert all(one.opcode != "fusion" for one in after.entry)


def test_a_lock_file_makes_the_same_kernels_again(tmp_path: Path) -> None:
    """All that joined is recorded: members, further results, sums over the rows of an argument."""
    body = f"""x = f32[64,512] parameter(0)
  d = f32[64,512] parameter(1)
  {SOFTMAX.format(x="x", root="p =")}
  pd = f32[64,512] multiply(p, d)
  g = f32[512] reduce(pd, zero), dimensions={{0}}, to_apply=sum
  b = f32[512] reduce(d, zero), dimensions={{0}}, to_apply=sum
  ROOT o = (f32[64,512], f32[512], f32[512]) tuple(p, g, b)"""
    given, lock = tmp_path / "m.hlo", tmp_path / "lock.toml"
    given.write_text(f"HloModule m\n{REGIONS}ENTRY e {{\n  {body}\n}}\n")
    words = ("optimize", str(given), "--passes", "row-fusion,dce")
    first = invoke(*words, "--write-lock", str(lock))
    again = invoke(*words, "--lock", str(lock), "--frozen")
    assert (first.exit_code, again.exit_code) == (0, 0), again.stderr
    assert "kCustom" in first.stdout
    one, other = (hloopt.parse(found.stdout) for found in (first, again))
    assert _bodies(one) == _bodies(other)


def _bodies(module: Module) -> list[list[str]]:
    """What the fusions compute, in whatever order, and whatever their computations are called."""
    return [
        sorted(f"{inner.opcode} {inner.shape}" for inner in one.calls)
        for one in module.entry
        if one.opcode == "fusion"
    ]
