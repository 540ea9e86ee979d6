"""What ``hloopt run`` says where the interpreter is left out, or the module is changed before it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.errors import UsageError
from hloopt.interpret import evaluate_participants
from hloopt.interpret.progress import Progress
from hloopt.runtime.amended import fill_constants, ignore_callbacks
from tests.helpers.support import invoke

SUM = """HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
ENTRY e {
  x = f32[40,50] parameter(0)
  zero = f32[] constant(0)
  t = f32[40] reduce(x, zero), dimensions={1}, to_apply=add
  ROOT y = f32[40] tanh(t)
}
"""

LOOP = """HloModule m
body {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  y = f32[4] cosine(x)
  ROOT r = (s32[], f32[4]) tuple(n, y)
}
condition {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(TRIPS)
  ROOT r = pred[] compare(i, n), direction=LT
}
ENTRY e {
  zero = s32[] constant(0)
  x = f32[4] parameter(0)
  s = (s32[], f32[4]) tuple(zero, x)
  w = (s32[], f32[4]) while(s), condition=condition, body=body
  ROOT y = f32[4] get-tuple-element(w), index=1
}
"""

EITHER = """HloModule m
either { a = pred[] parameter(0)
  b = pred[] parameter(1)
  ROOT r = pred[] or(a, b) }
