"""Files of rows: what a run that was stopped left is taken over, what is of another is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hloopt.errors import FileError, UsageError
from hloopt.workers.row_file import RowFile

SETTINGS = {"--seed": 3, "--repeat": None}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with two rows."""
    with RowFile(tmp_path / "rows.jsonl", "cells", SETTINGS) as file:
        file.add("a", [1])
        file.add("b", {"x": "é"})
    return tmp_path / "rows.jsonl"


def test_rows_are_there_again(path: Path) -> None:
    """The last of each key; each is in the file as soon as it is written."""
    with RowFile(path, "cells", SETTINGS) as file:
        assert file.rows == {"a": [1], "b": {"x": "é"}}
        file.add("a", [2])
        assert len(path.read_text().splitlines()) == 4
    with RowFile(path, "cells", SETTINGS) as file:
        assert file.rows["a"] == [2]


def test_a_torn_line_is_removed_and_its_task_runs_again(path: Path) -> None:
    """Wherever the run was killed in it, even in the heading."""
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with RowFile(path, "cells", SETTINGS) as file:
            complete = whole[:length].count(b"\n")
            assert list(file.rows) == ["a", "b"][: max(complete - 1, 0)]
            file.add("b", 5)
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert lines[-1] == {"key": "b", "row": 5}


def test_a_line_that_is_damaged_is_named(path: Path) -> None:
    """It is not what a kill leaves: nothing is guessed, nothing is changed."""
    for bad in ("{]", "[1]", '{"key": "a"}', '{"key": 1, "row": 2}', "3"):
        lines = path.read_text().splitlines()
        lines[1] = bad
        damaged = "\n".join(lines) + "\n"
        path.write_text(damaged)
        with pytest.raises(FileError, match="not a row of hloopt") as caught:
            RowFile(path, "cells", SETTINGS)
        assert str(caught.value).startswith(f"{path}:2:1: error: ")
        assert path.read_text() == damaged


@pytest.mark.parametrize(
    ("what", "settings", "message"),
    [
        ("cells", {"--seed": 4, "--repeat": None}, "holds cells that were made otherwise: --seed was 3 and is 4"),
        ("cells", {"--seed": 3, "--repeat": 9}, "--repeat was not given and is 9"),
        ("cells", {"--repeat": None}, "--seed was 3 and is not given"),
        ("texts", SETTINGS, "holds cells, not texts"),
    ],
)  # fmt: skip
def test_rows_of_another_run_are_refused(
    path: Path, what: str, settings: dict[str, object], message: str
) -> None:
    """With what is different, and the file stays as it is."""
    before = path.read_bytes()
    with pytest.raises(UsageError, match=message):
        RowFile(path, what, settings)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"HloModule m", b"{}", b"\n", b"\x00\xff"])
def test_another_file_is_never_written_to(tmp_path: Path, content: bytes) -> None:
    """A module that was named by mistake, even one without an end of line."""
    path = tmp_path / "m.hlo"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="holds no rows of hloopt"):
        RowFile(path, "cells", SETTINGS)
    assert path.read_bytes() == content


def test_two_runs_do_not_write_to_one_file(path: Path) -> None:
    told = "another run writes to this file"
    with RowFile(path, "cells", SETTINGS), pytest.raises(UsageError, match=told):
        RowFile(path, "cells", SETTINGS)
    RowFile(path, "cells", SETTINGS).close()


def test_a_path_that_cannot_be_a_file_is_refused(tmp_path: Path) -> None:
    """A folder, and what is in a file; a folder that is not there is made."""
    RowFile(tmp_path / "new" / "x", "cells", SETTINGS).close()
    for path, told in (
        (tmp_path, "Is a directory"),
        (tmp_path / "new" / "x" / "y", "(?i)not a dir|exists"),
    ):
        with pytest.raises(UsageError, match=told):
            RowFile(path, "cells", SETTINGS)
