"""Findings beside the times of a real run: their order, and both times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import hloopt
from hloopt.cli.main import cli
from hloopt.findings import Findings
from tests.profiles.traces import Made, chrome

_TWO = """HloModule two

ENTRY main {
  large = f32[4096,1024] parameter(0)
  small = f32[2048,1024] parameter(1)
  row = f32[1,1024] parameter(2)
  at = s32[] parameter(3)
  zero = s32[] constant(0)
  one = f32[4096,1024] dynamic-update-slice(large, row, at, zero)
  other = f32[2048,1024] dynamic-update-slice(small, row, at, zero)
  ROOT r = (f32[4096,1024], f32[2048,1024]) tuple(one, other)
}
"""
_UPDATES = ("loop_dynamic_update_slice_fusion", "loop_dynamic_update_slice_fusion.1")


def trace(folder: Path, times: dict[str, int]) -> Path:
    """A trace of one run of kernels, with how many nanoseconds each took."""
    spans, start = [], 0
    for name, length in times.items():
        spans.append(Made(op=name, module="two", start=start, length=length))
        start += length
    path = folder / "trace.json"
    path.write_bytes(chrome(spans))
    return path


def found(path: Path | None) -> Findings:
    """The copies that are found on a GPU."""
    made = hloopt.why(hloopt.parse(_TWO), kinds=["copy"], profile=path)
    assert isinstance(made, Findings)
    return made


def test_findings_are_ranked_by_what_was_measured(tmp_path: Path) -> None:
    """The copy that is predicted to cost less took longer: it comes first, with both times."""
    times = {"copy": 4_000, "copy.1": 90_000, **dict.fromkeys(_UPDATES, 1_000)}
    predicted, measured = found(None), found(trace(tmp_path, times))
    assert [row.instruction for row in predicted.rows] == ["large", "small"]
    assert [row.instruction for row in measured.rows] == ["small", "large"]
    assert [row.cost.measured for row in predicted.rows] == [None, None]
    assert [row.cost.measured for row in measured.rows] == pytest.approx([90e-6, 4e-6])
    assert [row.cost.seconds for row in measured.rows] == [
        row.cost.seconds for row in predicted.rows[::-1]
    ]
    assert measured.kernels[0].name == "copy.1"
    assert measured.measured is not None
    assert measured.measured.run_seconds == pytest.approx(96e-6)


def test_what_a_trace_does_not_have_comes_last(tmp_path: Path) -> None:
    """It was not measured, and nothing is said to have been."""
    measured = found(trace(tmp_path, {"copy.1": 1_000, **dict.fromkeys(_UPDATES, 1_000)}))
    assert [(row.instruction, row.cost.measured) for row in measured.rows] == [
        ("small", pytest.approx(1e-6)),
        ("large", None),
    ]


def test_the_command(tmp_path: Path) -> None:
    """Both times are printed, and JSON has them."""
    module = tmp_path / "two.hlo"
    module.write_text(_TWO)
    path = trace(tmp_path, {"copy": 4_000, "copy.1": 90_000})
    words = ["why", str(module), "--kind", "copy", "--profile", str(path)]
    text = " ".join(CliRunner().invoke(cli, words).stdout.split())
    assert "measured 94 us a run: 1 run of two, 100% of it joined" in text
    assert "costs measured 90 us, predicted 4.5 us (31% of the whole)" in text
    (document,) = json.loads(CliRunner().invoke(cli, [*words, "--json"]).stdout)["modules"]
    assert document["findings"][0]["cost"]["measured_seconds"] == pytest.approx(90e-6)
