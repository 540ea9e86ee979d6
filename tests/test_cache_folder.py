"""The folder for caches is the one the system's other programs use, and this user's own."""

from __future__ import annotations

import json
import os
import pwd
import sys
from pathlib import Path

import platformdirs
import pytest

from hloopt import process
from hloopt.cache_folder import cache_folder, own_folder
from hloopt.compiled_cache import CompiledCache
from hloopt.text import tables
from tests.helpers.support import invoke


def test_a_named_folder_counts_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """``HLOOPT_CACHE_DIR`` is taken as it is."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    monkeypatch.setenv("HLOOPT_CACHE_DIR", str(tmp_path))
    assert cache_folder() == tmp_path


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere platformdirs is asked")
@pytest.mark.parametrize("named", [None, "", "  ", "/tmp/of mine", "relative/to/what"])
@pytest.mark.parametrize("home", ["/home/someone", "/root"])
def test_it_is_where_platformdirs_has_it(
    monkeypatch: pytest.MonkeyPatch, named: str | None, home: str
) -> None:
    """By ``XDG_CACHE_HOME`` where that is absolute, else in the home folder."""
    monkeypatch.delenv("HLOOPT_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", home)
    if named is None:
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", named)
    expected = f"{home}/.cache/hloopt"
    if named is not None and named.startswith("/"):
        expected = f"{named}/hloopt"
        assert platformdirs.user_cache_dir("hloopt", False) == expected
    assert str(cache_folder()) == expected


@pytest.mark.skipif(sys.platform != "linux", reason="its rule for Linux")
def test_platformdirs_agrees_where_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual case."""
    for name in ("HLOOPT_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert str(cache_folder()) == platformdirs.user_cache_dir("hloopt", False)


@pytest.mark.skipif(sys.platform != "linux", reason="its rule for Linux")
@pytest.mark.parametrize("home", [None, "", "  "])
def test_without_a_home_the_system_is_asked(
    monkeypatch: pytest.MonkeyPatch, home: str | None
) -> None:
    """And where that knows none, there is no folder: none in the working directory, none of the system's."""
    for name in ("HLOOPT_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    if home is not None:
        monkeypatch.setenv("HOME", home)
    assert str(cache_folder()) == f"{pwd.getpwuid(os.getuid()).pw_dir}/.cache/hloopt"

    def nobody(_uid: int) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert cache_folder() is None
    assert own_folder("native", make=True) is None
    monkeypatch.setenv("HOME", "elsewhere")
    assert cache_folder() is None


EMPTY = tables.Tables([], [], [], [], {}, {}, [], [], [], {})


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache folder that is not there, and no notes."""
    monkeypatch.setattr(process, "_NOTES", {})
    monkeypatch.setenv("HLOOPT_CACHE_DIR", str(tmp_path / "a" / "b"))
    return tmp_path / "a" / "b"


def modes(*paths: Path) -> list[int]:
    return [path.stat().st_mode & 0o777 for path in paths]


def test_every_folder_that_is_made_is_private(folder: Path, tmp_path: Path) -> None:
    """Those above it as well; nothing is made where nothing is to be written."""
    assert own_folder("things") is None
    assert not (tmp_path / "a").exists()
    before = os.umask(0)
    try:
        assert own_folder("things", make=True) == folder / "things"
    finally:
        os.umask(before)
    assert modes(tmp_path / "a", folder, folder / "things") == [0o700] * 3
    assert own_folder("things") == folder / "things"
    assert process.notes() == ()


@pytest.mark.parametrize(
    ("where", "mode", "told"),
    [
        ("a/b", 0o770, "{0} can be written by others (chmod go-w {0})"),
        ("a/b/things", 0o702, "{0} can be written by others"),
        ("a", 0o777, "others can replace what is in {0}"),
    ],
)
def test_a_folder_that_others_can_write_to_is_not_used(
    folder: Path, tmp_path: Path, where: str, mode: int, told: str
) -> None:
    """Nothing is read from it and nothing written; a note says which folder, and why."""
    kept = CompiledCache("things", ".bin")
    entry = kept.get_or_build(["x"], lambda path: path.write_bytes(b"1") and None)
    tables._save("grammar.json", EMPTY)
    (tmp_path / where).chmod(mode)
    before = sorted(folder.rglob("*"))
    aside = kept.get_or_build(["x"], lambda path: path.write_bytes(b"2") and None)
    assert (entry.parent, aside.read_bytes()) == (folder / "things", b"2")
    assert folder not in aside.parents
    if where != "a/b/things":
        assert tables.load("grammar.json") is None
        tables._save("more.json", EMPTY)
    assert sorted(folder.rglob("*")) == before
    assert any(told.format(tmp_path / where) in note for note in process.notes())


def test_a_folder_above_may_be_open_to_all_if_nobody_can_replace_what_is_in_it(
    folder: Path, tmp_path: Path
) -> None:
    """As the system's temporary folder is."""
    assert own_folder(make=True)
    (tmp_path / "a").chmod(0o1777)
    assert own_folder() == folder


def test_a_folder_of_another_user_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its mode is."""
    assert own_folder(make=True)
    tables._save("grammar.json", EMPTY)
    assert tables.load("grammar.json") == EMPTY
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert own_folder(make=True) is None
    assert tables.load("grammar.json") is None
    assert process.notes() == (f"the cache is not used: {folder} belongs to another user",)


def test_a_file_that_others_can_write_to_is_not_read(folder: Path) -> None:
    """The folder is in order; a file in it is not."""
    tables._save("grammar.json", EMPTY)
    (folder / "grammar.json").chmod(0o622)
    assert tables.load("grammar.json") is None


def test_what_is_in_the_place_of_a_folder_is_told(folder: Path) -> None:
    """With its name."""
    folder.parent.mkdir()
    folder.write_text("")
    assert own_folder(make=True) is None
    (note,) = process.notes()
    assert note.startswith(f"the cache is not used: {folder}")


def fill(folder: Path) -> None:
    kept = CompiledCache("native", ".so")
    for number in range(3):
        kept.get_or_build([str(number)], lambda path: path.write_bytes(b"12345") and None)
    tables._save("grammar-1.json", EMPTY)
    (folder / "notes.txt").write_text("of the user's")


def test_the_command_tells_what_is_there(folder: Path) -> None:
    """Where, how many entries of each kind, and how large."""
    assert "nothing in it" in invoke("cache").stdout
    fill(folder)
    shown = invoke("cache").stdout
    assert str(folder) in shown.splitlines()[0]
    assert shown.split("native")[1].split()[:2] == ["3", "15"]
    content = json.loads(invoke("cache", "--json").stdout)
    assert content["folder"] == str(folder)
    assert content["kinds"]["native"] == {"entries": 3, "bytes": 15}
    assert content["kinds"]["grammar"]["entries"] == 1
    assert content["bytes"] == 15 + content["kinds"]["grammar"]["bytes"]


def test_the_command_clears_what_hloopt_wrote(folder: Path) -> None:
    """And nothing else, should the folder have been a wrong one."""
    fill(folder)
    result = invoke("cache", "--clear")
    assert result.exit_code == 0
    assert "4 entries" in result.stdout
    assert [path.name for path in folder.iterdir() if path.is_file()] == ["notes.txt"]
    assert json.loads(invoke("cache", "--json").stdout)["bytes"] == 0


def test_the_command_leaves_folders_alone_that_are_not_the_users(folder: Path) -> None:
    """It says why, with the exit code of a wrong option."""
    fill(folder)
    folder.chmod(0o777)
    result = invoke("cache", "--clear")
    assert result.exit_code == 2
    assert f"{folder} can be written by others" in result.stderr
    assert (folder / "grammar-1.json").exists()
