"""Strings in HLO text: C escapes in, C escapes out, as XLA's CEscape writes them."""

from __future__ import annotations

import re

__all__ = ["quote", "unquote"]

_ESCAPE = re.compile(
    rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]+)|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))"
)
_LETTERS = {
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
}


def unquote(text: str) -> str:
    """The value of a quoted string.  Octal and hex escapes are bytes of UTF-8."""
    inner = str(text[1:-1])
    if "\\" not in inner:
        return inner
    raw = _ESCAPE.sub(_byte, inner.encode("utf-8", "surrogateescape"))
    return raw.decode("utf-8", "surrogateescape")


def quote(value: str) -> str:
    """A double-quoted string, ASCII only, as XLA writes it."""
    if value.isascii() and value.isprintable() and "\\" not in value and '"' not in value:
        return f'"{value}"' if "'" not in value else '"' + value.replace("'", "\\'") + '"'
    return '"' + "".join(map(_escaped, value.encode("utf-8", "surrogateescape"))) + '"'


def _byte(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, short, long, letter = match.groups()
    if octal:
        return bytes([int(octal, 8)])
    if hexadecimal:
        return bytes([int(hexadecimal, 16)])
    if short or long:
        return chr(int(short or long, 16)).encode()
    return _LETTERS.get(letter, letter)


_ESCAPED = {
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
    ord('"'): '\\"',
    ord("'"): "\\'",
    ord("\\"): "\\\\",
}


def _escaped(byte: int) -> str:
    return _ESCAPED.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}")
