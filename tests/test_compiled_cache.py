"""The cache of compiled programs: what is built, kept, found damaged and thrown away."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hloopt.cache_folder import cache_folder
from hloopt.compiled_cache import CompiledCache
from hloopt.errors import DeviceError
from hloopt.process import notes


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CompiledCache:
    monkeypatch.setenv("HLOOPT_CACHE_DIR", str(tmp_path))
    return CompiledCache("things", ".bin")


def writer(content: bytes, calls: list[Path]) -> Callable[[Path], None]:
    def build(path: Path) -> None:
        calls.append(path)
        path.write_bytes(content)

    return build


def test_an_entry_is_built_once(cache: CompiledCache) -> None:
    """A second request for the same parts returns the same file without a build."""
    calls: list[Path] = []
    first = cache.get_or_build(["a", b"b"], writer(b"content", calls))
    second = cache.get_or_build(["a", b"b"], writer(b"other", calls))
    assert first == second
    assert first.read_bytes() == b"content"
    assert first.suffix == ".bin"
    assert len(calls) == 1
    assert [path.name for path in (cache_folder() / cache.kind).iterdir()] == [first.name]


def test_parts_do_not_run_together(cache: CompiledCache) -> None:
    """Sequences whose concatenations are equal, and text and bytes, have different keys."""
    sequences: list[list[bytes | str]] = [["ab", "c"], ["a", "bc"], ["abc"], [b"abc"], ["ab", b"c"]]
    assert len({cache.key(parts) for parts in sequences}) == len(sequences)
    assert CompiledCache("other", ".bin").key(["abc"]) != cache.key(["abc"])


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"C" + path.read_bytes()[1:]),
        lambda path: path.unlink(),
    ],
    ids=["cut off", "empty", "one byte changed", "gone"],
)
def test_a_damaged_entry_is_built_again(
    cache: CompiledCache, damage: Callable[[Path], None]
) -> None:
    """An entry that does not fit its checksum is thrown away and rebuilt."""
    calls: list[Path] = []
    path = cache.get_or_build(["a"], writer(b"content", calls))
    damage(path)
    again = cache.get_or_build(["a"], writer(b"content", calls))
    assert again.read_bytes() == b"content"
    assert len(calls) == 2
    assert cache.get_or_build(["a"], writer(b"", calls)) == again
    assert len(calls) == 2


def test_a_failed_build_leaves_nothing(cache: CompiledCache) -> None:
    """The error of a build passes through, and the next request builds."""

    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise ValueError("no compiler")

    with pytest.raises(ValueError, match="no compiler"):
        cache.get_or_build(["a"], fail)
    assert list((cache_folder() / cache.kind).iterdir()) == []
    assert cache.get_or_build(["a"], writer(b"whole", [])).read_bytes() == b"whole"


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the cache has no place, the file is built all the same."""
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    monkeypatch.setenv("HLOOPT_CACHE_DIR", str(blocked))
    cache = CompiledCache("things", ".bin")
    assert cache.get_or_build(["a"], writer(b"content", [])).read_bytes() == b"content"


def test_what_was_not_used_for_longest_goes_first(cache: CompiledCache) -> None:
    """Above the limit old entries are thrown away; those of the last hour and the new one stay."""
    small = CompiledCache("things", ".bin", limit_bytes=250)
    paths = [small.get_or_build([str(number)], writer(b"x" * 100, [])) for number in range(4)]
    now = time.time()
    for path, hours in zip(paths, (5, 4, 3, 0), strict=True):
        os.utime(path, (now - hours * 3600, now - hours * 3600))
    killed = (cache_folder() / small.kind) / ".build-killed"
    killed.mkdir()
    os.utime(killed, (now - 7200, now - 7200))
    newest = small.get_or_build(["newest"], writer(b"x" * 100, []))
    assert {path for path in paths if path.exists()} == {paths[3]}
    assert newest.exists()
    assert not killed.exists()


def test_a_use_counts_as_one(cache: CompiledCache) -> None:
    """A found entry is as young as its last use."""
    path = cache.get_or_build(["a"], writer(b"content", []))
    os.utime(path, (1, 1))
    cache.get_or_build(["a"], writer(b"content", []))
    assert time.time() - path.stat().st_mtime < 3600


RACER = """
import sys, time
from pathlib import Path
from hloopt.cache_folder import cache_folder
from hloopt.process import notes
from hloopt.errors import DeviceError
from hloopt.compiled_cache import CompiledCache

def build(path):
    with path.open("wb") as stream:
        for _ in range(50):
            stream.write(sys.argv[1].encode() * 1000)
            stream.flush()
            time.sleep(0.001)

for number in range(3):
    data = CompiledCache("things", ".bin").get_or_build([str(number)], build).read_bytes()
    assert len(data) == 50_000 and len(set(data)) == 1, (len(data), set(data))
"""


def test_processes_at_once(cache: CompiledCache, root: Path) -> None:
    """Processes that build the same entries at the same time all read whole ones."""
    children = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, name],
            env={**os.environ, "PYTHONPATH": str(root)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in "ab"
    ]
    for child in children:
        _, errors = child.communicate(timeout=60)
        assert child.returncode == 0, errors
    assert not list((cache_folder() / cache.kind).glob(".build-*"))


def test_an_entry_that_was_renamed_is_built_again(cache: CompiledCache) -> None:
    """Its digest is of the key, too: the content of one is not taken for another's."""
    first = cache.get_or_build(["a"], writer(b"a", []))
    digest = first.name.split("-")[1]
    first.rename(first.with_name(f"{cache.key(['b'])}-{digest}"))
    assert cache.get_or_build(["b"], writer(b"b", [])).read_bytes() == b"b"


@pytest.mark.parametrize("mode", [0o722, 0o620])
def test_an_entry_that_others_can_write_to_is_built_again(cache: CompiledCache, mode: int) -> None:
    """Though the folder is in order."""
    first = cache.get_or_build(["a"], writer(b"a", []))
    first.chmod(mode)
    again = cache.get_or_build(["a"], writer(b"b", []))
    assert again.read_bytes() == b"b"
    assert not again.stat().st_mode & 0o022


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "no space"), DeviceError("g++: error: No space left on device")],
    ids=["our own", "the compiler's"],
)
def test_a_full_disk(cache: CompiledCache, error: Exception) -> None:
    """What does not fit beside the others is built in a folder of this process; a note names the cache."""
    here = cache_folder() / cache.kind

    def build(path: Path) -> None:
        path.write_bytes(b"content")
        if here in path.parents:
            raise error

    assert cache.get_or_build(["a"], build).read_bytes() == b"content"
    assert list(here.iterdir()) == []
    assert f"the cache is not used: {here}: No space left on device" in notes()


def test_two_full_disks(cache: CompiledCache) -> None:
    """The error names the folder for temporary files."""

    def build(path: Path) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with pytest.raises(DeviceError, match=rf"{tempfile.gettempdir()}: No space left on device"):
        cache.get_or_build(["a"], build)
