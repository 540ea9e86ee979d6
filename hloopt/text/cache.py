"""Files of the user's cache folder: what another process has worked out from the same grammar.

Each begins with a digest of its name and the rest.  A file that cannot be written or read, or that is not this
user's own (see ``cache_folder``), costs only the time to work it out again.
"""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from hloopt.cache_folder import is_own, own_folder

__all__ = ["digest", "read", "write"]


def digest(*parts: bytes) -> str:
    """What names a file after everything its content depends on."""
    data = b"".join(len(part).to_bytes(8) + part for part in parts)
    return blake2b(data, digest_size=16).hexdigest()


def read(name: str) -> bytes | None:
    """What was written under a name; None where nothing was, or where it is damaged or not this user's."""
    folder = own_folder()
    if folder is None:
        return None
    try:
        with (folder / name).open("rb") as stream:
            if not is_own(os.fstat(stream.fileno())):
                return None
            checksum, _, body = stream.read().partition(b"\n")
    except OSError:
        return None
    return body if checksum == _checksum(name, body) else None


def write(name: str, body: bytes) -> None:
    """Keep something where the folder can be written; a reader never sees half of it."""
    import tempfile  # loads a good deal, for the first process only

    folder = own_folder(make=True)
    if folder is None:
        return
    with suppress(OSError):
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(_checksum(name, body) + b"\n" + body)
            Path(temporary).replace(folder / name)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise


def _checksum(name: str, body: bytes) -> bytes:
    return digest(name.encode(), body).encode()
