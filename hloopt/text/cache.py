"""Files of the user's cache folder: what another process has worked out from the same grammar.

Each begins with a checksum of the rest.  A file that cannot be written or read costs only the time to work it
out again.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path

import platformdirs

__all__ = ["digest", "read", "write"]


def digest(*parts: bytes) -> str:
    """What names a file after everything its content depends on."""
    made = blake2b(digest_size=16)
    for part in parts:
        made.update(len(part).to_bytes(8) + part)
    return made.hexdigest()


def read(name: str) -> bytes | None:
    """What was written under a name; None where nothing was, or where it is damaged."""
    try:
        checksum, _, body = (_folder() / name).read_bytes().partition(b"\n")
    except OSError:
        return None
    return body if checksum == _checksum(body) else None


def write(name: str, body: bytes) -> None:
    """Keep something where the folder can be written; a reader never sees half of it."""
    file = _folder() / name
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(_checksum(body) + b"\n" + body)
            Path(temporary).replace(file)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise


def _folder() -> Path:
    return Path(os.environ.get("HLOOPT_CACHE_DIR") or _user_folder())


@cache
def _user_folder() -> str:
    return platformdirs.user_cache_dir("hloopt", False)


def _checksum(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).hexdigest().encode()
