"""What a shell completes, as click asks for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from hloopt.cli.main import cli
from hloopt.pipelines import PIPELINES, all_names

HLO = "HloModule m\n\nENTRY e {\n  x = f32[4] parameter(0)\n  %exp.1 = f32[4] exponential(x)\n  ROOT exp.2 = f32[4] negate(%exp.1)\n}\n"


def completed(*words: str) -> list[str]:
    """What the last word of a command line may become."""
    *args, incomplete = words
    found = ShellComplete(cli, {}, "hloopt", "_HLOOPT_COMPLETE").get_completions(args, incomplete)
    return [item.value for item in found]


def test_passes_and_pipelines() -> None:
    assert completed("passes", "while-u") == ["while-unroll"]
    assert completed("passes", "") == list(all_names())
    assert completed("passes", "--preset", "xla") == ["xla-gpu-2022", "xla-gpu-2026"]
    assert completed("optimize", "--only", "cs") == ["cse"]
    assert completed("run", "--disable", "cs") == ["cse"]
    assert completed("optimize", "--fuel", "cs") == ["cse="]


@pytest.mark.parametrize("before", ["", "O1,", "O1,fix(simplify,", "simplify{x=1},fix("])
def test_the_last_entry_of_a_pipeline(before: str) -> None:
    """Whatever stands before it."""
    assert completed("optimize", "--passes", f"{before}cs") == [f"{before}cse"]
    some = completed("optimize", "--passes", f"{before}O")
    assert some == [before + name for name in PIPELINES if name.startswith("O")]


def test_instructions_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind it, with a percent sign where one is typed; before there is one, files."""
    monkeypatch.chdir(tmp_path)
    Path("m.hlo").write_text(HLO)
    assert completed("explain", "m.hlo", "exp") == ["exp.1", "exp.2"]
    assert completed("explain", "m.hlo", "exp.1", "%exp.2") == ["%exp.2"]
    assert completed("explain", "m") == ["m.hlo"]
    assert completed("explain", "m.hlo", "exp.3") == []


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [("h", ["h100", "h200", "host"]), ("TPU-v5", ["tpu-v5e", "tpu-v5p"]), ("x", [])],
)
def test_targets_are_completed_in_any_case(typed: str, wanted: list[str]) -> None:
    """The names that begin so, wherever ``--target`` is taken."""
    assert completed("stats", "--target", typed) == wanted
