"""Changes of findings, measured on this machine: gains, none, and what cannot be measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

import hloopt
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import DEFAULT, model_for
from hloopt.errors import UsageError
from hloopt.findings import Findings, MeasuredGain, Planner, kind_examples, measuring, search
from hloopt.report.console import capturing
from hloopt.report.findings import show_findings
from hloopt.rewrite import Pipeline
from hloopt.runtime.timing import Timing
from hloopt.targets import find_target

_TWO = """HloModule two

ENTRY main {
  ids = s32[128] parameter(0)
  table = f32[3000,256] parameter(1)
  wide = f32[3000,512] parameter(2)
  rows = s32[128,3000] broadcast(ids), dimensions={0}
  columns = s32[128,3000] iota(), iota_dimension=1
  hit = pred[128,3000] compare(rows, columns), direction=EQ
  picked = f32[128,3000] convert(hit)
  one = f32[128,256] dot(picked, table), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  other = f32[128,512] dot(picked, wide), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (f32[128,256], f32[128,512]) tuple(one, other)
}
"""


def found(text: str, kind: str, device: str = "cpu") -> Findings:
    """The findings of a kind on the host, each measured."""
    made = hloopt.why(hloopt.parse(text), "host", kinds=[kind], measure=device)
    assert isinstance(made, Findings)
    return made


def shown(made: Findings) -> str:
    """What is printed, with single spaces."""
    console = capturing(80)
    show_findings(made, console)
    return " ".join(console.export_text().split())


def test_a_change_that_gains() -> None:
    """A product with a one-hot matrix takes a hundred times as long as the gather."""
    made = found(kind_examples()["one-hot-product"].example, "one-hot-product")
    real = made.rows[0].gain.measured
    assert real is not None
    assert real.gains
    assert real.before > 3 * real.after
    assert "gain (measured on cpu): " in shown(made)
    assert made.to_json()["findings"][0]["gain"]["measured"]["gains"] is True


def test_a_change_that_does_not_gain_is_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said so, however large the promise."""
    ranked = hloopt.why(hloopt.parse(_TWO), "host", kinds=["one-hot-product"])
    assert isinstance(ranked, Findings)
    assert [row.instruction for row in ranked.rows] == ["other", "one"]
    after = iter([1.5, 0.5])

    def measured(plans: object, inputs_of: object, device: str, times: int) -> MeasuredGain:
        return MeasuredGain(device, 1.0, next(after), 9, is_sure=True)

    monkeypatch.setattr(search, "measured_gain", measured)
    made = found(_TWO, "one-hot-product")
    assert [row.instruction for row in made.rows] == ["one", "other"]
    assert "no gain when measured on cpu: 1 s -> 1.5 s; it is slower" in shown(made)


def test_what_is_not_measured_says_why() -> None:
    """Donated arguments on cpu, which ``native`` writes into, and calls that nothing here can run."""
    made = found(kind_examples()["copy"].example, "copy")
    assert "not measured on cpu: cpu never writes into the arguments of a run" in shown(made)
    donated = found(kind_examples()["copy"].example, "copy", "native").rows[0].gain.measured
    assert donated is not None
    assert donated.gains
    text = _TWO.replace(
        "ROOT r = (f32[128,256], f32[128,512]) tuple(one, other)",
        'own = f32[128,512] custom-call(other), custom_call_target="mine"\n'
        "  ROOT r = (f32[128,256], f32[128,512]) tuple(one, own)",
    )
    real = found(text, "one-hot-product").rows[0].gain.measured
    assert real is not None
    assert "mine" in real.reason
    assert real.to_json()["seconds_after"] is None


def test_a_part_counts_as_often_as_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Like what is predicted of it."""

    def in_turn(steps: Sequence[Callable[[], object]], *_: object, **__: object) -> list[Timing]:
        return [Timing((6.0, 6.0, 6.0)), Timing((3.0, 3.0, 3.0))]

    monkeypatch.setattr(measuring, "measure_in_turn", in_turn)
    monkeypatch.setattr(measuring, "_LEAST", 0.0)
    predictor = Predictor(model_for(DEFAULT, find_target("host")))
    module = hloopt.parse(_TWO)
    plan = Planner(Pipeline(()), predictor).plan(module)
    real = measuring.measured_gain((plan, plan), module, "cpu", 100)
    assert (real.before, real.after, real.gains) == (600.0, 300.0, True)


def test_a_gpu_is_not_this_processor() -> None:
    """What is promised for another machine is not measured on this one."""
    module = hloopt.parse(_TWO)
    with pytest.raises(UsageError, match="promised for the target host, not for h200"):
        hloopt.why(module, "h200", measure="native")
    with pytest.raises(UsageError, match="measured on cpu and native, not on 'tpu'"):
        hloopt.why(module, "host", measure="tpu")
