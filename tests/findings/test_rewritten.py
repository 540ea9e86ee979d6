"""Arrays that are moved, repeated or masked where a part is meant: in every form, and not in others."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import DEFAULT, model_for
from hloopt.findings import Planner, pipeline_for
from hloopt.findings.kinds import chosen_kinds
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir.build import clone_module
from hloopt.prover.compare import compare_modules
from hloopt.prover.executor import Executor
from hloopt.prover.trials import TrialOptions
from hloopt.runtime.tolerance import FREE
from hloopt.targets import find_target
from hloopt.verifier import verify_module

DOT = """HloModule product
ENTRY main {{
  q = bf16[{heads},8,32] parameter(0)
  k = bf16[{source},32] parameter(1)
{factor}  ROOT s = f32[{heads},8,256] dot(q, f), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
    lhs_contracting_dims={{2}}, rhs_contracting_dims={{2}}
}}
"""
FACTORS = {
    "each head 8 times": """  r = bf16[4,8,256,32] broadcast(k), dimensions={0,2,3}
  f = bf16[32,256,32] reshape(r)
""",
    "all heads 8 times": """  r = bf16[8,4,256,32] broadcast(k), dimensions={1,2,3}
  f = bf16[32,256,32] reshape(r)
""",
    "after a transposition": """  r = bf16[256,4,8,32] broadcast(t), dimensions={0,1,3}
  h = bf16[256,32,32] reshape(r)
  f = bf16[32,256,32] transpose(h), dimensions={1,0,2}
""",
    "one for all": "  f = bf16[32,256,32] broadcast(k), dimensions={1,2}\n",
}


def product(name: str) -> str:
    """A product with a factor of this form."""
    factor, source = FACTORS[name], "256" if name == "one for all" else "4,256"
    if name == "after a transposition":
        factor = "  t = bf16[256,4,32] transpose(k), dimensions={1,0,2}\n" + factor
    return DOT.format(heads=32, source=source, factor=factor)


def found(text: str, kind: str) -> list[FindingCandidate]:
    """The candidates of a kind; whatever they gain, their changes leave results as they are."""
    module, target = hloopt.parse(text), find_target("h200")
    planner = Planner(pipeline_for(target, "h200")[0], Predictor(model_for(DEFAULT, target)))
    ((name, detect),) = ((row.name, row.find) for row in chosen_kinds([kind]))
    candidates = list(detect(Subject(module, planner)))
    for one in candidates:
        copy = clone_module(module)
        assert one.change(
            copy, [copy.computations[at.home.name].by_name[at.name] for at in one.sites]
        ), name
        verify_module(copy)
        pair = (copy, module) if one.narrows else (module, copy)
        verdict = compare_modules(*pair, trials=TrialOptions(trials=1), executor=Executor("cpu"), tolerance=FREE).verdict  # fmt: skip
        assert verdict in ("equal", "within tolerance")
    return candidates


@pytest.mark.parametrize("name", FACTORS)
def test_a_repeated_factor_is_taken_once(name: str) -> None:
    """In whatever order its matrices are repeated; the results are those of the many products."""
    (row,) = found(product(name), "repeated-factor")
    assert f"{32 if name == 'one for all' else 8} times" in row.why


MIXED = """  r = bf16[2,8,2,256,32] broadcast(k), dimensions={0,2,3,4}
  f = bf16[32,256,32] reshape(r)
