"""What the grammar's rules become: frozen values where the text alone decides, records elsewhere.

The parser calls the method named like a rule with the rule's parts, innermost rule first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hloopt.text.problem import Problem
from hloopt.text.records import (
    AttributeText,
    ComputationText,
    InstructionText,
    LinesText,
    ModuleText,
    OperandText,
    Token,
)
from hloopt.text.shape_rules import MOST_SHAPES, ShapeRules
from hloopt.text.value_rules import ValueRules
from hloopt.types import Shape

__all__ = ["Syntax"]

_DEEPEST = 1000


class Syntax(ShapeRules, ValueRules):
    """One method a rule; rules imported through several files carry their files' names in front."""

    def __getattr__(self, name: str) -> Any:
        plain = name.rpartition("__")[2]
        if plain == name or not plain or not hasattr(type(self), plain):
            raise AttributeError(name)
        return getattr(self, plain)

    def __init__(self, read: Callable[[str, str, int], Any]) -> None:
        super().__init__()
        self._read = read
        self._shapes: dict[str, Shape] = {}

    # ---- module ----

    def module(self, parts: list[Any]) -> ModuleText:
        computations = [part for part in parts if isinstance(part, ComputationText)]
        name, attributes, tables = None, [], {}
        for part in parts:
            if isinstance(part, tuple):
                name, attributes = part
            elif isinstance(part, list):
                tables[str(part[0])] = part[1:]
        return ModuleText(name, attributes, tables, computations)

    def header(self, parts: list[Any]) -> tuple[Token, list[AttributeText]]:
        return parts[0], parts[1:]

    def computation(self, parts: list[Any]) -> ComputationText:
        entry = parts[0].type == "ENTRY"
        name = parts[1] if entry else parts[0]
        rest = parts[2 if entry else 1 :]
        parameters, result = rest.pop(0) if isinstance(rest[0], tuple) else (None, None)
        return ComputationText(entry, name, parameters, result, rest[0], rest[1:])

    def signature(self, parts: list[Any]) -> tuple[Token | None, Shape]:
        return parts[0] if isinstance(parts[0], Token) else None, parts[-1]

    # ---- instruction ----

    def instruction(self, parts: list[Any]) -> InstructionText:
        root = parts[0].type == "ROOT"
        if root:
            del parts[0]
        name, (shape, opcode), arguments = parts[:3]
        return InstructionText(root, name, shape, opcode, arguments, parts[3:])

    def lines_and_more(self, parts: list[Any]) -> LinesText:
        return LinesText(parts[0], parts[1:])

    def head(self, parts: list[Any]) -> tuple[Shape | None, Token]:
        return (parts[0], parts[1]) if len(parts) == 2 else (None, parts[0])

    def operand(self, parts: list[Any]) -> OperandText:
        return OperandText(parts[-1], parts[0] if len(parts) == 2 else None)

    def nested(self, parts: list[Any]) -> OperandText:
        return OperandText(parts[-2], parts[0] if len(parts) == 3 else None, parts[-1])

    def element_of(self, parts: list[Any]) -> OperandText:
        first = 1 if isinstance(parts[1], Token) and parts[1].type == "NAME" else 0
        shape = parts[0] if first else None
        return OperandText(parts[first], shape, None, tuple(parts[first + 1 :]))

    def nameless(self, parts: list[Token]) -> OperandText:
        token = parts[0]
        name = Token("NAME", "", begin=token.begin, end=token.end)
        return OperandText(name, self.shape_text(parts))

    def single(self, parts: list[list[Any]]) -> list[Any]:
        return parts[0]

    def unnamed(self, parts: list[Any]) -> list[InstructionText]:
        shape, opcode, arguments, *attributes = parts
        name = Token("TARGET", "_", begin=opcode.begin, end=opcode.begin + 1)
        return [InstructionText(True, name, shape, opcode, arguments, attributes)]

    def attribute(self, parts: list[Any]) -> AttributeText:
        key, value = parts
        span = value if isinstance(value, tuple) else (value.begin, value.end)
        return AttributeText(key[:-1], key.begin, *span)

    def deep(self, parts: list[Any]) -> tuple[int, int]:
        return parts[0].begin, parts[-1].end

    def deeper(self, parts: list[Any]) -> int:
        """How many levels of braces there are."""
        depth = 1 + max((part for part in parts if type(part) is int), default=0)
        if depth > _DEEPEST:
            raise Problem(parts[0].begin, f"braces are nested more than {_DEEPEST} levels deep")
        return depth

    def shape_text(self, parts: list[Token]) -> Shape:
        return self.shape_of(str(parts[0]), parts[0].begin)

    def shape_of(self, text: str, at: int) -> Shape:
        """The shape of a SHAPE_TEXT that begins ``at``; raises ``Problem``."""
        found = self._shapes.get(text)
        if found is None:
            found = self._read("shape", text, at)
            if len(self._shapes) >= MOST_SHAPES:
                self._shapes.clear()
            self._shapes[text] = found
        return found
