"""The text format of protocol buffers, as far as device descriptions, logs and options of XLA need it.

``name: value``, ``name { ... }``, numbers, strings, words and comments; a name may occur several times.
No schema is known: what reads a ``Message`` looks up the fields it needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field
from typing import TypeAlias

from hloopt.dataclass import dataclass
from hloopt.errors import FileError
from hloopt.source import Source

__all__ = ["Message", "ScalarField", "read_textproto"]

_TOKEN = re.compile(
    r"""(?:\s|\#[^\n]*)*(?:
        (?P<word>[A-Za-z_][\w.]*)
      | (?P<number>-?(?:0x[0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)f?)
      | (?P<string>"[^"\\\n]*(?:\\.[^"\\\n]*)*"|'[^'\\\n]*(?:\\.[^'\\\n]*)*')
      | (?P<mark>[:{}<>\[\],;])
      | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_NAMED = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_CLOSING = {"{": "}", "<": ">"}
_MOST_DEEP = 50


@dataclass(frozen=True, slots=True)
class ScalarField:
    """A value and where it stands."""

    value: int | float | str
    offset: int


@dataclass(slots=True)
class Message:
    """A message: values by name in the order of the text, and where it begins."""

    offset: int
    fields: dict[str, list[ScalarField | Message]] = field(default_factory=dict)


_Token: TypeAlias = tuple[str, str, int]


def read_textproto(source: Source) -> Message:
    """The outermost message.  Raises ``FileError`` at malformed text."""
    return _Reader(source).message(0, "", 0)


class _Reader:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.tokens = self._tokens()
        self.token = next(self.tokens)

    def _tokens(self) -> Iterator[_Token]:
        text, at = self.source.text, 0
        while True:
            match = _TOKEN.match(text, at)
            if match is None or match.lastgroup is None:
                bad = re.compile(r"(?:\s|#[^\n]*)*").match(text, at)
                assert bad is not None
                character = text[bad.end()]
                unclosed = "a string without an end" if character in "\"'" else repr(character)
                raise self.source.error(FileError, bad.end(), f"{unclosed} is not expected here")
            kind, at = match.lastgroup, match.end()
            yield kind, match[kind], match.start(kind)
            if kind == "end":
                return

    def advance(self) -> _Token:
        before = self.token
        self.token = next(self.tokens)
        return before

    def fail(self, wanted: str) -> FileError:
        kind, text, offset = self.token
        found = "the end of the text" if kind == "end" else f"'{text}'"
        return self.source.error(
            FileError, offset, f"{wanted} is expected, not {found}", width=max(1, len(text))
        )

    def message(self, offset: int, closing: str, depth: int) -> Message:
        if depth > _MOST_DEEP:
            raise self.source.error(FileError, offset, "messages are nested too deep")
        made = Message(offset)
        while True:
            kind, text, at = self.token
            if kind == "end" and not closing:
                return made
            if kind == "mark" and text == closing:
                self.advance()
                return made
            if kind != "word":
                raise self.fail(f"the name of a field{f' or {closing!r}' if closing else ''}")
            self.advance()
            made.fields.setdefault(text, []).extend(self.values(at, depth))
            if self.token[1] in (",", ";") and self.token[0] == "mark":
                self.advance()

    def values(self, offset: int, depth: int) -> list[ScalarField | Message]:
        """What follows a name: one value, a list of them, or a message."""
        has_colon = self.token[:2] == ("mark", ":")
        if has_colon:
            self.advance()
        if self.token[:2] != ("mark", "["):
            return [self.value(depth, has_colon)]
        self.advance()
        found: list[ScalarField | Message] = []
        while self.token[:2] != ("mark", "]"):
            found.append(self.value(depth, has_colon))
            if self.token[:2] == ("mark", ","):
                self.advance()
            elif self.token[:2] != ("mark", "]"):
                raise self.fail("',' or ']'")
        self.advance()
        return found

    def value(self, depth: int, has_colon: bool) -> ScalarField | Message:
        kind, text, offset = self.token
        if kind == "mark" and text in _CLOSING:
            self.advance()
            return self.message(offset, _CLOSING[text], depth + 1)
        if not has_colon:
            raise self.fail("':' or '{'")
        if kind == "number":
            self.advance()
            return ScalarField(_number(text), offset)
        if kind == "word":
            self.advance()
            return ScalarField(text, offset)
        if kind == "string":
            parts = []
            while self.token[0] == "string":  # neighbours are one
                parts.append(self.advance()[1][1:-1])
            try:
                return ScalarField(_plain("".join(parts)), offset)
            except UnicodeDecodeError:
                raise self.source.error(FileError, offset, "the text is not UTF-8") from None
        raise self.fail("a value")


def _plain(text: str) -> str:
    """A text without its escapes, which name bytes: several of them may be one character."""
    if "\\" not in text:
        return text
    return _ESCAPE.sub(_byte, text.encode("utf-8", "surrogatepass")).decode()


def _byte(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, other = match.groups()
    if other is not None:
        return _NAMED.get(other, bytes(other))
    return bytes([int(octal, 8) & 0xFF if octal is not None else int(hexadecimal, 16)])


def _number(text: str) -> int | float:
    if "0x" in text:
        return int(text, 16)
    plain = text.removesuffix("f")
    return int(plain) if plain.lstrip("-").isdigit() else float(plain)
