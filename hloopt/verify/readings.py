"""Attribute values that are kept as text, as far as constraints look into them.

The parser has checked their form; a value made by hand may have any.  Every reader here gives None for what
it cannot make out, and such a value is held to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.types import Shape, TupleShape, Verbatim

__all__ = [
    "OutputAlias",
    "Tokens",
    "Tree",
    "aliases",
    "braces",
    "flags",
    "frontend",
    "origin",
    "part_of",
]

_TOKEN = re.compile(
    r"""(?:\s+|/\*.*?\*/|//[^\n]*)+
      | ("(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'|<=|-?[A-Za-z0-9_][A-Za-z0-9_.+-]*+|.)""",
    re.VERBOSE | re.DOTALL,
)

Tree: TypeAlias = "tuple[Tree, ...] | None"
"""The tree of a shape: None is a leaf."""


@dataclass(frozen=True, slots=True)
class OutputAlias:
    """``{0}: (1, {})``: a part of the result is a part of an operand."""

    output_index: tuple[int, ...]
    operand: int
    operand_index: tuple[int, ...]


class Tokens:
    """Words, numbers, strings and punctuation, one after another; "" at the end."""

    def __init__(self, text: str) -> None:
        self._tokens = [match[1] for match in _TOKEN.finditer(text) if match[1]]
        self._at = 0

    @property
    def next(self) -> str:
        """The token that comes next."""
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

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
        """Go on behind this token; raises ``ValueError`` where another one stands."""
        if not self.accept(token):
            raise ValueError(f"{self.next!r} for {token!r}")

    def integers(self, left: str, right: str) -> tuple[int, ...]:
        """Integers in brackets; raises ``ValueError``."""
        self.expect(left)
        found = []
        while not self.accept(right):
            found.append(int(self.take()))
            self.accept(",")
        return tuple(found)

    def skip_braces(self) -> None:
        """Go on behind a group in braces; raises ``ValueError`` where it does not end."""
        depth = 0
        while token := self.take():
            depth += {"{": 1, "}": -1}.get(token, 0)
            if depth <= 0:
                return
        raise ValueError("a brace is missing")


def braces(index: Iterable[int]) -> str:
    """``{0,1}``."""
    return "{" + ",".join(map(str, index)) + "}"


def part_of(shape: Shape, index: Iterable[int]) -> Shape | None:
    """The part of a shape that a tuple index names, or None."""
    for step in index:
        if not isinstance(shape, TupleShape) or not 0 <= step < len(shape.elements):
            return None
        shape = shape.elements[step]
    return shape


def aliases(instruction: Instruction) -> tuple[OutputAlias, ...] | None:
    """``output_to_operand_aliasing={ {}: (0, {}) }``; empty where there is none."""
    value = instruction.attributes.get("output_to_operand_aliasing")
    if not isinstance(value, Verbatim):
        return ()
    tokens = Tokens(value.text)
    found = []
    try:
        tokens.expect("{")
        while not tokens.accept("}"):
            output = tokens.integers("{", "}")
            tokens.expect(":")
            tokens.expect("(")
            operand = int(tokens.take())
            tokens.expect(",")
            found.append(OutputAlias(output, operand, tokens.integers("{", "}")))
            while not tokens.accept(")"):
                if not tokens.take():
                    return None
            tokens.accept(",")
    except ValueError:
        return None
    return tuple(found)


def flags(value: Any) -> int | None:
    """How many flags ``{true,false}`` has."""
    if not isinstance(value, Verbatim):
        return None
    return len(re.findall(r"\b(?:true|false)\b", value.text))


def frontend(instruction: Instruction) -> dict[str, str]:
    """``frontend_attributes={a="1",b={...}}``: the values as they are written, strings without quotes."""
    value = instruction.attributes.get("frontend_attributes")
    if not isinstance(value, Verbatim):
        return {}
    tokens = Tokens(value.text)
    found: dict[str, str] = {}
    try:
        tokens.expect("{")
        while not tokens.accept("}"):
            name = tokens.take()
            tokens.expect("=")
            if tokens.next == "{":
                tokens.skip_braces()
                found[name] = "{}"
            else:
                found[name] = tokens.take()[1:-1]
            tokens.accept(",")
    except ValueError:
        return found  # what was read so far is what can be asked for
    return found


def origin(value: Any) -> tuple[Tree] | None:
    """The tree of ``origin={...}`` in a tuple of one; None for a synthetic call and other forms."""
    if not isinstance(value, Verbatim):
        return None
    tokens = Tokens(value.text)
    try:
        tokens.expect("{")
        if tokens.next not in ("{", "("):
            return None
        tree = _origin_tree(tokens)
        tokens.expect("}")
    except (ValueError, RecursionError):
        return None
    return (tree,)


def _origin_tree(tokens: Tokens) -> Tree:
    if tokens.next == "{":
        tokens.skip_braces()
        return None
    tokens.expect("(")
    found = []
    while not tokens.accept(")"):
        found.append(_origin_tree(tokens))
        tokens.accept(",")
    return tuple(found)
