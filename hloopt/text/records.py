"""Parts of a text as the grammar finds them, before they are read by what they mean."""

from __future__ import annotations

from typing import Any, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.text.token import Token
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
]


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
