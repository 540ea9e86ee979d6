"""What is asked of the loops of a program, and what the scoreboard makes of the answers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import hloopt
from hloopt.backends.numpy.program import NumpyProgram
from hloopt.runtime.inputs import generate
from hloopt.types import of_numpy
from tests.corpus.loop_stages import LOOP_STAGES, examine_loops, has_loop
from tests.corpus.parts import tasks
from tests.corpus.score import falls, score
from tests.helpers.support import Array

SAMPLE = Path(__file__).resolve().parent.parent.parent / "samples" / "while_loop.hlo"
INFEED = """HloModule m
body {
  s = (s32[], f32[64], token[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  t = token[] get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  fed = (f32[64], token[]) infeed(t)
  x = f32[64] get-tuple-element(fed), index=0
  after = token[] get-tuple-element(fed), index=1
  ROOT r = (s32[], f32[64], token[]) tuple(next, x, after)
}
condition {
  s = (s32[], f32[64], token[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  most = s32[] constant(9)
  ROOT c = pred[] compare(i, most), direction=LT
}
ENTRY e {
  x = f32[64] parameter(0)
  zero = s32[] constant(0)
  t = token[] after-all()
  init = (s32[], f32[64], token[]) tuple(zero, x, t)
  w = (s32[], f32[64], token[]) while(init), condition=condition, body=body
  ROOT r = f32[64] get-tuple-element(w), index=1
}
"""


def sample(folder: Path) -> Path:
    """A sample with loops, and a record of its results."""
    path = folder / "while_loop.before.hlo"
    shutil.copy(SAMPLE, path)
    module = hloopt.parse(path.read_text())
    inputs = generate(module)
    outputs = hloopt.evaluate(module, inputs)
    arrays = {f"in_{at}": array for at, array in enumerate(inputs)}
    arrays |= {f"out_{at}": array for at, array in enumerate(outputs)}
    np.savez(folder / "while_loop.npz", **arrays)
    kinds = [[of_numpy(array.dtype).name for array in part] for part in (inputs, outputs)]
    spec = {"rtol": 1e-5, "atol": 1e-6}
    meta = {
        "inputs": [{"dtype": kind} for kind in kinds[0]],
        "outputs": [{"dtype": kind, **spec} for kind in kinds[1]],
    }
    (folder / "while_loop.json").write_text(json.dumps(meta))
    return path


def test_a_loop_in_one_kernel_goes_through_all_stages(tmp_path: Path) -> None:
    """Verdict, way, results of interpreter, executor and blocks, and the emulator's."""
    outcome = examine_loops(sample(tmp_path))
    assert outcome["kernels"] == "ok: 2 of 2"
    assert [name for name in outcome if name.startswith("by_")]
    for stage in ("evaluated", "executed", "blocked", "planned", "clean", "ordered", "agrees"):
        assert outcome[stage] == "ok"


def test_wrong_results_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first stage that gives other results than recorded is the last."""
    run = NumpyProgram.run

    def wrong(program: NumpyProgram, inputs: list[Array]) -> list[Array]:
        return [array + array.dtype.type(1) for array in run(program, inputs)]

    monkeypatch.setattr(NumpyProgram, "run", wrong)
    outcome = examine_loops(sample(tmp_path))
    assert outcome["evaluated"] == "ok"
    assert outcome["executed"].startswith("failed: ")
    assert "blocked" not in outcome


def test_a_refused_loop_is_counted_by_its_code(tmp_path: Path) -> None:
    """What has no record is asked for its verdict only."""
    path = tmp_path / "fed.before.hlo"
    path.write_text(INFEED)
    outcome = examine_loops(path)
    assert outcome["kernels"] == "ok: 0 of 1"
    assert outcome["alone"] == "ok: 0 of 1"
    (code,) = (name for name in outcome if name.startswith("refused_"))
    assert outcome[code] == "told: 1"
    assert len(outcome) == 3


def test_what_cannot_be_read_fails(tmp_path: Path) -> None:
    """With the message, at the first stage."""
    path = tmp_path / "broken.before.hlo"
    path.write_text("HloModule m\nENTRY e { ROOT w = f32[] while(x) }")
    assert examine_loops(path)[LOOP_STAGES[0]].startswith("failed: ")


def test_programs_with_loops_are_a_part(tmp_path: Path) -> None:
    """Those as XLA was given them, and no others."""
    for folder in ("jax", "models", "xla-tests"):
        (tmp_path / folder).mkdir()
    (tmp_path / "xla-tests" / "index.jsonl").write_text("")
    looping = sample(tmp_path / "jax")
    (tmp_path / "jax" / "flat.before.hlo").write_text(
        "HloModule m\nENTRY e { ROOT c = f32[] constant(0) }"
    )
    shutil.copy(looping, tmp_path / "jax" / "while_loop.after.hlo")
    assert has_loop(looping)
    found = [task for task in tasks(tmp_path, xla=False) if task.part == "loops"]
    assert [(task.path, task.stages) for task in found] == [(looping, LOOP_STAGES)]


def test_the_scoreboard_has_sums_and_lets_what_is_told_fall() -> None:
    """Loops in one kernel may only rise; by which way they run may change."""
    files = {
        "a": {"kernels": "ok: 2 of 3", "by_x": "told: 2", "refused_y": "told: 1"},
        "b": {"kernels": "ok: 1 of 1", "by_x": "told: 1"},
    }
    before = score({"loops": files})
    assert before["loops"]["kernels"] == {"ok": 3, "of": 4}
    assert before["loops"]["by_x"] == {"told": 2, "loops": 3}
    files["b"] = {"kernels": "ok: 1 of 1", "by_z": "told: 1"}
    assert not falls(before, score({"loops": files}))
    files["b"] = {"kernels": "ok: 0 of 1", "by_z": "told: 1"}
    assert falls(before, score({"loops": files})) == ["loops.kernels: 3 -> 2"]
