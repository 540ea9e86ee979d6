"""The folder for caches is the one the system's other programs use."""

from __future__ import annotations

import sys
from pathlib import Path

import platformdirs
import pytest

from hloopt.cache_folder import cache_folder


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
