"""Results in a file of JSON lines, written as they come: a run that was stopped goes on from it.

The first line is the heading: what the rows are, and the settings that all of them depend on.  Each other line
is a row under its key.  A run that is killed while it writes leaves a part of a line, which the next removes.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from hloopt.errors import FileError, UsageError

__all__ = ["RowFile"]

_BEGIN: Final = b'{"rows": '


class RowFile:
    """The rows of a file by key, the last of each; open until ``close``, for this process alone.

    ``what`` says what the rows are, in the plural; ``settings`` are JSON values by the names that users know
    them by.  The folder is made where it is not there.  Raises ``UsageError`` for a file that another process
    has open, that holds something else or was made with other settings, ``FileError`` with the line for a
    damaged one.
    """

    def __init__(self, path: Path, what: str, settings: Mapping[str, Any]) -> None:
        self.path = path
        self.rows: dict[str, Any] = {}
        heading = {"rows": what, "settings": json.loads(json.dumps(settings))}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from error
        try:
            self._lock()
            self._read(heading)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let other processes have it."""
        os.close(self._descriptor)

    def add(self, key: str, row: Any) -> None:
        """Write a row; it is in the file when this returns."""
        self._write({"key": key, "row": row})
        self.rows[key] = row

    def _lock(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(f"{self.path}: another run writes to this file") from error

    def _read(self, heading: dict[str, Any]) -> None:
        content = self._content()
        if content and not content.startswith(_BEGIN[: len(content)]):
            raise UsageError(f"{self.path} holds no rows of hloopt")
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            os.ftruncate(self._descriptor, len(whole))
        lines = whole.splitlines()
        if not lines:
            self._write(heading)
            return
        self._check(self._parsed(1, lines[0]), heading)
        for number, line in enumerate(lines[1:], 2):
            row = self._parsed(number, line)
            self.rows[row["key"]] = row["row"]

    def _check(self, found: dict[str, Any], heading: dict[str, Any]) -> None:
        """Raise ``UsageError`` for rows of another run, with all that is different."""
        if found.get("rows") != heading["rows"]:
            raise UsageError(f"{self.path} holds {found.get('rows')}, not {heading['rows']}")
        before, now = found.get("settings", {}), heading["settings"]
        changed = [
            f"{name} was {_told(before.get(name))} and is {_told(now.get(name))}"
            for name in dict.fromkeys([*before, *now])
            if before.get(name) != now.get(name)
        ]
        if changed:
            raise UsageError(
                f"{self.path} holds {heading['rows']} that were made otherwise: {'; '.join(changed)}"
            )

    def _parsed(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            found = json.loads(line)
            if number == 1 or (isinstance(found["key"], str) and "row" in found):
                return dict(found)
        except (ValueError, KeyError, TypeError):
            pass
        raise FileError(
            "this line is not a row of hloopt; remove it, and its task runs again",
            name=str(self.path),
            line=number,
            column=1,
        )

    def _content(self) -> bytes:
        parts = []
        while part := os.read(self._descriptor, 1 << 20):
            parts.append(part)
        return b"".join(parts)

    def _write(self, value: Any) -> None:
        content = json.dumps(value).encode() + b"\n"
        while content:
            content = content[os.write(self._descriptor, content) :]


def _told(value: Any) -> str:
    return "not given" if value is None else str(value)
