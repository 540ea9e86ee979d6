"""A small reader of the values our attributes keep as text: words, numbers, strings, punctuation."""

from __future__ import annotations

import re

from hloopt.proto.problem import Problem
from hloopt.types.strings import unquote

__all__ = ["Tokens"]

_TOKEN = re.compile(
    r"""\s*(?:/\*.*?\*/\s*)*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|<=|-?[A-Za-z0-9_][A-Za-z0-9_.+-]*|\S)""",
    re.DOTALL,
)


class Tokens:
    """The tokens of a text, one after another."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._matches = list(_TOKEN.finditer(text))
        self._at = 0

    @property
    def next(self) -> str:
        """The token that comes next, empty at the end."""
        return self._matches[self._at][1] if self._at < len(self._matches) else ""

    def take(self) -> str:
        """The next token, and go on."""
        token = self.next
        self._at += 1
        return token

    def accept(self, token: str) -> bool:
        """Whether the next token is this one; then go on."""
        found = self.next == token
        self._at += found
        return found

    def expect(self, token: str) -> None:
        """Go on behind this token; raises ``Problem`` where another one stands."""
        if not self.accept(token):
            raise Problem(f"expected {token!r} before {self.next!r} in {self.text}")

    def integer(self) -> int:
        """The next token as an integer; raises ``Problem``."""
        token = self.take()
        if not re.fullmatch(r"-?[0-9]+", token):
            raise Problem(f"expected an integer, found {token!r} in {self.text}")
        return int(token)

    def string(self) -> str:
        """The next token, a string in quotes; raises ``Problem``."""
        token = self.take()
        if token[:1] not in {'"', "'"}:
            raise Problem(f"expected a string, found {token!r} in {self.text}")
        return unquote(token)

    def integers(self, left: str, right: str) -> list[int]:
        """``[2,4]`` or ``{0}``, by its brackets."""
        self.expect(left)
        found: list[int] = []
        while not self.accept(right):
            if found:
                self.expect(",")
            found.append(self.integer())
        return found

    def braces(self) -> str:
        """The text from a brace to the one that closes it; raises ``Problem``."""
        if self.next != "{":
            raise Problem(f"expected '{{', found {self.next!r} in {self.text}")
        start = self._matches[self._at].start(1)
        depth = 0
        while token := self.take():
            depth += {"{": 1, "}": -1}.get(token, 0)
            if not depth:
                return self.text[start : self._matches[self._at - 1].end(1)]
        raise Problem(f"a brace is missing in {self.text}")

    def end(self) -> None:
        """Raises ``Problem`` where more follows."""
        if self.next:
            raise Problem(f"{self.next!r} follows in {self.text}")
