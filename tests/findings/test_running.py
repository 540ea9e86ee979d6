"""Running reductions in linear form: of any region, from either end."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import DEFAULT, model_for
from hloopt.findings import Planner
from hloopt.findings.running import reductions
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir.build import clone_module
from hloopt.prover.compare import compare_modules
from hloopt.prover.trials import TrialOptions
from hloopt.rewrite import Pipeline
from hloopt.targets import find_target
from hloopt.verifier import verify_module

TEXT = """HloModule m
fold {{ a = {kind}[] parameter(0) b = {kind}[] parameter(1) {region} }}
ENTRY main {{
  x = {kind}[{dims}] parameter(0)
  i = {kind}[] constant({init})
  ROOT r = {kind}[{dims}] reduce-window(x, i), window={{{window}}}, to_apply=fold
}}
"""
ADD, MAX = "ROOT r = {kind}[] add(a, b)", "ROOT r = {kind}[] maximum(a, b)"
LOG = """m = f32[] maximum(a, b) s = f32[] subtract(a, b) d = f32[] abs(s) n = f32[] negate(d)
e = f32[] exponential(n) l = f32[] log-plus-one(e) ROOT r = f32[] add(m, l)"""


def module(kind: str, dims: str, window: str, region: str, init: str) -> hloopt.Module:
    region = region.format(kind=kind)
    return hloopt.parse(TEXT.format(kind=kind, dims=dims, window=window, region=region, init=init))


@pytest.mark.parametrize(
    ("kind", "dims", "window", "region", "init"),
    [
        ("f32", "33,5", "size=33x1 pad=32_0x0_0", ADD, "0"),
        ("f32", "4,100", "size=1x100 pad=0_0x0_99", ADD, "0"),
        ("bf16", "2,64,3", "size=1x64x1 pad=0_0x63_0x0_0", MAX, "-inf"),
        ("s32", "257", "size=257 pad=256_0", ADD, "0"),
        ("pred", "40", "size=40 pad=0_39", "ROOT r = pred[] or(a, b)", "false"),
        ("f32", "64,7", "size=64x1 pad=63_0x0_0", LOG, "-1e30"),
        ("c64", "32", "size=32 pad=31_0", ADD, "(0, 0)"),
    ],
)
def test_every_form_has_the_same_results(
    kind: str, dims: str, window: str, region: str, init: str
) -> None:
    """Odd lengths, either end, narrow floats, booleans, a region of several ops, complex numbers."""
    before = module(kind, dims, window, region, init)
    target = find_target("h200")
    planner = Planner(Pipeline(()), Predictor(model_for(DEFAULT, target)))
    (candidate,) = reductions(Subject(before, planner))
    forms = 0
    way: FindingCandidate | None = candidate
    while way is not None:
        after = clone_module(before)
        assert way.change(after, [after.entry.by_name["r"]])
        verify_module(after)
        assert compare_modules(before, after, trials=TrialOptions(trials=1)).equal
        forms, way = forms + 1, way.instead
    assert forms == 2


def test_several_arrays_together_are_one_scan() -> None:
    """As a running maximum with its place."""
    text = """HloModule m
fold {
  a = f32[] parameter(0)
  at = s32[] parameter(1)
  b = f32[] parameter(2)
  bt = s32[] parameter(3)
  c = pred[] compare(a, b), direction=GE
  x = f32[] select(c, a, b)
  y = s32[] select(c, at, bt)
  ROOT r = (f32[], s32[]) tuple(x, y)
}
ENTRY main {
  x = f32[1000,64] parameter(0)
  n = s32[1000,64] iota(), iota_dimension=0
  lowest = f32[] constant(-inf)
  none = s32[] constant(-1)
  ROOT r = (f32[1000,64], s32[1000,64]) reduce-window(x, n, lowest, none), window={size=1000x1 pad=999_0x0_0},
      to_apply=fold
}
"""
    (row,) = hloopt.why(hloopt.parse(text), "host", kinds=["running-reduction"]).rows
    assert row.gain.verdict == "equal"
    assert not hloopt.why(hloopt.parse(text), kinds=["running-reduction"]).rows


def test_a_start_that_would_count_more_often_is_left_alone() -> None:
    """A sum that begins with 1 adds it once."""
    text = module("f32", "4000", "size=4000 pad=3999_0", ADD, "1").to_text()
    assert not hloopt.why(hloopt.parse(text), kinds=["running-reduction"]).rows


def test_on_the_host_one_pass_makes_sums() -> None:
    """Its price is linear, and nothing is advised; of a region of several ops it is not."""
    sums = [
        hloopt.why(
            module("f32", f"{n},8", f"size={n}x1 pad={n - 1}_0x0_0", ADD, "0"),
            "host",
            kinds=["running-reduction"],
        )
        for n in (100_000, 400_000)
    ]
    assert not any(one.rows for one in sums)
    assert 3 < sums[1].seconds / sums[0].seconds < 6
    logs = module("f32", "2000,64", "size=2000x1 pad=1999_0x0_0", LOG, "-1e30")
    (row,) = hloopt.why(logs, "host", kinds=["running-reduction"]).rows
    assert "each element is folded from the first one on" in row.why


def test_what_a_library_computes_has_the_line_of_its_call() -> None:
    """A function that JAX lowers by itself is called, and what is in it has no line."""
    text = """HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
cumsum {
  x = f32[4096,512] parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[4096,512] reduce-window(x, z), window={size=4096x1 pad=4095_0x0_0}, to_apply=add, metadata={op_name="cumsum"}
}
ENTRY e {
  x = f32[4096,512] parameter(0)
  t = f32[4096,512] tanh(x), metadata={op_name="tanh" source_file="program.py" source_line=6}
  ROOT r = f32[4096,512] call(t), to_apply=cumsum, metadata={op_name="call" source_file="program.py" source_line=7}
}
"""
    (row,) = hloopt.why(hloopt.parse(text), kinds=["running-reduction"]).rows
    assert row.lines == ("program.py:7",)
    assert any(remedy.way == "model" for remedy in row.remedies)
