"""``--profile`` of stats and explain: tables, JSON, modules of the trace, messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hloopt
from hloopt.proto import write_module
from tests.analysis.test_measured import GIVEN, RAN, RUNS
from tests.helpers.support import invoke
from tests.profiles.traces import Made, chrome, xplane


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "t.xplane.pb"
    path.write_bytes(xplane(RUNS, {"jit_f(6)": write_module(hloopt.parse(RAN))}))
    return path


def test_a_trace_shows_the_modules_that_it_holds(trace: Path) -> None:
    shown = invoke("stats", "--profile", str(trace)).stdout
    assert "measured 421 ns a run: 3 runs of jit_f(6)\n" in shown
    assert "joined to instructions: 100% by name\n" in shown
    assert [line.split()[0] for line in shown.splitlines()[5:]] == [
        "dot.1",
        "loop-fusion.7",
        "copy.1",
    ]
    assert "predicted" not in shown


def test_predictions_stand_beside(trace: Path) -> None:
    result = invoke("stats", "--profile", str(trace), "--target", "h200", "--json")
    (row,) = json.loads(result.stdout)["modules"]
    found = row["measured"]
    assert (found["runs"], found["joined"], found["target"]) == (3, 1.0, "h200")
    assert found["kernels"][0]["name"] == "dot.1"
    for kernel in found["kernels"]:
        assert kernel["ratio"] == pytest.approx(kernel["seconds"] / kernel["predicted_seconds"])
    assert sum(source["share"] for source in found["sources"]) == pytest.approx(1.0)
    assert [source["name"] for source in found["sources"]] == ["m.py:5", "m.py:4", ""]
    shown = invoke("stats", "--profile", str(trace), "--target", "h200", "--by", "source").stdout
    assert "m.py:5" in shown
    assert "predicted for h200 by" in shown


def test_a_file_before_the_passes_points_to_the_module_in_the_trace(
    trace: Path, tmp_path: Path
) -> None:
    path = tmp_path / "given.hlo"
    path.write_text(GIVEN)
    shown = invoke("stats", str(path), "--profile", str(trace)).stdout
    assert "71% by pairing with the module in the trace, 24% by op_name\n" in shown
    assert "not joined: 4.8% of the measured time\n" in shown
    assert f"hloopt stats --profile {trace} --module '^jit_f'\n" in shown
    trace.write_bytes(chrome(RUNS))
    shown = invoke("stats", str(path), "--profile", str(trace)).stdout
    assert "joined to instructions: nothing\n" in shown
    assert "give that module (*after_optimizations.txt)\n" in shown


def test_what_was_not_measured_is_named(trace: Path) -> None:
    trace.write_bytes(xplane(RUNS[:2], {"jit_f(6)": write_module(hloopt.parse(RAN))}))
    assert (
        "- 1 kernel was not measured: copy.1\n" in invoke("stats", "--profile", str(trace)).stdout
    )


def test_explain_shows_what_was_measured(trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "given.hlo"
    path.write_text(GIVEN)
    shown = invoke("explain", str(path), "dot.3", "--profile", str(trace)).stdout
    assert shown.splitlines()[-1].split()[0] == "dot.3"
    shown = invoke("explain", "--profile", str(trace)).stdout
    assert [line.split()[0] for line in shown.splitlines()[-3:]] == [
        "dot.1",
        "loop-fusion.7",
        "copy.1",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--profile", "{trace}", "--module", "nix"), "no module matches --module 'nix'"),
        (("--profile", "{folder}"), "Is a directory"),
        (("--profile", "{folder}/none"), "No such file or directory"),
        (("--profile", "{chrome}"), "holds no module: give the file of the module that ran"),
        (("{trace}", "--by", "source"), "--by is for predicted times: it needs --target DEVICE"),
    ],
)
def test_mistakes(trace: Path, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    other = tmp_path / "trace.json"
    other.write_bytes(chrome(RUNS))
    places = {"trace": str(trace), "folder": str(tmp_path), "chrome": str(other)}
    result = invoke("stats", *(word.format(**places) for word in words))
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_module_in_a_trace_that_is_damaged(trace: Path) -> None:
    trace.write_bytes(xplane([Made(0, 5, "a")], {"jit_f(6)": b"\x0a\x05abc"}))
    result = invoke("stats", "--profile", str(trace))
    assert result.exit_code == 3
    assert f"{trace}:jit_f(6)" in result.stderr


def test_python_reads_profiles_too(trace: Path, tmp_path: Path) -> None:
    """The records have the same JSON as the commands."""
    ran = hloopt.parse(RAN)
    found = hloopt.stats(ran, target="h200", profile=trace)
    assert found.measured is not None
    assert found.to_json()["measured"]["joined"] == 1.0
    assert found.measured.rows(["dot.1"])[0]["predicted_seconds"] > 0
    path = tmp_path / "given.hlo"
    path.write_text(GIVEN)
    explained = hloopt.explain(path, "dot.3", profile=str(trace))
    assert explained.measured is not None
    assert explained.to_json()["measured"]["trace"] == str(trace)
    with pytest.raises(hloopt.UsageError, match="No such file"):
        hloopt.stats(ran, profile=tmp_path / "none.json")


def test_gaps_between_the_kernels_of_a_loop_are_said(tmp_path: Path) -> None:
    """They are time of the loop: nothing inside of it was measured then."""
    module = tmp_path / "m.hlo"
    module.write_text("""
HloModule jit_f
body { s = f32[8] parameter(0)  ROOT negate.2 = f32[8] negate(s) }
condition { s = f32[8] parameter(0)  ROOT more = pred[] constant(true) }
ENTRY main { x = f32[8] parameter(0)  ROOT while.1 = f32[8] while(x), condition=condition, body=body }
""")
    trace = tmp_path / "trace"
    for length, is_said in ((600, True), (898, False)):
        trace.write_bytes(chrome([Made(0, 900, "while.1"), Made(1, length, "negate.2")]))
        shown = invoke("stats", str(module), "--profile", str(trace)).stdout
        words = " ".join(shown.split())
        assert ("is of %while.1: time in the loop during which nothing inside" in words) == is_said
