"""``hloopt run`` with several participants: inputs, comparisons and messages of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.support import invoke

SAMPLE = Path(__file__).resolve().parent.parent.parent / "samples" / "parallel" / "ring_attention"

SUM = """HloModule m, num_partitions=3
add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y)
}
ENTRY e {
  a = f32[2] parameter(0)
  b = f32[2] parameter(1), sharding={replicated}
  p = f32[2] add(a, b)
  ROOT r = f32[2] all-reduce(p), channel_id=1, replica_groups={{0,1,2}}, use_global_device_ids=true, to_apply=add
}
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A sum over three partitions."""
    path = tmp_path / "m.hlo"
    path.write_text(SUM)
    return path


def report(*words: object) -> dict[str, Any]:
    """The JSON of one module."""
    result = invoke("run", *map(str, words), "--repeat", "1", "--json")
    assert result.exit_code in (0, 1), result.stderr
    found: dict[str, Any] = json.loads(result.stdout)["modules"][0]
    assert found["passed"] is (result.exit_code == 0)
    return found


@pytest.mark.parametrize("level", ["-O0", "-O2", "-O3"])
def test_a_program_that_xla_has_partitioned(level: str) -> None:
    """Interpreter and executor give each participant what XLA gave it, be it shared or its own."""
    files = ("--inputs", f"{SAMPLE}.npz", "--expect", f"{SAMPLE}.npz")
    found = report(f"{SAMPLE}.hlo", *files, level)
    assert (found["passed"], found["replicas"], found["partitions"]) == (True, 1, 4)
    for row in found["rows"]:
        places = [(entry["participant"], entry["output"]) for entry in row["comparisons"]]
        assert places == [(who, output) for who in range(4) for output in range(2)]


def test_the_place_of_a_difference_names_the_participant(module: Path, tmp_path: Path) -> None:
    """Only participant 2 is told to expect something else."""
    np.savez(
        tmp_path / "in.npz",
        **{"in_0": np.float32([1, 2]), "in_0.1": np.float32([10, 20]), "in_1": np.float32([0, 0])},
    )
    np.savez(
        tmp_path / "out.npz", **{"out_0": np.float32([12, 24]), "out_0.2": np.float32([12, 25])}
    )
    files = ("--inputs", str(tmp_path / "in.npz"), "--expect", str(tmp_path / "out.npz"))
    result = invoke("run", str(module), *files, "--repeat", "1")
    assert result.exit_code == 1
    assert "participants: 1 x 3" in result.stdout
    assert "out_0.2[1]" in result.stdout
    assert result.stdout.count("\ndiffers ") == 2
    assert "differs interpreter: out_0.2 against expected: 1 of 2 elements of f32" in result.stdout
    found = report(module, *files)
    failed = [
        (row["name"], entry["participant"])
        for row in found["rows"]
        for entry in row["comparisons"]
        if not entry["passed"]
    ]
    assert failed == [("interpreter", 2), ("O2, cpu", 2)]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["in_0", "in_1.0", "in_1.2"], "it has no in_1.1"),
        (["in_1"], "it has no in_0.0, in_0.1, in_0.2"),
        (["in_0", "in_1", "in_1.3"], "in_1.3 too many"),
        (["in_0", "in_0.x", "in_1"], "in_0.x too many"),
    ],
)
def test_inputs_that_are_missing_or_too_many(
    module: Path, tmp_path: Path, names: list[str], message: str
) -> None:
    """In a folder as in a file; the message says how inputs are called."""
    for name in names:
        np.save(tmp_path / f"{name}.npy", np.float32([1, 2]))
    result = invoke("run", str(module), "--inputs", str(tmp_path))
    assert result.exit_code == 2
    assert message in result.stderr
    assert "in_0 is for all 3 participants, in_0.2 for number 2" in result.stderr


def test_inputs_of_one_participant_may_have_its_number(module: Path, tmp_path: Path) -> None:
    """As a file for more of them has it."""
    module.write_text(
        "HloModule m\nENTRY e {\n  a = f32[2] parameter(0)\n  ROOT n = f32[2] negate(a)\n}\n"
    )
    np.savez(tmp_path / "in.npz", **{"in_0.0": np.float32([1, 2])})
    np.savez(tmp_path / "out.npz", **{"out_0.0": np.float32([-1, -2])})
    files = ("--inputs", tmp_path / "in.npz", "--expect", tmp_path / "out.npz")
    assert report(module, *files)["passed"]


def test_counts_are_the_module_s_where_they_matter(module: Path) -> None:
    """Where all participants would do the same, one does it."""
    assert report(module)["partitions"] == 3
    lines = [line for line in SUM.splitlines() if "all-reduce" not in line]
    module.write_text("\n".join(lines).replace("p = f32[2] add", "ROOT p = f32[2] add"))
    assert report(module)["partitions"] == 1
    found = report(module, "--participants", "2")
    assert (found["replicas"], found["partitions"]) == (2, 1)


def test_one_participant_of_several_is_refused_with_a_hint(module: Path) -> None:
    """Exit 4, with the line, before anything runs."""
    result = invoke("run", str(module), "--participants", "1x1")
    assert result.exit_code == 4
    assert (
        f"{module}:11:8: error: r: all-reduce among 3 participants; only one is run"
        in result.stderr
    )
    assert "(--participants runs several)" in result.stderr


def test_snapshots_are_of_one_participant(module: Path, tmp_path: Path) -> None:
    """None is written of several, and none is taken for them."""
    result = invoke("run", str(module), "--save", str(tmp_path / "s.pb"))
    assert result.exit_code == 2
    assert "a snapshot has what one participant has; m is run by 3" in result.stderr
    module.write_text(
        "HloModule m\nENTRY e {\n  a = f32[2] parameter(0)\n  ROOT n = f32[2] negate(a)\n}\n"
    )
    snapshot = tmp_path / "s.pb"
    once = ("--repeat", "1")
    assert invoke("run", str(module), "--save", str(snapshot), *once).exit_code == 0
    result = invoke("run", str(snapshot), "--participants", "1x2")
    assert result.exit_code == 2
    assert "the snapshot has inputs of one participant, 2 are run" in result.stderr
    assert (
        invoke("run", str(snapshot), "--participants", "1x2", "--seed", "1", *once).exit_code == 0
    )


def test_an_array_too_large_for_all_is_a_message(
    module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is needed for each."""
    monkeypatch.setattr("hloopt.driver.notes.memory_limit", lambda: 95)
    result = invoke("run", str(module))
    assert result.exit_code == 4
    assert "this needs 96 B of memory at once, 95 B can be had" in result.stderr
