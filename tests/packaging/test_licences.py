"""A wheel ships what we wrote, and asks for libraries that anybody may use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packaging.licences import PERMISSIVE, foreign, licence, required

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("folder", ["hloopt", "grammar"])
def test_everything_that_is_shipped_is_ours(folder: str) -> None:
    strange = list(foreign(ROOT / folder))
    assert not strange, "a wheel would ship what others wrote: take it out"


def test_what_is_not_ours_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "font.woff2").write_bytes(b"wOF2")
    (tmp_path / "lib.js").write_text("/* Copyright Somebody */\n")
    (tmp_path / "min.js").write_text("a;" * 1000)
    (tmp_path / "ours.js").write_text("const a = 1;\n")
    assert [line.partition(":")[0] for line in foreign(tmp_path)] == [
        "font.woff2",
        "lib.js",
        "min.js",
    ]


def test_libraries_have_licences_that_allow_it() -> None:
    libraries = required()
    assert {"click", "numpy", "rich", "markdown-it-py"} <= libraries
    assert [name for name in sorted(libraries) if not PERMISSIVE.search(licence(name))] == []


def test_the_licence_is_in_the_metadata() -> None:
    assert (ROOT / "LICENSE").read_text().lstrip().startswith("Apache License")
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text()
