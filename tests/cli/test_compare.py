"""``hloopt compare``, and what ``run`` compares with other modules: files, exit codes, errors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hloopt
from tests.helpers.support import invoke

TEXT = """HloModule m
ENTRY e {
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  ROOT r = f32[8] add(x, y)
}
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    one, other = tmp_path / "one.hlo", tmp_path / "other.hlo"
    one.write_text(TEXT)
    other.write_text(TEXT.replace("add(x, y)", "maximum(x, y)"))
    return str(one), str(other)


def test_the_inputs_that_show_a_difference_are_read_again(
    files: tuple[str, str], tmp_path: Path
) -> None:
    saved = tmp_path / "bad.npz"
    found = invoke(
        "compare", *files, "--special", "infinite", "--save-inputs", str(saved), "--json"
    )
    assert found.exit_code == 1
    assert np.isinf(np.load(saved)["in_0"]).any()
    again = invoke("compare", *files, "--inputs", str(saved), "--json")
    first, second = (json.loads(one.stdout)["first_difference"] for one in (found, again))
    assert first == second
    assert invoke("run", files[0], "--inputs", str(saved)).exit_code == 0


@pytest.mark.parametrize("command", [("compare",), ("check", "--equivalent")])
def test_a_file_that_cannot_be_written_is_refused_first(
    command: tuple[str, ...],
    files: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "file").write_text("")
    saved = str(tmp_path / "file" / "bad.npz")
    monkeypatch.setattr("hloopt.cli.actions.compare.compare_modules", None)
    monkeypatch.setattr("hloopt.cli.check_equivalent.decide", None)
    found = invoke(*command, *files, "--save-inputs", saved)
    assert (found.exit_code, found.stdout) == (2, "")
    assert found.stderr == f"hloopt: error: {saved}: Not a directory\n"
    assert [one.name for one in tmp_path.iterdir() if "npz" in one.name] == []


def test_nothing_is_saved_where_nothing_differs(files: tuple[str, str], tmp_path: Path) -> None:
    saved = tmp_path / "bad.npz"
    found = invoke("compare", files[0], files[0], "--save-inputs", str(saved))
    assert found.exit_code == 0
    assert "nothing differs" in found.stderr
    assert not saved.exists()


def test_results_of_one_module_are_those_expected_of_another(
    files: tuple[str, str], tmp_path: Path
) -> None:
    saved = tmp_path / "out.npz"
    assert invoke("run", files[0], "--save", str(saved)).exit_code == 0
    assert np.load(saved)["out_0"].shape == (8,)
    assert invoke("run", files[0], "--expect", str(saved)).exit_code == 0
    assert invoke("run", files[1], "--expect", str(saved)).exit_code == 1
    assert hloopt.run(files[0], against=files[0], repeat=1).passed
    assert not hloopt.run(files[1], against=files[0], repeat=1).passed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--special", "infinit"), "did you mean 'infinite'?"),
        (("--special", "stray"), "no input of m can be stray"),
        (("--inputs", "a.npz", "--trials", "2"), "--inputs is one trial"),
        (("--device", "nativ"), "did you mean 'native'?"),
        (("--save-inputs", "-"), "not standard output"),
        (("--tolerance", "ulp=1,bitwise"), "exclude each other"),
        (("--tolerance", "ulp=1,ulp=2"), "ulp is given twice"),
        (("--tolerance", "ulp=1.5"), "ulp needs a whole number from 0, not '1.5'"),
        (("--tolerance", "rtol=nan"), "rtol needs a number from 0, not 'nan'"),
        (("--tolerance", "bitwize"), "did you mean 'bitwise'?"),
        (("--participants", "2x"), "neither a number of replicas nor REPLICASxPARTITIONS"),
        (("--participants", "0"), "neither a number of replicas nor REPLICASxPARTITIONS"),
    ],
)
def test_options_that_cannot_be(
    files: tuple[str, str], options: tuple[str, ...], message: str
) -> None:
    found = invoke("compare", *files, *options)
    assert found.exit_code == 2
    assert message in found.stderr


def test_run_takes_one_kind_of_expected_results(files: tuple[str, str]) -> None:
    with pytest.raises(hloopt.errors.UsageError, match="against and expect"):
        hloopt.run(files[0], against=files[1], expect="a.npz")
    found = invoke("run", files[0], "--save", "out.txt")
    assert found.exit_code == 2
    assert "ends in .npz" in found.stderr


def test_a_module_that_cannot_run_is_placed(tmp_path: Path) -> None:
    path = tmp_path / "call.hlo"
    path.write_text(
        'HloModule m\nENTRY e {\n  ROOT c = f32[4] custom-call(), custom_call_target="foo"\n}\n'
    )
    found = invoke("compare", str(path), str(path))
    assert found.exit_code == 4
    assert f"{path}:3:8: error: c: custom call to foo" in found.stderr
