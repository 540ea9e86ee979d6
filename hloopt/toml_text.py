"""Reading TOML that users wrote: every mistake has its place, and none is a traceback."""

from __future__ import annotations

import re
import tomllib
from typing import Any, Final

from hloopt.errors import FileError
from hloopt.source import Source, read_source

__all__ = ["parse_toml", "read_toml_file"]

_DEEPEST: Final = 100
_AT: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
# A string or a comment, in which nothing counts; a bracket; what may be a number.
_PARTS: Final = re.compile(
    r'"{3}(?s:.*?)"{3}|\'{3}(?s:.*?)\'{3}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|[\[{\]}]|[\w.+-]+'
)
_INTEGER: Final = re.compile(r"[+-]?(?:0x[\da-fA-F_]+|0o[0-7_]+|0b[01_]+|[\d_]+)")
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1


def parse_toml(source: Source) -> dict[str, Any]:
    """What a TOML text says.

    Raises ``FileError`` at the place of what is not TOML, of an integer over 64 bits, and of brackets and
    keys that are nested more than 100 deep.
    """
    try:
        found = tomllib.loads(source.text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax(source, str(error)) from error
    except (ValueError, RecursionError) as error:
        # Neither has a place: Python turns no number of thousands of digits, and no deep list, into anything.
        raise _unreadable(source) from error
    if _is_beyond(found):
        raise _unreadable(source)
    return found


def read_toml_file(path: str) -> dict[str, Any]:
    """The content of a file.  Raises ``UsageError`` where it cannot be read, else as ``parse_toml`` does."""
    return parse_toml(read_source(path))


def _syntax(source: Source, message: str) -> FileError:
    match = _AT.search(message)
    if match is None or not match[1]:
        text = message[: match.start()] if match else message
        return source.error(FileError, len(source.text), f"{text} at the end")
    lines = source.text.split("\n")
    offset = sum(len(line) + 1 for line in lines[: int(match[1]) - 1]) + int(match[2]) - 1
    return source.error(FileError, offset, message[: match.start()])


def _is_beyond(found: Any) -> bool:
    """Whether something is nested too deep, or an integer too large; without recursion."""
    waiting = [(found, 1)]
    while waiting:
        entry, depth = waiting.pop()
        if isinstance(entry, (dict, list)):
            if depth > _DEEPEST:
                return True
            inner = entry.values() if isinstance(entry, dict) else entry
            waiting += ((one, depth + 1) for one in inner)
        elif isinstance(entry, int) and not _LEAST <= entry <= _MOST:
            return True
    return False


def _unreadable(source: Source) -> FileError:
    """The first integer that is too large, or the place from which it is too deep."""
    depth = 0
    for match in _PARTS.finditer(source.text):
        word = match[0]
        depth += (word in "[{") - (word in "]}")
        if depth > _DEEPEST:
            return source.error(FileError, match.start(), "brackets are nested too deep")
        if _INTEGER.fullmatch(word) and _is_large(word):
            width = min(len(word), 40)
            return source.error(FileError, match.start(), "an integer over 64 bits", width=width)
    return source.error(FileError, 0, "keys are nested too deep")


def _is_large(word: str) -> bool:
    digits = word.replace("_", "").lstrip("+-")
    if len(digits) > 100:  # zeros in front are none in TOML
        return True
    try:
        number = int(word.replace("_", ""), 0)
    except ValueError:  # a key
        return False
    return not _LEAST <= number <= _MOST
