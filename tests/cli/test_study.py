"""``hloopt study``: cells, verification, gates, what it writes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hloopt import parse, verify
from tests.helpers.support import invoke

MODULE = """HloModule m

ENTRY main {
  x = f32[64] parameter(0)
  a = f32[64] exponential(x)
  b = f32[64] exponential(x)
  ROOT sum = f32[64] add(a, b)
}
"""
WRONG_PASS = '''
from dataclasses import dataclass
from typing import ClassVar

from hloopt import Module, Pass, PassLog
from hloopt.ir import edit


@dataclass(frozen=True)
class Swap(Pass):
    """Take the first operand for a sum."""

    name: ClassVar[str] = "swap"

    def run(self, module: Module, log: PassLog) -> bool:
        root = module.entry.root
        if root.opcode != "add" or not log.allows():
            return False
        log.hit("swap", root)
        edit.replace_instruction(root, root.operands[0])
        return True
'''


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be in, with a module."""
    (tmp_path / "m.hlo").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def study(*words: str, code: int = 0) -> dict[str, Any]:
    """What the command says as JSON."""
    result = invoke("study", *words, "--json")
    assert result.exit_code == code, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def cell(found: dict[str, Any], strategy: str, device: str = "cpu") -> dict[str, Any]:
    """The cell of a strategy, of the first module."""
    return next(
        one for one in found["cells"] if (one["strategy"], one["device"]) == (strategy, device)
    )


def test_without_strategies_it_compares_the_levels(here: Path) -> None:
    """O0 to O3 on the CPU, measured, O0 the baseline; every cell verified."""
    found = study("m.hlo", "--repeat", "3")
    assert [one["name"] for one in found["strategies"]] == ["O0", "O1", "O2", "O3"]
    assert found["baseline"] == "O0"
    for one in found["cells"]:
        # What is timed takes NumPy's own functions, a few units in the last place away.
        assert one["way"] == "measured"
        assert one["results"] in ("equal", "within tolerance")
        assert one["checked"]["against"] == ["interpreter"]
    measured = cell(found, "O0")["measured"]
    assert len(measured["seconds"]) == 3
    assert measured["median"] == sorted(measured["seconds"])[1]
    assert cell(found, "O0")["kernels"] == 3
    assert cell(found, "O2")["kernels"] == 1
    assert cell(found, "O3")["same_as"] == "O2"


def test_several_modules_have_a_mean(here: Path) -> None:
    """The geometric one of their ratios, with the least and the most; of wrong results there is none."""
    (here / "swap.py").write_text(WRONG_PASS)
    (here / "n.hlo").write_text(MODULE.replace("b = f32[64] exponential(x)", "b = f32[64] tanh(x)"))
    words = ("m.hlo", "n.hlo", "--strategy", "O0", "--strategy", "O2", "--device", "h200")
    found = study(*words)
    ratios = [one["over_baseline"] for one in found["cells"] if one["strategy"] == "O2"]
    (row,) = found["means"]
    assert row.pop("mean") == pytest.approx((ratios[0] * ratios[1]) ** 0.5)
    least, most = sorted(ratios)
    assert row == {"strategy": "O2", "device": "h200", "modules": 2, "least": least, "most": most}
    shown = invoke("study", *words, columns=80).stdout
    assert "all modules" in shown
    assert (
        f"O2        h200          2           {row['least'] ** 0.5 * row['most'] ** 0.5:.2f}x"
        in shown
    )
    words += ("--pass-file", "swap.py", "--strategy", "bad=swap")
    assert [one["strategy"] for one in study(*words, code=1)["means"]] == ["O2"]
    assert study("m.hlo", "--device", "h200")["means"] == []
    assert "all modules" not in invoke("study", "m.hlo", "--device", "h200").stdout


def test_results_that_differ_are_shown_and_exit_with_1(here: Path) -> None:
    """One wrong cell says what differs and stops nothing, not even its prediction."""
    (here / "swap.py").write_text(WRONG_PASS)
    words = ("m.hlo", "--pass-file", "swap.py", "--strategy", "O1", "--strategy", "bad=swap")
    found = study(*words, "--strategy", "dce", "--device", "h200", code=1)
    assert cell(found, "bad", "h200")["results"] == "differ"
    assert "64 of 64 elements of f32" in cell(found, "bad", "h200")["checked"]["problem"]
    assert cell(found, "bad", "h200")["predicted"]["seconds"] > 0
    assert cell(found, "dce", "h200")["results"] == "equal"
    shown = invoke("study", *words, "--device", "h200", columns=140).stdout
    assert "differs: m: bad for h200: results on cpu: out_0 against interpreter" in shown
    assert "DIFFER" in shown


