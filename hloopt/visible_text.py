"""What of a text a terminal may be shown."""

from __future__ import annotations

from functools import cache

__all__ = ["blanked", "visible"]


@cache
def _obeyed() -> tuple[int, ...]:
    """What a terminal obeys or cannot show: control characters, changes of direction, halves of characters."""
    return (
        *(*range(0x20), *range(0x7F, 0xA0)),
        *(*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C),
        *range(0xD800, 0xE000),
    )


@cache
def _escapes() -> dict[int, str]:
    escapes = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _obeyed()}
    # A byte of a file's name that is not UTF-8.
    escapes |= {0xDC00 + byte: f"\\x{byte:02x}" for byte in range(0x80, 0x100)}
    del escapes[ord("\n")], escapes[ord("\t")]
    return escapes


def visible(text: str) -> str:
    """The text as it may be shown: nothing in it controls a terminal, but line ends and tabs."""
    # No line end or tab is printable; a text of several lines is split into what is.
    if text.isascii() and all(map(str.isprintable, text.replace("\t", "").split("\n"))):
        return text
    return text.translate(_escapes())


def blanked(text: str) -> str:
    """With blanks for all that, tabs among it: the columns of an excerpt count."""
    return text.translate(dict.fromkeys(_obeyed(), " "))
