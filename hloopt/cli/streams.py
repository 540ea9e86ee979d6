"""Standard streams as commands use them: open, UTF-8, and free of terminal control sequences."""

from __future__ import annotations

import io
import os
import sys
import threading
from typing import Any, Final, TextIO

from hloopt.visible_text import visible

__all__ = ["STATUS", "prepare_streams"]

_CLEAR: Final = "\r\x1b[K"


class _Status:
    """The progress line of a terminal, cleared whenever other text is written."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shown: TextIO | None = None

    def show(self, line: str) -> None:
        """Show a line on stderr in the place of the one before."""
        with self._lock:
            self._shown = getattr(sys.stderr, "stream", sys.stderr)
            self._put(_CLEAR + line)

    def clear(self) -> None:
        """Clear the line, if one is shown."""
        with self._lock:
            if self._shown is not None:
                self._put(_CLEAR)
                self._shown = None

    def _put(self, text: str) -> None:
        assert self._shown is not None
        self._shown.write(text)
        self._shown.flush()


STATUS: Final = _Status()


class _Unfiltered:
    """A stream that clears the status line before it writes."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        STATUS.clear()
        self.stream.write(text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class _Visible(_Unfiltered):
    """Such a stream of texts whose control characters are written as escapes.

    ``unfiltered`` is for texts that were made visible already, and are coloured now.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.unfiltered = _Unfiltered(stream)

    def write(self, text: str) -> int:
        return super().write(visible(text))


class _Piped(_Unfiltered):
    """A terminal that no one looks at."""

    def isatty(self) -> bool:
        """It is to be written like a pipe."""
        return False


def prepare_streams() -> None:
    """Prepare the standard streams for writing, whatever the process inherited.

    What a module holds never controls a terminal: stderr is filtered always, for messages go to terminals in
    the end, stdout where it is one.  In a pipe or a file, text is what the module has, byte for byte.
    """
    _open_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Undecodable bytes of file names go out as they came in.
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")
    if sys.__stderr__ is not None and sys.stderr is sys.__stderr__:
        raw = io.BufferedWriter(_Unread(sys.stderr.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(raw, "utf-8", "surrogateescape", line_buffering=True)
    sys.stderr = _Visible(sys.stderr)
    if sys.stdout.isatty():
        sys.stdout = _Piped(sys.stdout) if _is_relayed() else _Visible(sys.stdout)


def _is_relayed() -> bool:
    """Whether stdout is the pseudo-terminal of Open MPI's mpiexec while its own stdout is redirected.

    Such a pseudo-terminal has no size; otherwise it has that of mpiexec's terminal.
    """
    return "OMPI_COMM_WORLD_RANK" in os.environ and not os.get_terminal_size(1).columns


class _Unread(io.FileIO):
    """A file that drops what cannot be written: ``2>&1 | grep -m 1`` changes no exit code."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


class _Closed(io.FileIO):
    """A file opened read-only: any write is an error, as on a full disk."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            raise OSError("standard output is closed") from None


def _open_closed() -> None:
    """A stream that was closed (``>&-``, a daemon's) is opened again: no other file takes its place.

    Then stdin and stderr are empty.  Printing on stdout is an error, since output was requested.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is not None:
            continue
        # The lowest number that is free: that of the stream, unless something else was opened before.
        if name == "stdout":
            closed = _Closed(os.open(os.devnull, os.O_RDONLY), mode)
            sys.stdout = io.TextIOWrapper(io.BufferedWriter(closed))
        else:
            opened = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(opened, mode, encoding="utf-8"))