"""


def test_heads_that_repeat_in_the_middle_are_left_alone() -> None:
    """Neither each one nor all are repeated."""
    text = DOT.format(heads=32, source="2,2,256", factor=MIXED)
    assert not found(text, "repeated-factor")


LOOP = """HloModule history
add {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }}
body {{
  state = (s32[], f32[512,128], f32[10]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  zero = s32[] constant(0)
  last = s32[] constant(511)
  next = s32[] {count}(i, one)
  h = f32[512,128] get-tuple-element(state), index=1
  old = f32[1,128] slice(h), slice={{[3:4], [0:128]}}
  row = f32[1,128] negate(old)
{moved}
  start = f32[] constant(0)
  total = f32[] reduce({read}, start), dimensions={{0,1}}, to_apply=add
  single = f32[1] reshape(total)
  ys = f32[10] get-tuple-element(state), index=2
  kept = f32[10] dynamic-update-slice(ys, single, i)
  ROOT r = (s32[], f32[512,128], f32[10]) tuple(next, m, kept)
}}
condition {{
  state = (s32[], f32[512,128], f32[10]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] constant({bound})
  ROOT more = pred[] compare(i, n), direction={direction}
}}
ENTRY main {{
  h = f32[512,128] parameter(0)
  ys = f32[10] parameter(1)
  first = s32[] constant({first})
  init = (s32[], f32[512,128], f32[10]) tuple(first, h, ys)
  ROOT loop = (s32[], f32[512,128], f32[10]) while(init), condition=condition, body=body
}}
"""
UP = {"count": "add", "bound": "10", "direction": "LT", "first": "0"}
DOWN = {"count": "subtract", "bound": "0", "direction": "GE", "first": "9"}
BACK = "  a = f32[511,128] slice(h), slice={{[1:512], [0:128]}}\n  m = f32[512,128] concatenate(a, row), dimensions={{0}}"
FRONT = "  a = f32[511,128] slice(h), slice={{[0:511], [0:128]}}\n  m = f32[512,128] concatenate(row, a), dimensions={{0}}"
ROLLED = """  a = f32[511,128] slice(h), slice={{[1:512], [0:128]}}
  b = f32[1,128] slice(h), slice={{[0:1], [0:128]}}
  c = f32[512,128] concatenate(a, b), dimensions={{0}}
  m = f32[512,128] dynamic-update-slice(c, row, last, zero)"""
WRONG = ROLLED.replace("row, last", "row, zero")


def history(moved: str, read: str, **counted: str) -> str:
    """A loop that moves its history so, and adds up the old one or the next."""
    return LOOP.format(moved=moved.replace("{{", "{").replace("}}", "}"), read=read, **counted)


@pytest.mark.parametrize("counted", [UP, DOWN], ids=["up", "down"])
@pytest.mark.parametrize("read", ["h", "m"])
@pytest.mark.parametrize("moved", [BACK, FRONT, ROLLED], ids=["back", "front", "rolled"])
def test_a_history_stays_in_place(moved: str, read: str, counted: dict[str, str]) -> None:
    """Whatever side it grows on, and which of both is read: all results are equal."""
    (row,) = found(history(moved, read, **counted), "shifted-history")
    assert "moves all of element 1" in row.why


def test_what_is_overwritten_elsewhere_is_no_history() -> None:
    """The new row replaces one in the middle."""
    assert not found(history(WRONG, "m", **UP), "shifted-history")


SELECT = """HloModule update, input_output_alias={{ {{}}: (0, {{}}, may-alias) }}
ENTRY main {{
  x = f32[512,1024] parameter(0)
  new = f32[{update}] parameter(1)
  at = {at} parameter(2)
  count = s32[{size}] iota(), iota_dimension=0
  place = s32[{size}] broadcast(at), dimensions={{{over}}}
  hit = pred[{size}] compare({sides}), direction=EQ
  hits = pred[512,1024] broadcast(hit), dimensions={{{dim}}}
  spread = f32[512,1024] broadcast(new), dimensions={{{kept}}}
  ROOT r = f32[512,1024] select(hits, {order})
}}
"""
ROW = {"update": "1024", "at": "s32[]", "size": "512", "over": "", "sides": "count, place", "dim": "0", "kept": "1", "order": "spread, x"}  # fmt: skip
COLUMN = {**ROW, "update": "512", "size": "1024", "sides": "place, count", "dim": "1", "kept": "0"}


@pytest.mark.parametrize("form", [ROW, COLUMN, {**ROW, "update": "", "kept": ""}])
def test_one_place_is_written_alone(form: dict[str, str]) -> None:
    """A row, a column, and a number in each element of a row; inputs are made for which both are the same."""
    (row,) = found(SELECT.format(**form), "masked-update")
    assert "one place of" in row.why


@pytest.mark.parametrize(
    "other",
    [
        {"order": "x, spread"},
        {"at": "s32[512]", "over": "0"},
        {"update": "512", "kept": "0"},
    ],
    ids=["all others", "a place each", "another one in each place"],
)
def test_more_than_one_place_is_left_alone(other: dict[str, str]) -> None:
    """All others are changed, or the module does not say that there is one place."""
    assert not found(SELECT.format(**{**ROW, **other}), "masked-update")


def test_a_softmax_of_bf16_overflows_too() -> None:
    """Its sum is made in f32, and converted."""
    text = """HloModule softmax
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
ENTRY main {
  x = bf16[4,64] parameter(0)
  e = bf16[4,64] exponential(x)
  w = f32[4,64] convert(e)
  zero = f32[] constant(0)
  t = f32[4] reduce(w, zero), dimensions={1}, to_apply=add
  n = bf16[4] convert(t)
  b = bf16[4,64] broadcast(n), dimensions={0}
  ROOT p = bf16[4,64] divide(e, b)
}
"""
    (row,) = hloopt.why(hloopt.parse(text), kinds=["not-finite"]).rows
    assert row.gain.after == 0 < row.gain.before
    (row,) = hloopt.why(hloopt.parse(text.replace("divide(e, b)", "subtract(x, l)").replace("  ROOT", "  g = bf16[4] log(n)\n  l = bf16[4,64] broadcast(g), dimensions={0}\n  ROOT")), kinds=["log-sum-exp"]).rows  # fmt: skip
    assert row.gain.after == 0 < row.gain.before
