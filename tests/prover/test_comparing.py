"""Two modules on the same inputs: what fits, what runs, what differs."""

from __future__ import annotations

import os

import numpy as np
import pytest

import hloopt
from hloopt.errors import DeviceError, EvaluationError, UsageError
from hloopt.prover.comparing import check_alike, compare_runs
from hloopt.prover.executor import Executor
from hloopt.prover.trials import Trial, TrialInputs, check_fits, made

LINE = """
HloModule line
ENTRY main {
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  ROOT r = f32[8] OP(x, y)
}
"""


def line(opcode: str) -> hloopt.Module:
    return hloopt.parse(LINE.replace("OP", opcode))


@pytest.mark.parametrize("executor", ["interpreter", "cpu"])
def test_equal_modules_give_the_same(executor: str) -> None:
    module = line("add")
    inputs = made(module, Trial(3))
    runs = [Executor(executor).run(module, inputs) for _ in range(2)]
    assert compare_runs(*runs, inputs).equal


def test_other_modules_differ() -> None:
    first, second = line("add"), line("subtract")
    inputs = made(first, Trial())
    runs = [Executor().run(module, inputs) for module in (first, second)]
    found = compare_runs(*runs, inputs)
    assert not found.equal
    assert found.results[0].mismatches == 8


def test_each_operand_is_shown_at_the_element_that_its_own_module_reads() -> None:
    """Slices that begin elsewhere read other elements for one of their results."""
    text = "HloModule m\nENTRY e {\n x = f32[8] parameter(0)\n ROOT s = f32[2] slice(x), slice={[FROM]}\n}\n"
    modules = (hloopt.parse(text.replace("FROM", part)) for part in ("0:2", "4:6"))
    first = hloopt.compare(*modules).first
    assert first is not None
    assert first.index is not None
    (operand,) = first.operands
    assert operand.index_before == first.index
    assert operand.index == (first.index[0] + 4,)


def test_inputs_that_do_not_fit_are_refused() -> None:
    inputs = TrialInputs([[np.zeros(8, np.float32)]], origin="a.npz")
    with pytest.raises(UsageError, match=r"m: its parameters are 2 arrays, .* \(a\.npz\) are 1"):
        check_fits(line("add"), inputs, "m")
    inputs = TrialInputs([[np.zeros(8, np.float32), np.zeros(7, np.float32)]])
    with pytest.raises(UsageError, match=r"parameter y is f32\[8\]"):
        check_fits(line("add"), inputs, "m")


def test_modules_of_other_results_are_not_compared() -> None:
    other = hloopt.parse(LINE.replace("f32[8] OP(x, y)", "pred[8] compare(x, y), direction=LT"))
    with pytest.raises(
        UsageError, match=r"^result 0 of a and b is not the same: f32\[8\] and pred\[8\]$"
    ):
        check_alike(line("add"), other, ("a", "b"))
    fewer = hloopt.parse("HloModule m\nENTRY e { ROOT x = f32[8] parameter(0) }\n")
    with pytest.raises(
        UsageError, match=r"^the parameters of a and b are not the same: 2 arrays and 1$"
    ):
        check_alike(line("add"), fewer, ("a", "b"))
    check_alike(line("add"), line("multiply"), ("a", "b"))


def test_unknown_executors_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="did you mean 'native'"):
        Executor("nativ").check()
    monkeypatch.delenv("HLOOPT_XLA_PYTHON", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DeviceError, match="HLOOPT_XLA_PYTHON"):
        Executor("xla-cpu").check()


def test_a_run_that_takes_too_long_stops() -> None:
    endless = hloopt.parse(
        """
        HloModule endless
        again { p = (s32[]) parameter(0)
          ROOT t = pred[] constant(true) }
        body { p = (s32[]) parameter(0)
          n = s32[] get-tuple-element(p), index=0
          one = s32[] constant(1)
          m = s32[] add(n, one)
          ROOT t = (s32[]) tuple(m) }
        ENTRY main { x = s32[] parameter(0)
          t = (s32[]) tuple(x)
          w = (s32[]) while(t), condition=again, body=body
          ROOT r = s32[] get-tuple-element(w), index=0 }
        """
    )
    with pytest.raises(EvaluationError, match="endless: the interpreter was at"):
        Executor(seconds=0.05).run(endless, made(endless, Trial()))


@pytest.mark.xla
@pytest.mark.skipif(
    not os.environ.get("HLOOPT_XLA_PYTHON"), reason="no Python with jaxlib is named"
)
def test_xla_gives_the_same() -> None:
    module = line("add")
    inputs = made(module, Trial())
    runs = [Executor(executor).run(module, inputs) for executor in ("interpreter", "xla-cpu")]
    assert compare_runs(*runs, inputs).equal
