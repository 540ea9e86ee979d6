"""``hloopt doctor``: parts that are there, missing and broken, and what the exit code says of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hloopt.driver import machine
from hloopt.driver.machine import PARTS, examine
from tests.helpers.support import invoke


def test_every_part_is_listed_with_its_state() -> None:
    result = invoke("doctor", "--json")
    answer = json.loads(result.stdout)
    assert [part["name"] for part in answer["parts"]] == list(PARTS)
    assert {part["state"] for part in answer["parts"]} <= {"ok", "missing", "broken"}
    assert answer["versions"]["numpy"]
    for part in answer["parts"]:
        assert bool(part["remedy"]) == (part["state"] != "ok"), part


def test_a_missing_compiler_fails_only_where_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = machine.Part(
        "compiler", "missing", "no C++ compiler", "--device native", "install g++"
    )
    monkeypatch.setitem(PARTS, "compiler", lambda: missing)
    named = invoke("doctor", "compiler")
    assert named.exit_code == 5
    assert "missing" in named.stdout
    assert "-> install g++" in named.stdout


def test_what_is_there_and_fails_is_broken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'cannot import jaxlib' >&2\nexit 1\n", encoding="utf-8")
    python.chmod(0o755)
    monkeypatch.setenv("HLOOPT_XLA_PYTHON", str(python))
    (part,) = examine(["xla"])
    assert part.state == "broken"
    assert part.found.endswith("cannot import jaxlib")
    assert invoke("doctor", "xla").exit_code == 5


def test_a_package_that_is_not_installed_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "find_spec", lambda name: None)
    (part,) = examine(["lsp"])
    assert (part.state, part.found) == ("missing", "no pygls")
    assert "lsp" in part.remedy


def test_an_unknown_part_is_a_mistake_of_usage() -> None:
    result = invoke("doctor", "compilr")
    assert result.exit_code == 2
    assert "did you mean 'compiler'?" in result.stderr


def test_the_version_as_json() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hloopt", "--version", "--json"], capture_output=True, check=True
    )
    assert json.loads(done.stdout)["hloopt"] == machine.versions()["hloopt"]
