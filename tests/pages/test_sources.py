"""Lines of the user's program on a page: of files below the folder that was given, and of no other."""

from __future__ import annotations

from pathlib import Path

import pytest

import hloopt
from hloopt.errors import UsageError
from hloopt.pages.sources import source_texts
from tests.helpers.support import invoke

TEXT = "".join(f"line {number}\n" for number in range(1, 21))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A program's folder, beside a file that is none of its."""
    (tmp_path / "secret.py").write_text(TEXT)
    made = tmp_path / "project"
    (made / "model").mkdir(parents=True)
    (made / "train.py").write_text(TEXT)
    (made / "model" / "layers.py").write_text(TEXT)
    return made


@pytest.mark.parametrize(
    "file",
    [
        "train.py",
        "{folder}/train.py",
        "/home/somebody/project/train.py",
        "/elsewhere/model/layers.py",
        "C:\\work\\project\\train.py",
    ],
)
def test_lines_and_those_around(folder: Path, file: str) -> None:
    """By the file's own path, and by its end where the module comes from another machine."""
    name = file.format(folder=folder)
    found = source_texts([f"{name}:1", f"{name}:9"], folder)
    assert {file: [*rows] for file, rows in found.items()} == {name: [1, 2, 3, 7, 8, 9, 10, 11]}
    assert found[name][9] == "line 9"


@pytest.mark.parametrize(
    "line",
    [
        "{folder}/../secret.py:3",
        "../secret.py:3",
        "/etc/passwd:1",
        "link.py:3",
        "/other/machine/train.py:3",
        "train.py:21",
        "train.py:0",
        "train.py:",
        "train.py",
        "picture.py:1",
        "loop.py:1",
        "\0:1",
        "x" * 5000 + ":1",
        "model:1",
    ],
)
def test_nothing_else_is_read(folder: Path, line: str) -> None:
    """Nothing beside the folder, by dots or links; nothing of the same name elsewhere; nothing shorter."""
    (folder / "link.py").symlink_to(folder.parent / "secret.py")
    (folder / "loop.py").symlink_to(folder / "loop.py")
    (folder / "picture.py").write_bytes(b"\xff\xfe\x00")
    assert source_texts([line.format(folder=folder)], folder) == {}


def test_only_where_it_is_asked_for(folder: Path, tmp_path: Path) -> None:
    """The page has no text of the program by itself."""
    module = tmp_path / "m.hlo"
    module.write_text(
        "HloModule m\n\nENTRY e {\n  x = f32[4] parameter(0)\n  ROOT r = f32[4] sine(x), "
        f'metadata={{op_name="sin" source_file="{folder}/train.py" source_line=5}}\n}}\n'
    )
    assert "files" not in hloopt.page(module).parts
    page = hloopt.page(module, sources=folder)
    assert page.parts["files"] == {f"{folder}/train.py": {at: f"line {at}" for at in range(3, 8)}}
    empty = tmp_path / "empty"
    empty.mkdir()
    assert hloopt.page(module, sources=empty).overview["notes"][-1] == (
        f"No file that the module names is below {empty}."
    )
    with pytest.raises(UsageError, match="is not a directory"):
        hloopt.page(module, sources=module)
    done = invoke("report", str(module), "--sources", str(module), "-o", str(tmp_path / "p.html"))
    assert done.exit_code == 2
    assert f"{module} is not a directory" in done.stderr
