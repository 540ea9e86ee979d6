"""A text that is being edited: its module, its mistakes, and what stands at a place of it.

Places are character offsets; lines and columns are the server's business.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from itertools import islice

from hloopt.dataclass import dataclass
from hloopt.errors import HlooptError, ParseError, SourceError
from hloopt.ir import Computation, Instruction, Module
from hloopt.source import Source
from hloopt.text.parser import parse_module
from hloopt.verifier import violations

__all__ = ["Document", "Mistake", "Named"]

Named = Instruction | Computation
"""What a name may stand for."""

_MOST_MISTAKES = 100
_NAME = re.compile(r"%?[A-Za-z_][A-Za-z0-9_.-]*")
_INNER = re.compile(r"[A-Za-z0-9_.-]")
_SCAN = re.compile(
    rf"""(?P<name>{_NAME.pattern})|"(?:[^"\\]|\\.)*+"?|'(?:[^'\\]|\\.)*+'?|//[^\n]*+|/\*(?s:.)*?(?:\*/|\Z)"""
)


@dataclass(frozen=True, slots=True)
class Mistake:
    """Something wrong at ``width`` characters from an offset; a ``warning`` is read otherwise than XLA does.

    ``rule`` is the name of the verifier's constraint, empty where the text cannot be read.
    """

    offset: int
    width: int
    message: str
    rule: str = ""
    warning: bool = False


class Document:
    """One version of a text.

    module    what it says, None where it cannot be read
    mistakes  in the order of the text, the first hundred
    """

    def __init__(self, text: str, name: str) -> None:
        self.source = Source(text, name)
        self.module: Module | None = None
        self.mistakes: list[Mistake] = []
        try:
            self.module = parse_module(text, name)
        except ParseError as error:
            self.mistakes = [self._mistake(one) for one in (error, *error.others)]
            return
        found = [self._mistake(one) for one in islice(violations(self.module), _MOST_MISTAKES)]
        found += [
            Mistake(offset, self._width(offset), message, warning=True)
            for offset, message in self.module.warnings[:_MOST_MISTAKES]
            if offset >= 0
        ]
        self.mistakes = sorted(found, key=lambda one: one.offset)

    @property
    def valid(self) -> Module | None:
        """The module, where nothing is wrong with it."""
        return None if any(not one.warning for one in self.mistakes) else self.module

    def _mistake(self, error: HlooptError) -> Mistake:
        assert isinstance(error, SourceError)
        offset = self.source.offset(error.line, error.column)
        text = "\n".join([error.message, *error.notes])
        return Mistake(offset, max(error.width, 1), text, getattr(error, "rule", ""))

    def _width(self, offset: int) -> int:
        found = _NAME.match(self.source.text, offset)
        return len(found[0]) if found else 1

    @cached_property
    def _computations(self) -> list[Computation]:
        """Those with a place, in the order of the text."""
        module = self.module
        found = [] if module is None else [one for one in module if one.offset >= 0]
        return sorted(found, key=lambda one: one.offset)

    @cached_property
    def _definitions(self) -> dict[Computation, list[Instruction]]:
        """The instructions of each computation with a place, in the order of the text."""
        return {
            home: sorted((one for one in home if one.offset >= 0), key=lambda one: one.offset)
            for home in self._computations
        }

    def symbols(self) -> Iterator[tuple[Computation, int, list[Instruction]]]:
        """Each computation with the offset of its end, and its instructions."""
        starts = [one.offset for one in self._computations[1:]]
        for home, end in zip(self._computations, [*starts, len(self.source.text)], strict=True):
            text = self.source.text[home.offset : end].rstrip()
            closed = text.rfind("}") + 1 or len(text)
            yield home, home.offset + closed, self._definitions[home]

    def name_at(self, offset: int) -> tuple[int, str]:
        """The offset and the text of the name at or right before an offset; an empty text where none is."""
        text = self.source.text
        start = offset
        while start > 0 and _INNER.match(text[start - 1]):
            start -= 1
        if start > 0 and text[start - 1] == "%":
            start -= 1
        found = _NAME.match(text, start)
        if found is None or found.end() < offset:
            return offset, ""
        return start, found[0]

    def at(self, offset: int) -> Named | None:
        """What the name at an offset stands for."""
        start, name = self.name_at(offset)
        plain = name.removeprefix("%")
        home = self._home(start)
        if not plain or home is None or self.module is None:
            return None
        place = start + len(name) - len(plain)
        if place == home.offset:
            return home
        here = self._around(home, place)
        if here is None:  # the heading: a parameter's name
            return home.by_name.get(plain)
        if place == here.offset:
            return here
        computation = self.module.computations.get(plain)
        called = computation is not None and here in computation.callers
        if not any(start == one.start() for one in self._names(*self._extent(here))):
            return None
        if self._is_operand(start, name):
            found = home.by_name.get(plain)
            if found is not None and not (called and self.source.text[start - 1] in "={"):
                return found
        return computation if called else None

    def _names(self, start: int, end: int) -> Iterator[re.Match[str]]:
        """The names between two offsets that are not in a string or a comment."""
        return (one for one in _SCAN.finditer(self.source.text, start, end) if one["name"])

    def _is_operand(self, start: int, name: str) -> bool:
        """Whether a name within an instruction may be an operand's: neither an opcode nor an attribute's."""
        text, end = self.source.text, start + len(name)
        return name.startswith("%") or (text[end : end + 1] not in {"(", "="})

    def _home(self, offset: int) -> Computation | None:
        starts = [one.offset for one in self._computations]
        number = bisect_right(starts, offset + 1) - 1  # the "%" stands before the name
        return self._computations[number] if number >= 0 else None

    def _around(self, home: Computation, offset: int) -> Instruction | None:
        """The instruction in whose text an offset is; None in the heading."""
        rows = self._definitions[home]
        number = bisect_right([one.offset for one in rows], offset) - 1
        return rows[number] if number >= 0 else None

    def _extent(self, instruction: Instruction) -> tuple[int, int]:
        """From behind the name of an instruction to the next one's, or to the end of the computation."""
        home = instruction.computation
        assert home is not None
        rows = self._definitions[home]
        number = bisect_right([one.offset for one in rows], instruction.offset)
        start = instruction.offset + len(instruction.name)
        if number < len(rows):
            return start, rows[number].offset
        number = bisect_right([one.offset for one in self._computations], instruction.offset)
        rest = self._computations[number:]
        return start, rest[0].offset if rest else len(self.source.text)

    def uses(self, named: Named) -> list[int]:
        """Offsets of a name, without its ``%``, wherever it is used; in the order of the text."""
        if isinstance(named, Instruction):
            users = dict.fromkeys([*named.users, *named.control_successors])
        else:
            users = dict.fromkeys(named.callers)
        found: list[int] = []
        for user in users:
            if user.offset < 0:
                continue
            start, end = self._extent(user)
            for place in self._names(start, end):
                plain = place[0].removeprefix("%")
                if plain == named.name and self.at(place.start() + 1) is named:
                    found.append(place.end() - len(plain))
        return sorted(found)
