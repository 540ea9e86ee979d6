"""Traces of real runs: how long each instruction took, from the files of profilers.

A reader for each format, recognised by content: XLA's xplane protocol buffers (``xplane.py``), SQLite exports
of Nsight Systems (``nsight.py``), and the JSON of Chrome's trace events, which Perfetto shows (``chrome.py``).
What belongs to which instruction of a module is for ``analysis/measured.py`` to say.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hloopt.dumps import gunzip
from hloopt.errors import FileError, UsageError
from hloopt.profiles.chrome import read_chrome
from hloopt.profiles.nsight import read_nsight
from hloopt.profiles.spans import TraceProfile
from hloopt.profiles.xplane import is_xspace, read_xplane

__all__ = ["read_profile"]

_SQLITE: Final = b"SQLite format 3\0"
_GZIP: Final = b"\x1f\x8b"


def read_profile(path: str | Path) -> TraceProfile:
    """The times in a trace, gzipped or not, by program, instruction and run.

    Raises ``UsageError`` where it cannot be read, ``FileError`` for a file that is not a trace, is damaged, or
    has no times of kernels or instructions.
    """
    place = Path(path)
    try:
        with place.open("rb") as file:
            begin = file.read(len(_SQLITE))
            if begin == _SQLITE:
                return read_nsight(place)
            content = begin + file.read()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    return _read_content(content, str(path))


def _read_content(content: bytes, name: str) -> TraceProfile:
    if content.startswith(_GZIP):
        try:
            content = gunzip(content)
        except ValueError as error:
            raise FileError(str(error), name=name) from error
    if content.lstrip()[:1] in (b"{", b"["):
        return read_chrome(content, name)
    if is_xspace(content):
        return read_xplane(content, name)
    raise FileError(
        "this is no trace: neither jax.profiler's .xplane.pb, nor Chrome's or Perfetto's JSON, nor an SQLite "
        "export of Nsight Systems (nsys export --type sqlite)",
        name=name,
    )
