"""Files of the user's cache folder: what another process has worked out from the same grammar.

Each begins with a checksum of the rest.  A file that cannot be written or read costs only the time to work it
out again.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib.util import source_hash
from pathlib import Path

from hloopt.cache_folder import cache_folder

__all__ = ["digest", "read", "write"]


def digest(*parts: bytes) -> str:
    """What names a file after everything its content depends on."""
    return source_hash(b"".join(len(part).to_bytes(8) + part for part in parts)).hex()


def read(name: str) -> bytes | None:
    """What was written under a name; None where nothing was, or where it is damaged."""
    try:
        checksum, _, body = (cache_folder() / name).read_bytes().partition(b"\n")
    except OSError:
        return None
    return body if checksum == _checksum(body) else None


def write(name: str, body: bytes) -> None:
    """Keep something where the folder can be written; a reader never sees half of it."""
    import tempfile  # loads a good deal, for the first process only

    file = cache_folder() / name
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


def _checksum(body: bytes) -> bytes:
    return source_hash(body).hex().encode()
