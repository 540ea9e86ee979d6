"""The parser that tables describe: each state, rule and pattern is made when it is first met.

A module meets a tenth of the grammar's states.  Making all of them, and a regular expression for each of
their lexers, would take longer than reading a text of ten thousand lines; so would loading Lark, which makes
the tables (``lalr_build.py``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from hloopt.text.records import Token
from hloopt.text.tables import Tables, Terminal

__all__ = ["END", "Parser", "RuleParts", "Unexpected"]

END = "$END"
"""What comes after the last token."""

# One pattern after the other costs a token up to two microseconds more than all of them in one expression
# (measured: lists of integers), which takes some milliseconds to compile.
_TRIES = 2_000


class Unexpected(Exception):  # noqa: N818 - what a reader met, not what went wrong
    """No way on from a place in a text.

    ``states`` are those of the automaton, the last one is where it stands; ``is_end`` says that the text would
    have to go on.
    """

    def __init__(self, position: int, states: list[int], *, is_end: bool) -> None:
        super().__init__(position)
        self.position = position
        self.states = states
        self.is_end = is_end


class RuleParts(list[Any]):
    """The value of a rule without an action: its parts."""


class Parser:
    """Reads texts by tables; the method of ``maker`` named like a rule makes its value from its parts."""

    def __init__(self, tables: Tables, maker: Any) -> None:
        self.terminals = tables.terminals
        self.states = _States(tables)
        self.rules = _Rules(tables, maker)
        self.ends = tables.ends
        self.sequences = tables.sequences
        self._starts = tables.starts
        self._lexers = _Lexers(tables)

    def pattern(self, name: str) -> re.Pattern[str]:
        """A terminal's regular expression; of one that is a sequence of others, with a group for each part."""
        expression = self.sequences.get(name)
        for terminal in self.terminals if expression is None else ():
            # One that a file imports has that file's name in front.
            if terminal.name.rpartition("__")[2] == name:
                expression = terminal.expression
        assert expression is not None, "a terminal of a rule, or a sequence"
        return re.compile(expression)

    def parse(self, text: str, start: str) -> Any:
        """The value of the rule ``start``.  Raises ``Unexpected``."""
        states: list[int] = [self._starts[start]]
        values: list[Any] = []
        lexers, end = self._lexers, len(text)
        position = 0
        while position < end:
            lexer = lexers[states[-1]]
            found = lexer.match(text, position)
            if found is None:
                raise Unexpected(position, states, is_end=False)
            value, name = found
            following = position + len(value)
            if name not in lexer.ignored:
                self._reduce(states, values, name, position, is_end=False)
                states.append(self.states[states[-1]][name] >> 1)
                values.append(Token(name, value, position, following))
            position = following
        self._reduce(states, values, END, position, is_end=True, until=self.ends[start])
        return values[-1]

    def _reduce(
        self,
        states: list[int],
        values: list[Any],
        name: str,
        position: int,
        *,
        is_end: bool,
        until: int | None = None,
    ) -> None:
        """Put parts together until ``name`` can be shifted; for the end of a text until all is one."""
        while states[-1] != until:
            code = self.states[states[-1]].get(name)
            if code is None:
                raise Unexpected(position, states, is_end=is_end)
            if not code & 1:
                return
            size, origin, make = self.rules[code >> 1]
            parts = values[len(values) - size :]
            del values[len(values) - size :], states[len(states) - size :]
            states.append(self.states[states[-1]][origin] >> 1)
            values.append(make(parts))


class _States(dict[int, dict[str, int]]):
    """What a state does with each symbol: see ``Tables.rows``."""

    def __init__(self, tables: Tables) -> None:
        super().__init__()
        self._tables = tables

    def __missing__(self, state: int) -> dict[str, int]:
        names, row = self._tables.names, self._tables.rows[state]
        made = self[state] = {
            names[name]: code for name, code in zip(row[::2], row[1::2], strict=True)
        }
        return made


class _Rules(dict[int, tuple[int, str, Callable[[list[Any]], Any]]]):
    """Of a rule how many parts it has, its name, and what makes its value."""

    def __init__(self, tables: Tables, maker: Any) -> None:
        super().__init__()
        self._tables = tables
        self._maker = maker

    def __missing__(self, number: int) -> tuple[int, str, Callable[[list[Any]], Any]]:
        size, origin, maker, given, is_single = self._tables.rules[number]
        name = self._tables.names[origin]
        make: Callable[[list[Any]], Any] = RuleParts
        if not name.startswith("_"):
            make = getattr(self._maker, maker, RuleParts)
        if is_single:
            make = _or_single(make)
        if given is not None:
            make = _given(given, make)
        made = self[number] = (size, name, make)
        return made


def _or_single(make: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    return lambda parts: parts[0] if len(parts) == 1 else make(parts)


def _given(numbers: list[int], make: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    def choose(parts: list[Any]) -> Any:
        chosen: list[Any] = []
        for number in numbers:
            if number >= 0:
                chosen.append(parts[number])
            elif chosen:
                chosen += parts[-number - 1]
            else:  # a long list grows at its end, part by part: it is not copied each time
                chosen = parts[-number - 1]
        return make(chosen)

    return choose


class _Lexers(dict[int, "_Lexer"]):
    """The lexer of a state, for the terminals that may come there."""

    def __init__(self, tables: Tables) -> None:
        super().__init__()
        self._tables = tables
        self._ignored = frozenset(tables.ignored)
        self._expressions: dict[str, re.Pattern[str]] = {}
        self._made: dict[int, _Lexer] = {}

    def __missing__(self, state: int) -> _Lexer:
        number = self._tables.lexer_of[state]
        if number not in self._made:
            terminals = self._tables.terminals
            tried, meant = self._tables.lexers[number]
            fixed = {
                terminals[one].name: {
                    str(terminals[other].fixed): terminals[other].name for other in others
                }
                for one, others in meant
            }
            self._made[number] = _Lexer(
                [terminals[one] for one in tried], fixed, self._ignored, self._expressions
            )
        made = self[state] = self._made[number]
        return made


class _Lexer:
    """The first of some terminals that fits."""

    def __init__(
        self,
        tried: list[Terminal],
        meant: dict[str, dict[str, str]],
        ignored: frozenset[str],
        expressions: dict[str, re.Pattern[str]],
    ) -> None:
        self.ignored = ignored
        self._tried = tried
        self._meant = meant
        self._expressions = expressions
        self._left = _TRIES
        self._whole: re.Pattern[str] | None = None

    def match(self, text: str, position: int) -> tuple[str, str] | None:
        """The text of a token at a position and its terminal; None where no terminal fits."""
        found = self._one_by_one(text, position) if self._left else self._at_once(text, position)
        if found is not None and found[1] in self._meant:
            return found[0], self._meant[found[1]].get(*found)
        return found

    def _one_by_one(self, text: str, position: int) -> tuple[str, str] | None:
        self._left -= 1
        for name, pattern, _ in self._tried:
            expression = self._expressions.get(name)
            if expression is None:
                expression = self._expressions[name] = re.compile(pattern)
            found = expression.match(text, position)
            if found is not None:
                return found[0], name
        return None

    def _at_once(self, text: str, position: int) -> tuple[str, str] | None:
        if self._whole is None:
            self._whole = re.compile(
                "|".join(f"(?P<{one.name}>{one.expression})" for one in self._tried)
            )
        found = self._whole.match(text, position)
        if found is None:
            return None
        assert found.lastgroup is not None, "every branch has a name"
        return found[0], found.lastgroup
