"""Names of a module as identifiers and strings of C: no text of them becomes code."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["c_literal", "identifiers", "prefix_of"]

_KEYWORDS: Final = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class
co_await co_return co_yield compl complex concept const const_cast consteval constexpr constinit continue
decltype default delete do double dynamic_cast else enum explicit export extern false float for friend goto if
imaginary inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private
protected public register reinterpret_cast requires restrict return short signed sizeof static static_assert
static_cast struct switch template this thread_local throw true try typedef typeid typename typeof
typeof_unqual union unsigned using virtual void volatile wchar_t while xor xor_eq
"""
"""Of C and C++, in lower case."""

_MACROS: Final = """
assert emit eof errno foreach i i386 linux major makedev max min minor null offsetof signals slots stderr stdin
stdout unix va_arg
"""
"""Names that common headers, or compilers, define as macros, in lower case."""

_TAKEN: Final = frozenset((_KEYWORDS + _MACROS).split())

_LONGEST: Final = 60


def identifiers(names: Iterable[str]) -> list[str]:
    """An identifier for each name, in order: no two are equal but for case, and none is a keyword or a macro.

    They begin with a letter, as names that begin with an underscore may be the compiler's.
    """
    found: list[str] = []
    taken: set[str] = set()
    for name in names:
        words = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")[:_LONGEST].rstrip("_")
        if not words[:1].isalpha():
            words = f"x{words}"
        if words.lower() in _TAKEN:
            words += "_"
        made, number = words, 2
        while made.lower() in taken:
            made, number = f"{words}_{number}", number + 1
        taken.add(made.lower())
        found.append(made)
    return found


def prefix_of(stem: str) -> str:
    """What the functions of a library begin with, by the name of its file without its end."""
    (found,) = identifiers([stem.removeprefix("lib") or stem])
    return found.rstrip("_")


def c_literal(text: str) -> str:
    """A string literal of C, of ASCII characters: the bytes of the text in UTF-8."""
    parts = []
    for byte in text.encode("utf-8", errors="replace"):
        char = chr(byte)
        # Three octal digits end an escape whatever follows; ? begins the trigraphs of old compilers.
        is_plain = char.isascii() and char.isprintable() and char not in '"\\?'
        parts.append(char if is_plain else f"\\{byte:03o}")
    return '"' + "".join(parts) + '"'
