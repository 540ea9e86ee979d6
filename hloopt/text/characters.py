"""Characters that no HLO text has outside of strings, and what is meant by them."""

from __future__ import annotations

import unicodedata
from contextlib import suppress

from hloopt.text.problem import Problem

__all__ = ["PLAIN", "Odd", "odd_character"]

# What word processors, web pages and terminals put in the place of plain characters.
PLAIN = {
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb\u2033\uff02", '"'),
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\uff07", "'"),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"),
    **{chr(code + 0xFEE0): chr(code) for code in b"()[]{},:=%<>"},
    **dict.fromkeys("\u00a0\u1680\u202f\u205f\u3000\u2028\u2029\u0085\f\v", " "),
    **{chr(code): " " for code in range(0x2000, 0x200B)},
    **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad\u200e\u200f", ""),
}


class Odd(Problem):
    """A character that looks like one of HLO text and is none."""


def odd_character(text: str, at: int) -> Problem | None:
    """What is wrong with the character at an offset outside of strings; None for a plain one."""
    odd = text[at : at + 1]
    if odd.isascii() and (odd.isprintable() or odd in "\t\r\n"):
        return None
    called = f"U+{ord(odd):04X}"
    with suppress(ValueError):
        called += f" ({unicodedata.name(odd)})"
    plain = PLAIN.get(odd)
    if odd == "\0":
        message = "the text contains a NUL byte: it is not HLO text"
    elif odd == "\x1b":
        message = "an escape sequence of a terminal (colours?) is no part of HLO text"
    elif plain is None:
        message = f"character {called} can stand in strings and comments only"
    elif not plain:
        return Odd(at, f"character {called} cannot be seen and does not belong here")
    else:
        meant = "a blank" if plain == " " else plain
        return Odd(at, f"character {called} stands in the place of {meant}")
    return Problem(at, message)
