"""What an editor asks again and again is planned once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import hloopt
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import DEFAULT, model_for
from hloopt.driver.explaining import plan_to_explain
from hloopt.editor.answers import DocumentAnswers
from hloopt.targets import find_target

TEXT = """HloModule m

ENTRY main {
  x = f32[64,64] parameter(0)
  y = f32[64,64] exponential(x)
  z = f32[64,64] dot(y, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT w = f32[64,64] add(z, y)
}
"""


def test_unfused_arrays_are_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for threads that ask at the same time, and for what a lens says; another text is planned anew."""
    plans = list[str]()

    def counted(module: Any, **options: Any) -> Any:
        plans.append(module.name)
        return plan_to_explain(module, **options)

    monkeypatch.setattr("hloopt.editor.answers.plan_to_explain", counted)
    predictor = Predictor(model_for(DEFAULT, find_target("h100")))
    answers = DocumentAnswers(hloopt.parse(TEXT), predictor)
    with ThreadPoolExecutor(4) as threads:
        found = [*threads.map(lambda _: answers.unfused(), range(4))]
    assert plans == ["m"]
    assert [one.instruction.name for one in found[0]] == ["y", "z"]
    assert found[1:] == found[:-1]
    assert "%z = f32[64,64] dot" in answers.explanation("z")
    other = DocumentAnswers(hloopt.parse(TEXT.replace("HloModule m", "HloModule n")), predictor)
    assert len(other.unfused()) == 2
    assert plans == ["m", "n"]
