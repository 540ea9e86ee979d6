"""The examination of plans: figures of a small program, and a wrong one that is told."""

from __future__ import annotations

from pathlib import Path

import pytest

import hloopt
from tests.corpus import plan_memory
from tests.corpus.plan_memory import examine, main

TEXT = """HloModule m
ENTRY main {
  p = f32[256]{0} parameter(0)
  a = f32[256]{0} reverse(p), dimensions={0}
  b = f32[256]{0} cosine(a)
  ROOT c = f32[256]{0} reverse(b), dimensions={0}
}
"""


def test_a_small_program() -> None:
    """Two buffers live at once beside the parameter."""
    row = examine("m", hloopt.parse(TEXT))
    assert (row.steps, row.moves, row.wrong, row.refused) == (3, 0, "", "")
    assert (row.peak, row.bound) == (3072, 3072)
    assert (row.ratio, row.arena_ratio) == (1, 1)


def test_what_cannot_be_planned_is_refused() -> None:
    """With the reason; that is no fault."""
    row = examine("m", hloopt.parse(TEXT.replace("[256]", "[<=256]")))
    assert "bounded dynamic dimension" in row.refused


def test_faults_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong read, or memory above the limit, makes the command fail."""
    path = tmp_path / "m.hlo"
    path.write_text(TEXT)
    assert main([str(path), "--pipeline", "O0"]) == 0
    assert "1 plans, 0 refused, 0 wrong or above 1.2" in capsys.readouterr().out
    monkeypatch.setattr(plan_memory, "LIMIT", 0.5)
    assert main([str(path), "--pipeline", "O0"]) == 1
    monkeypatch.undo()

    def wrong(*_: object) -> None:
        raise plan_memory.WrongReadError("c reads bytes that hold no value")

    monkeypatch.setattr(plan_memory, "check_plan", wrong)
    assert main([str(path), "--pipeline", "O0"]) == 1
    assert "c reads bytes that hold no value" in capsys.readouterr().out
