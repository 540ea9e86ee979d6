"""How far a run has come, as somebody sees it who looks while it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.interpret import evaluate_participants, plugins
from hloopt.interpret.progress import Progress

STEPS = 100
BODY = "\n".join(f"v{n + 1} = f32[3] tanh(v{n})" for n in range(STEPS))
TEXT = f"""HloModule m
ENTRY e {{
  v0 = f32[3] parameter(0)
  {BODY}
  looked = f32[3] custom-call(v{STEPS}), custom_call_target="look"
  {BODY.replace("v", "w").replace("(w0)", "(looked)")}
  ROOT r = f32[3] negate(w{STEPS})
}}
"""


def watched(
    monkeypatch: pytest.MonkeyPatch, progress: Progress, run: Callable[[], object]
) -> tuple[int, int, int]:
    """``done``, ``total`` and ``percent`` in the middle of a run."""
    seen: list[tuple[int, int, int]] = []

    def look(call: object, x: Any) -> Any:
        seen.append((progress.done, progress.total, progress.percent))
        return x

    monkeypatch.setitem(plugins._GIVEN, "look", look)
    run()
    (only,) = seen
    return only


def test_the_interpreter_counts_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the entry; parameters are none."""
    module, progress = hloopt.parse(TEXT), Progress()
    given = [[np.ones(3, np.float32)]]
    found = watched(
        monkeypatch, progress, lambda: evaluate_participants(module, given, progress=progress)
    )
    assert found == (STEPS, 2 * STEPS + 2, 49)


def test_a_program_counts_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not each of them, and from the start again in the next run."""
    monkeypatch.setitem(plugins._GIVEN, "look", lambda call, x: x)
    program = hloopt.compile(hloopt.parse(TEXT))
    for _ in range(2):
        done, total, percent = watched(
            monkeypatch, program.progress, lambda: program.run([np.ones(3, np.float32)])
        )
        assert 40 <= percent <= 50
        assert total // 2 - 10 <= done <= total // 2


def test_nothing_is_done_before_a_run() -> None:
    """0 of 0 is 0 %."""
    assert Progress().percent == 0
