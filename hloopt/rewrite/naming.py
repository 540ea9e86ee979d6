"""Names of instructions: new ones, and patterns that mean instructions by them.

A pattern is an instruction's name (with or without ``%``), a glob over names, ``/regex/`` with a match anywhere
in the name, ``op:GLOB`` over opcodes or ``op_name:GLOB`` over what the metadata calls it.
"""

from __future__ import annotations

import re
from dataclasses import field
from fnmatch import fnmatchcase

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Instruction, Module

__all__ = [
    "ModuleNames",
    "NamePattern",
    "name_number",
    "name_stem",
    "op_name_of",
    "parse_pattern",
]

_GLOB = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class NamePattern:
    """Which instructions are meant; ``text`` is as it was given."""

    text: str
    regex: re.Pattern[str] | None = field(default=None, compare=False)

    @property
    def names_one(self) -> bool:
        """Whether the pattern is a plain name."""
        special = self.text.startswith(("op:", "op_name:")) or self.regex is not None
        return not special and not _GLOB & set(self.text)

    def matches(self, instruction: Instruction, name: str | None = None) -> bool:
        """Whether an instruction is meant; ``name`` is what it was called, where it is not its name now."""
        return self.means(
            instruction.name if name is None else name, instruction.opcode, op_name_of(instruction)
        )

    def means(self, name: str, opcode: str, op_name: str) -> bool:
        """Whether an instruction of this name, opcode and ``op_name`` is meant."""
        if self.regex is not None:
            return self.regex.search(name) is not None
        if self.text.startswith("op:"):
            return fnmatchcase(opcode, self.text[3:])
        if self.text.startswith("op_name:"):
            return fnmatchcase(op_name, self.text[8:])
        plain = self.text.removeprefix("%")
        return plain == name or fnmatchcase(name, plain)

    def __str__(self) -> str:
        return self.text


def op_name_of(instruction: Instruction) -> str:
    """What the metadata calls an instruction; empty where it says nothing."""
    fields = instruction.metadata.fields if instruction.metadata is not None else {}
    return str(fields.get("op_name", ""))


def parse_pattern(text: str) -> NamePattern:
    """Read a pattern.  Raises ``UsageError`` for one that is empty, or no regular expression."""
    if not text.removeprefix("%"):
        raise UsageError("a pattern is empty")
    if len(text) > 2 and text.startswith("/") and text.endswith("/"):
        try:
            return NamePattern(text, re.compile(text[1:-1]))
        except re.error as error:
            raise UsageError(f"'{text}' is not a regular expression: {error}") from error
    return NamePattern(text)


class ModuleNames:
    """The names of all instructions of a module.

    A name is unique in its computation here, in its module in XLA: what a profile of XLA calls
    ``loop_add_fusion.3`` is to be called so here.  Costs are those of the names, once.
    """

    def __init__(self, module: Module) -> None:
        self._used = {instruction.name for instruction in module.instructions()}
        self._serial: dict[str, int] = {}

    def fresh(self, base: str) -> str:
        """``base``, or ``base.N`` with the least unused N; from then on it is used."""
        name, number = base, self._serial.get(base, 1)
        while name in self._used:
            name = f"{base}.{number}"
            number += 1
        self._serial[base] = number
        self._used.add(name)
        return name


def name_stem(name: str) -> str:
    """``base`` of ``base.N``; the whole name where it ends otherwise."""
    stem, _, digits = name.rpartition(".")
    return stem if stem and digits.isdecimal() else name


def name_number(name: str) -> int:
    """The N of ``base.N``; 0 where the name ends otherwise."""
    stem = name_stem(name)
    return int(name[len(stem) + 1 :]) if stem != name else 0
