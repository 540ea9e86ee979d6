"""Comparisons of one module with several: its own runs and roundings are evaluated once."""

from collections import Counter
from typing import Any

import pytest

import hloopt
from hloopt.prover.compare import compare_modules
from hloopt.prover.comparing import FirstRuns
from hloopt.prover.executor import Executor
from hloopt.prover.trials import TrialOptions
from hloopt.runtime import judge

_GIVEN = """
HloModule given
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
ENTRY main {
  x = f32[64,700] parameter(0)
  zero = f32[] constant(0)
  e = f32[64,700] exponential(x)
  ROOT r = f32[64] reduce(e, zero), dimensions={1}, to_apply=add
}
"""
_IN_HALVES = """
HloModule in_halves
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
ENTRY main {
  x = f32[64,700] parameter(0)
  zero = f32[] constant(0)
  e = f32[64,700] exponential(x)
  p = f32[64,35,20] reshape(e)
  q = f32[64,35] reduce(p, zero), dimensions={2}, to_apply=add
  ROOT r = f32[64] reduce(q, zero), dimensions={1}, to_apply=add
}
"""
_IN_BF16 = _IN_HALVES.replace("in_halves", "narrow").replace(
    "p = f32[64,35,20] reshape(e)",
    "n = bf16[64,700] convert(e)\n  m = f32[64,700] convert(n)\n  p = f32[64,35,20] reshape(m)",
)


def _verdict(after: str, kept: FirstRuns | None, before: Any) -> str:
    return compare_modules(
        before,
        hloopt.parse(after),
        trials=TrialOptions(trials=1),
        executor=Executor("cpu"),
        kept=kept,
    ).verdict


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each module is evaluated with its bounds or its roundings moved."""
    counted: Counter[str] = Counter()
    for name in ("bounds", "results"):
        own = getattr(judge.Evaluation, name)

        def counting(way: Any, *given: Any, own: Any = own, name: str = name) -> Any:
            counted[f"{way.module.name} {name}"] += 1
            return own(way, *given)

        monkeypatch.setattr(judge.Evaluation, name, counting)
    return counted


def test_the_first_module_is_evaluated_once(evaluated: Counter[str]) -> None:
    """And the second is not, where the roundings of the first explain what differs."""
    before, kept = hloopt.parse(_GIVEN), FirstRuns()
    assert _verdict(_IN_HALVES, kept, before) == "within tolerance"
    first = Counter(evaluated)
    assert first["given bounds"] == 1
    assert not any(name.startswith("in_halves") for name in first)
    assert _verdict(_IN_HALVES, kept, before) == "within tolerance"
    assert evaluated == first


@pytest.mark.parametrize(
    ("after", "verdict"),
    [(_GIVEN, "equal"), (_IN_HALVES, "within tolerance"), (_IN_BF16, "within tolerance")],
)
def test_the_verdict_is_that_without_kept_runs(after: str, verdict: str) -> None:
    """Also where the second module rounds more coarsely than the first: then both are evaluated."""
    before = hloopt.parse(_GIVEN)
    assert _verdict(after, FirstRuns(), before) == _verdict(after, None, before) == verdict


def test_a_wrong_module_differs() -> None:
    """After a right one, with its runs kept."""
    before, kept = hloopt.parse(_GIVEN), FirstRuns()
    assert _verdict(_IN_HALVES, kept, before) == "within tolerance"
    assert _verdict(_IN_HALVES.replace("exponential(x)", "negate(x)"), kept, before) == "differ"