"""

HALFWAY = """  h = f32[] constant(0.5)
  hs = f32[4] broadcast(h), dimensions={}
  m = f32[4] multiply(x, hs)
  y = f32[4] add(m, hs)"""

UNTIL = """  x = f32[4] get-tuple-element(s), index=1
  one = f32[] constant(1)
  ones = f32[4] broadcast(one), dimensions={}
  far = pred[4] compare(x, ones), direction=NE
  no = pred[] constant(false)
  ROOT r = pred[] reduce(far, no), dimensions={0}, to_apply=either"""

CALLBACK = 'custom_call_target="xla_ffi_python_cpu_callback", custom_call_has_side_effect=true, api_version=API_VERSION_TYPED_FFI'

PRINTS = f"""HloModule m
ENTRY e {{
  order = token[] parameter(0)
  x = f32[4] parameter(1)
  shown = () custom-call(x), {CALLBACK}
  next = token[] custom-call(order, x), {CALLBACK}
  both = (token[], f32[4]) custom-call(next, x), {CALLBACK}
  last = token[] get-tuple-element(both), index=0
  y = f32[4] add(x, x)
  ROOT r = (token[], f32[4]) tuple(last, y)
}}
"""

NEEDED = f"""HloModule m
ENTRY e {{
  x = f32[4] parameter(0)
  given = f32[4] custom-call(x), {CALLBACK}
  ROOT y = f32[4] add(x, given)
}}
"""

ELIDED = """HloModule m
inner {
  p = f32[8,64] parameter(0)
  c = f32[8,64] constant({...})
  ROOT s = f32[8,64] add(p, c)
}
ENTRY e {
  x = f32[8,64] parameter(0)
  w = f32[64,64] constant({...})
  d = f32[8,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT y = f32[8,64] call(d), to_apply=inner
}
"""


def written(tmp_path: Path, text: str) -> str:
    (tmp_path / "m.hlo").write_text(text)
    return str(tmp_path / "m.hlo")


def told(*words: str) -> tuple[int, dict[str, Any]]:
    result = invoke("run", *words, "--repeat", "1", "--json")
    return result.exit_code, json.loads(result.stdout)["modules"][0]


def test_nobody_asks_the_interpreter(tmp_path: Path) -> None:
    """The optimised form is held against the given one, which verifies nothing: a verdict of its own, no failure."""
    path = written(tmp_path, SUM)
    result = invoke("run", path, "--no-verify", "--repeat", "1")
    assert result.exit_code == 0
    assert "interpreter" not in result.stdout
    assert "\nnot verified (--no-verify): 1 result of O2, cpu against given, cpu: " in result.stdout
    code, row = told(path, "--no-verify")
    assert (code, row["verdict"], row["not_verified"], row["passed"]) == (0, "not verified", "--no-verify", False)  # fmt: skip


def test_without_the_interpreter_two_forms_may_still_differ(tmp_path: Path) -> None:
    """Rounding does not explain a sum that lacks an addend."""
    broken = tmp_path / "broken.py"
    broken.write_text(
        "from dataclasses import dataclass\nfrom typing import ClassVar\n"
        "from hloopt import Module, Pass, PassLog\nfrom hloopt.ir import edit\n\n"
        "@dataclass(frozen=True)\nclass Break(Pass):\n"
        '    """Forget a function."""\n\n    name: ClassVar[str] = "forget"\n\n'
        "    def run(self, module: Module, log: PassLog) -> bool:\n"
        "        root = module.entry.root\n"
        "        if root.opcode != 'tanh' or not log.allows():\n            return False\n"
        "        log.hit('forget', root)\n"
        "        edit.replace_instruction(root, root.operands[0])\n        return True\n"
    )
    words = ("--no-verify", "--pass-file", str(broken), "--passes", "forget")
    code, row = told(written(tmp_path, SUM), *words)
    assert (code, row["verdict"]) == (1, "differs")


def test_expected_results_verify_without_the_interpreter(tmp_path: Path) -> None:
    """What somebody recorded is as good."""
    path, inputs = written(tmp_path, SUM), np.ones((40, 50), np.float32) / 100
    np.savez(tmp_path / "in.npz", in_0=inputs)
    np.savez(tmp_path / "out.npz", out_0=np.tanh(inputs.sum(axis=1)))
    words = (path, "--inputs", str(tmp_path / "in.npz"), "--expect", str(tmp_path / "out.npz"))
    code, row = told(*words, "--no-verify")
    assert (code, row["verdict"]) == (0, "ok")
    np.savez(tmp_path / "out.npz", out_0=np.tanh(inputs.sum(axis=1)) * 1.001)
    code, row = told(*words, "--no-verify")
    assert (code, row["verdict"]) == (1, "differs")


def test_the_interpreter_has_so_long(tmp_path: Path) -> None:
    """It stops within a loop, and says how far it was; a second suffices a small one."""
    endless = LOOP.replace("TRIPS", "2000000000")
    progress = Progress(0.0)
    with pytest.raises(TimeoutError):
        evaluate_participants(hloopt.parse(endless), [[np.ones(4, np.float32)]], progress=progress)
    long, short = (hloopt.parse(LOOP.replace("TRIPS", trips)) for trips in ("300", "3"))
    row = hloopt.run(long, reference_seconds=1e-9, repeat=1).to_json()
    assert row["verdict"] == "not verified"
    assert row["not_verified"].startswith("reference_seconds: the interpreter was at ")
    assert hloopt.run(short, reference_seconds=60, repeat=1).verdict == "ok"


def test_trips_of_the_interpreter_are_told() -> None:
    """The outermost loop's, while it runs."""
    seen = []

    class Told(Progress):
        def iteration(self, number: int, count: int | None = None) -> None:
            super().iteration(number, count)
            seen.append(str(self))

    module = hloopt.parse(LOOP.replace("TRIPS", "3"))
    progress = Told()
    evaluate_participants(module, [[np.ones(4, np.float32)]], progress=progress)
    assert seen == ["iteration 1", "iteration 2", "iteration 3"]
    assert not progress.in_loop


def test_snapshots_need_the_interpreter(tmp_path: Path) -> None:
    """Its results are what they hold."""
    words = ("--no-verify", "--save", str(tmp_path / "s.pb"))
    result = invoke("run", written(tmp_path, SUM), *words)
    assert result.exit_code == 2
    assert "--save writes the interpreter's results" in result.stderr


def test_callbacks_are_left_out_by_name(tmp_path: Path) -> None:
    """Tokens go on as they were, and a note says which."""
    module = hloopt.parse(PRINTS)
    assert ignore_callbacks(module) == ["shown", "next", "both"]
    hloopt.verify(module)
    assert [one.opcode for one in module.entry] == ["parameter", "parameter", "add", "tuple"]
    path = written(tmp_path, PRINTS)
    result = invoke("run", path, "--repeat", "1")
    assert result.exit_code == 0
    assert "note Python callbacks are left out: %shown, %next, %both" in result.stdout


def test_callbacks_that_are_needed_stay(tmp_path: Path) -> None:
    """What somebody reads cannot be left out."""
    assert ignore_callbacks(hloopt.parse(NEEDED)) == []
    refused = invoke("run", written(tmp_path, NEEDED))
    assert refused.exit_code == 4
    assert "calls Python, and its results are used" in refused.stderr


def test_constants_are_invented_by_name(tmp_path: Path) -> None:
    """In every computation, the same for a seed; weights suit their product; the verdict is never ok."""
    path = written(tmp_path, ELIDED)
    result = invoke("run", path, "--fill-constants", "1", "--repeat", "1")
    assert result.exit_code == 0
    assert "\ninvented values 1 result: " in result.stdout
    assert "note 2 constants left out of the text: values are invented" in result.stdout
    code, row = told(path, "--fill-constants", "1")
    assert (code, row["verdict"], row["invented_constants"], row["passed"]) == (0, "invented values", 2, False)  # fmt: skip
    refused = invoke("run", path)
    assert refused.exit_code == 4
    assert "--fill-constants SEED" in refused.stderr
    arrays = []
    for seed in (1, 1, 2):
        module = hloopt.parse(ELIDED)
        assert fill_constants(module, seed) == 2
        arrays.append(module.entry.by_name["w"].literal)
    assert arrays[0] == arrays[1] != arrays[2]
    assert arrays[0] is not None
    assert arrays[0].array is not None
    assert 0.1 < float(arrays[0].array.std()) < 0.15


def test_a_loop_that_would_never_settle_is_let_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every trip rounds otherwise, a fixed point need not be one."""
    monkeypatch.setattr("hloopt.interpret.rounding._MOST_ITERATIONS", 60)
    text = LOOP.replace("  y = f32[4] cosine(x)", HALFWAY).replace(
        "  n = s32[] constant(TRIPS)\n  ROOT r = pred[] compare(i, n), direction=LT", UNTIL
    )
    module = hloopt.parse(EITHER + text.removeprefix("HloModule m\n"))
    inputs = [[np.float32([0.1, 0.5, 0.9, 2])]]
    for rounding in range(1, 5):
        got = evaluate_participants(module, inputs, rounding=rounding)[0][0]
        assert got.tolist() == [1, 1, 1, 1]


def test_several_modules_end_with_a_summary(tmp_path: Path) -> None:
    """A row for each, whatever became of it; the counts of all below; nothing of the kind for one."""
    folder = tmp_path / "dump"
    folder.mkdir()
    (folder / "a.hlo").write_text(SUM)
    (folder / "b.hlo").write_text(ELIDED)
    paths = [str(folder / name) for name in ("a.hlo", "b.hlo")]
    result = invoke("run", *paths, "--repeat", "1")
    assert result.exit_code == 4
    lines = [line.split() for line in result.stdout.splitlines()[-4:]]
    assert lines[0] == ["module", "verdict", "of", "allowed", "speed-up"]
    assert lines[1][:2] == ["a.hlo", "ok"]
    assert lines[2] == ["b.hlo", "failed"]
    assert lines[3] == ["2", "modules:", "1", "failed,", "1", "ok"]
    alone = invoke("run", paths[0], "--repeat", "1")
    assert "modules:" not in alone.stdout


def test_what_was_fused_for_a_gpu_is_verified_on_the_cpu(tmp_path: Path) -> None:
    """--target says what passes decide for; which kernels run is not for the CPU."""
    path = written(tmp_path, SUM)
    result = invoke("run", path, "--target", "a100", "--repeat", "1")
    assert result.exit_code == 0
    assert "O2{target=a100}, cpu" in result.stdout
    refused = invoke("run", path, "--target", "a100", "--kernel", "op:add=loop")
    assert refused.exit_code == 2
    assert "not for cpu" in refused.stderr


def test_the_useful_line_comes_first(tmp_path: Path) -> None:
    """What to do, then what else cannot be run, then the kernels that nearly fit."""
    text = (
        "HloModule m\nENTRY e { x = f32[4,4] parameter(0)\n  ROOT r = (f32[4,4], f32[4]) "
        'custom-call(x), custom_call_target="lapack_sgeqrf_ffi", api_version=API_VERSION_TYPED_FFI }'
    )
    result = invoke("run", written(tmp_path, text), "--device", "emulator")
    notes = [line for line in result.stderr.splitlines() if line.startswith("note: ")]
    assert "--allow-host" in notes[0]
    assert notes[-1].endswith("kernels are for other instructions (hloopt explain --all)")
    assert len(notes) <= 6


def test_a_run_is_one_call_from_python(tmp_path: Path) -> None:
    """The command's options are keywords; the report is what the command prints, with the results."""
    module = hloopt.parse(SUM, "sum")
    inputs = [np.ones((40, 50), np.float32)]
    report = hloopt.run(module, pipeline="O3", inputs=inputs, repeat=1)
    assert [row.name for row in report.rows] == ["interpreter", "given, cpu", "O3, cpu"]
    assert report.verdict == "ok"
    assert report.passed
    assert np.array_equal(report.outputs[0][0], np.ones(40, np.float32))
    assert all(row.timing is not None and len(row.timing.seconds) == 1 for row in report.rows)
    path = tmp_path / "sum.hlo"
    path.write_text(SUM)
    again = hloopt.run(path, "cpu", pipeline=["cse", "dce"], expected=report.outputs[0], repeat=1)
    told = again.to_json()
    assert (told["verdict"], told["pipeline"], told["inputs"]) == ("differs", "cse,dce", "seed 0")
    with pytest.raises(UsageError, match="--rounding exact is for --device cpu"):
        hloopt.run(module, "emulator", exact=True)
    with pytest.raises(UsageError, match="No such file"):
        hloopt.run(tmp_path / "nothing.hlo")
