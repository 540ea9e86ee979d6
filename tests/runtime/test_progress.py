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


LOOP = """HloModule m
body {
  s = (s32[], f32[3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[3] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  looked = f32[3] custom-call(x), custom_call_target="look"
  ROOT t = (s32[], f32[3]) tuple(next, looked)
}
condition {
  s = (s32[], f32[3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(1200)
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[3] parameter(0)
  i = s32[] START
  t = (s32[], f32[3]) tuple(i, x)
  w = (s32[], f32[3]) while(t), condition=condition, body=body
  y = f32[3] get-tuple-element(w), index=1
  ROOT r = f32[3] tanh(y)
}
"""


@pytest.mark.parametrize(
    ("start", "inputs", "ending"),
    [("constant(0)", [], " of 1,200, {} %"), ("parameter(1)", [np.array(0, np.int32)], "")],
)
def test_a_loop_tells_its_trips(
    monkeypatch: pytest.MonkeyPatch, start: str, inputs: list[Any], ending: str
) -> None:
    """And of how many, where that is known; afterwards its steps again."""
    seen: list[str] = []

    def look(call: object, x: Any) -> Any:
        seen.append(str(program.progress))
        return x

    monkeypatch.setitem(plugins._GIVEN, "look", look)
    program = hloopt.compile(hloopt.parse(LOOP.replace("START", start)))
    for _ in range(2):
        seen.clear()
        program.run([np.ones(3, np.float32), *inputs])
        numbers = range(1, 1201)
        assert seen == [f"iteration {n:,}{ending.format(100 * n // 1200)}" for n in numbers]
        assert str(program.progress).endswith(" %")
        assert "iteration" not in str(program.progress)
