"""Every golden case answers as it says."""

from __future__ import annotations

from pathlib import Path

import pytest

import golden

CASES = Path(__file__).parent / "cases"
FILES = sorted(CASES.rglob("*.test"))
ALL = [(path, index) for path in FILES for index in range(len(golden.read(path)))]


@pytest.mark.parametrize(
    ("path", "index"), ALL, ids=[f"{path.relative_to(CASES)}:{index}" for path, index in ALL]
)
def test_golden(path: Path, index: int, request: pytest.FixtureRequest) -> None:
    """The command's output, messages and exit code are those of the file."""
    cases = golden.read(path)
    got = golden.run(cases[index])
    if request.config.getoption("--update-golden"):
        cases[index] = got
        golden.write(path, cases)
        return
    assert got.text() == cases[index].text()


def test_a_case_survives_reading_and_writing(tmp_path: Path) -> None:
    """Writing what was read gives the same file."""
    for path in FILES:
        copy = tmp_path / path.name
        golden.write(copy, golden.read(path))
        assert copy.read_text() == path.read_text()


def test_stray_text_is_refused(tmp_path: Path) -> None:
    """A file that does not begin with a section is a mistake, not an empty list of cases."""
    path = tmp_path / "stray.test"
    path.write_text("hello\n-- description\nx\n-- command\nhloopt check\n-- output\n")
    with pytest.raises(ValueError, match="before the first section"):
        golden.read(path)
