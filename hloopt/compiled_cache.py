"""What is costly to make, kept between processes: compiled programs, modules converted from StableHLO.

An entry is one file, ``KEY-CHECKSUM.suffix``: KEY is the hash of everything it depends on, CHECKSUM that of KEY
and its content.  So one rename publishes both, and an entry that was cut off, damaged or renamed does not fit
its name: it is removed and built again.  Two processes may build the same entry at once; each publishes a
whole one.  An entry that is not this user's own is not used (see ``cache_folder``).
"""

from __future__ import annotations

import atexit
import errno
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from hloopt.cache_folder import is_own, own_folder
from hloopt.dataclass import dataclass
from hloopt.errors import DeviceError
from hloopt.process import add_note

__all__ = ["CompiledCache"]

_GIBIBYTE = 1 << 30
_LITTLE = 1 << 16  # bytes of a disk in which nothing can be compiled
_IN_USE = 3600.0  # seconds for which an entry, or an unfinished build, is kept
_AGE = 60.0  # seconds after which a use is noted again

# Entries that this process has read and found whole, as they were then: headers are read at each compilation.
_whole: dict[Path, tuple[int, int, int]] = {}


@dataclass(frozen=True)
class CompiledCache:
    """A cache by content in the user's cache folder.

    kind         the folder's name, and part of every key
    suffix       how the files' names end (``.so``, ``.cubin``)
    limit_bytes  above it the entries not used for longest are thrown away
    """

    kind: str
    suffix: str
    limit_bytes: int = 2 * _GIBIBYTE

    def key(self, parts: Sequence[bytes | str]) -> str:
        """The hash of ``parts``; no two different sequences run together."""
        digest = blake2b(digest_size=16)
        for part in (self.kind, self.suffix, *parts):
            data = part.encode() if isinstance(part, str) else part
            digest.update(b"%c%d:" % (b"s" if isinstance(part, str) else b"b", len(data)))
            digest.update(data)
        return digest.hexdigest()

    def find(self, key_parts: Sequence[bytes | str]) -> Path | None:
        """The file for these parts, where there is one."""
        folder = own_folder(self.kind)
        return None if folder is None else self._find(folder, self.key(key_parts))

    def get_or_build(self, key_parts: Sequence[bytes | str], build: Callable[[Path], None]) -> Path:
        """The file for these parts; where there is none, ``build`` gets a path to write it to.

        An error of ``build`` propagates and leaves nothing behind.  Where there is no folder of this user's
        own, or none that can be written, or its disk is full, the file lives as long as the process.  Raises
        ``DeviceError`` where there is no space for that either.
        """
        key = self.key(key_parts)
        folder = own_folder(self.kind, make=True)
        if folder is None:
            return self._built_aside(build)
        found = self._find(folder, key)
        if found is not None:
            return found
        try:
            workshop = Path(tempfile.mkdtemp(prefix=".build-", dir=folder))
        except OSError as error:
            add_note(f"the cache is not used: {folder}: {error.strerror}")
            return self._built_aside(build)
        try:
            fresh = workshop / f"entry{self.suffix}"
            build(fresh)
            published = fresh.replace(folder / self._name(key, fresh))
        except Exception as error:
            if not _is_full(error, folder):
                raise
        else:
            self._prune(folder, published)
            return published
        finally:
            shutil.rmtree(workshop, ignore_errors=True)
        add_note(f"the cache is not used: {folder}: {os.strerror(errno.ENOSPC)}")
        return self._built_aside(build)

    def _built_aside(self, build: Callable[[Path], None]) -> Path:
        """In a folder of this process."""
        workshop = Path(tempfile.mkdtemp(prefix="hloopt-"))
        atexit.register(shutil.rmtree, workshop, ignore_errors=True)
        fresh = workshop / f"entry{self.suffix}"
        try:
            build(fresh)
        except BaseException as error:
            is_full = isinstance(error, Exception) and _is_full(error, workshop)
            shutil.rmtree(workshop, ignore_errors=True)
            if is_full:
                reason = os.strerror(errno.ENOSPC)
                raise DeviceError(
                    f"nothing can be compiled: {workshop.parent}: {reason}"
                ) from error
            raise
        return fresh

    def _find(self, folder: Path, key: str) -> Path | None:
        for path in sorted(folder.glob(f"{key}-*{self.suffix}")):
            with suppress(OSError):  # another process threw it away
                state = path.lstat()
                if not stat.S_ISREG(state.st_mode) or not is_own(state):
                    add_note(f"the cache entry {path} is not used: others can have written it")
                elif _whole.get(path) == _version(state) or path.name == self._name(key, path):
                    if not 0 <= time.time() - state.st_mtime < _AGE:
                        os.utime(path)
                        state = path.lstat()
                    _whole[path] = _version(state)
                    return path
                path.unlink()
        return None

    def _name(self, key: str, path: Path) -> str:
        digest = blake2b(key.encode(), digest_size=16)
        with path.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
        return f"{key}-{digest.hexdigest()}{self.suffix}"

    def _prune(self, folder: Path, keep: Path) -> None:
        """Throw away what was not used for longest, and builds that were killed."""
        now = time.time()
        entries = sorted(_aged(folder), reverse=True)
        total = 0
        for used, size, path in entries:
            total += size
            if now - used < _IN_USE or path == keep:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif total > self.limit_bytes:
                with suppress(OSError):
                    path.unlink()


def _version(state: os.stat_result) -> tuple[int, int, int]:
    return state.st_ino, state.st_size, state.st_mtime_ns


def _aged(folder: Path) -> Iterator[tuple[float, int, Path]]:
    with suppress(OSError):
        for path in folder.iterdir():
            with suppress(OSError):
                state = path.stat()
                yield state.st_mtime, state.st_size, path


def _is_full(error: Exception, folder: Path) -> bool:
    """Whether a build failed for want of space: its own error, or a compiler's that ran into it."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    return os.strerror(errno.ENOSPC) in str(error) or shutil.disk_usage(folder).free < _LITTLE
