"""Compiled programs, kept between processes: shared objects of the emulator, cubins of the GPU.

An entry is one file, ``KEY-CHECKSUM.suffix``: KEY is the hash of everything it depends on, CHECKSUM that of
its content.  So one rename publishes both, and an entry that was cut off or damaged does not fit its name: it
is thrown away and built again.  Two processes may build the same entry at once; each publishes a whole one.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from hloopt.cache_folder import cache_folder
from hloopt.dataclass import dataclass

__all__ = ["CompiledCache"]

_GIBIBYTE = 1 << 30
_IN_USE = 3600.0  # seconds for which an entry, or a build under way, is left alone


@dataclass(frozen=True)
class CompiledCache:
    """A cache by content in the platform's cache folder, or in ``$HLOOPT_CACHE_DIR``.

    kind         the folder's name, and part of every key
    suffix       how the files' names end (``.so``, ``.cubin``)
    limit_bytes  above it the entries not used for longest are thrown away
    """

    kind: str
    suffix: str
    limit_bytes: int = 2 * _GIBIBYTE

    @property
    def folder(self) -> Path:
        """Where the entries are; it need not exist."""
        return cache_folder() / self.kind

    def key(self, parts: Sequence[bytes | str]) -> str:
        """The hash of ``parts``; no two different sequences run together."""
        digest = blake2b(digest_size=16)
        for part in (self.kind, self.suffix, *parts):
            data = part.encode() if isinstance(part, str) else part
            digest.update(b"%c%d:" % (b"s" if isinstance(part, str) else b"b", len(data)))
            digest.update(data)
        return digest.hexdigest()

    def get_or_build(self, key_parts: Sequence[bytes | str], build: Callable[[Path], None]) -> Path:
        """The file for these parts; where there is none, ``build`` is handed a path to write it to.

        An error of ``build`` passes through and leaves nothing behind.  Where the folder cannot be written,
        the file lives as long as the process.
        """
        key = self.key(key_parts)
        found = self._find(key)
        if found is not None:
            return found
        workshop = self._workshop()
        try:
            fresh = workshop / f"entry{self.suffix}"
            build(fresh)
            published = self._publish(fresh, key)
        except BaseException:
            shutil.rmtree(workshop, ignore_errors=True)
            raise
        if published == fresh:
            atexit.register(shutil.rmtree, workshop, ignore_errors=True)
        else:
            shutil.rmtree(workshop, ignore_errors=True)
            self._prune(published)
        return published

    def _find(self, key: str) -> Path | None:
        for path in sorted(self.folder.glob(f"{key}-*{self.suffix}")):
            with suppress(OSError):  # another process threw it away
                if path.name == self._name(key, path):
                    os.utime(path)
                    return path
                path.unlink()
        return None

    def _name(self, key: str, path: Path) -> str:
        with path.open("rb") as stream:
            digest = blake2b(digest_size=16)
            while block := stream.read(1 << 20):
                digest.update(block)
        return f"{key}-{digest.hexdigest()}{self.suffix}"

    def _workshop(self) -> Path:
        """A folder of this build's own, beside the entries so that a rename is enough."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return Path(tempfile.mkdtemp(prefix=".build-", dir=self.folder))
        except OSError:
            return Path(tempfile.mkdtemp(prefix="hloopt-"))

    def _publish(self, fresh: Path, key: str) -> Path:
        name = self._name(key, fresh)
        if fresh.parent.parent != self.folder:
            return fresh
        return fresh.replace(self.folder / name)

    def _prune(self, keep: Path) -> None:
        """Throw away what was not used for longest, and builds that were killed."""
        now = time.time()
        entries = sorted(self._aged(), reverse=True)
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

    def _aged(self) -> Iterator[tuple[float, int, Path]]:
        with suppress(OSError):
            for path in self.folder.iterdir():
                with suppress(OSError):
                    state = path.stat()
                    yield state.st_mtime, state.st_size, path
