"""Syntax errors in plain words: what was expected, what was found, where."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from lark import Lark
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.lexer import PatternStr

from hloopt.text.problem import Problem

__all__ = ["PHRASES", "did_you_mean", "explain"]

# Terminals that are patterns, in words.  (Those that are fixed strings are quoted.)  The empty phrase
# is for terminals that another one of the same place stands for.
PHRASES = {
    "ARGUMENTS": "operands",
    "ARRAY": "an array in braces",
    "BRACED": "a value in braces",
    "BUFFER": "",
    "DEEP_PIECE": "",
    "DIM_LABELS": "dimension labels like b01f_01io->b01f",
    "ELEMENT": "a number",
    "ELIDED": "",
    "EXTENTS": "sizes like 3x3",
    "FIELD_ROW": "a row of the table",
    "INT": "an integer",
    "IOTA_TEXT": "",
    "KEY": "the name of an attribute with '='",
    "LAYOUT_OPEN": "",
    "LEVEL": "a level type",
    "LINE": "an instruction",
    "LITERAL_TEXT": "",
    "MESH_TEXT": "",
    "METADATA_INT_KEY": "",
    "METADATA_LIST_KEY": "",
    "METADATA_TEXT_KEY": "a field of metadata like op_name=",
    "NAME": "a name",
    "NAME_ROW": "a row of the table",
    "NUMBER": "a number",
    "PADS": "padding like 0_0x1_1",
    "PARAMETERS": "",
    "PLAIN": "a value",
    "ROOT": "",
    "SHAPE_TEXT": "a shape",
    "STRING": "a string",
    "TARGET": "a name",
    "TILE_SIZE": "a tile size",
    "WINDOW_KEY": "size=, stride=, pad=, lhs_dilate=, rhs_dilate= or rhs_reversal=",
    "WORD": "a word",
    "$END": "the end",
}

_FOUND = re.compile(
    r'"(?:[^"\\\n]|\\.)*"?|%?[A-Za-z_][A-Za-z0-9_.-]*=?|-?[0-9][0-9a-zA-Z_.]*|->|<=|.', re.DOTALL
)
_LONGEST_FOUND = 40


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?``, or nothing where no known word is close."""
    close = get_close_matches(str(word), list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def explain(error: UnexpectedInput, text: str, lark: Lark) -> Problem:
    """A ``Problem`` for what Lark found."""
    at = error.pos_in_stream or 0
    names: set[str] = set()
    if isinstance(error, UnexpectedCharacters):
        names = set(error.allowed or ())
    elif isinstance(error, UnexpectedToken):
        names = set(error.accepts or error.expected or ())
        if error.token.type == "$END":
            at = len(text.rstrip())
        else:
            at += len(error.token) - len(error.token.lstrip())
    at += len(text[at:]) - len(text[at:].lstrip()) if at < len(text.rstrip()) else 0
    broken = _broken(text, at)
    if broken is not None:
        return broken
    found, width = _found(text, at)
    return Problem(at, f"expected {_expected(names, lark)}, found {found}", width=width)


def _broken(text: str, at: int) -> Problem | None:
    """Tokens that begin well and do not end."""
    if text.startswith("/*", at):
        return Problem(at, "the comment is not closed", width=2)
    quote = text[at : at + 1]
    if quote and quote in "\"'":
        body = re.compile(rf"(?:[^{quote}\\]|\\.)*", re.DOTALL).match(text, at + 1)
        assert body is not None
        if text[body.end() : body.end() + 1] != quote:
            return Problem(at, "the string is not closed")
        escape = re.search(r"\\(?![0-7xuUabfnrtv\\'\"?])|\\x(?![0-9a-fA-F])", body[0])
        if escape is not None:
            place = at + 1 + escape.start()
            return Problem(
                place, f"unknown escape {text[place : place + 2]!r} in a string", width=2
            )
    if text[at : at + 1] == "\0":
        return Problem(at, "the text contains a NUL byte: it is not HLO text")
    return None


def _found(text: str, at: int) -> tuple[str, int]:
    match = _FOUND.match(text, at)
    if match is None:
        return "the end of the text", 1
    found = match[0]
    shown = found if len(found) <= _LONGEST_FOUND else found[: _LONGEST_FOUND - 1] + "…"
    return (shown if shown[0] in "\"'" else repr(shown)), len(found)


def _expected(names: set[str], lark: Lark) -> str:
    plain = {name.rpartition("__")[2] if not name.startswith("__") else name for name in names}
    if {"NAME", "SHAPE_TEXT"} <= plain and "ARGUMENTS" not in plain and "RPAR" not in plain:
        plain -= {"NAME", "LPAR", "_OPEN", "_CLOSE", "SHAPE_TEXT", "BUFFER"}
        words = ["a shape or an opcode"]
    elif "ARGUMENTS" in plain:
        return "operands and ')'"
    else:
        words = []
    strings = {
        terminal.name: terminal.pattern.value
        for terminal in lark.terminals
        if isinstance(terminal.pattern, PatternStr)
    }
    quoted = sorted(strings[name] for name in names if name in strings)
    words += sorted({PHRASES[name] for name in plain if PHRASES.get(name)})
    words += [f"'{value}'" for value in quoted if value != "ROOT"]
    unknown = sorted(name for name in plain if name not in PHRASES and name not in strings)
    words += [name for name in unknown if name not in {str(n).rpartition("__")[2] for n in strings}]
    if not words:
        return "something else"
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
