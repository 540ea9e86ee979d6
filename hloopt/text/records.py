"""Tokens and other parts of a text as the grammar finds them, before they are read by what they mean."""

from __future__ import annotations

from typing import Any, Self, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.text.problem import Problem, shortened
from hloopt.types import Shape

__all__ = [
    "ArgumentsText",
    "AttributeText",
    "ComputationText",
    "InstructionText",
    "LinesText",
    "LiteralText",
    "ModuleText",
    "OperandText",
    "Token",
    "integer",
    "integers",
]

_MOST_DIGITS = 20
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1


class Token(str):
    """The text between two offsets; ``type`` is the name of its terminal."""

    __slots__ = ("begin", "end", "type")

    type: str
    begin: int
    end: int

    def __new__(cls, kind: str, text: str, begin: int, end: int) -> Self:
        """The text of a terminal, and its place."""
        made = super().__new__(cls, text)
        made.type = kind
        made.begin = begin
        made.end = end
        return made


@dataclass(frozen=True, slots=True)
class AttributeText:
    """``name=value``: where the value stands; it is read when its kind is known."""

    name: str
    offset: int
    start: int
    end: int

    def moved(self, base: int) -> AttributeText:
        """The same attribute, with offsets counted from ``base`` characters earlier."""
        return AttributeText(self.name, self.offset + base, self.start + base, self.end + base)


@dataclass(frozen=True, slots=True)
class OperandText:
    """A name, or an instruction in place when ``arguments`` is not None.

    ``index`` is the element that is meant of a tuple.  Only in a text that is one instruction a name may
    be missing: an empty token then.
    """

    name: Token
    shape: Shape | None
    arguments: ArgumentsText | None = None
    index: tuple[Token, ...] = ()


@dataclass(frozen=True, slots=True)
class InstructionText:
    """An instruction read token by token."""

    root: bool
    name: Token
    shape: Shape | None
    opcode: Token
    arguments: ArgumentsText
    attributes: list[AttributeText]


@dataclass(frozen=True, slots=True)
class LinesText:
    """Ordinary instructions, the last of them with further attributes."""

    lines: Token
    attributes: list[AttributeText]


# The text between parentheses with the closing one, or the operands in it.
ArgumentsText: TypeAlias = Token | list[OperandText]


@dataclass(frozen=True, slots=True)
class ComputationText:
    """``body`` is a list of LINES tokens, ``LinesText`` and ``InstructionText``.

    ``parameters`` is the text in parentheses after the name where it was not looked into.
    """

    entry: bool
    name: Token
    parameters: Token | None
    result: Shape | None
    body: list[Any]
    attributes: list[AttributeText]


@dataclass(frozen=True, slots=True)
class ModuleText:
    """``tables`` maps ``FileNames`` and the like to their rows."""

    name: Token | None
    attributes: list[AttributeText]
    tables: dict[str, list[Token]]
    computations: list[ComputationText]


@dataclass(frozen=True, slots=True)
class LiteralText:
    """A literal before its shape is known: ``form`` is element, dense, elided or several."""

    form: str
    offset: int
    text: str
    elements: tuple[LiteralText, ...] = ()
    depth: int = 0


def integer(text: str, offset: int = 0) -> int:
    """The value of ``-?[0-9]+``; as in XLA, what 63 bits do not hold is read as negative.

    ``offset`` is where ``text`` begins, unless it is a token.  Raises ``Problem`` over 64 bits.
    """
    # Python refuses to read very long numbers, zeros in front included.
    digits = text if len(text) <= _MOST_DIGITS else _without_zeros(text)
    value = int(digits) if len(digits) <= _MOST_DIGITS else _MOST + 1
    if _LEAST <= value < 1 << 63:
        return value
    if value > _MOST or value < _LEAST:
        at = text.begin if isinstance(text, Token) else offset
        raise Problem(at, f"{shortened(text)} does not fit into 64 bits", text)
    return value - (1 << 64)


def integers(tokens: list[Token]) -> tuple[int, ...]:
    """The values of several tokens."""
    return tuple(map(integer, tokens))


def _without_zeros(text: str) -> str:
    sign = "-" if text[0] == "-" else ""
    return sign + (text.lstrip("-").lstrip("0") or "0")
