"""Every golden case answers as it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import golden

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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello\n-- description\nx\n", "text before the first section"),
        ("", "text before the first section"),
        ("-- command\nhloopt ops\n", "-- command before -- description"),
        ("-- description\nx\n-- ouput\ny\n", "no section is called -- ouput"),
        ("-- description\nx\n-- exit\n", "no section is called -- exit"),
        ("-- description\nx\n-- output\ny\n-- output\nz\n", "-- output twice in case 0"),
        ("-- description\nx\n-- file a\n1\n-- file a\n2\n", "-- file a twice in case 0"),
    ],
)
def test_a_malformed_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """A mistake in a case must not make it pass, or silently test less."""
    path = tmp_path / "malformed.test"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        golden.read(path)


def test_a_case_that_answers_otherwise_is_seen_and_rewritten(tmp_path: Path) -> None:
    """Output, messages and exit code count; rewriting one case leaves its neighbour alone."""
    path = tmp_path / "two.test"
    text = "HloModule m\nENTRY e { ROOT p = f32[] parameter(0) }\n"
    good = f"-- description\ngood\n-- command\nhloopt check\n-- input\n{text}-- output\n"
    bad = "-- description\nbad\n-- command\nhloopt check\n-- input\nnonsense\n-- output\n"
    path.write_text(good + bad)
    cases = golden.read(path)
    got = [golden.run(case) for case in cases]
    assert got[1].exit_code == 3
    assert "error:" in got[1].text()
    assert got[1].text() != cases[1].text()

    golden.write(path, [cases[0], got[1]])
    assert golden.read(path)[0].text() == good
    assert [golden.run(case).text() for case in golden.read(path)][1] == got[1].text()