def test_a_wrong_result_reaches_no_gate(here: Path) -> None:
    """However fast it is; and differing results outrank a gate."""
    (here / "swap.py").write_text(WRONG_PASS)
    words = ("m.hlo", "--pass-file", "swap.py", "--strategy", "O0", "--strategy", "bad=swap,dce")
    found = study(*words, "--device", "h200", "--gate", "bad=1", code=1)
    assert found["gates"][0]["reached"][0]["ratio"] is None


def test_gates(here: Path) -> None:
    """A ratio that the fastest, or one strategy, does not reach exits with 6 and says so."""
    words = ("m.hlo", "--strategy", "O0", "--strategy", "O2", "--device", "h200")
    assert study(*words, "--gate", "2")["gates"][0]["passed"]
    result = invoke("study", *words, "--gate", "O2=2", "--gate", "4x")
    assert result.exit_code == 6
    assert "gate missed: m, h200: the fastest: 2.98x, wanted 4x" in result.stderr
    for gate, told in (("O3=2", "no strategy is called 'O3'"), ("O2=", "expected RATIO")):
        refused = invoke("study", *words, "--gate", gate)
        assert (refused.exit_code, told in refused.stderr) == (2, True)


def test_inputs_and_recorded_results_beside_the_file(here: Path) -> None:
    """``m.npz`` beside ``m.hlo`` counts, unless there is a seed; wrong records are found out."""
    x = np.ones(64, np.float32)
    np.savez(here / "m.npz", in_0=x, out_0=2 * np.exp(x))
    found = study("m.hlo", "--strategy", "O2", "--repeat", "1")
    assert cell(found, "O2")["checked"]["against"] == ["interpreter", "recorded results"]
    np.savez(here / "m.npz", in_0=x, out_0=3 * np.exp(x))
    wrong = study("m.hlo", "--strategy", "O2", "--repeat", "1", code=1)
    problem = cell(wrong, "O2")["checked"]["problem"]
    assert "against recorded results" in problem
    assert "those of the interpreter are met" in problem
    study("m.hlo", "--strategy", "O2", "--repeat", "1", "--tolerance", "atol=3")
    assert study("m.hlo", "--strategy", "O2", "--tolerance", "rtol=0.5", "--device", "h200")[
        "passed"
    ]
    seeded = study("m.hlo", "--strategy", "O2", "--repeat", "1", "--seed", "1")
    assert cell(seeded, "O2")["checked"]["against"] == ["interpreter"]


def test_what_is_too_large_is_said_to_be_unverified(here: Path) -> None:
    """A limit leaves the interpreter out, and the cell says so; recorded results still count."""
    words = ("m.hlo", "--strategy", "O2", "--repeat", "1", "--verify-limit", "10")
    found = cell(study(*words), "O2")
    assert found["results"] == "not verified"
    assert "elements, the limit is 10" in found["checked"]["problem"]
    assert found["measured"]["seconds"]
    x = np.ones(64, np.float32)
    np.savez(here / "m.npz", in_0=x, out_0=2 * np.exp(x))
    assert cell(study(*words), "O2")["checked"]["against"] == ["recorded results"]
    unasked = cell(study(*words, "--no-verify"), "O2")
    assert (unasked["results"], unasked["checked"]["problem"]) == (
        "not verified",
        "not requested",
    )


def test_a_device_that_is_not_there_is_a_cell_that_says_so(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XLA without a Python that has it: the cell has no figure, the exit code stays 0."""
    monkeypatch.delenv("HLOOPT_XLA_PYTHON", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    words = ("m.hlo", "--strategy", "O2", "--device", "xla-cpu", "--device", "h200")
    found = cell(study(*words), "O2", "xla-cpu")
    assert (found["missing"], found["measured"]) == (True, None)
    assert "no device xla-cpu: HLOOPT_XLA_PYTHON names no Python" in invoke("study", *words).stdout


def test_a_gate_is_not_passed_by_what_was_not_measured(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that is not there is the error that it is for ``run``, also beside others that are."""
    monkeypatch.delenv("HLOOPT_XLA_PYTHON", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    words = ("m.hlo", "--strategy", "O0", "--strategy", "O2", "--gate", "O2=1.5")
    found = study(*words, "--device", "xla-cpu", code=5)
    assert not found["gates"][0]["passed"]
    result = invoke("study", *words, "--device", "xla-cpu", "--device", "h200")
    assert result.exit_code == 5
    assert "gate O2=1.5: nothing was measured on xla-cpu: HLOOPT_XLA_PYTHON" in result.stderr
    verified = ("--device", "emulator")
    result = invoke("study", *words, *verified)
    assert result.exit_code == 6
    assert "gate missed: O2=1.5: no module has a time for it" in result.stderr


def test_a_strategy_that_fails_is_one_cell(here: Path) -> None:
    """What cannot run stops at its cell and gives the exit code of its error."""
    (here / "m.hlo").write_text(
        "HloModule m\nENTRY main {\n  x = f32[4] parameter(0)\n  ROOT c = f32[4] custom-call(x), "
        'custom_call_target="mystery"\n}\n'
    )
    found = study("m.hlo", "--strategy", "O0", "--device", "cpu", "--device", "h200", code=4)
    assert "m.hlo:4:8: " in cell(found, "O0")["problem"]
    assert "mystery" in cell(found, "O0")["problem"]
    assert cell(found, "O0", "h200")["results"] == "not verified"


def test_a_module_that_cannot_be_read_leaves_the_others(here: Path) -> None:
    """Its error is told once, the code is its own, and the rest of the study is done."""
    (here / "broken.hlo").write_text(
        "HloModule broken\nENTRY main { ROOT x = f32[ parameter(0) }\n"
    )
    found = study("broken.hlo", "m.hlo", "--strategy", "O1", "--device", "h200", code=3)
    assert [one["module"] for one in found["cells"]] == ["m"]
    assert found["read"][0]["error"]["kind"] == "ParseError"


def test_what_is_kept(here: Path) -> None:
    """Optimised modules that can be read back, and lock files that make the same kernels again."""
    words = ("m.hlo", "--strategy", "O2", "--strategy", "a/b=O1", "--device", "h200")
    study(*words, "--device", "a100", "--out", "kept")
    names = sorted(path.name for path in (here / "kept" / "m").iterdir())
    assert names == ["O2.a100.hlo", "O2.a100.lock.toml", "O2.hlo", "O2.lock.toml", "a_b.hlo"]
    kept = parse((here / "kept" / "m" / "O2.hlo").read_text())
    verify(kept)
    again = invoke("optimize", "m.hlo", "--lock", "kept/m/O2.lock.toml", "--frozen")
    assert again.exit_code == 0, again.stderr
    same = invoke("diff", "kept/m/O2.hlo", "-", "--json", stdin=again.stdout)
    assert json.loads(same.stdout)["equal"]


def test_strategies_for_some_modules_and_names_from_the_file(here: Path) -> None:
    """A strategy with patterns has cells for those modules only; files given by path keep their names."""
    (here / "n.hlo").write_text(MODULE.replace("HloModule m", "HloModule n"))
    (here / "s.toml").write_text(
        '[[module]]\nfile = "n.hlo"\nname = "the other"\n'
        '[[strategy]]\nname = "a"\npasses = "O1"\n'
        '[[strategy]]\nname = "b"\npasses = "O2"\nmodules = ["the*"]\n'
    )
    found = study(
        "m.hlo", "./n.hlo", "--strategies", "s.toml", "--device", "h200", "--strategy", "O3"
    )
    assert [(one["module"], one["strategy"]) for one in found["cells"]] == [
        ("m", "a"), ("m", "O3"), ("the other", "a"), ("the other", "b"), ("the other", "O3"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--device", "h20"), "no device or target is called 'h20'; did you mean 'h200'"),
        (("--device", "cpu", "--device", "cpu"), "--device cpu is given more than once"),
        (("--cost-model", "xla"), "no cost model is called 'xla'"),
        (("--baseline", "O7"), "--baseline: no strategy is called 'O7'"),
        (("--strategies", "gone.toml"), "gone.toml: No such file"),
        (("--html", "-"), "--html needs a file, not '-'"),
        (("--html", "m.hlo"), "--html m.hlo: this is one of the inputs"),
        (("--out", "m.hlo"), "--out needs a folder, not 'm.hlo'"),
        (("m.hlo",), "m.hlo is given more than once"),
    ],
)
def test_usage(here: Path, words: tuple[str, ...], told: str) -> None:
    """What makes no sense is told before anything is run, with exit code 2."""
    result = invoke("study", "m.hlo", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr


def test_two_devices_of_other_fusion_have_tables_of_their_own(here: Path) -> None:
    """Every line fits the terminal, whatever the number of devices."""
    devices = [
        word for name in ("h200", "a100", "v100", "b200", "cpu") for word in ("--device", name)
    ]
    result = invoke("study", "m.hlo", "--repeat", "1", *devices, columns=80)
    tables = result.stdout.split("over:")[0]
    assert max(map(len, tables.splitlines())) <= 80
    for name in ("h200", "a100", "v100", "b200", "cpu"):
        assert name in tables


def test_kernels_and_rules_of_a_strategy(here: Path) -> None:
    """Kernels count on devices and are kept in a lock file; a rule counts for the strategy that names it."""
    (here / "rules.py").write_text("def apart(producer, consumer):\n    return False, 'measured'\n")
    (here / "s.toml").write_text(
        '[[strategy]]\nname = "ours"\npasses = "O2"\nkernels = "op:fusion=loop{unroll=2}"\n'
        '[[strategy]]\nname = "apart"\npasses = "O2"\nrules = "rules.py:apart"\n'
    )
    words = ("m.hlo", "--strategies", "s.toml", "--fusion-rule", "rules.py:apart")
    found = study(*words, "--device", "emulator", "--out", "kept")
    assert [one["kernels"] for one in found["cells"]] == [1, 2]
    assert [one["measured"] for one in found["cells"]] == [None, None]
    assert {one["results"] for one in found["cells"]} <= {"equal", "within tolerance"}
    assert "unroll = 2" in (here / "kept" / "m" / "ours.emulator.kernels.toml").read_text()


def test_what_is_too_much_for_the_emulator(here: Path) -> None:
    """It is said, not run."""
    words = ("m.hlo", "--strategy", "O2", "--device", "emulator", "--emulate-limit", "5")
    found = cell(study(*words), "O2", "emulator")
    assert found["results"] == "not verified"
    assert "the emulator would compute" in found["checked"]["problem"]


LOOP = """HloModule loop

condition {
  state = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] constant(100)
  ROOT less = pred[] compare(i, n), direction=LT
}

body {
  state = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[64] get-tuple-element(state), index=1
  y = f32[64] sine(x)
  ROOT out = (s32[], f32[64]) tuple(next, y)
}

ENTRY main {
  x = f32[64] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[64]) tuple(zero, x)
  loop = (s32[], f32[64]) while(start), condition=condition, body=body
  ROOT y = f32[64] get-tuple-element(loop), index=1
}
"""


def test_a_loop_in_one_kernel(here: Path) -> None:
    """It is one launch, its parts add up, its model is named, and its results are those of the loop."""
    (here / "loop.hlo").write_text(LOOP)
    (here / "s.toml").write_text(
        '[[strategy]]\nname = "s"\npasses = "loop-fusion,priority-fusion"\nladder = ["loop-fusion"]\n'
    )
    words = ("loop.hlo", "--strategies", "s.toml", "--device", "h200", "--device", "cpu")
    found = study(*words, "--repeat", "1")
    apart, fused = cell(found, "s base", "h200"), cell(found, "s", "h200")
    assert (apart["launches"], fused["launches"]) == (301, 1)
    assert (apart["predicted"]["loop_kernels"], fused["predicted"]["loop_kernels"]) == (0, 1)
    assert fused["bought"] == apart["predicted"]["seconds"] / fused["predicted"]["seconds"] > 10
    for one in (apart, fused):
        parts = [value for key, value in one["predicted"].items() if key.endswith("_seconds")]
        assert sum(parts) == pytest.approx(one["predicted"]["seconds"])
        assert (one["launches_known"], one["results"]) == (True, "equal")
    assert fused["predicted"]["latency_seconds"] > fused["predicted"]["launch_seconds"]
    assert (
        "with whole loops in one kernel, which are predicted by loop-"
        in invoke(*("study", *words)).stdout
    )


def test_loops_of_unknown_trips_have_no_ratio_to_known_ones(here: Path) -> None:
    """A loop that counts once cannot be compared with one that counts a hundred times."""
    (here / "known.hlo").write_text(LOOP)
    unknown = LOOP.replace("n = s32[] constant(100)", "n = s32[] get-tuple-element(state), index=2")
    unknown = unknown.replace("(s32[], f32[64])", "(s32[], f32[64], s32[])")
    unknown = unknown.replace("tuple(next, y)", "tuple(next, y, m)")
    unknown = unknown.replace(
        "  y = f32[64] sine", "  m = s32[] get-tuple-element(state), index=2\n  y = f32[64] sine"
    )
    unknown = unknown.replace("  zero =", "  n = s32[] parameter(1)\n  zero =").replace(
        "tuple(zero, x)", "tuple(zero, x, n)"
    )
    (here / "unknown.hlo").write_text(unknown)
    (here / "s.toml").write_text(
        '[[module]]\nfile = "known.hlo"\n[[module]]\nfile = "unknown.hlo"\nvariant_of = "known"\n'
        '[[strategy]]\nname = "O0"\npasses = "O0"\n'
    )
    found = study("--strategies", "s.toml", "--device", "h200")["cells"]
    assert [one["launches_known"] for one in found] == [True, False]
    assert [one["over_baseline"] for one in found] == [1.0, None]


@pytest.mark.xla
@pytest.mark.skipif(
    not os.environ.get("HLOOPT_XLA_PYTHON"), reason="no Python with jaxlib is named"
)
def test_xla_itself(here: Path) -> None:
    """XLA compiles what the passes leave, and its results are compared, too."""
    found = cell(study("m.hlo", "--strategy", "O2", "--device", "xla-cpu"), "O2", "xla-cpu")
    assert found["results"] in ("equal", "within tolerance")
    assert found["measured"]["seconds"]
    assert "jaxlib" in found["measured"]["where"]
